"""Scripted agents: rules, names, seats, lots (law 7; rule 3 needs them in any seat)."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from coplay.agents.base import Seat, ToolResult, TurnKey
from coplay.agents.scripted import (
    LINE,
    SCRIPTED,
    AgentGameError,
    ScriptedAgent,
    UnknownAgentError,
    scripted_agent,
)
from coplay.agents.scripted_search import SearchingAgent
from coplay.games import (
    Chance,
    Choice,
    Fields,
    FreeText,
    Grammar,
    Move,
    Number,
    Observation,
    OneOf,
    game_class,
    make_game,
)
from coplay.games.tools import Call, Tools

MATRIX_FACTS = {
    "game": "iterated_matrix",
    "moves": ["A", "B"],
    "cooperate": {"Ada": "A", "Bo": "A", "Cy": "A"},
}


def seated(name: str, game: str = "iterated_matrix", seed: int = 0) -> Any:
    return scripted_agent(name)(
        Seat(game=game, player="Ada", players=("Ada", "Bo", "Cy"), episode="0", seed=seed)
    )


def reply(agent: Any, observation: Observation, step: int = 1, attempt: int = 0) -> str:
    key = TurnKey(episode="0", branch="", player="Ada", step=step, attempt=attempt)
    answer = asyncio.run(agent.reply(observation, key))
    assert (answer.policy, answer.segments, answer.finish) == (agent.policy, (), "stop")
    return str(answer.text)


def seen(*last: str) -> Observation:
    facts: dict[str, Any] = dict(MATRIX_FACTS)
    if last:
        facts["last"] = dict(zip(("Ada", "Bo", "Cy"), last, strict=True))
    return Observation(text="go", grammar=Choice(("A", "B")), facts=facts)


@pytest.mark.parametrize(
    ("name", "dialogue", "expected"),
    [
        ("always_cooperate", ["", "AAA", "ABB"], "AAA"),
        ("always_defect", ["", "BAA", "BBB"], "BBB"),
        ("tit_for_tat", ["", "AAA", "AAB", "BBA", "BAA"], "AABBA"),
        ("grim", ["", "AAA", "AAB", "BAA", "BAA"], "AABBB"),
        ("win_stay_lose_shift", ["", "AAA", "AAB", "BAA", "BAB", "AAA"], "AABBAA"),
    ],
)
def test_strategy_when_moves_were_seen_then_the_expected_dialogue(
    name: str, dialogue: list[str], expected: str
) -> None:
    """With three players the others cooperated only if both did."""
    agent = seated(name)
    assert "".join(reply(agent, seen(*last), step) for step, last in enumerate(dialogue)) == expected


def test_fork_when_one_copy_is_provoked_then_the_other_is_not() -> None:
    agent = seated("grim")
    reply(agent, seen())
    twin = agent.fork()
    assert reply(twin, seen("A", "B", "A")) == "B"
    assert reply(agent, seen("A", "A", "A")) == "A"
    assert reply(twin, seen("B", "A", "A")) == "B"


def test_close_when_truncated_then_no_reply() -> None:
    assert seated("grim").close(seen()) is None


GRAMMARS: list[Grammar] = [
    Choice(("A", "B", "C"), "x"),
    Number(0, 4),
    Number(values=(0, 5, 10), tag="x"),
    Number(0, 10**6),
    Number(values=tuple(range(0, 9000, 2))),
    Fields(("hats", "books"), 0, 3),
    Fields(("hats", "books", "balls"), 0, 20, bare=True),
    Fields(("hats", "books"), 0, (2, 5000)),
    OneOf(("answer", "price", "message"), (Choice(("yes",)), Number(0, 5000), FreeText(9)), "message"),
    FreeText(7, "m"),
]


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_random_when_any_grammar_then_moves_drawn_from_seed_step_and_attempt(grammar: Grammar) -> None:
    """Law 7: a lot is a function of (seat seed, step, attempt)."""
    observation = Observation(text="?", grammar=grammar)
    agent = seated("random", game="someone_elses_game", seed=5)
    drawn = [reply(agent, observation, step) for step in range(60)]
    assert all(isinstance(grammar.parse(text), Move) for text in drawn)
    assert drawn == [reply(seated("random", "other", 5), observation, step) for step in range(60)]
    if not isinstance(grammar, FreeText):
        assert drawn != [reply(seated("random", "other", 6), observation, step) for step in range(60)]
        assert drawn != [reply(agent, observation, step, attempt=1) for step in range(60)]
        assert len(set(drawn)) > 2


def test_random_when_drawn_often_then_uniform_over_labels() -> None:
    observation = Observation(text="?", grammar=Choice(("A", "B", "C")))
    agent = seated("random")
    counts = Counter(reply(agent, observation, step) for step in range(1500))
    assert all(abs(counts[label] - 500) < 5 * 500**0.5 for label in "ABC")


def split_facts(own: tuple[int, ...], other: tuple[int, ...], third: tuple[int, ...]) -> Observation:
    items = ("hats", "books", "balls")
    values = {p: dict(zip(items, v, strict=True)) for p, v in (("Ada", own), ("Bo", other), ("Cy", third))}
    facts = {"game": "split", "items": list(items), "stock": 10, "values": values}
    return Observation(text="", grammar=Fields(items, 0, 10, bare=True), facts=facts)


@pytest.mark.parametrize(
    ("name", "expected"), [("greedy", "10 10 10"), ("fair", "5 5 5"), ("welfare_maximising", "10 5 0")]
)
def test_splitter_when_values_are_public_then_claims_by_its_rule(name: str, expected: str) -> None:
    assert reply(seated(name, "split"), split_facts((10, 10, 1), (1, 10, 10), (1, 1, 1))) == expected


@pytest.mark.parametrize(
    ("claims", "expected"), [(None, "5"), ([0, 5, 10], "5"), ([0, 4, 6, 10], "4"), ([0, 10], "0")]
)
def test_fair_when_half_is_not_allowed_then_the_nearest_smaller(
    claims: list[int] | None, expected: str
) -> None:
    grammar = Number(0, 10) if claims is None else Number(values=tuple(claims))
    facts = {"game": "trust_and_split", "coins": 10, "claims": claims, "value": 10, "other_value": 1}
    assert (
        reply(seated("fair", "trust_and_split"), Observation(text="", grammar=grammar, facts=facts))
        == expected
    )


@pytest.mark.parametrize(
    ("hand", "heard", "expected"),
    [
        ("rock", ["I have scissors."], "10"),
        ("rock", ["My hand is paper"], "0"),
        ("rock", ["paper", "no: scissors"], "10"),
        ("rock", ["rock or paper?"], "5"),
        ("rock", ["Rocket"], "5"),
        ("paper", [], "5"),
    ],
)
def test_welfare_maximising_when_hands_are_private_then_believes_what_it_hears(
    hand: str, heard: list[str], expected: str
) -> None:
    facts = {"game": "trust_and_split", "coins": 10, "claims": None, "hand": hand, "heard": heard}
    agent = seated("welfare_maximising", "trust_and_split")
    assert reply(agent, Observation(text="", grammar=Number(0, 10), facts=facts)) == expected
    assert reply(agent, Observation(text="", grammar=FreeText(99), facts=facts)) == f"My hand is {hand}."


@pytest.mark.parametrize("name", ["greedy", "fair", "random"])
def test_message_when_asked_for_then_a_fixed_line_within_the_limit(name: str) -> None:
    facts = {"game": "trust_and_split", "hand": "rock", "heard": []}
    agent = seated(name, "trust_and_split")
    assert reply(agent, Observation(text="", grammar=FreeText(99), facts=facts)) == LINE
    assert reply(agent, Observation(text="", grammar=FreeText(4), facts=facts)) == LINE[:4].strip()


def test_scripted_agent_when_name_is_misspelt_then_nearest_is_named() -> None:
    with pytest.raises(UnknownAgentError, match="did you mean 'tit_for_tat'"):
        scripted_agent("tit_for_tad")


@pytest.mark.parametrize("name", [name for name in SCRIPTED if name != "random"])
def test_seat_when_the_game_is_not_known_then_refused_before_play(name: str) -> None:
    with pytest.raises(AgentGameError, match=r"no rule for game 'chess'.*'random'"):
        seated(name, "chess")


class Silent:
    """A desk whose tools find nothing."""

    def check(self, tools: Tools) -> None:
        """Whatever is offered."""

    async def run(self, call: Call) -> ToolResult:
        """Nothing."""
        return ToolResult("nothing")


def test_every_agent_when_seated_then_plays_its_games_to_the_end() -> None:
    rounds = {"num_rounds": 2}
    for name, script in SCRIPTED.items():
        for game_name in sorted(script.games or {"iterated_matrix", "split", "trust_and_split"}):
            has_rounds = "num_rounds" in game_class(game_name).Parameters.model_fields
            game = make_game(game_name, **(rounds if has_rounds else {}))
            seats = {
                player: scripted_agent(name)(
                    Seat(
                        game=game_name,
                        player=player,
                        players=game.spec.players,
                        episode="0",
                        seed=place,
                        tools=Silent(),
                    )
                )
                for place, player in enumerate(game.spec.players)
            }
            assert all(isinstance(agent, ScriptedAgent | SearchingAgent) for agent in seats.values())
            state, step = game.initial_state(Chance(0)), 0
            while movers := game.to_move(state):
                step += 1
                seen_now = {player: game.observe(state, player) for player in movers}
                actions = {p: o.grammar.parse(reply(seats[p], o, step)) for p, o in seen_now.items()}
                assert all(isinstance(action, Move) for action in actions.values())
                state, _ = game.step(state, actions, Chance(0, step))

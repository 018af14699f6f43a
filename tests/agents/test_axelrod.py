"""Strategies of the Axelrod library: move for move and score for score as its own matches and tournament."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from statistics import median
from typing import Any

import pytest

from coplay.agents import axelrod_strategies
from coplay.agents.axelrod_strategies import axelrod_agent, axelrod_names
from coplay.agents.base import Agent, AgentFactory, Seat, TurnKey
from coplay.agents.named import is_named, named_agent, named_players, plays
from coplay.agents.scripted import AgentGameError, UnknownAgentError
from coplay.games import Chance, Game, make_game
from coplay.games.optional import MissingLibraryError
from coplay.rollout_tree import CollectPlan, EpisodePlan, RolloutTree, collect_sync

PLAYERS = ("Ada", "Bo")
HORIZON = ("BackStabber", "DoubleCrosser", "First by Stein and Rapoport")
"""Deterministic strategies that do something else at the end, if they know when that is."""


@pytest.fixture(scope="session")
def axl() -> Any:
    """The library; it takes some ten seconds to import."""
    return pytest.importorskip("axelrod")


def seat(game: Game[Any], player: str = "Ada", seed: int = 0, **changes: Any) -> Seat:
    told = {"game": game.name, "players": game.spec.players, "parameters": game.parameters} | changes
    return Seat(player=player, episode="0", seed=seed, **told)


@dataclass
class Table:
    """A game with agents at it, played step by step."""

    game: Game[Any]
    agents: dict[str, Agent]
    state: Any
    step: int = 0
    branch: str = ""

    def round(self) -> str:
        replies = {}
        for player in self.game.to_move(self.state):
            key = TurnKey(episode="0", branch=self.branch, player=player, step=self.step)
            seen = self.game.observe(self.state, player)
            replies[player] = seen.grammar.parse(asyncio.run(self.agents[player].reply(seen, key)).text)
        self.step += 1
        self.state, outcome = self.game.step(self.state, replies, Chance(0, self.step))
        return "".join(outcome.info["moves"].values())

    def fork(self, branch: str = "") -> "Table":
        agents = {player: agent.fork() for player, agent in self.agents.items()}
        return Table(self.game, agents, self.state, self.step, branch)


def table(game: Game[Any], *names: str, seed: int = 0) -> Table:
    players = game.spec.players
    agents = {
        player: named_agent(name)(seat(game, player, 2 * seed + place))
        for place, (player, name) in enumerate(zip(players, names, strict=True))
    }
    return Table(game, agents, game.initial_state(Chance(0)))


def pairs(game: Game[Any], seated: Sequence[Sequence[AgentFactory]], names: Sequence[Any]) -> CollectPlan:
    """One episode for each pair."""
    episodes = tuple(
        EpisodePlan(
            episode=f"{place}",
            group="0",
            iteration=0,
            run_seed=0,
            group_seed=0,
            seats=dict(zip(PLAYERS, factories, strict=True)),
            seat_names=dict(zip(PLAYERS, names[place], strict=True)),
        )
        for place, factories in enumerate(seated)
    )
    return CollectPlan(game=game, episodes=episodes)


def moves(tree: RolloutTree) -> list[str]:
    assert tree.failure is None, tree.failure
    return ["".join(step.info["moves"].values()) for step in tree.steps]


def native(match: Any) -> list[str]:
    """Its moves, C as A and D as B."""
    return ["".join("AB"[str(action) == "D"] for action in pair) for pair in match.result]


def deterministic_sample(axl: Any, size: int) -> list[str]:
    able = []
    for strategy in axl.strategies:
        player = strategy()
        if not axl.Classifiers["stochastic"](player) and not axl.Classifiers["long_run_time"](player):
            able.append(strategy.name)
    spaced = [able[place * (len(able) - 1) // (size - 1)] for place in range(size)]
    return list(dict.fromkeys([*HORIZON, *spaced]))[:size]


@pytest.mark.needs("axelrod")
def test_names_when_listed_then_all_that_play_by_the_rules(axl: Any) -> None:
    assert len(set(axelrod_names())) == len(axl.strategies) == 243
    assert "axelrod:Tit For Tat" in axelrod_names()
    assert "axelrod:Darwin" not in axelrod_names()  # reads its opponent's mind


@pytest.mark.slow
@pytest.mark.needs("axelrod")
def test_deterministic_pairs_when_played_then_move_for_move_and_score_for_score_as_the_library(
    axl: Any,
) -> None:
    """A fixed horizon is told, by `Match` and by us: three of the sample act on it."""
    rounds = 25
    by_name = {strategy.name: strategy for strategy in axl.strategies}
    sample = deterministic_sample(axl, 40)
    met = list(combinations_with_replacement(sample, 2))
    assert len(sample) == 40 and len(met) == 820
    game = make_game("iterated_matrix", wording="terse", num_rounds=rounds)
    factories = {name: axelrod_agent(f"axelrod:{name}") for name in sample}
    named = [(f"axelrod:{one}", f"axelrod:{other}") for one, other in met]
    trees = collect_sync(pairs(game, [(factories[one], factories[other]) for one, other in met], named))
    for tree in trees:
        one, other = met[int(tree.episode)]
        match = axl.Match((by_name[one](), by_name[other]()), turns=rounds)
        match.play()
        assert moves(tree) == native(match), (one, other)
        ours = [tuple(step.rewards.values()) for step in tree.steps]
        assert ours == [tuple(map(float, pair)) for pair in match.scores()], (one, other)


@pytest.mark.slow
@pytest.mark.needs("axelrod")
def test_first_tournament_when_played_here_then_ranked_as_there(axl: Any) -> None:
    """Stochastic strategies get the seeds that the library's tournament gives them, so all 15 ranks must agree."""
    rounds, repetitions, seed = 200, 3, 5
    strategies = axl.axelrod_first_strategies
    entered = [strategy() for strategy in strategies]
    assert len(entered) == 15
    there = axl.Tournament(entered, turns=rounds, repetitions=repetitions, seed=seed).play(progress_bar=False)

    game = make_game("iterated_matrix", wording="terse", num_rounds=rounds)
    seated, named, met = [], [], []
    for chunk in axl.match_generator.MatchGenerator(
        entered, repetitions, turns=rounds, seed=seed
    ).build_match_chunks():
        luck = axl.RandomGenerator(seed=chunk.seed)
        for _ in range(repetitions):
            drawn = [
                luck.random_seed_int() if axl.Classifiers["stochastic"](entered[place]) else 0
                for place in chunk.index_pair
            ]
            names = [f"axelrod:{strategies[place].name}" for place in chunk.index_pair]
            seated.append([seeded(*both) for both in zip(names, drawn, strict=True)])
            named.append(names)
            met.append(chunk.index_pair)

    scores: list[list[float]] = [[0.0] * repetitions for _ in entered]
    counted: dict[tuple[int, int], int] = {}
    for tree in collect_sync(pairs(game, seated, named)):
        assert tree.failure is None
        pair = met[int(tree.episode)]
        repetition = counted[pair] = counted.get(pair, -1) + 1
        if pair[0] != pair[1]:  # as there, meeting one's twin does not count
            for place, player in zip(pair, PLAYERS, strict=True):
                scores[place][repetition] += sum(step.rewards[player] for step in tree.steps)
    assert scores == [[float(score) for score in row] for row in there.scores]
    ranked = sorted(range(15), key=lambda place: -median(scores[place]))
    assert [str(entered[place]) for place in ranked] == there.ranked_names
    assert [entered[place].name for place in ranked][:2] == [
        "First by Stein and Rapoport",
        "First by Grofman",
    ]


def seeded(name: str, seed: int) -> AgentFactory:
    def sit_down(taken: Seat) -> Agent:
        agent: Any = axelrod_agent(name)(taken)
        agent.seeds[1] = seed
        return agent

    return sit_down


@pytest.mark.needs("axelrod")
@pytest.mark.parametrize(
    "name", ["Random", "First by Grofman", "ZD-Extort-2", "Meta Hunter", "Evolved HMM 5"]
)
def test_luck_when_seats_have_seeds_then_a_function_of_them(axl: Any, name: str) -> None:
    game = make_game("iterated_matrix", wording="terse", num_rounds=60)

    def played(seed: int) -> list[str]:
        sat = table(game, f"axelrod:{name}", "axelrod:Random", seed=seed)
        return [sat.round() for _ in range(60)]

    assert played(1) == played(1)
    assert played(1) != played(2)


@pytest.mark.needs("axelrod")
def test_fork_when_both_go_on_then_the_same_and_a_branch_draws_its_own_luck(axl: Any) -> None:
    game = make_game("iterated_matrix", wording="terse", num_rounds=60)
    for name in ("Random", "First by Feld", "Adaptive", "ThueMorse", "Cycler CCD", "Meta Hunter", "CAPRI"):
        sat = table(game, f"axelrod:{name}", "axelrod:Random")
        for _ in range(7):
            sat.round()
        twin, branch, again, other = sat.fork(), sat.fork("b1"), sat.fork("b1"), sat.fork("b2")
        then = [sat.round() for _ in range(40)]
        assert then == [twin.round() for _ in range(40)], name
        drawn = [branch.round() for _ in range(40)]
        assert drawn == [again.round() for _ in range(40)] != then
        assert drawn != [other.round() for _ in range(40)]


@pytest.mark.needs("axelrod")
def test_horizon_when_rounds_are_fixed_then_told_and_when_play_may_stop_then_not(axl: Any) -> None:
    fixed = make_game("iterated_matrix", wording="terse", num_rounds=12)
    sat = table(fixed, "axelrod:BackStabber", "always_cooperate")
    assert "".join(sat.round()[0] for _ in range(12)) == "A" * 10 + "BB"
    stopping = make_game("iterated_matrix", wording="terse", num_rounds=12, continuation_probability=0.999)
    sat = table(stopping, "axelrod:BackStabber", "always_cooperate")
    assert "".join(sat.round()[0] for _ in range(12)) == "A" * 12
    agent: Any = axelrod_agent("axelrod:BackStabber")(seat(stopping))
    assert agent.players[0].match_attributes["length"] == float("inf")


@pytest.mark.needs("axelrod")
def test_payoffs_when_the_table_is_not_symmetric_then_each_is_told_his_own(axl: Any) -> None:
    payoffs = (((3, 30), (0, 50)), ((5, 0), (1, 10)))
    game = make_game("iterated_matrix", preset="custom", payoffs=payoffs)
    for player, expected in (("Ada", (3, 1, 0, 5)), ("Bo", (30, 10, 0, 50))):
        agent: Any = axelrod_agent("axelrod:Adaptive")(seat(game, player))
        assert agent.players[0].match_attributes["game"].RPST() == expected


@pytest.mark.needs("axelrod")
def test_reply_when_asked_again_then_the_same_and_a_malformed_move_counts_as_what_it_is(axl: Any) -> None:
    game = make_game("iterated_matrix", wording="terse")
    agent: Any = axelrod_agent("axelrod:Random")(seat(game))
    key = TurnKey(episode="0", branch="", player="Ada", step=0)
    seen = game.observe(game.initial_state(Chance(0)), "Ada")
    first = asyncio.run(agent.reply(seen, key)).text
    assert {asyncio.run(agent.reply(seen, key)).text for _ in range(20)} == {first}
    tit_for_tat: Any = axelrod_agent("axelrod:Tit For Tat")(seat(game))
    asyncio.run(tit_for_tat.reply(seen, key))
    actions = {player: seen.grammar.parse(text) for player, text in (("Ada", "A"), ("Bo", "neither"))}
    state, _ = game.step(game.initial_state(Chance(0)), actions, Chance(0, 1))
    assert asyncio.run(tit_for_tat.reply(game.observe(state, "Ada"), key)).text == "B"


@pytest.mark.needs("axelrod")
def test_seat_when_the_strategy_cannot_play_there_then_one_sentence(axl: Any) -> None:
    agent = axelrod_agent("axelrod:Tit For Tat")
    three = make_game("iterated_matrix", players=("Ada", "Bo", "Cy"))
    for game, told in (
        (three, "got 3 players and a table of 2 by 2"),
        (make_game("split"), "has no rule for game 'split'"),
    ):
        with pytest.raises(AgentGameError, match=told):
            agent(seat(game))
    with pytest.raises(AgentGameError, match="a seat that tells its parameters"):
        agent(seat(three, parameters=None))
    with pytest.raises(UnknownAgentError, match=r"243 strategies; did you mean 'axelrod:Tit For Tat'\?"):
        named_agent("axelrod:Tit for tatt")


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "axelrod", None)
    for kept in (axelrod_strategies._library, axelrod_strategies._strategies):
        kept.cache_clear()
    yield
    for kept in (axelrod_strategies._library, axelrod_strategies._strategies):
        kept.cache_clear()


def test_library_when_it_is_missing_then_one_sentence_says_what_to_install(without_library: None) -> None:
    with pytest.raises(MissingLibraryError, match=r"needs the library 'axelrod'.*pip install .*\[games\]"):
        named_agent("axelrod:Tit For Tat")


def test_names_when_of_a_library_then_known_without_importing_it(without_library: None) -> None:
    assert is_named("axelrod:whatever") and is_named("grim") and not is_named("run@5:bo")
    assert plays("axelrod:whatever", "iterated_matrix") and not plays("axelrod:whatever", "split")
    assert "axelrod:NAME" in named_players("iterated_matrix")
    assert "axelrod:NAME" not in named_players("split")

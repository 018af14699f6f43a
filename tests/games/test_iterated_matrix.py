"""Iterated matrix games: payoffs, reference returns, luck, wordings (B51–B55, B58)."""

import itertools
import math
import re
import time
from types import ModuleType
from typing import Any

import pytest

from coplay.games import Chance, Choice, Game, GameParameterError, Malformed, Move, make_game
from coplay.games.iterated_matrix_presets import PRESETS

NAMES = ("always_cooperate", "always_defect", "tit_for_tat", "grim", "win_stay_lose_shift")
TABLE = {
    "always_cooperate": (30, 0, 30, 30, 30),
    "always_defect": (50, 10, 14, 14, 30),
    "tit_for_tat": (30, 9, 30, 30, 30),
    "grim": (30, 9, 30, 30, 30),
    "win_stay_lose_shift": (30, 5, 30, 30, 30),
}
"""Totals of the row player over 10 rounds against `NAMES`."""
AGAINST_RANDOM = {
    "always_cooperate": (15, 40),
    "always_defect": (30, 5),
    "tit_for_tat": (21.75, 24.25),
    "grim": (27.0029, 11.9932),
    "win_stay_lose_shift": (21.75, 24.25),
}
"""Expected totals over 10 rounds, (the strategy's, random's)."""


def moves(game: Game[Any], **labels: str) -> dict[str, Any]:
    return {player: Move(value=label, text=label) for player, label in labels.items()}


@pytest.mark.parametrize("row", NAMES)
@pytest.mark.parametrize("column", NAMES)
@pytest.mark.parametrize("wording", ["full", "terse"])
def test_returns_when_strategies_meet_then_the_reference_table(
    scripted: ModuleType, row: str, column: str, wording: str
) -> None:
    """B52, B53 (the last round counts), B55 (sums of step rewards)."""
    game = make_game("iterated_matrix", wording=wording)
    sums = scripted.totals(game, {"Ada": row, "Bo": column})
    assert sums == {"Ada": TABLE[row][NAMES.index(column)], "Bo": TABLE[column][NAMES.index(row)]}


@pytest.mark.parametrize(
    ("rounds", "row", "column", "expected"),
    [
        (5, "always_defect", "tit_for_tat", (9, 4)),
        (5, "always_cooperate", "always_defect", (0, 25)),
        (200, "always_defect", "tit_for_tat", (204, 199)),
        (200, "tit_for_tat", "tit_for_tat", (600, 600)),
        (200, "always_cooperate", "always_defect", (0, 1000)),
        (200, "win_stay_lose_shift", "always_defect", (100, 600)),
    ],
)
def test_returns_when_other_lengths_then_the_reference_numbers(
    scripted: ModuleType, rounds: int, row: str, column: str, expected: tuple[int, int]
) -> None:
    game = make_game("iterated_matrix", num_rounds=rounds, wording="terse")
    assert tuple(scripted.totals(game, {"Ada": row, "Bo": column}).values()) == expected


@pytest.mark.parametrize("strategy", NAMES)
def test_returns_when_one_is_random_then_the_exact_expectation(scripted: ModuleType, strategy: str) -> None:
    """By enumeration: every sequence of a random player's ten moves is equally likely."""
    game = make_game("iterated_matrix", wording="terse")
    agents = scripted.seat_agents(game, {"Ada": strategy, "Bo": "random"}, 0)
    ada = agents["Ada"]
    key = scripted.TurnKey(episode="0", branch="", player="Ada", step=0)
    sums = [0.0, 0.0]
    # A stack of (state, agent before the round, pay so far), so that every prefix is played once.
    stack = [(game.initial_state(Chance(0)), ada, 0.0, 0.0)]
    while stack:
        state, agent, own, other = stack.pop()
        if not game.to_move(state):
            sums[0] += own
            sums[1] += other
            continue
        move = scripted.answer(agent, game.observe(state, "Ada"), key)
        for label in "AB":
            following, outcome = game.step(state, moves(game, Ada=move, Bo=label), Chance(0))
            paid = outcome.rewards
            stack.append((following, agent.fork(), own + paid["Ada"], other + paid["Bo"]))
    assert (sums[0] / 2**10, sums[1] / 2**10) == pytest.approx(AGAINST_RANDOM[strategy], abs=5e-5)


def test_returns_when_both_are_random_then_near_the_expectation(scripted: ModuleType) -> None:
    """22.5; the mean of 800 totals has a deviation of 0.22."""
    game = make_game("iterated_matrix", wording="terse")
    sums = [scripted.totals(game, {"Ada": "random", "Bo": "random"}, seed=seed) for seed in range(400)]
    assert sum(each["Ada"] + each["Bo"] for each in sums) / 800 == pytest.approx(22.5, abs=0.7)


def expected_rewards(
    scripted: ModuleType, game: Game[Any], row: str, column: str
) -> list[tuple[float, float]]:
    """Each round's expected rewards, exact: plays that came to the same state and memories are one."""
    agents = scripted.seat_agents(game, {"Ada": row, "Bo": column}, 0)
    key = {player: scripted.TurnKey(episode="0", branch="", player=player, step=0) for player in agents}
    plays = {None: (1.0, game.initial_state(Chance(0)), agents)}
    rounds = []
    while game.to_move(next(iter(plays.values()))[1]):
        following: dict[Any, Any] = {}
        sums = [0.0, 0.0]
        for share, state, now in plays.values():
            lots = [
                "AB"
                if name == "random"
                else scripted.answer(now[player], game.observe(state, player), key[player])
                for player, name in (("Ada", row), ("Bo", column))
            ]
            for one, other in itertools.product(*lots):
                part = share / (len(lots[0]) * len(lots[1]))
                after, outcome = game.step(state, moves(game, Ada=one, Bo=other), Chance(0))
                sums = [
                    total + part * paid for total, paid in zip(sums, outcome.rewards.values(), strict=True)
                ]
                memories = (after, now["Ada"].provoked, now["Bo"].provoked)
                already = following.get(memories, (0.0,))[0]
                following[memories] = (already + part, after, {p: agent.fork() for p, agent in now.items()})
        plays = following
        rounds.append((sums[0], sums[1]))
    return rounds


@pytest.mark.parametrize(
    ("rounds", "row", "column", "expected"),
    [(5, "random", "random", (11.25, 11.25)), (200, "grim", "random", (597, 107))],
)
def test_returns_when_lots_are_drawn_for_long_then_the_exact_expectation(
    scripted: ModuleType, rounds: int, row: str, column: str, expected: tuple[float, float]
) -> None:
    """Worked out by hand."""
    game = make_game("iterated_matrix", num_rounds=rounds, wording="terse")
    totals = [sum(paid) for paid in zip(*expected_rewards(scripted, game, row, column), strict=True)]
    assert totals == pytest.approx(expected, abs=1e-9)


LOLA = (((-1, -1), (-3, 0)), ((0, -3), (-2, -2)))


@pytest.mark.parametrize(
    ("payoffs", "discount", "row", "column", "expected"),
    [
        (None, 0.9, "always_defect", "tit_for_tat", (1.4, 0.9)),
        (None, 0.9, "always_cooperate", "always_defect", (0, 5)),
        (None, 0.9, "tit_for_tat", "tit_for_tat", (3, 3)),
        (None, 0.9, "random", "random", (2.25, 2.25)),
        (None, 0.9, "always_defect", "win_stay_lose_shift", (3.10526, 0.47368)),
        (None, 0.9, "grim", "random", (2.72727, 1.13636)),
        (LOLA, 0.96, "always_defect", "tit_for_tat", (-1.92, -2.04)),
        (LOLA, 0.96, "always_cooperate", "always_defect", (-3, 0)),
        (LOLA, 0.96, "tit_for_tat", "tit_for_tat", (-1, -1)),
        (LOLA, 0.96, "random", "random", (-1.5, -1.5)),
        (LOLA, 0.96, "always_defect", "always_defect", (-2, -2)),
    ],
)
def test_values_when_discounted_for_ever_then_the_reference(
    scripted: ModuleType,
    payoffs: Any,
    discount: float,
    row: str,
    column: str,
    expected: tuple[float, float],
) -> None:
    """(1 − γ)·Σ γᵗ r; what lies beyond the last round is below 1e-6."""
    told = {} if payoffs is None else {"preset": "custom", "payoffs": payoffs}
    num_rounds = int(-15 / math.log(discount)) + 1
    game = make_game("iterated_matrix", num_rounds=num_rounds, wording="terse", **told)
    rounds = expected_rewards(scripted, game, row, column)
    weights = [(1 - discount) * discount**t for t in range(num_rounds)]
    value = [sum(w * r for w, r in zip(weights, each, strict=True)) for each in zip(*rounds, strict=True)]
    assert value == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("payoffs", "name", "threshold"),
    [(None, "grim", 1 / 2), (None, "tit_for_tat", 2 / 3), (LOLA, "tit_for_tat", 1 / 2)],
)
def test_cooperation_when_patient_enough_then_no_deviation_pays(
    scripted: ModuleType, payoffs: Any, name: str, threshold: float
) -> None:
    """Defecting for good, or every other round, pays below the threshold and not above it."""
    told = {} if payoffs is None else {"preset": "custom", "payoffs": payoffs}
    game = make_game("iterated_matrix", num_rounds=200, wording="terse", **told)

    def rewards(pattern: str) -> list[float]:
        state, paid = game.initial_state(Chance(0)), []
        agent = scripted.seat_agents(game, {"Ada": "random", "Bo": name}, 0)["Bo"]
        key = scripted.TurnKey(episode="0", branch="", player="Bo", step=0)
        for label in itertools.islice(itertools.cycle(pattern), 200):
            reply = scripted.answer(agent, game.observe(state, "Bo"), key)
            state, outcome = game.step(state, moves(game, Ada=label, Bo=reply), Chance(0))
            paid.append(outcome.rewards["Ada"])
        return paid

    loyal, disloyal = rewards("A"), [rewards("B"), rewards("BA")]
    for discount, pays in ((threshold - 0.01, True), (threshold + 0.01, False)):
        gains = [
            sum(discount**t * (own - base) for t, (own, base) in enumerate(zip(each, loyal, strict=True)))
            for each in disloyal
        ]
        assert (max(gains) > 0) == pays, gains


def payoff(preset: str, row: int, column: int) -> tuple[float, float]:
    return PRESETS[preset][row][column]


def test_payoffs_when_presets_then_their_conditions_hold() -> None:
    """T>R>P>S and 2R>T+S; R>T>P>S with a risky hunt; T>R>S>P; two equilibria that each prefer (B52)."""
    for name, (r, s, t, p) in {
        name: (payoff(name, 0, 0)[0], payoff(name, 0, 1)[0], payoff(name, 1, 0)[0], payoff(name, 1, 1)[0])
        for name in ("prisoners_dilemma", "stag_hunt", "chicken")
    }.items():
        if name == "prisoners_dilemma":
            assert (t, r, p, s) == (5, 3, 1, 0)
            assert t > r > p > s and 2 * r > t + s
        elif name == "stag_hunt":
            assert r > t > p > s and t + p > r + s
        else:
            assert t > r > s > p
    (first, off), (off2, second) = PRESETS["battle_of_the_sexes"]
    assert off == off2 == (0, 0)
    assert first == second[::-1] and first[0] > first[1] > 0


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("wording", ["full", "terse"])
def test_rewards_when_every_joint_move_is_played_then_the_documented_table(preset: str, wording: str) -> None:
    """B52: for each seat, the payoff table equals the documented one; the number of rounds is as configured."""
    game = make_game("iterated_matrix", preset=preset, num_rounds=2, wording=wording)
    for row, column in itertools.product(range(2), repeat=2):
        state = game.initial_state(Chance(0))
        state, first = game.step(state, moves(game, Ada="AB"[row], Bo="AB"[column]), Chance(0, 1))
        state, second = game.step(state, moves(game, Ada="AB"[row], Bo="AB"[column]), Chance(0, 2))
        assert tuple(first.rewards.values()) == tuple(second.rewards.values()) == PRESETS[preset][row][column]
        assert (first.terminated, second.terminated) == (False, True)
        assert game.to_move(state) == ()
        assert first.info["moves"] == {"Ada": "AB"[row], "Bo": "AB"[column]}
        assert first.info["cooperated"] == {"Ada": row == 0, "Bo": column == 0}


@pytest.mark.parametrize("preset", ["prisoners_dilemma", "stag_hunt", "chicken"])
def test_rewards_when_seats_are_swapped_then_swapped(preset: str) -> None:
    """B52, and the spec's `symmetric`."""
    game = make_game("iterated_matrix", preset=preset)
    assert game.spec.symmetric
    state = game.initial_state(Chance(0))
    for row, column in itertools.product("AB", repeat=2):
        one = game.step(state, moves(game, Ada=row, Bo=column), Chance(0, 1))[1].rewards
        other = game.step(state, moves(game, Ada=column, Bo=row), Chance(0, 1))[1].rewards
        assert (one["Ada"], one["Bo"]) == (other["Bo"], other["Ada"])


CAKE = {
    "preset": "custom",
    "payoffs": (((4, 1), (2, 2), (0, 5)), ((1, 0), (3, -1), (2, 2))),
    "moves": ("cut", "keep"),
    "column_moves": ("left", "middle", "right"),
}


@pytest.mark.parametrize("wording", ["full", "terse"])
def test_asymmetric_game_when_played_then_each_gets_his_own_tables_entry(wording: str) -> None:
    """B58: asymmetric 2×3, joint action (0, 2) and all others; B51: each seat sees his own moves and table."""
    game = make_game("iterated_matrix", wording=wording, **CAKE)
    state = game.initial_state(Chance(0))
    for (i, row), (j, column) in itertools.product(enumerate(CAKE["moves"]), enumerate(CAKE["column_moves"])):
        outcome = game.step(state, moves(game, Ada=row, Bo=column), Chance(0, 1))[1]
        assert (outcome.rewards["Ada"], outcome.rewards["Bo"]) == CAKE["payoffs"][i][j]
    ada, bo = game.observe(state, "Ada"), game.observe(state, "Bo")
    wrap = "<move>{}</move>" if wording == "full" else "{}"
    assert ada.grammar.labels() == tuple(map(wrap.format, CAKE["moves"]))
    assert bo.grammar.labels() == tuple(map(wrap.format, CAKE["column_moves"]))
    assert not game.spec.symmetric
    assert game.spec.reward_range == (-1, 5)
    if wording == "terse":
        assert (
            ada.system
            == "cut left 4 1 cut middle 2 2 cut right 0 5 keep left 1 0 keep middle 3 -1 keep right 2 2 x 10"
        )
        assert (
            bo.system
            == "left cut 1 4 left keep 0 1 middle cut 2 2 middle keep -1 3 right cut 5 0 right keep 2 2 x 10"
        )
    else:
        assert "you play cut, Bo plays right: you get 0, Bo gets 5" in ada.system
        assert "you play right, Ada plays cut: you get 5, Ada gets 0" in bo.system


def test_three_players_when_moves_meet_then_the_mean_over_pairs() -> None:
    game = make_game("iterated_matrix", players=("Ada", "Bo", "Cy"), wording="terse")
    state, outcome = game.step(
        game.initial_state(Chance(0)), moves(game, Ada="A", Bo="A", Cy="B"), Chance(0, 1)
    )
    assert outcome.rewards == {"Ada": 1.5, "Bo": 1.5, "Cy": 5.0}
    assert [game.observe(state, player).text for player in ("Ada", "Bo", "Cy")] == ["A B", "A B", "A A"]


def test_three_players_when_one_defects_then_tit_for_tat_punishes_all(scripted: ModuleType) -> None:
    game = make_game("iterated_matrix", players=("Ada", "Bo", "Cy"), num_rounds=3)
    agents = {"Ada": "tit_for_tat", "Bo": "always_cooperate", "Cy": "always_defect"}
    played = [step.outcome.info["moves"]["Ada"] for step in scripted.play(game, agents)]
    assert played == ["A", "B", "B"]


@pytest.mark.parametrize("reply", ["", "B or A?", "<move>C</move>", "<move>A</move><move>B</move>"])
@pytest.mark.parametrize("rounds_before", [0, 5])
def test_malformed_when_first_or_later_reply_then_counts_as_the_declared_move(
    reply: str, rounds_before: int
) -> None:
    """B54: the very first reply is judged exactly like the sixth."""
    game = make_game("iterated_matrix", retries=1, penalty=0.5)
    state = game.initial_state(Chance(0))
    for step in range(rounds_before):
        state, _ = game.step(state, moves(game, Ada="A", Bo="A"), Chance(0, step + 1))
    action = game.observe(state, "Bo").grammar.parse(reply)
    assert isinstance(action, Malformed)
    state, outcome = game.step(state, {**moves(game, Ada="A"), "Bo": action}, Chance(0, 9))
    assert outcome.info["moves"]["Bo"] == "B"
    assert outcome.rewards == {"Ada": 0, "Bo": 5}
    rule = game.spec.malformed_rule
    assert (rule.retries, rule.penalty) == (1, 0.5)
    gentle = make_game("iterated_matrix", malformed_move="A")
    assert (
        gentle.step(gentle.initial_state(Chance(0)), {"Ada": action, "Bo": action}, Chance(0, 1))[1].rewards[
            "Ada"
        ]
        == 3
    )


def test_wordings_when_compared_then_same_rounds_and_fewest_tokens() -> None:
    terse = make_game("iterated_matrix", wording="terse")
    state = terse.initial_state(Chance(0))
    first = terse.observe(state, "Ada")
    assert (first.system, first.text) == ("A A 3 3 A B 0 5 B A 5 0 B B 1 1 x 10", "go")
    assert first.grammar.labels() == ("A", "B")
    state, _ = terse.step(state, moves(terse, Ada="A", Bo="B"), Chance(0, 1))
    assert (terse.observe(state, "Ada").text, terse.observe(state, "Bo").text) == ("B", "A")
    full = make_game("iterated_matrix")
    assert (
        full.observe(state, "Ada").text
        == "Round 2 of 10. Last round you played A and got 0, Bo played B and got 5. Your move?"
    )
    assert terse.observe(state, "Ada").facts == full.observe(state, "Ada").facts


def test_name_of_the_game_when_not_to_be_shown_then_nowhere() -> None:
    hidden, shown = make_game("iterated_matrix"), make_game("iterated_matrix", show_name=True)
    state = hidden.initial_state(Chance(0))
    assert "dilemma" not in hidden.observe(state, "Ada").system
    assert "iterated prisoner's dilemma" in shown.observe(state, "Ada").system


def test_length_when_random_then_geometric_capped_and_the_same_for_the_same_luck(
    scripted: ModuleType,
) -> None:
    """Law 7: how long the game lasts does not depend on the moves; mean (1-p^N)/(1-p) = 3.41 for p = .75, N = 8."""
    game = make_game("iterated_matrix", continuation_probability=0.75, num_rounds=8, wording="terse")
    lengths = []
    for seed in range(1500):
        kind = list(scripted.play(game, {"Ada": "always_cooperate", "Bo": "always_cooperate"}, seed=seed))
        assert kind[-1].outcome.terminated and not kind[-1].outcome.truncated
        lengths.append(len(kind))
    other = list(scripted.play(game, {"Ada": "always_defect", "Bo": "random"}, seed=3))
    assert len(other) == lengths[3]
    expected = (1 - 0.75**8) / (1 - 0.75)
    assert max(lengths) == 8
    assert sum(lengths) / 1500 == pytest.approx(expected, abs=0.2)
    assert game.spec.has_chance and not make_game("iterated_matrix").spec.has_chance


def test_ten_thousand_rounds_when_played_then_linear_time_and_constant_state() -> None:
    game = make_game("iterated_matrix", num_rounds=10_000, wording="terse")
    state = game.initial_state(Chance(0))
    size = len(str(game.encode(state)))
    start = time.process_time()
    for step in range(10_000):
        for player in game.to_move(state):
            game.observe(state, player)
        state, outcome = game.step(state, moves(game, Ada="A", Bo="B"), Chance(0, step + 1))
    assert outcome.terminated
    assert time.process_time() - start < 2.0
    assert len(str(game.encode(state))) < size + 20


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"payoffs": (((1, 1),),)}, "preset = 'custom'"),
        ({"preset": "custom"}, "payoffs"),
        ({"preset": "custom", "payoffs": (((1, 1), (0, 0)), ((1, 1),))}, "same length"),
        ({"preset": "custom", "payoffs": ()}, "at least one"),
        ({"preset": "custom", "payoffs": (((float("inf"), 0),),)}, "finite"),
        ({"moves": ("A",)}, "expected 2 and 2 names"),
        ({"moves": ("A", "A")}, "all different"),
        ({"malformed_move": "C"}, "malformed_move 'C'"),
        ({"preset": "battle_of_the_sexes", "players": ("Ada", "Bo", "Cy")}, "not symmetric"),
        ({"column_moves": ("C", "D"), "players": ("Ada", "Bo", "Cy")}, "not symmetric"),
        ({"continuation_probability": 1.0}, "continuation_probability"),
        ({"tag": "think"}, "private reasoning"),
        ({"preset": "prisoner_dilemma"}, "prisoners_dilemma"),
    ],
)
def test_parameters_when_they_do_not_fit_then_one_sentence(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(GameParameterError) as caught:
        make_game("iterated_matrix", **parameters)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_moves_when_named_by_the_player_then_used_everywhere(scripted: ModuleType) -> None:
    game = make_game("iterated_matrix", moves=("trust me", "betray"), wording="terse")
    assert scripted.totals(game, {"Ada": "always_defect", "Bo": "tit_for_tat"}) == {"Ada": 14, "Bo": 9}
    assert game.observe(game.initial_state(Chance(0)), "Bo").grammar.labels() == ("trust me", "betray")


def pays_read(text: str, moves: tuple[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
    """The table as a reader of the rules knows it: in each line two moves, then two numbers, own ones first."""
    found = {}
    for line in text.splitlines():
        if line.startswith("- "):
            words = re.findall(r"[\w.]+", line)
            own, other = [word for word in words if word in moves]
            found[own, other] = tuple([word for word in words if word.isdecimal()])
    return found


@pytest.mark.parametrize("phrasing", ["plain", "friendly", "formal"])
@pytest.mark.parametrize("players", [("Ada", "Bo"), ("Bo", "Ada"), ("Ada", "Bo", "Cy")])
@pytest.mark.parametrize("stay", [None, 0.25])
def test_phrasings_when_read_then_all_tell_the_same_facts(
    phrasing: str, players: tuple[str, ...], stay: float | None
) -> None:
    game = make_game(
        "iterated_matrix",
        phrasing=phrasing,
        players=players,
        moves=("X", "Y"),
        num_rounds=7,
        continuation_probability=stay,
    )
    system = game.observe(game.initial_state(Chance(0)), players[0]).system
    told = {("X", "X"): ("3", "3"), ("X", "Y"): ("0", "5"), ("Y", "X"): ("5", "0"), ("Y", "Y"): ("1", "1")}
    assert pays_read(system, ("X", "Y")) == told
    for fact in (*players, "X, Y", " 7", "<move>", "Y.", *["0.25"] * (stay is not None)):
        assert fact in system, (fact, system)
    assert ("mean" in system) == (len(players) > 2)


def test_counterbalancing_when_listed_in_reverse_then_the_text_turns_and_the_game_stays() -> None:
    plain = make_game("iterated_matrix", wording="terse")
    turned = make_game("iterated_matrix", wording="terse", moves=("B", "A"), listed="reversed")
    assert (
        turned.observe(turned.initial_state(Chance(0)), "Ada").system
        == "A A 1 1 A B 5 0 B A 0 5 B B 3 3 x 10"
    )
    for cooperate, defect, game in (("A", "B", plain), ("B", "A", turned)):
        state = game.initial_state(Chance(0))
        assert game.observe(state, "Ada").facts["cooperate"] == {"Ada": cooperate, "Bo": cooperate}
        assert game.observe(state, "Ada").facts["moves"] == [cooperate, defect]
        assert isinstance(grammar := game.observe(state, "Ada").grammar, Choice)
        assert grammar.options == ("A", "B")
        _, outcome = game.step(
            state,
            {"Ada": Move(value=defect, text=defect), "Bo": Malformed(reason="empty", text="")},
            Chance(0),
        )
        assert outcome.rewards == {"Ada": 1.0, "Bo": 1.0}, "a malformed reply still is the last of the table"


def test_phrasing_when_terse_then_refused() -> None:
    with pytest.raises(ValueError, match="expected 'plain', or wording = 'full'"):
        make_game("iterated_matrix", wording="terse", phrasing="formal")

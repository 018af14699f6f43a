"""Public goods: pay, reference returns, strategies over rounds, wordings."""

from itertools import product
from types import ModuleType
from typing import Any

import pytest

from coplay.games import Chance, GameParameterError, Malformed, Move, make_game
from coplay.games.public_goods import pay

NAMES = ("Ada", "Bo", "Cy", "Di")
GAMES = {
    "default": ({}, {"all": 32, "none": 20, "lone giver": (8, 28), "lone free rider": (44, 24)}),
    "textarena": (
        {"players": ("Ada", "Bo", "Cy"), "multiplier": 1.5},
        {"all": 30, "none": 20, "lone giver": (10, 30), "lone free rider": (40, 20)},
    ),
    "ten": (
        {"endowment": 10, "multiplier": 2},
        {"all": 20, "none": 10, "lone giver": (5, 15), "lone free rider": (25, 15)},
    ),
}
"""Points a round; of a lone one, (his, each other's)."""


def move(amount: int) -> Move:
    return Move(value=amount, text=str(amount))


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("wording", ["full", "terse"])
@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_returns_when_some_give_and_some_do_not_then_the_reference(
    scripted: ModuleType, game: str, wording: str, all_or_nothing: bool
) -> None:
    parameters, expected = GAMES[game]
    made = make_game(
        "public_goods", num_rounds=3, wording=wording, all_or_nothing=all_or_nothing, **parameters
    )
    players = made.spec.players

    def a_round(lone: str, rest: str) -> tuple[float, ...]:
        agents = dict.fromkeys(players, rest) | {players[0]: lone}
        return tuple(total / 3 for total in scripted.totals(made, agents).values())

    size = len(players)
    assert a_round("full_contributor", "full_contributor") == (expected["all"],) * size
    assert a_round("free_rider", "free_rider") == (expected["none"],) * size
    own, others = expected["lone giver"]
    assert a_round("full_contributor", "free_rider") == (own, *(others,) * (size - 1))
    own, others = expected["lone free rider"]
    assert a_round("free_rider", "full_contributor") == (own, *(others,) * (size - 1))


@pytest.mark.parametrize(
    ("row", "column", "expected"),
    [
        ("full_contributor", "full_contributor", (320, 320)),
        ("full_contributor", "free_rider", (160, 360)),
        ("full_contributor", "conditional_contributor", (320, 320)),
        ("free_rider", "free_rider", (200, 200)),
        ("free_rider", "conditional_contributor", (216, 196)),
        ("conditional_contributor", "conditional_contributor", (320, 320)),
    ],
)
def test_totals_when_two_play_ten_rounds_then_every_pair(
    scripted: ModuleType, row: str, column: str, expected: tuple[int, int]
) -> None:
    """e = 20, m = 1.6, n = 2: both give 32, none 20, one gives 16 : 36; who gives on condition is cheated once."""
    game = make_game("public_goods", players=("Ada", "Bo"))
    assert tuple(scripted.totals(game, {"Ada": row, "Bo": column}).values()) == pytest.approx(expected)
    swapped = scripted.totals(game, {"Ada": column, "Bo": row})
    assert tuple(swapped.values()) == pytest.approx(expected[::-1])


@pytest.mark.parametrize(
    ("multiplier", "like"), [(1.6, "full_contributor"), (1.0, "free_rider"), (0.5, "free_rider")]
)
@pytest.mark.parametrize(
    "other", ["full_contributor", "free_rider", "conditional_contributor", "efficient_contributor"]
)
def test_efficient_contributor_when_it_pays_all_then_gives_all_else_nothing(
    scripted: ModuleType, multiplier: float, like: str, other: str
) -> None:
    """n·e·max(1, m) is the most for all together: the yardstick is met by two of them."""
    game = make_game("public_goods", players=("Ada", "Bo"), multiplier=multiplier)
    paid = scripted.totals(game, {"Ada": "efficient_contributor", "Bo": other})
    twin = like if other == "efficient_contributor" else other
    assert paid == scripted.totals(game, {"Ada": like, "Bo": twin})
    if other == "efficient_contributor":
        assert sum(paid.values()) == pytest.approx(10 * 40 * max(1.0, multiplier))


def test_totals_when_one_is_random_then_the_mean_of_his_contributions(scripted: ModuleType) -> None:
    """A random player keeps 10 of 20 on average: 20 − 10 + 0.8·10 for him, 20 + 0.8·10 for a free rider."""
    game = make_game("public_goods", players=("Ada", "Bo"), num_rounds=400)
    ada, bo = (
        total / 400 for total in scripted.totals(game, {"Ada": "random", "Bo": "free_rider"}, seed=5).values()
    )
    assert (ada, bo) == (pytest.approx(18, abs=0.2), pytest.approx(28, abs=0.8))
    assert 0.8 * ada + 0.2 * bo == pytest.approx(20), (
        "exact whatever he gives: 0.8·(20 − 0.2c) + 0.2·(20 + 0.8c)"
    )


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("full_contributor", 200, (240, 340)),
        ("free_rider", 0, (280, 180)),
        ("conditional_contributor", 110, (258, 268)),
    ],
)
def test_totals_when_the_other_is_random_then_near_the_exact_expectation(
    scripted: ModuleType, name: str, given: int, expected: tuple[float, float]
) -> None:
    """Ten rounds, a random player gives 100 in the mean: 200 − g + 0.8·(g + 100) and 100 + 0.8·(g + 100).

    Who gives on condition gives 20 and then what the other gave in the nine rounds before the last. A total has a
    deviation below 20, the mean of 300 one of 1.2.
    """
    assert expected == pytest.approx((200 - given + 0.8 * (given + 100), 100 + 0.8 * (given + 100)))
    game = make_game("public_goods", players=("Ada", "Bo"), wording="terse")
    sums = [scripted.totals(game, {"Ada": name, "Bo": "random"}, seed=seed) for seed in range(300)]
    means = tuple(sum(each[player] for each in sums) / 300 for player in ("Ada", "Bo"))
    assert means == pytest.approx(expected, abs=5)


def test_conditional_contributor_when_others_differ_then_their_mean(scripted: ModuleType) -> None:
    game = make_game("public_goods", num_rounds=2)
    agents = dict(
        zip(NAMES, ("conditional_contributor", "full_contributor", "free_rider", "free_rider"), strict=True)
    )
    given = [step.outcome.info["contributions"]["Ada"] for step in scripted.play(game, agents)]
    assert given == [20, 7], "20, then the number nearest to 20 / 3"
    harsh = make_game("public_goods", num_rounds=2, all_or_nothing=True)
    given = [step.outcome.info["contributions"]["Ada"] for step in scripted.play(harsh, agents)]
    assert given == [20, 0]


@pytest.mark.parametrize(("players", "multiplier"), [(2, 1.6), (3, 0.5), (3, 3.5), (4, 1.0)])
def test_yardsticks_when_every_joint_move_is_played_then_the_ends_are_met(
    players: int, multiplier: float
) -> None:
    """Reward range and `best_total` by brute force over all contributions; below 1 the best is to keep all."""
    game = make_game(
        "public_goods", players=NAMES[:players], endowment=3, multiplier=multiplier, num_rounds=1
    )
    seen = [pay(given, 3, multiplier) for given in product(range(4), repeat=players)]
    assert game.spec.reward_range == (min(map(min, seen)), max(map(max, seen)))
    actions = {player: move(0) for player in game.spec.players}
    outcome = game.step(game.initial_state(Chance(0)), actions, Chance(0, 1))[1]
    assert outcome.info["best_total"] == pytest.approx(max(map(sum, seen)))


def test_malformed_when_no_number_then_nothing_is_given() -> None:
    game = make_game("public_goods", players=("Ada", "Bo"), all_or_nothing=True)
    state = game.initial_state(Chance(0))
    grammar = game.observe(state, "Ada").grammar
    assert grammar.parse("<contribution>20</contribution>") == Move(
        value=20, text="<contribution>20</contribution>"
    )
    for reply in ("<contribution>10</contribution>", "20", "<contribution>21</contribution>"):
        assert isinstance(grammar.parse(reply), Malformed)
    actions = {"Ada": grammar.parse("all"), "Bo": move(20)}
    state, outcome = game.step(state, actions, Chance(0, 1))
    assert outcome.info["contributions"] == {"Ada": 0, "Bo": 20}
    assert outcome.info["cooperated"] == {"Ada": False, "Bo": True}
    assert outcome.rewards == {"Ada": 36.0, "Bo": 16.0}


def test_texts_when_a_round_was_played_then_contributions_and_points() -> None:
    full, terse = make_game("public_goods"), make_game("public_goods", wording="terse")
    state, _ = full.step(
        full.initial_state(Chance(0)), dict(zip(NAMES, map(move, (20, 0, 5, 1)), strict=True)), Chance(0)
    )
    assert terse.observe(state, "Bo").text == "20 5 1"
    assert terse.observe(state, "Bo").system == "coins 20 give 0 - 20 m 1.6 n 4 x 10"
    assert full.observe(state, "Bo").text == (
        "Round 2 of 10. Last round Ada put in 20 and got 10.4 points, you put in 0 and got 30.4 points,"
        " Cy put in 5 and got 25.4 points, Di put in 1 and got 29.4 points. Your contribution?"
    )


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"endowment": 0}, "endowment"),
        ({"multiplier": -1}, "multiplier"),
        ({"multiplier": float("nan")}, "multiplier"),
        ({"players": ("Ada",)}, "players"),
    ],
)
def test_parameters_when_out_of_bounds_then_one_sentence(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(GameParameterError) as caught:
        make_game("public_goods", **parameters)
    assert told in str(caught.value) and "\n" not in str(caught.value)

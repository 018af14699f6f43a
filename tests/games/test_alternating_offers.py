"""Alternating offers and the ultimatum game: rules, subgame-perfect play, reference returns."""

from itertools import product
from types import ModuleType
from typing import Any

import pytest

from coplay.games import Chance, GameParameterError, make_game
from coplay.games.alternating_offers import OffersState, subgame_perfect_offer, subgame_perfect_share
from coplay.games.game_tree import game_tree
from coplay.games.solve import best_response, uniform, values


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
def test_share_when_offers_never_end_then_rubinsteins(discount: float) -> None:
    """1/(1+δ) for equal discounts, the limit of long horizons."""
    assert subgame_perfect_share((discount, discount)) == pytest.approx(1 / (1 + discount))
    long = subgame_perfect_share((discount, discount), 5000)
    assert long == pytest.approx(1 / (1 + discount), abs=1e-9)


@pytest.mark.parametrize(
    ("num_offers", "share"), [(1, 1.0), (2, 0.2), (3, 1 - 0.8 * 0.1), (4, 1 - 0.8 * (1 - 0.9 * 0.2))]
)
def test_share_when_offers_end_then_by_backward_induction(num_offers: int, share: float) -> None:
    """Own discount 0.9, the other's 0.8; the last offers are (keep all), before it the other's discount counts."""
    assert subgame_perfect_share((0.9, 0.8), num_offers) == pytest.approx(share)
    assert subgame_perfect_share((0.9, 0.8)) == pytest.approx(0.2 / (1 - 0.72))


@pytest.mark.parametrize("num_offers", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("discounts", [(0.9, 0.8), (0.5, 0.5), (1.0, 0.0), (1.0, 1.0)])
def test_offer_when_coins_are_many_then_near_the_share(
    num_offers: int, discounts: tuple[float, float]
) -> None:
    offer = subgame_perfect_offer(1_000_000, discounts, num_offers)
    share = subgame_perfect_share(discounts, num_offers)
    assert offer / 1e6 == pytest.approx(1 - share, abs=1e-5)


def test_offer_when_discounts_are_decimal_then_no_rounding_error() -> None:
    """0.9·10 is 9 and not 9.000000000000001, which would be rounded up."""
    assert subgame_perfect_offer(10, (0.9, 0.9), 2) == 9
    assert subgame_perfect_offer(100, (0.7, 0.7), 2) == 70


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ultimatum", {"coins": 4}),
        ("alternating_offers", {"coins": 3, "max_offers": 3, "discounts": (0.5, 0.7)}),
        ("alternating_offers", {"coins": 4, "max_offers": 2, "discounts": (0.9, 0.6)}),
    ],
)
def test_subgame_perfect_when_both_play_it_then_no_reply_pays_more(
    scripted: ModuleType, name: str, parameters: dict[str, Any]
) -> None:
    """On the game's whole tree, through texts and grammars."""
    game = make_game(name, wording="terse", first_offer="first player", **parameters)
    tree = game_tree(game)
    both = dict.fromkeys(game.spec.players, scripted.as_strategy(game, "subgame_perfect"))
    paid = values(tree, both)
    offer = subgame_perfect_offer(
        parameters["coins"], parameters.get("discounts", (1.0, 1.0)), parameters.get("max_offers", 1)
    )
    assert paid == pytest.approx({"Ada": parameters["coins"] - offer, "Bo": offer})
    for player in game.spec.players:
        assert best_response(tree, player, both).value == pytest.approx(paid[player])


def test_ultimatum_when_both_are_random_then_2_5_each() -> None:
    """The mean of x over offers times the chance to accept."""
    game = make_game("ultimatum", wording="terse", first_offer="first player")
    tree = game_tree(game)
    even = dict.fromkeys(tree.players, uniform)
    assert values(tree, even) == pytest.approx({"Ada": 2.5, "Bo": 2.5})


STRATEGIES = ("greedy", "fair", "lenient", "hardliner", "subgame_perfect")
ULTIMATUM = {
    ("fair", "greedy"): (5, 5),
    ("fair", "fair"): (5, 5),
    ("fair", "subgame_perfect"): (5, 5),
    ("greedy", "subgame_perfect"): (10, 0),
    ("hardliner", "subgame_perfect"): (10, 0),
    ("subgame_perfect", "subgame_perfect"): (10, 0),
}
FOUR_OFFERS = {
    ("greedy", "fair"): (45, 45),
    ("greedy", "subgame_perfect"): (8.1, 81.9),
    ("fair", "greedy"): (50, 50),
    ("fair", "fair"): (50, 50),
    ("subgame_perfect", "greedy"): (18, 82),
    ("subgame_perfect", "fair"): (18, 82),
    ("subgame_perfect", "hardliner"): (18, 82),
    ("subgame_perfect", "subgame_perfect"): (18, 82),
}
"""100 coins, δ = 0.9: backward induction offers 0, 90, 9 and 82, the last offer first."""


@pytest.mark.parametrize(("row", "column"), list(product(STRATEGIES, repeat=2)))
def test_returns_when_strategies_meet_then_the_exact_reference(
    scripted: ModuleType, row: str, column: str
) -> None:
    """The row offers first; pairs not in the table end without a deal. Here nobody offers from 40 to 49 of 100."""
    agents = {"Ada": row, "Bo": column}
    row, column = (name.replace("lenient", "fair") for name in (row, column))
    for wording in ("full", "terse"):
        game = make_game("ultimatum", wording=wording)
        paid = scripted.play_from(game, OffersState(0, 0), agents)
        assert tuple(paid.values()) == ULTIMATUM.get((row, column), (0, 0))
        game = make_game("alternating_offers", max_offers=4, wording=wording)
        paid = scripted.play_from(game, OffersState(0, 0), agents)
        assert tuple(paid.values()) == pytest.approx(FOUR_OFFERS.get((row, column), (0, 0)))


def say(game: Any, state: OffersState, text: str) -> Any:
    (player,) = game.to_move(state)
    return game.step(state, {player: game.observe(state, player).grammar.parse(text)}, Chance(0, 1))


def test_step_when_offers_are_rejected_then_coins_melt_by_ones_own_discount() -> None:
    game = make_game("alternating_offers", discounts=(0.5, 0.8), max_offers=3)
    state, outcome = say(game, OffersState(0, 1), "<offer>30</offer>")
    assert game.to_move(state) == ("Ada",) and not outcome.round_ended
    state, _ = say(game, state, "No. <offer>10</offer>")
    state, _ = say(game, state, "<offer>40</offer>")
    assert game.observe(state, "Ada").grammar.labels() == (
        "<answer>accept</answer>",
        "<answer>reject</answer>",
    )
    after, outcome = say(game, state, "<answer>accept</answer>")
    assert outcome.rewards == pytest.approx({"Ada": 0.25 * 40, "Bo": 0.64 * 60})
    assert outcome.terminated and outcome.info["agreed"] and outcome.info["best_total"] == 100
    assert game.to_move(after) == ()
    _, outcome = say(game, state, "never mind")
    assert set(outcome.rewards.values()) == {0.0} and not outcome.info["agreed"]


def test_malformed_when_an_offer_is_wanted_then_nothing_is_offered() -> None:
    game = make_game("alternating_offers")
    state, outcome = say(game, OffersState(0, 0), "<offer>101</offer>")
    assert outcome.info == {"player": "Ada", "offer": 0}
    state, outcome = say(game, state, "<answer>accept</answer> <offer>5</offer>")
    assert outcome.info == {"player": "Bo", "offer": 0}


def test_rounds_when_several_then_who_offers_first_alternates() -> None:
    game = make_game("ultimatum", num_rounds=2)
    state, _ = say(game, OffersState(0, 1), "<offer>4</offer>")
    state, outcome = say(game, state, "<answer>accept</answer>")
    assert outcome.round_ended and not outcome.terminated and game.to_move(state) == ("Ada",)
    assert "you got 4 points" in game.observe(state, "Ada").text


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("alternating_offers", {"discounts": (0.9,)}),
        ("alternating_offers", {"discounts": (0.9, 1.1)}),
        ("ultimatum", {"max_offers": 2}),
        ("ultimatum", {"tag": "x", "answer_tag": "x"}),
        ("ultimatum", {"players": ("Ada", "Bo", "Cy")}),
    ],
)
def test_parameters_when_they_do_not_fit_then_refused(name: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(GameParameterError):
        make_game(name, **parameters)

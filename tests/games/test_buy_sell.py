"""Buying and selling: payment, standing prices, secrecy, draws, reference returns by enumeration."""

from collections import Counter
from itertools import product
from types import ModuleType
from typing import Any

import pytest

from coplay.agents.scripted_negotiation import BUY_SELL, best_price
from coplay.games import Chance, GameParameterError, make_game
from coplay.games.buy_sell import BuySellState

MOST = 10
PAIRS = list(product(range(MOST + 1), repeat=2))
"""Every cost and value of the small game."""
GAINS = sum(max(0, value - cost) for cost, value in PAIRS)


def test_gains_when_summed_then_220() -> None:
    """Σ_d d·(11 - d) over differences d from 1 to 10: what trade is worth over all pairs."""
    assert GAINS == 220


def price_of(row: str, column: str, cost: int, value: int) -> int | None:
    """The price at which those who stick to one price settle, the seller first; None without a deal."""
    ask = {"greedy": MOST, "truthful": cost, "bayesian": best_price(cost, MOST, sells=True)}[row]
    bid = {"greedy": 0, "truthful": value, "bayesian": best_price(value, MOST, sells=False)}[column]
    if value - ask > 0 or (value == ask and column != "greedy"):
        return ask
    if bid - cost > 0 or (bid == cost and row != "greedy"):
        return bid
    return None


RETURNS: dict[tuple[str, str], tuple[int, int]] = {
    ("greedy", "truthful"): (220, 0),
    ("greedy", "bayesian"): (95, 70),
    ("greedy", "conceding"): (70, 95),
    ("truthful", "greedy"): (0, 220),
    ("truthful", "truthful"): (0, 220),
    ("truthful", "bayesian"): (0, 220),
    ("truthful", "conceding"): (0, 220),
    ("bayesian", "greedy"): (95, 70),
    ("bayesian", "truthful"): (165, 55),
    ("bayesian", "bayesian"): (131, 77),
    ("bayesian", "conceding"): (52, 156),
    ("conceding", "greedy"): (95, 125),
    ("conceding", "truthful"): (220, 0),
    ("conceding", "bayesian"): (156, 64),
    ("conceding", "conceding"): (55, 165),
}
"""Sums over the 121 pairs: of the seller's points, of the buyer's; 6 turns, the seller moves first."""


@pytest.mark.parametrize(("row", "column"), list(product(BUY_SELL, repeat=2)))
def test_returns_when_strategies_meet_then_the_sums_over_all_pairs(
    scripted: ModuleType, row: str, column: str
) -> None:
    game = make_game("buy_sell", max_price=MOST, max_turns=6, wording="terse")
    sums = [0.0, 0.0]
    for cost, value in PAIRS:
        paid = scripted.play_from(game, BuySellState(0, (cost, value), 0), {"Ada": row, "Bo": column})
        sums[0] += paid["Ada"]
        sums[1] += paid["Bo"]
        assert min(paid.values()) >= 0 and sum(paid.values()) in (0, value - cost)
        if "conceding" not in (row, column):
            price = price_of(row, column, cost, value)
            assert tuple(paid.values()) == ((0, 0) if price is None else (price - cost, value - price))
    assert tuple(sums) == RETURNS.get((row, column), (0, 0))


def test_best_price_when_prices_are_many_then_the_textbook_means() -> None:
    """One price named to a uniform value: the seller 1/12, the buyer 1/24 of the largest price on average."""
    most = 400
    pairs = []
    for cost in range(most + 1):
        price = best_price(cost, most, sells=True)
        assert abs(price - (most + 1 + cost) / 2) <= 0.5
        pairs += [(price - cost, value - price) for value in range(price, most + 1)]
    scale = (most + 1) ** 2 * most
    assert sum(one for one, _ in pairs) / scale == pytest.approx(1 / 12, abs=1e-3)
    assert sum(other for _, other in pairs) / scale == pytest.approx(1 / 24, abs=1e-3)


@pytest.mark.parametrize("limit", range(MOST + 1))
def test_best_price_when_roles_are_mirrored_then_mirrored(limit: int) -> None:
    ask, bid = best_price(limit, MOST, sells=True), best_price(MOST - limit, MOST, sells=False)
    assert ask + bid == MOST


def say(game: Any, state: BuySellState, text: str) -> Any:
    (player,) = game.to_move(state)
    return game.step(state, {player: game.observe(state, player).grammar.parse(text)}, Chance(0, 1))


def test_step_when_a_price_is_accepted_then_it_stood_through_talk() -> None:
    game = make_game("buy_sell")
    state, outcome = say(game, BuySellState(0, (5, 12), 0), "It is a bargain: <price>11</price>!")
    assert outcome.info == {"player": "Ada", "move": "price", "price": 11}
    state, _ = say(game, state, "Too much")
    assert 'Bo says: "Too much"' in game.observe(state, "Ada").text
    state, _ = say(game, state, "<think>he is keen</think>No.")
    assert state.message == "No." and state.prices == (11, -1)
    _, outcome = say(game, state, "<answer>accept</answer>")
    assert outcome.rewards == {"Ada": 6.0, "Bo": 1.0} and outcome.terminated
    assert outcome.info["agreed"] and outcome.info["best_total"] == 7
    assert outcome.info["efficient_line"] == {"Ada": [-5, 15], "Bo": [12, -8]}


def test_step_when_the_price_is_bad_then_points_are_negative() -> None:
    game = make_game("buy_sell", opens="buyer")
    state, _ = say(game, BuySellState(0, (15, 3), 1), "<price>9</price>")
    _, outcome = say(game, state, "<answer>accept</answer>")
    assert outcome.rewards == {"Ada": -6.0, "Bo": -6.0}
    assert outcome.info["best_total"] == 0 and "efficient_line" not in outcome.info


@pytest.mark.parametrize("last", ["<answer>end</answer>", "<price>3</price>", "never", "<price>99</price>"])
def test_round_when_ended_or_out_of_turns_then_nobody_is_paid(last: str) -> None:
    game = make_game("buy_sell", max_turns=2)
    state, outcome = say(game, BuySellState(0, (5, 12), 0), "<answer>accept</answer>")
    assert outcome.info["move"] == "none" and not outcome.round_ended
    _, outcome = say(game, state, last)
    assert set(outcome.rewards.values()) == {0.0} and outcome.terminated and not outcome.info["agreed"]
    assert "price" not in outcome.info or last == "<price>3</price>"


def test_malformed_when_talk_then_silence_or_cut() -> None:
    game = make_game("buy_sell", max_message_characters=4)
    start = BuySellState(0, (5, 12), 0)
    assert say(game, start, "Hello")[0].message == "Hell"
    assert say(game, start, "<price>21</price>")[0].message == ""
    assert say(game, start, "<price>2</price><price>3</price>")[0].prices == (-1, -1)


def test_observation_when_the_others_price_changes_then_the_same() -> None:
    game = make_game("buy_sell")
    one, other = (BuySellState(0, (5, value), 0, turn=2, message="hm") for value in (3, 19))
    assert game.observe(one, "Ada") == game.observe(other, "Ada")
    assert game.private(one, "Ada") == {"cost": 5} and game.private(other, "Bo") == {"value": 19}


@pytest.mark.parametrize(("always_gains", "pairs"), [(False, 16), (True, 6)])
def test_draws_when_many_then_uniform_over_the_pairs(always_gains: bool, pairs: int) -> None:
    game = make_game("buy_sell", max_price=3, always_gains=always_gains)
    seen = Counter(game.initial_state(Chance(seed)).reservations for seed in range(4800))
    expected = {(c, v) for c, v in product(range(4), repeat=2) if v > c or not always_gains}
    assert set(seen) == expected and len(expected) == pairs
    assert all(abs(count - 4800 / pairs) < 5 * (4800 / pairs) ** 0.5 for count in seen.values())


def test_moves_when_there_is_no_talk_then_few_enough_to_list() -> None:
    game = make_game("buy_sell", talk=False, wording="terse", max_price=3)
    state, _ = say(game, BuySellState(0, (1, 2), 0), "3")
    assert game.observe(state, "Bo").grammar.labels() == ("0", "1", "2", "3", "accept", "end")


@pytest.mark.parametrize("parameters", [{"tag": "answer"}, {"message_tag": "price"}, {"max_turns": 1}])
def test_parameters_when_they_do_not_fit_then_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(GameParameterError):
        make_game("buy_sell", **parameters)

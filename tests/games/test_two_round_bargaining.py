"""Bargaining in two rounds: backward induction, reference returns, what could be had at best."""

from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest

from coplay.games import Chance, GameParameterError, make_game
from coplay.games.agreements import nash_bargaining_solution, pareto_front, welfare_maximum
from coplay.games.game_tree import Decision, game_tree
from coplay.games.solve import best_response, nash_conv, uniform, values
from coplay.games.two_round_bargaining import BargainingState

BOTH_RANDOM = {"Ada": uniform, "Bo": uniform}


def backward_induction(decision: Decision) -> dict[str, int]:
    """With one value of 1 and δ = 1/2: who answers first takes half, who answers last takes anything."""
    facts = decision.observation.facts
    if "offer" in facts:
        least = facts["coins"] / 2 if facts["round"] == 1 else 0
        return {"accept" if facts["offer"] >= least else "reject": 1}
    return {str(facts["coins"] // 2 if facts["round"] == 1 else 0): 1}


def test_backward_induction_when_the_value_is_known_then_an_equilibrium_of_half_each() -> None:
    tree = game_tree(make_game("two_round_bargaining", values=(1,), wording="terse"), exact=True)
    strategies = {"Ada": backward_induction, "Bo": backward_induction}
    assert values(tree, strategies) == {"Ada": 2, "Bo": 2}
    assert nash_conv(tree, strategies) == 0
    modest = {**strategies, "Ada": lambda decision: {decision.moves[-1]: 1}}
    assert nash_conv(tree, modest) > 0


@pytest.mark.parametrize(("coins", "discount"), [(4, 0.5), (10, 0.25), (3, 0.0)])
def test_returns_when_offers_and_answers_are_random_then_by_formula(coins: int, discount: float) -> None:
    """Half of the offers are accepted: C/4 · (1 + δ/2) coins each; 2.5 each of 10 coins is the first term."""
    tree = game_tree(
        make_game("two_round_bargaining", coins=coins, discount=discount, values=(1, 3)), exact=True
    )
    each = Fraction(coins, 4) * (1 + Fraction(discount) / 2) * 2
    assert values(tree, BOTH_RANDOM) == {"Ada": each, "Bo": each}


def test_best_response_when_the_other_answers_by_lot_then_offers_nothing() -> None:
    """Offering nothing costs nothing against lots; the second offer is refused, as half of a coin is more than none."""
    game = make_game("two_round_bargaining", values=(1,), wording="terse")
    found = best_response(game_tree(game, exact=True), "Ada", BOTH_RANDOM)
    assert found.replies["1 go",] == "0"
    assert found.value == Fraction(4, 2) + Fraction(1, 2) * Fraction(1, 2) * 2


def test_front_when_values_differ_then_corners_by_hand() -> None:
    """Of the pairs (1,1), (1,2), (2,1), (2,2) first the one in which a coin costs the second least changes hands."""
    tree = game_tree(make_game("two_round_bargaining"), exact=True)
    front = pareto_front(tree)
    assert front == ((0, 6), (2, 5), (5, 2), (6, 0))
    assert welfare_maximum(tree) == 7
    assert nash_bargaining_solution(front, (0, 0)) == (Fraction(7, 2), Fraction(7, 2))
    assert nash_bargaining_solution(front, (Fraction(5), 0)) == (Fraction(11, 2), 1)


RETURNS = {
    ("even_bargainer", "even_bargainer"): (3, 3),
    ("even_bargainer", "hard_bargainer"): (0, 0),
    ("hard_bargainer", "even_bargainer"): (0, 0),
    ("hard_bargainer", "hard_bargainer"): (0, 0),
    ("even_bargainer", "random"): (Fraction(87, 40), Fraction(69, 40)),
    ("random", "even_bargainer"): (Fraction(6, 5), Fraction(3)),
    ("hard_bargainer", "random"): (Fraction(141, 40), Fraction(3, 40)),
    ("random", "hard_bargainer"): (Fraction(3, 10), Fraction(3)),
    ("random", "random"): (Fraction(15, 8), Fraction(15, 8)),
}
"""By hand: a coin is worth 3/2 on average, and lots accept half of the offers.

Even against random: 2 coins each in half of the plays; else an offer k = 0..4 by lot of which 2, 3 and 4 are
accepted, (9/5, 3/5) coins at half their worth. Random against even: the same k in round 1, then 2 coins each if the
lot accepts. Hard takes 4 or nothing, and of offers by lot 3 and 4: (7/5, 1/5) coins.
"""


@pytest.mark.parametrize(("row", "column"), list(RETURNS))
def test_returns_when_scripted_agents_meet_then_the_reference(
    scripted: ModuleType, row: str, column: str
) -> None:
    game = make_game("two_round_bargaining")
    names = {"Ada": row, "Bo": column}
    strategies: dict[str, Any] = {
        player: uniform if name == "random" else scripted.as_strategy(game, name)
        for player, name in names.items()
    }
    told = tuple(values(game_tree(game, exact=True), strategies).values())
    assert told == RETURNS[row, column]


def test_step_when_accepted_late_then_discounted_and_only_the_accepting_round_pays(
    scripted: ModuleType,
) -> None:
    game = make_game("two_round_bargaining", wording="terse")
    state: Any = BargainingState((2, 1))
    told = []
    for step, reply in enumerate(("1", "reject", "3", "accept"), start=1):
        (player,) = game.to_move(state)
        action = game.observe(state, player).grammar.parse(reply)
        state, outcome = game.step(state, {player: action}, Chance(0, step))
        told.append((tuple(outcome.rewards.values()), outcome.round_ended, outcome.terminated))
    nothing = (0.0, 0.0)
    assert told == [
        (nothing, False, False),
        (nothing, True, False),
        (nothing, False, False),
        ((3.0, 0.5), True, True),
    ]
    assert outcome.info["agreed"] is True and outcome.info["best_total"] == 8.0


def test_parameters_when_values_repeat_then_refused() -> None:
    with pytest.raises(GameParameterError, match="expected different whole numbers"):
        make_game("two_round_bargaining", values=(1, 1))

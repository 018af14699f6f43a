"""Values, best responses and agreements against the reference returns (golden numbers)."""

from fractions import Fraction
from math import exp, sin
from types import ModuleType
from typing import Any

import pytest

from coplay.games import make_game
from coplay.games.agreements import nash_bargaining_solution, pareto_front, welfare_maximum
from coplay.games.chance_outcomes import EnumerationError
from coplay.games.game_tree import Decision, game_tree
from coplay.games.solve import (
    best_response,
    information_values,
    logit_gradient,
    nash_conv,
    table_strategy,
    uniform,
    values,
)

BEST = {
    "always_cooperate": (50, 0),
    "always_defect": (10, 10),
    "tit_for_tat": (32, 27),
    "grim": (32, 27),
    "win_stay_lose_shift": (32, None),
    "random": (30, 5),
}
"""Totals over 10 rounds of the best response and of its victim; None where best responses differ in that."""


def grim(decision: Decision) -> dict[str, int]:
    """From perfect recall: what was said at each turn names the other's last move."""
    other = {"Ada": "Bo", "Bo": "Ada"}[decision.player]
    provoked = any(f"{other} played B" in text for text in decision.information)
    return {decision.moves[int(provoked)]: 1}


def strategy(scripted: ModuleType, game: Any, name: str) -> Any:
    return {"random": uniform, "grim": grim}.get(name) or scripted.as_strategy(game, name)


@pytest.mark.parametrize("name", list(BEST))
def test_best_response_when_in_the_dilemma_then_the_reference_totals(scripted: ModuleType, name: str) -> None:
    game = make_game("iterated_matrix")
    victim = strategy(scripted, game, name)
    recall = "perfect" if name == "grim" else "last"
    tree = game_tree(game, fixed={"Bo": victim}, recall=recall, exact=True)
    found = best_response(tree, "Ada", {"Bo": victim})
    total, left = BEST[name]
    played = values(tree, {"Ada": found.strategy(), "Bo": victim})
    assert found.value == played["Ada"] == total
    assert left is None or played["Bo"] == left


@pytest.mark.parametrize(
    ("row", "column", "told"),
    [
        ("grim", "random", (27.0029, 11.9932)),
        ("tit_for_tat", "random", (21.75, 24.25)),
        ("grim", "grim", (30, 30)),
    ],
)
def test_values_when_strategies_meet_then_the_reference_totals(
    scripted: ModuleType, row: str, column: str, told: tuple[float, float]
) -> None:
    game = make_game("iterated_matrix")
    strategies = {"Ada": strategy(scripted, game, row), "Bo": strategy(scripted, game, column)}
    tree = game_tree(game, fixed=strategies, recall="perfect" if "grim" in (row, column) else "last")
    assert tuple(values(tree, strategies).values()) == pytest.approx(told, abs=5e-5)


def test_dilemma_when_played_once_then_defection_is_the_equilibrium_and_cooperation_is_best() -> None:
    tree = game_tree(make_game("iterated_matrix", num_rounds=1), exact=True)
    defect = dict.fromkeys(("Ada", "Bo"), lambda decision: {decision.moves[1]: 1})
    cooperate = dict.fromkeys(("Ada", "Bo"), lambda decision: {decision.moves[0]: 1})
    assert nash_conv(tree, defect) == 0
    assert nash_conv(tree, cooperate) == 4
    assert welfare_maximum(tree) == 6
    front = pareto_front(tree)
    assert front == ((0, 5), (3, 3), (5, 0))
    assert nash_bargaining_solution(front, (1, 1)) == (3, 3)


def test_front_when_of_the_battle_of_the_sexes_then_the_line_between_both_favourites() -> None:
    tree = game_tree(make_game("iterated_matrix", preset="battle_of_the_sexes", num_rounds=2), exact=True)
    front = pareto_front(tree)
    assert (front[0], front[-1]) == ((4, 6), (6, 4))
    assert all(sum(corner) == 10 for corner in front)
    assert nash_bargaining_solution(front, (0, 0)) == (5, 5)
    assert nash_bargaining_solution(front, (Fraction(3), Fraction(0))) == (6, 4)


def test_bargaining_solution_when_nobody_would_agree_then_one_clear_sentence() -> None:
    with pytest.raises(EnumerationError, match="no point of the front"):
        nash_bargaining_solution(((0, 5), (3, 3), (5, 0)), (4, 4))


def test_front_when_there_are_three_players_then_refused() -> None:
    game = make_game("iterated_matrix", players=("Ada", "Bo", "Cy"), num_rounds=1)
    with pytest.raises(EnumerationError, match="expected two players"):
        pareto_front(game_tree(game))


CLAIMS = {
    ("welfare_maximising", "welfare_maximising"): (50, 50),
    ("welfare_maximising", "greedy"): (25, 52.5),
    ("welfare_maximising", "fair"): (33.333333, 26.666667),
    ("greedy", "greedy"): (27.5, 27.5),
    ("greedy", "fair"): (36.666667, 18.333333),
    ("fair", "fair"): (27.5, 27.5),
    ("random", "random"): (22.5, 22.5),
    ("random", "welfare_maximising"): (26.5056, 34.9442),
    ("random", "greedy"): (16.5614, 38.4386),
}
"""Points of a round of trust and split without talk, values known."""


def test_trust_and_split_when_enumerated_then_the_reference_returns_and_yardsticks(
    scripted: ModuleType,
) -> None:
    game = make_game("trust_and_split", num_rounds=1, messages_per_player=0, public_values=True)
    tree = game_tree(game)
    for (row, column), told in CLAIMS.items():
        strategies = {"Ada": strategy(scripted, game, row), "Bo": strategy(scripted, game, column)}
        assert tuple(values(tree, strategies).values()) == pytest.approx(told, abs=1e-4)
    greedy = scripted.as_strategy(game, "greedy")
    for name in ("greedy", "welfare_maximising"):
        other = strategy(scripted, game, name)
        best = best_response(tree, "Ada", {"Bo": other}).value
        assert best == pytest.approx(values(tree, {"Ada": greedy, "Bo": other})["Ada"])
    assert welfare_maximum(tree) == pytest.approx(100)
    assert nash_bargaining_solution(pareto_front(tree), (27.5, 27.5)) == pytest.approx((50, 50))


def test_best_response_when_information_joins_different_own_pasts_then_refused() -> None:
    """The terse dilemma's text does not tell the round, nor what one did oneself."""
    tree = game_tree(make_game("iterated_matrix", num_rounds=3, wording="terse"), recall="last")
    with pytest.raises(EnumerationError, match="a best response expects perfect recall"):
        best_response(tree, "Ada", {"Bo": uniform})


def test_best_response_when_a_fixed_tree_lacks_moves_then_refused() -> None:
    game = make_game("iterated_matrix", num_rounds=1)
    first = {"Ada": lambda decision: {decision.moves[0]: 1}}
    with pytest.raises(EnumerationError, match="expected a tree with all of his moves"):
        best_response(game_tree(game, fixed=first), "Ada", {"Bo": uniform})


@pytest.mark.parametrize(
    ("strategies", "message"),
    [
        ({"Ada": uniform}, "'Bo' has no strategy"),
        ({"Ada": uniform, "Bo": lambda decision: {decision.moves[0]: 0.9}}, "that sum to 1"),
        (
            {"Ada": uniform, "Bo": lambda decision: {decision.moves[0]: 2, decision.moves[1]: -1}},
            "that sum to 1",
        ),
        ({"Ada": uniform, "Bo": table_strategy({})}, "has no row for the information"),
    ],
)
def test_values_when_a_strategy_is_unsound_then_one_clear_sentence(
    strategies: dict[str, Any], message: str
) -> None:
    with pytest.raises(EnumerationError, match=message):
        values(game_tree(make_game("kuhn_poker")), strategies)


def test_best_response_when_the_player_is_unknown_then_one_clear_sentence() -> None:
    with pytest.raises(EnumerationError, match="'Cy' is not in this game"):
        best_response(game_tree(make_game("kuhn_poker")), "Cy", {})


def softmax_strategies(logits: dict[Any, float]) -> dict[str, Any]:
    """For both: a softmax over the logits of (player, information, reply), 0 where none is given."""

    def strategy(decision: Decision) -> dict[str, float]:
        weights = {
            reply: exp(logits.get((decision.player, decision.information, reply), 0.0))
            for reply in decision.moves
        }
        return {reply: weight / sum(weights.values()) for reply, weight in weights.items()}

    return {"Ada": strategy, "Bo": strategy}


@pytest.mark.parametrize("name", ["kuhn_poker", "two_round_bargaining"])
@pytest.mark.parametrize("shared", [False, True])
def test_gradient_when_of_a_softmax_then_that_of_finite_differences(name: str, shared: bool) -> None:
    tree = game_tree(make_game(name, wording="terse"))
    keys = [
        (player, information, reply)
        for player in tree.players
        for information, (node, *_) in tree.decisions(player).items()
        for reply in tree.nodes[node].moves  # type: ignore[union-attr]
    ]
    logits = {key: sin(3.0 * place) for place, key in enumerate(keys)}
    weights = {"Ada": 1.0, "Bo": 0.5} if shared else {"Bo": 1.0}
    told = logit_gradient(tree, "Bo", softmax_strategies(logits), weights if shared else None)

    def worth(changed: dict[Any, float]) -> float:
        found = values(tree, softmax_strategies(changed))
        return sum(share * float(found[player]) for player, share in weights.items())

    for player, information, reply in keys[::5]:
        if player == "Bo":
            key = (player, information, reply)
            up, down = (worth({**logits, key: logits[key] + step}) for step in (1e-5, -1e-5))
            assert told[information, reply] == pytest.approx((up - down) / 2e-5, abs=1e-9)


def test_gradient_when_discounted_then_without_the_weight_of_the_tick() -> None:
    """G46: the published gradients of the dilemma with memory one, three rounds, γ = 1/2, by both conventions."""
    logits = {"start": 0.0, "CC": 1.0, "CD": -1.0, "DC": 0.5, "DD": -0.5}
    letters = {"A": "C", "B": "D"}
    told = [-0.234504700, -0.139482760, -0.127688610, -0.114541170, -0.128148420]

    def situation(information: tuple[str, ...]) -> str:
        """Own last move, then the other's, from the terse texts and own replies."""
        return "start" if len(information) < 3 else letters[information[-2]] + letters[information[-1]]

    def memory_one(decision: Decision) -> dict[str, float]:
        cooperate = 1 / (1 + exp(-logits[situation(decision.information)]))
        return {"A": cooperate, "B": 1 - cooperate}

    game = make_game("iterated_matrix", num_rounds=3, wording="terse")
    tree, both = game_tree(game, discount=0.5), {"Ada": memory_one, "Bo": memory_one}
    assert values(tree, both)["Ada"] == pytest.approx(3.935516741962, abs=1e-9)
    slope = logit_gradient(tree, "Ada", both)
    sums = dict.fromkeys(logits, 0.0)
    for (information, reply), number in slope.items():
        sums[situation(information)] += float(number) if reply == "A" else 0.0
    assert list(sums.values()) == pytest.approx(told, abs=1e-7)


def test_information_values_when_in_kuhn_then_weighted_by_what_the_player_knows() -> None:
    tree = game_tree(make_game("kuhn_poker", wording="terse"), exact=True)
    found = information_values(tree, "Ada", {"Ada": uniform, "Bo": uniform})
    third = Fraction(1, 3)
    assert {information: found[information][0] for information in (("J",), ("Q",), ("K",))} == {
        ("J",): third,
        ("Q",): third,
        ("K",): third,
    }
    assert sum(share * worth for (*_, last), (share, worth) in found.items() if last in "JQK") == Fraction(
        1, 8
    )
    assert found["K", "P", "B"] == (Fraction(1, 12), Fraction(1, 2))

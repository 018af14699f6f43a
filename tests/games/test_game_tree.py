"""Enumeration of luck and of plays: nothing left out, nothing counted twice, limits that explain themselves."""

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from coplay.games import Chance, make_game
from coplay.games.chance_outcomes import BranchingChance, EnumerationError, chance_outcomes
from coplay.games.game_tree import Decision, Transition, game_tree
from coplay.games.solve import uniform, values


def test_outcomes_when_draws_depend_on_draws_then_all_with_their_probabilities() -> None:
    def play(chance: Chance) -> tuple[int, ...]:
        first = chance.integer("first", 2)
        assert chance.integer("first", 2) == first
        return (first, chance.integer("second", 3)) if first else (first,)

    sixth = Fraction(1, 6)
    assert {told: share for share, told in chance_outcomes(play, 1)} == {
        (0,): Fraction(1, 2),
        (1, 0): sixth,
        (1, 1): sixth,
        (1, 2): sixth,
    }


def test_outcomes_when_nothing_is_drawn_then_one_that_is_certain() -> None:
    assert list(chance_outcomes(lambda chance: "x", 0)) == [(Fraction(1), "x")]


def test_outcomes_when_shuffled_or_chosen_then_the_same_law_as_real_luck() -> None:
    """24 orders alike; the enumerated draws are those that `Chance` makes of hashed seeds."""

    def play(chance: Chance) -> tuple[str, ...]:
        return (*chance.shuffled("deck", "abcd"), chance.choice("face", "xy"))

    told = list(chance_outcomes(play, 2))
    assert len(told) == len({result for _, result in told}) == 48
    assert {share for share, _ in told} == {Fraction(1, 48)}
    drawn = Counter(play(Chance(seed, 2)) for seed in range(2000))
    assert set(drawn) == {result for _, result in told}


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda chance: chance.uniform("go on"), "is a fraction between 0 and 1"),
        (lambda chance: [chance.integer("a", 2), chance.integer("a", 3)], "one name for one draw"),
        (lambda chance: [chance.integer("try", 1, index=k) for k in range(1000)], "more than 100 times"),
        (lambda chance: chance.integer("none", 0), "at least one option"),
    ],
)
def test_outcomes_when_luck_cannot_be_listed_then_one_clear_sentence(draw: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(chance_outcomes(draw, 1))


def test_chance_when_asked_at_another_step_then_another_draw() -> None:
    chance = BranchingChance(0, 1, answers=(0, 1))
    assert (chance.integer("a", 2), chance.at(2).integer("a", 2), chance.integer("a", 2)) == (0, 1, 0)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("kuhn_poker", {}),
        ("two_round_bargaining", {}),
        ("rock_paper_scissors", {"num_rounds": 2}),
        ("iterated_matrix", {"num_rounds": 2, "players": ("Ada", "Bo", "Cy")}),
    ],
)
def test_tree_when_made_then_every_node_is_sound(name: str, parameters: dict[str, Any]) -> None:
    """Parents stand before children, levels grow, probabilities sum to 1, each node but the first is reached."""
    tree = game_tree(make_game(name, **parameters), exact=True)
    reached = {0}
    for index, node in enumerate(tree.nodes):
        assert index in reached
        if isinstance(node, Decision):
            children = [child for child in node.children if child is not None]
            assert len(children) == len(node.moves) == len(node.observation.grammar.labels() or ())
        else:
            assert sum(outcome.probability for outcome in node.outcomes) == 1
            children = [outcome.child for outcome in node.outcomes if outcome.child is not None]
        for child in children:
            assert child > index and tree.nodes[child].level > node.level
        reached.update(children)


def test_information_when_moves_are_simultaneous_then_nothing_of_the_other() -> None:
    tree = game_tree(make_game("rock_paper_scissors", wording="terse", num_rounds=2))
    assert len(tree.decisions("Bo")) == 1 + 9
    first = next(iter(tree.decisions("Bo").values()))
    assert len(first) == 3
    assert {information for information in tree.decisions("Bo") if len(information) == 3} == {
        ("go", own, theirs)
        for own in ("rock", "paper", "scissors")
        for theirs in ("rock", "paper", "scissors")
    }


def test_recall_when_last_then_the_same_values_from_fewer_nodes() -> None:
    game = make_game("iterated_matrix", num_rounds=4)
    full, short = game_tree(game, exact=True), game_tree(game, recall="last", exact=True)
    both = {"Ada": uniform, "Bo": uniform}
    assert len(short.nodes) < len(full.nodes) / 4
    assert values(full, both) == values(short, both) == {"Ada": 9, "Bo": 9}


def test_discount_when_given_then_per_tick_and_not_per_step() -> None:
    """The offer and the answer of a round are one tick: a late agreement is discounted once."""
    game = make_game("two_round_bargaining", values=(1,), discount=1.0)
    tree = game_tree(game, discount=Fraction(1, 3), exact=True)

    def late(decision: Decision) -> dict[str, int]:
        facts = decision.observation.facts
        return {decision.moves[0 if "offer" not in facts or facts["round"] == 2 else 1]: 1}

    assert values(tree, {"Ada": late, "Bo": late}) == {"Ada": 0, "Bo": Fraction(4, 3)}


def test_fixed_when_given_then_only_what_is_played_is_kept() -> None:
    game = make_game("iterated_matrix", num_rounds=6)
    first = {"Ada": lambda decision: {decision.moves[0]: 1}}
    tree = game_tree(game, fixed=first)
    transitions = [node for node in tree.nodes if isinstance(node, Transition)]
    assert len(transitions) == 1 + sum(2**step for step in range(1, 7))


@pytest.mark.parametrize(
    ("name", "parameters", "options", "message"),
    [
        ("iterated_matrix", {}, {"max_nodes": 1000}, "more than 1000 nodes; expected a smaller game"),
        ("split", {"num_rounds": 1}, {}, "draws more than 100 times"),
        ("trust_and_split", {}, {}, "expected a grammar that lists its moves"),
        ("iterated_matrix", {"continuation_probability": 0.5}, {}, "is a fraction between 0 and 1"),
    ],
)
def test_tree_when_a_game_cannot_be_enumerated_then_one_clear_sentence(
    name: str, parameters: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(EnumerationError, match=message):
        game_tree(make_game(name, **parameters), **options)

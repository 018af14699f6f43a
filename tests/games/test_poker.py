"""Kuhn and Leduc poker: rules, reference returns and exact solutions (Kuhn 1950)."""

import itertools
from fractions import Fraction
from types import ModuleType
from typing import Any

import pytest

from coplay.agents.scripted_exact import KUHN_ALPHA, kuhn_bet_probability
from coplay.games import Chance, Game, Malformed, Move, make_game
from coplay.games.game_tree import Decision, GameTree, game_tree
from coplay.games.kuhn_poker import MOVES, KuhnState
from coplay.games.leduc_poker import LeducState
from coplay.games.solve import best_response, exploitability, nash_conv, uniform, values

THIRD = Fraction(1, 3)
UNIFORM = {"Ada": uniform, "Bo": uniform}


def equilibrium(alpha: Fraction) -> dict[str, Any]:
    """Written down from the book: (card, moves so far) -> probability of a bet or call."""
    first = {"J": alpha, "Q": Fraction(0), "K": 3 * alpha}
    call = {"J": Fraction(0), "Q": alpha + THIRD, "K": Fraction(1)}
    answer = {
        "P": {"J": THIRD, "Q": Fraction(0), "K": Fraction(1)},
        "B": {"J": Fraction(0), "Q": THIRD, "K": Fraction(1)},
    }

    def ada(decision: Decision) -> dict[str, Fraction]:
        card = decision.information[0]
        bet = first[card] if len(decision.information) == 1 else call[card]
        return {"P": 1 - bet, "B": bet}

    def bo(decision: Decision) -> dict[str, Fraction]:
        card, heard = decision.information[0].split()
        return {"P": 1 - answer[heard][card], "B": answer[heard][card]}

    return {"Ada": ada, "Bo": bo}


def always(move: str) -> dict[str, Any]:
    return dict.fromkeys(("Ada", "Bo"), lambda decision: {move: 1})


@pytest.fixture(scope="module")
def kuhn() -> GameTree:
    return game_tree(make_game("kuhn_poker", wording="terse"), exact=True)


def test_kuhn_when_enumerated_then_its_well_known_size(kuhn: GameTree) -> None:
    """6 deals; 12 informations in all; each deal has 4 decisions and 5 ends."""
    assert [len(kuhn.decisions(player)) for player in ("Ada", "Bo")] == [6, 6]
    decisions = [node for node in kuhn.nodes if isinstance(node, Decision)]
    assert len(decisions) == 6 * 4


@pytest.mark.parametrize("alpha", [Fraction(0), Fraction(1, 10), THIRD])
def test_kuhn_when_in_equilibrium_then_worth_minus_an_eighteenth_and_not_exploitable(
    kuhn: GameTree, alpha: Fraction
) -> None:
    strategies = equilibrium(alpha)
    assert values(kuhn, strategies) == {"Ada": Fraction(-1, 18), "Bo": Fraction(1, 18)}
    assert nash_conv(kuhn, strategies) == 0
    floats = game_tree(make_game("kuhn_poker", wording="terse"))
    assert abs(nash_conv(floats, strategies)) < 1e-15


def test_kuhn_when_alpha_is_too_large_then_exploitable(kuhn: GameTree) -> None:
    strategies = equilibrium(THIRD) | {"Ada": equilibrium(Fraction(33, 100))["Ada"]}
    assert nash_conv(kuhn, strategies) == 0
    beyond = {"Ada": lambda decision: {"P": 0, "B": 1}, "Bo": equilibrium(THIRD)["Bo"]}
    assert nash_conv(kuhn, beyond) > 0


def test_kuhn_when_uniform_then_the_published_numbers(kuhn: GameTree) -> None:
    """NashConv 11/12, value +1/8, best responses +.5 and -.416667 for the first player."""
    assert nash_conv(kuhn, UNIFORM) == Fraction(11, 12)
    assert exploitability(kuhn, UNIFORM) == Fraction(11, 24)
    assert values(kuhn, UNIFORM) == {"Ada": Fraction(1, 8), "Bo": Fraction(-1, 8)}
    assert best_response(kuhn, "Ada", UNIFORM).value == Fraction(1, 2)
    assert best_response(kuhn, "Bo", UNIFORM).value == Fraction(5, 12)


def test_kuhn_when_moves_never_change_then_exploitable_by_two_and_two_thirds(kuhn: GameTree) -> None:
    assert nash_conv(kuhn, always("P")) == 2
    assert nash_conv(kuhn, always("B")) == Fraction(2, 3)


def test_kuhn_when_equilibrium_meets_uniform_then_a_sixth(kuhn: GameTree) -> None:
    strategies = equilibrium(THIRD)
    assert values(kuhn, {"Ada": strategies["Ada"], "Bo": uniform})["Ada"] == Fraction(1, 6)
    assert values(kuhn, {"Ada": uniform, "Bo": strategies["Bo"]})["Ada"] == Fraction(-1, 6)


def test_best_response_when_played_then_earns_its_value(kuhn: GameTree) -> None:
    for player in ("Ada", "Bo"):
        found = best_response(kuhn, player, UNIFORM)
        assert values(kuhn, {**UNIFORM, player: found.strategy()})[player] == found.value
        assert set(found.replies) == set(kuhn.decisions(player))


PAIRS = {
    ("always_fold", "always_fold"): Fraction(0),
    ("always_fold", "always_bet"): Fraction(-1),
    ("always_fold", "kuhn_equilibrium"): Fraction(-2, 9),
    ("always_fold", "random"): Fraction(-1, 2),
    ("always_bet", "always_fold"): Fraction(1),
    ("always_bet", "always_bet"): Fraction(0),
    ("always_bet", "kuhn_equilibrium"): Fraction(-1, 9),
    ("always_bet", "random"): Fraction(1, 2),
    ("kuhn_equilibrium", "always_fold"): Fraction(2, 9),
    ("kuhn_equilibrium", "always_bet"): Fraction(1, 9),
    ("kuhn_equilibrium", "kuhn_equilibrium"): Fraction(-1, 18),
    ("kuhn_equilibrium", "random"): Fraction(1, 6),
    ("random", "always_fold"): Fraction(1, 2),
    ("random", "always_bet"): Fraction(-1, 4),
    ("random", "kuhn_equilibrium"): Fraction(-1, 6),
    ("random", "random"): Fraction(1, 8),
}
"""Chips of the first player, by hand: the mean over deals of cards and lots."""


@pytest.mark.parametrize(("row", "column"), list(PAIRS))
def test_kuhn_when_scripted_agents_meet_then_the_reference_return(
    scripted: ModuleType, kuhn: GameTree, row: str, column: str
) -> None:
    family = equilibrium(THIRD)
    strategies = {
        player: {
            "always_fold": always("P")[player],
            "always_bet": always("B")[player],
            "kuhn_equilibrium": family[player],
            "random": uniform,
        }[name]
        for player, name in (("Ada", row), ("Bo", column))
    }
    assert values(kuhn, strategies)["Ada"] == PAIRS[row, column]
    game = make_game("kuhn_poker")
    num_plays = 600
    mean = (
        sum(scripted.totals(game, {"Ada": row, "Bo": column}, seed=seed)["Ada"] for seed in range(num_plays))
        / num_plays
    )
    assert abs(mean - float(PAIRS[row, column])) < 4 * 2 / num_plays**0.5


def test_kuhn_equilibrium_when_seated_then_plays_the_family() -> None:
    family = equilibrium(THIRD)
    tree = game_tree(make_game("kuhn_poker", wording="terse"))
    for node in tree.nodes:
        if isinstance(node, Decision):
            facts = node.observation.facts
            told = kuhn_bet_probability(facts["card"], facts["history"], KUHN_ALPHA)
            assert told == pytest.approx(float(family[node.player](node)["B"]))


def play(game: Game[Any], state: Any, *moves: str) -> tuple[Any, Any]:
    """State and outcome after moves by name."""
    outcome = None
    for step, move in enumerate(moves, start=1):
        (player,) = game.to_move(state)
        grammar = game.observe(state, player).grammar
        state, outcome = game.step(state, {player: grammar.parse(grammar.write(move))}, Chance(0, step))
    return state, outcome


@pytest.mark.parametrize(
    ("moves", "first_has_king", "second_has_king"),
    [
        (["pass", "pass"], 1, -1),
        (["pass", "bet", "pass"], -1, -1),
        (["pass", "bet", "bet"], 2, -2),
        (["bet", "pass"], 1, 1),
        (["bet", "bet"], 2, -2),
    ],
)
def test_kuhn_when_a_hand_is_played_then_its_chips(
    moves: list[str], first_has_king: float, second_has_king: float
) -> None:
    game = make_game("kuhn_poker")
    for cards, gain in (((2, 0), first_has_king), ((1, 2), second_has_king)):
        _, outcome = play(game, KuhnState(cards), *moves)
        assert outcome.terminated
        assert outcome.rewards == {"Ada": gain, "Bo": -gain}


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker"])
def test_deal_when_repeated_then_every_deal_and_never_a_card_too_many(name: str) -> None:
    deals = {make_game(name).initial_state(Chance(seed)).cards for seed in range(200)}
    same = {(card, card) for card in range(3)}
    pairs = set(itertools.product(range(3), repeat=2))
    assert deals == (pairs if name == "leduc_poker" else pairs - same)


def test_leduc_when_uniform_then_the_numbers_of_another_library() -> None:
    """OpenSpiel 2.0.2, uniform random policy: NashConv 4.747222..., value -0.078125, best responses."""
    tree = game_tree(make_game("leduc_poker", wording="terse"))
    assert values(tree, UNIFORM)["Ada"] == pytest.approx(-0.078125, abs=1e-12)
    assert best_response(tree, "Ada", UNIFORM).value == pytest.approx(2.0875, abs=1e-12)
    assert best_response(tree, "Bo", UNIFORM).value == pytest.approx(2.6597222222222223, abs=1e-12)
    assert nash_conv(tree, UNIFORM) == pytest.approx(4.747222222222222, abs=1e-12)
    assert [len(tree.decisions(player)) for player in ("Ada", "Bo")] == [144, 144]


@pytest.mark.parametrize(
    ("cards", "moves", "gain"),
    [
        ((2, 0, 1), ["call", "call", "call", "call"], 1),
        ((2, 0, 0), ["call", "call", "call", "call"], -1),
        ((1, 1, 0), ["raise", "raise", "call", "raise", "raise", "call"], 0),
        ((1, 0, 2), ["raise", "raise", "call", "raise", "raise", "call"], 13),
        ((1, 0, 2), ["raise", "fold"], 1),
        ((2, 0, 2), ["raise", "raise", "fold"], -3),
        ((0, 2, 0), ["raise", "call", "call", "raise", "call"], 7),
        ((0, 2, 0), ["raise", "call", "raise", "fold"], 3),
    ],
)
def test_leduc_when_a_hand_is_played_then_its_chips(
    monkeypatch: pytest.MonkeyPatch, cards: tuple[int, int, int], moves: list[str], gain: float
) -> None:
    monkeypatch.setattr(Chance, "choice", lambda self, purpose, options, index=0: cards[2])
    _, outcome = play(make_game("leduc_poker"), LeducState(cards[:2]), *moves)
    assert outcome.terminated
    assert outcome.rewards == {"Ada": gain, "Bo": -gain}


def test_leduc_when_there_is_no_raise_then_no_fold_and_after_two_no_third() -> None:
    game = make_game("leduc_poker", wording="terse")
    state = LeducState((0, 1))
    assert game.observe(state, "Ada").grammar.labels() == ("C", "R")
    state, _ = game.step(state, {"Ada": Move(value="R", text="R")}, Chance(0, 1))
    assert game.observe(state, "Bo").grammar.labels() == ("F", "C", "R")
    state, _ = game.step(state, {"Bo": Move(value="R", text="R")}, Chance(0, 2))
    assert game.observe(state, "Ada").grammar.labels() == ("F", "C")


def test_malformed_when_in_poker_then_passes_folds_or_checks() -> None:
    nothing = Malformed(reason="empty", text="")
    kuhn, leduc = make_game("kuhn_poker"), make_game("leduc_poker")
    state, _ = kuhn.step(KuhnState((0, 1)), {"Ada": nothing}, Chance(0, 1))
    assert [MOVES[move] for move in state.moves] == ["pass"]
    after, _ = leduc.step(LeducState((0, 1)), {"Ada": nothing}, Chance(0, 1))
    assert after.rounds == ((1,),)
    _, outcome = leduc.step(LeducState((0, 1), ((2,),)), {"Bo": nothing}, Chance(0, 2))
    assert outcome.rewards == {"Ada": 1.0, "Bo": -1.0}


LEDUC_PAIRS = {
    ("always_fold", "always_fold"): Fraction(0),
    ("always_fold", "always_bet"): Fraction(-1),
    ("always_fold", "random"): Fraction(-3, 4),
    ("always_bet", "always_fold"): Fraction(1),
    ("always_bet", "always_bet"): Fraction(0),
    ("always_bet", "random"): Fraction(11, 9),
    ("random", "always_fold"): Fraction(3, 4),
    ("random", "always_bet"): Fraction(-371, 144),
    ("random", "random"): Fraction(-5, 64),
}
"""Chips of the first player, the same as by a walk over OpenSpiel 2.0.2's own tree to 1e-15."""


@pytest.mark.parametrize(("row", "column"), list(LEDUC_PAIRS))
def test_leduc_when_scripted_agents_meet_then_the_reference_return(
    scripted: ModuleType, row: str, column: str
) -> None:
    game = make_game("leduc_poker", wording="terse")
    strategies = {
        player: uniform if name == "random" else scripted.as_strategy(game, name)
        for player, name in (("Ada", row), ("Bo", column))
    }
    fixed = {player: found for player, found in strategies.items() if found is not uniform}
    tree = game_tree(game, fixed=fixed, exact=True)
    assert values(tree, strategies)["Ada"] == LEDUC_PAIRS[row, column]

"""Negotiators of the NegMAS library: the same offers and agreements as in its own mechanism."""

import asyncio
import sys
from itertools import product
from typing import Any

import pytest

from coplay.agents import negmas_negotiators
from coplay.agents.base import Seat, TurnKey
from coplay.agents.named import named_agent, named_players, plays
from coplay.agents.negmas_negotiators import NEGOTIATORS, negmas_agent
from coplay.agents.scripted import AgentGameError, UnknownAgentError
from coplay.games import Chance, Game, Malformed, Move, make_game
from coplay.games.adapters.global_luck import fenced
from coplay.games.bargaining import BargainingState, worth
from coplay.games.best_outcomes import efficient_points, split_points
from coplay.games.deal_instances import all_instances
from coplay.games.optional import MissingLibraryError

COINS, OFFERS = 20, 7
PLAYERS = ("Ada", "Bo")
DRAWING = ("FastMiCRONegotiator", "MiCRONegotiator", "NiceNegotiator", "TopFractionNegotiator")
"""These draw lots, of which the library's mechanism makes other ones when it seats two of its own."""
CERTAIN = tuple(name for name in NEGOTIATORS if name not in DRAWING)
pytestmark = pytest.mark.filterwarnings("ignore")
needs = pytest.mark.needs("negmas")


def offers_game(**changes: Any) -> Game[Any]:
    told = {"coins": COINS, "max_offers": OFFERS, "first_offer": "first player", "wording": "terse"}
    return make_game("alternating_offers", **told | changes)


def seated(game: Game[Any], names: tuple[str, str]) -> dict[str, Any]:
    return {
        player: negmas_agent(f"negmas:{name}")(
            Seat(game=game.name, player=player, players=PLAYERS, episode="0", seed=place)
        )
        for place, (player, name) in enumerate(zip(PLAYERS, names, strict=True))
    }


def play_on(
    game: Game[Any], agents: dict[str, Any], state: Any, step: int = 0, branch: str = "", steps: int = 100
) -> tuple[list[str], Any]:
    said = []
    while (movers := game.to_move(state)) and len(said) < steps:
        seen = game.observe(state, movers[0])
        key = TurnKey(episode="0", branch=branch, player=movers[0], step=step)
        said.append(asyncio.run(agents[movers[0]].reply(seen, key)).text)
        assert asyncio.run(agents[movers[0]].reply(seen, key)).text == said[-1]
        step += 1
        state, _ = game.step(state, {movers[0]: seen.grammar.parse(said[-1])}, Chance(0, step))
    return said, state


def native(names: tuple[str, str]) -> tuple[list[int], int | None]:
    """What each offer gave to the other, and the coins of the first, by the library's own mechanism."""
    import negmas
    from negmas import sao
    from negmas.preferences import MappingUtilityFunction

    with fenced(0):
        issues = [negmas.make_issue(COINS + 1, "coins")]
        mechanism = sao.SAOMechanism(issues=issues, n_steps=OFFERS + 1, one_offer_per_step=True)
        for place, name in enumerate(names):
            shares = {(own,): (COINS - own if place else own) / COINS for own in range(COINS + 1)}
            utility = MappingUtilityFunction(shares, issues=mechanism.issues, reserved_value=0.0)
            assert mechanism.add(getattr(sao, name)(name=f"{place}"), ufun=utility)
        mechanism.run()
    given = [
        own[0] if place % 2 else COINS - own[0] for place, (_, own) in enumerate(mechanism.trace[:OFFERS])
    ]
    agreed = mechanism.state.agreement
    return given, None if agreed is None else agreed[0]


@needs
@pytest.mark.parametrize("first", CERTAIN)
def test_negotiation_when_both_seats_are_theirs_then_offer_for_offer_as_the_library(first: str) -> None:
    game = offers_game(discounts=(1.0, 1.0))
    for second in CERTAIN:
        said, state = play_on(game, seated(game, (first, second)), game.initial_state(Chance(0)))
        given, agreed = native((first, second))
        assert [int(offer) for offer in said[:-1]] == given[: len(said) - 1], second
        assert said[-1] == ("reject" if agreed is None else "accept"), second
        assert state.last_points == ((0.0, 0.0) if agreed is None else (agreed, COINS - agreed)), second


@needs
def test_round_when_a_new_one_begins_then_a_new_negotiation() -> None:
    game = offers_game(num_rounds=2)
    said, _ = play_on(game, seated(game, ("LinearTBNegotiator",) * 2), game.initial_state(Chance(0)))
    assert said[: len(said) // 2] == said[len(said) // 2 :]


@needs
@pytest.mark.parametrize("name", ["TopFractionNegotiator", "MiCRONegotiator", "NaiveTitForTatNegotiator"])
def test_fork_when_both_go_on_then_the_same_and_a_branch_draws_its_own_luck(name: str) -> None:
    game = offers_game(max_offers=40, coins=100)
    agents = seated(game, (name, "ToughNegotiator"))
    _, state = play_on(game, agents, game.initial_state(Chance(0)), steps=3)
    twins, branches, again = ({p: a.fork() for p, a in agents.items()} for _ in range(3))
    then, _ = play_on(game, agents, state, 3)
    assert then == play_on(game, twins, state, 3)[0]
    branched, _ = play_on(game, branches, state, 3, "b1")
    assert branched == play_on(game, again, state, 3, "b1")[0]
    assert (branched != then) == (name in DRAWING)


@needs
def test_negotiator_when_it_cannot_play_there_or_is_unknown_then_one_sentence() -> None:
    with pytest.raises(AgentGameError, match="no rule for game 'split'; expected one of"):
        named_agent("negmas:NiceNegotiator")(
            Seat(game="split", player="Ada", players=PLAYERS, episode="0", seed=0)
        )
    with pytest.raises(UnknownAgentError, match="did you mean 'negmas:ToughNegotiator'"):
        named_agent("negmas:TougNegotiator")


@needs
def test_ultimatum_when_theirs_play_then_an_offer_and_an_answer() -> None:
    game = make_game("ultimatum", wording="terse", first_offer="first player")
    said, _ = play_on(
        game, seated(game, ("ToughNegotiator", "NiceNegotiator")), game.initial_state(Chance(0))
    )
    assert said == ["0", "accept"]


COUNTS, VALUES, TURNS = (2, 2), ((1, 3), (3, 1)), 9
"""Every bundle is worth something else, so that no choice is left to the order of equals."""


def native_bargaining(names: tuple[str, str]) -> tuple[list[tuple[int, ...]], tuple[int, ...] | None]:
    """What each proposer wanted for himself, and what the first got, by the library's own mechanism."""
    import negmas
    from negmas import sao
    from negmas.preferences import MappingUtilityFunction

    def left(bundle: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(count - units for count, units in zip(COUNTS, bundle, strict=True))

    with fenced(0):
        issues = [negmas.make_issue(count + 1, str(place)) for place, count in enumerate(COUNTS)]
        mechanism = sao.SAOMechanism(issues=issues, n_steps=TURNS, one_offer_per_step=True)
        for seat, name in enumerate(names):
            shares = {
                bundle: worth(left(bundle) if seat else bundle, VALUES[seat]) / worth(COUNTS, VALUES[seat])
                for bundle in product(*(range(count + 1) for count in COUNTS))
            }
            utility = MappingUtilityFunction(shares, issues=mechanism.issues, reserved_value=0.0)
            assert mechanism.add(getattr(sao, name)(name=f"{seat}"), ufun=utility)
        mechanism.run()
    wanted = [left(offer) if place % 2 else offer for place, (_, offer) in enumerate(mechanism.trace)]
    return wanted, mechanism.state.agreement


@needs
@pytest.mark.parametrize("first", CERTAIN)
def test_bargaining_when_both_seats_are_theirs_then_offer_for_offer_as_the_library(first: str) -> None:
    told = {"items": ("hats", "balls"), "min_turns": TURNS, "max_turns": TURNS, "messages": "none"}
    game = make_game("bargaining", wording="terse", **told)
    for second in CERTAIN:
        start = BargainingState(0, COUNTS, VALUES, TURNS, 0)
        said, state = play_on(game, seated(game, (first, second)), start)
        wanted, agreed = native_bargaining((first, second))
        offers = said[:-1] if agreed is not None else said
        assert [tuple(map(int, offer.split())) for offer in offers] == wanted[: len(offers)], second
        assert (said[-1] == "accept") == state.last_agreed == (agreed is not None), second
        if agreed is not None:
            rest = tuple(count - units for count, units in zip(COUNTS, agreed, strict=True))
            paid = [worth(bundle, own) / 8 for bundle, own in zip((agreed, rest), VALUES, strict=True)]
            assert state.last_pay == pytest.approx(paid), second


@needs
@pytest.mark.parametrize("told", [{}, {"messages": "symbols"}, {"show_proposals": False}, {"num_rounds": 3}])
@pytest.mark.parametrize("wording", ["full", "terse"])
def test_bargaining_when_there_are_messages_or_nothing_is_shown_then_played_to_its_end(
    told: dict[str, Any], wording: str
) -> None:
    game = make_game("bargaining", wording=wording, **told)
    for name in ("NiceNegotiator", "ConcederTBNegotiator"):
        for seed in range(3):
            said, state = play_on(game, seated(game, (name, name)), game.initial_state(Chance(seed)))
            assert said and not game.to_move(state)


@needs
def test_bargaining_when_the_offer_was_malformed_then_one_of_nothing() -> None:
    game = make_game("bargaining", messages="none", wording="terse", players=PLAYERS)
    state = game.initial_state(Chance(1))
    (mover,) = game.to_move(state)
    state, _ = game.step(state, {mover: Malformed(reason="empty", text="")}, Chance(1, 1))
    for name in NEGOTIATORS:
        said, _ = play_on(game, seated(game, (name, name)), state, 1, steps=1)
        (other,) = game.to_move(state)
        assert isinstance(game.observe(state, other).grammar.parse(said[0]), Move), name


def whole_units(most: int) -> list[tuple[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]]]:
    """Pools of two items with values as in `bargaining`, each pool worth something to both."""
    vectors = [pair for pair in product(range(most + 1), repeat=2) if any(pair)]
    return [
        (counts, (one, other))
        for counts, one, other in product(vectors, repeat=3)
        if worth(counts, one) and worth(counts, other)
    ]


@needs
@pytest.mark.parametrize("game", ["deal_or_no_deal", "bargaining"])
def test_efficient_and_nash_points_when_whole_units_then_those_of_the_library(game: str) -> None:
    import negmas
    from negmas.preferences import MappingUtilityFunction, nash_points, pareto_frontier

    deals = [(each.counts, each.values) for each in all_instances()[::60]]
    for counts, values in deals if game == "deal_or_no_deal" else whole_units(2)[::3]:
        bundles = list(product(*(range(count + 1) for count in counts)))
        issues = [negmas.make_issue(count + 1, str(place)) for place, count in enumerate(counts)]
        points = split_points(counts, values)
        utilities = [
            MappingUtilityFunction(
                {bundle: point[seat] for bundle, point in zip(bundles, points, strict=True)},
                issues=issues,
                reserved_value=0.0,
            )
            for seat in range(2)
        ]
        front, _ = pareto_frontier(utilities, outcomes=bundles)
        assert set(front) == set(efficient_points(points)), (counts, values)
        best = max(one * other for one, other in points)
        found = {point for point, _ in nash_points(utilities, front, outcomes=bundles)}
        assert found == {point for point in points if point[0] * point[1] == best}, (counts, values)


def test_library_when_it_is_missing_then_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "negmas", None)
    negmas_negotiators._library.cache_clear()
    with pytest.raises(MissingLibraryError, match=r"needs the library 'negmas'.*\[negmas\]"):
        named_agent("negmas:NiceNegotiator")


def test_names_when_of_the_library_then_known_where_they_play() -> None:
    assert plays("negmas:x", "ultimatum") and plays("negmas:x", "bargaining")
    assert not plays("negmas:x", "deal_or_no_deal")
    assert "negmas:NAME" in named_players("alternating_offers")

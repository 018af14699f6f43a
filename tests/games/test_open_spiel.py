"""Games of OpenSpiel through the adapter are what the library says they are, at every state."""

import json
import random
import re
import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

from coplay.games import Chance, Game, GameParameterError, Malformed, make_game
from coplay.games.adapters.open_spiel import OpenSpielState
from coplay.games.adapters.open_spiel_library import draw_outcome
from coplay.games.chance_outcomes import EnumerationError, chance_outcomes
from coplay.games.conformance import check_game
from coplay.games.game_tree import game_tree
from coplay.games.optional import MissingLibraryError
from coplay.games.solve import exploitability, nash_conv, uniform, values

needs_library = pytest.mark.needs("pyspiel")

LOADS = (
    "kuhn_poker",
    "kuhn_poker(players=3)",
    "leduc_poker",
    "bargaining",
    "negotiation(rng_seed=7)",
    "coin_game",
    "tic_tac_toe",
    "liars_dice",
    "goofspiel(imp_info=True,num_cards=4,points_order=random)",
    "matrix_pd",
    "matrix_rps",
    "repeated_game(stage_game=matrix_pd(),num_repetitions=5)",
    "oshi_zumo(coins=6)",
    "first_sealed_auction",
    "trade_comm",
    "markov_soccer(horizon=20)",
    "turn_based_simultaneous_game(game=goofspiel(num_cards=3))",
    "catch",
    "pig(horizon=30)",
    "go_fish",
)
READ = {
    "History",
    "IsTerminal",
    "IsChanceNode",
    "IsSimultaneousNode",
    "CurrentPlayer",
    "LegalActions",
    "StringLegalActions",
    "InformationStateString",
    "ObservationString",
    "Rewards",
    "Returns",
}
"""What is read of a playthrough's states."""


@dataclass(frozen=True)
class ToldChance(Chance):
    """Luck that makes chance do what a recorded play says."""

    node: Any = None
    """The library's state at the first chance node of the step."""
    actions: list[int] = field(default_factory=list)
    """What chance did there, one after the other."""

    def _place(self, index: int, scale: float) -> float:
        node = self.node.clone()
        for action in self.actions[:index]:
            node.apply_action(action)
        outcomes = [pair for pair in node.chance_outcomes() if pair[1] > 0]
        total, place = sum(share for _, share in outcomes), 0.0
        for action, share in outcomes:
            if action == self.actions[index]:
                return (place + share / 2) / total * scale
            place += share
        raise AssertionError("no outcome of chance")

    def integer(self, purpose: str, size: int, *, index: int = 0) -> int:
        return int(self._place(index, size)) if purpose == "chance" else 0

    def uniform(self, purpose: str, *, index: int = 0) -> float:
        return self._place(index, 1.0)


@dataclass
class Recorded:
    """What a playthrough prints of one state, and what was done there."""

    fields: dict[str, Any]
    actions: list[int]


def playthrough(load: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    """The library's own record of a random play, of which it prints every state."""
    from absl import flags
    from open_spiel.python.algorithms import generate_playthrough

    if not flags.FLAGS.is_parsed():
        flags.FLAGS(sys.argv[:1])
    states = []
    monkeypatch.setattr(generate_playthrough, "ShouldDisplayStateTracker", lambda: lambda node: True)
    for part in generate_playthrough.playthrough(load, None, seed=seed).split("\n# State ")[1:]:
        fields: dict[str, Any] = {}
        for line in part.splitlines():
            found = re.match(r"([A-Za-z]+(?:\(\d*\))?) = (\[.*\]|\".*\"|True|False|-?\d+)$", line)
            if found and found[1].split("(")[0] in READ:
                fields[found[1]] = json.loads({"True": "true", "False": "false"}.get(found[2], found[2]))
        done = re.search(r"^actions?: (.+)$", part, re.MULTILINE)
        actions = json.loads(done[1]) if done else []
        states.append(Recorded(fields, actions if isinstance(actions, list) else [actions]))
    return states


def check_state(game: Game[Any], state: OpenSpielState, recorded: Recorded, strings: str) -> None:
    """Legal moves, strings and whose turn it is, as recorded."""
    fields, players = recorded.fields, game.spec.players
    assert list(state.history) == fields["History()"]
    movers = game.to_move(state)
    assert (not movers) == fields["IsTerminal()"]
    together = fields["IsSimultaneousNode()"]
    assert movers == (() if not movers else players if together else (players[fields["CurrentPlayer()"]],))
    for player in movers:
        seat = players.index(player)
        seen = game.observe(state, player)
        labels = fields[f"StringLegalActions({seat if together else ''})"]
        assert seen.facts["moves"] == [" ".join(label.split()) for label in labels]
        assert [seen.grammar.parse(reply).value for reply in seen.grammar.labels() or ()] == seen.facts[
            "moves"
        ]
        assert seen.facts["string"] == fields[f"{strings}({seat})"]
        assert seen.facts["string"].strip() in seen.text


@needs_library
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("strings", ["observation", "information_state"])
@pytest.mark.parametrize("load", LOADS)
def test_playthrough_when_replayed_through_the_adapter_then_agrees_at_every_state(
    load: str, strings: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspiel

    kind = pyspiel.load_game(load).get_type()
    if not getattr(kind, f"provides_{strings}_string"):
        with pytest.raises(ValueError, match=f"has no {strings} string; expected strings ="):
            make_game("open_spiel", load=load, strings=strings)
        return
    game = make_game("open_spiel", load=load, strings=strings)
    printed = {"observation": "ObservationString", "information_state": "InformationStateString"}[strings]
    record, shadow = playthrough(load, seed, monkeypatch), pyspiel.load_game(load).new_initial_state()
    place, steps, state, sums = 0, 0, None, [0.0] * len(game.spec.players)
    actions: dict[str, Any] = {}
    while True:
        if state is not None:  # a decision: play what is recorded
            movers = game.to_move(state)
            labels = {p: game.observe(state, p).facts["moves"] for p in movers}
            for player in movers:
                seat = game.spec.players.index(player)
                legal = record[place].fields[
                    f"LegalActions({seat if len(record[place].actions) > 1 else ''})"
                ]
                chosen = record[place].actions[seat if len(record[place].actions) > 1 else 0]
                seen = game.observe(state, player)
                actions[player] = seen.grammar.parse(seen.grammar.write(labels[player][legal.index(chosen)]))
            advance(shadow, record[place].actions)
            place += 1
        root, luck = shadow.clone(), []
        while record[place].fields["IsChanceNode()"]:
            luck += record[place].actions
            advance(shadow, record[place].actions)
            place += 1
        told = ToldChance(0, steps, node=root, actions=luck)
        if state is None:
            state = game.initial_state(told)
        else:
            state, outcome = game.step(state, actions, told)
            rewards = list(outcome.rewards.values())
            sums = [total + reward for total, reward in zip(sums, rewards, strict=True)]
            assert rewards == pytest.approx(shadow.rewards(), abs=1e-9)
            assert sums == pytest.approx(shadow.returns(), abs=1e-9)
            assert rewards == pytest.approx(
                record[place].fields["Rewards()"], rel=1e-5
            )  # printed in 6 digits
            assert sums == pytest.approx(record[place].fields["Returns()"], rel=1e-5)
            assert outcome.terminated == record[place].fields["IsTerminal()"]
            actions = {}
        steps += 1
        check_state(game, state, record[place], printed)
        again = make_game("open_spiel", load=load, strings=strings)  # remembers nothing: replays
        check_state(again, again.decode(json.loads(json.dumps(game.encode(state)))), record[place], printed)
        if not game.to_move(state):
            break
    assert place == len(record) - 1 and 1 < steps <= game.spec.max_steps + 1


def advance(node: Any, actions: list[int]) -> None:
    if len(actions) > 1:
        node.apply_actions(actions)
    else:
        node.apply_action(actions[0])


@needs_library
@pytest.mark.parametrize("wording", ["full", "terse"])
@pytest.mark.parametrize(
    "load", [*LOADS, "negotiation", "battleship", "phantom_ttt", "nim", "blotto(coins=4)"]
)
def test_play_when_random_then_spec_holds_and_luck_is_a_function(
    load: str, wording: str, scripted: ModuleType
) -> None:
    game = make_game("open_spiel", load=load, wording=wording)
    other = make_game("open_spiel", load=load, wording=wording)
    randoms = dict.fromkeys(game.spec.players, "random")
    told = set()
    for seed in range(3):
        steps = list(scripted.play(game, randoms, seed=seed))
        assert steps == list(scripted.play(other, randoms, seed=seed))
        assert 0 < len(steps) <= game.spec.max_steps
        assert [step.outcome.terminated for step in steps] == [False] * (len(steps) - 1) + [True]
        least, most = game.spec.reward_range
        for step in steps:
            assert list(step.outcome.rewards) == list(game.spec.players)
            assert all(least <= reward <= most for reward in step.outcome.rewards.values())
            if game.spec.zero_sum:
                assert sum(step.outcome.rewards.values()) == pytest.approx(0, abs=1e-9)
        told.add(str(game.initial_state(Chance(seed))))
    assert len(told) == 1 or game.spec.has_chance


@needs_library
@pytest.mark.parametrize(
    "load",
    ["leduc_poker", "negotiation", "coin_game", "repeated_game(stage_game=matrix_pd(),num_repetitions=5)"],
)
def test_fork_when_made_anywhere_then_the_same_as_a_replay_and_siblings_live_on(load: str) -> None:
    game, rest = make_game("open_spiel", load=load), random.Random(5)
    state, step, path = game.initial_state(Chance(9)), 0, []
    while movers := game.to_move(state):
        step += 1
        seen = {player: game.observe(state, player) for player in movers}
        moves = {p: s.grammar.parse(rest.choice(s.grammar.labels() or ())) for p, s in seen.items()}
        nothing = {player: Malformed(reason="empty", text="") for player in movers}
        sibling = game.step(state, nothing, Chance(9, step))
        path.append((state, moves, game.step(state, moves, Chance(9, step))))
        assert sibling == game.step(state, nothing, Chance(9, step))
        assert seen == {player: game.observe(state, player) for player in movers}
        state = path[-1][2][0]
    fresh = make_game("open_spiel", load=load)
    for number, (state, moves, after) in reversed(list(enumerate(path, 1))):
        assert fresh.step(state, moves, Chance(9, number)) == after
        assert hash(fresh.decode(fresh.encode(state))) == hash(state)


@needs_library
@pytest.mark.parametrize("wording", ["full", "terse"])
@pytest.mark.parametrize("load", ["leduc_poker", "negotiation", "markov_soccer(horizon=20)"])
def test_conformance_kit_when_run_then_finds_nothing(load: str, wording: str) -> None:
    assert check_game(make_game("open_spiel", load=load, wording=wording)) == ()


@needs_library
def test_malformed_when_any_reply_is_then_the_first_legal_move() -> None:
    game = make_game("open_spiel", load="kuhn_poker", players=("North", "South"))
    state = game.initial_state(Chance(1))
    after, outcome = game.step(state, {"North": Malformed(reason="empty", text="")}, Chance(1, 1))
    assert outcome.info == {"moves": {"North": "Pass"}} and after.history[-1] == 0
    assert game.to_move(after) == ("South",)


@needs_library
def test_exploitability_when_of_uniform_kuhn_then_as_the_library_computes_it() -> None:
    import pyspiel
    from open_spiel.python import policy
    from open_spiel.python.algorithms import expected_game_score
    from open_spiel.python.algorithms import exploitability as theirs

    library = pyspiel.load_game("kuhn_poker")
    random_policy = policy.UniformRandomPolicy(library)
    score = expected_game_score.policy_value(library.new_initial_state(), [random_policy] * 2)
    for game in (make_game("kuhn_poker"), make_game("open_spiel", load="kuhn_poker")):
        tree, both = game_tree(game), {"Ada": uniform, "Bo": uniform}
        assert exploitability(tree, both) == pytest.approx(
            theirs.exploitability(library, random_policy), abs=1e-9
        )
        assert nash_conv(tree, both) == pytest.approx(theirs.nash_conv(library, random_policy), abs=1e-9)
        assert list(values(tree, both).values()) == pytest.approx(list(score), abs=1e-9)


@needs_library
def test_leduc_when_solved_from_the_adapter_then_as_our_own() -> None:
    both = {"Ada": uniform, "Bo": uniform}
    ours, theirs = (
        game_tree(make_game(name, **told))
        for name, told in (("leduc_poker", {}), ("open_spiel", {"load": "leduc_poker"}))
    )
    assert nash_conv(theirs, both) == pytest.approx(nash_conv(ours, both), abs=1e-9)
    assert values(theirs, both)["Ada"] == pytest.approx(values(ours, both)["Ada"], abs=1e-9)


@needs_library
def test_tree_when_luck_is_behind_closed_doors_then_refused() -> None:
    with pytest.raises(EnumerationError, match="'rng_seed' is drawn from 2147483647 options"):
        game_tree(make_game("open_spiel", load="negotiation"))


@needs_library
@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"load": "kuhn_pokr"}, "OpenSpiel has no game 'kuhn_pokr'.*did you mean 'kuhn_poker'"),
        ({"load": "kuhn_poker(cards=3)"}, r"OpenSpiel cannot load 'kuhn_poker\(cards=3\)'.*expected"),
        ({"load": "mfg_crowd_modelling"}, "'mfg_crowd_modelling' is a mean-field game|cannot load"),
        ({"load": "turn_based_simultaneous_game(game=negotiation())"}, "cannot load|without a seed"),
        ({"players": ("Ada", "Bo", "Cy")}, "expected 2 names, or none"),
        ({"load": "liars_dice", "strings": "observation"}, "expected strings = 'information_state'"),
    ],
)
def test_load_when_it_cannot_be_played_then_one_sentence(told: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        make_game("open_spiel", **told)
    assert "\n" not in str(caught.value)


def test_parameters_when_wrong_then_refused_before_anything_is_loaded() -> None:
    with pytest.raises(GameParameterError, match="different, visible names"):
        make_game("open_spiel", players=("Ada", "Ada"))


def test_library_when_missing_then_one_sentence_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyspiel", raising=False)
    with pytest.raises(
        MissingLibraryError, match=r"game 'open_spiel' needs the library 'pyspiel'.*\[games\]"
    ):
        make_game("open_spiel")


@pytest.mark.parametrize(
    "shares", [(0.5, 0.5), (0.25, 0.75), (1 / 3, 1 / 3, 1 / 3), (0.1, 0.0, 0.2, 0.7), (1.0,), (0.0, 1.0)]
)
def test_draw_when_shares_are_simple_then_enumerated_exactly(shares: tuple[float, ...]) -> None:
    outcomes = list(enumerate(shares))
    found = dict.fromkeys(range(len(shares)), 0.0)
    for probability, action in chance_outcomes(lambda luck: draw_outcome(outcomes, luck, 0), 0):
        found[action] += float(probability)
    assert list(found.values()) == pytest.approx(shares, abs=1e-12)


def test_draw_when_shares_are_odd_then_by_lot_at_their_rates() -> None:
    shares = (0.123456789, 0.376543211, 0.5)
    drawn = [draw_outcome(list(enumerate(shares)), Chance(seed), 2) for seed in range(4000)]
    for action, share in enumerate(shares):
        assert drawn.count(action) / 4000 == pytest.approx(share, abs=4 * (share * (1 - share) / 4000) ** 0.5)

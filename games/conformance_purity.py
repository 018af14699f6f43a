"""Rules that ask a game again: determinism, purity, forks, replay, serialisation, symmetry."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from coplay.games.base import Game
from coplay.games.conformance_plays import STYLES, Play, Visit, encoded, record, run_play
from coplay.games.conformance_rules import Exhibit, Fault
from coplay.games.grammar import Malformed
from coplay.games.replies import sound_text

FORK_STEPS = 4
"""So many steps a fork is played."""
MIN_PLAYS = 40
"""Fewer say nothing about mean rewards."""
MAX_SIGMA = 6.0
_NAMED_MOVE = re.compile(r"counts as the move '?([^'\s]+)'?")


def _again(game: Game[Any], play: Play, start: Visit | None = None) -> Play:
    """The same replies once more, from the start or from a state that was written down and read back."""
    said = {visit.step: visit.replies for visit in play.visits}

    def reply(observation: Any, player: str, seed: int, step: int) -> str:
        return said[step].get(player, "")

    if start is None:
        return run_play(game, play.seed, play.style, len(play.visits), reply)
    state = game.decode(json.loads(json.dumps(game.encode(start.state))))
    steps = len(play.visits) - start.step + 1
    return run_play(game, play.seed, play.style, steps, reply, (state, start.step - 1, ""))


def _compared(play: Play, again: Play, start: int, what: str) -> Iterator[Fault]:
    """The first step at which a play and its repetition differ."""
    one, other = record(play)[:-1], record(again)[:-1]
    one = [line for line in one if int(line.split(" ", 1)[0]) >= start]
    for expected, line in zip(one, other, strict=False):
        if expected != line:
            step = int(expected.split(" ", 1)[0])
            part = " ".join(expected.split(" ", 3)[1:3]) if " sees " in expected else expected.split(" ")[1]
            shown = step if part == "outcome" else step - 1
            yield Fault(what=f"{what}: {part} differs at step {step}", play=play, steps=shown)
            return
    if len(one) != len(other):
        yield Fault(what=f"{what}: {again.error or 'another length'}", play=play, steps=len(again.visits))


def _fork_points(play: Play) -> list[Visit]:
    """The first step, one in the middle and the last."""
    places = sorted({0, len(play.visits) // 2, len(play.visits) - 1})
    return [play.visits[place] for place in places] if play.visits else []


def deterministic(exhibit: Exhibit) -> Iterator[Fault]:
    """The same luck and the same replies make the same play, in the same instance and in another."""
    for play in exhibit.plays:
        if not play.error:
            yield from _compared(play, _again(exhibit.fresh(), play), 1, "played again by a fresh instance")
    for play in exhibit.some():
        if not play.error:
            yield from _compared(play, _again(exhibit.game, play), 1, "played again by the same instance")


def replay_is_fork(exhibit: Exhibit) -> Iterator[Fault]:
    """A state written down, read back by another instance and played on gives the same as the play itself."""
    for play in exhibit.some():
        if not play.error:
            for visit in _fork_points(play):
                again = _again(exhibit.fresh(), play, visit)
                yield from _compared(
                    play, again, visit.step, f"played on from the stored state {visit.step - 1}"
                )


def _clearable(value: Any) -> None:
    if isinstance(value, dict | list):
        for item in list(value.values() if isinstance(value, dict) else value):
            _clearable(item)
        value.clear()


def pure_observe(exhibit: Exhibit) -> Iterator[Fault]:
    """`observe` read twice, in any order, says the same, and nothing that is done to it reaches the game."""
    game = exhibit.game
    for play, visit in exhibit.visits():
        for player in reversed(tuple(visit.observations)):
            expected = visit.observations[player]
            told = str((expected.text, expected.system, expected.facts, expected.fresh_context))
            for _ in range(2):
                seen = game.observe(visit.state, player)
                if str((seen.text, seen.system, seen.facts, seen.fresh_context)) != told:
                    what = f"observe for {player} differs when it is read again"
                    yield Fault(what=what, play=play, steps=visit.step - 1)
                if seen.facts is not expected.facts:
                    _clearable(seen.facts)
                else:
                    yield Fault(
                        what=f"observe gives {player} the same facts object twice; expected one of its own",
                        play=play,
                        steps=visit.step - 1,
                    )
                if encoded(game, visit.state) != visit.encoded:
                    what = f"observe for {player} (or what is done to its facts) changes the state"
                    yield Fault(what=what, play=play, steps=visit.step - 1)


def pure_step(exhibit: Exhibit) -> Iterator[Fault]:
    """`step` leaves the state and the actions as they were, and gives the same when asked again."""
    game = exhibit.game
    for play, visit in exhibit.visits():
        if encoded(game, visit.state) != visit.encoded:
            what = "step changed the state that it was given; expected a new one"
            yield Fault(what=what, play=play, steps=visit.step)
            continue
        actions = dict(visit.actions)
        _, outcome = game.step(visit.state, actions, play.chance(visit.step))
        if actions != dict(visit.actions):
            yield Fault(what="step changed the actions that it was given", play=play, steps=visit.step)
        if repr(outcome) != repr(visit.outcome):
            what = "step asked again with the same state, actions and luck gives another outcome"
            yield Fault(what=what, play=play, steps=visit.step)


def isolated_forks(exhibit: Exhibit) -> Iterator[Fault]:
    """Other replies tried at a state, and played on, leave the main line as it was."""
    game = exhibit.game
    for play in exhibit.some():
        if play.error:
            continue
        for visit in _fork_points(play):
            at = (visit.state, visit.step - 1, "fork")
            run_play(game, play.seed + 1, "fork", FORK_STEPS, STYLES["odd"], at)
            main = _again(game, play, visit)
            yield from _compared(play, main, visit.step, f"played on after a fork at step {visit.step}")


def branchable(exhibit: Exhibit) -> Iterator[Fault]:
    """From any state other replies under fresh luck come to an end in time; equal states have equal hashes."""
    game, most = exhibit.game, exhibit.game.spec.max_steps
    for play in exhibit.some():
        for visit in _fork_points(play):
            left = most - visit.step + 1
            at = (visit.state, visit.step - 1, "branch")
            branch = run_play(game, play.seed, "branch", min(left, play.limit), STYLES["random"], at)
            fault = branch.error or (not branch.ended and left <= play.limit and "no end within max_steps")
            if fault:
                what = f"a branch at step {visit.step}: {fault}"
                yield Fault(what=what, play=play, steps=visit.step - 1)
            hash(visit.state)


def serialises(exhibit: Exhibit) -> Iterator[Fault]:
    """A state is written as JSON and read back as an equal state with an equal hash."""
    game = exhibit.game
    for play, visit in exhibit.visits():
        text = json.dumps(game.encode(visit.state), allow_nan=False, ensure_ascii=False)
        again = game.decode(json.loads(text))
        if again != visit.state or hash(again) != hash(visit.state):
            what = f"decode(encode(state)) is {again!r:.120}; expected {visit.state!r:.120}"
        elif sound_text(text) != text:
            what = "the state holds half a surrogate pair; expected replies.sound_text of what was said"
        else:
            continue
        yield Fault(what=what, play=play, steps=visit.step - 1)


def symmetric(exhibit: Exhibit) -> Iterator[Fault]:
    """Where declared: players who swap seats and moves swap rewards; with chance, on the mean over the plays."""
    spec = exhibit.game.spec
    if spec.symmetric:
        yield from _on_the_mean(exhibit) if spec.has_chance else _swapped(exhibit)


def _swapped(exhibit: Exhibit) -> Iterator[Fault]:
    game, players = exhibit.fresh(), exhibit.game.spec.players
    for play in exhibit.plays:
        if play.error:
            continue
        for other in players[1:]:
            names = {player: player for player in players} | {players[0]: other, other: players[0]}
            state = game.initial_state(play.chance(0))
            for visit in play.visits:
                movers = game.to_move(state)
                said = {names[player]: reply for player, reply in visit.replies.items()}
                what = f"{players[0]} and {other} swap moves"
                if set(movers) != set(said):
                    yield Fault(what=f"{what}: others are to move", play=play, steps=visit.step - 1)
                    break
                seen = {player: game.observe(state, player) for player in movers}
                actions = {player: seen[player].grammar.parse(said[player]) for player in movers}
                state, outcome = game.step(state, actions, play.chance(visit.step))
                expected = {names[player]: reward for player, reward in visit.outcome.rewards.items()}
                if any(not math.isclose(outcome.rewards[p], expected[p], abs_tol=1e-9) for p in players):
                    what = f"{what}: rewards are {dict(outcome.rewards)!r}; expected {expected!r}"
                    yield Fault(what=what, play=play, steps=visit.step)
                    break


def _on_the_mean(exhibit: Exhibit) -> Iterator[Fault]:
    plays = [play for play in exhibit.plays if play.style == "random" and not play.error]
    if len(plays) < MIN_PLAYS:
        return
    first = exhibit.game.spec.players[0]
    for other in exhibit.game.spec.players[1:]:
        gaps = [
            math.fsum(v.outcome.rewards[first] - v.outcome.rewards[other] for v in play.visits)
            for play in plays
        ]
        mean = math.fsum(gaps) / len(gaps)
        spread = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps) / (len(gaps) - 1))
        if abs(mean) > MAX_SIGMA * spread + 1e-9:
            what = (
                f"in {len(gaps)} plays of random moves {first} gets {mean:.4g} more than {other}, with a standard"
                f" error of {spread:.2g}; expected no difference"
            )
            yield Fault(what=what, play=min(plays, key=lambda play: len(play.visits)), steps=1)


def names_change_nothing(exhibit: Exhibit) -> Iterator[Fault]:
    """Players of other names, and of another alphabetical order, get the same rewards by seat."""
    game, players = exhibit.game, exhibit.game.spec.players
    others = tuple(f"{chr(ord('Z') - place % 24)}ed{place // 24 or ''}" for place in range(len(players)))
    told = game.parameters.model_dump(mode="json")
    if "players" not in told or len(players) != len(told["players"]):
        return
    renamed = type(game)(type(game.parameters).model_validate({**told, "players": others}))
    names = dict(zip(others, players, strict=True))
    for play in exhibit.some():
        if play.error:
            continue
        said = {visit.step: visit.replies for visit in play.visits}

        def reply(
            observation: Any, player: str, seed: int, step: int, said: Any = said, names: Any = names
        ) -> str:
            text: str = said[step].get(names[player], "")
            for new, old in names.items():
                text = re.sub(rf"\b{re.escape(old)}\b", new, text)
            return text

        again = run_play(renamed, play.seed, play.style, len(play.visits), reply)
        for visit, other in zip(play.visits, again.visits, strict=False):
            expected = list(visit.outcome.rewards.values())
            rewards = [other.outcome.rewards.get(name) for name in others]
            if rewards != expected:
                what = f"players {list(others)!r} get {rewards!r} where {list(players)!r} get {expected!r}"
                yield Fault(what=what, play=play, steps=visit.step)
                break
        if again.error:
            yield Fault(what=f"with players {list(others)!r}: {again.error}", play=play)


def malformed_as_declared(exhibit: Exhibit) -> Iterator[Fault]:
    """Empty replies are malformed; if the rule names a move in quotes, they count as just that move."""
    game = exhibit.game
    for play, visit in exhibit.visits():
        for player, seen in visit.observations.items():
            silence = seen.grammar.parse("")
            if not isinstance(silence, Malformed):
                yield Fault(
                    what=f"an empty reply of {player} is the move {silence.value!r}; expected Malformed",
                    play=play,
                    steps=visit.step - 1,
                )
                continue
            yield from _named_move(game, (play, visit), player)


def _named_move(game: Game[Any], at: tuple[Play, Visit], player: str) -> Iterator[Fault]:
    """Silence does what the move does that the rule on malformed replies names in quotes."""
    play, visit = at
    named = _NAMED_MOVE.search(game.spec.malformed_rule.consequence)
    grammar = visit.observations[player].grammar
    if named is None:
        return
    for label in grammar.labels() or ():
        move = grammar.parse(label)
        if isinstance(move, Malformed) or repr(move.value).strip("'") != named[1]:
            continue
        told, expected = (
            game.step(visit.state, {**visit.actions, player: action}, play.chance(visit.step))
            for action in (grammar.parse(""), move)
        )
        if told[1].rewards != expected[1].rewards or encoded(game, told[0]) != encoded(game, expected[0]):
            what = f"silence of {player} does not do what {label!r} does; the rule: it {named.string}"
            yield Fault(what=what, play=play, steps=visit.step - 1)

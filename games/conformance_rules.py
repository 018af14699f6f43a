"""Rules that can be read off recorded plays: rewards, endings, rounds, luck, and what is told in which form.

A check is one function with its rule's name; it yields what breaks the rule.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coplay.games.base import Game, StepOutcome
from coplay.games.conformance_plays import Play, Visit
from coplay.games.replies import sound_text

FEW = 2
"""Plays of each style that are forked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What breaks a rule, and where."""

    what: str
    play: Play | None = None
    steps: int = 0
    """So many steps of the play show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """A game and its plays."""

    game: Game[Any]
    plays: tuple[Play, ...]

    def fresh(self) -> Game[Any]:
        """Another instance with the same parameters, which has seen nothing."""
        return type(self.game)(self.game.parameters)

    def some(self) -> Iterator[Play]:
        """A few plays of each style, for what costs several plays each."""
        return (play for play in self.plays if play.seed < FEW)

    def visits(self) -> Iterator[tuple[Play, Visit]]:
        """Every step of every play."""
        for play in self.plays:
            for visit in play.visits:
                yield play, visit


def runs(exhibit: Exhibit) -> Iterator[Fault]:
    """No method raises, whatever is replied."""
    for play in exhibit.plays:
        if play.error:
            yield Fault(what=f"a method raised {play.error}", play=play, steps=len(play.visits))


def movers_are_players(exhibit: Exhibit) -> Iterator[Fault]:
    """`to_move` names players of the game, each once."""
    players = exhibit.game.spec.players
    for play, visit in exhibit.visits():
        movers = exhibit.game.to_move(visit.state)
        if type(movers) is not tuple or len(set(movers)) < len(movers) or not set(movers) <= set(players):
            what = f"to_move gave {movers!r}; expected a tuple of some of {players!r}, each once"
            yield Fault(what=what, play=play, steps=visit.step - 1)


def ends_in_time(exhibit: Exhibit) -> Iterator[Fault]:
    """A play is over within `max_steps`."""
    most = exhibit.game.spec.max_steps
    for play in exhibit.plays:
        if len(play.visits) > most or (len(play.visits) == most and not play.ended and not play.error):
            yield Fault(what=f"not over after max_steps = {most} steps", play=play, steps=most)


def over_when_nobody_moves(exhibit: Exhibit) -> Iterator[Fault]:
    """`terminated` exactly where nobody is to move afterwards, and never with `truncated`."""
    for play in exhibit.plays:
        if not play.visits:
            if play.ended:
                yield Fault(what="nobody is to move at the start; expected at least one step", play=play)
            continue
        for visit in play.visits:
            outcome, end = visit.outcome, visit is play.visits[-1] and play.ended
            over = end and not (outcome.truncated or exhibit.game.to_move(play.last))
            told = (outcome.terminated, outcome.truncated)
            if any(type(flag) is not bool for flag in told) or all(told):
                what = f"terminated, truncated = {told!r}; expected True or False, not both True"
            elif not play.error and outcome.terminated != over:
                movers = "nobody is" if over else "somebody is"
                what = f"terminated is {outcome.terminated} where afterwards {movers} to move"
            else:
                continue
            yield Fault(what=what, play=play, steps=visit.step)


def _numbers(outcome: StepOutcome) -> Mapping[str, float]:
    rewards = outcome.rewards
    return {
        player: reward
        for player, reward in rewards.items()
        if isinstance(reward, int | float) and math.isfinite(reward)
    }


def rewards_complete(exhibit: Exhibit) -> Iterator[Fault]:
    """Every step rewards every player, in the order of the players, and nobody else."""
    players = exhibit.game.spec.players
    for play, visit in exhibit.visits():
        if tuple(visit.outcome.rewards) != players:
            what = f"rewards of {list(visit.outcome.rewards)!r}; expected one of each of {list(players)!r}, in order"
            yield Fault(what=what, play=play, steps=visit.step)


def rewards_finite(exhibit: Exhibit) -> Iterator[Fault]:
    """Every reward is a finite float."""
    for play, visit in exhibit.visits():
        for player, reward in visit.outcome.rewards.items():
            if type(reward) is not float or not math.isfinite(reward):
                yield Fault(
                    what=f"reward {reward!r} of {player}; expected a finite float",
                    play=play,
                    steps=visit.step,
                )


def rewards_in_range(exhibit: Exhibit) -> Iterator[Fault]:
    """Every reward lies in `reward_range`, but for rounding."""
    least, most = exhibit.game.spec.reward_range
    slack = 1e-9 * max(1.0, abs(least), abs(most))
    for play, visit in exhibit.visits():
        for player, reward in _numbers(visit.outcome).items():
            if not least - slack <= reward <= most + slack:
                what = f"reward {reward!r} of {player}; expected one in reward_range = ({least!r}, {most!r})"
                yield Fault(what=what, play=play, steps=visit.step)


def zero_sum(exhibit: Exhibit) -> Iterator[Fault]:
    """Where declared, the rewards of every step sum to zero, but for rounding."""
    spec = exhibit.game.spec
    slack = 1e-9 * max(1.0, *map(abs, spec.reward_range))
    for play, visit in exhibit.visits() if spec.zero_sum else ():
        rewards = _numbers(visit.outcome)
        if abs(math.fsum(rewards.values())) > slack:
            yield Fault(what=f"rewards {dict(rewards)!r} do not sum to zero", play=play, steps=visit.step)


def rounds_as_declared(exhibit: Exhibit) -> Iterator[Fault]:
    """Without rounds every step ends one; with rounds some step does not, and the last of a play does."""
    has_rounds = exhibit.game.spec.has_rounds
    for play, visit in exhibit.visits():
        ended = visit.outcome.round_ended
        if type(ended) is not bool:
            what = f"round_ended is {ended!r}; expected True or False"
        elif not has_rounds and not ended:
            what = "round_ended is False in a game with has_rounds = False"
        elif visit.outcome.terminated and not ended:
            what = "round_ended is False on the step that ends the game"
        else:
            continue
        yield Fault(what=what, play=play, steps=visit.step)
    if has_rounds and all(visit.outcome.round_ended for _, visit in exhibit.visits()):
        what = (
            "has_rounds = True, but every step of every play ended a round; expected rounds of several steps"
        )
        yield Fault(what=what, play=exhibit.plays[0])


def chance_as_declared(exhibit: Exhibit) -> Iterator[Fault]:
    """Draws are made where `has_chance` says so, and nowhere else."""
    has_chance = exhibit.game.spec.has_chance
    for play in exhibit.plays:
        if play.drawn and not has_chance:
            purpose, step, _ = next(iter(play.drawn))
            what = f"{purpose!r} is drawn at step {step} in a game with has_chance = False"
            yield Fault(what=what, play=play, steps=step)
    if has_chance and not any(play.drawn for play in exhibit.plays):
        yield Fault(what="has_chance = True, but no play draws anything", play=exhibit.plays[0])


def draws_have_names(exhibit: Exhibit) -> Iterator[Fault]:
    """Within a step, one name (purpose and index) is one draw."""
    for play in exhibit.plays:
        for (purpose, step, index), sizes in play.drawn.items():
            if len(sizes) > 1:
                what = (
                    f"{purpose!r} (index {index}) is drawn from {' and from '.join(map(str, sorted(sizes)))} options"
                    f" in step {step}; expected another name for each draw, else they depend on each other"
                )
                yield Fault(what=what, play=play, steps=step)


def tells_something(exhibit: Exhibit) -> Iterator[Fault]:
    """A text for every turn, in characters that files and tokenizers can hold."""
    for play, visit in exhibit.visits():
        for player, seen in visit.observations.items():
            if not isinstance(seen.text, str) or not seen.text.strip():
                what = f"the text for {player} is {seen.text!r}; expected some visible text"
            elif sound_text(seen.text + seen.system) != seen.text + seen.system:
                what = f"the text for {player} holds half a surrogate pair; expected replies.sound_text of replies"
            else:
                continue
            yield Fault(what=what, play=play, steps=visit.step - 1)


def rules_stay_the_same(exhibit: Exhibit) -> Iterator[Fault]:
    """`system` is the same for a player at every turn of a play."""
    for play in exhibit.plays:
        told: dict[str, str] = {}
        for visit in play.visits:
            for player, seen in visit.observations.items():
                if told.setdefault(player, seen.system) != seen.system:
                    what = f"system for {player} changes at step {visit.step}; expected news in text"
                    yield Fault(what=what, play=play, steps=visit.step - 1)


_ADDRESS = re.compile(r"<[\w.]+ object|\bat 0x[0-9a-fA-F]{6,}|<function |<class '")


def no_addresses(exhibit: Exhibit) -> Iterator[Fault]:
    """No text shows how Python prints an object."""
    for play, visit in exhibit.visits():
        for player, seen in visit.observations.items():
            found = _ADDRESS.search(f"{seen.system}\n{seen.text}")
            if found:
                what = f"the text for {player} holds {found[0]!r}; expected words"
                yield Fault(what=what, play=play, steps=visit.step - 1)


def plain(value: Any) -> bool:
    """True for a JSON value: dict with text keys, list, text, finite number, True, False or None."""
    if type(value) is dict:
        return all(type(key) is str and plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(plain, value))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (str, int, bool)


def json_values(exhibit: Exhibit) -> Iterator[Fault]:
    """`facts`, `info` and `private` hold JSON values, and so is what a move comes to."""
    for play, visit in exhibit.visits():
        told: dict[str, Any] = {"info": visit.outcome.info}
        told |= {f"private of {player}": values for player, values in visit.private.items()}
        for player, seen in visit.observations.items():
            told[f"facts for {player}"] = seen.facts
        for name, value in told.items():
            if not plain(value):
                what = f"{name} is {value!r:.120}; expected a dict of JSON values (lists, not tuples)"
                yield Fault(what=what, play=play, steps=visit.step)


def declares_malformed(exhibit: Exhibit) -> Iterator[Fault]:
    """The rule on malformed replies says what they count as, with sensible numbers."""
    rule = exhibit.game.spec.malformed_rule
    if not rule.consequence.strip() or rule.retries < 0 or not (0.0 <= rule.penalty < math.inf):
        what = f"{rule!r}; expected words for the consequence, retries >= 0 and a finite penalty >= 0"
        yield Fault(what=what)

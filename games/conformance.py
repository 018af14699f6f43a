"""The conformance kit: any game is played many times and held to its contract, rule by rule.

`check_game` returns for each broken rule the finding with the shortest transcript; none if all rules hold.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coplay.games.base import Game
from coplay.games.conformance_grammars import (
    grammar_needs_a_clear_answer,
    grammar_reads_what_it_writes,
    grammar_rejects_the_rest,
    grammar_serialises,
)
from coplay.games.conformance_plays import STYLES, Play, Replier, raised, record, run_play, transcript
from coplay.games.conformance_purity import (
    branchable,
    deterministic,
    isolated_forks,
    malformed_as_declared,
    names_change_nothing,
    pure_observe,
    pure_step,
    replay_is_fork,
    serialises,
    symmetric,
)
from coplay.games.conformance_rules import (
    Exhibit,
    Fault,
    chance_as_declared,
    declares_malformed,
    draws_have_names,
    ends_in_time,
    json_values,
    movers_are_players,
    no_addresses,
    over_when_nobody_moves,
    rewards_complete,
    rewards_finite,
    rewards_in_range,
    rounds_as_declared,
    rules_stay_the_same,
    runs,
    tells_something,
    zero_sum,
)
from coplay.games.conformance_secrets import (
    private_stays_private,
    reasoning_stays_private,
    replies_are_quoted,
)
from coplay.games.plugins import GAME_ERRORS
from coplay.games.registry import find_game, game_of_class

NUM_RANDOM, NUM_OTHER = 40, 4
"""Plays of random moves, and of each other style."""
LONG, SHORT = 1000, 60
"""Steps after which the first play of a style, and any other, is left."""
HASH_SEEDS = ("1", "2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that a game breaks."""

    rule: str
    what: str
    transcript: str
    """The shortest play found that shows it: group seed, and who replied what."""

    def line(self) -> str:
        """All of it in one line."""
        told = f"{self.rule}: {self.what}" + (f" [{self.transcript}]" if self.transcript else "")
        return " ".join(told.encode("utf-8", "backslashreplace").decode().split())


def stable_wording(exhibit: Exhibit) -> Iterator[Fault]:
    """Two other processes, with other hash seeds, tell the same play in the same words."""
    game = type(exhibit.game)
    target = f"{game.__module__}:{game.__qualname__}"
    parameters = exhibit.game.parameters.model_dump(mode="json")
    code = "from coplay.games.conformance import tell_plays; tell_plays()"
    told = []
    for seed in HASH_SEEDS:
        # Our own interpreter; the path is handed on so that it finds the game where we did.
        paths = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", code],
            input=json.dumps({"target": target, "parameters": parameters}),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:]
            yield Fault(what=f"{target} cannot be played in a process of its own: {' '.join(reason)}")
            return
        told.append(done.stdout.splitlines())
    for one, other in zip(*told, strict=False):
        if one != other:
            yield Fault(what=f"another process tells another play: {one:.160} but {other:.160}")
            return


def tell_plays() -> None:
    """Print the plays of the game that standard input names, for `stable_wording`."""
    asked = json.load(sys.stdin)
    game = load_game(asked["target"], asked["parameters"])
    for play in plays_of(game, num_random=3, num_other=1):
        sys.stdout.write("\n".join(record(play)).encode("ascii", "backslashreplace").decode() + "\n")


RULES: tuple[Callable[[Exhibit], Iterator[Fault]], ...] = (
    runs,
    deterministic,
    stable_wording,
    no_addresses,
    serialises,
    pure_step,
    isolated_forks,
    replay_is_fork,
    branchable,
    private_stays_private,
    reasoning_stays_private,
    replies_are_quoted,
    tells_something,
    rules_stay_the_same,
    movers_are_players,
    ends_in_time,
    over_when_nobody_moves,
    rounds_as_declared,
    rewards_complete,
    rewards_finite,
    rewards_in_range,
    zero_sum,
    symmetric,
    names_change_nothing,
    chance_as_declared,
    draws_have_names,
    json_values,
    grammar_reads_what_it_writes,
    grammar_rejects_the_rest,
    grammar_needs_a_clear_answer,
    grammar_serialises,
    declares_malformed,
    malformed_as_declared,
    pure_observe,
)
"""Every rule: its name is that of its function. `pure_observe` spoils what it is shown, so it comes last."""


def load_game(target: str, parameters: Mapping[str, Any]) -> Game[Any]:
    """The game of a name, or of `module:Class`, with parameters.

    Raises:
        UnknownGameError: if no game has this name.
        GameRegistrationError: if `module:Class` names no game.
        GameParameterError: if a parameter is unknown or its value is not allowed.
    """
    return game_of_class(find_game(target), parameters)


def plays_of(
    game: Game[Any],
    *,
    num_random: int = NUM_RANDOM,
    num_other: int = NUM_OTHER,
    repliers: Mapping[str, Replier] | None = None,
) -> tuple[Play, ...]:
    """Plays in every style, by the kit and by whoever else is given."""
    plays = []
    for style, replier in {**STYLES, **(repliers or {})}.items():
        for seed in range(num_random if style == "random" else num_other):
            limit = min(game.spec.max_steps + 1, SHORT if seed else LONG)
            plays.append(run_play(game, seed, style, limit, replier))
    return tuple(plays)


def check_game(
    game: Game[Any], *, repliers: Mapping[str, Replier] | None = None, other_processes: bool = True
) -> tuple[Finding, ...]:
    """Hold a game to every rule of its contract.

    Args:
        game: with the parameters to check; its class makes further instances from them.
        repliers: more players than the kit's own, by name; each replies for everybody.
        other_processes: False leaves out `stable_wording`, which starts two.
    """
    exhibit = Exhibit(game=game, plays=plays_of(game, repliers=repliers))
    findings = []
    for rule in RULES:
        if rule is stable_wording and not other_processes:
            continue
        faults = _faults(rule, exhibit)
        if faults:
            least = min(faults, key=lambda fault: (fault.steps, len(fault.what)))
            shown = "" if least.play is None else transcript(least.play, least.steps)
            findings.append(Finding(rule=rule.__name__, what=least.what, transcript=shown))
    return tuple(findings)


def _faults(rule: Callable[[Exhibit], Iterator[Fault]], exhibit: Exhibit) -> list[Fault]:
    """What breaks a rule; an error on the way does too."""
    faults = []
    try:
        for fault in rule(exhibit):
            faults.append(fault)
    except GAME_ERRORS as error:
        faults.append(Fault(what=f"raised {raised(error)}"))
    return faults

"""How a run's policies do: against themselves and against named opponents, in games of their own luck."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import BaseModel
from scipy import stats

from coplay.agents.base import AgentFactory
from coplay.games import Game, Mixture, derive_seed
from coplay.rollout_tree import (
    CollectPlan,
    RolloutTree,
    behaviour_rates,
    collect_sync,
    plan_mixture,
    returns,
)
from coplay.training.evaluate_settings import SELF_PLAY, Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Someone who can hold a seat."""

    label: str
    """What its replies are signed with: `name@version`, or an agent's name."""
    factory: AgentFactory
    name: str = ""
    """What results against it are called, where runs have policies of the same label; empty: the label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Who sits where, and whose result is asked for."""

    name: str
    """Results of pairings of one name (the same opponent, other seats) are pooled."""
    seats: Mapping[str, Contestant]
    own: tuple[str, ...]
    """The players looked at; the others are the opponents."""


class Interval(BaseModel):
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Result(BaseModel):
    """One row of an evaluation table; returns per tick in raw reward units, one value a game."""

    opponent: str
    games: int
    failed: int
    own: Interval
    other: Interval | None
    """None in self-play, where nobody is the other."""
    cooperation: Interval | None
    """Share of own moves that are the game's first-named (cooperative) one; None where moves have no such name."""
    malformed: float
    """Share of own replies that were no moves."""
    game: str = ""
    """The part of a mixture, or what was held out; empty: the game of the run."""
    sampling: str = ""
    """`greedy` where policies took the likeliest token always; empty: drawn by temperature."""
    source: str = ""
    """Where the games' tasks come from, as their info says; empty: all games."""
    samples: int = 1
    """How often each game was played."""
    best_of: Interval | None = None
    """Own return of the best of the samples of each game (of 0 or 1: pass@samples); None: a single sample."""


def pairings(
    players: Sequence[str],
    own: Mapping[str, Contestant],
    home: Mapping[str, Contestant],
    anchors: Sequence[Contestant],
) -> list[Pairing]:
    """Self-play in the home seating, then each own seat alone among copies of each anchor.

    Args:
        players: the game's players.
        own: contestants looked at, by the seat they hold at home.
        home: everyone's seat at home.
        anchors: named opponents.
    """
    found = [Pairing(name=SELF_PLAY, seats=home, own=tuple(own))]
    for anchor in anchors:
        for player, contestant in own.items():
            seats = {other: contestant if other == player else anchor for other in players}
            found.append(Pairing(name=anchor.name or anchor.label, seats=seats, own=(player,)))
    return found


def evaluate(
    game: Game[Any] | Mixture,
    asked: Sequence[Pairing],
    *,
    games: int,
    seed: int,
    iteration: int = 0,
    samples: int = 1,
) -> list[Result]:
    """Play every pairing in `games` games of the same luck, each `samples` times, and sum up.

    Of a mixture every pairing plays the same variants. With several samples intervals are over games, each with the
    mean of its plays.

    Returns:
        Rows in the order asked; after each, where games say a `source` in their info, one for each source.

    Raises:
        TooManyFailedEpisodes: if more than half of all games fail.
        RuntimeError: if no game against someone comes to its end.
    """
    mixture = game if isinstance(game, Mixture) else Mixture.of(game)
    episodes = []
    for place, pairing in enumerate(asked):
        planned = plan_mixture(
            mixture,
            run_seed=derive_seed(seed, "evaluate"),
            iteration=iteration,
            num_groups=games,
            group_size=samples,
            seats={player: contestant.factory for player, contestant in pairing.seats.items()},
            seat_names={player: contestant.label for player, contestant in pairing.seats.items()},
        )
        episodes += [replace(plan, episode=f"evaluate/{place:03d}/{plan.episode}") for plan in planned]
    trees = collect_sync(
        CollectPlan(game=mixture.variants[0].game, episodes=tuple(episodes), max_failed_share=0.5)
    )
    played: dict[str, list[_Play]] = {pairing.name: [] for pairing in asked}
    failures: dict[str, list[str]] = {name: [] for name in played}
    for tree in trees:
        _, number, _, index = tree.episode.split("/")
        pairing = asked[int(number)]
        if tree.failure is not None or not tree.steps:
            failures[pairing.name].append(tree.failure.reason if tree.failure else "it has no step")
        else:
            played[pairing.name].append(_play(tree, pairing, (int(number), int(index) // samples)))
    results = []
    for name, plays in played.items():
        if not plays:
            raise RuntimeError(
                f"all {len(failures[name])} games of the evaluation {name!r} failed, so it has no result; first:"
                f" {failures[name][:1]}"
            )
        results.append(_result(name, plays, failed=len(failures[name]), samples=samples, seed=seed))
        for source in sorted({play.source for play in plays} - {""}):
            own = [play for play in plays if play.source == source]
            found = _result(name, own, failed=0, samples=samples, seed=seed)
            results.append(found.model_copy(update={"source": source}))
    return results


def score(results: Sequence[Result], metric: Measure = "own") -> float:
    """The mean of a measure over rows, by default that of the own return; NaN where none of them has it."""
    found = [getattr(result, metric) for result in results]
    known = [one.mean if isinstance(one, Interval) else one for one in found if one is not None]
    return float(np.mean(known)) if known else float("nan")


def interval(values: Sequence[float], *, seed: int) -> Interval:
    """Mean and 95 % BCa bootstrap interval over games; a constant sample has no width."""
    data = np.asarray(values, dtype=float)
    mean = float(data.mean())
    if len(data) < 2 or np.ptp(data) == 0:
        return Interval(mean=mean, low=mean, high=mean)
    with warnings.catch_warnings():
        # BCa degenerates on near-constant samples; its NaN is replaced just below.
        warnings.simplefilter("ignore")
        found = stats.bootstrap(
            (data,), np.mean, n_resamples=2000, rng=np.random.default_rng(seed)
        ).confidence_interval
    low, high = float(found.low), float(found.high)
    if not (np.isfinite(low) and np.isfinite(high)):
        low, high = float(data.min()), float(data.max())
    return Interval(mean=mean, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Play:
    """What one play of a game says."""

    task: tuple[int, int]
    """Pairing and game; plays of one task are samples of it."""
    own: float
    other: float | None
    cooperation: float | None
    malformed: float | None
    source: str


def _play(tree: RolloutTree, pairing: Pairing, task: tuple[int, int]) -> _Play:
    others = [player for player in pairing.seats if player not in pairing.own]
    rates = behaviour_rates([tree])

    def share(measure: str) -> float | None:
        known = [rates[key] for player in pairing.own if (key := f"{measure}/{player}") in rates]
        return float(np.mean(known)) if known else None

    told = [str(step.info["source"]) for step in tree.steps if step.info.get("source")]
    return _Play(
        task=task,
        own=_per_tick(tree, pairing.own),
        other=_per_tick(tree, others) if others else None,
        cooperation=share("cooperation"),
        malformed=share("malformed"),
        source=told[0] if told else "",
    )


def _result(name: str, plays: Sequence[_Play], *, failed: int, samples: int, seed: int) -> Result:
    tasks: dict[tuple[int, int], list[_Play]] = {}
    for play in plays:
        tasks.setdefault(play.task, []).append(play)

    def by_task(measure: str) -> list[float]:
        """The mean over the plays of each task that know it."""
        known = [
            [value for one in few if (value := getattr(one, measure)) is not None] for few in tasks.values()
        ]
        return [float(np.mean(values)) for values in known if values]

    own, other, cooperation = by_task("own"), by_task("other"), by_task("cooperation")
    malformed = [play.malformed for play in plays if play.malformed is not None]
    best = [max(play.own for play in few) for few in tasks.values()]
    return Result(
        opponent=name,
        games=len(plays),
        failed=failed,
        own=interval(own, seed=seed),
        other=interval(other, seed=seed) if other else None,
        cooperation=interval(cooperation, seed=seed) if cooperation else None,
        malformed=float(np.mean(malformed)) if malformed else 0.0,
        samples=samples,
        best_of=interval(best, seed=seed) if samples > 1 else None,
    )


def _per_tick(tree: RolloutTree, players: Sequence[str]) -> float:
    """Mean raw reward per tick, over some players of one game."""
    found = returns([tree])
    return float(np.mean([found[f"return_per_tick/{player}"] for player in players]))

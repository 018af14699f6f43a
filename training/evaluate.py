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

SELF_PLAY = "self-play"


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
    game: Game[Any] | Mixture, asked: Sequence[Pairing], *, games: int, seed: int, iteration: int = 0
) -> list[Result]:
    """Play every pairing in `games` games of the same luck and sum up; rows in the order asked.

    Of a mixture every pairing plays the same variants.

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
            group_size=1,
            seats={player: contestant.factory for player, contestant in pairing.seats.items()},
            seat_names={player: contestant.label for player, contestant in pairing.seats.items()},
        )
        episodes += [replace(plan, episode=f"evaluate/{place:03d}/{plan.episode}") for plan in planned]
    trees = collect_sync(
        CollectPlan(game=mixture.variants[0].game, episodes=tuple(episodes), max_failed_share=0.5)
    )
    by_place: dict[int, list[RolloutTree]] = {}
    for tree in trees:
        by_place.setdefault(int(tree.episode.split("/")[1]), []).append(tree)
    names = dict.fromkeys(pairing.name for pairing in asked)
    return [
        _result(name, [(p, by_place[i]) for i, p in enumerate(asked) if p.name == name], seed=seed)
        for name in names
    ]


def score(results: Sequence[Result]) -> float:
    """What `best` means: the own return, averaged over self-play and the anchors."""
    return float(np.mean([result.own.mean for result in results]))


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


def _result(name: str, played: Sequence[tuple[Pairing, list[RolloutTree]]], *, seed: int) -> Result:
    own: list[float] = []
    other: list[float] = []
    cooperation: list[float] = []
    malformed: list[float] = []
    failed = 0
    for pairing, trees in played:
        others = [player for player in pairing.seats if player not in pairing.own]
        for tree in trees:
            if tree.failure is not None or not tree.steps:
                failed += 1
                continue
            own.append(_per_tick(tree, pairing.own))
            if others:
                other.append(_per_tick(tree, others))
            rates = behaviour_rates([tree])
            shares = [rates[key] for player in pairing.own if (key := f"cooperation/{player}") in rates]
            cooperation += [float(np.mean(shares))] if shares else []
            shares = [rates[key] for player in pairing.own if (key := f"malformed/{player}") in rates]
            malformed += [float(np.mean(shares))] if shares else []
    if not own:
        reasons = [tree.failure.reason for _, trees in played for tree in trees if tree.failure]
        raise RuntimeError(
            f"all {failed} games of the evaluation {name!r} failed, so it has no result; first: {reasons[:1]}"
        )
    return Result(
        opponent=name,
        games=len(own),
        failed=failed,
        own=interval(own, seed=seed),
        other=interval(other, seed=seed) if other else None,
        cooperation=interval(cooperation, seed=seed) if cooperation else None,
        malformed=float(np.mean(malformed)) if malformed else 0.0,
    )


def _per_tick(tree: RolloutTree, players: Sequence[str]) -> float:
    """Mean raw reward per tick, over some players of one game."""
    found = returns([tree])
    return float(np.mean([found[f"return_per_tick/{player}"] for player in players]))

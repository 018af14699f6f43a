"""What is to be played: episodes with their luck and seats, before anyone sits down."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from coplay.agents.base import AgentFactory
from coplay.games import Game, Mixture, Order, Variant, derive_seed
from coplay.games.names import nearest
from coplay.rollout_tree.branching import BranchPlan, ValueReader


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePlan:
    """One episode to be played."""

    episode: str
    """Unique in the run; see `plan_episodes`."""
    iteration: int
    group: str
    """Episodes with the same luck share it."""
    group_seed: int
    seats: Mapping[str, AgentFactory]
    """Player -> who makes his agent."""
    seat_names: Mapping[str, str]
    """Player -> `name@version` or agent name; every reply must come from it."""
    run_seed: int
    variant: Variant | None = None
    """Which part of a mixture it plays; None: the plan's game."""
    order: Order | None = None
    """Where its group stands in the run, for games that go in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a collect has come, after a wave."""

    num_episodes: int
    num_done: int
    """Episodes that are over, failed ones included."""
    num_failed: int
    num_turns: int
    """Replies so far, in all episodes and their branches."""
    num_branches: int = 0
    """Branches begun so far."""
    num_branches_done: int = 0
    """Branches that are over, failed ones included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectPlan:
    """What one call of `collect` plays, and what it puts up with.

    Raises:
        ValueError: if an episode is named twice, its seats are not the players of the game, or branches are asked
            for of somebody else, or by values that nobody tells.
    """

    game: Game[Any]
    """What episodes play that name no part of a mixture."""
    episodes: tuple[EpisodePlan, ...]
    time_limit: float | None = None
    """Seconds of wall clock an episode may wait for replies, all its turns together; its waiting for other
    episodes does not count. A branch has the same time anew. None: no limit."""
    max_failed_share: float = 0.0
    """Share of failed episodes (and of failed branches) above which `collect` raises."""
    branching: BranchPlan | None = None
    """Which replies are resampled once all main lines are over; None: none."""
    values: ValueReader | None = None
    """Who tells values, where branches are chosen by them."""
    on_wave: Callable[[Progress], None] | None = None
    """Told after every wave, e.g. to show progress."""

    def __post_init__(self) -> None:
        players = self.game.spec.players
        if self.branching is not None:
            self.branching.check_players(players)
            if self.branching.reads_value and self.values is None:
                raise ValueError(
                    "branches are to be chosen by value and nobody tells values; expected CollectPlan.values, which"
                    " asks a critic"
                )
        names = [plan.episode for plan in self.episodes]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"episodes {twice} are planned more than once; expected unique ids")
        for plan in self.episodes:
            players = self.game_of(plan).spec.players
            for given in (plan.seats, plan.seat_names):
                if set(given) != set(players):
                    raise ValueError(_wrong_seats(plan.episode, tuple(given), players))

    def game_of(self, episode: EpisodePlan) -> Game[Any]:
        """What an episode plays."""
        return self.game if episode.variant is None else episode.variant.game

    def label_of(self, episode: EpisodePlan) -> str:
        """What it is stored under."""
        return self.game.name if episode.variant is None else episode.variant.label

    def told_games(self) -> str:
        """`game 'split'`, or of a mixture `games 'dilemma', 'split'`."""
        names = [plan.variant.name if plan.variant else self.game.name for plan in self.episodes]
        told = [repr(name) for name in dict.fromkeys(names)]
        return f"game{'s' * (len(told) > 1)} {', '.join(told)}"


def _wrong_seats(episode: str, given: tuple[str, ...], players: tuple[str, ...]) -> str:
    hint = next((near for name in given if name not in players and (near := nearest(name, players))), "")
    return f"episode {episode!r} seats {sorted(given)}; expected exactly the players {list(players)}{hint}"


def episode_name(iteration: int, index: int) -> str:
    """What the episodes of a run are called."""
    return f"{iteration:06d}/{index:05d}"


def parse_episode(text: str) -> tuple[int, int] | None:
    """Iteration and index of an episode, named whole or shorter, `3/12`; None: it is named in another way."""
    iteration, _, index = text.partition("/")
    return (int(iteration), int(index)) if iteration.isdecimal() and index.isdecimal() else None


def plan_episodes(
    game: Game[Any],
    *,
    run_seed: int,
    iteration: int,
    num_groups: int,
    group_size: int,
    seats: Mapping[str, AgentFactory],
    seat_names: Mapping[str, str],
    first_group: int = 0,
) -> tuple[EpisodePlan, ...]:
    """Plan `num_groups * group_size` episodes; those of a group share their luck.

    group seed = f(run, iteration, group) (law 7). A game without chance has one group an iteration (rule 1).
    Opponents drawn per group: call once a group, with `first_group` counting up.

    Raises:
        ValueError: if the game goes in order and these are not the first groups: nobody says how many there are.
    """
    if game.spec.in_order and first_group:
        raise ValueError(
            f"game {game.name!r} goes in order, and groups from number {first_group} on are planned alone; expected all"
            " groups of an iteration at once"
        )
    before = iteration * num_groups
    plans = []
    for index in range(first_group * group_size, (first_group + num_groups) * group_size):
        group = index // group_size if game.spec.has_chance else 0
        order = _order(run_seed, game.name, before + group) if game.spec.in_order else None
        plans.append(_plan(iteration, index, group, run_seed, seats, seat_names, order))
    return tuple(plans)


def plan_mixture(
    mixture: Mixture,
    *,
    run_seed: int,
    iteration: int,
    num_groups: int,
    group_size: int,
    seats: Mapping[str, AgentFactory],
    seat_names: Mapping[str, str],
) -> tuple[EpisodePlan, ...]:
    """Plan as many episodes, each group of one variant: f(run, iteration, group) as its luck (law 7).

    Groups that play one variant without chance are one group, the first of them (rule 1). Of a variant that goes in
    order the groups are counted over all iterations, each planned with as many groups.
    """
    assigned = mixture.assign(run_seed=run_seed, iteration=iteration, num_groups=num_groups)
    ordered = [variant.label for variant in mixture.variants if variant.game.spec.in_order]
    numbers: Counter[str] = Counter()
    if ordered:
        numbers.update(mixture.played_before(run_seed=run_seed, iteration=iteration, num_groups=num_groups))
    first = {variant.label: group for group, variant in reversed(list(enumerate(assigned)))}
    plans = []
    for place, variant in enumerate(assigned):
        group = place if variant.game.spec.has_chance else first[variant.label]
        order = None
        if variant.label in ordered:
            order = _order(run_seed, variant.label, numbers[variant.label])
            numbers[variant.label] += 1
        for index in range(place * group_size, (place + 1) * group_size):
            plan = _plan(iteration, index, group, run_seed, seats, seat_names, order)
            plans.append(replace(plan, variant=variant))
    return tuple(plans)


def _plan(
    iteration: int,
    index: int,
    group: int,
    run_seed: int,
    seats: Mapping[str, AgentFactory],
    seat_names: Mapping[str, str],
    order: Order | None,
) -> EpisodePlan:
    return EpisodePlan(
        episode=episode_name(iteration, index),
        iteration=iteration,
        group=f"{iteration:06d}/g{group:04d}",
        group_seed=derive_seed(run_seed, "group", iteration, group),
        seats=seats,
        seat_names=seat_names,
        run_seed=run_seed,
        order=order,
    )


def _order(run_seed: int, label: str, number: int) -> Order:
    return Order(run_seed=derive_seed(run_seed, "order", label), number=number)

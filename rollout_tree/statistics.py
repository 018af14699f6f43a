"""Pure functions from trees to numbers: each is taken per episode first, then averaged over episodes (B60).

Nothing is averaged over seats where that could cancel (a zero-sum game's mean return is always 0): keys end
in the player's name. Failed episodes are counted and otherwise left out; they are never a return of 0 (B37).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum, isfinite, prod
from typing import Any, get_args

from coplay.games import Malformed
from coplay.games.grammar import MalformedReason
from coplay.rollout_tree.paths import main_line
from coplay.rollout_tree.records import RolloutTree, Step, Turn

REASONS: tuple[str, ...] = get_args(MalformedReason)
TIMED_OUT = "TimeoutError"


def episode_returns(tree: RolloutTree) -> dict[str, float]:
    """Each player's undiscounted raw reward over the main line."""
    path = main_line(tree)
    return {player: fsum(step.rewards[player] for step in path) for player in tree.seats}


def returns(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """Mean return of each player, `return/PLAYER`, and per tick, `return_per_tick/PLAYER`."""
    return over_episodes(trees, _returns_of)


def _returns_of(tree: RolloutTree) -> dict[str, float]:
    totals = episode_returns(tree)
    num_ticks = max((step.tick for step in tree.steps if not step.branch), default=-1) + 1
    numbers = {f"return/{player}": total for player, total in totals.items()}
    if num_ticks:
        numbers |= {f"return_per_tick/{player}": total / num_ticks for player, total in totals.items()}
    return numbers


def welfare(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """Joint value of an episode: `welfare/sum`, `welfare/min`, and `welfare/gini` and `welfare/nash` where nobody lost.

    Sum and minimum belong side by side: the sum alone rewards exploitation. `welfare/nash` is the Nash product
    Π_i G_i of the returns, with 0 for everyone as the point of disagreement.
    """
    return over_episodes(trees, _welfare_of)


def _welfare_of(tree: RolloutTree) -> dict[str, float]:
    totals = list(episode_returns(tree).values())
    numbers = {"welfare/sum": fsum(totals), "welfare/min": min(totals)}
    if min(totals) >= 0:
        numbers["welfare/gini"] = gini(totals)
        numbers["welfare/nash"] = prod(totals)
    return numbers


def gini(values: Sequence[float]) -> float:
    """Inequality of non-negative values, Σ_i Σ_j |x_i - x_j| / (2 n² mean); 0 if all are equal.

    Args:
        values: (n,), n >= 1.

    Raises:
        ValueError: if there is no value, or one is negative or not finite.
    """
    if not values or not all(isfinite(value) and value >= 0 for value in values):
        raise ValueError(f"gini of {list(values)!r}; expected at least one number, none of them negative")
    total = fsum(values)
    if total == 0:
        return 0.0
    ranked = sorted(values)
    n = len(ranked)
    return fsum((2 * place - n + 1) * value for place, value in enumerate(ranked)) / (n * total)


def behaviour_rates(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """How the players behave, each key ending in the player's name.

    `malformed/PLAYER` and `malformed/PLAYER/REASON`: share of his turns, every reason with its own key (B36);
    `retries/PLAYER`: turns asked again, an episode; `reply_tokens/PLAYER`: sampled tokens a reply;
    `contexts/PLAYER`: contexts begun, an episode (more than one where a full one was left behind, rule 13);
    `cooperation/PLAYER`: share of steps in which he cooperated, in games whose info has `cooperated`;
    `claim/PLAYER[/ITEM]`: mean claim, in games whose info has `claims`.
    """
    return over_episodes(trees, _behaviour_of)


def _behaviour_of(tree: RolloutTree) -> dict[str, float]:
    path = main_line(tree)
    turns: dict[str, list[Turn]] = defaultdict(list)
    for step in path:
        for turn in step.turns:
            turns[turn.player].append(turn)
    numbers: dict[str, float] = {}
    for player in tree.seats:
        if turns[player]:
            numbers |= _replies_of(player, turns[player])
    return numbers | _step_means(path)


def _replies_of(player: str, turns: Sequence[Turn]) -> dict[str, float]:
    reasons = [turn.action.reason for turn in turns if isinstance(turn.action, Malformed)]
    numbers = {f"malformed/{player}": len(reasons) / len(turns)}
    for reason in REASONS:
        numbers[f"malformed/{player}/{reason}"] = reasons.count(reason) / len(turns)  # type: ignore[arg-type]
    numbers[f"retries/{player}"] = sum(turn.attempt > 0 for turn in turns)
    lengths = [sum(len(s.ids) for s in turn.segments if s.sampled) for turn in turns if turn.segments]
    if lengths:
        numbers[f"reply_tokens/{player}"] = sum(lengths) / len(lengths)
        numbers[f"contexts/{player}"] = float(sum(turn.fresh_context for turn in turns))
    return numbers


def _step_means(path: Sequence[Step]) -> dict[str, float]:
    """Means over steps of what games say about moves in their info."""
    seen: dict[str, list[float]] = defaultdict(list)
    for step in path:
        for player, cooperated in _numbers(step.info.get("cooperated")):
            seen[f"cooperation/{player}"].append(float(cooperated))
        for player, claim in _mapping(step.info.get("claims")):
            for item, number in _numbers(claim if isinstance(claim, Mapping) else {"": claim}):
                seen[f"claim/{player}/{item}" if item else f"claim/{player}"].append(float(number))
    return {key: fsum(values) / len(values) for key, values in seen.items()}


def _numbers(value: Any) -> list[tuple[str, Any]]:
    """The entries that are numbers: other games may mean something else by the same name."""
    return [(key, number) for key, number in _mapping(value) if isinstance(number, int | float)]


def _mapping(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def counts(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """How many episodes: all, `failed` (of them `timed_out`), `terminated`, `truncated`, `context_overflow`.

    `failed/PLAYER` counts by whose agent failed; `failed/game` the game's own faults. Where episodes branch:
    `branches`, and of them `branches_failed`.
    """
    names = ("episodes", "failed", "timed_out", "terminated", "truncated", "context_overflow")
    numbers = dict.fromkeys((f"count/{name}" for name in names), 0.0)
    for tree in trees:
        numbers["count/episodes"] += 1
        if tree.failure is not None:
            numbers["count/failed"] += 1
            numbers["count/timed_out"] += tree.failure.reason.startswith(TIMED_OUT)
            key = f"count/failed/{tree.failure.player or 'game'}"
            numbers[key] = numbers.get(key, 0.0) + 1
        elif tree.status in ("terminated", "truncated"):
            numbers[f"count/{tree.status}"] += 1
            main = [step for step in tree.steps if not step.branch]
            numbers["count/context_overflow"] += any("context_overflow" in step.info for step in main)
            for key, count in _branch_counts(tree).items():
                numbers[key] = numbers.get(key, 0.0) + count
    return numbers


def _branch_counts(tree: RolloutTree) -> dict[str, float]:
    """Nothing of an episode without branches."""
    branches = {step.branch for step in tree.steps if step.branch}
    failed = sum(step.status == "failed" for step in tree.steps)
    return (
        {"count/branches": float(len(branches)), "count/branches_failed": float(failed)} if branches else {}
    )


def over_episodes(
    trees: Iterable[RolloutTree], per_episode: Callable[[RolloutTree], Mapping[str, float]]
) -> dict[str, float]:
    """Mean of every key over the episodes that have it; failed episodes and those without a step have none."""
    seen: dict[str, list[float]] = defaultdict(list)
    for tree in trees:
        if tree.failure is None and tree.steps:
            for key, value in per_episode(tree).items():
                seen[key].append(value)
    return {key: fsum(values) / len(values) for key, values in seen.items()}

"""Pure functions from trees to numbers: each is taken per episode first, then averaged over episodes.

Nothing is averaged over seats where that could cancel (a zero-sum game's mean return is always 0): keys end
in the player's name. Failed episodes are counted and otherwise left out; they are never a return of 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite, prod
from typing import Any, TypeGuard, get_args

from coplay.games import Malformed
from coplay.games.grammar import MalformedReason
from coplay.rollout_tree.paths import main_line
from coplay.rollout_tree.records import RolloutTree, Step, Turn

REASONS: tuple[str, ...] = get_args(MalformedReason)
TIMED_OUT = "TimeoutError"
NUMBER = (int, float)
COUNTED = (
    "count/episodes",
    "count/failed",
    "count/timed_out",
    "count/terminated",
    "count/truncated",
    "count/context_overflow",
)
"""What is told of any episodes, also where it is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """An episode's main line, found once for all its statistics."""

    players: tuple[str, ...]
    steps: tuple[Step, ...]
    returns: Mapping[str, float]
    """Each player's undiscounted raw reward."""
    turns: Mapping[str, Sequence[Turn]]
    """Each player's, in order."""


def line_of(tree: RolloutTree) -> Line:
    """Walk the main line of an episode."""
    steps = main_line(tree)
    rewards = [step.rewards for step in steps]
    turns: dict[str, list[Turn]] = {player: [] for player in tree.seats}
    for step in steps:
        for turn in step.turns:
            turns[turn.player].append(turn)
    returns = {player: fsum([reward[player] for reward in rewards]) for player in tree.seats}
    return Line(players=tree.players, steps=steps, returns=returns, turns=turns)


def episode_returns(tree: RolloutTree) -> dict[str, float]:
    """Each player's undiscounted raw reward over the main line."""
    return dict(line_of(tree).returns)


def returns(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """Mean return of each player, `return/PLAYER`, and per tick, `return_per_tick/PLAYER`."""
    return over_episodes(trees, returns_of)


def returns_of(line: Line) -> dict[str, float]:
    """`returns` of one episode."""
    numbers = {f"return/{player}": total for player, total in line.returns.items()}
    if line.steps:
        num_ticks = line.steps[-1].tick + 1
        numbers |= {f"return_per_tick/{player}": total / num_ticks for player, total in line.returns.items()}
    return numbers


def welfare(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """Joint value of an episode: `welfare/sum`, `welfare/min`, and `welfare/gini` and `welfare/nash` where nobody lost.

    Sum and minimum belong side by side: the sum alone rewards exploitation. `welfare/nash` is the Nash product
    Π_i G_i of the returns, with 0 for everyone as the point of disagreement.
    """
    return over_episodes(trees, welfare_of)


def welfare_of(line: Line) -> dict[str, float]:
    """`welfare` of one episode."""
    totals = list(line.returns.values())
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

    `malformed/PLAYER` and `malformed/PLAYER/REASON`: share of his turns, every reason with its own key;
    `retries/PLAYER`: turns asked again, an episode; `reply_tokens/PLAYER`: sampled tokens a reply;
    `turns/PLAYER` and, of them, `valid_moves/PLAYER`: an episode; `finished`: share of episodes that the game ended;
    `contexts/PLAYER`: contexts begun, an episode (more than one where a full one was left behind, rule 13);
    `cooperation/PLAYER`: share of steps in which he cooperated, in games whose info has `cooperated`;
    `claim/PLAYER[/ITEM]`: mean claim, in games whose info has `claims`.
    """
    return over_episodes(trees, behaviour_of)


def behaviour_of(line: Line) -> dict[str, float]:
    """`behaviour_rates` of one episode."""
    numbers = {"finished": float(line.steps[-1].status == "terminated")} if line.steps else {}
    for player, turns in line.turns.items():
        if turns:
            numbers |= _replies_of(player, turns)
    return numbers | _step_means(line.steps)


def _replies_of(player: str, turns: Sequence[Turn]) -> dict[str, float]:
    reasons = [turn.action.reason for turn in turns if isinstance(turn.action, Malformed)]
    numbers = {f"malformed/{player}": len(reasons) / len(turns)}
    for reason in REASONS:
        numbers[f"malformed/{player}/{reason}"] = reasons.count(reason) / len(turns)  # type: ignore[arg-type]
    numbers[f"turns/{player}"] = float(len(turns))
    numbers[f"valid_moves/{player}"] = float(len(turns) - len(reasons))
    numbers[f"retries/{player}"] = sum([turn.attempt > 0 for turn in turns])
    lengths = [sum([len(s.ids) for s in turn.segments if s.sampled]) for turn in turns if turn.segments]
    if lengths:
        numbers[f"reply_tokens/{player}"] = sum(lengths) / len(lengths)
        numbers[f"contexts/{player}"] = float(sum([turn.fresh_context for turn in turns]))
    return numbers


def _step_means(path: Sequence[Step]) -> dict[str, float]:
    """Means over steps of what games say about moves in their info."""
    cooperated: dict[str, list[float]] = {}
    claims: dict[str, list[float]] = {}
    for step in path:
        for player, move in _numbers(step.info.get("cooperated")):
            cooperated.setdefault(player, []).append(move)
        told = step.info.get("claims")
        for player, claim in told.items() if is_mapping(told) else ():
            for item, number in _numbers(claim if is_mapping(claim) else {"": claim}):
                claims.setdefault(f"{player}/{item}" if item else player, []).append(number)
    numbers = {f"cooperation/{player}": fsum(moves) / len(moves) for player, moves in cooperated.items()}
    return numbers | {f"claim/{key}": fsum(values) / len(values) for key, values in claims.items()}


def _numbers(value: Any) -> Iterable[tuple[str, float]]:
    """The entries that are numbers: other games may mean something else by the same name."""
    if not is_mapping(value):
        return ()
    return [(key, number) for key, number in value.items() if isinstance(number, NUMBER)]


def is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Asked several times a step: an abstract class takes four times as long to say so of a dict."""
    return type(value) is dict or (value is not None and isinstance(value, Mapping))


def counts(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """How many episodes: all, `failed` (of them `timed_out`), `terminated`, `truncated`, `context_overflow`.

    `failed/PLAYER` counts by whose agent failed; `failed/game` the game's own faults. Where episodes branch:
    `branches`, and of them `branches_failed`.
    """
    numbers: dict[str, float] = {}
    for tree in trees:
        count(tree, numbers)
    return dict.fromkeys(COUNTED, 0.0) | numbers


def count(tree: RolloutTree, numbers: dict[str, float]) -> None:
    """Add one episode to `counts`; what was never counted has no key."""
    for key, number in _counts_of(tree).items():
        numbers[key] = numbers.get(key, 0.0) + number


def _counts_of(tree: RolloutTree) -> dict[str, float]:
    found = {"count/episodes": 1.0}
    if tree.failure is not None:
        found["count/failed"] = found[f"count/failed/{tree.failure.player or 'game'}"] = 1.0
        found["count/timed_out"] = float(tree.failure.reason.startswith(TIMED_OUT))
        return found
    status = tree.status
    if status in ("terminated", "truncated"):
        found[f"count/{status}"] = 1.0
        overflows = ["context_overflow" in step.info for step in tree.steps if not step.branch]
        found["count/context_overflow"] = float(any(overflows))
        branches = {step.branch for step in tree.steps if step.branch}
        if branches:
            found["count/branches"] = float(len(branches))
            found["count/branches_failed"] = float(sum([step.status == "failed" for step in tree.steps]))
    return found


def over_episodes(
    trees: Iterable[RolloutTree], per_episode: Callable[[Line], Mapping[str, float]]
) -> dict[str, float]:
    """Mean of every key over the episodes that have it; failed episodes and those without a step have none."""
    seen: dict[str, list[float]] = {}
    for tree in trees:
        if tree.failure is None and tree.steps:
            for key, value in per_episode(line_of(tree)).items():
                seen.setdefault(key, []).append(value)
    return {key: fsum(values) / len(values) for key, values in seen.items()}

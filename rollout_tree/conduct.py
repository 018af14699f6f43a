"""How players answer one another, and what their replies are like: per episode first, then averaged (B60).

What a game means is what it says in a step's `info`, by these keys; a game that says nothing has no such number:
`cooperated` (player -> true or false), `agreed` (true or false), `best_total` (the largest joint reward that
step could have paid), `efficient` (player -> list of rewards: the first of all players, the second and so on are
the reward vectors of that step on which no player can gain without another's loss), `efficient_line` (likewise,
where all vectors on the lines from one to the next are such).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import dist, fsum, isfinite
from typing import Any

from coplay.rollout_tree.paths import main_line
from coplay.rollout_tree.records import RolloutTree, Step
from coplay.rollout_tree.statistics import (
    behaviour_rates,
    counts,
    episode_returns,
    over_episodes,
    returns,
    welfare,
)
from coplay.rollout_tree.tool_use import tool_use


def reciprocity(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """How each player's move depends on the move before, in games whose info has `cooperated`.

    C is to cooperate, D to defect; *the others* cooperated if all did, and defected if one did. Steps count in
    which the game says `cooperated` of every player; t-1 and t-2 are such steps before t on the main line.

    - `reciprocity/P` = P(C at t | the others C at t-1);
    - `retaliation/P` = P(D at t | the others D at t-1);
    - `forgiveness/P` = P(C at t | P D and the others C at t-1, the others D at t-2): once his answer to a
      defection was met by cooperation, he cooperates again. Tit for tat has 1, grim has 0;
    - `cooperates_after/P/XY` = P(C at t | P himself X and the others Y at t-1): his memory-one strategy;
    - `opens/P`: share of episodes whose first step he cooperates in.

    An episode in which a condition never holds has no such key, so it is never a rate of 0.
    """
    return over_episodes(trees, _reciprocity_of)


def _reciprocity_of(tree: RolloutTree) -> dict[str, float]:
    said = [moves for step in main_line(tree) if (moves := _cooperated(step, tree.players)) is not None]
    seen: dict[str, list[bool]] = defaultdict(list)
    for player in tree.players:
        own = [moves[player] for moves in said]
        others = [all(c for other, c in moves.items() if other != player) for moves in said]
        if own:
            seen[f"opens/{player}"].append(own[0])
        for t in range(1, len(own)):
            key = f"{'DC'[own[t - 1]]}{'DC'[others[t - 1]]}"
            seen[f"cooperates_after/{player}/{key}"].append(own[t])
            if others[t - 1]:
                seen[f"reciprocity/{player}"].append(own[t])
            else:
                seen[f"retaliation/{player}"].append(not own[t])
            if t >= 2 and key == "DC" and not others[t - 2]:
                seen[f"forgiveness/{player}"].append(own[t])
    return {key: sum(values) / len(values) for key, values in seen.items()}


def _cooperated(step: Step, players: Sequence[str]) -> dict[str, bool] | None:
    """What the game says of every player of at least two, or None."""
    told = step.info.get("cooperated")
    if not isinstance(told, Mapping) or len(players) < 2:
        return None
    moves = {player: told.get(player) for player in players}
    known = {player: move for player, move in moves.items() if isinstance(move, bool)}
    return known if len(known) == len(players) else None


def exploitation(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """`exploitation/P/Q`: P's return minus Q's, for every ordered pair of players."""
    return over_episodes(trees, _exploitation_of)


def _exploitation_of(tree: RolloutTree) -> dict[str, float]:
    totals = episode_returns(tree)
    return {
        f"exploitation/{one}/{other}": totals[one] - totals[other]
        for one in totals
        for other in totals
        if one != other
    }


def outcomes(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """What games say of a step's outcome: `agreement`, `efficiency` and `pareto_distance`.

    `agreement` is the share of the steps whose info has `agreed` in which it is true. `efficiency` is
    Σ_t Σ_i r_i,t / Σ_t best_t over the steps whose info has `best_total`, where that sum is above 0.
    `pareto_distance` is the mean over the steps whose info has `efficient` or `efficient_line` of min_e |r - e|,
    the Euclidean distance of the reward vector r of that step to the nearest efficient one; 0 if no reward was
    left on the table. Read efficiency beside `welfare/min`: alone it rewards exploitation.
    """
    return over_episodes(trees, _outcomes_of)


def _outcomes_of(tree: RolloutTree) -> dict[str, float]:
    path = main_line(tree)
    agreed = [told for step in path if isinstance(told := step.info.get("agreed"), bool)]
    distances = [gap for step in path for gap in _pareto_distance(step, tree.players)]
    numbers = {"agreement": sum(agreed) / len(agreed)} if agreed else {}
    rated = [(best, step) for step in path if (best := _best_total(step)) is not None]
    most = fsum(best for best, _ in rated)
    if most > 0:
        numbers["efficiency"] = fsum(fsum(step.rewards.values()) for _, step in rated) / most
    if distances:
        numbers["pareto_distance"] = fsum(distances) / len(distances)
    return numbers


def _pareto_distance(step: Step, players: Sequence[str]) -> Iterator[float]:
    """One distance, or none where the game offers no efficient outcomes of all players."""
    points = _vectors(step.info.get("efficient"), players)
    corners = _vectors(step.info.get("efficient_line"), players)
    reward = _vector(step.rewards, players)
    if reward is not None and (points or corners):
        nearest = [dist(reward, point) for point in points + corners]
        yield min(nearest + [_distance(reward, *line) for line in pairwise(corners)])


def _distance(point: Sequence[float], start: Sequence[float], end: Sequence[float]) -> float:
    """Of a point to the line between two others: |p - s - u (e - s)|, u = (p - s)·(e - s) / |e - s|² in [0, 1]."""
    along = [b - a for a, b in zip(start, end, strict=True)]
    length = fsum(part * part for part in along)
    if length == 0:
        return dist(point, start)
    share = fsum((p - a) * part for p, a, part in zip(point, start, along, strict=True)) / length
    share = min(1.0, max(0.0, share))
    return dist(point, [a + share * part for a, part in zip(start, along, strict=True)])


def _best_total(step: Step) -> float | None:
    told = step.info.get("best_total")
    if isinstance(told, bool) or not isinstance(told, int | float) or not isfinite(told) or not step.rewards:
        return None
    return float(told)


def _vectors(told: Any, players: Sequence[str]) -> list[tuple[float, ...]]:
    """The vectors of columns by player; none where one has no column, or another number of rewards."""
    columns = [told.get(player) for player in players] if isinstance(told, Mapping) else []
    known = [column for column in columns if isinstance(column, list | tuple)]
    fits = len(known) == len(columns) and len({len(column) for column in known}) == 1
    numbers = all(isinstance(number, int | float) for column in known for number in column)
    return list(zip(*known, strict=True)) if fits and numbers else []


def _vector(values: Any, players: Sequence[str]) -> list[float] | None:
    if not isinstance(values, Mapping):
        return None
    numbers = [values.get(player) for player in players]
    known = [float(number) for number in numbers if isinstance(number, int | float)]
    return known if len(known) == len(players) else None


def speech(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """What each player's replies are like.

    `reply_characters/P` is the mean length of a reply's text; `token_entropy/P` is -Σ log p / N over the N
    tokens he sampled in the episode, whose expectation is the mean entropy, in nats, of the distributions they
    were drawn from.
    """
    return over_episodes(trees, _speech_of)


def _speech_of(tree: RolloutTree) -> dict[str, float]:
    lengths: dict[str, list[int]] = defaultdict(list)
    log_probs: dict[str, list[float]] = defaultdict(list)
    for step in main_line(tree):
        for turn in step.turns:
            lengths[turn.player].append(len(turn.reply))
            for segment in turn.segments:
                log_probs[turn.player] += segment.log_probs
    numbers: dict[str, float] = {}
    for player in tree.players:
        if lengths[player]:
            numbers[f"reply_characters/{player}"] = sum(lengths[player]) / len(lengths[player])
        if log_probs[player]:
            numbers[f"token_entropy/{player}"] = -fsum(log_probs[player]) / len(log_probs[player])
    return numbers


def summary(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """All statistics of main lines in one pass: those of `statistics`, of `tool_use` and of here."""
    tally: dict[str, float] = {}
    means = over_episodes(_counted(trees, tally), _all_of)
    return means | tally


def _counted(trees: Iterable[RolloutTree], tally: dict[str, float]) -> Iterator[RolloutTree]:
    for tree in trees:
        for key, number in counts([tree]).items():
            tally[key] = tally.get(key, 0.0) + number
        yield tree


def _all_of(tree: RolloutTree) -> dict[str, float]:
    numbers = returns([tree]) | welfare([tree]) | behaviour_rates([tree])
    numbers |= _reciprocity_of(tree) | _exploitation_of(tree) | _outcomes_of(tree) | _speech_of(tree)
    return numbers | tool_use(tree)

"""How players answer one another, and what their replies are like: per episode first, then averaged.

What a game means is what it says in a step's `info`, by these keys; a game that says nothing has no such number:
`cooperated` (player -> true or false), `agreed` (true or false), `best_total` (the largest joint reward that
step could have paid), `efficient` (player -> list of rewards: the first of all players, the second and so on are
the reward vectors of that step on which no player can gain without another's loss), `efficient_line` (likewise,
where all vectors on the lines from one to the next are such).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import dist, fsum, isfinite
from typing import Any, cast

from coplay.rollout_tree.records import RolloutTree, Step
from coplay.rollout_tree.statistics import (
    COUNTED,
    NUMBER,
    Line,
    behaviour_of,
    count,
    is_mapping,
    over_episodes,
    returns_of,
    welfare_of,
)
from coplay.rollout_tree.tool_use import tool_use

_BOOL = frozenset({bool})


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


def _reciprocity_of(line: Line) -> dict[str, float]:
    players = line.players
    said = [moves for step in line.steps if (moves := _cooperated(step, players))]
    totals = [sum(moves) for moves in said]
    numbers: dict[str, float] = {}
    for seat, player in enumerate(players if said else ()):
        own = [moves[seat] for moves in said]
        others = [total - c == len(players) - 1 for total, c in zip(totals, own, strict=True)]
        numbers[f"opens/{player}"] = float(own[0])
        after: dict[tuple[bool, bool], list[bool]] = {}
        for before, answered, now in zip(own, others, own[1:], strict=False):
            after.setdefault((before, answered), []).append(now)
        for (before, answered), moves in after.items():
            key = f"{'DC'[before]}{'DC'[answered]}"
            numbers[f"cooperates_after/{player}/{key}"] = sum(moves) / len(moves)
        kind, hostile = (after.get((False, met), []) + after.get((True, met), []) for met in (True, False))
        turns = zip(others, own[1:], others[1:], own[2:], strict=False)
        forgave = [now for met, before, answered, now in turns if answered and not before and not met]
        if kind:
            numbers[f"reciprocity/{player}"] = sum(kind) / len(kind)
        if hostile:
            numbers[f"retaliation/{player}"] = (len(hostile) - sum(hostile)) / len(hostile)
        if forgave:
            numbers[f"forgiveness/{player}"] = sum(forgave) / len(forgave)
    return numbers


def _cooperated(step: Step, players: Sequence[str]) -> list[bool] | None:
    """What the game says of every player of at least two, or None."""
    told = step.info.get("cooperated")
    if not is_mapping(told) or len(players) < 2:
        return None
    moves = [told.get(player) for player in players]
    return cast(list[bool], moves) if _BOOL.issuperset(map(type, moves)) else None


def exploitation(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """`exploitation/P/Q`: P's return minus Q's, for every ordered pair of players."""
    return over_episodes(trees, _exploitation_of)


def _exploitation_of(line: Line) -> dict[str, float]:
    totals = line.returns
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


def _outcomes_of(line: Line) -> dict[str, float]:
    infos = [step.info for step in line.steps]
    agreed = [told for info in infos if isinstance(told := info.get("agreed"), bool)]
    distances = _pareto_distances(line)
    numbers = {"agreement": sum(agreed) / len(agreed)} if agreed else {}
    rated = [(best, step) for step in line.steps if (best := _best_total(step)) is not None]
    most = fsum([best for best, _ in rated])
    if most > 0:
        numbers["efficiency"] = fsum([fsum(step.rewards.values()) for _, step in rated]) / most
    if distances:
        numbers["pareto_distance"] = fsum(distances) / len(distances)
    return numbers


def _pareto_distances(line: Line) -> list[float]:
    """One distance a step, none where the game offers no efficient outcomes of all players."""
    distances: list[float] = []
    told: tuple[Any, Any] = (None, None)
    points: list[tuple[float, ...]] = []
    corners: list[tuple[float, ...]] = []
    for step in line.steps:
        new = step.info.get("efficient"), step.info.get("efficient_line")
        if new[0] is not told[0] or new[1] is not told[1]:  # most games offer the same at every step
            told, points, corners = new, _vectors(new[0], line.players), _vectors(new[1], line.players)
        if not points and not corners:
            continue
        reward = _vector(step.rewards, line.players)
        if reward is not None:
            nearest = [dist(reward, point) for point in points + corners]
            distances.append(min(nearest + [_distance(reward, *side) for side in pairwise(corners)]))
    return distances


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
    if isinstance(told, bool) or not isinstance(told, NUMBER) or not isfinite(told) or not step.rewards:
        return None
    return float(told)


def _vectors(told: Any, players: Sequence[str]) -> list[tuple[float, ...]]:
    """The vectors of columns by player; none where one has no column, or another number of rewards."""
    columns = [told.get(player) for player in players] if is_mapping(told) else []
    known = [column for column in columns if isinstance(column, list | tuple)]
    fits = len(known) == len(columns) and len({len(column) for column in known}) == 1
    numbers = all(isinstance(number, NUMBER) for column in known for number in column)
    return list(zip(*known, strict=True)) if fits and numbers else []


def _vector(values: Mapping[str, Any], players: Sequence[str]) -> list[float] | None:
    numbers = [values.get(player) for player in players]
    known = [float(number) for number in numbers if isinstance(number, NUMBER)]
    return known if len(known) == len(players) else None


def speech(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """What each player's replies are like.

    `reply_characters/P` is the mean length of a reply's text; `token_entropy/P` is -Σ log p / N over the N
    tokens he sampled in the episode, whose expectation is the mean entropy, in nats, of the distributions they
    were drawn from.
    """
    return over_episodes(trees, _speech_of)


def _speech_of(line: Line) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for player, turns in line.turns.items():
        if turns:
            numbers[f"reply_characters/{player}"] = sum([len(turn.reply) for turn in turns]) / len(turns)
        log_probs = [number for turn in turns for segment in turn.segments for number in segment.log_probs]
        if log_probs:
            numbers[f"token_entropy/{player}"] = -fsum(log_probs) / len(log_probs)
    return numbers


def summary(trees: Iterable[RolloutTree]) -> dict[str, float]:
    """All statistics of main lines in one pass: those of `statistics`, of `tool_use` and of here."""
    tally = dict.fromkeys(COUNTED, 0.0)
    means = over_episodes(_counted(trees, tally), _all_of)
    return means | tally


def _counted(trees: Iterable[RolloutTree], tally: dict[str, float]) -> Iterator[RolloutTree]:
    for tree in trees:
        count(tree, tally)
        yield tree


def _all_of(line: Line) -> dict[str, float]:
    numbers = returns_of(line) | welfare_of(line) | behaviour_of(line) | _reciprocity_of(line)
    return numbers | _exploitation_of(line) | _outcomes_of(line) | _speech_of(line) | tool_use(line)

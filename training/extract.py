"""From trajectories to tensors: rewards per tick, token rows for a policy, reading points for a critic."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from coplay.rollout_tree import Forked, RolloutTree, Trajectory, Turn, branch_trajectories, build_trajectories
from coplay.rollout_tree.trajectories import Row
from coplay.training.draws import AllowedSets
from coplay.training.mixtures import HasChance
from coplay.training.records import ForkPlace, PathKey, TickTable, TokenBatch, TurnTable, ValueBatch
from coplay.training.tool_tokens import TrieOf, samples, with_told


def extract(trees: Iterable[RolloutTree], *, branches: bool = False) -> tuple[Trajectory, ...]:
    """Every player's trajectory of every game that was played to its end, ascending by (episode, branch, player).

    Args:
        branches: take the games' branches too, each a path of its own.
    """
    found: list[Trajectory] = []
    for tree in trees:
        found += build_trajectories(tree)
        if branches:
            found += branch_trajectories(tree)
    return tuple(sorted([one for one in found if one.num_ticks], key=path_key))


def path_key(trajectory: Trajectory) -> PathKey:
    """The name by which everything about a trajectory is joined."""
    return PathKey(trajectory.episode, trajectory.branch, trajectory.player)


def in_table_order(trajectories: Iterable[Trajectory], table: TickTable) -> tuple[Trajectory, ...]:
    """The trajectories of a tick table, one for each row, found by key and not by position (law 5)."""
    by_key = {path_key(trajectory): trajectory for trajectory in trajectories}
    return tuple(by_key[key] for key in table.keys)


def tick_table(
    trajectories: Sequence[Trajectory], *, reward_scale: float, has_chance: HasChance
) -> TickTable:
    """Lay out B trajectories by tick.

    Rule 1: a group is (luck, seat, own policy, opponents), in a mixture of one game under the same parameters. Without
    chance all equally seated games of the batch are one group.
    """
    mixed = isinstance(has_chance, Mapping)
    num_ticks = max((t.num_ticks for t in trajectories), default=0)
    shape = (len(trajectories), num_ticks)
    rewards, mask, acted = np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool)
    lucks, opponents = [], []
    for row, trajectory in enumerate(trajectories):
        ticks = trajectory.num_ticks
        rewards[row, :ticks] = trajectory.rewards
        mask[row, :ticks] = True
        acted[row, :ticks] = trajectory.acted
        lucky = has_chance[trajectory.game] if isinstance(has_chance, Mapping) else has_chance
        lucks.append(trajectory.group if lucky else "")
        opponents.append("+".join(trajectory.opponents))
    keys = tuple(path_key(t) for t in trajectories)
    policies = tuple(t.policy for t in trajectories)
    games = tuple(t.game for t in trajectories) if mixed else None
    return TickTable(
        keys=keys,
        policies=policies,
        opponents=tuple(opponents),
        group_ids=_group_ids(lucks, keys, policies, opponents, games),
        rewards=torch.from_numpy(rewards / reward_scale),
        mask=torch.from_numpy(mask),
        acted=torch.from_numpy(acted),
        truncated=torch.tensor([t.truncated for t in trajectories], dtype=torch.bool),
        games=games,
        turns=_turn_table(trajectories),
    )


def ungrouped(table: TickTable) -> TickTable:
    """The same rows as if no game had chance: equally seated plays of a game are one group, whatever their luck."""
    luck = [""] * len(table.keys)
    ids = _group_ids(luck, table.keys, table.policies, table.opponents, table.games)
    return replace(table, group_ids=ids)


def _group_ids(
    lucks: Sequence[str],
    keys: Sequence[PathKey],
    policies: Sequence[str],
    opponents: Sequence[str],
    games: Sequence[str] | None,
) -> torch.Tensor:
    """(B,) rows with the same game, luck, seat, own policy and opponents share a number (rule 1)."""
    names: dict[tuple[str, ...], int] = {}
    played = ("",) * len(keys) if games is None else games
    rows = zip(lucks, keys, policies, opponents, played, strict=True)
    ids = [
        names.setdefault((luck, key.player, own, others, game), len(names))
        for luck, key, own, others, game in rows
    ]
    return torch.tensor(ids, dtype=torch.long)


def _turn_table(trajectories: Sequence[Trajectory]) -> TurnTable | None:
    """None where no path branches."""
    starts: dict[tuple[str, int, str], dict[str, Forked]] = {}
    for one in trajectories:
        if one.fork is not None:
            place = (one.episode, one.fork.step, one.fork.player)
            starts.setdefault(place, {})[one.branch] = one.fork
    if not starts:
        return None
    width = max(len(one.turns) for one in trajectories)
    steps = np.full((len(trajectories), width), -1, dtype=np.int64)
    ticks = np.zeros((len(trajectories), width), dtype=np.int64)
    for row, one in enumerate(trajectories):
        steps[row, : len(one.turns)], ticks[row, : len(one.turns)] = one.turn_steps, one.turn_ticks
    forks = [
        ForkPlace(
            episode=episode,
            step=step,
            tick=next(iter(branches.values())).tick,
            player=player,
            branches=tuple(branches),
            line=next(iter(branches.values())).line,
            last_tick=next(iter(branches.values())).last_tick,
            first_steps=tuple([fork.first for fork in branches.values()]),
        )
        for (episode, step, player), branches in sorted(starts.items())
    ]
    return TurnTable(forks=tuple(forks), steps=torch.from_numpy(steps), ticks=torch.from_numpy(ticks))


def token_batch(
    trajectories: Sequence[Trajectory],
    *,
    policy: str,
    trie_of: TrieOf,
    reward_scale: float,
    entropy_mask_regex: str | None = None,
    tool_output: bool = False,
) -> TokenBatch | None:
    """The rows of the trajectories that `policy` (`name@version`) played; None if it sampled no token.

    Dialogues that are alike to the last token are one row, read once; their action tokens stay apart. `path` counts
    all `trajectories`, so that credits of the tick table can be looked up. With `tool_output`, what tools said
    counts as sampled, at a behaviour log-prob that is not known (NaN).
    """
    pattern = re.compile(entropy_mask_regex) if entropy_mask_regex else None
    owners = _owners(trajectories)
    rows: dict[bytes, NDArray[np.int64]] = {}
    places: dict[bytes, int] = {}
    parts: list[tuple[NDArray[np.integer], ...]] = []
    behaviour: list[NDArray[np.float32]] = []
    turns: list[Turn] = []
    first_turn = np.zeros(len(trajectories), dtype=np.int64)
    for path, trajectory in enumerate(trajectories):
        if trajectory.policy != policy:
            continue
        first_turn[path] = len(turns)
        turns.extend(trajectory.turns)
        for number, row in enumerate(_rows(trajectory, tool_output=tool_output)):
            columns = np.nonzero(row.sampled)[0]
            if not len(columns):
                continue
            content = row.ids.tobytes()
            unique = places.setdefault(content, len(places))
            rows.setdefault(content, row.ids)
            parts.append(
                (np.full(len(columns), unique), columns, row.ids[columns], np.full(len(columns), path),
                 row.tick[columns], row.turn[columns], np.full(len(columns), number))
            )  # fmt: skip
            behaviour.append(row.log_probs[columns])
    if not rows:
        return None
    row_of, column, targets, path_of, tick, turn_in, row_in = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    turn_of = first_turn[path_of] + turn_in
    per_turn = np.array([_turn_facts(turn, pattern) for turn in turns])
    ids, lengths = pad_rows(list(rows.values()))
    return TokenBatch(
        ids=ids,
        lengths=lengths,
        row=torch.from_numpy(row_of),
        column=torch.from_numpy(column),
        targets=torch.from_numpy(targets),
        behaviour=torch.from_numpy(np.concatenate(behaviour)),
        temperature=torch.from_numpy(per_turn[turn_of, 0].astype(np.float32)),
        path=torch.from_numpy(path_of),
        tick=torch.from_numpy(tick.astype(np.int64)),
        turn=torch.from_numpy(turn_of),
        place=torch.from_numpy(np.stack([row_in, turn_in.astype(np.int64)], axis=1)),
        penalty=torch.from_numpy(per_turn[turn_of, 1] / reward_scale),
        entropy_mask=torch.from_numpy(per_turn[turn_of, 2] > 0),
        allowed=_allowed_sets(turns, turn_of, trie_of, tool_output=tool_output),
        num_trajectories=len({owners[path] for path in np.unique(path_of)}),
        owners=owners,
    )


def _rows(trajectory: Trajectory, *, tool_output: bool) -> Sequence[Row]:
    if not tool_output:
        return trajectory.rows
    return [with_told(row, trajectory.turns) for row in trajectory.rows]


def value_batch(trajectories: Sequence[Trajectory]) -> ValueBatch:
    """The reading points of a critic over all trajectories that have tokens."""
    rows: list[NDArray[np.int64]] = []
    points: list[tuple[int, int, int, int]] = []
    for path, trajectory in enumerate(trajectories):
        points += [(len(rows) + p.row, p.position, path, p.tick) for p in trajectory.value_points]
        rows += [row.ids for row in trajectory.rows]
    ids, lengths = pad_rows(rows)
    row, column, path_of, tick = torch.tensor(points, dtype=torch.long).reshape(-1, 4).unbind(1)
    return ValueBatch(
        ids=ids,
        lengths=lengths,
        row=row,
        column=column,
        path=path_of,
        tick=tick,
        owners=_owners(trajectories),
    )


def _owners(trajectories: Sequence[Trajectory]) -> tuple[str, ...]:
    """One player's part of a game, its branches included."""
    return tuple([f"{one.episode} {one.player}" for one in trajectories])


def pad_rows(rows: Sequence[NDArray[np.int64]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-pad id rows with zeros to (R, T), with their lengths (R,)."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    ids = np.zeros((len(rows), int(lengths.max(initial=0))), dtype=np.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def _turn_facts(turn: Turn, pattern: re.Pattern[str] | None) -> tuple[float, float, float]:
    temperature = turn.sampling.temperature if turn.sampling else 1.0
    return temperature, turn.penalty, float(pattern is None or pattern.search(turn.reply) is not None)


def _allowed_sets(
    turns: Sequence[Turn], turn_of: NDArray[np.int64], trie_of: TrieOf, *, tool_output: bool
) -> AllowedSets:
    """Mirror the sampler's constraint: the tokens it could choose from at each action token, in order."""
    allowed: list[tuple[int, ...] | None] = []
    known: dict[tuple[object, ...], list[tuple[int, ...]]] = {}
    counts = np.bincount(turn_of, minlength=len(turns))
    for turn, count in zip(turns, counts.tolist(), strict=True):
        for trie, segments in samples(turn, trie_of, tool_output=tool_output) if count else ():
            if trie is None:
                allowed += [None] * sum([len(segment.ids) for segment in segments if segment.sampled])
                continue
            content = (trie, *[(segment.ids, segment.sampled) for segment in segments])
            if content not in known:  # few replies make many turns
                reply = [(token, segment.sampled) for segment in segments for token in segment.ids]
                walked = trie.walk([token for token, _ in reply])
                known[content] = [choices for choices, (_, took) in zip(walked, reply, strict=True) if took]
            allowed += known[content]
    return AllowedSets.from_lists(allowed)

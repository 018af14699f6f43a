"""Baselines from other episodes: leave-one-out and group means by id, running means per player.

Groups are keyed by ids, never by positions (law 5). A group id stands for one seat: pooling the seats of a
match biases the gradient, so callers put the player into the id. What a group is, rule 1 says.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from coplay.training.masked import keep, segment_largest, segment_sum, spread

GroupIds = Tensor | Sequence[Hashable]
RunningMeans = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Per key (`running_mean_key`): the mean return and the number of returns seen, both per tick. Plain JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBaseline:
    """Baselines read from the state before it saw these returns, and the state after."""

    baselines: Tensor
    """(B, S), 0 where nothing was seen yet and at masked cells."""
    state: dict[str, tuple[list[float], list[float]]]
    """The means and counts to hand in next time."""


def group_index(group_ids: GroupIds, num_rows: int) -> tuple[Tensor, int]:
    """Number the groups: (B,) long in [0, G), and G. Which number a group gets is of no consequence.

    Args:
        group_ids: (B,) long tensor or B hashable ids.
        num_rows: B.

    Raises:
        ValueError: if there is not one id per row.
    """
    if len(group_ids) != num_rows:
        raise ValueError(
            f"{len(group_ids)} group ids for {num_rows} rows of returns; expected one id per row"
        )
    if isinstance(group_ids, Tensor):
        numbers, index = torch.unique(group_ids, return_inverse=True)
        return index, len(numbers)
    places = {group: place for place, group in enumerate(dict.fromkeys(group_ids))}
    return torch.tensor([places[group] for group in group_ids], dtype=torch.long), len(places)


def _group_statistics(
    returns: Tensor, group_ids: GroupIds, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Per cell: return minus its group's mean at that tick, and rows alive there (B, S); the index; G."""
    if returns.dim() != 2:
        raise ValueError(f"returns have shape {tuple(returns.shape)}; expected (B, S), trajectories by ticks")
    index, num_groups = group_index(group_ids, len(returns))
    index = index.to(returns.device)
    count = segment_sum(torch.ones_like(returns), index, num_groups, mask).clamp(min=1)  # (G, S)
    mean = segment_sum(returns, index, num_groups, mask) / count
    return keep(returns - mean[index], mask), count[index], index, num_groups


def leave_one_out(returns: Tensor, group_ids: GroupIds, *, mask: Tensor | None = None) -> Tensor:
    """Return minus the mean of the others: A_i = G_i − Σ_{j≠i} G_j / (n − 1) = n / (n − 1) · (G_i − mean).

    Kool et al. 2019; Ahmadian et al. 2024, arXiv 2402.14740. At each tick the group is the rows alive there;
    a row alone keeps its raw return.

    Args:
        returns: (B, S).
        group_ids: (B,) long tensor or B hashable ids; equal ids share luck, seat and opponents.
        mask: (B, S) bool, True where a row is alive; None: everywhere.

    Returns:
        (B, S), 0 at masked cells.

    Raises:
        ValueError: if the returns are not (B, S) or there is not one id per row.
    """
    centred, count, _, _ = _group_statistics(returns, group_ids, mask)
    scaled = centred * count / (count - 1).clamp(min=1)
    return torch.where(count > 1, scaled, keep(returns, mask))


def group_relative(
    returns: Tensor,
    group_ids: GroupIds,
    *,
    mask: Tensor | None = None,
    deviation: Literal["none", "population", "sample"] = "none",
    epsilon: float = 0.0,
) -> Tensor:
    """(G_i − mean) / (deviation + ε) of the group: GRPO (arXiv 2402.03300); "none" is Dr. GRPO (arXiv 2503.20783).

    A row alone gives 0; a group without spread beyond rounding is not divided.

    Args:
        returns: (B, S).
        group_ids: (B,) long tensor or B hashable ids.
        mask: (B, S) bool, True where a row is alive; None: everywhere.
        deviation: divide by nothing, the population deviation (over n) or the sample deviation (over n − 1).
        epsilon: ε, added to the deviation.

    Returns:
        (B, S), 0 at masked cells.

    Raises:
        ValueError: if the deviation is unknown, the returns are not (B, S), or there is not one id per row.
    """
    if deviation not in ("none", "population", "sample"):
        raise ValueError(f"deviation is {deviation!r}; expected 'none', 'population' or 'sample'")
    centred, count, index, num_groups = _group_statistics(returns, group_ids, mask)
    if deviation == "none":
        return centred
    degrees = count if deviation == "population" else (count - 1).clamp(min=1)
    variance = segment_sum(centred.square(), index, num_groups, mask)[index] / degrees
    size = spread(variance, segment_largest(returns, index, num_groups, mask)[index])
    return centred / torch.where(size > 0, size + epsilon, torch.ones_like(size))


def running_mean_key(player: str, opponents: Sequence[str], game: str | None = None) -> str:
    """The key of a running mean: one player against these opponents (in one game of a mixture), as JSON text."""
    named: list[object] = [player, *opponents]
    return json.dumps(named if game is None else [*named, {"game": game}], ensure_ascii=False)


def running_mean_baseline(
    state: RunningMeans, keys: Sequence[str], returns: Tensor, *, mask: Tensor | None = None
) -> RunningBaseline:
    """Mean of the earlier returns of a key at each tick, read before this batch updates it (rule 1).

    Every row of the batch reads the same old state, so the order of rows changes nothing but rounding.

    Args:
        state: what the last call returned, or an empty mapping.
        keys: B keys, `running_mean_key` of each row.
        returns: (B, S).
        mask: (B, S) bool, True where a row is alive; None: everywhere.

    Raises:
        ValueError: if there is not one key per row.
    """
    index, num_keys = group_index(keys, len(returns))
    names = list(dict.fromkeys(keys))
    width = max([returns.shape[1], *(len(state[name][0]) for name in names if name in state)])
    padded = [[_widened(state.get(name, ((), ()))[part], width) for name in names] for part in (0, 1)]
    old, seen = torch.tensor(padded, dtype=torch.float64).reshape(
        2, num_keys, width
    )  # (num_keys, width) each
    exact = torch.nn.functional.pad(
        keep(returns.detach(), mask).double().cpu(), (0, width - returns.shape[1])
    )
    alive = torch.ones_like(returns, dtype=torch.bool) if mask is None else mask
    alive = torch.nn.functional.pad(alive.cpu(), (0, width - returns.shape[1]))
    new = segment_sum(torch.ones_like(exact), index, num_keys, alive)
    total = seen + new
    mean = old + segment_sum(exact - old[index], index, num_keys, alive) / total.clamp(min=1)
    rows = zip(names, mean.tolist(), total.tolist(), strict=True)
    return RunningBaseline(
        baselines=keep(old[index][:, : returns.shape[1]].to(returns), mask),
        state={**{k: (list(m), list(n)) for k, (m, n) in state.items()}, **{k: (m, n) for k, m, n in rows}},
    )


def _widened(entries: Sequence[float], width: int) -> list[float]:
    """The entries with zeros up to `width`."""
    return [*entries, *[0.0] * (width - len(entries))]

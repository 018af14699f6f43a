"""How much luck is in returns and in a policy's gradient: without groups, with them, and with branches.

The gradient has as many entries as the policy has weights; here it is one real entry of it, which costs nothing: that
along the inverse temperature. With logits theta z, d/dtheta log pi(a) at theta = 1 is z_a - E z = log pi(a) + H, so

    g = 1/n sum_i sum_t s_it A_it,   s_it = sum over the action tokens of path i at tick t of (log pi + H).

Its variance is estimated from the one batch at hand, by the spread of what independent units put into it: units are
luck groups, or single games where there is no chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from coplay.training.baselines import group_relative, leave_one_out
from coplay.training.credit import discounted_returns
from coplay.training.extract import ungrouped
from coplay.training.masked import keep, masked_std, masked_sum, segment_sum
from coplay.training.mixtures import HasChance
from coplay.training.records import Estimate, TickTable, TokenBatch
from coplay.training.trainer import Done

NOT_KNOWN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class MainLines:
    """The main lines among the paths of a tick table, in two groupings."""

    rows: Tensor
    """(b,) their rows in the table."""
    returns: Tensor
    """(b, S) discounted reward-to-go."""
    mask: Tensor
    """(b, S)"""
    grouped: Tensor
    """(b,) groups that share their luck."""
    ungrouped: Tensor
    """(b,) groups of all equally seated games; the same without chance."""

    @property
    def compared(self) -> Tensor:
        """(b, S) ticks at which a path has company in its group: alone, it has no leave-one-out baseline."""
        count = segment_sum(self.mask.double(), self.grouped, _size(self.grouped))[self.grouped]
        return self.mask & (count > 1)


def variance_report(
    table: TickTable, estimate: Estimate, done: Mapping[str, Done], *, discount: float, has_chance: HasChance
) -> dict[str, float]:
    """Variance of returns by player, and of the gradient's scalar by policy; NaN where it cannot be known.

    Gradients are those of the advantages before shaping, of main lines against the leave-one-out mean of all equally
    seated games (`gradient_ungrouped`) or of the games with the same luck (`gradient_grouped`), and of whole trees as
    estimator `branches` credits them (`gradient_branches`). Ratios above 1 speak for groups, and for branches.

    Args:
        done: by policy, its action tokens with log-probs and entropies before the step.
    """
    lines = main_lines(table, discount=discount)
    if not len(lines.rows):
        return {}
    units = luck_units(table, has_chance=has_chance)
    found = return_variances(table, lines, estimate)
    compared = lines.compared
    by_grouping = {
        name: keep(leave_one_out(lines.returns, ids, mask=lines.mask), compared)
        for name, ids in (("ungrouped", lines.ungrouped), ("grouped", lines.grouped))
    }
    for policy, one in done.items():
        batch, count = one.credit.batch, one.credit.batch.num_trajectories
        scores = token_scores(one.result.log_probs, one.result.entropies)
        by_tick = tick_scores(table, batch, scores)[lines.rows]
        variances = {
            name: cluster_variance(masked_sum(by_tick * advantages, None, 1), units[lines.rows], count)
            if compared.any()
            else NOT_KNOWN
            for name, advantages in by_grouping.items()
        }
        if estimate.turns is not None and batch.weight is not None:
            parts = batch.weight * estimate.turns.advantages[batch.path, batch.place[:, 1]] * scores
            variances["branches"] = cluster_variance(parts, units[batch.path], count)
            found[f"variance/ratio_branches/{policy}"] = _ratio(variances["grouped"], variances["branches"])
        found[f"variance/ratio_groups/{policy}"] = _ratio(variances["ungrouped"], variances["grouped"])
        found |= {f"variance/gradient_{name}/{policy}": value for name, value in variances.items()}
    return found


def main_lines(table: TickTable, *, discount: float) -> MainLines:
    """The rows of a table that are no branches."""
    rows = torch.tensor([row for row, key in enumerate(table.keys) if not key.branch], dtype=torch.long)
    mask = table.mask[rows]
    return MainLines(
        rows=rows,
        returns=discounted_returns(table.rewards[rows], discount=discount, mask=mask),
        mask=mask,
        grouped=table.group_ids[rows],
        ungrouped=ungrouped(table).group_ids[rows],
    )


def luck_units(table: TickTable, *, has_chance: HasChance) -> Tensor:
    """(B,) what is independent of all else: the games of one luck, of all seats; without chance each game alone."""
    units: dict[str, int] = {}
    for row, (key, group) in enumerate(zip(table.keys, table.group_ids.tolist(), strict=True)):
        lucky = has_chance
        if isinstance(has_chance, Mapping):
            assert table.games is not None
            lucky = has_chance[table.games[row]]
        units.setdefault(key.episode, group if lucky else len(table.keys) + row)
    return torch.tensor([units[key.episode] for key in table.keys], dtype=torch.long)


def token_scores(log_probs: Tensor, entropies: Tensor) -> Tensor:
    """Log pi + H: derivative of log pi(a) by the inverse temperature, 0 in the mean over pi; (N,) float64."""
    return log_probs.double() + entropies.double()


def tick_scores(table: TickTable, batch: TokenBatch, scores: Tensor) -> Tensor:
    """(B, S) the scores of a policy's action tokens, summed by path and tick."""
    paths, ticks = table.mask.shape
    return segment_sum(scores, batch.path * ticks + batch.tick, paths * ticks).reshape(paths, ticks)


def cluster_variance(parts: Tensor, units: Tensor, count: int) -> float:
    """Variance of sum(parts) / count, by the spread of the parts of its U units: U S^2 / count^2.

    Exact in expectation where credits hang on their own unit alone, as with groups and branches under chance. The
    baseline of all games ties units together; taking credits as they stand then leaves out a part of order 1 / U, which
    flatters the ungrouped estimate a little.

    Args:
        parts: (N,) credit times score.
        units: (N,) which unit each belongs to.
        count: what the sum is divided by.
    """
    _, places = torch.unique(units, return_inverse=True)
    sums = segment_sum(parts, places, _size(places))  # (U,)
    return float(len(sums) * masked_std(sums, None).square()) / count**2 if len(sums) > 1 else NOT_KNOWN


def return_variances(table: TickTable, lines: MainLines, estimate: Estimate) -> dict[str, float]:
    """By player: variance of a game's return over all games, within groups, and there averaged over branches."""
    found: dict[str, float] = {}
    players = [table.keys[row].player for row in lines.rows.tolist()]
    for player in dict.fromkeys(players):
        mine = torch.tensor([place for place, name in enumerate(players) if name == player])
        first = lines.returns[mine, :1]
        found[f"variance/returns/{player}"] = pooled_variance(first, lines.ungrouped[mine])
        found[f"variance/returns_within_groups/{player}"] = pooled_variance(first, lines.grouped[mine])
        if estimate.turns is not None:
            averaged = estimate.returns[lines.rows[mine], :1]
            found[f"variance/returns_branches/{player}"] = pooled_variance(averaged, lines.grouped[mine])
    return found


def pooled_variance(x: Tensor, group_ids: Tensor) -> float:
    """Sum (x - mean of its group)^2 / (n - number of groups), of a column (n, 1); NaN without two of a group."""
    centred = group_relative(x, group_ids)
    freedom = len(x) - len(torch.unique(group_ids))
    return float(masked_sum(centred.square(), None)) / freedom if freedom else NOT_KNOWN


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0 else NOT_KNOWN


def _size(ids: Tensor) -> int:
    return int(ids.max()) + 1 if len(ids) else 0

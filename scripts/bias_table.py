"""`python -m coplay.scripts.bias_table [--episodes N] [--seed S]`: every way to credit against what it should be.

Tabular policies with random logits play small games through engine, agents, trees, rows and the policy step. The mean
of each scheme's gradient over independent batches is held against its enumerated expectation: the gradient of the
returns, for Advantage Alignment the expectation of that very credit. Hotelling's T² of the gap has, if there is no
bias, the law F(d, M − d) of M batches and d free logits, for many batches that of χ² with d degrees of freedom over d.
"""

import argparse
import gc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from scipy import stats
from torch import Tensor

from coplay.scripts.bias_bench import DISCOUNT, GAMES, GROUP_SIZE, SCALE, SCHEMES, Bench, Rows, Scheme
from coplay.scripts.bias_expectations import expectation, free_cells

SMALLEST_P = 1e-3
CONSTANT = 1e-7
"""Rounding of float32; what varies less does not vary."""
TIED = 1e-6
"""Share of the variance below which a direction is one in which nothing varies: some cells move together exactly."""
NUM_BATCHES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one scheme's batches say."""

    exact: float
    """|g|, of the enumerated expectation g."""
    bias: float
    """|mean − g|."""
    noise: float
    """What |mean − g| comes to by chance: √(trace / batches)."""
    along: float
    """(mean − g)·g / |g|²: by what share the mean is too long."""
    along_error: float
    """Half of its 95 % interval."""
    variance: float
    """Trace of the covariance of one batch's gradient."""
    variance_error: float
    """Half of its 95 % interval."""
    p: float
    """Of a T² as large as this, if there is no bias."""


def measure(bench: Bench, schemes: Sequence[Scheme], *, num_batches: int) -> list[Row]:
    """Hold each scheme's mean over the same batches against enumeration."""
    configs, free = [scheme.config() for scheme in schemes], free_cells(bench)
    forks = any(scheme.branches for scheme in schemes)
    samples: list[list[Tensor]] = [[] for _ in schemes]
    gc.freeze()  # a batch is many small records, and looking through all that was loaded costs more than playing it
    try:
        for number in range(num_batches):
            trees = bench.collect(number, branches=forks)
            rows = {kind: Rows(bench, trees, branches=kind) for kind in {one.branches for one in schemes}}
            for found, scheme, config in zip(samples, schemes, configs, strict=True):
                found.append(_flat(rows[scheme.branches].directions(scheme, config), free))
            del trees, rows
    finally:
        gc.unfreeze()
    exact = [_flat(expectation(bench, scheme), free) for scheme in schemes]
    return [compare(torch.stack(found), truth) for found, truth in zip(samples, exact, strict=True)]


def compare(samples: Tensor, exact: Tensor) -> Row:
    """T² = M·(x̄ − g)ᵀ S⁻¹ (x̄ − g) against F: T²·(M − d) / (d·(M − 1)) ~ F(d, M − d) (Hotelling 1931).

    Where nothing varies, as in a cell under a perfect critic, or in a sum of cells that only move together, the mean
    must be exact.

    Args:
        samples: (M, d), M > d.
        exact: (d,) g.
    """
    number = len(samples)
    gap, covariance = samples.mean(0) - exact, samples.T.cov()
    deviation = samples.std(0)
    varies = deviation > CONSTANT
    unit = deviation[varies]
    strengths, axes = torch.linalg.eigh(covariance[varies][:, varies] / unit / unit[:, None])
    free = strengths > TIED
    size = int(free.sum())
    off = axes.T @ (gap[varies] / unit)
    sound = bool((gap[~varies].abs() <= CONSTANT).all() and (off[~free].abs() <= TIED**0.5).all())
    distance = number * float((off[free].square() / strengths[free]).sum())
    scaled = distance * (number - size) / (size * (number - 1))
    spread = (samples - samples.mean(0)).square().sum(1)
    shares = samples @ exact / exact.square().sum()
    return Row(
        bias=float(gap.norm()),
        exact=float(exact.norm()),
        noise=float((covariance.trace() / number).sqrt()),
        along=float(shares.mean()) - 1,
        along_error=1.96 * float(shares.std()) / number**0.5,
        variance=float(covariance.trace()),
        variance_error=1.96 * float(spread.std()) / number**0.5,
        p=float(stats.f.sf(scaled, size, number - size)) if sound else 0.0,
    )


def _flat(directions: Mapping[str, Tensor], free: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([directions[player][free[player]] for player in sorted(free)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any p is below 0.001."""
    parser = argparse.ArgumentParser(prog="python -m coplay.scripts.bias_table", description=__doc__)
    parser.add_argument("--episodes", type=int, default=100_000, help="games per row")
    parser.add_argument("--batches", type=int, default=NUM_BATCHES, help="into which they are cut")
    parser.add_argument("--seed", type=int, default=1, help="of logits and of all luck")
    parser.add_argument("--scale", type=float, default=SCALE, help="of the random logits")
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES), help="default: all")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    batch = max(GROUP_SIZE * round(chosen.episodes / chosen.batches / GROUP_SIZE), 2 * GROUP_SIZE)
    table = Table(title=f"{chosen.batches} batches of {batch} games, discount {DISCOUNT}, seed {chosen.seed}")
    titles = (
        "game",
        "scheme",
        "|g|",
        "bias along g (95 %)",
        "|bias|",
        "noise",
        "variance × games (95 %)",
        "p",
    )
    for title in titles:
        table.add_column(title, justify="left" if title in titles[:2] else "right", no_wrap=True)
    worst = 1.0
    for name in chosen.games:
        bench = Bench(name, seed=chosen.seed, scale=chosen.scale, batch=batch)
        schemes = [scheme for scheme in SCHEMES if scheme.suits(bench.game)]
        for scheme, row in zip(schemes, measure(bench, schemes, num_batches=chosen.batches), strict=True):
            worst = min(worst, row.p)
            along = f"{100 * row.along:+.2f} % ± {100 * row.along_error:.2f}"
            spread = f"{batch * row.variance:.2f} ± {batch * row.variance_error:.2f}"
            sizes = (f"{row.exact:.4f}", along, f"{row.bias:.5f}", f"{row.noise:.5f}")
            table.add_row(name, scheme.name, *sizes, spread, f"{row.p:.3f}")
    Console(file=sys.stdout, width=150, highlight=False).print(table)
    return 0 if worst >= SMALLEST_P else 1


if __name__ == "__main__":
    sys.exit(main())

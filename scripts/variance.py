"""`coplay variance [CONFIG] [--batches M] [--section.field value ...]` or `coplay variance --exact`."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from coplay.scripts.settings import change_settings, parse_flags, read_settings
from coplay.training.config import RunConfig
from coplay.training.messages import ConfigError

if TYPE_CHECKING:
    from coplay.training.covariance import VarianceStudy
    from coplay.training.variance_cases import Case, Moments

CONFIG, BATCHES = "split_independent", 100
USAGE = f"""coplay variance [CONFIG] [--batches M] [--section.field value ...]
coplay variance --exact

Plays M independent batches with the first weights of a configuration, and prints the trace of the covariance of the
policy's gradient under three estimators, all on the same games: leave-one-out over all equally seated games, leave-one-
out within groups that share their luck (common random numbers), and branches; then their ratios with 95 % bootstrap
intervals over batches, at equal games and at equal tokens. Nothing is trained or stored.

CONFIG          a TOML file, or the name of a shipped configuration (default: {CONFIG})
--batches M     how many batches (default: {BATCHES})
--section.field value
                flags of coplay train; collect.branching says which replies are resampled (default: share 0.25), and
                agents.policies.NAME.start takes a trained policy in place of fresh weights
--exact         games of one move instead, every outcome counted through

Example: coplay variance --collect.group-size 4 --collect.branching.num-alternatives 3
"""
MADE = "{} over {}"


def main(arguments: Sequence[str]) -> int:
    """Measure the gradient's variance under three estimators, or count it through."""
    words = list(arguments)
    if "-h" in words or "--help" in words:
        sys.stdout.write(USAGE)
        return 0
    name = words.pop(0) if words and not words[0].startswith("--") else CONFIG
    batches, exact, changes = _sorted_flags(parse_flags(words))
    console = Console(file=sys.stdout, width=110, markup=False, emoji=False, highlight=False)
    if exact:
        if len(words) > 1 or name != CONFIG:
            raise ConfigError(
                "--exact counts its own games through; expected neither a configuration nor other flags"
            )
        from coplay.training.variance_cases import CASES, exact_moments

        console.print(exact_table([(case, exact_moments(case)) for case in CASES]))
        console.print(
            "Without chance all equally seated games are one group: both estimates are one (rule 1)."
        )
        return 0
    from coplay.training.variance_study import measure, study_config

    config = study_config(change_settings(read_settings(name, []), changes))
    study = measure(
        config, num_batches=batches, folder=Path(config.storage.folder) / config.name, progress=_tell
    )
    console.print("\n".join(headline(config, batches)))
    console.print(trace_table(study), ratio_table(study), mean_table(study), sep="\n")
    return 0


def _sorted_flags(flags: Sequence[tuple[list[str], Any]]) -> tuple[int, bool, list[tuple[list[str], Any]]]:
    """Batches, exact, and the flags that are settings."""
    batches, exact, changes = BATCHES, False, []
    for path, value in flags:
        if path == ["batches"]:
            if isinstance(value, bool) or not isinstance(value, int) or value < 3:
                raise ConfigError(f"--batches is {value!r}; expected a whole number from 3 on")
            batches = value
        elif path == ["exact"]:
            if value is not True:
                raise ConfigError(f"--exact is {value!r}; expected no value")
            exact = True
        else:
            changes.append((path, value))
    return batches, exact, changes


def _tell(done: int) -> None:
    if done % 10 == 0:
        sys.stderr.write(f"{done} batches\n")


def headline(config: RunConfig, batches: int) -> list[str]:
    """What is played, in lines."""
    collect, mixture = config.collect, config.make_mixture()
    assert collect.branching is not None
    shape = f"{collect.num_groups} groups of {collect.group_size} games"
    lines = [
        f"{batches} batches of {shape} of {', '.join(mixture.names)}, seed {config.seed}, weights as they start",
        f"branches: share {collect.branching.share:g} of replies, {collect.branching.num_alternatives} more each",
    ]
    if not any(mixture.has_chance.values()):
        lines.append("a game without chance is one group: ungrouped and groups are the same by construction")
    return lines


def trace_table(study: "VarianceStudy") -> Table:
    """One row an estimator."""
    from coplay.training.covariance import ESTIMATORS

    table = Table(title="one batch under each estimator")
    table.add_column("estimator")
    for heading in ("games", "tokens sampled", "tokens read", "trace of the gradient's covariance"):
        table.add_column(heading, justify="right")
    for name in ESTIMATORS:
        table.add_row(
            name,
            str(study.games),
            f"{study.tokens(name):.0f}",
            f"{study.tokens(name, read=True):.0f}",
            f"{study.trace(name):.4g}",
        )
    return table


def ratio_table(study: "VarianceStudy") -> Table:
    """Variance under one estimator over that under another; above 1 speaks for the second."""
    from coplay.training.covariance import compare

    table = Table(title="ratio of variances [95 % interval]; above 1 speaks for the second")
    table.add_column("estimators")
    for heading in ("at equal games", "at equal tokens sampled", "at equal tokens read"):
        table.add_column(heading, justify="right")
    for one, other in (("ungrouped", "groups"), ("groups", "branches"), ("ungrouped", "branches")):
        found = [compare(study, one, other, tokens=tokens) for tokens in ("", "sampled", "read")]
        table.add_row(MADE.format(one, other), *map(str, found))
    return table


def mean_table(study: "VarianceStudy") -> Table:
    """Whether the estimators aim at the same gradient."""
    from coplay.training.covariance import same_mean

    table = Table(title="means: are they the same? (a small p would say no)")
    for heading, side in (
        ("estimators", "left"),
        ("difference", "right"),
        ("p of a sign-flip test", "right"),
    ):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for one, other in (("ungrouped", "groups"), ("branches", "groups")):
        found = same_mean(study, one, other)
        table.add_row(f"{one} and {other}", f"{found.difference:.0%} of the mean", f"{found.p_value:.3f}")
    return table


def exact_table(found: Sequence[tuple["Case", "Moments"]]) -> Table:
    """One row a game: mean, variances and their ratio, none of them an estimate."""
    table = Table(title="exact variance of the gradient; a ratio above 1 speaks for groups")
    table.add_column("game")
    for heading in ("games", "group", "mean", "mean, groups", "ungrouped", "groups", "ratio"):
        table.add_column(heading, justify="right")
    for case, moments in found:
        assert math.isclose(moments.mean, moments.mean_ungrouped, rel_tol=1e-12)
        table.add_row(
            case.name, str(case.games), str(case.group_size), f"{moments.mean_ungrouped:.4g}",
            f"{moments.mean:.4g}", f"{moments.variance_ungrouped:.6g}", f"{moments.variance:.6g}",
            f"{moments.ratio:.4f}",
        )  # fmt: skip
    return table

"""`coplay recredit RUN [--iteration N] [--section.field value ...] [--update]`: credit of stored rollouts again."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from coplay.rollout_tree.render import safe_text
from coplay.scripts.entrants import run_folder
from coplay.scripts.settings import change_settings, parse_flags
from coplay.training.config import RunConfig
from coplay.training.messages import ConfigError

if TYPE_CHECKING:
    from coplay.training.differences import CreditDifference
    from coplay.training.gradients import GradientDifference

SECTIONS = ("estimator", "shaping", "objective")
USAGE = """coplay recredit RUN [--iteration N] [--section.field value ...] [--update]

Computes the credit of a run's stored rollouts again, under other settings, without playing or training, and compares
it with the credit that was stored; with unchanged settings not a bit differs.

RUN             a run folder, or a name in runs/
--iteration N   which stored iteration (default: the newest; with --update, the newest whose weights are kept)
--section.field value
                flags of coplay train, of the sections estimator, shaping and objective, over the run's own settings.
                A section's kind can be changed; what both kinds have in common stays (as discount and reward_scale
                of estimators), and its other fields start from their defaults.
--update        also compute each policy's gradient before clipping, beside that under the run's own settings; needs
                the checkpoint after N updates, or N = 0

Example: coplay recredit runs/my_run --shaping.beta 0.5 --update
"""


def main(arguments: Sequence[str]) -> int:
    """Compare a stored iteration's credit with that under other settings."""
    words = list(arguments)
    if not words or "-h" in words or "--help" in words:
        sys.stdout.write(USAGE)
        return 0 if words else 2
    if words[0].startswith("--"):
        raise ConfigError(f"{words[0]!r} comes first; expected a run: coplay recredit RUN [flags]")
    folder = run_folder(words.pop(0))
    iteration, update, changes = _sorted_flags(parse_flags(words))
    from coplay.training.differences import compare_credits
    from coplay.training.recredit import load_iteration, recredit
    from coplay.training.stored_config import read_config

    config = change_settings(read_config(folder), changes)
    if update and iteration is None:
        from coplay.training.gradients import iterations_with_weights

        iteration = max(iterations_with_weights(folder), default=None)
    stored = load_iteration(folder, iteration)
    result = recredit(stored, config)
    tables = [credit_table(compare_credits(stored, result))]
    if update:
        from coplay.training.gradients import compare_gradients

        tables.append(gradient_table(compare_gradients(stored, config, folder)))
    console = Console(file=sys.stdout, width=110, markup=False, emoji=False, highlight=False)
    told = list(changed_fields(stored.config, config)) or ["settings unchanged"]
    console.print("\n".join([f"iteration {stored.number} of {safe_text(str(folder))}", *told, *result.notes]))
    console.print(*tables, sep="\n")
    return 0


def _sorted_flags(
    flags: Sequence[tuple[list[str], Any]],
) -> tuple[int | None, bool, list[tuple[list[str], Any]]]:
    """Iteration, update, and the flags that are settings."""
    iteration, update, changes = None, False, []
    for path, value in flags:
        if path == ["iteration"]:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"--iteration is {value!r}; expected a whole number from 0 on")
            iteration = value
        elif path == ["update"]:
            if not isinstance(value, bool):
                raise ConfigError(f"--update is {value!r}; expected no value")
            update = value
        elif path[0] in RunConfig.model_fields and path[0] not in SECTIONS:
            raise ConfigError(
                f"'--{'.'.join(path)}' would not change the credit of rollouts that are stored; expected flags of"
                f" {', '.join(SECTIONS)}"
            )
        else:
            changes.append((path, value))
    return iteration, update, changes


def changed_fields(own: RunConfig, other: RunConfig) -> Iterator[str]:
    """`section.field: old -> new` of every setting that differs; a scheme of another kind is one line."""
    yield from _changes(own.model_dump(mode="json"), other.model_dump(mode="json"), "")


def _changes(own: Mapping[str, Any], other: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name in own:
        old, new = own[name], other[name]
        if isinstance(old, Mapping) and isinstance(new, Mapping) and old.get("kind") == new.get("kind"):
            yield from _changes(old, new, f"{prefix}{name}.")
        elif old != new:
            yield f"{prefix}{name}: {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    """A scheme as its kind and fields, anything else as it is."""
    if not isinstance(value, Mapping):
        return str(value)
    fields = ", ".join(f"{name} {_short(part)}" for name, part in value.items() if name != "kind")
    return f"{value['kind']} ({fields})" if "kind" in value else fields


def credit_table(found: Sequence["CreditDifference"]) -> Table:
    """One line a player; sizes are in scaled reward units."""
    table = Table(title="credit of each action token, beside the stored one")
    for heading in (
        "player",
        "tokens",
        "mean |stored|",
        "mean |change|",
        "largest",
        "rank corr.",
        "sign flips",
        "bits",
    ):
        table.add_column(heading, justify="left" if heading == "player" else "right")
    for one in found:
        table.add_row(
            safe_text(one.player),
            str(one.tokens),
            f"{one.stored_mean:.4g}",
            f"{one.mean:.4g}",
            f"{one.largest:.4g}",
            "" if one.rank_correlation is None else f"{one.rank_correlation:.3f}",
            f"{one.sign_flips:.1%}",
            "same" if one.identical else "differ",
        )
    return table


def gradient_table(found: Sequence["GradientDifference"]) -> Table:
    """One line a policy."""
    table = Table(title="gradient before clipping")
    for heading in ("policy", "norm, own settings", "norm", "cosine"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for one in found:
        cosine = "" if one.cosine is None else f"{one.cosine:.4f}"
        table.add_row(safe_text(one.policy), f"{one.own_norm:.6g}", f"{one.norm:.6g}", cosine)
    return table

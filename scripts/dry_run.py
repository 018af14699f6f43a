"""`coplay train --dry-run`: play and train one iteration in memory, write nothing, and say what a run would cost."""

import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coplay.rollout_tree import RolloutTree, Trajectory, render_text, safe_text
from coplay.rollout_tree.pieces import Pieces
from coplay.training.config import RunConfig
from coplay.training.data import told_data
from coplay.training.extract import extract
from coplay.training.kl import penalise
from coplay.training.packets import make_packets
from coplay.training.reply_budget import too_long_replies
from coplay.training.run import Run
from coplay.training.stages import (
    collect_rollouts,
    estimate_advantages,
    estimate_past,
    lay_out,
    look_beside,
    read_critic,
    shape_credits,
    update_critic,
    update_policies,
)

SHOWN_CHARACTERS = 4000


def dry_run(config: RunConfig) -> str:
    """One dialogue per seat as the models see it, row lengths, peak memory, seconds per iteration and per run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, folder=Path(folder))
        warning = too_long_replies(run)
        start = time.perf_counter()
        trees = collect_rollouts(run, 0)
        played = time.perf_counter()
        trajectories = extract(trees, branches=config.estimator.kind == "branches")
        _train_once(run, trees, trajectories)
        trained = time.perf_counter()
    generation, training = played - start, trained - played
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return "\n".join(
        [
            f"configuration {config.name!r}: {_played(run)}, {len(trees)} games an iteration",
            *([f"warning: {safe_text(warning)}"] if warning is not None else []),
            *told_data(run.data),
            _outcome(trees),
            *(dialogue(run, trajectories, player) for player in run.game.spec.players),
            f"row lengths in tokens: {lengths(trajectories)}",
            f"one iteration: {generation:.2f} s generation, {training:.2f} s training, peak memory {peak:.0f} MiB",
            f"{config.update.num_updates} updates: about"
            f" {_duration((generation + training) * config.update.num_updates)}; nothing was written",
            "",
        ]
    )


def _played(run: Run) -> str:
    """The game, or each part of a mixture with its games, their share of the groups and how many of them have it."""
    if not run.config.mixture:
        return f"game {run.game.name!r}"
    shares, parts = run.mixture.shares(), []
    for name in run.mixture.names:
        labels = [variant.label for variant in run.mixture.part(name).variants]
        parts.append(f"{name!r} {sum(shares[label] for label in labels):.1%} ({len(labels)})")
    return f"a mixture of {', '.join(parts)}"


def _duration(seconds: float) -> str:
    """In the largest unit of which there is one at least."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _train_once(run: Run, trees: Sequence[RolloutTree], trajectories: Sequence[Trajectory]) -> None:
    """The loop's stages after collecting, with nothing recorded."""
    table = lay_out(run, trajectories)
    reading = read_critic(run, trajectories, table)
    penalty = penalise(run.trainers, trajectories, table)
    advantages = estimate_advantages(run, table, reading, update=0, penalty=penalty)
    advantages = estimate_past(run, trajectories, table, advantages, look_beside(run, trees), update=0)
    packets = make_packets(table, advantages.exchanged)
    credits = shape_credits(run, trajectories, table, advantages, packets, update=0)
    update_policies(run, credits, update=0)
    update_critic(run, reading, table, advantages, update=0)


def _outcome(trees: Sequence[RolloutTree]) -> str:
    failed = sum(tree.failure is not None for tree in trees)
    return f"{failed} of {len(trees)} games failed\n\n{render_text(trees[0])}"


def dialogue(run: Run, trajectories: Sequence[Trajectory], player: str) -> str:
    """The first row of a player's first game, decoded token by token; sampled tokens stand in brackets."""
    mine = [t for t in trajectories if t.player == player]
    if not mine or not mine[0].rows:
        return f"--- {player}: {mine[0].policy if mine else 'no game'} has no tokens"
    row = mine[0].rows[0]
    pieces = [
        f"[{text}]" if sampled else text
        for text, sampled in zip(
            Pieces(run.base.tokenizer.backend_tokenizer)(row.ids.tolist()),
            row.sampled.tolist(),
            strict=True,
        )
    ]
    text = safe_text("".join(pieces))
    cut = "" if len(text) <= SHOWN_CHARACTERS else f" … ({len(text) - SHOWN_CHARACTERS} characters more)"
    return f"--- {player} ({mine[0].policy}), sampled tokens in brackets:\n{text[:SHOWN_CHARACTERS]}{cut}\n"


def lengths(trajectories: Sequence[Trajectory]) -> str:
    """Of the rows, in tokens."""
    found = np.array([len(row.ids) for t in trajectories for row in t.rows] or [0])
    return f"min {found.min()}, median {int(np.median(found))}, max {found.max()}, {len(found)} rows"

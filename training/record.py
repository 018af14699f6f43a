"""What an iteration leaves behind: metrics, rollouts with each token's credit, evaluations, checkpoints."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from coplay.rollout_tree import (
    CreditRow,
    RolloutTree,
    summary,
    write_credits,
    write_rollouts,
)
from coplay.rollout_tree.estimates import EstimateRow, write_estimates
from coplay.training.baselines import RunningMeans
from coplay.training.data import data_metrics
from coplay.training.estimators import mean_keys
from coplay.training.examination import best_score, examine, is_better
from coplay.training.inner_expectation import Beside
from coplay.training.measures import table_metrics, token_metrics
from coplay.training.metrics import merged, prefixed
from coplay.training.records import Estimate, TickTable, TickValues, TurnEstimate
from coplay.training.reward_model import score_metrics
from coplay.training.run import Run
from coplay.training.trainer import Done
from coplay.training.variance import variance_report

Report = Callable[[int, Mapping[str, float]], None]


def store_rollouts(
    run: Run,
    update: int,
    trees: Sequence[RolloutTree],
    table: TickTable,
    advantages: Estimate,
    done: Mapping[str, Done],
    values: TickValues | None,
    beside: Beside | None = None,
) -> None:
    """Write this iteration's tables, if it is one of those that are kept; `values` as the critic read them."""
    storage = run.config.storage
    if not storage.every or update % storage.every:
        return
    write_rollouts(run.folder, update, trees)
    if storage.credits:
        known = estimate_rows(table, run.state.running_means, values, advantages.penalty)
        if beside is not None and beside.values is not None:
            known += estimate_rows(beside.table, {}, beside.values)
        write_estimates(run.folder, update, known)
        rows = [row for one in done.values() for row in credit_rows(table, advantages, one)]
        write_credits(run.folder, update, rows)


def credit_rows(table: TickTable, advantages: Estimate, done: Done) -> Iterator[CreditRow]:
    """The parts of each action token's credit: G, V, b, A, shaping term, importance weight, credit."""
    batch, tokens = done.credit.batch, done.credit.tokens
    known: Estimate | TurnEstimate = advantages if advantages.turns is None else advantages.turns
    cell = (batch.path, batch.tick if advantages.turns is None else batch.place[:, 1])
    own = known.advantages[cell]
    columns: dict[str, Tensor] = {
        "position": batch.column,
        "token": batch.targets,
        "tick": batch.tick,
        "turn": batch.place[:, 1],
        "reward_to_go": known.returns[cell],
        "baseline": known.baseline[cell],
        "advantage": own,
        "shaping": tokens - own,
        "importance_weight": done.result.weights,
        "credit": tokens,
    }
    if advantages.values is not None:
        columns["value"] = advantages.values[batch.path, batch.tick]
    arrays = {name: column.numpy() for name, column in columns.items()}
    owner = torch.stack([batch.path, batch.place[:, 0]], dim=1)
    starts = [0, *((owner[1:] != owner[:-1]).any(dim=1).nonzero().squeeze(1) + 1).tolist(), len(owner)]
    for start, end in pairwise(starts):
        path, row = owner[start].tolist()
        key = table.keys[path]
        yield CreditRow(
            episode=key.episode,
            branch=key.branch,
            player=key.player,
            row=row,
            **{name: array[start:end] for name, array in arrays.items()},
        )


def estimate_rows(
    table: TickTable, running_means: RunningMeans, values: TickValues | None, penalty: Tensor | None = None
) -> list[EstimateRow]:
    """What credit is made of beside rewards, by path: its running mean, what the critic read, and what a KL took."""
    rows = []
    for row, (key, name, length) in enumerate(
        zip(table.keys, mean_keys(table), table.mask.sum(dim=1).tolist(), strict=True)
    ):
        means, counts = (np.zeros(length), np.zeros(length))
        for laid, known in zip((means, counts), running_means.get(name, ((), ())), strict=True):
            laid[: len(known)] = known[:length]
        read = None
        if values is not None:
            read = np.append(values.values[row, :length].numpy(), float(values.bootstrap[row]))
        taken = None if penalty is None else penalty[row, :length].numpy()
        rows.append(
            EstimateRow(**key._asdict(), running_mean=means, running_count=counts, value=read, penalty=taken)
        )
    return rows


def advance(run: Run, advantages: Estimate) -> None:
    """Count the update, sample from the new weights, and evaluate and save where it is due."""
    settings = run.config
    update = run.state.update + 1
    run.state = run.state.model_copy(
        update={"update": update, "running_means": dict(advantages.running_means)}
    )
    for trainer in run.trainers:
        run.engine.publish(trainer.policy.name)
    last = update == settings.update.num_updates
    if settings.evaluate.every and (last or update % settings.evaluate.every == 0):
        evaluate_run(run)
        run.save()
    elif last or update % settings.storage.checkpoint_every == 0:
        run.save()


def evaluate_run(run: Run, *, chooses_best: bool = True) -> None:
    """Note how the policies do, and remember the best update so far, if evaluations are to choose it."""
    results, state, update = examine(run), run.state, run.state.update
    run.engine.clear()
    history = [entry for entry in state.history if entry["update"] != update]
    told = [result.model_dump(exclude_defaults=True) for result in results]
    history.append({"update": update, "results": told})
    changes: dict[str, object] = {"history": history}
    if chooses_best:
        reached = best_score(run.config, results)
        if is_better(run.config.evaluate.best, reached, state.best_score):
            changes |= {"best_score": reached, "best_update": update}
    run.state = state.model_copy(update=changes)
    write_json(run.folder, "evaluations.json", history)


def write_json(folder: Path, name: str, content: object) -> None:
    """Write a file of a run folder aside and rename it."""
    aside = folder / f".{name}.partial"
    aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(aside, folder / name)


def iteration_metrics(
    run: Run,
    trees: Sequence[RolloutTree],
    table: TickTable,
    advantages: Estimate,
    done: Mapping[str, Done],
) -> dict[str, float]:
    """How the games went, per player and never averaged over seats where that cancels, and what each step did."""
    games = prefixed("rollout", summary(trees))
    if run.config.mixture:
        names = {variant.label: variant.name for variant in run.mixture.variants}
        for part in run.mixture.names:
            own = [tree for tree in trees if names[tree.game] == part]
            games |= prefixed(f"rollout/game/{part}", summary(own)) if own else {}
    policies = [trainer.policy.name for trainer in run.trainers]
    skipped = {f"policy/{name}/skipped": float(name not in done) for name in policies}
    steps = [prefixed(f"policy/{name}", one.result.metrics) for name, one in done.items()]
    spread = variance_report(
        table,
        advantages,
        done,
        discount=run.config.estimator.discount,
        has_chance=run.config.has_chance(),
    )
    data = data_metrics(
        run.data,
        run.mixture,
        run_seed=run.config.seed,
        update=run.state.update,
        num_groups=run.config.collect.num_groups,
    )
    estimated = table_metrics(table, advantages, reward_scale=run.config.estimator.reward_scale)
    judged = {} if run.reward_model is None else score_metrics(trees)
    return merged(
        [games, judged, data, advantages.metrics, spread, estimated, skipped, *steps, token_metrics(done)]
    )

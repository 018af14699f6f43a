"""The stages of the loop that touch models or games: play, read the critic, move the critic."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from coplay.rollout_tree import (
    CollectPlan,
    RolloutTree,
    Trajectory,
    ValueReader,
    ValueRow,
    collect_sync,
    plan_mixture,
)
from coplay.training.alignment import raise_alarms
from coplay.training.critic_updates import critic_update, critic_values, read_rows
from coplay.training.estimators import estimate_players, values_per_tick
from coplay.training.extract import in_table_order, tick_table, value_batch
from coplay.training.inner_expectation import Beside, expect_past, expects_past, paths_beside
from coplay.training.kl import KlPenalty
from coplay.training.mini_batches import dealing_of
from coplay.training.packets import AdvantagePacket
from coplay.training.passes import reading_of
from coplay.training.records import Estimate, TickTable, TickValues, ValueBatch
from coplay.training.references import read_references
from coplay.training.run import Run
from coplay.training.schemes import BranchesEstimator, critic_learning
from coplay.training.trainer import Credit, Done
from coplay.training.updates import set_lr

COLLECT_EVERY = 100_000
"""New objects between two passes of Python's collector of reference cycles."""
LARGEST_IDLE = 5
"""Updates in a row that may find nothing to train on, before a run counts as dead."""


class NothingToTrainError(RuntimeError):
    """A run looks alive, but nothing of what it plays can be trained on."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let Python's collector of reference cycles pass by seldom, and never walk what stands already.

    Records hold no cycles, but by default every few thousand of them have it walk every object of torch and
    transformers, which takes longer than making them.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the critic read this iteration, before its update; both None without a critic."""

    batch: ValueBatch | None = None
    values: TickValues | None = None


def collect_rollouts(run: Run, update: int) -> list[RolloutTree]:
    """Play one iteration's games with the current policies; the engine's caches die with it."""
    collect, seats = run.config.collect, run.config.seats()
    episodes = plan_mixture(
        run.mixture,
        run_seed=run.config.seed,
        iteration=update,
        num_groups=collect.num_groups,
        group_size=collect.group_size,
        seats={player: run.factory(agent, run_seed=run.config.seed) for player, agent in seats.items()},
        seat_names={player: run.label(agent) for player, agent in seats.items()},
    )
    plan = CollectPlan(
        game=run.game,
        episodes=episodes,
        time_limit=collect.time_limit,
        max_failed_share=collect.max_failed_share,
        branching=None if collect.branching is None else collect.branching.plan(),
        values=_value_reader(run),
    )
    trees = collect_sync(plan)
    run.engine.clear()
    return trees if run.reward_model is None else run.reward_model.judge(trees)


def _value_reader(run: Run) -> ValueReader | None:
    """Tells values before replies from the critic's weights of this iteration, in scaled units."""
    critic, reading = run.critic, reading_of(run.config.update)
    if critic is None:
        return None

    def read(rows: Sequence[ValueRow]) -> list[list[float]]:
        return read_rows(critic, rows, reading)

    return read


def lay_out(run: Run, trajectories: Sequence[Trajectory]) -> TickTable:
    """Every player's rewards by tick, scaled."""
    scale = run.config.estimator.reward_scale
    return tick_table(trajectories, reward_scale=scale, has_chance=run.config.has_chance())


def read_critic(run: Run, trajectories: Sequence[Trajectory], table: TickTable) -> Reading:
    """All values of the iteration, from the critic's weights before its update (rule 8)."""
    if run.critic is None:
        return Reading()
    batch = value_batch(in_table_order(trajectories, table))
    values = critic_values(run.critic, batch, reading_of(run.config.update))
    return Reading(batch=batch, values=values_per_tick(table, batch, values))


def estimate_advantages(
    run: Run, table: TickTable, reading: Reading, *, update: int, penalty: KlPenalty | None = None
) -> Estimate:
    """Advantages of every player, trained or not."""
    found = estimate_players(
        run.config.estimator,
        run.config.shaping,
        table,
        running_means=run.state.running_means,
        values=reading.values,
        update=update,
        penalty=None if penalty is None else penalty.ticks,
    )
    return found if penalty is None else replace(found, metrics={**found.metrics, **penalty.metrics})


def look_beside(run: Run, trees: Sequence[RolloutTree]) -> Beside | None:
    """Branches that only alignment weights read; None if they read none, or branches are trained on."""
    if expects_past(run.config.shaping) is None or isinstance(run.config.estimator, BranchesEstimator):
        return None
    trajectories = paths_beside(trees)
    table = lay_out(run, trajectories)
    return Beside(trajectories=trajectories, table=table, values=read_critic(run, trajectories, table).values)


def estimate_past(
    run: Run,
    trajectories: Sequence[Trajectory],
    table: TickTable,
    advantages: Estimate,
    beside: Beside | None,
    *,
    update: int,
) -> Estimate:
    """The estimate, with the own past as alignment weights take it where that is another."""
    past = expects_past(run.config.shaping)
    if past is None:
        return advantages
    policies = {trainer.policy.label for trainer in run.trainers}
    return expect_past(
        run.config.estimator, past, trajectories, table, advantages, beside, policies=policies, update=update
    )


def shape_credits(
    run: Run,
    trajectories: Sequence[Trajectory],
    table: TickTable,
    advantages: Estimate,
    packets: Sequence[AdvantagePacket],
    *,
    update: int,
) -> dict[str, Credit]:
    """By trained policy: the credit of its action tokens; a policy that sampled none is left out."""
    found = {
        trainer.policy.name: trainer.credit(trajectories, table, advantages, packets, update=update)
        for trainer in run.trainers
    }
    credits = {name: credit for name, credit in found.items() if credit is not None}
    run.idle_updates = 0 if credits else run.idle_updates + 1
    if run.idle_updates >= LARGEST_IDLE:
        raise NothingToTrainError(
            f"no policy had anything to train on in {run.idle_updates} updates in a row (the last: {len(trajectories)}"
            " trajectories of games that were played to their end, none with a token that a trained policy sampled);"
            " look at rollout/count/* in metrics.jsonl: games fail, or trained policies never move"
        )
    return credits


def update_policies(run: Run, credits: Mapping[str, Credit], *, update: int) -> dict[str, Done]:
    """Update each trained policy that has credit."""
    credits = read_references(credits, run.policies, run.config)
    done = {
        name: Done(credit=credits[name], result=trainer.step(credits[name], update=update, folder=run.folder))
        for trainer in run.trainers
        if (name := trainer.policy.name) in credits
    }
    if not run.alignment_checked:
        run.alignment_checked = bool(done)
        gaps = {name: (one.credit.batch.behaviour, one.result.log_probs) for name, one in done.items()}
        raise_alarms(gaps, run.config.objective)
    return done


def update_critic(
    run: Run, reading: Reading, table: TickTable, advantages: Estimate, *, update: int
) -> dict[str, float]:
    """Update the shared critic on the reading points of all players under one normaliser (rule 8)."""
    settings, batch, targets = critic_learning(run.config.estimator), reading.batch, advantages.targets
    if settings is None or batch is None or targets is None:
        return {}
    assert run.critic is not None and run.critic_optimizer is not None
    inside = batch.tick < table.mask.sum(dim=1)[batch.path]
    ticks = batch.tick.clamp(max=table.mask.shape[1] - 1)
    shares = inside
    if advantages.state_weights is not None:
        shares = torch.where(inside, advantages.state_weights[batch.path, ticks], 0.0)
    set_lr(run.critic_optimizer, settings.lr.value(update))
    metrics = critic_update(
        run.critic,
        run.critic_optimizer,
        batch,
        targets[batch.path, ticks],
        shares,
        settings,
        reading_of(run.config.update),
        dealing_of(run.config.update, run.config.seed, "critic:", update),
        refused=run.folder / "refused" / f"critic-{update:06d}.safetensors",
    )
    run.critic_optimizer.zero_grad(set_to_none=True)
    return metrics

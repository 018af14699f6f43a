"""collect, extract, estimate, exchange, shape, update, record: a training run, read from top to bottom."""

from coplay.training.estimators import estimate, normalise_by_player
from coplay.training.extract import extract, tick_table
from coplay.training.metrics import merged, prefixed
from coplay.training.packets import make_packets
from coplay.training.record import Report, advance, evaluate_run, rollout_metrics, store_rollouts
from coplay.training.run import Run
from coplay.training.stages import Clock, collect_rollouts, read_critic, seldom_collecting, update_critic


@seldom_collecting()
def train(run: Run, report: Report) -> None:
    """Train until the configured number of updates is done; `report` hears each update's metrics."""
    config, metrics = run.config, run.metrics_file()
    if config.evaluate.every and run.state.update == 0:
        evaluate_run(run)
        run.save()
    while run.state.update < config.update.num_updates:
        update, clock = run.state.update, Clock()
        trees = collect_rollouts(run, update)
        clock.lap("collect")

        trajectories = extract(trees)
        table = tick_table(
            trajectories, reward_scale=config.estimator.reward_scale, has_chance=run.game.spec.has_chance
        )
        reading = read_critic(run, trajectories, table)
        advantages = estimate(
            config.estimator,
            table,
            running_means=run.state.running_means,
            values=reading.values,
            update=update,
        )
        advantages = normalise_by_player(config.shaping, table, advantages)
        packets = make_packets(table, advantages.advantages)
        credits = [
            trainer.credit(trajectories, table, advantages, packets, update=update)
            for trainer in run.trainers
        ]
        clock.lap("credit")

        done = {
            trainer.policy.name: (credit, trainer.step(credit, update=update, folder=run.folder))
            for trainer, credit in zip(run.trainers, credits, strict=True)
            if credit is not None
        }
        critic_metrics = update_critic(run, reading, table, advantages, update=update)
        clock.lap("update")

        store_rollouts(run, update, trees, table, advantages, done)
        clock.lap("record")
        policy_metrics = [prefixed(f"policy/{name}", result.metrics) for name, (_, result) in done.items()]
        names = [trainer.policy.name for trainer in run.trainers]
        skipped = {f"policy/{name}/skipped": float(name not in done) for name in names}
        games = rollout_metrics(trees)
        values = merged(
            [games, advantages.metrics, critic_metrics, skipped, *policy_metrics, clock.metrics()]
        )
        metrics.append(update, values)
        advance(run, advantages)
        report(update, values)

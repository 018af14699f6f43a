"""collect, extract, estimate, exchange, shape, update, record: a training run, read from top to bottom."""

from coplay.training.extract import extract
from coplay.training.kl import adapt, penalise
from coplay.training.packets import make_packets
from coplay.training.record import (
    Report,
    advance,
    evaluate_run,
    iteration_metrics,
    store_rollouts,
    write_json,
)
from coplay.training.run import Run
from coplay.training.stages import (
    collect_rollouts,
    estimate_advantages,
    estimate_past,
    lay_out,
    look_beside,
    read_critic,
    seldom_collecting,
    shape_credits,
    update_critic,
    update_policies,
)
from coplay.training.timing import BENCHMARK, Benchmark, Clock, count_tokens


@seldom_collecting()
def train(run: Run, report: Report) -> None:
    """Train until the configured number of updates is done; `report` hears each update's metrics."""
    metrics, benchmark = run.metrics_file(), Benchmark()
    if run.config.evaluate.every and run.config.evaluate.before and run.state.update == 0:
        evaluate_run(run)
        run.save()
    while run.state.update < run.config.update.num_updates:
        update, clock = run.state.update, Clock()
        trees = collect_rollouts(run, update)
        clock.lap("collect")

        trajectories = extract(trees, branches=run.config.estimator.kind == "branches")
        table = lay_out(run, trajectories)
        reading = read_critic(run, trajectories, table)
        penalty = penalise(run.trainers, trajectories, table)
        advantages = estimate_advantages(run, table, reading, update=update, penalty=penalty)
        beside = look_beside(run, trees)
        advantages = estimate_past(run, trajectories, table, advantages, beside, update=update)
        packets = make_packets(table, advantages.exchanged)
        credits = shape_credits(run, trajectories, table, advantages, packets, update=update)
        clock.lap("credit")

        done = update_policies(run, credits, update=update)
        adapt(run.trainers, done, penalty)
        critic_metrics = update_critic(run, reading, table, advantages, update=update)
        clock.lap("update")

        store_rollouts(run, update, trees, table, advantages, done, reading.values, beside)
        clock.lap("record")
        tokens = count_tokens(trees)
        values = (
            iteration_metrics(run, trees, table, advantages, done) | critic_metrics | clock.metrics(tokens)
        )
        metrics.append(update, values)
        advance(run, advantages)
        benchmark.note(update, values, tokens)
        report(update, values)
    if told := benchmark.told():
        write_json(run.folder, BENCHMARK, told)

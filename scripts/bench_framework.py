"""`python -m coplay.scripts.bench_framework [--model FOLDER | --long]`: what the framework costs beside the model.

Runs the real training loop on a shipped configuration, every iteration stored, on one thread. The functions listed
in `PARTS` are wrapped for the measurement: each charges the time between calls to the part that is running. Parts are
told by a wall clock that is cheap to read and scaled to the processor time of their iteration; the same iterations
run once without timers first, so that what the timers cost stands beside the sum of the parts.
"""

import argparse
import importlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from coplay.agents.base import Seat
from coplay.agents.chat import ChatFormat
from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.language import LanguageAgent, SamplingSettings
from coplay.agents.scripted import scripted_agent
from coplay.games import make_game
from coplay.rollout_tree import (
    CollectPlan,
    RolloutTree,
    build_trajectories,
    collect_sync,
    plan_episodes,
    read_rollouts,
    write_rollouts,
)
from coplay.scripts.bench_timers import Target, Timers, timed_parts
from coplay.scripts.settings import read_settings
from coplay.training import loop
from coplay.training.run import Run, new_run
from coplay.training.stages import seldom_collecting

PARTS: dict[str, tuple[str, ...]] = {
    "model": (
        "agents.policy:Policy.extend",
        "agents.policy:Policy.hidden",
        "agents.policy:Policy.logits",
        "agents.critic:Critic.values",
        "agents.replies:draw",
        "agents.kv_cache:join",
        "agents.reader:join",
        "agents.kv_cache:Block.copy_beginnings",
        "agents.kv_cache:Block.absorb",
        "agents.policy:Policy.merged",
        "agents.kv_cache:Block.reserve",
        "training.passes:score",
        "training.updates:clip",
        "torch.autograd:backward",
        "torch.optim:Adam.step",
        "torch.optim:Adam.zero_grad",
    ),
    "text": ("game:observe", "game:step", "game:initial_state", "game:to_move"),
    "tokens": (
        "agents.transcript:Transcript.observe",
        "agents.transcript:Transcript.record",
        "agents.chat:ChatFormat.trie",
        "agents.chat:ChatFormat.decode",
        "agents.language:reply_segments",
    ),
    "parsing": ("rollout_tree.play:understand",),
    "engine": ("agents.local_engine:LocalEngine.sample_all",),
    "records": ("training.loop:collect_rollouts",),
    "storage": ("training.loop:store_rollouts",),
    "extraction": ("training.loop:extract", "training.loop:lay_out", "training.trainer:token_batch"),
    "credit": (
        "training.loop:estimate_advantages",
        "training.loop:make_packets",
        "training.trainer:Trainer.credit",
    ),
    "update": ("training.trainer:Trainer.step",),
    "metrics": (
        "training.loop:iteration_metrics",
        "training.metrics:MetricsFile.append",
        "training.updates:step_metrics",
    ),
    "loop": (),
}
"""Part -> what is charged to it, less what those call that belongs to another part. `records` are also the event loop
and the agents' own code; `engine` is the batching around the model; `update` the losses; `loop` all the rest."""
LENGTHS = (2500, 5000, 10000)


def parts_of(run: Run) -> dict[str, list[Target]]:
    """Where the functions in `PARTS` stand, those of the run's game among them."""
    found: dict[str, list[Target]] = {}
    for part, targets in PARTS.items():
        found[part] = []
        for target in targets:
            place, _, name = target.partition(":")
            owner = _owner(run, place)
            *outer, name = name.split(".")
            for inner in outer:
                owner = getattr(owner, inner)
            found[part].append((owner, name))
    return found


def _timers() -> Timers:
    return Timers(PARTS, rest="loop")


def _owner(run: Run, place: str) -> Any:
    if place == "game":
        return type(run.game)
    return importlib.import_module(place if place.startswith("torch") else f"coplay.{place}")


def measure(run: Run, timers: Timers | None) -> list[dict[str, float]]:
    """Train; processor seconds of each iteration by part (only `total` without timers), and its number of `turns`."""
    iterations: list[dict[str, float]] = []
    since = time.process_time()
    turns = 0
    collect = getattr(loop, "collect_rollouts")  # noqa: B009 - wrapped perhaps

    def counted(*arguments: Any) -> list[RolloutTree]:
        nonlocal turns
        trees: list[RolloutTree] = collect(*arguments)
        turns = sum(len(step.turns) for tree in trees for step in tree.steps)
        return trees

    def report(_: int, __: Any) -> None:
        nonlocal since
        total = time.process_time() - since
        parts = timers.take() if timers else {}
        wall = sum(parts.values())
        iterations.append({name: spent / wall * total for name, spent in parts.items()})
        iterations[-1] |= {"total": total, "turns": turns}
        since = time.process_time()

    setattr(loop, "collect_rollouts", counted)  # noqa: B010 - mypy refuses the plain assignment
    try:
        loop.train(run, report)
    finally:
        setattr(loop, "collect_rollouts", collect)  # noqa: B010
    return iterations


def bench(config: str, flags: Sequence[str], *, kept: slice, check: bool = True) -> str:
    """The table of one configuration: medians over the `kept` iterations; the last one also saves a checkpoint.

    `check` has the same iterations run without timers first.
    """
    results = []
    for timers in (None, _timers()) if check else (_timers(),):
        with tempfile.TemporaryDirectory() as folder:
            fixed = ["--storage.folder", folder, "--storage.every", "1", "--storage.checkpoint_every", "1000000",
                     "--evaluate.every", "0", "--update.num-threads", "1"]  # fmt: skip
            run = new_run(read_settings(config, [*flags, *fixed]))
            if timers is None:
                results.append(measure(run, None)[kept])
                continue
            with timed_parts(timers, parts_of(run)):
                timers.take()
                results.append(measure(run, timers)[kept])
    timed = results[-1]
    turns = statistics.median(one["turns"] for one in timed)

    def middle(name: str, iterations: Sequence[dict[str, float]]) -> float:
        return statistics.median(one[name] for one in iterations) / turns * 1e6

    parts = {part: middle(part, timed) for part in PARTS}
    total = sum(parts.values())
    framework = total - parts["model"]
    lines = [f"{config}: {turns:.0f} turns an iteration, median of {len(timed)} iterations, CPU µs a turn"]
    lines += [f"  {part:<12}{spent:9.1f}" for part, spent in parts.items() if part != "model"]
    lines += [
        f"  {'framework':<12}{framework:9.1f}   {framework / total:.1%} of the iteration",
        f"  {'model':<12}{parts['model']:9.1f}",
        f"  {'sum':<12}{total:9.1f}",
    ]
    if check:
        lines[-1] += f"   the same iterations without timers: {middle('total', results[0]):.1f}"
    return "\n".join(lines)


class InstantEngine:
    """Answers every request at once with the first reply its grammar allows."""

    async def sample(self, request: SampleRequest) -> Sample:
        """Walk the trie along its first tokens."""
        assert request.trie is not None
        node, ids = 0, []
        while not request.trie.is_leaf(node):
            ids.append(request.trie.allowed[node][0])
            node = request.trie.children[node][ids[-1]]
        return Sample(tuple(ids), (-0.5,) * len(ids), (True,) * len(ids), "grammar")

    def publish(self, policy: str) -> str:
        """There are no weights."""
        return policy

    def close(self) -> None:
        """There is nothing to free."""


def play_long(num_rounds: int, chat: ChatFormat) -> RolloutTree:
    """One episode of a language agent against a scripted one."""
    game = make_game("iterated_matrix", wording="terse", num_rounds=num_rounds)

    def language(_: Seat) -> LanguageAgent:
        return LanguageAgent(InstantEngine(), chat, "instant@0", SamplingSettings(), run_seed=0)

    first, second = game.spec.players
    (plan,) = plan_episodes(
        game,
        run_seed=0,
        iteration=0,
        num_groups=1,
        group_size=1,
        seats={first: language, second: scripted_agent("tit_for_tat")},
        seat_names={first: "instant@0", second: "tit_for_tat"},
    )
    return collect_sync(CollectPlan(game=game, episodes=(plan,)))[0]


@seldom_collecting()
def bench_long() -> str:
    """CPU µs a step of long episodes: constant where the cost is linear."""
    chat = ChatFormat(embedded_tokenizer(), max_positions=1 << 22)
    lines = ["  steps   collect     store      read  trajectory   CPU µs a step"]
    play_long(100, chat)
    for length in LENGTHS:
        with tempfile.TemporaryDirectory() as folder:
            spent = [time.process_time()]
            tree = play_long(length, chat)
            spent.append(time.process_time())
            write_rollouts(Path(folder), 0, [tree])
            spent.append(time.process_time())
            (again,) = read_rollouts(Path(folder))
            spent.append(time.process_time())
            trajectories = build_trajectories(again)
            spent.append(time.process_time())
        assert len(tree.steps) == trajectories[0].num_ticks == length
        each = [(end - start) / length * 1e6 for start, end in pairwise(spent)]
        lines.append(f"{length:7d}" + "".join(f"{number:10.1f}" for number in each))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one table."""
    parser = argparse.ArgumentParser(prog="python -m coplay.scripts.bench_framework", description=__doc__)
    parser.add_argument("--iterations", type=int, default=9, help="iterations of which the median is taken")
    parser.add_argument("--model", metavar="FOLDER", help="share of an iteration with this chat model")
    parser.add_argument("--long", action="store_true", help="episodes of 2,500, 5,000 and 10,000 steps")
    chosen = parser.parse_args(arguments)
    if chosen.long:
        table = bench_long()
    elif chosen.model:
        table = bench("chat_trust", ["--agents.model.path", chosen.model], kept=slice(None), check=False)
    else:
        flags = ["--update.num_updates", str(chosen.iterations + 3)]
        table = bench("dilemma_aligned", flags, kept=slice(2, -1))
    sys.stdout.write(table + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m coplay.scripts.bench_train_step [--model FOLDER] [--cases a b c d]`: what a training step costs.

Each case is measured three ways, each in a process of its own, one after the other: (i) the step of the reference
systems, (ii) ours row by row, (iii) ours with rows as trees. Forward and backward, float32, one thread, processor time
of the process beside wall time; peak memory above what model, adapters and batch hold. Where a case is too large for
(i) and (ii), `--every N` has them read every N-th row, and their time and tokens are counted N-fold. (i) multiplies
as torch does; with `--products ours` it takes our dense layers too, and what is left is what packing and heads give.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from coplay.agents.base_model import load_base
from coplay.agents.linear import Linear, available, product
from coplay.agents.policy import Policy, build_policies
from coplay.agents.settings import EmbeddedModel, FolderModel, FullWeights, LoraWeights, PolicySettings
from coplay.scripts.bench_steps import CASES, ReferenceStep, some_rows, unmerged
from coplay.scripts.bench_work import work_of
from coplay.training.objectives import ReinforceObjective
from coplay.training.passes import ReadPlan, token_passes
from coplay.training.records import TokenBatch
from coplay.training.updates import StepPlan, policy_step

WAYS = {"i": "reference", "ii": "flat", "iii": "trie"}
PAGE = 4096


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Largest growth of this process's resident memory inside the block, in bytes, in a list of one."""
    status = Path("/proc/self/statm")
    start = int(status.read_text(encoding="ascii").split()[1])
    found, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(0.005):
            now = int(status.read_text(encoding="ascii").split()[1])
            found[0] = max(found[0], (now - start) * PAGE)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


def make_policy(model: str | None, weights: str) -> Policy:
    """A policy over the embedded model or that of a folder; a LoRA adapter is moved off its start."""
    settings = EmbeddedModel() if model is None else FolderModel(path=model)
    base = load_base(settings, seed=1)
    chosen = PolicySettings(weights=LoraWeights(rank=16, alpha=32) if weights == "lora" else FullWeights())
    policy = build_policies(base, {"bench": chosen}, seed=1, keep_reference=False)["bench"]
    with torch.no_grad():
        for name, tensor in policy.named_parameters().items():
            if "lora_B" in name:
                tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(2)) * 0.01)
    return policy


def torch_products(policy: Policy) -> None:
    """Let a policy's dense layers multiply as torch does."""
    for module in policy.trunk.decoder.modules():
        if isinstance(module, Linear):
            module.__class__ = torch.nn.Linear  # type: ignore[assignment]


def matmul_peak(multiply: Callable[[Tensor, Tensor], Tensor]) -> float:
    """FLOP a second of processor time in a square product of 2048, best of 5."""
    one, other = torch.randn(2, 2048, 2048)
    best = 0.0
    for _ in range(5):
        start = time.process_time()
        multiply(one, other)
        best = max(best, 2 * 2048**3 / (time.process_time() - start))
    return best


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One way over one case, in this process."""
    torch.set_num_threads(options.threads)
    case, way = options.measure.split(":")
    policy = make_policy(options.model, options.weights)
    if way == "reference" and options.products == "torch":
        torch_products(policy)
    merged = CASES[case][1](policy.chat)
    flat = unmerged(merged)
    every = options.every if way != "trie" else 1
    batch = some_rows(flat, every) if every > 1 else flat if way == "reference" else merged
    # all positive: a sum that nearly cancels would measure rounding against itself
    credits = 0.5 + torch.rand(batch.num_tokens, generator=torch.Generator().manual_seed(3))
    step = _step(policy, batch, credits, way, options)
    work = work_of(merged)
    found: dict[str, Any] = {
        "wall": [],
        "cpu": [],
        "peak": [],
        "best_peak": [],
        "losses": [],
        "work": work.flop(policy, merged),
    }
    with peak_memory() as peak:
        for _ in range(options.repeats):
            for tensor in policy.named_parameters().values():
                tensor.grad = None
            wall, cpu = time.perf_counter(), time.process_time()
            found["losses"].append(step())
            found["wall"].append((time.perf_counter() - wall) * every)
            found["cpu"].append((time.process_time() - cpu) * every)
            found["peak"].append(matmul_peak(torch.mm))
            found["best_peak"].append(matmul_peak(product if available() else torch.mm))
    found |= {"memory": peak[0], "distinct": work.tokens, "tokens": int(flat.lengths.sum())}
    found["rows"], found["every"] = len(flat.ids), every
    gradients = {n: p.grad for n, p in policy.named_parameters().items() if p.grad is not None}
    if options.gradients:
        save_file(gradients, options.gradients)
    return found


def _step(
    policy: Policy, batch: TokenBatch, credits: Tensor, way: str, options: argparse.Namespace
) -> Callable[[], float]:
    if way == "reference":
        reference = ReferenceStep(rows_at_a_time=options.rows)
        return lambda: reference(policy, batch, credits)
    plan = StepPlan(
        lr=0.0,
        entropy_coefficient=0.0,
        gradient_clip=None,
        reading=ReadPlan(
            micro_batch_tokens=options.tokens,
            packing="trie" if way == "trie" else "flat",
            precision=options.precision,
        ),
        refused=Path(tempfile.gettempdir()) / "refused.safetensors",
    )
    still = torch.optim.SGD(list(policy.named_parameters().values()), lr=0.0)
    objective = ReinforceObjective(largest_gap=None)
    passes = token_passes(batch, policy, plan.reading)
    shapes = [tuple(one.pack.ids.shape) for one in passes]
    sys.stderr.write(
        f"{way}: {len(passes)} passes {shapes[:12]}, {sum(p.pack.num_tokens for p in passes)} tokens\n"
    )
    return lambda: policy_step(policy, still, batch, credits, objective, plan).metrics["loss"]


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Norm of the difference of two gradients over the norm of the first."""
    flat = [torch.cat([tensors[name].double().flatten() for name in sorted(one)]) for tensors in (one, other)]
    return float((flat[0] - flat[1]).norm() / flat[0].norm())


def report(case: str, options: argparse.Namespace, passed: Sequence[str]) -> str:
    """Measure one case in every way and print it."""
    results, gradients = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS.values():
            kept = str(Path(folder) / way)
            command = [sys.executable, "-m", "coplay.scripts.bench_train_step", *passed]
            command += ["--measure", f"{case}:{way}", "--gradients", kept]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)  # noqa: S603
            results[way], gradients[way] = json.loads(done.stdout.splitlines()[-1]), load_file(kept)
    trie, reference = results["trie"], results["reference"]
    ratio = trie["tokens"] / trie["distinct"]
    lines = [
        f"({case}) {CASES[case][0]}: {trie['rows']} rows, {trie['tokens']} tokens, {trie['distinct']} distinct,"
        f" ratio {ratio:.2f}"
    ]
    base = statistics.median(reference["cpu"])
    for number, way in WAYS.items():
        one = results[way]
        cpu, wall = statistics.median(one["cpu"]), statistics.median(one["wall"])
        line = f"  ({number:>3}) {way:<10} CPU {cpu:8.3f} s  wall {wall:8.3f} s  {base / cpu:6.2f}x"
        line += f"  peak {one['memory'] / 2**20:7.0f} MiB ({one['memory'] / max(reference['memory'], 1):.2f})"
        if one["every"] == trie["every"] == reference["every"]:
            line += f"  loss {abs(one['losses'][0] / reference['losses'][0] - 1):.0e}"
            line += f"  gradient {difference(gradients['reference'], gradients[way]):.0e}"
        lines.append(line + (f"  (every {one['every']}th row, counted so often)" if one["every"] > 1 else ""))
    speed = base / statistics.median(trie["cpu"])
    rate = trie["work"] / statistics.median(trie["cpu"])
    peak, best = (statistics.median(trie[name]) for name in ("peak", "best_peak"))
    lines.append(
        f"  trie over reference {speed:.2f}x, {speed / ratio:.0%} of the distinct-token ratio; {trie['work'] / 1e9:.1f}"
        f" GFLOP had to be done at {rate / 1e9:.0f} GFLOP/s: {rate / peak:.0%} of the peak of torch.mm"
        f" ({peak / 1e9:.0f}), {rate / best:.0%} of that of our products ({best / 1e9:.0f})"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the cases asked for."""
    parser = argparse.ArgumentParser(prog="python -m coplay.scripts.bench_train_step", description=__doc__)
    parser.add_argument(
        "--model", metavar="FOLDER", help="a chat model's folder; default: the embedded model"
    )
    parser.add_argument("--weights", choices=("lora", "full"), default="lora")
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), default=sorted(CASES))
    parser.add_argument("--repeats", type=int, default=3, help="steps of which the median is taken")
    parser.add_argument("--every", type=int, default=1, help="(i) and (ii) read every n-th row only")
    parser.add_argument("--rows", type=int, default=8, help="rows that (i) reads at a time")
    parser.add_argument(
        "--tokens", type=int, default=16384, help="update.micro_batch_tokens of (ii) and (iii)"
    )
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="float32", help="of (ii) and (iii)"
    )
    parser.add_argument(
        "--products", choices=("torch", "ours"), default="torch", help="whose dense layers (i) takes"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--gradients", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        sys.stdout.write(json.dumps(measure(options)) + "\n")
        return 0
    passed = list(sys.argv[1:] if arguments is None else arguments)
    for case in options.cases:
        sys.stdout.write(report(case, options, passed) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())

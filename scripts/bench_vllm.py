"""The vLLM side of `bench_rollout`: run by the Python of vLLM's own environment, imports nothing of coplay.

One argument, a JSON object; the last line printed is one: processor and wall seconds of all processes.
"""

import json
import os
import random
import sys
import time
from typing import Any


def main(job: dict[str, Any]) -> None:
    """Play the dialogues that `bench_rollout.play` plays."""
    threads = str(job["threads"])
    os.environ.update(
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        OMP_NUM_THREADS=threads,
        VLLM_CPU_KVCACHE_SPACE="2",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_LOGGING_LEVEL="ERROR",
        HF_HUB_OFFLINE="1",
    )
    import torch
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]
    from vllm.lora.request import LoRARequest  # type: ignore[import-not-found]

    torch.set_num_threads(job["threads"])
    adapter = job["adapter"]
    engine = LLM(
        model=job["model"],
        dtype="float32",
        max_model_len=2048,
        enable_prefix_caching=True,
        enable_lora=adapter is not None,
        max_lora_rank=16,
        enforce_eager=True,
    )
    lora = None if adapter is None else LoRARequest("ada", 1, adapter)
    prompt, observation, reply = job["lengths"]
    luck = random.Random(job["games"])  # noqa: S311 - no secret
    contexts = [[luck.randrange(5, 40000) for _ in range(prompt)] for _ in range(job["games"])]
    settings = SamplingParams(
        max_tokens=reply, min_tokens=reply, ignore_eos=True, temperature=1.0, logprobs=0, seed=1
    )
    engine.generate([{"prompt_token_ids": [1, 2, 3]}], settings, lora_request=lora, use_tqdm=False)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(job["turns"]):
        prompts = [{"prompt_token_ids": context} for context in contexts]
        answers = engine.generate(prompts, settings, lora_request=lora, use_tqdm=False)
        for context, answer in zip(contexts, answers, strict=True):
            context += [*answer.outputs[0].token_ids]
            context += [luck.randrange(5, 40000) for _ in range(observation)]
    spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps(spent))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

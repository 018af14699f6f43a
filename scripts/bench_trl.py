"""TRL's side of `bench_end_to_end`: `python -m coplay.scripts.bench_trl RESULT < JOB`, where TRL is installed."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from coplay.scripts.bench_game import distinct_characters, prompt_lengths, prompt_messages
from coplay.scripts.bench_job import LR, Job, Result, Stopwatch, serve
from coplay.scripts.bench_timers import Target, timed_parts


def reward(completions: list[list[dict[str, str]]], **_: Any) -> list[float]:
    """What the game pays, in the form that TRL asks for."""
    return [distinct_characters(completion[0]["content"]) for completion in completions]


def arguments(job: Job, folder: Path) -> dict[str, Any]:
    """TRL's settings: its defaults but for batch, lengths and rate; where the job says so, as ours run."""
    chosen: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "max_steps": job.warm_up + job.steps,
        "per_device_train_batch_size": job.samples,
        "num_generations": job.group_size,
        "max_completion_length": job.new_tokens,
        "generation_kwargs": {"min_new_tokens": job.new_tokens},
        "learning_rate": LR,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    if job.alike:
        chosen |= {"bf16": False, "gradient_checkpointing": False, "beta": 0.0}
        if job.samples % 2 == 0:  # in one piece a 135M model takes 13 GB
            chosen |= {"per_device_train_batch_size": job.samples // 2, "gradient_accumulation_steps": 2}
    return chosen


def run_trl(job: Job, folder: Path) -> Result:
    """Train the job's model on the game's prompts."""
    import torch
    from accelerate import Accelerator
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    torch.set_num_threads(job.threads)
    kind, config = {"grpo": (GRPOTrainer, GRPOConfig), "rloo": (RLOOTrainer, RLOOConfig)}[job.trainer]
    number = job.num_prompts * (job.warm_up + job.steps)
    prompts = [prompt_messages(number, job.num_words) for number in range(number)]
    adapter = None
    if job.rank is not None:
        adapter = LoraConfig(
            r=job.rank, lora_alpha=2 * job.rank, target_modules="all-linear", task_type="CAUSAL_LM"
        )
    trainer = kind(
        model=job.model,
        reward_funcs=reward,
        args=config(**arguments(job, folder)),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        peft_config=adapter,
    )
    watch = Stopwatch()

    class AtStepEnd(TrainerCallback):
        """Reads the stopwatch."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            """Every reply has the length asked for: TRL lets none end before."""
            watch.step(float(job.new_tokens))

    trainer.add_callback(AtStepEnd())
    parts: dict[str, list[Target]] = {
        "generation": [(kind, "_generate")],
        "scoring": [(kind, "_generate_and_score_completions")],
        "forward + loss": [(kind, "compute_loss")],
        "backward": [(Accelerator, "backward")],
    }
    with timed_parts(watch.timers, parts):
        watch.start()
        trainer.train()
    lengths = prompt_lengths(job.model, [prompt_messages(number, job.num_words) for number in range(8)])
    return watch.result(job.warm_up, sum(lengths) / len(lengths))


if __name__ == "__main__":
    if importlib.util.find_spec("trl") is None:
        sys.exit("the package 'trl' is missing; install coplay's extra 'bench' in this environment")
    sys.exit(serve(run_trl))

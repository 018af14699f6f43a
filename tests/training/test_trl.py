"""The same model, completions, rewards and settings as TRL's GRPOTrainer: the same losses and the same weights."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from run_fakes import Iteration, play_iteration

from coplay.scripts.bench_game import SingleTurnParameters, make_tiny_model
from coplay.training.config import RunConfig
from coplay.training.run import Run

pytestmark = [pytest.mark.needs("trl", "datasets"), pytest.mark.filterwarnings("ignore")]

GROUPS, SIZE, LENGTH = 2, 4, 6
SEQUENCE = {"kind": "ppo", "normaliser": "sequence"}
Case = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""Settings of section `estimator` and of section `objective`, and TRL's."""
ONE_STEP: dict[str, Case] = {
    "grpo": ({}, SEQUENCE, {"loss_type": "grpo"}),
    "grpo, as reinforce": ({}, {"normaliser": "sequence"}, {"loss_type": "grpo"}),
    "without deviations": ({"divide_by_deviation": False}, SEQUENCE, {"loss_type": "grpo", "scale_rewards": "none"}),
    "dr. grpo": (
        {"divide_by_deviation": False},
        {"kind": "ppo", "normaliser": "constant", "constant_length": LENGTH},
        {"loss_type": "dr_grpo", "scale_rewards": "none"},
    ),
    "tokens": ({}, {"kind": "ppo", "normaliser": "tokens"}, {"loss_type": "dapo"}),
}  # fmt: skip
SEVERAL: dict[str, Case] = {
    "clipped": ({}, SEQUENCE, {"loss_type": "grpo"}),
    "asymmetric": (
        {}, SEQUENCE | {"clip_low": 0.1, "clip_high": 0.28},
        {"loss_type": "grpo", "epsilon": 0.1, "epsilon_high": 0.28},
    ),
    "dual clip": ({}, SEQUENCE | {"dual_clip": 1.5}, {"loss_type": "grpo", "delta": 1.5}),
    "sequence ratios": (
        {}, SEQUENCE | {"ratio": "sequence", "clip_low": 0.02, "clip_high": 0.02},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.02},
    ),
    "kl in the loss": (
        {}, SEQUENCE | {"kl": {"coefficient": 0.3}},
        {"loss_type": "grpo", "beta": 0.3, "use_bias_correction_kl": False},
    ),
    "corrected kl in the loss, tokens": (
        {}, {"kind": "ppo", "normaliser": "tokens", "kl": {"coefficient": 0.3, "corrected": True}},
        {"loss_type": "dapo", "beta": 0.3},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    make_tiny_model(folder)
    return str(folder)


def our_run(folder: Path, model: str, case: Case, **update: Any) -> Run:
    """One player, one reply to each of two prompts, four times."""
    estimator, objective, _ = case
    config = RunConfig.model_validate(
        {
            "game": SingleTurnParameters(num_words=3),
            "agents": {
                "model": {"kind": "folder", "path": model},
                "policies": {"writer": {"weights": {"kind": "full"}}},
                "sampling": {"max_new_tokens": LENGTH},
            },
            "collect": {"num_groups": GROUPS, "group_size": SIZE},
            "estimator": {"kind": "grpo"} | estimator,
            "objective": {"importance": "none"} | objective,
            "update": update,
        }
    )
    return Run(config, folder=folder)


def their_trainer(
    folder: Path, model: str, run: Run, played: Iteration, case: Case, steps: int, lr: float
) -> Any:
    """TRL's, which is given our completions and rewards by prompt."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    given: dict[str, list[tuple[list[int], list[int], float]]] = defaultdict(list)
    for one in played.trajectories:
        (row,) = one.rows
        start = int(row.sampled.argmax())
        assert row.sampled[start:].all()
        given[one.group].append(
            (row.ids[:start].tolist(), row.ids[start:].tolist(), float(one.rewards.sum()))
        )

    class Recording(GRPOTrainer):  # type: ignore[misc]
        losses: list[float]

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            loss = super()._compute_loss(model, inputs)
            self.losses = [*getattr(self, "losses", []), float(loss.detach())]
            return loss

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        taken = {group: iter(completions) for group, completions in given.items()}
        found = [next(taken[prompt]) for prompt in prompts]
        return {
            "prompt_ids": [prompt for prompt, _, _ in found],
            "completion_ids": [completion for _, completion, _ in found],
            "logprobs": [[0.0] * len(completion) for _, completion, _ in found],
            "paid": [reward for _, _, reward in found],
        }

    arguments = GRPOConfig(
        output_dir=str(folder), use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
        max_steps=steps, num_iterations=steps, per_device_train_batch_size=GROUPS * SIZE, num_generations=SIZE,
        max_completion_length=LENGTH, learning_rate=lr, lr_scheduler_type="constant", optim="adamw_torch",
        save_strategy="no", report_to="none", logging_steps=1, dataloader_pin_memory=False,
        max_grad_norm=run.config.update.gradient_clip or 0.0, **({"beta": 0.0} | case[2]),
    )  # fmt: skip
    network = AutoModelForCausalLM.from_pretrained(model)
    # Padding is also the end of every message here, whose embedding transformers would give no gradient at all.
    network.get_input_embeddings().padding_idx = None
    optimizers = (None, None)
    if steps > 1:
        mover = torch.optim.SGD(network.parameters(), lr=lr)
        optimizers = (mover, torch.optim.lr_scheduler.LambdaLR(mover, lambda step: 1.0))
    trainer = Recording(
        model=network,
        reward_funcs=lambda completions, paid, **_: paid,
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": group} for group in given]),
        processing_class=AutoTokenizer.from_pretrained(model),
        rollout_func=rollout,
        optimizers=optimizers,
    )
    trainer.train()
    return trainer


def assert_same_weights(
    run: Run, network: Any, before: dict[str, torch.Tensor], largest: float = 1e-5
) -> None:
    """All of them moved alike."""
    theirs = network.state_dict()
    ours = run.policies["writer"].state()
    moved = 0.0
    for name, tensor in ours.items():
        other = next(theirs[key] for key in theirs if key == name or key.endswith(f".{name}"))
        assert torch.allclose(tensor, other, atol=largest, rtol=0), name
        moved = max(moved, float((tensor - before[name]).abs().max()))
    assert moved > 10 * largest


@pytest.mark.parametrize("name", ONE_STEP)
def test_grpo_when_it_takes_one_step_of_adam_then_trls_loss_and_weights(
    tmp_path: Path, model: str, name: str
) -> None:
    case, lr = ONE_STEP[name], 2e-4
    run = our_run(tmp_path, model, case, lr=lr)
    before = run.policies["writer"].state()
    played = play_iteration(run)
    credit = played.credit(run)
    result = run.trainers[0].step(credit, update=0, folder=tmp_path)
    theirs = their_trainer(tmp_path, model, run, played, case, steps=1, lr=lr)
    advantages = sorted(theirs._logs["advantages"])
    assert advantages == pytest.approx(sorted(played.estimate.advantages[:, 0].tolist()), abs=1e-5)
    assert max(advantages) > 0.5
    if run.config.objective.kind == "ppo":
        assert result.metrics["loss"] == pytest.approx(theirs.losses[0], abs=1e-5)
    assert_same_weights(run, theirs.model, before)


@pytest.mark.parametrize("name", SEVERAL)
def test_grpo_when_it_takes_several_steps_then_trls_losses_weights_and_clip_fractions(
    tmp_path: Path, model: str, name: str
) -> None:
    """Plain gradient steps, far enough that bounds hold; a KL's exponential wants smaller ones."""
    case, lr, steps = SEVERAL[name], 0.1 if "kl" in name else 1.0, 4
    run = our_run(tmp_path, model, case, lr=lr, num_epochs=steps, gradient_clip=None)
    before = run.policies["writer"].state()
    played = play_iteration(run)
    trainer = run.trainers[0]
    trainer.optimizer = torch.optim.SGD(list(trainer.policy.named_parameters().values()), lr=1.0)  # type: ignore[assignment]
    result = trainer.step(played.credit(run), update=0, folder=tmp_path)
    theirs = their_trainer(tmp_path, model, run, played, case, steps=steps, lr=lr)
    assert len(theirs.losses) == steps == result.metrics["steps"]
    assert result.metrics["loss"] == pytest.approx(sum(theirs.losses) / steps, abs=1e-5)
    assert_same_weights(run, theirs.model, before)
    for ours, other in (("clipped_low", "clip_ratio/low_mean"), ("clipped_high", "clip_ratio/high_mean")):
        told = [line[other] for line in theirs.state.log_history if other in line]
        assert result.metrics[ours] == pytest.approx(sum(told) / steps, abs=1e-3)
    if "kl" in name:
        told = [line["kl"] for line in theirs.state.log_history if "kl" in line]
        assert result.metrics["kl"] == pytest.approx(sum(told) / steps, abs=1e-5) and told[-1] > 1e-3
    else:
        assert result.metrics["clipped_low"] + result.metrics["clipped_high"] > 0

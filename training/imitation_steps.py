"""What an imitation does with tokens: one optimiser step towards what was said, and how well it guesses the rest."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from coplay.agents.policy import Policy
from coplay.rollout_tree import Trajectory
from coplay.training.extract import token_batch
from coplay.training.losses import reinforce
from coplay.training.masked import masked_sum
from coplay.training.metrics import fetch
from coplay.training.passes import ReadPlan, right_guesses, score_pass, token_passes
from coplay.training.records import TokenBatch
from coplay.training.updates import NonFiniteLossError, clip, save_refused, set_lr


def rows_of(paths: Sequence[Trajectory], policy: Policy) -> TokenBatch:
    """The rows of some dialogues; equal ones are read once and count as often as they come."""
    batch = token_batch(paths, policy=policy.name, trie_of=policy.chat.trie, reward_scale=1.0)
    assert batch is not None  # every lesson has something to learn
    return batch


def imitation_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: TokenBatch,
    reading: ReadPlan,
    *,
    lr: float,
    gradient_clip: float | None,
    refused: Path,
) -> dict[str, float]:
    """One optimiser step on the cross-entropy -1/N sum_n log pi(a_n | before n) of the N tokens that were said.

    It is REINFORCE with a credit of 1 for every token, in nats a token.

    Raises:
        NonFiniteLossError: if loss or gradient is not finite; no weight has moved then.
    """
    set_lr(optimizer, lr)
    optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=policy.device)
    for one in token_passes(batch, policy, reading):
        log_probs = score_pass(policy, one, reading.precision).log_probs
        ones = torch.ones_like(log_probs)
        loss = masked_sum(reinforce(log_probs, ones, ones), None) / batch.num_tokens
        torch.autograd.backward(loss)
        total += loss.detach()
    norm = clip(policy.named_parameters(), gradient_clip)
    numbers = fetch({"loss": total, "gradient_norm": norm})
    for name, value in numbers.items():
        if not math.isfinite(value):
            _refuse(name, value, batch, refused)
    optimizer.step()
    policy.bump()
    return {
        **numbers,
        "perplexity": perplexity(numbers["loss"]),
        "tokens": float(batch.num_tokens),
        "dialogues": float(batch.num_trajectories),
        "lr": lr,
    }


def _refuse(name: str, value: float, batch: TokenBatch, refused: Path) -> None:
    tensors: dict[str, Tensor] = {
        "ids": batch.ids, "lengths": batch.lengths, "row": batch.row, "column": batch.column,
    }  # fmt: skip
    save_refused(refused, tensors)
    raise NonFiniteLossError(
        f"{name!r} of the step is {value}; expected a finite number; the step was refused and its batch saved to"
        f" {refused}: lower update.lr"
    )


def perplexity(loss: float) -> float:
    """Exp of the nats a token, infinite where no float can hold it."""
    return math.exp(loss) if loss < math.log(1e300) else math.inf


def validate(
    policy: Policy, paths: Sequence[Trajectory], reading: ReadPlan, *, at_once: int
) -> dict[str, float]:
    """Cross-entropy and perplexity a token, and the share of tokens that the policy finds likeliest, over all of them.

    Args:
        at_once: dialogues that are laid out together; it changes no number.
    """
    nats, right, tokens = 0.0, 0, 0
    for start in range(0, len(paths), at_once):
        batch = rows_of(paths[start : start + at_once], policy)
        for one in token_passes(batch, policy, reading):
            with torch.no_grad():
                log_probs = score_pass(policy, one, reading.precision).log_probs
            nats -= float(masked_sum(log_probs.double(), None))
            right += int(right_guesses(policy, one, reading.precision).sum())
        tokens += batch.num_tokens
    loss = nats / tokens
    return {"loss": loss, "perplexity": perplexity(loss), "accuracy": right / tokens, "tokens": float(tokens)}

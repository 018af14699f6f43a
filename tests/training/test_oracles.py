"""Oracles: GAE, PPO, value clipping, group advantages and controllers are torchrl's and TRL's on random inputs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coplay.training.baselines import group_relative
from coplay.training.credit import generalized_advantages
from coplay.training.importance import mean_ratios
from coplay.training.kl import adapt_coefficient
from coplay.training.losses import clipped_values, huber, mse, ppo_clip

TOLERANCE = 1e-6


def lots(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=lots(seed), dtype=torch.float64)


@pytest.mark.needs("torchrl")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("discount", "gae_lambda"), [(0.9, 0.95), (1.0, 1.0), (0.96, 0.0)])
def test_gae_when_games_end_or_are_cut_then_torchrls(seed: int, discount: float, gae_lambda: float) -> None:
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    rows, ticks = 6, 7
    rewards, values, beyond = drawn(seed, rows, ticks), drawn(seed + 50, rows, ticks), drawn(seed + 90, rows)
    lengths = torch.randint(1, ticks + 1, (rows,), generator=lots(seed))
    mask = torch.arange(ticks) < lengths[:, None]
    truncated = torch.rand(rows, generator=lots(seed)) < 0.5
    ours = generalized_advantages(
        rewards, values, discount=discount, gae_lambda=gae_lambda, mask=mask,
        bootstrap=torch.where(truncated, beyond, 0.0),
    )  # fmt: skip
    for row, length in enumerate(lengths.tolist()):
        following = torch.cat([values[row, 1:length], beyond[row, None]])
        last = torch.zeros(length, dtype=torch.bool)
        last[-1] = True
        theirs, targets = generalized_advantage_estimate(
            discount, gae_lambda, values[row, :length, None], following[:, None], rewards[row, :length, None],
            last[:, None], (last & ~truncated[row])[:, None],
        )  # fmt: skip
        assert torch.allclose(ours[row, :length], theirs[:, 0], atol=TOLERANCE, rtol=0)
        assert torch.allclose((ours + values)[row, :length], targets[:, 0], atol=TOLERANCE, rtol=0)


def torchrls_ppo(logits: nn.Linear, critic: nn.Linear, clip: Any, **settings: Any) -> Any:
    from tensordict.nn import TensorDictModule
    from torchrl.modules import ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss

    actor = ProbabilisticActor(
        TensorDictModule(logits, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )
    return ClipPPOLoss(
        actor,
        ValueOperator(critic, in_keys=["observation"]),
        clip_epsilon=clip,
        entropy_bonus=False,
        reduction="none",
        **settings,
    )


@pytest.mark.needs("torchrl")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("clip", [0.2, 0.05])
def test_ppo_when_clipped_then_torchrls_loss_and_gradient(seed: int, clip: float) -> None:
    from tensordict import TensorDict

    count, actions = 40, 5
    logits = nn.Linear(3, actions).double()
    observation, credits = drawn(seed, count, 3), drawn(seed + 50, count)
    action = torch.randint(actions, (count,), generator=lots(seed))
    behaviour = torch.log_softmax(logits(observation), -1)[torch.arange(count), action].detach()
    old = behaviour + drawn(seed + 90, count, scale=0.3)
    loss = torchrls_ppo(logits, nn.Linear(3, 1).double(), clip)
    data = TensorDict(
        {
            "observation": observation,
            "action": action,
            loss.tensor_keys.sample_log_prob: old,
            "advantage": credits[:, None],
            "value_target": credits[:, None],
        },
        [count],
    )
    theirs = loss(data)["loss_objective"].flatten()
    there = torch.autograd.grad(theirs.sum(), list(loss.actor_network_params.flatten_keys().values()))
    log_probs = torch.log_softmax(logits(observation), -1)[torch.arange(count), action]
    ours = ppo_clip(log_probs, mean_ratios(log_probs, old), credits, clip_low=clip, clip_high=clip)
    here = torch.autograd.grad(ours.sum(), list(logits.parameters()))
    assert torch.allclose(ours, theirs, atol=TOLERANCE, rtol=0)
    assert ((mean_ratios(log_probs, old) - 1).abs() > clip).any(), "bounds hold somewhere"
    by_shape = {one.shape: one for one in there}
    for one in here:
        assert torch.allclose(one, by_shape[one.shape], atol=TOLERANCE, rtol=0)


@pytest.mark.needs("torchrl")
@pytest.mark.parametrize(("kind", "loss_of"), [("l2", mse), ("smooth_l1", huber)])
def test_value_loss_when_clipped_then_torchrls(kind: str, loss_of: Any) -> None:
    from tensordict import TensorDict

    count, clip = 60, 0.2
    critic, observation = nn.Linear(3, 1).double(), drawn(1, count, 3)
    values = critic(observation).squeeze(-1)
    old, targets = values.detach() + drawn(2, count, scale=0.3), drawn(3, count)
    loss = torchrls_ppo(
        nn.Linear(3, 2).double(), critic, 0.2, clip_value=clip, loss_critic_type=kind, critic_coeff=1.0
    )
    data = TensorDict(
        {
            "observation": observation,
            "action": torch.zeros(count, dtype=torch.long),
            loss.tensor_keys.sample_log_prob: torch.zeros(count).double(),
            "advantage": targets[:, None],
            "value_target": targets[:, None],
            "state_value": old[:, None],
        },
        [count],
    )
    theirs = loss(data)["loss_critic"].flatten()
    ours = torch.maximum(loss_of(values, targets), loss_of(clipped_values(values, old, clip), targets))
    assert torch.allclose(ours, theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.needs("torchrl")
def test_adaptive_coefficient_when_it_follows_a_random_kl_then_torchrls_controller() -> None:
    from torchrl.data.llm import AdaptiveKLController

    theirs = AdaptiveKLController(init_kl_coef=0.2, target=0.05, horizon=300)
    ours = 0.2
    for kl in drawn(4, 50).abs().mul(0.1).tolist():
        theirs.update([-theirs.coef * kl] * 32)  # it takes penalties, of which it divides the coefficient out
        ours = adapt_coefficient(ours, kl, target=0.05, horizon=300, count=32)
        assert ours == pytest.approx(float(theirs.coef), abs=TOLERANCE)


@pytest.mark.needs("trl")
@pytest.mark.parametrize("seed", range(5))
def test_group_advantages_when_divided_by_deviations_then_trls(seed: int) -> None:
    """TRL's deviation is over n - 1, and its epsilon of 1e-4 is added to it."""
    from trl.trainer.utils import nanstd

    rewards = drawn(seed, 6, 8)
    theirs = (rewards - rewards.mean(1, keepdim=True)) / (nanstd(rewards, dim=1)[:, None] + 1e-4)
    groups = torch.arange(6).repeat_interleave(8)
    ours = group_relative(rewards.reshape(-1, 1), groups, deviation="sample", epsilon=1e-4)
    assert torch.allclose(ours.reshape(6, 8), theirs, atol=TOLERANCE, rtol=0)

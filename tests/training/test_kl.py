"""KL to a frozen policy: in the loss, in the rewards, against whom, and the controller of its coefficient."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from question_fakes import PENALTY, finished
from run_fakes import (
    Iteration,
    differences,
    distance,
    gradients,
    play_iteration,
    run_bytes,
    tiny_config,
    tiny_run,
)

from coplay.training.kl import adapt_coefficient, penalise
from coplay.training.log_probs import token_log_probs
from coplay.training.loop import train
from coplay.training.losses import KL_ESTIMATORS, kl_k1, kl_k2, kl_loss
from coplay.training.masked import masked_mean, masked_std
from coplay.training.messages import ConfigError, explain
from coplay.training.metrics import read_metrics
from coplay.training.objectives import KlSettings
from coplay.training.passes import all_log_probs, reading_of, token_passes
from coplay.training.recredit import load_iteration, recredit
from coplay.training.run import Run, resume_run

ADAPTIVE = {"kind": "adaptive", "target": 0.02, "horizon": 40}


def moved(folder: Path, changes: dict[str, Any], *, first: str = "shared") -> tuple[Run, Iteration]:
    """A run whose policy has left its reference, and what it plays then."""
    run = tiny_run(folder, changes)
    credit = play_iteration(run).credit(run)
    run.trainers[0].step(replace(credit, tokens=credit.tokens.sign() + 0.5), update=0, folder=folder)
    run.engine.publish(first)
    return run, play_iteration(run, 1)


def token_kl(run: Run, played: Iteration, kind: str) -> tuple[Any, torch.Tensor]:
    """The first policy's batch, and the KL of its tokens read by hand."""
    trainer = run.trainers[0]
    batch = trainer.batch(played.trajectories, played.table)
    assert batch is not None
    reading = reading_of(run.config.update)
    passes = token_passes(batch, trainer.policy, reading)
    own = all_log_probs(trainer.policy, passes, reading)
    with trainer.policy.reference():
        other = all_log_probs(trainer.policy, passes, reading)
    return batch, KL_ESTIMATORS[kind](own, other)


@given(st.floats(1e-4, 10), st.floats(0, 5), st.floats(1e-3, 5), st.floats(1, 1e5), st.integers(1, 500))
def test_coefficient_when_adapted_then_up_above_the_target_and_by_a_fifth_a_horizon_at_most(
    coefficient: float, kl: float, target: float, horizon: float, count: int
) -> None:
    new = adapt_coefficient(coefficient, kl, target=target, horizon=horizon, count=count)
    change = new / coefficient - 1
    assert change * (kl - target) >= -1e-12
    assert new > 0 and abs(change) <= 0.2 * min(count / horizon, 1) * (1 + 1e-6) + 1e-9
    if abs(kl / target - 1) <= 0.2:
        assert new == pytest.approx(coefficient * (1 + (kl / target - 1) * min(count / horizon, 1)))


def test_coefficient_when_worked_out_by_hand_then_so() -> None:
    assert adapt_coefficient(0.1, 9.0, target=6.0, horizon=100, count=50) == pytest.approx(0.11)
    assert adapt_coefficient(0.1, 5.4, target=6.0, horizon=100, count=50) == pytest.approx(0.095)
    assert adapt_coefficient(0.1, 0.0, target=6.0, horizon=100, count=50) == pytest.approx(0.09)
    assert adapt_coefficient(0.1, 0.0, target=6.0, horizon=10, count=512) == pytest.approx(0.08)


def test_k1_in_the_loss_when_differentiated_then_its_own_value_and_the_gradient_of_k2() -> None:
    reference = torch.tensor([-1.0, -2.0, -0.5])
    log_probs = torch.tensor([-1.5, -1.0, -0.4], requires_grad=True)
    value = kl_loss("k1", log_probs, reference)
    value.sum().backward()
    assert torch.allclose(value, kl_k1(log_probs, reference))
    other = log_probs.detach().clone().requires_grad_()
    kl_k2(other, reference).sum().backward()
    assert torch.equal(log_probs.grad, other.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_term_alone_when_stepped_then_the_distance_to_the_reference_shrinks_b65(kind: Any) -> None:
    """All tokens of a distribution, weighted by their probability at sampling: the gradient in the mean."""
    reference = torch.log_softmax(torch.tensor([0.0, 1.0, -1.0]), -1)
    logits = torch.tensor([1.0, -0.5, 0.3], requires_grad=True)

    def kl(scores: torch.Tensor) -> float:
        own = torch.log_softmax(scores, -1)
        return float((own.exp() * (own - reference)).sum())

    log_probs = token_log_probs(logits.expand(3, 3), torch.arange(3)).log_probs
    (log_probs.exp().detach() * kl_loss(kind, log_probs, reference)).sum().backward()
    assert logits.grad is not None and kl(logits.detach() - 0.1 * logits.grad) < kl(logits.detach())


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_rewards_when_lowered_then_by_each_ticks_own_sampled_tokens_and_no_one_else_is_told(
    tmp_path: Path, kind: str
) -> None:
    """Reward-to-go by hand: own credit has the KL in it, packets and what alignment multiplies have not."""
    estimator = {"kind": "returns", "discount": 0.5, "baseline": "none", "reward_scale": 5.0}
    shaping = {"kind": "advantage_alignment", "beta": 0.7}
    kl = PENALTY | {"kind": kind}
    run, played = moved(
        tmp_path, {"estimator": estimator, "shaping": shaping, "objective": {"kl": kl, "largest_gap": None}}
    )
    batch, values = token_kl(run, played, kind)
    assert float(values.abs().max()) > 1e-3
    ticks = torch.zeros_like(played.table.rewards)
    for path, tick, value in zip(batch.path, batch.tick, values.tolist(), strict=True):
        ticks[path, tick] += 0.5 * value
    lowered = played.table.rewards - ticks

    def to_go(rewards: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(rewards)
        for tick in range(rewards.shape[1]):
            for later in range(tick, rewards.shape[1]):
                total[:, tick] += 0.5 ** (later - tick) * rewards[:, later]
        return total

    assert torch.allclose(played.estimate.advantages, to_go(lowered), atol=1e-6)
    assert torch.allclose(played.estimate.exchanged, to_go(played.table.rewards), atol=1e-9)
    told = {packet.key: packet.advantages for packet in played.packets}
    plain = to_go(played.table.rewards)
    for row, key in enumerate(played.table.keys):
        assert told[key] == pytest.approx(plain[row].tolist(), abs=1e-9)
    free = tiny_run(tmp_path / "free", {"estimator": estimator, "shaping": shaping})
    free.policies["shared"].load_state(run.policies["shared"].state())
    free.policies["shared"].version = run.policies["shared"].version
    same = play_iteration(free, 1)
    term = played.credit(run).tokens - played.estimate.advantages[batch.path, batch.tick]
    without = same.credit(free).tokens - same.estimate.advantages[batch.path, batch.tick]
    assert torch.allclose(term, without, atol=1e-9), "the alignment term is that of the game's rewards"
    assert played.estimate.metrics["policy/shared/kl"] == pytest.approx(float(values.mean()), rel=1e-5)


def test_rewards_when_lowered_under_a_critic_then_its_targets_are(tmp_path: Path) -> None:
    estimator = {"kind": "critic", "reward_scale": 5.0, "gae_lambda": 1.0}
    changes = {"estimator": estimator, "objective": {"kl": PENALTY, "largest_gap": None}}
    run, played = moved(tmp_path, changes)
    penalty = penalise(run.trainers, played.trajectories, played.table)
    assert penalty is not None and float(penalty.ticks.abs().max()) > 1e-3
    lowered = played.table.rewards - penalty.ticks
    expected = lowered.clone()
    for tick in reversed(range(lowered.shape[1] - 1)):
        expected[:, tick] += 0.9 * expected[:, tick + 1]
    assert played.estimate.targets is not None
    assert torch.allclose(played.estimate.targets, expected, atol=1e-6)


def test_players_without_tokens_when_rewards_are_lowered_then_keep_theirs(tmp_path: Path) -> None:
    changes = {
        "agents.seats": {"Ada": "shared", "Bo": "tit_for_tat"},
        "objective": {"kl": PENALTY, "largest_gap": None},
    }
    run, played = moved(tmp_path, changes)
    penalty = penalise(run.trainers, played.trajectories, played.table)
    assert penalty is not None
    scripted = torch.tensor([key.player == "Bo" for key in played.table.keys])
    assert not penalty.ticks[scripted].any() and penalty.ticks[~scripted].any()
    assert tiny_run(tmp_path / "off").trainers and penalise([], played.trajectories, played.table) is None


def test_reinforce_plus_plus_when_put_together_then_whitened_returns_less_their_kl(tmp_path: Path) -> None:
    """arXiv 2501.03262: no group, KL in the reward, advantages whitened over the whole batch, PPO's clip."""
    changes = {
        "estimator": {"kind": "returns", "discount": 1.0, "baseline": "none", "reward_scale": 1.0},
        "shaping": {"kind": "independent", "whiten_after": "batch"},
        "objective": {"kind": "ppo", "kl": PENALTY, "largest_gap": None},
        "update.num_epochs": 2,
    }
    run, played = moved(tmp_path, changes)
    penalty = penalise(run.trainers, played.trajectories, played.table)
    assert penalty is not None
    lowered = played.table.rewards - penalty.ticks
    returns = lowered.flip(1).cumsum(1).flip(1)
    acted = played.table.acted
    white = (returns - masked_mean(returns, acted)) / (masked_std(returns, acted) + 1e-9)
    credit = played.credit(run)
    assert torch.allclose(credit.tokens, white[credit.batch.path, credit.batch.tick], atol=1e-6)
    assert run.trainers[0].step(credit, update=1, folder=tmp_path).metrics["steps"] == 2


def test_behaviour_when_the_kl_is_against_it_then_it_pulls_from_the_second_step_on(tmp_path: Path) -> None:
    kl = {"coefficient": 5.0, "against": "behaviour"}
    plain = tiny_run(tmp_path / "a", {"objective": {"kind": "ppo", "largest_gap": None}})
    held = tiny_run(tmp_path / "b", {"objective": {"kind": "ppo", "largest_gap": None, "kl": kl}})
    credit = play_iteration(plain).credit(plain)
    assert distance(gradients(plain, credit, tmp_path), gradients(held, credit, tmp_path)) <= 1e-3
    gone = []
    for run in (plain, held):
        steps = run.config.update.model_copy(update={"num_epochs": 8})
        run.trainers[0].config = run.config.model_copy(update={"update": steps})
        gone.append(run.trainers[0].step(credit, update=0, folder=tmp_path).metrics["approx_kl"])
    assert gone[1] < 0.7 * gone[0]


@pytest.mark.parametrize("place", ["loss", "reward"])
def test_adaptive_coefficient_when_a_run_is_stopped_and_resumed_then_as_never_stopped_law_8(
    tmp_path: Path, place: str
) -> None:
    kl = {"coefficient": 0.3, "place": place, "controller": ADAPTIVE}
    settings = {"objective": {"kl": kl, "largest_gap": None}, "update.num_updates": 4, "update.lr": 0.03}
    whole = tiny_run(tmp_path / "whole", settings)
    train(whole, lambda update, metrics: None)
    cut = tiny_run(tmp_path / "cut", settings)

    def stop(update: int, metrics: Any) -> None:
        if update == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(cut, stop)
    train(resume_run(cut.folder), lambda update, metrics: None)
    assert differences(run_bytes(whole.folder), run_bytes(cut.folder)) == []
    lines = list(read_metrics(whole.folder / "metrics.jsonl"))
    told = [line["policy/shared/kl_coefficient"] for line in lines]
    assert told[0] == 0.3 and len(set(told)) == 4
    for line, after in zip(lines, told[1:], strict=False):
        expected = adapt_coefficient(
            line["policy/shared/kl_coefficient"],
            line["policy/shared/kl"],
            target=0.02,
            horizon=40,
            count=line["policy/shared/trajectories"],
        )
        assert after == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kl", "sentence"),
    [
        (
            {"controller": {"kind": "adaptive", "target": 1.0, "horizon": 0}},
            r"'objective\.kl\.controller\.horizon' is 0; input should be greater than 0",
        ),
        (
            {"controller": {"kind": "adaptive", "target": 1.0}},
            r"'objective\.kl\.controller\.horizon' is missing",
        ),
        (
            {"controller": {"kind": "adapted"}},
            r"objective\.kl\.controller\.kind is 'adapted'; expected one of",
        ),
        ({"kind": "k4"}, r"'objective\.kl\.kind' is 'k4'"),
        (
            {"coefficient": 0.0, "controller": ADAPTIVE},
            r"'objective\.kl\.coefficient' is 0 and 'objective\.kl\.controller\.kind'",
        ),
        (
            {"place": "reward", "against": "behaviour"},
            r"'objective\.kl\.against' is 'behaviour' and .*'reward'",
        ),
    ],
)
def test_settings_when_wrong_then_the_sentence_names_their_key(
    tmp_path: Path, kl: dict[str, Any], sentence: str
) -> None:
    from pydantic import ValidationError

    from coplay.training.config import RunConfig

    with pytest.raises(ValidationError) as caught:
        tiny_config(tmp_path, {"objective.kl": kl})
    with pytest.raises(ConfigError, match=sentence):
        raise ConfigError(explain(caught.value, RunConfig))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"estimator": {"kind": "branches"}, "collect.branching": {"num_alternatives": 1}},
            "'estimator.kind' is 'branches'",
        ),
        (
            {"estimator": {"kind": "critic"}, "shaping": {"kind": "shared_reward"}},
            "'estimator.kind' is 'critic' and 'shaping.kind' is 'shared_reward'",
        ),
        (
            {
                "shaping": {"kind": "advantage_alignment", "past": {"kind": "expected"}},
                "collect.branching": {"num_alternatives": 1},
            },
            "'shaping.past.kind' is 'expected'",
        ),
    ],
)
def test_lowered_rewards_when_they_would_reach_others_or_shared_turns_then_refused(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=rf"'objective\.kl\.place' is 'reward'.*{sentence}"):
        tiny_config(tmp_path, changes | {"objective.kl": PENALTY})


def test_recredit_when_the_kl_is_left_out_then_as_if_it_had_not_been_there(tmp_path: Path) -> None:
    stored = load_iteration(finished(tmp_path, {"objective.kl": PENALTY, "objective.largest_gap": None}))
    own = recredit(stored, stored.config)
    assert own.estimate.penalty is not None and float(own.estimate.penalty.abs().max()) > 1e-6
    without = stored.config.objective.model_copy(update={"kl": None})
    free = recredit(stored, stored.config.model_copy(update={"objective": without}))
    assert free.estimate.penalty is None
    assert torch.equal(free.estimate.advantages, own.estimate.exchanged)
    assert torch.allclose(own.table.rewards + own.estimate.penalty, free.table.rewards)


def test_recredit_when_another_kl_lowers_rewards_then_refused_with_the_reason(tmp_path: Path) -> None:
    stored = load_iteration(finished(tmp_path, {"objective.kl": PENALTY, "objective.largest_gap": None}))
    plain = load_iteration(finished(tmp_path / "plain", {}))
    other = KlSettings.model_validate(PENALTY | {"coefficient": 1.0})
    for iteration, kl, had in ((stored, other, "another KL there"), (plain, other, "no KL in")):
        asked = iteration.config.objective.model_copy(update={"kl": kl})
        with pytest.raises(ConfigError, match=rf"the run had {had}.* was not measured.* --objective.kl null"):
            recredit(iteration, iteration.config.model_copy(update={"objective": asked}))
    forgotten = {key: replace(row, penalty=None) for key, row in stored.known.items()}
    with pytest.raises(ConfigError, match="stored without what its KL took off rewards"):
        recredit(replace(stored, known=forgotten), stored.config)

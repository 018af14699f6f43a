"""One optimiser step (B25, B27, B28, B63, B104)."""

import gc
import resource
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_fakes import distance, gradients, in_double, make_tree, play_iteration, reckon, tiny_run

from coplay.training.alignment import RatioGapError
from coplay.training.loop import train
from coplay.training.passes import ReadPlan
from coplay.training.records import TokenBatch
from coplay.training.run import Run
from coplay.training.trainer import Credit
from coplay.training.updates import StepPlan, policy_step


def plan(folder: Path, **changes: Any) -> StepPlan:
    numbers: dict[str, Any] = {
        "lr": 1e-2,
        "entropy_coefficient": 0.0,
        "gradient_clip": None,
        "reading": ReadPlan(micro_batch_tokens=10_000),
        "refused": folder / "refused.safetensors",
    }
    return StepPlan(**numbers | changes)


def without(batch: TokenBatch, dropped: torch.Tensor) -> TokenBatch:
    """The batch with some rows' tokens taken out; their rows stay."""
    keep = ~torch.isin(batch.row, dropped)
    per_token = ("row", "column", "targets", "behaviour", "temperature", "path", "tick", "turn", "place")
    fields = {name: getattr(batch, name)[keep] for name in (*per_token, "penalty", "entropy_mask")}
    return replace(batch, **fields, allowed=batch.allowed.select(keep.nonzero().squeeze(1)))


@pytest.mark.parametrize("importance", ["token", "turn", "sequence"])
def test_micro_batch_when_it_has_no_action_token_then_it_adds_nothing_b25(
    tmp_path: Path, importance: str
) -> None:
    run = tiny_run(
        tmp_path,
        {
            "objective": {
                "largest_gap": None,
                "importance": importance,
                "kl": {"coefficient": 0.1},
                "entropy_coefficient": 0.1,
            }
        },
    )
    in_double(run.policies["shared"])
    trees = [
        make_tree(
            {"Ada": [n], "Bo": [1.0]}, episode=f"e{n}", replies={"Ada": [int(10 + n)], "Bo": [int(15 + n)]}
        )
        for n in (1.0, 2.0)
    ]
    credit = reckon(run, trees).credit(run)
    assert len(credit.batch.ids) == 4
    fewer = without(credit.batch, torch.tensor([1, 2]))
    kept = ~torch.isin(credit.batch.row, torch.tensor([1, 2]))
    tokens = credit.tokens[kept]
    whole = gradients(run, replace(credit, batch=fewer, tokens=tokens), tmp_path)
    cut = gradients(run, replace(credit, batch=fewer, tokens=tokens), tmp_path, micro_batch_tokens=1)
    assert distance(whole, cut) <= 1e-6


def test_tokens_when_dropped_then_they_leave_the_numerator_and_the_count_b27(tmp_path: Path) -> None:
    """Six tokens of loss 1, two dropped: the mean of the other four is 1; a dropped credit of 1e30 is nothing."""
    run = tiny_run(tmp_path, {"objective.normaliser": "tokens"})
    trees = [
        make_tree({"Ada": [1.0], "Bo": [1.0]}, episode=f"e{n}", replies={"Ada": [10 + n], "Bo": [20 + n]})
        for n in range(3)
    ]
    credit = reckon(run, trees).credit(run)
    assert credit.batch.num_tokens == 6
    policy = run.policies["shared"]
    still = torch.optim.SGD(list(policy.named_parameters().values()), lr=0.0)

    def mean_loss(batch: TokenBatch, credits: torch.Tensor) -> float:
        result = policy_step(policy, still, batch, credits, run.config.objective, plan(tmp_path, lr=0.0))
        return result.metrics["loss"]

    result = policy_step(
        policy, still, credit.batch, credit.tokens, run.config.objective, plan(tmp_path, lr=0.0)
    )
    ones = -1.0 / (result.log_probs * result.weights)
    assert mean_loss(credit.batch, ones) == pytest.approx(1.0, rel=1e-4)
    dropped = credit.batch.row[4:]
    kept = ~torch.isin(credit.batch.row, dropped)
    assert int(kept.sum()) == 4
    ones[~kept] = 1e30
    assert mean_loss(without(credit.batch, dropped), ones[kept]) == pytest.approx(1.0, rel=1e-4)


def test_loss_when_cut_into_micro_batches_then_not_a_mean_of_means_b28(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"objective.normaliser": "tokens"})
    in_double(run.policies["shared"])
    trees = [
        make_tree({"Ada": [1.0] * 7, "Bo": [0.0] * 7}, episode="long"),
        make_tree({"Ada": [5.0], "Bo": [3.0]}, episode="short", replies={"Ada": [40], "Bo": [41]}),
    ]
    credit = reckon(run, trees).credit(run)
    one = gradients(run, credit, tmp_path)
    assert all(
        distance(one, gradients(run, credit, tmp_path, micro_batch_tokens=n)) <= 1e-6 for n in (1, 5, 30)
    )


def alike(run: Run) -> Credit:
    """Three games that all pay the same."""
    names = dict.fromkeys(("Ada", "Bo"), run.label("shared"))
    trees = [
        make_tree(
            {"Ada": [3.0], "Bo": [3.0]}, episode=f"e{n}", replies={"Ada": [10 + n], "Bo": [20]}, seats=names
        )
        for n in range(3)
    ]
    return reckon(run, trees).credit(run)


def test_weights_when_all_rewards_are_equal_then_stay_without_a_kl_term_b63(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "a")
    before = run.policies["shared"].state()
    credit = alike(run)
    assert not credit.tokens.any()
    run.trainers[0].step(credit, update=0, folder=tmp_path)
    after = run.policies["shared"].state()
    assert all(torch.equal(before[name], after[name]) for name in before)
    pulled = tiny_run(tmp_path / "b", {"objective.kl": {"coefficient": 0.1}})
    pulled.trainers[0].step(play_iteration(pulled).credit(pulled), update=0, folder=tmp_path)
    moved = pulled.policies["shared"].state()
    pulled.trainers[0].step(alike(pulled), update=1, folder=tmp_path)
    again = pulled.policies["shared"].state()
    assert any(not torch.equal(moved[name], again[name]) for name in moved), "the KL term is declared to act"


def test_importance_when_a_turn_has_several_tokens_then_the_turns_product(tmp_path: Path) -> None:
    game = {"kind": "trust_and_split", "wording": "terse", "num_rounds": 1, "max_message_characters": 9}
    run = tiny_run(
        tmp_path,
        {"game": game, "objective": {"importance": "turn", "importance_cap": None, "largest_gap": None}},
    )
    credit = play_iteration(run).credit(run)
    batch = replace(credit.batch, behaviour=credit.batch.behaviour - 0.1)
    policy = run.policies["shared"]
    still = torch.optim.SGD(list(policy.named_parameters().values()), lr=0.0)
    result = policy_step(policy, still, batch, credit.tokens, run.config.objective, plan(tmp_path, lr=0.0))
    counts = torch.bincount(batch.turn)[batch.turn]
    assert counts.max() > 1
    assert result.weights.tolist() == pytest.approx((0.1 * counts).exp().tolist(), rel=1e-3)


def test_gradient_when_clipped_then_its_norm_is_the_limit_and_the_metric_is_before(tmp_path: Path) -> None:
    run = tiny_run(tmp_path)
    credit = play_iteration(run).credit(run)
    policy = run.policies["shared"]
    still = torch.optim.SGD(list(policy.named_parameters().values()), lr=0.0)
    free = policy_step(
        policy, still, credit.batch, credit.tokens, run.config.objective, plan(tmp_path, lr=0.0)
    )
    cut = policy_step(
        policy,
        still,
        credit.batch,
        credit.tokens,
        run.config.objective,
        plan(tmp_path, lr=0.0, gradient_clip=0.01),
    )
    assert cut.metrics["gradient_norm"] == pytest.approx(free.metrics["gradient_norm"])
    norm = torch.stack(
        [p.grad.norm() for p in policy.named_parameters().values() if p.grad is not None]
    ).norm()
    assert float(norm) == pytest.approx(0.01, rel=1e-3)


def test_gradients_when_an_update_is_over_then_freed(tmp_path: Path) -> None:
    """Whole models would keep as much again as their weights while games are played."""
    run = tiny_run(tmp_path, {"update.num_updates": 1, "estimator": {"kind": "critic"}})
    train(run, lambda update, metrics: None)
    assert run.critic is not None
    for network in (run.policies["shared"], run.critic):
        assert all(tensor.grad is None for tensor in network.named_parameters().values())


def test_metrics_when_reported_then_plain_numbers_b104(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"update.num_updates": 1})
    heard: list[Mapping[str, float]] = []
    train(run, lambda update, metrics: heard.append(metrics))
    assert all(type(value) is float for value in heard[0].values())


@pytest.mark.slow
def test_memory_when_two_hundred_updates_are_made_then_flat_b104(tmp_path: Path) -> None:
    changes = {
        "update.num_updates": 200,
        "estimator": {"kind": "critic"},
        "storage.every": 0,
        "storage.checkpoint_every": 1000,
    }
    run = tiny_run(
        tmp_path, changes | {"objective": {"kl": {"coefficient": 0.1}, "entropy_coefficient": 0.1}}
    )
    seen: dict[int, tuple[int, int]] = {}

    def report(update: int, metrics: Mapping[str, float]) -> None:
        if update in (60, 199):
            gc.collect()
            tensors = sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())
            seen[update] = (tensors, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    train(run, report)
    assert seen[199][0] <= seen[60][0] + 5
    assert seen[199][1] <= 1.03 * seen[60][1]


def test_step_when_the_sampler_drew_from_another_distribution_then_refused_law_2(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"objective": {"largest_gap": 0.05}})
    played = play_iteration(run)
    credit = played.credit(run)
    before = run.policies["shared"].state()
    shifted = replace(credit, batch=replace(credit.batch, behaviour=credit.batch.behaviour - 0.06))
    with pytest.raises(RatioGapError, match=r"disagree by 0\.060 per token.*expected at most 0\.05"):
        run.trainers[0].step(shifted, update=0, folder=tmp_path)
    after = run.policies["shared"].state()
    assert all(torch.equal(before[name], after[name]) for name in before)
    run.trainers[0].step(credit, update=0, folder=tmp_path)

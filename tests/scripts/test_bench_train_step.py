"""The benchmark's baseline gives our loss and gradient, and its counts are those made by hand."""

from pathlib import Path

import pytest
import torch
from run_fakes import distance

from coplay.agents.base_model import load_base
from coplay.agents.policy import build_policies
from coplay.agents.settings import EmbeddedModel, FolderModel, FullWeights, PolicySettings
from coplay.scripts.bench_game import make_tiny_model
from coplay.scripts.bench_steps import CASES, ReferenceStep, played, single_decisions, some_rows, unmerged
from coplay.scripts.bench_work import Work, work_of
from coplay.training.objectives import ReinforceObjective
from coplay.training.passes import ReadPlan
from coplay.training.updates import StepPlan, policy_step

SMALL = EmbeddedModel(hidden=16, intermediate=24, num_layers=1, num_heads=2)
BASE = load_base(SMALL, seed=0)
POLICY = build_policies(BASE, {"bench": PolicySettings(weights=FullWeights())}, seed=0, keep_reference=False)[
    "bench"
]


def gradients() -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in POLICY.named_parameters().items() if p.grad is not None}


@pytest.mark.parametrize("wording", ["terse", "full"])
def test_reference_step_when_beside_ours_then_the_same_loss_and_gradient(
    wording: str, tmp_path: Path
) -> None:
    """With a grammar and without: both sides of the benchmark do the same work."""
    batch = played(BASE.chat, games=2, wording=wording, words=2)
    credits = torch.linspace(-1, 1, batch.num_tokens)
    POLICY.weights.model.zero_grad(set_to_none=True)  # type: ignore[attr-defined]
    loss = ReferenceStep(rows_at_a_time=3)(POLICY, unmerged(batch), credits)
    expected = gradients()
    plan = StepPlan(
        lr=0.0,
        entropy_coefficient=0.0,
        gradient_clip=None,
        reading=ReadPlan(micro_batch_tokens=999),
        refused=tmp_path / "refused",
    )
    still = torch.optim.SGD(list(POLICY.named_parameters().values()), lr=0.0)
    result = policy_step(POLICY, still, batch, credits, ReinforceObjective(largest_gap=None), plan)
    assert result.metrics["loss"] == pytest.approx(loss, rel=1e-4)
    assert distance(expected, gradients()) < 1e-5


def test_work_of_a_group_when_counted_then_its_prompt_once() -> None:
    """330 + 8 times 29 tokens, for nothing is read after the last reply token's predecessor."""
    work = work_of(single_decisions(BASE.chat))
    assert work.tokens == 330 + 8 * 29
    assert work.pairs == 330 * 331 // 2 + 8 * sum(range(331, 360))
    assert work.distributions == 1 + 8 * 29


def test_flop_when_counted_then_six_a_trained_parameter_and_token() -> None:
    """One layer: 4 square matrices of 16 and 3 of 16 x 24, and the head."""
    batch = single_decisions(BASE.chat)
    matrices = 4 * 16 * 16 + 3 * 16 * 24
    vocabulary = POLICY.vocabulary
    assert Work(tokens=2, pairs=3, distributions=5).flop(POLICY, batch) == (
        6 * matrices * 2 + 12 * 16 * 3 + 6 * 16 * vocabulary * 5
    )


def test_flop_when_the_head_is_the_embedding_then_it_is_trained_with_it(tmp_path: Path) -> None:
    make_tiny_model(tmp_path)
    base = load_base(FolderModel(path=str(tmp_path)), seed=0)
    made = {"whole": PolicySettings(weights=FullWeights()), "lora": PolicySettings()}
    policies = build_policies(base, made, seed=0, keep_reference=False)
    batch = single_decisions(BASE.chat)
    asked = {
        name: Work(tokens=0, pairs=0, distributions=1).flop(one, batch) for name, one in policies.items()
    }
    assert asked == {"whole": 6 * 128 * 512, "lora": 4 * 128 * 512}


def test_rows_when_every_other_is_taken_then_with_their_tokens() -> None:
    batch = single_decisions(BASE.chat)
    fewer = some_rows(batch, 2)
    assert len(fewer.ids) == 4
    assert torch.equal(fewer.targets, fewer.ids[fewer.row, fewer.column])
    assert set(CASES) == {"a", "b", "c", "d"}

"""What PPO minimises: where its gradient flows, what it equals in a single step, and its factors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from run_fakes import distance, gradients, in_double, make_tree, play_iteration, reckon, tiny_config, tiny_run

from coplay.scripts.settings import TRAINING, change_settings
from coplay.training.epochs import read_before
from coplay.training.importance import mean_ratios
from coplay.training.losses import normaliser, ppo_clip
from coplay.training.messages import ConfigError
from coplay.training.objectives import PpoObjective
from coplay.training.passes import ReadPlan
from coplay.training.run import Run
from coplay.training.trainer import Credit
from coplay.training.updates import StepPlan, policy_step

SPLIT = {
    "game": {"kind": "trust_and_split", "wording": "terse", "num_rounds": 2, "max_message_characters": 9}
}


def slope(ratio: float, credit: float, **bounds: Any) -> tuple[float, float]:
    """Loss of one token, and its derivative by the log-prob."""
    log_probs = torch.tensor([-1.3], dtype=torch.float64, requires_grad=True)
    settings = {"clip_low": 0.2, "clip_high": 0.2} | bounds
    loss = ppo_clip(log_probs, torch.tensor([ratio]).double(), torch.tensor([credit]).double(), **settings)
    loss.sum().backward()
    assert log_probs.grad is not None
    return float(loss.detach()), float(log_probs.grad)


@given(
    ratio=st.floats(0.01, 20),
    credit=st.floats(0.05, 5) | st.floats(-5, -0.05),
    low=st.floats(0.01, 1),
    high=st.floats(0.01, 2),
    dual=st.none() | st.floats(0.1, 5),
)
def test_gradient_when_a_bound_holds_then_none_else_the_surrogates(
    ratio: float, credit: float, low: float, high: float, dual: float | None
) -> None:
    """Over (sign, ratio): good tokens stop above 1 + high, bad ones below 1 - low and, with a dual clip, beyond it."""
    limit = None if dual is None else 1 + high + dual
    edges = [1 - low, 1 + high, *([] if limit is None else [limit])]
    if min(abs(ratio - edge) for edge in edges) < 1e-6:
        return
    held = ratio > 1 + high if credit > 0 else ratio < 1 - low or (limit is not None and ratio > limit)
    loss, gradient = slope(ratio, credit, clip_low=low, clip_high=high, dual_clip=limit)
    assert gradient == pytest.approx(0.0 if held else -ratio * credit)
    bound = ratio if not held else 1 + high if credit > 0 else 1 - low if ratio < 1 else limit
    assert loss == pytest.approx(-(bound or 0) * credit)


@pytest.mark.parametrize(("ratio", "flows"), [(0.5, False), (1.5, True)])
def test_gradient_when_the_credit_is_negative_then_it_flows_above_and_not_below(
    ratio: float, flows: bool
) -> None:
    """The defect of a trainer that clips the other side: it pushes ever unlikelier tokens further down."""
    assert bool(slope(ratio, -1.0)[1]) is flows


@pytest.mark.parametrize(
    ("ratio", "credit", "objective"), [(1.5, 2, 2.4), (1.5, -2, -3.0), (0.5, 2, 1.0), (0.5, -2, -1.6)]
)
def test_surrogate_when_worked_out_by_hand_then_so_g47(ratio: float, credit: float, objective: float) -> None:
    assert slope(ratio, credit)[0] == pytest.approx(-objective)


@given(st.floats(-1e30, 1e30) | st.just(float("nan")) | st.just(float("inf")))
def test_surrogate_when_a_token_is_masked_then_invisible_law_3(poison: float) -> None:
    log_probs = torch.tensor([-1.0, poison], requires_grad=True)
    ratios, credits = torch.tensor([1.1, poison]), torch.tensor([2.0, poison])
    mask = torch.tensor([True, False])
    loss = ppo_clip(log_probs, ratios, credits, clip_low=0.2, clip_high=0.2, dual_clip=3.0, mask=mask)
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([-2.2, 0.0])
    assert log_probs.grad is not None and log_probs.grad.tolist() == pytest.approx([-2.2, 0.0])


def test_ratio_when_over_a_unit_then_the_exponent_is_the_mean_of_its_tokens() -> None:
    gaps = torch.tensor([0.2, 0.4, -0.1, 0.5, 0.2], dtype=torch.float64)
    turns, rows = torch.tensor([7, 7, 3, 3, 3]), torch.tensor([1, 1, 0, 0, 0])
    old = torch.full_like(gaps, -2.0)
    by_turn = mean_ratios(old + gaps, old, unit="turn", turn_ids=turns)
    assert by_turn.log().tolist() == pytest.approx([0.3, 0.3, 0.2, 0.2, 0.2])
    whole = mean_ratios(old + gaps, old, unit="sequence", row_ids=torch.zeros(5, dtype=torch.long))
    assert whole.log().tolist() == pytest.approx([0.24] * 5)
    assert mean_ratios(old + gaps, old).log().tolist() == pytest.approx(gaps.tolist())
    assert mean_ratios(old + gaps, old, unit="sequence", row_ids=rows).tolist() == pytest.approx(
        by_turn.tolist()
    )


@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
@pytest.mark.parametrize("importance", ["token", "sequence"])
def test_ppo_when_there_is_one_step_then_its_gradient_is_reinforce(
    tmp_path: Path, ratio: str, importance: str
) -> None:
    """Whatever credits a trajectory has, and with the sampler off by a little."""
    run = tiny_run(tmp_path, SPLIT | {"objective": {"largest_gap": None, "importance": importance}})
    credit = play_iteration(run).credit(run)
    lots = torch.Generator().manual_seed(1)
    noise = 0.1 * torch.randn(credit.batch.num_tokens, generator=lots)
    credit = replace(credit, batch=replace(credit.batch, behaviour=credit.batch.behaviour + noise))
    plain = gradients(run, credit, tmp_path)
    run.config = run.config.model_copy(
        update={"objective": PpoObjective(ratio=ratio, importance=importance, largest_gap=None)}
    )
    assert distance(plain, gradients(run, credit, tmp_path)) <= 1e-6


def two_steps(run: Run, folder: Path) -> tuple[Credit, Any]:
    """A batch whose policy has moved since it was read."""
    credit = play_iteration(run).credit(run)
    plan = StepPlan(
        lr=0.3,
        entropy_coefficient=0.0,
        gradient_clip=None,
        reading=ReadPlan(micro_batch_tokens=10_000),
        refused=folder / "refused",
    )
    policy = run.policies["shared"]
    before = read_before(policy, credit.batch, run.config.objective, plan)
    mover = torch.optim.SGD(list(policy.named_parameters().values()), lr=1.0)
    policy_step(policy, mover, credit.batch, credit.tokens, run.config.objective, plan, before=before)
    return credit, before


@pytest.mark.parametrize("normalising", ["trajectories", "sequence"])
@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
def test_later_step_when_cut_into_micro_batches_then_the_same_law_4(
    tmp_path: Path, ratio: str, normalising: str
) -> None:
    objective = {"kind": "ppo", "ratio": ratio, "largest_gap": None, "normaliser": normalising}
    run = tiny_run(tmp_path, SPLIT | {"objective": objective})
    in_double(run.policies["shared"])
    credit, before = two_steps(run, tmp_path)
    policy, found = run.policies["shared"], []
    for tokens in (10_000, 1):
        still = torch.optim.SGD(list(policy.named_parameters().values()), lr=0.0)
        plan = StepPlan(
            lr=0.0,
            entropy_coefficient=0.0,
            gradient_clip=None,
            reading=ReadPlan(micro_batch_tokens=tokens),
            refused=tmp_path / "refused",
        )
        result = policy_step(
            policy, still, credit.batch, credit.tokens, run.config.objective, plan, before=before
        )
        gradient = {n: p.grad.clone() for n, p in policy.named_parameters().items() if p.grad is not None}
        found.append((gradient, result.metrics))
    assert distance(found[0][0], found[1][0]) <= 1e-6
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-5, abs=1e-6)
    assert found[0][1]["approx_kl"] > 0 and found[0][1]["ratio"] != pytest.approx(1.0, abs=1e-4)


def test_importance_when_old_and_sampler_differ_then_a_factor_fixed_before_the_first_step(
    tmp_path: Path,
) -> None:
    objective = {"kind": "ppo", "largest_gap": None, "importance_cap": 1.5}
    run = tiny_run(tmp_path, {"objective": objective})
    credit = play_iteration(run).credit(run)
    shifted = replace(credit.batch, behaviour=credit.batch.behaviour - 0.3)
    run.trainers[0].config = run.config.model_copy(
        update={"update": run.config.update.model_copy(update={"num_epochs": 3})}
    )
    result = run.trainers[0].step(replace(credit, batch=shifted), update=0, folder=tmp_path)
    assert result.weights.tolist() == pytest.approx([1.34986] * len(result.weights), rel=1e-3)
    assert result.metrics["steps"] == 3 and result.metrics["approx_kl"] > 0
    capped = replace(credit.batch, behaviour=credit.batch.behaviour - 1.0)
    again = run.trainers[0].step(replace(credit, batch=capped), update=1, folder=tmp_path)
    assert float(again.weights.max()) == 1.5


def test_normalisers_when_worked_out_by_hand_then_so() -> None:
    counts = {"num_trajectories": 4, "num_tokens": 30.0}
    assert normaliser("trajectories", **counts) == normaliser("sequence", **counts) == 4
    assert normaliser("tokens", **counts) == 30
    assert normaliser("constant", **counts, constant_length=16) == 64
    with pytest.raises(ValueError, match="got no constant_length"):
        normaliser("constant", **counts)


@pytest.mark.parametrize("kind", ["sequence", "tokens", "constant", "trajectories"])
def test_loss_when_normalised_then_means_as_declared(tmp_path: Path, kind: str) -> None:
    """Two games of Ada's of 1 and 3 tokens: every token's own loss, averaged as each normaliser says."""
    objective = {"largest_gap": None, "normaliser": kind, "importance": "none"}
    if kind == "constant":
        objective["constant_length"] = 10
    run = tiny_run(tmp_path, {"objective": objective})
    trees = [
        make_tree({"Ada": [1.0], "Bo": [0.0]}, episode="short", silent=("Bo",)),
        make_tree({"Ada": [1.0] * 3, "Bo": [0.0] * 3}, episode="long", silent=("Bo",)),
    ]
    credit = reckon(run, trees).credit(run)
    credit = replace(credit, tokens=torch.tensor([1.0, 2.0, 3.0, -1.0]))
    policy = run.policies["shared"]
    still = torch.optim.SGD(list(policy.named_parameters().values()), lr=0.0)
    plan = StepPlan(
        lr=0.0,
        entropy_coefficient=0.0,
        gradient_clip=None,
        reading=ReadPlan(micro_batch_tokens=10_000),
        refused=tmp_path / "refused",
    )
    result = policy_step(policy, still, credit.batch, credit.tokens, run.config.objective, plan)
    losses = -credit.tokens * result.log_probs
    by_game = [losses[credit.batch.path == path] for path in torch.unique(credit.batch.path)]
    expected = {
        "sequence": sum(float(one.mean()) for one in by_game) / 2,
        "tokens": float(losses.mean()),
        "constant": float(losses.sum()) / 20,
        "trajectories": float(losses.sum()) / 2,
    }[kind]
    assert sorted(map(len, by_game)) == [1, 3]
    assert result.metrics["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"objective": {"kind": "ppo", "dual_clip": 1.1}},
            r"'objective\.dual_clip' is 1\.1 .* above 1 \+ clip",
        ),
        (
            {"objective": {"normaliser": "constant"}},
            r"'objective\.normaliser' is 'constant' and .*constant_len",
        ),
        (
            {"objective": {"constant_length": 5}},
            r"'objective\.normaliser' is 'trajectories' and .*_length' is 5",
        ),
        (
            {"update": {"critic_warmup": 2}},
            r"'update\.critic_warmup' is 2 and 'estimator\.kind' is 'returns'",
        ),
        (
            {"update": {"critic_warmup": 3, "num_updates": 3}, "estimator": {"kind": "critic"}},
            r"'update\.critic_warmup' is 3 of 3 updates",
        ),
        ({"update": {"max_kl": 0.1}}, r"'update\.max_kl' is 0\.1 and an update has a single step"),
        (
            {
                "objective": {"normaliser": "sequence"},
                "estimator": {"kind": "branches"},
                "collect.branching": {"num_alternatives": 1},
            },
            r"'objective\.normaliser' is 'sequence' and 'estimator\.kind' is 'branches'",
        ),
        (
            {
                "estimator": {"kind": "grpo"},
                "shaping": {"kind": "advantage_alignment", "past": {"kind": "expected"}},
                "collect.branching": {"num_alternatives": 1},
            },
            r"'estimator\.kind' is 'grpo', whose advantage is one of the whole game",
        ),
    ],
)
def test_settings_when_they_do_not_go_together_then_refused(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((ConfigError, ValueError), match=sentence):
        tiny_config(tmp_path, changes)


@pytest.mark.parametrize(
    ("flags", "objective", "estimator"),
    [
        ("--objective.kind ppo", "ppo", "returns"),
        ("--estimator.kind grpo", "reinforce", "grpo"),
        ("--estimator.kind grpo --objective.kind ppo --objective.clip-high 0.3", "ppo", "grpo"),
    ],
)
def test_kind_when_changed_by_one_flag_then_the_shipped_run_keeps_what_both_kinds_have(
    flags: str, objective: str, estimator: str
) -> None:
    own = TRAINING.read("dilemma_independent", [])
    config = TRAINING.read("dilemma_independent", flags.split())
    assert (config.objective.kind, config.estimator.kind) == (objective, estimator)
    assert config.objective.entropy_coefficient == own.objective.entropy_coefficient
    assert (config.estimator.discount, config.estimator.reward_scale) == (0.9, 5.0)
    assert getattr(config.objective, "clip_high", 0.2) == (0.3 if "clip" in flags else 0.2)
    changed = change_settings(own, [(["objective", "kl", "kind"], "k1")])
    assert changed.objective.kl is not None and changed.objective.kl.coefficient == 0.1
    again = change_settings(changed, [(["objective", "kl", "coefficient"], 0.5)])
    assert again.objective.kl == changed.objective.kl.model_copy(update={"coefficient": 0.5})
    third = change_settings(again, [(["objective", "kl", "kind"], "k2")])
    assert third.objective.kl == again.objective.kl.model_copy(update={"kind": "k2"})

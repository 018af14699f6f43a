"""Learning from branches: every reply against its siblings, earlier turns against the mean over the fork (rule 11)."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from branch_fakes import Tabular, play_branches
from branched_trees import asymmetric, branch
from enumeration import GAMES, assert_unbiased, exact_gradient, measured_gradient
from pydantic import ValidationError
from run_fakes import (
    differences,
    gradients,
    in_double,
    make_tree,
    run_bytes,
    table_of,
    tiny_config,
    tiny_run,
    unmerged,
)

from coplay.rollout_tree import BranchPlan, RolloutTree, branch_steps
from coplay.training.differences import compare_credits
from coplay.training.estimators import estimate
from coplay.training.extract import extract, tick_table
from coplay.training.loop import train
from coplay.training.metrics import read_metrics
from coplay.training.packets import make_packets
from coplay.training.records import PathKey, TickTable
from coplay.training.recredit import load_iteration, recredit
from coplay.training.run import resume_run
from coplay.training.schemes import BranchesEstimator, ReturnsEstimator
from coplay.training.stages import collect_rollouts, estimate_advantages, lay_out, read_critic

UNDISCOUNTED = BranchesEstimator(discount=1.0)


def by_turn(table: TickTable, key: PathKey, estimated) -> list[tuple[float, float, float]]:
    """Return, baseline and weight of each turn of a path."""
    row = table.keys.index(key)
    found = estimated.turns
    return [
        (float(found.returns[row, k]), float(found.baseline[row, k]), float(found.weights[row, k]))
        for k in (0, 1)
    ]


def table_with_branches(trees: list[RolloutTree]) -> TickTable:
    return tick_table(extract(trees, branches=True), reward_scale=1.0, has_chance=True)


def test_alternatives_when_regrouped_then_the_numbers_done_by_hand_g53() -> None:
    """Bo's fork: (4 + 8) / 2 = 6 for Ada, (2 + 6) / 2 = 4 for Bo. Ada's: 7, 1, 2, 10 for her; 4, 6, 0, 4 for Bo."""
    table = table_with_branches(asymmetric())
    found = estimate(UNDISCOUNTED, table, running_means={})
    ada = {
        name: by_turn(table, PathKey("e0", name, "Ada"), found)
        for name in ("", *(f"s0.Ada.{n}" for n in (1, 2, 3)))
    }
    bo = {name: by_turn(table, PathKey("e0", name, "Bo"), found) for name in ("", "s0.Ada.1", "s1.Bo.1")}
    approx = pytest.approx
    assert ada[""] == [approx((7.0, 13 / 3, 1 / 4)), approx((6.0, 1.0, 1 / 4))]
    assert ada["s0.Ada.1"] == [approx((1.0, 19 / 3, 1 / 4)), approx((0.0, 1.0, 1 / 4))]
    assert ada["s0.Ada.2"][0] == approx((2.0, 18 / 3, 1 / 4))
    assert ada["s0.Ada.3"][0] == approx((10.0, 10 / 3, 1 / 4))
    assert bo[""] == [approx((14 / 4, 1.0, 1.0)), approx((2.0, 6.0, 1 / 8))]
    assert bo["s1.Bo.1"][1] == approx((6.0, 2.0, 1 / 8))
    assert bo["s0.Ada.1"] == [(0.0, 0.0, 0.0), approx((6.0, 0.5, 1 / 4))]  # held: it trains on the main line
    other = table.keys.index(PathKey("e1", "", "Ada"))
    assert found.returns[other].tolist() == [3.0, 1.0]
    assert found.baseline[other].tolist() == [approx(20 / 4), approx(6.0)]  # e0 averaged over its forks


def test_round_when_it_forks_in_its_middle_then_the_turn_before_uses_the_mean_over_the_fork() -> None:
    """Rule 11 within a tick: 1 + 3 was taken, 1 + 7 was the alternative; Ada's first turn has (4 + 8) / 2."""
    tree = make_tree({"Ada": [1.0, 3.0], "Bo": [0.0, 0.0]}, episode="e0", ticks=(0, 0))
    tree = branch(tree, 1, "Ada", [{"Ada": 7.0, "Bo": 2.0}], 1)
    table = table_with_branches(
        [tree, make_tree({"Ada": [2.0, 0.0], "Bo": [0.0] * 2}, episode="e1", ticks=(0, 0))]
    )
    found = estimate(UNDISCOUNTED, table, running_means={})
    assert by_turn(table, PathKey("e0", "", "Ada"), found) == [(6.0, 2.0, 1.0), (4.0, 8.0, 0.5)]
    assert by_turn(table, PathKey("e0", "s1.Ada.1", "Ada"), found) == [(0.0, 0.0, 0.0), (8.0, 4.0, 0.5)]
    assert by_turn(table, PathKey("e0", "", "Bo"), found) == [(1.0, 0.0, 1.0), (1.0, 0.0, 1.0)]


def test_ticks_when_packets_carry_them_then_along_each_path_with_the_groups_baseline() -> None:
    """Before the fork a branch has the main line's advantages; from it on its own."""
    table = table_with_branches(asymmetric())
    found = estimate(UNDISCOUNTED, table, running_means={})
    packets = {packet.key: packet.advantages.tolist() for packet in make_packets(table, found.advantages)}
    assert packets[PathKey("e0", "", "Ada")] == [7.0 - 3.0, 4.0 - 1.0]
    assert packets[PathKey("e0", "s1.Bo.1", "Ada")] == [7.0 - 3.0, 8.0 - 1.0]
    assert packets[PathKey("e0", "s0.Ada.3", "Bo")] == [4.0 - 1.0, 4.0 - 0.5]


def test_trees_when_steps_come_in_another_order_then_the_same_estimate() -> None:
    trees = asymmetric()
    mixed = [replace(tree, steps=tuple(reversed(tree.steps))) for tree in reversed(trees)]
    one, other = (
        estimate(UNDISCOUNTED, table_with_branches(some), running_means={}) for some in (trees, mixed)
    )
    assert one.turns is not None and other.turns is not None
    assert torch.equal(one.advantages, other.advantages) and torch.equal(
        one.turns.weights, other.turns.weights
    )
    assert torch.equal(one.turns.advantages, other.turns.advantages)


def test_estimate_when_nothing_branches_then_that_of_returns() -> None:
    trees = [make_tree({"Ada": [n, 1.0], "Bo": [1.0, n]}, episode=f"e{n}") for n in (1.0, 2.0, 4.0)]
    _, table = table_of(*trees)
    one = estimate(BranchesEstimator(), table, running_means={})
    other = estimate(ReturnsEstimator(), table, running_means={})
    assert one.turns is None and one.running_means == other.running_means
    assert torch.allclose(one.advantages, other.advantages)


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize(
    "plan", [BranchPlan(num_alternatives=2), BranchPlan(share=0.5, num_alternatives=3), BranchPlan(every=2)]
)
def test_gradient_when_summed_over_the_tree_then_unbiased(name: str, plan: BranchPlan) -> None:
    """Weights, regrouping, held turns and rounds together: the expectation is the exact policy gradient."""
    game, chances = GAMES[name]
    trees = play_branches(game, lambda seat: Tabular(seat, chances), branching=plan, group_size=300)
    found = measured_gradient(trees, game, chances, discount=0.8)
    assert all(abs(share - 1) < 1e-9 for share in found.shares.values())
    assert_unbiased(found, exact_gradient(game, chances, 0.8))


BRANCHES = {
    "estimator": {"kind": "branches"},
    "collect.branching.num_alternatives": 2,
    "collect.branching.share": 0.7,
    "objective.largest_gap": 1e-3,
    "collect.num_groups": 1,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "shaping": {"kind": "advantage_alignment"},
            "objective.entropy_coefficient": {"kind": "constant", "level": 0.1},
        },
        {
            "game": {"kind": "trust_and_split", "wording": "terse", "num_rounds": 2},
            "objective.kl": {"coefficient": 0.1},
        },
        {
            "agents.seats": {"Bo": "random"},
            "shaping": {"kind": "shared_reward"},
            "objective.visitation": True,
        },
        {
            "game.players": ["Ada", "Bo", "Cy"],
            "shaping": {"kind": "advantage_alignment"},
            "collect.group_size": 1,
        },
    ],
)
def test_run_when_trained_on_branches_then_ratio_one_and_its_credit_comes_back(
    changes, tmp_path: Path
) -> None:
    """Law 2 holds on the tokens of branches; `recredit` gives the stored credit of all paths bit for bit."""
    run = tiny_run(tmp_path, BRANCHES | changes)
    train(run, lambda update, values: None)
    for metrics in read_metrics(run.folder / "metrics.jsonl"):
        assert metrics["policy/shared/ratio_gap_max"] < 1e-4
        assert metrics["credit/forks"] > 0 and metrics["rollout/count/branches"] > 0
    stored = load_iteration(run.folder)
    assert any(key.branch for key, _ in stored.credits)
    assert all(one.identical for one in compare_credits(stored, recredit(stored, stored.config)))


def test_run_when_resumed_then_equal_to_one_that_never_stopped(tmp_path: Path) -> None:
    """Law 8 with branches: rollout tables, metrics and weights, byte for byte."""
    run = tiny_run(tmp_path, BRANCHES)
    train(run, lambda update, values: None)
    whole = run_bytes(run.folder)
    for name in ("000002", "000003"):
        shutil.rmtree(run.folder / "checkpoints" / name)
    train(resume_run(run.folder), lambda update, values: None)
    assert differences(whole, run_bytes(run.folder)) == []


def test_main_lines_when_a_run_asks_for_branches_then_the_same_games(tmp_path: Path) -> None:
    """Branches change no draw; with another estimator they are kept and not trained on."""
    plain = tiny_run(tmp_path / "a")
    bushy = tiny_run(tmp_path / "b", {"collect.branching": {"num_alternatives": 2}})
    one, other = collect_rollouts(plain, 0), collect_rollouts(bushy, 0)
    assert all(branch_steps(tree) for tree in other)
    assert one == [replace(tree, steps=tuple(s for s in tree.steps if not s.branch)) for tree in other]
    for run in (plain, bushy):
        train(run, lambda update, values: None)
    weights = [run.policies["shared"].named_parameters() for run in (plain, bushy)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_gradient_when_rows_or_micro_batches_are_cut_otherwise_then_the_same(tmp_path: Path) -> None:
    """Law 4 with weights."""
    run = tiny_run(tmp_path, BRANCHES)
    trees = collect_rollouts(run, 0)
    trajectories = extract(trees, branches=True)
    table = lay_out(run, trajectories)
    found = estimate_advantages(run, table, read_critic(run, trajectories, table), update=0)
    credit = run.trainers[0].credit(
        trajectories, table, found, make_packets(table, found.advantages), update=0
    )
    assert credit is not None and credit.batch.weight is not None
    seats = len(trees) * len(run.game.spec.players)
    assert credit.batch.num_trajectories == seats
    assert credit.batch.total_weight == pytest.approx(seats * 3)  # one token a turn, three turns a game
    in_double(run.policies["shared"])
    whole = gradients(run, credit, tmp_path)
    for batch, changes in ((credit.batch, {"micro_batch_tokens": 1}), (unmerged(credit.batch), {})):
        parts = gradients(run, replace(credit, batch=batch), tmp_path, **changes)
        assert all(torch.allclose(whole[name], parts[name], atol=1e-9) for name in whole)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"estimator": {"kind": "branches"}},
            "no branches are played; expected a section 'collect.branching'",
        ),
        ({**BRANCHES, "collect.branching.horizon": 2}, "without a critic nothing says what lies beyond"),
        ({"collect.branching": {"horizon": 1}}, "without a critic nothing says what lies beyond"),
        (
            {**BRANCHES, "collect.branching.players": ["Adda"]},
            "names 'Adda'; expected some of 'Ada', 'Bo'.*'Ada'",
        ),
        ({**BRANCHES, "shaping.whiten_after": "batch"}, "'shaping.whiten_after' is 'batch'"),
        ({**BRANCHES, "collect.branching.share": 0}, "greater than 0"),
    ],
)
def test_settings_when_they_do_not_go_together_then_one_sentence(changes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=words):
        tiny_config(tmp_path, changes)

"""Learning from forks that are chosen by what is known, paid for by tokens, nested, or cut at a horizon (rule 11)."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from branch_fakes import Tabular, play_branches
from branched_trees import grow
from enumeration import GAMES, assert_unbiased, exact_gradient, measured_gradient, misses
from pydantic import ValidationError
from run_fakes import differences, make_tree, run_bytes, tiny_config, tiny_run

from coplay.games import make_game
from coplay.rollout_tree import BranchPlan, RolloutTree, ValueRow, forks
from coplay.training.estimators import CriticNotApplicableError, estimate
from coplay.training.extract import extract, tick_table
from coplay.training.loop import train
from coplay.training.metrics import read_metrics
from coplay.training.packets import make_packets
from coplay.training.records import Estimate, PathKey, TickTable, TickValues
from coplay.training.run import resume_run
from coplay.training.schemes import BranchesEstimator, CriticLearning
from coplay.training.stages import collect_rollouts, estimate_advantages, lay_out, read_critic

SHORT = {
    "two": GAMES["two"],
    "three": GAMES["three"],
    "rounds": GAMES["rounds"],
    "long": (make_game("iterated_matrix", num_rounds=3, wording="terse"), GAMES["two"][1]),
}


def judged(rows: list[ValueRow]) -> list[list[float]]:
    """A critic of sorts: any function of a player's context."""
    return [[sum(row.ids[: place + 1]) * 7919 % 13 / 13 for place in row.positions] for row in rows]


def wordy(chances):
    return lambda seat: Tabular(seat, chances, wordy=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two", "three", "rounds"])
@pytest.mark.parametrize(
    "plan",
    [
        BranchPlan(depth=2),
        BranchPlan(depth=3, share=0.4, num_alternatives=2, fresh_luck=True),
        BranchPlan(min_entropy=0.62, num_alternatives=2),
        BranchPlan(max_value=0.5, depth=2, num_alternatives=2),
        BranchPlan(max_branch_tokens=6, depth=2),
        BranchPlan(max_branches=5, depth=2, num_alternatives=2),
    ],
)
def test_gradient_when_forks_are_chosen_paid_or_nested_then_unbiased(name: str, plan: BranchPlan) -> None:
    """The expectation is the exact policy gradient; replies of one label cost four times those of the other."""
    game, chances = SHORT[name]
    trees = play_branches(game, wordy(chances), branching=plan, group_size=300, values=judged)
    found = measured_gradient(trees, game, chances, discount=0.8)
    assert all(abs(share - 1) < 1e-9 for share in found.shares.values())
    assert_unbiased(found, exact_gradient(game, chances, 0.8))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("long", BranchPlan(horizon=1, num_alternatives=2)),
        ("long", BranchPlan(horizon=2, depth=2)),
        ("long", BranchPlan(horizon=2, depth=3, share=0.6, num_alternatives=2)),
        ("three", BranchPlan(horizon=1, num_alternatives=3)),
        ("rounds", BranchPlan(horizon=1, depth=2)),
    ],
)
def test_gradient_when_lines_are_cut_at_a_horizon_then_unbiased_under_a_perfect_critic(name, plan) -> None:
    """All siblings are cut at one tick with V there."""
    game, chances = SHORT[name]
    trees = play_branches(game, lambda seat: Tabular(seat, chances), branching=plan, group_size=250)
    exact = exact_gradient(game, chances, 0.8)
    found = measured_gradient(trees, game, chances, discount=0.8, values=1.0)
    assert all(abs(share - 1) < 1e-9 for share in found.shares.values())
    assert_unbiased(found, exact)


@pytest.mark.slow
def test_gradient_when_the_critic_is_wrong_then_the_measurement_says_so() -> None:
    """What the test above calls unbiased could have been otherwise: V counts, with its sign and size."""
    game, chances = SHORT["long"]
    plan = BranchPlan(horizon=1, num_alternatives=2)
    trees = play_branches(game, lambda seat: Tabular(seat, chances), branching=plan, group_size=400)
    found = measured_gradient(trees, game, chances, discount=0.8, values=-3.0)
    assert list(misses(found, exact_gradient(game, chances, 0.8)))


def by_turn(table: TickTable, found: Estimate, branch: str, player: str) -> list[tuple[float, float, float]]:
    """Return, baseline and weight of each turn of a path that trains there."""
    row = table.keys.index(PathKey("e0", branch, player))
    assert found.turns is not None
    parts = (found.turns.returns, found.turns.baseline, found.turns.weights)
    cells = [
        tuple(float(part[row, place]) for part in parts) for place in range(found.turns.weights.shape[1])
    ]
    return [cell for cell in cells if cell[2]]


def test_alternatives_when_nested_then_the_numbers_done_by_hand_g53() -> None:
    """Ada's first alternative forks again, by Bo: 1 + (0 + 3 + 6) / 3 = 4 for her, beside 5, 2 and 10."""
    tree = make_tree({"Ada": [1.0, 4.0], "Bo": [0.0, 2.0]}, episode="e0")
    for ada, bo in ((1.0, 6.0), (2.0, 0.0), (10.0, 4.0)):
        tree = grow(tree, "", 0, "Ada", [{"Ada": ada, "Bo": 0.0}, {"Ada": 0.0, "Bo": bo}])
    for ada, bo in ((3.0, 0.0), (6.0, 3.0)):
        tree = grow(tree, "s0.Ada.1", 1, "Bo", [{"Ada": ada, "Bo": bo}])
    tree = replace(tree, steps=tuple(reversed(tree.steps)))
    assert [(fork.step.branch, fork.player) for fork in forks(tree)] == [("", "Ada"), ("s0.Ada.1", "Bo")]
    trees = [make_tree({"Ada": [2.0, 1.0], "Bo": [0.5, 0.5]}, episode="e1"), tree]
    table = tick_table(extract(trees, branches=True), reward_scale=1.0, has_chance=True)
    found = estimate(BranchesEstimator(discount=1.0), table, running_means={})
    approx = pytest.approx
    assert by_turn(table, found, "", "Ada") == [approx((5, 16 / 3, 1 / 4)), approx((4, 1, 1 / 4))]
    assert by_turn(table, found, "s0.Ada.1", "Ada") == [approx((4, 17 / 3, 1 / 4)), approx((3, 1, 1 / 4))]
    assert by_turn(table, found, "s0.Ada.3", "Ada")[0] == approx((10, 11 / 3, 1 / 4))
    assert by_turn(table, found, "", "Bo") == [approx((9 / 4, 1, 1)), approx((2, 0.5, 1 / 4))]
    assert by_turn(table, found, "s0.Ada.1", "Bo") == [approx((6, 1.5, 1 / 12))]
    assert by_turn(table, found, "s0.Ada.1/s1.Bo.1", "Bo") == [approx((0, 4.5, 1 / 12))]
    assert by_turn(table, found, "s0.Ada.1/s1.Bo.2", "Bo") == [approx((3, 3, 1 / 12))]
    assert by_turn(table, found, "s0.Ada.1/s1.Bo.2", "Ada") == []  # held: it trains on the line that forks
    other = table.keys.index(PathKey("e1", "", "Ada"))
    assert found.baseline[other].tolist() == [approx(21 / 4), approx(4.0)]
    packets = {one.key: one.advantages.tolist() for one in make_packets(table, found.advantages)}
    assert packets[PathKey("e0", "s0.Ada.1/s1.Bo.2", "Ada")] == [approx(4 - 3), approx(6 - 1)]


def cut_short() -> tuple[RolloutTree, TickTable, TickValues]:
    """Two forks of Ada's, each cut after two ticks, and what a critic reads."""
    tree = make_tree({"Ada": [1.0, 4.0, 2.0], "Bo": [0.0] * 3}, episode="e0")
    gains = [[3.0, 0.0], [0.0]]
    for rewards, status in zip(gains, ("truncated", "terminated"), strict=True):
        told = [{"Ada": reward, "Bo": 0.0} for reward in rewards]
        tree = grow(tree, "", 0, "Ada", told, last_tick=1, status=status)
    tree = grow(tree, "", 1, "Ada", [{"Ada": 5.0, "Bo": 0.0}, {"Ada": 7.0, "Bo": 0.0}], last_tick=2)
    table = tick_table(extract([tree], branches=True), reward_scale=1.0, has_chance=True)
    values = torch.where(table.mask, 0.0, float("nan")).double()
    for branch, value in (("", 10.0), ("s1.Ada.1", 4.0)):
        values[table.keys.index(PathKey("e0", branch, "Ada")), 2] = value
    bootstrap = torch.zeros(len(table.keys), dtype=torch.double)
    bootstrap[table.keys.index(PathKey("e0", "s0.Ada.1", "Ada"))] = 20.0
    return tree, table, TickValues(values=values, bootstrap=bootstrap)


def test_lines_when_cut_at_a_horizon_then_the_numbers_done_by_hand() -> None:
    """Cut after tick 1, the taken line has 1 + (9 + 7) / 4 = 5: its own later fork averaged, V = 10 and 4 beyond."""
    _, table, values = cut_short()
    settings = BranchesEstimator(discount=0.5, critic=CriticLearning())
    found = estimate(settings, table, running_means={}, values=values)
    approx = pytest.approx
    assert by_turn(table, found, "", "Ada") == [
        approx((5, 4, 1 / 3)), approx((5, 8.5, 1 / 6)), approx((2, 0, 1 / 2)),
    ]  # fmt: skip
    assert by_turn(table, found, "s0.Ada.1", "Ada") == [approx((8, 2.5, 1 / 3)), approx((10, 0, 1 / 3))]
    assert by_turn(table, found, "s0.Ada.2", "Ada") == [approx((0, 6.5, 1 / 3))]
    assert by_turn(table, found, "s1.Ada.1", "Ada") == [approx((8.5, 5, 1 / 6)), approx((7, 0, 1 / 2))]
    main = table.keys.index(PathKey("e0", "", "Ada"))
    assert found.targets is not None and found.state_weights is not None
    assert found.targets[main].tolist() == [approx(1 + 6.75 / 2), approx(5), approx(2)]
    assert found.state_weights[main].tolist() == [approx(1), approx(1 / 3), approx(1 / 2)]
    branch = table.keys.index(PathKey("e0", "s0.Ada.1", "Ada"))
    assert found.state_weights[branch].tolist() == [0, approx(1 / 3), 0]


def test_lines_when_cut_and_no_critic_says_what_lies_beyond_then_refused() -> None:
    _, table, values = cut_short()
    with pytest.raises(ValueError, match="cut after tick 1 and no critic says what lies beyond"):
        estimate(BranchesEstimator(), table, running_means={}, values=values)
    gap = replace(values, values=values.values.clone().index_fill_(1, torch.tensor([1]), float("nan")))
    with pytest.raises(CriticNotApplicableError, match="has no reply at tick 1"):
        estimate(BranchesEstimator(critic=CriticLearning()), table, running_means={}, values=gap)


BRANCHES = {
    "estimator": {"kind": "branches", "critic": {"lr": 1e-2}},
    "collect.branching.num_alternatives": 2,
    "objective.largest_gap": 1e-3,
    "collect.num_groups": 1,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"collect.branching.depth": 2, "collect.branching.share": 0.5},
        {"collect.branching.horizon": 1, "shaping": {"kind": "advantage_alignment"}},
        {
            "collect.branching": {"horizon": 2, "depth": 2, "min_entropy": 0.1, "max_value": 50.0},
            "agents.seats": {"Bo": "random"},
        },
        {
            "game": {"kind": "trust_and_split", "wording": "terse", "num_rounds": 2},
            "collect.branching": {"horizon": 1, "max_branch_tokens": 20},
        },
    ],
)
def test_run_when_forks_are_nested_or_cut_then_ratio_one_and_resumed_without_a_difference(
    changes, tmp_path: Path
) -> None:
    """Laws 2 and 8; the critic learns."""
    run = tiny_run(tmp_path, BRANCHES | changes)
    train(run, lambda update, values: None)
    for metrics in read_metrics(run.folder / "metrics.jsonl"):
        assert metrics["policy/shared/ratio_gap_max"] < 1e-4
        assert metrics["credit/forks"] > 0 and metrics["critic/loss"] > 0
    whole = run_bytes(run.folder)
    for name in ("000002", "000003"):
        shutil.rmtree(run.folder / "checkpoints" / name)
    train(resume_run(run.folder), lambda update, values: None)
    assert differences(whole, run_bytes(run.folder)) == []


def test_values_when_branches_are_chosen_by_them_then_those_that_the_critic_reads_of_the_turn(
    tmp_path: Path,
) -> None:
    """What is kept with a branch is V before the reply, to rounding of another batch; the same for its entropy."""
    changes = {"collect.branching": {"min_value": -1e9, "max_entropy": 1e9, "depth": 2}}
    run = tiny_run(tmp_path, BRANCHES | changes)
    trees = collect_rollouts(run, 0)
    trajectories = extract(trees, branches=True)
    table = lay_out(run, trajectories)
    reading = read_critic(run, trajectories, table)
    assert reading.values is not None
    told = 0
    for tree in trees:
        first = {step.branch: step for step in reversed(tree.steps) if step.branch}
        for fork in forks(tree):
            row = table.keys.index(PathKey(tree.episode, fork.step.branch, fork.player))
            for name in fork.branches:
                known = first[name].info["branch_fork"]
                assert known["value"] == pytest.approx(
                    float(reading.values.values[row, fork.step.tick]), abs=1e-5
                )
                assert 0 < known["entropy"] < 1
                told += 1
    assert told > 20
    found = estimate_advantages(run, table, reading, update=0)
    assert found.state_weights is not None and found.turns is not None
    states = sum(float(one) for one in found.state_weights.sum(1))
    seats = len(trees) * len(run.game.spec.players)
    assert states == pytest.approx(seats * 3)  # every state weighs as its games do: three ticks a game


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"estimator": {"kind": "branches"}, "collect.branching.horizon": 2},
            "without a critic nothing says what lies",
        ),
        (
            {"estimator": {"kind": "branches"}, "collect.branching.min_value": 0},
            "has bounds on values and .* without a critic",
        ),
        (
            {"collect.branching": {"players": ["Bo"], "min_entropy": 0.1}, "agents.seats": {"Bo": "random"}},
            "bounds on entropies and names player 'Bo', whose seat is held by 'random', an agent without tokens",
        ),
        (
            {"collect.branching": {"players": ["Bo"], "min_value": 0.1}, "agents.seats": {"Bo": "random"}},
            "bounds on values and names player 'Bo'",
        ),
        (
            {
                "collect.branching.horizon": 1,
                "agents.seats": {"Bo": "random"},
                "shaping": {"kind": "shared_reward"},
            },
            "horizon' is 1 and the shaping uses advantages of player 'Bo', whose agent has no tokens",
        ),
        ({"collect.branching": {"min_value": 2, "max_value": 1}}, "collect.branching.min_value is 2.0 and"),
        ({"collect.branching.depth": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_when_they_do_not_go_together_then_one_sentence(changes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=words):
        tiny_config(tmp_path, BRANCHES | changes)

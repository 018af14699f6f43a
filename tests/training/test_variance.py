"""The variance of returns and gradients: counted through, done by hand, and as a run reports it."""

from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from run_fakes import make_tree, table_of, tiny_run
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from coplay.rollout_tree import RolloutTree
from coplay.training import log_probs
from coplay.training.draws import AllowedSets
from coplay.training.estimators import estimate
from coplay.training.extract import extract, in_table_order, tick_table, token_batch, ungrouped
from coplay.training.log_probs import EntropyOf, token_log_probs
from coplay.training.loop import train
from coplay.training.masked import masked_sum
from coplay.training.records import TickTable, UpdateResult
from coplay.training.schemes import BranchesEstimator, ReturnsEstimator
from coplay.training.stages import collect_rollouts
from coplay.training.trainer import Credit, Done
from coplay.training.variance import cluster_variance, luck_units, token_scores, variance_report
from coplay.training.variance_cases import CASES, Case, enumerate_batches, exact_moments

EXACT = {  # mean, grouped and ungrouped variance, as fractions
    "additive, R = x + a": (1 / 4, 1 / 32, 259 / 288, "28.78"),
    "additive, larger groups": (1 / 4, 1 / 96, 581 / 1200, "46.48"),
    "additive, rare action": (4 / 25, 17 / 625, 661 / 1125, "21.60"),
    "mixed, R = x (1 + a)": (11 / 8, 283 / 128, 695 / 192, "1.64"),
    "multiplicative, R = x a": (11 / 8, 283 / 128, 263 / 192, "0.62"),
    "no luck, R = a": (1 / 4, 1 / 32, 1 / 96, "0.33"),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_when_counted_through_then_the_exact_moments(case: Case) -> None:
    mean, grouped, alone, ratio = EXACT[case.name]
    found = exact_moments(case)
    assert abs(found.mean - mean) < 1e-12 and abs(found.mean_ungrouped - mean) < 1e-12
    assert abs(found.variance - grouped) < 1e-12
    assert abs(found.variance_ungrouped - alone) < 1e-12
    assert f"{found.ratio:.2f}" == ratio


def test_cases_when_listed_then_all_of_them_are_held_against_fractions() -> None:
    assert {case.name for case in CASES} == EXACT.keys()


@settings(max_examples=25, deadline=None)
@given(
    table=st.lists(st.tuples(*[st.floats(-10, 10)] * 2), min_size=1, max_size=2),
    chance=st.floats(0.05, 0.95),
    shape=st.sampled_from([(4, 2), (3, 3), (2, 2)]),
)
def test_mean_when_counted_through_then_the_policy_gradient_with_and_without_groups(
    table: list[tuple[float, float]], chance: float, shape: tuple[int, int]
) -> None:
    """E g = p (1 - p) (mean R(x, 1) - mean R(x, 0)), whatever the rewards."""
    case = Case(
        name="any",
        reward=lambda x, a: table[int(x)][a],
        luck=tuple(float(x) for x in range(len(table))),
        chance=chance,
        games=shape[0],
        group_size=shape[1],
    )
    found = exact_moments(case)
    truth = chance * (1 - chance) * sum(high - low for low, high in table) / len(table)
    assert found.mean == pytest.approx(truth, abs=1e-10)
    assert found.mean_ungrouped == pytest.approx(truth, abs=1e-10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_report_when_averaged_over_all_batches_then_the_exact_variance_of_groups(case: Case) -> None:
    """From one batch, without bias; ungrouped it leaves a little out, and never speaks for groups by that."""
    table, actions, chances = enumerate_batches(case)
    units = torch.arange(case.games) // case.group_size
    expected = []
    for rows in (table, ungrouped(table)):
        advantages = estimate(ReturnsEstimator(discount=1.0), rows, running_means={}).advantages
        parts = (actions - case.chance) * advantages.reshape(actions.shape)
        found = torch.tensor([cluster_variance(part, units, case.games) for part in parts])
        expected.append(float(masked_sum(chances * found, None)))
    exact = exact_moments(case)
    assert expected[0] == pytest.approx(exact.variance, rel=1e-6)
    assert expected[1] <= exact.variance_ungrouped


def test_score_when_differentiated_then_that_of_the_inverse_temperature() -> None:
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theta = torch.ones(3, dtype=torch.float64, requires_grad=True)
    allowed = AllowedSets.from_lists([None, (0, 2), (1, 3, 4)])
    scored = token_log_probs(
        logits * theta[:, None],
        torch.tensor([4, 2, 3]),
        allowed=allowed,
        temperature=0.7,
        entropy_of=EntropyOf(),
        measure=True,
    )
    scored.log_probs.sum().backward()
    assert theta.grad is not None and scored.measured is not None and scored.entropies is not None
    torch.testing.assert_close(token_scores(scored.log_probs.detach(), scored.measured), theta.grad)
    torch.testing.assert_close(scored.measured, scored.entropies.detach())


def test_entropies_when_measured_in_pieces_then_those_of_the_whole() -> None:
    logits = torch.randn(700, 4, generator=torch.Generator().manual_seed(1))
    draws = torch.zeros(700, dtype=torch.long)
    scored = token_log_probs(logits, draws, entropy_of=EntropyOf(), measure=True)
    assert scored.measured is not None and scored.entropies is not None
    assert torch.equal(scored.measured, scored.entropies)


def game(episode: str, group: str, reward: float) -> RolloutTree:
    """One step; Bo says nothing and gets nothing."""
    return make_tree(
        {"Ada": [reward], "Bo": [0.0]},
        episode=episode,
        group=group,
        seats={"Ada": "shared@0", "Bo": "greedy"},
        silent=("Bo",),
    )


def with_alternative(tree: RolloutTree, reward: float) -> RolloutTree:
    """Ada answers another way at step 0."""
    taken = tree.steps[0]
    other = replace(
        taken,
        id=1,
        branch="s0.Ada.1",
        turns=tuple(replace(t, trains_once_for="0" if t.player == "Bo" else "") for t in taken.turns),
        rewards={"Ada": reward, "Bo": 0.0},
    )
    return replace(tree, steps=(taken, other))


FOUR = [game("e0", "g0", 1.0), game("e1", "g0", 3.0), game("e2", "g1", 10.0), game("e3", "g1", 14.0)]


def done_with(trees: Sequence[RolloutTree], table: TickTable, scores: Sequence[float]) -> dict[str, Done]:
    """A step at whose action tokens log pi + H is as given, in the table's order."""
    batch = token_batch(
        in_table_order(extract(trees, branches=True), table),
        policy="shared@0",
        trie_of=lambda _: None,
        reward_scale=1.0,
    )
    assert batch is not None
    assert batch.num_tokens == len(scores)
    result = UpdateResult(
        log_probs=torch.full((len(scores),), -1.0), entropies=torch.tensor(scores, dtype=torch.float32) + 1
    )
    return {"shared": Done(credit=Credit(batch=batch, tokens=torch.zeros(len(scores))), result=result)}


def reported(
    trees: Sequence[RolloutTree], scores: Sequence[float], *, has_chance: bool = True
) -> dict[str, float]:
    _, table = table_of(*trees, has_chance=has_chance)
    found = estimate(ReturnsEstimator(discount=1.0), table, running_means={})
    return variance_report(table, found, done_with(trees, table, scores), discount=1.0, has_chance=has_chance)


def test_report_when_two_groups_of_two_then_the_numbers_done_by_hand() -> None:
    """Grouped -2 2 -4 4 times 1 -1 2 0: -4 and -8 by group. Ungrouped -8 -16/3 4 28/3: -8/3 and 8."""
    assert reported(FOUR, [1.0, -1.0, 2.0, 0.0]) == pytest.approx(
        {
            "variance/returns/Ada": 110 / 3,
            "variance/returns_within_groups/Ada": 5.0,
            "variance/returns/Bo": 0.0,
            "variance/returns_within_groups/Bo": 0.0,
            "variance/gradient_grouped/shared": 2 * 8 / 16,
            "variance/gradient_ungrouped/shared": 2 * (512 / 9) / 16,
            "variance/ratio_groups/shared": 64 / 9,
        }
    )


def test_report_when_games_are_shuffled_then_the_same() -> None:
    names = {"e0": "e3", "e1": "e0", "e2": "e1", "e3": "e2"}
    moved = [replace(tree, episode=names[tree.episode]) for tree in FOUR]
    assert reported(moved[::-1], [-1.0, 2.0, 0.0, 1.0]) == pytest.approx(
        reported(FOUR, [1.0, -1.0, 2.0, 0.0])
    )


def test_report_when_a_game_branches_then_the_numbers_done_by_hand() -> None:
    """Ada's siblings 1 and 5 stand at -4 and 4, each of weight 1/2; the other game of the group at 3 - (1 + 5) / 2."""
    trees = [with_alternative(FOUR[0], 5.0), *FOUR[1:]]
    table = tick_table(extract(trees, branches=True), reward_scale=1.0, has_chance=True)
    found = estimate(BranchesEstimator(discount=1.0), table, running_means={})
    assert found.turns is not None
    done = done_with(trees, table, [1.0, 2.0, -1.0, 2.0, 0.0])
    batch = done["shared"].credit.batch
    weighed = replace(batch, weight=found.turns.weights[batch.path, batch.place[:, 1]])
    done["shared"] = replace(done["shared"], credit=Credit(batch=weighed, tokens=torch.zeros(5)))
    report = variance_report(table, found, done, discount=1.0, has_chance=True)
    assert report["variance/gradient_grouped/shared"] == pytest.approx(1.0)
    assert report["variance/gradient_branches/shared"] == pytest.approx(2 * 50 / 16)
    assert report["variance/ratio_branches/shared"] == pytest.approx(16 / 100)
    assert report["variance/returns_branches/Ada"] == pytest.approx(5.0)


def test_report_when_there_is_no_chance_then_groups_change_nothing_by_construction() -> None:
    _, table = table_of(*FOUR, has_chance=False)
    assert torch.equal(table.group_ids, ungrouped(table).group_ids)
    one, other = (
        estimate(ReturnsEstimator(), rows, running_means={}).advantages for rows in (table, ungrouped(table))
    )
    assert torch.equal(one, other)
    report = reported(FOUR, [1.0, -1.0, 2.0, 0.0], has_chance=False)
    assert report["variance/gradient_grouped/shared"] == report["variance/gradient_ungrouped/shared"]
    assert report["variance/ratio_groups/shared"] == 1.0
    assert len(set(luck_units(table, has_chance=False).tolist())) == 4


def test_report_when_nothing_can_be_known_then_nan_and_not_zero() -> None:
    report = reported(FOUR[:2], [1.0, -1.0])  # one group
    assert isnan(report["variance/gradient_grouped/shared"])
    report = reported([FOUR[0], FOUR[2]], [1.0, -1.0])  # every game alone in its group
    assert isnan(report["variance/gradient_grouped/shared"]) and isnan(report["variance/ratio_groups/shared"])
    assert isnan(report["variance/returns_within_groups/Ada"])
    assert report["variance/returns/Ada"] == pytest.approx(40.5)


def test_report_when_masked_cells_hold_nan_then_the_same() -> None:
    long = make_tree(
        {"Ada": [1.0, 2.0], "Bo": [0.0, 0.0]},
        episode="e4",
        group="g1",
        seats={"Ada": "shared@0", "Bo": "greedy"},
        silent=("Bo",),
    )
    trees, scores = [*FOUR, long], [1.0, -1.0, 2.0, 0.0, 0.5, -0.5]
    _, table = table_of(*trees)
    found = estimate(ReturnsEstimator(discount=1.0), table, running_means={})
    done = done_with(trees, table, scores)
    spoiled = replace(table, rewards=table.rewards.masked_fill(~table.mask, float("nan")))
    one, other = (
        variance_report(rows, found, done, discount=1.0, has_chance=True) for rows in (table, spoiled)
    )
    assert one == other
    assert not any(map(isnan, other.values()))


BRANCHING: dict[str, Any] = {
    "game": {"kind": "split", "wording": "terse", "num_rounds": 2},
    "agents.sampling": {"max_new_tokens": 16, "constrained": True},
    "estimator": {"kind": "branches"},
    "collect.branching": {"share": 0.5},
    "update.num_updates": 1,
}


def test_run_when_it_branches_then_every_iteration_reports_all_three(tmp_path: Path) -> None:
    lines: list[Any] = []
    train(tiny_run(tmp_path, BRANCHING), lambda _, metrics: lines.append(metrics))
    names = ("gradient_ungrouped", "gradient_grouped", "gradient_branches", "ratio_groups", "ratio_branches")
    assert all(lines[0][f"variance/{name}/shared"] > 0 for name in names)
    for player in ("Ada", "Bo"):
        assert lines[0][f"variance/returns/{player}"] > 0
        assert lines[0][f"variance/returns_branches/{player}"] > 0


class Elements(TorchDispatchMode):
    """Counts the elements that operations of torch give out."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        self.total += sum(
            one.numel() for one in torch.utils._pytree.tree_leaves(given) if isinstance(one, Tensor)
        )
        return given


def test_cost_when_counted_then_below_a_hundredth_of_the_embedded_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elements of the report and of the entropies, beside those of collecting and training."""
    embedded = {"agents.model": {"kind": "embedded"}, "collect.group_size": 8}
    run = tiny_run(tmp_path, BRANCHING | embedded)
    reports = Elements()
    report = variance_report

    def counted(*args: Any, **options: Any) -> dict[str, float]:
        with reports:
            return report(*args, **options)

    monkeypatch.setattr("coplay.training.record.variance_report", counted)
    with Elements() as everything:
        train(run, lambda *_: None)
    with Elements() as entropies:
        log_probs._measured(torch.zeros(100, 50))
    tokens = sum(
        len(segment.ids) for tree in collect_rollouts(run, 0) for step in tree.steps for turn in step.turns
        for segment in turn.segments if segment.sampled
    )  # fmt: skip
    assert reports.total > 0
    assert reports.total + tokens / 100 * entropies.total < 0.01 * everything.total

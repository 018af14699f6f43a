"""Stored rollouts credited again: the same bits under the same settings, the right difference under others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from question_fakes import ALIGNED, ALONE, CRITIC, EXPECTED, RUNS, TWO, finished

from coplay.rollout_tree import CreditRow, read_credits
from coplay.rollout_tree.estimates import EstimateRow, read_estimates, write_estimates
from coplay.training.differences import compare_credits, credit_difference, rank_correlation
from coplay.training.gradients import compare_gradients, gradient, sampling_run
from coplay.training.inner_expectation import UnforkedTickError
from coplay.training.messages import ConfigError
from coplay.training.metrics import read_metrics
from coplay.training.objectives import KlSettings
from coplay.training.recredit import load_iteration, recredit, recredited_rows


def columns(row: CreditRow) -> dict[str, Any]:
    names = ("reward_to_go", "value", "baseline", "advantage", "shaping", "credit")
    return {
        name: None
        if (numbers := getattr(row, name)) is None
        else np.asarray(numbers, dtype=np.float32).tobytes()
        for name in names
    }


@pytest.mark.parametrize("name", RUNS)
def test_credit_when_settings_are_unchanged_then_every_stored_bit(name: str, tmp_path: Path) -> None:
    folder = finished(tmp_path, RUNS[name])
    for number in range(3):
        stored = load_iteration(folder, number)
        again = recredit(stored, stored.config)
        rows = {(r.episode, r.branch, r.player, r.row): columns(r) for r in recredited_rows(again)}
        kept = {(r.episode, r.branch, r.player, r.row): columns(r) for r in read_credits(folder, number)}
        assert rows == kept
        assert kept
        assert all(one.identical and one.largest == 0 for one in compare_credits(stored, again))
        assert again.notes == ()


def test_iteration_when_none_is_named_then_the_newest(tmp_path: Path) -> None:
    assert load_iteration(finished(tmp_path, {})).number == 2


def test_credit_when_beta_is_doubled_then_the_alignment_term_is(tmp_path: Path) -> None:
    stored = load_iteration(finished(tmp_path, {"shaping": {"kind": "advantage_alignment", "beta": 0.3}}), 1)
    shaping = stored.config.shaping
    doubled = shaping.model_validate(shaping.model_dump() | {"beta": 0.6})
    other = recredit(stored, stored.config.model_copy(update={"shaping": doubled}))
    own = recredit(stored, stored.config)
    term, twice = (
        result.ticks["shared"].shaped - result.estimate.advantages[result.ticks["shared"].rows]
        for result in (own, other)
    )
    torch.testing.assert_close(twice, 2 * term)
    assert float(term.abs().max()) > 0
    for one in compare_credits(stored, other):
        assert not one.identical
        assert 0 < one.mean <= one.largest


def test_reward_scale_when_changed_then_running_means_and_values_follow(tmp_path: Path) -> None:
    """Ten times smaller units give ten times the credit, wherever the baseline comes from."""
    for number, changes in enumerate(({"estimator.baseline": "running_mean"}, {"estimator": CRITIC}, ALONE)):
        stored = load_iteration(finished(tmp_path / str(number), changes), 2)
        smaller = stored.config.estimator.model_copy(update={"reward_scale": 0.5})
        other = recredit(stored, stored.config.model_copy(update={"estimator": smaller}))
        own = recredit(stored, stored.config)
        torch.testing.assert_close(other.estimate.advantages, 10 * own.estimate.advantages)


def test_discount_when_changed_and_running_means_count_then_it_is_said(tmp_path: Path) -> None:
    told = []
    for number, changes in enumerate(({"estimator.baseline": "running_mean"}, {})):
        stored = load_iteration(finished(tmp_path / str(number), changes), 2)
        other = stored.config.estimator.model_copy(update={"discount": 0.5})
        told.append(recredit(stored, stored.config.model_copy(update={"estimator": other})).notes)
    assert "under discount 0.9" in told[0][0]
    assert told[1] == ()


def test_past_when_it_is_to_be_expected_of_a_run_that_took_it_then_from_its_branches(tmp_path: Path) -> None:
    """What-if over stored branches gives what a run under those settings would have credited with (same games)."""
    branching = {"collect.branching": {"num_alternatives": 2}}
    runs = {
        kind: finished(tmp_path / kind, branching | {"shaping": ALIGNED | {"past": {"kind": kind}}})
        for kind in ("taken", "expected")
    }
    taken, expected = (load_iteration(folder, 0) for folder in runs.values())
    asked = recredit(taken, taken.config.model_copy(update={"shaping": expected.config.shaping}))
    assert any(not one.identical for one in compare_credits(taken, asked))
    assert all(one.identical for one in compare_credits(expected, asked))
    back = recredit(expected, taken.config)
    assert all(one.identical for one in compare_credits(taken, back))


def test_past_when_a_critic_was_not_read_along_branches_then_refused(tmp_path: Path) -> None:
    branching = {"collect.branching": {"num_alternatives": 1}, "estimator": CRITIC}
    stored = load_iteration(finished(tmp_path / "one", branching | {"shaping": ALIGNED}))
    other = load_iteration(finished(tmp_path / "two", branching | {"shaping": EXPECTED}))
    with pytest.raises(
        ConfigError, match="holds no readings along branches; expected a run that was trained"
    ):
        recredit(stored, stored.config.model_copy(update={"shaping": other.config.shaping}))
    bare = load_iteration(finished(tmp_path / "three", {}))
    with pytest.raises(UnforkedTickError, match="expected a fork at each of his ticks"):
        recredit(bare, bare.config.model_copy(update={"shaping": other.config.shaping}))


@pytest.mark.parametrize(
    "estimator", [{"kind": "returns"}, CRITIC, {"kind": "branches"}], ids=lambda one: one["kind"]
)
def test_past_when_nothing_forked_in_an_iteration_then_as_it_was_trained(
    estimator: dict[str, Any], tmp_path: Path
) -> None:
    nowhere = {"collect.branching": {"min_entropy": 1e9}, "estimator": estimator}
    past = ALIGNED | {"past": {"kind": "expected", "unforked": "taken"}}
    stored = load_iteration(finished(tmp_path, nowhere | {"shaping": past}))
    assert not any(step.branch for tree in stored.trees for step in tree.steps)
    assert all(one.identical for one in compare_credits(stored, recredit(stored, stored.config)))


def test_critic_when_the_run_had_none_then_refused_and_back_to_returns_is_not(tmp_path: Path) -> None:
    with_critic = load_iteration(finished(tmp_path / "one", {"estimator": CRITIC}))
    without = load_iteration(finished(tmp_path / "two", {}))
    with pytest.raises(ConfigError, match="holds no readings of one"):
        recredit(without, without.config.model_copy(update={"estimator": with_critic.config.estimator}))
    back = recredit(
        with_critic, with_critic.config.model_copy(update={"estimator": without.config.estimator})
    )
    assert back.estimate.targets is None


def test_credits_when_not_stored_then_refused(tmp_path: Path) -> None:
    folder = finished(tmp_path, {"storage.credits": False})
    with pytest.raises(ConfigError, match="stored without its credits"):
        load_iteration(folder)
    with pytest.raises(FileNotFoundError, match="iteration 7 is not under"):
        load_iteration(folder, 7)


@pytest.mark.parametrize(
    "changes", [{}, {"shaping": ALIGNED, "objective.kl": {"coefficient": 0.1}}, TWO | {"estimator": CRITIC}]
)
def test_gradient_when_settings_are_unchanged_then_that_of_the_run(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    folder = finished(tmp_path, changes)
    told = {int(line["update"]): line for line in read_metrics(folder / "metrics.jsonl")}
    for number in (0, 2):
        stored = load_iteration(folder, number)
        for one in compare_gradients(stored, stored.config, folder):
            assert one.norm == one.own_norm
            assert one.cosine == pytest.approx(1.0)
            assert one.norm == pytest.approx(told[number][f"policy/{one.policy}/gradient_norm"], rel=1e-6)


def test_gradient_when_credit_changes_sign_then_it_points_back(tmp_path: Path) -> None:
    folder = finished(tmp_path, {})
    stored = load_iteration(folder, 1)
    run = sampling_run(stored, folder, with_reference=False)
    before = run.policies["shared"].state()
    credit = recredit(stored, stored.config, tries={"shared": run.policies["shared"].chat.trie}).credits[
        "shared"
    ]
    one, other = (
        gradient(run.policies["shared"], replace(credit, tokens=tokens), stored.config, 1, folder=folder)
        for tokens in (credit.tokens, -credit.tokens)
    )
    assert all(torch.equal(one[name], -other[name]) for name in one)
    assert all(torch.equal(run.policies["shared"].state()[name], before[name]) for name in before)


def test_gradient_when_a_kl_term_is_added_then_there_is_a_reference(tmp_path: Path) -> None:
    folder = finished(tmp_path, {})
    stored = load_iteration(folder, 2)
    objective = stored.config.objective.model_copy(update={"kl": KlSettings(coefficient=5.0)})
    (found,) = compare_gradients(stored, stored.config.model_copy(update={"objective": objective}), folder)
    assert found.norm != found.own_norm
    assert found.cosine is not None and found.cosine < 1


def test_sampling_run_when_a_reference_is_added_then_the_coefficient_is_still_the_runs(
    tmp_path: Path,
) -> None:
    folder = finished(tmp_path, {"objective.kl": {"against": "behaviour", "coefficient": 0.7}})
    run = sampling_run(load_iteration(folder, 0), folder, with_reference=True)
    assert run.config.objective.needs_reference
    assert [trainer.kl_coefficient for trainer in run.trainers] == [0.7]


def test_gradient_when_the_weights_are_not_kept_then_refused(tmp_path: Path) -> None:
    folder = finished(tmp_path, {"storage.keep": 1})
    stored = load_iteration(folder, 1)
    with pytest.raises(
        ConfigError, match=r"iteration 1 of .* are not kept; of the stored iterations, those of \[0\] are"
    ):
        compare_gradients(stored, stored.config, folder)


def test_difference_when_worked_out_by_hand_then_so() -> None:
    before = np.array([1.0, -2.0, 0.0, 4.0], dtype=np.float32)
    after = np.array([1.0, 2.0, 0.5, 3.0], dtype=np.float32)
    found = credit_difference("Ada", before, after)
    assert (found.tokens, found.mean, found.largest) == (4, 5.5 / 4, 4.0)
    assert (found.sign_flips, found.stored_mean, found.identical) == (0.25, 1.75, False)
    assert found.rank_correlation == pytest.approx(0.4)  # ranks 3 1 2 4 and 2 3 1 4: 1 - 6 * 6 / 60
    assert rank_correlation(before, before * 2) == pytest.approx(1.0)
    assert rank_correlation(before, np.zeros(4)) is None
    ties = (np.array([1.0, 1.0, 2.0]), np.array([3.0, 5.0, 5.0]))
    assert rank_correlation(*ties) == pytest.approx(0.5)  # ranks 1.5 1.5 3 and 1 2.5 2.5


def test_estimates_when_written_and_read_then_equal(tmp_path: Path) -> None:
    rows = [
        EstimateRow(
            episode="000000/00001",
            branch="",
            player="Bo",
            running_mean=np.array([0.1, 1 / 3]),
            running_count=np.array([4.0, 3.0]),
            value=np.array([0.7, np.nan, -0.25]),
            penalty=np.array([0.0, 1e-9]),
        ),
        EstimateRow(
            episode="000000/00000",
            branch="",
            player="Ada",
            running_mean=np.zeros(1),
            running_count=np.zeros(1),
        ),
    ]
    write_estimates(tmp_path, 0, rows)
    found = list(read_estimates(tmp_path, 0))
    assert [(one.episode, one.player) for one in found] == [("000000/00000", "Ada"), ("000000/00001", "Bo")]
    for one, other in zip(reversed(found), rows, strict=True):
        assert one.running_mean.tobytes() == other.running_mean.tobytes()
        assert one.running_count.tobytes() == other.running_count.tobytes()
        assert (one.value is None) == (other.value is None)
        assert (one.penalty is None) == (other.penalty is None)
        assert one.penalty is None or one.penalty.tobytes() == other.penalty.tobytes()
        np.testing.assert_array_equal(
            one.value if one.value is not None else 0, other.value if other.value is not None else 0
        )


def test_estimates_when_stored_before_kl_was_kept_then_read_as_without(tmp_path: Path) -> None:
    row = EstimateRow(
        episode="e",
        branch="",
        player="Bo",
        running_mean=np.ones(2),
        running_count=np.ones(2),
        penalty=np.ones(2),
    )
    write_estimates(tmp_path, 0, [row])
    (path,) = tmp_path.glob("rollouts/estimates/*/*.parquet")
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["penalty"]), path)
    (found,) = read_estimates(tmp_path, 0)
    assert found.penalty is None and found.running_mean.tolist() == [1.0, 1.0]

"""The measured variance of the whole gradient: its statistics by hand, its batches through the run's own path."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_fakes import tiny_config

from coplay.rollout_tree import RolloutTree
from coplay.training import variance_study
from coplay.training.covariance import VarianceStudy, compare, covariance_trace, gram, same_mean
from coplay.training.messages import ConfigError
from coplay.training.run import Run
from coplay.training.stages import collect_rollouts
from coplay.training.variance_study import measure, one_gradient, study_config, tokens_sampled

SPLIT: dict[str, Any] = {
    "game": {"kind": "split", "wording": "terse", "num_rounds": 2},
    "agents.sampling": {"max_new_tokens": 16, "constrained": True},
    "collect.branching": {"share": 0.5},
    "objective.largest_gap": 1e-3,
}


def study_of(*gradients: torch.Tensor, sampled: tuple[float, ...] = (1.0, 1.0, 1.0)) -> VarianceStudy:
    """A study of three estimators with given gradients, (M, P) each."""
    count = len(gradients[0])
    tokens = np.array(sampled)[:, None] * np.ones(count)
    return VarianceStudy(
        gram=gram(torch.cat(gradients)).reshape(3, count, 3, count), sampled=tokens, read=2 * tokens, games=4
    )


def noise(seed: int, count: int = 40) -> torch.Tensor:
    return torch.randn(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_trace_when_taken_from_inner_products_then_that_of_the_covariance() -> None:
    rows = noise(0)
    assert covariance_trace(gram(rows)) == pytest.approx(np.trace(np.cov(rows.numpy().T)))
    drawn = np.array([0, 0, 1, *range(3, 40)])
    assert covariance_trace(gram(rows), drawn) == pytest.approx(np.trace(np.cov(rows.numpy()[drawn].T)))


def test_gram_when_rows_are_longer_than_a_piece_then_the_same() -> None:
    rows = torch.randn(3, 70_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    np.testing.assert_allclose(gram(rows), (rows @ rows.T).numpy(), atol=1e-8)


def test_ratio_when_one_is_twice_the_other_then_four_and_by_tokens_less() -> None:
    """The same noise twice as large; at three times the tokens for the second, 4 / 3."""
    study = study_of(2 * noise(0), noise(0), noise(1), sampled=(1.0, 3.0, 1.0))
    found = compare(study, "ungrouped", "groups")
    assert (found.mean, found.low, found.high) == pytest.approx((4.0, 4.0, 4.0))
    assert compare(study, "ungrouped", "groups", tokens="sampled").mean == pytest.approx(4 / 3)
    assert compare(study, "ungrouped", "groups", tokens="read").mean == pytest.approx(4 / 3)
    other = compare(study, "ungrouped", "branches")
    assert other.low < 4 < other.high
    assert other.high - other.low > 0.5


def test_ratio_when_intervals_are_drawn_often_then_they_cover_the_truth() -> None:
    inside = [
        (
            found := compare(
                study_of(noise(2 * k), noise(2 * k + 1), noise(0)), "ungrouped", "groups", seed=k
            )
        ).low
        <= 1.0
        <= found.high
        for k in range(40)
    ]
    assert sum(inside) >= 33


def test_means_when_one_is_shifted_then_a_small_p_and_otherwise_not() -> None:
    base = noise(0)
    study = study_of(base + 0.1 * noise(1), base, base + 1.0)
    assert same_mean(study, "ungrouped", "groups").p_value > 0.05
    shifted = same_mean(study, "branches", "groups")
    assert shifted.p_value < 0.01
    assert shifted.difference > 1
    assert same_mean(study, "groups", "groups").p_value == 1.0


def test_batches_when_measured_then_main_lines_are_those_without_branches(tmp_path: Path) -> None:
    """All three see the same games, and a game is what it would be without branches."""
    config = study_config(tiny_config(tmp_path, SPLIT))
    study = measure(config, num_batches=3, folder=tmp_path)
    plain = config.model_copy(update={"collect": config.collect.model_copy(update={"branching": None})})
    run = Run(plain, folder=tmp_path)
    for batch in range(3):
        trees = collect_rollouts(run, batch)
        for place, name in enumerate(("ungrouped", "groups")):
            flat, cost = one_gradient(run, trees, name)
            assert float(flat.double() @ flat.double()) == pytest.approx(
                study.gram[place, batch, place, batch], rel=1e-5
            )
            assert cost.sampled == study.sampled[place, batch] == study.sampled[0, batch]
    assert (study.sampled[2] > study.sampled[1]).all() and (study.read[2] > study.read[1]).all()
    assert study.trace("groups") != study.trace("ungrouped")


def test_batches_when_there_is_no_chance_then_both_groupings_are_one(tmp_path: Path) -> None:
    config = study_config(tiny_config(tmp_path))
    study = measure(config, num_batches=3, folder=tmp_path)
    np.testing.assert_array_equal(study.gram[0, :, 0], study.gram[1, :, 1])
    found = compare(study, "ungrouped", "groups")
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)


def test_tokens_when_a_branch_holds_a_turn_then_it_was_sampled_once(tmp_path: Path) -> None:
    run = Run(study_config(tiny_config(tmp_path, SPLIT)), folder=tmp_path)
    trees: list[RolloutTree] = collect_rollouts(run, 0)
    main = [turn for tree in trees for step in tree.steps if not step.branch for turn in step.turns]
    later = [turn for tree in trees for step in tree.steps if step.branch for turn in step.turns]
    drawn = [turn for turn in later if not turn.trains_once_for]
    assert len(drawn) < len(later)
    for turns, branches in ((main, False), (main + drawn, True)):
        count = sum(len(segment.ids) for turn in turns for segment in turn.segments if segment.sampled)
        assert tokens_sampled(trees, branches=branches) == count


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shaping": {"kind": "advantage_alignment"}}, "'shaping.kind' is 'advantage_alignment'.*'independent'"),
        ({"shaping": {"whiten_after": "batch"}}, "'shaping.whiten_after' is 'batch'.*expected 'off'"),
        ({"collect.group_size": 1}, "'collect.group_size' is 1; expected at least 2"),
        (
            {"estimator": {"kind": "critic"}, "collect.branching": {"horizon": 1}},
            "'collect.branching.horizon' is 1; expected none",
        ),
    ],
)  # fmt: skip
def test_settings_when_nothing_could_be_compared_then_one_sentence(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=words):
        study_config(tiny_config(tmp_path, changes))


def test_batches_when_too_few_or_too_large_then_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = study_config(tiny_config(tmp_path))
    with pytest.raises(ConfigError, match="2 batches have no variance to speak of; expected at least 3"):
        measure(config, num_batches=2, folder=tmp_path)
    monkeypatch.setattr(variance_study, "MOST_NUMBERS", 1000)
    with pytest.raises(
        ConfigError, match=r"3 batches of 3 gradients of .* expected at most 1000: fewer batches"
    ):
        measure(config, num_batches=3, folder=tmp_path)

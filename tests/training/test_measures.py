"""Spreads of estimates and tokens, and the gap between engine and trainer, against numbers worked out by hand."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_fakes import make_tree, play_iteration, reckon, tiny_config, tiny_run
from torch import tensor

from coplay.training.alignment import (
    REPEATED,
    RatioGapError,
    alarm,
    check_gap,
    gap_measures,
    placeholders,
)
from coplay.training.loop import train
from coplay.training.masked import segment_spread
from coplay.training.measures import lengths, table_metrics, token_metrics
from coplay.training.records import UpdateResult
from coplay.training.run import Run
from coplay.training.stages import collect_rollouts
from coplay.training.trainer import Done

GAMES = [
    make_tree({"Ada": [1.0, 3.0], "Bo": [0.0, 2.0]}, episode="a"),
    make_tree({"Ada": [5.0], "Bo": [-1.0]}, episode="b"),
]
"""Two turns of each player, then one; a turn is two observed ids and one sampled id."""


def four(mean: float, high: float, low: float, deviation: float) -> dict[str, float]:
    return {"mean": mean, "max": high, "min": low, "deviation": deviation}


def test_segments_when_spread_then_each_on_its_own_and_empty_ones_are_not_known() -> None:
    x = tensor([1.0, 3.0, 5.0, float("nan"), 7.0])
    found = segment_spread(x, tensor([0, 0, 0, 0, 2]), 3, mask=tensor([True, True, True, False, True]))
    assert found.mean.tolist()[::2] == [3.0, 7.0] and found.deviation.tolist()[::2] == [2.0, 0.0]
    assert found.max.tolist()[::2] == [5.0, 7.0] and found.min.tolist()[::2] == [1.0, 7.0]
    assert all(torch.isnan(getattr(found, name)[1]) for name in ("mean", "max", "min", "deviation"))


def test_estimates_when_told_then_by_player_over_real_cells_only(tmp_path: Path) -> None:
    """Scores 4 and 5, rewards 1, 3, 5; returns 4/5, 3/5, 5/5; a padded cell of NaN enters nothing (law 3)."""
    run = tiny_run(tmp_path, {"estimator.discount": 1.0})
    played = reckon(run, GAMES)
    padding = ~played.table.mask
    assert padding.any()
    table = replace(played.table, rewards=played.table.rewards.masked_fill(padding, float("nan")))
    estimate = replace(played.estimate, returns=played.estimate.returns.masked_fill(padding, float("nan")))
    found = table_metrics(table, estimate, reward_scale=5.0)
    wanted = {
        "score/Ada": four(4.5, 5.0, 4.0, 0.5**0.5),
        "reward/Ada": four(3.0, 5.0, 1.0, 2.0),
        "return/Ada": four(0.8, 1.0, 0.6, 0.2),
        "score/Bo": four(0.5, 2.0, -1.0, 4.5**0.5),
    }
    for name, numbers in wanted.items():
        for statistic, number in numbers.items():
            assert found[f"estimate/{name}/{statistic}"] == pytest.approx(number), (name, statistic)
    advantages = estimate.advantages[table.mask & table.acted]
    both = [found[f"estimate/advantage/{player}/mean"] for player in ("Ada", "Bo")]
    assert sum(both) / 2 == pytest.approx(float(advantages.mean()))
    assert not any(key.startswith("estimate/value") for key in found)


def test_values_when_a_critic_read_some_then_those_are_told(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"estimator": {"kind": "critic", "reward_scale": 5.0}})
    played = reckon(run, GAMES)
    values = torch.full_like(played.estimate.returns, float("nan"))
    row = next(place for place, key in enumerate(played.table.keys) if key == ("a", "", "Ada"))
    values[row, 0], values[row, 1] = 0.25, 0.75
    found = table_metrics(played.table, replace(played.estimate, values=values), reward_scale=5.0)
    assert found["estimate/value/Ada/mean"] == 0.5 and found["estimate/value/Ada/max"] == 0.75
    assert found["estimate/value/Bo/mean"] != found["estimate/value/Bo/mean"]


def test_lengths_when_rows_are_alike_then_each_game_counts(tmp_path: Path) -> None:
    """Prompts 2, 5, 2 of each player; two turns and one; 18 tokens read, 6 of them sampled."""
    run = tiny_run(tmp_path)
    batch = reckon(run, GAMES).credit(run).batch
    assert len(batch.ids) < 4  # both players said the same
    found = {name: float(value) for name, value in lengths(batch).items()}
    assert found["state_tokens"] == pytest.approx(12 / 18)
    wanted = {
        "prompt_tokens": four(3.0, 5.0, 2.0, 2.4**0.5),
        "reply_tokens": four(1.0, 1.0, 1.0, 0.0),
        "turns": four(1.5, 2.0, 1.0, (1 / 3) ** 0.5),
    }
    for name, numbers in wanted.items():
        for statistic, number in numbers.items():
            assert found[f"{name}_{statistic}"] == pytest.approx(number), (name, statistic)


def test_signed_log_probs_when_averaged_then_over_their_own_tokens(tmp_path: Path) -> None:
    """Not over all of them: two tokens of -1 and -3 average -2 however many others there are."""
    run = tiny_run(tmp_path)
    credit = reckon(run, GAMES).credit(run)
    credit = replace(credit, tokens=tensor([2.0, 0.0, -1.0, 4.0, 0.0, -5.0], dtype=torch.float64))
    result = UpdateResult(log_probs=tensor([-1.0, -2.0, -4.0, -3.0, -6.0, -8.0]))
    found = token_metrics({"shared": Done(credit=credit, result=result)})
    assert found["policy/shared/log_prob_positive"] == -2.0 and found["policy/shared/tokens_positive"] == 2
    assert found["policy/shared/log_prob_nonpositive"] == -5.0
    assert found["policy/shared/credit_mean"] == 0.0 and found["policy/shared/credit_max"] == 4.0
    assert found["policy/shared/credit_deviation"] == pytest.approx((46 / 5) ** 0.5)
    none = token_metrics(
        {"shared": Done(credit=replace(credit, tokens=credit.tokens.abs() * 0), result=result)}
    )
    assert none["policy/shared/log_prob_positive"] != none["policy/shared/log_prob_positive"]


def test_gaps_when_measured_then_token_by_token() -> None:
    """Equal means hide two tokens that changed places; gaps do not."""
    behaviour = tensor([-1.0, -4.0] + [-2.0] * 198)
    trainer = tensor([-4.0, -1.0] + [-2.0] * 196 + [-2.05, -1.95])
    assert behaviour.mean() == pytest.approx(float(trainer.mean()))
    found = {name: float(value) for name, value in gap_measures(behaviour, trainer).items()}
    assert found["ratio_gap_median"] == 0.0 and found["ratio_gap_p99"] == pytest.approx(0.05)
    assert found["ratio_gap_above_0.1"] == 0.01 and found["ratio_gap_above_2"] == 0.01
    unsampled = torch.cat([behaviour, tensor([float("nan")] * 9)])
    again = gap_measures(unsampled, torch.cat([trainer, tensor([-1.0] * 9)]))
    assert {name: float(value) for name, value in again.items()} == found


@pytest.mark.parametrize("constant", [0.0, -1.0])
def test_placeholders_when_an_engine_reports_one_number_then_told_from_certain_tokens(
    constant: float,
) -> None:
    certain = torch.zeros(20)
    trainer = -torch.arange(1.0, REPEATED + 1)
    behaviour = torch.full_like(trainer, constant)
    assert int(placeholders(behaviour, trainer).sum()) == (REPEATED if constant == 0.0 else REPEATED - 1)
    assert not placeholders(certain, certain + 1e-5).any()  # forced by a grammar, on both sides
    both = placeholders(torch.cat([certain, behaviour]), torch.cat([certain, trainer]))
    assert not both[:20].any() and both[20:].any()
    honest = -torch.arange(1.0, 9.0).repeat(8)  # the same contexts again and again
    assert not placeholders(honest, honest + 1e-4).any()
    assert placeholders(tensor([-1.0, 0.5]), tensor([-1.0, -1.0])).tolist() == [False, True]


def test_step_when_log_probs_are_placeholders_then_refused_by_name_however_small_the_gap() -> None:
    trainer = torch.cat([torch.zeros(1000), -torch.arange(1.0, REPEATED + 1) / 4])
    behaviour = torch.zeros_like(trainer)
    assert float((trainer - behaviour).abs().mean()) < 0.05
    with pytest.raises(RatioGapError, match=r"reported 0 as the log-prob of tokens.*8 of 1008"):
        check_gap("ada@0", behaviour, trainer, 0.05)
    check_gap("ada@0", behaviour, trainer, None)


def test_alarm_when_the_mean_or_the_tail_is_notable_then_told_in_one_sentence(tmp_path: Path) -> None:
    settings = tiny_config(tmp_path).objective
    behaviour = -torch.rand(1000) - 1
    assert alarm("ada", behaviour, behaviour + 1e-4, settings) is None
    told = alarm("ada", behaviour, behaviour + 0.02, settings)
    assert told is not None and "0.0200 a token" in told and "\n" not in told
    tail = behaviour.clone()
    tail[:20] += 0.4
    assert float((tail - behaviour).abs().mean()) < 0.01
    assert alarm("ada", behaviour, tail, settings) is not None
    never = settings.model_copy(update={"alarm_gap": None})
    assert alarm("ada", behaviour, behaviour + 9.0, never) is None


def test_run_when_its_first_update_is_misaligned_then_warned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Replies that were sampled at another temperature than noted: 0.02 a token and more, below the refusal."""

    def shifted(run: Run, update: int) -> list:
        trees = collect_rollouts(run, update)
        return [replace(tree, steps=tuple(map(_shift, tree.steps))) for tree in trees]

    def _shift(step):
        turns = [
            replace(
                turn,
                segments=tuple(
                    replace(one, log_probs=tuple(p - 0.02 for p in one.log_probs)) for one in turn.segments
                ),
            )
            for turn in step.turns
        ]
        return replace(step, turns=tuple(turns))

    run = tiny_run(tmp_path, {"objective": {"largest_gap": 0.05}, "update.num_updates": 2})
    monkeypatch.setattr("coplay.training.loop.collect_rollouts", shifted)
    with caplog.at_level(logging.WARNING):
        train(run, lambda *_: None)
    warned = [one for one in caplog.records if "disagree by 0.0200" in one.getMessage()]
    assert len(warned) == 1 and "at the start" in warned[0].getMessage()


def test_aligned_run_when_trained_then_nobody_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tiny_run(tmp_path, {"objective": {"largest_gap": 0.05}, "update.num_updates": 1})
    told: dict[str, float] = {}
    with caplog.at_level(logging.WARNING):
        train(run, lambda _, values: told.update(values))
    assert not caplog.records
    assert told["policy/shared/ratio_gap_p99"] <= 1e-4 and told["policy/shared/ratio_gap_above_0.1"] == 0
    assert 0 < told["policy/shared/state_tokens"] < 1
    assert play_iteration(run).table.rewards.shape[0] == 8

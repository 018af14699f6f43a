"""Seconds, tokens and memory, told by section."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from run_fakes import make_tree, play_iteration, tiny_config, tiny_run

from coplay.scripts.train import start_training
from coplay.training.timing import Benchmark, Clock, NumTokens, benchmark_lines, count_tokens


def test_tokens_when_counted_then_each_where_it_was_first_played(tmp_path: Path) -> None:
    """Two turns of each of two players, two observed ids and one sampled; a held turn of a branch is no new one."""
    tree = make_tree({"Ada": [1.0, 3.0], "Bo": [0.0, 2.0]})
    assert count_tokens([tree]) == NumTokens(sampled=4, total=12)
    first = tree.steps[0]
    held = replace(first.turns[1], trains_once_for="0")
    branch = replace(first, id=2, branch="x", turns=(first.turns[0], held))
    assert count_tokens([replace(tree, steps=(*tree.steps, branch))]) == NumTokens(sampled=5, total=15)
    trees = play_iteration(tiny_run(tmp_path)).trees
    turns = sum(len(step.turns) for one in trees for step in one.steps)
    assert count_tokens(trees).sampled == turns  # a move is one token


def test_sections_when_told_by_token_then_collecting_by_sampled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 2.0, 5.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    clock = Clock()
    clock.lap("collect")
    clock.lap("update")
    found = clock.metrics(NumTokens(sampled=100, total=1000))
    assert found["time/collect"] == 2.0 and found["time/collect_ms_per_token"] == 20.0
    assert found["time/update"] == 3.0 and found["time/update_ms_per_token"] == 3.0
    assert "time/collect_cpu" in found and "time/collect_cpu_ms_per_token" not in found
    assert "time/collect_ms_per_token" not in clock.metrics(NumTokens(sampled=0, total=0))


def test_benchmark_when_a_run_is_over_then_sums_means_and_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks, memory = iter([0.0, 10.0]), iter([100.0, 300.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    monkeypatch.setattr("coplay.training.timing.memory_now", lambda: next(memory))
    benchmark = Benchmark()
    for update in (5, 6):
        values = {"time/collect": 3.0, "time/collect_cpu": 9.0, "time/collect_ms_per_token": 1.0, "x": 7.0}
        benchmark.note(update, values, NumTokens(sampled=60, total=200))
    told = benchmark.told()
    assert (told["updates"], told["first_update"], told["seconds"]) == (2, 5, 10.0)
    assert told["sections"] == {
        "collect": {"seconds": 6.0, "mean": 3.0, "share": 0.6},
        "other": {"seconds": 4.0, "mean": 2.0, "share": 0.4},
    }
    assert told["tokens_per_second"] == 40.0 and told["sampled_tokens_per_collect_second"] == 20.0
    assert told["memory_mb"]["mean"] == 200.0 and told["memory_mb"]["peak"] > 0
    first, second = benchmark_lines(told)
    assert "2 updates in 10.0 s" in first and "collect 3 s (60%)" in first and "40 tokens a second" in second


def test_benchmark_when_nothing_was_done_then_nothing_is_told() -> None:
    assert Benchmark().told() == {} and benchmark_lines({}) == ()


def test_command_when_trained_then_told_at_the_end_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_training(tiny_config(tmp_path))
    told = capsys.readouterr().err
    assert "3 updates in" in told and "tokens a second" in told and "MB at most" in told
    summary = json.loads((tmp_path / "tiny" / "benchmark.json").read_text())
    assert summary["updates"] == 3 and set(summary["sections"]) == {
        "collect", "credit", "update", "record", "other"
    }  # fmt: skip
    assert summary["memory_mb"]["peak"] >= summary["memory_mb"]["mean"] > 0
    assert sum(one["share"] for one in summary["sections"].values()) == pytest.approx(1)

"""The benchmarks of rollouts: they measure what they say, and skip what is not there."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from coplay.scripts import bench_rollout
from coplay.scripts.bench_growth_rollouts import curves_table, rollout_curves
from coplay.scripts.bench_growth_training import AXES, Axis


def test_tokens_read_when_games_branch_and_repeat_are_the_distinct_ones() -> None:
    """What must be read is read once: up to beginnings of fewer than 8 tokens, and last tokens held already."""
    sizes = {"games": (1, 4, 16), "alternatives at a fork": (1, 2, 4)}
    curves = rollout_curves(
        {name: Axis(chosen, AXES[name].settings) for name, chosen in sizes.items()}, repeats=1
    )
    for points in curves.values():
        for point in points:
            assert point.distinct <= point.read <= 1.05 * point.distinct < point.asked
            assert 0 < point.engine <= point.total
    assert "over the size" in curves_table(curves)


def test_vllm_part_without_its_environment_says_so_and_measures_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nothing: Any = None
    bench_rollout.against_vllm(argparse.Namespace(vllm_python="/no/such/python"), nothing, "")
    assert "skipped" in capsys.readouterr().out


def test_adapter_folder_when_a_part_is_over_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def load(_: str, saved: str) -> tuple[Any, Any]:
        seen.append(Path(saved))
        assert seen[0].is_dir()
        return None, None

    monkeypatch.setattr(bench_rollout, "load", load)
    bench_rollout.main(["vllm", "--model", "unread"])
    assert len(seen) == 1 and not seen[0].exists()


def test_both_sides_when_played_get_contexts_of_the_same_lengths() -> None:
    """Prompt 200, then 40 new tokens and a reply of 24 a turn, also where only one token of it is sampled."""
    seen: dict[int, list[int]] = {24: [], 1: []}

    def answer(contexts: Any, turn: int, length: int) -> list[tuple[int, ...]]:
        seen[length].append(len(contexts[0]))
        return [(7,) * length] * len(contexts)

    for length in (24, 1):
        bench_rollout.play(answer, 2, 3, length=length)
    assert seen == {24: [200, 264, 328], 1: [200, 264, 328]}

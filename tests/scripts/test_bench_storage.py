"""The benchmark of storage runs on small sizes: what it writes comes back, and every stage takes its trees."""

from pathlib import Path

import networkx as nx
import pytest

from coplay.rollout_tree import branch_trajectories, build_trajectories, forks, main_line, to_networkx
from coplay.scripts.bench_storage import large_tree, main, storage
from coplay.scripts.bench_trees import bush, line, make_trees


def test_made_up_trees_when_made_twice_then_the_same_and_of_the_size_asked_for() -> None:
    trees = list(make_trees(640, 2))
    assert trees == list(make_trees(640, 2)) and trees[0] != trees[1]
    assert sum(len(step.turns) for tree in trees for step in tree.steps) == 640
    assert len({tree.group for tree in trees}) == 4


def test_large_trees_when_small_then_whole_trees_that_every_stage_takes() -> None:
    one, other = line(500), bush(500, depth=10)
    assert len(main_line(one)) == 500 and nx.is_arborescence(to_networkx(one))
    assert len(main_line(other)) == 10 and len(forks(other)) == 10
    assert [path.num_ticks for path in build_trajectories(one)] == [500, 500]
    assert len(branch_trajectories(other)) == 2 * sum(len(fork.branches) for fork in forks(other))


def test_storage_when_measured_then_every_turn_is_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figures are the command's to print: a test that timed them would fail on a busy machine."""
    storage(tmp_path, 4_000)
    assert "read back exactly: True" in capsys.readouterr().out


def test_large_trees_when_measured_then_every_stage_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--turns", "0", "--steps", "0"]) == 0
    large_tree("line", line, 4_000)
    large_tree("bush", bush, 4_000)
    assert capsys.readouterr().out.count("µs a step") == 6

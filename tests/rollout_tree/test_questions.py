"""Asking stored rollouts: only what is asked for comes back, and only that is read. The streaming writer."""

import importlib.util
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_fakes import Counting, Scripted, play

from coplay.games import StepOutcome
from coplay.rollout_tree import RolloutTree, RolloutWriter, read_rollouts, read_table, storage, write_rollouts
from coplay.rollout_tree.storage import part_path


def mixed(iteration: int, num_groups: int = 3) -> list[RolloutTree]:
    """Terminated, truncated and failed episodes of three groups, two each."""

    def outcome(step, actions, chance):
        luck = chance.integer("end", 3)
        if luck == 2 and step == 1:
            raise RuntimeError("broken")
        over = step == 2
        return StepOutcome(
            rewards={"ada": 1.0, "bo": float(step)},
            terminated=over and luck == 0,
            truncated=over and luck == 1,
        )

    game = Counting(length=3, max_steps=4, outcome=outcome)
    return play(game, num_groups=num_groups, group_size=2, iteration=iteration, max_failed_share=1.0)


def write_with(folder: Path, iteration: int, trees: list[RolloutTree], **options: int) -> None:
    with RolloutWriter(folder, iteration, **options) as writer:
        for tree in trees:
            writer.add(tree)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RolloutTree]]:
    folder = tmp_path_factory.mktemp("run")
    trees = [tree for iteration in range(3) for tree in mixed(iteration, 12)]
    for iteration in range(3):
        of_it = [tree for tree in trees if tree.iteration == iteration]
        write_with(folder, iteration, of_it, max_turns=20)
    assert {tree.status for tree in trees} == {"terminated", "truncated", "failed"}
    return folder, trees


@given(
    iteration=st.none() | st.integers(0, 2),
    status=st.none() | st.sets(st.sampled_from(["terminated", "truncated", "failed", "running"])),
    numbers=st.none() | st.sets(st.integers(0, 11), min_size=1, max_size=3),
)
@settings(max_examples=40)
def test_rollouts_when_asked_for_by_iteration_group_and_outcome_then_those_of_a_full_read(
    stored, iteration, status, numbers
) -> None:
    folder, trees = stored
    chosen = [tree for tree in trees if iteration in (None, tree.iteration)]
    names = [tree.group for tree in chosen]
    groups = None if numbers is None else {name for name in names if int(name[-4:]) in numbers}
    expected = [t for t in chosen if groups is None or t.group in groups]
    expected = [t for t in expected if status is None or t.status in status]
    assert list(read_rollouts(folder, iteration, groups=groups, status=status)) == expected


def test_rollouts_when_asked_for_by_player_then_his_turns_only_and_whole_steps(stored) -> None:
    folder, trees = stored
    for tree, again in zip(trees, read_rollouts(folder, players="bo"), strict=True):
        assert again.seats == tree.seats
        for step, step_again in zip(tree.steps, again.steps, strict=True):
            assert step_again.turns == tuple(turn for turn in step.turns if turn.player == "bo")
            assert step_again.closing == tuple(turn for turn in step.closing if turn.player == "bo")
            assert (step_again.rewards, step_again.info) == (step.rewards, step.info)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"groups": ["000001/g0099"]}, "group '000001/g0099' is in none .* did you mean"),
        ({"players": ["ada", "boo"]}, "player 'boo' .* did you mean 'bo'"),
        ({"status": "terminatd"}, "status 'terminatd' is unknown.* did you mean 'terminated'"),
    ],
)
def test_question_when_it_names_what_is_nowhere_then_refused_at_once(stored, asked, told) -> None:
    """Law 9: a typo is no empty answer."""
    with pytest.raises(ValueError, match=told):
        read_rollouts(stored[0], 1, **asked)
    with pytest.raises(ValueError, match=told):
        read_table(stored[0], "turns", 1, **asked)


def test_rows_when_one_group_is_asked_for_then_other_row_groups_and_files_are_not_read(
    stored, monkeypatch
) -> None:
    folder, trees = stored
    read: list[int] = []
    inner = pq.ParquetFile.read_row_groups

    def counting(self, row_groups, *rest, **named):
        read.append(len(row_groups))
        return inner(self, row_groups, *rest, **named)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", counting)
    last = trees[-1].group
    found = list(read_rollouts(folder, 2, groups=[last]))
    assert found == [tree for tree in trees if tree.group == last]
    assert pq.ParquetFile(part_path(folder, "turns", 2)).num_row_groups > 4
    assert max(read[-2:]) <= 2, "steps and turns of one group lie in one or two row groups"
    monkeypatch.undo()
    part_path(folder, "turns", 0).rename(folder / "away")
    try:
        assert list(read_rollouts(folder, 2, groups=[last])) == found
    finally:
        (folder / "away").rename(part_path(folder, "turns", 0))


def test_reader_when_a_file_is_long_then_it_holds_a_stretch_of_episodes_at_a_time(
    tmp_path: Path, monkeypatch
) -> None:
    trees = play(Counting(length=5), num_groups=20)
    write_rollouts(tmp_path, 0, trees)
    held: list[int] = []
    inner = storage.trees_from_tables

    def counting(episodes, steps, turns, iteration):
        held.append(len(steps))
        return inner(episodes, steps, turns, iteration)

    monkeypatch.setattr(storage, "trees_from_tables", counting)
    monkeypatch.setattr(storage, "STEPS_AT_ONCE", 12)
    assert list(read_rollouts(tmp_path)) == trees
    assert held == [10] * 10


def test_table_when_asked_for_then_only_its_columns_and_rows(stored) -> None:
    folder, trees = stored
    whole = read_table(folder, "turns")
    assert whole.column_names[0] == "iteration"
    assert len(whole) == sum(len(step.turns) + len(step.closing) for tree in trees for step in tree.steps)
    failed = read_table(folder, "turns", 1, columns=["reply"], players=["ada"], status=["failed"])
    assert failed.column_names == ["iteration", "reply"]
    steps = [step for tree in trees if tree.iteration == 1 and tree.failure for step in tree.steps]
    assert failed.column("reply").to_pylist() == [
        turn.reply for step in steps for turn in step.turns if turn.player == "ada"
    ]
    episodes = read_table(folder, "episodes", status=["failed"])
    assert episodes.column("status").unique().to_pylist() == ["failed"]
    with pytest.raises(ValueError, match=r"no column 'replay'.* did you mean 'reply'"):
        read_table(folder, "turns", columns=["replay"])
    with pytest.raises(ValueError, match="table 'steps' has no column 'player'"):
        read_table(folder, "steps", players=["ada"])


def test_table_when_an_iteration_is_unfinished_then_its_rows_are_left_out(tmp_path: Path, caplog) -> None:
    for iteration in (0, 1):
        write_rollouts(tmp_path, iteration, play(Counting(), iteration=iteration))
    part_path(tmp_path, "episodes", 1).unlink()
    with caplog.at_level(logging.WARNING):
        assert read_table(tmp_path, "steps").column("iteration").unique().to_pylist() == [0]
    assert "not finished" in caplog.text
    part_path(tmp_path, "episodes", 0).unlink()
    with pytest.raises(FileNotFoundError, match="no finished iteration"):
        read_table(tmp_path, "steps")


@pytest.mark.parametrize("max_turns", [1, 7, 10_000])
def test_writer_when_it_streams_then_the_same_rows_and_schema_as_in_one_go(
    tmp_path: Path, max_turns: int
) -> None:
    trees = mixed(4)
    write_rollouts(tmp_path / "one", 4, trees)
    write_with(tmp_path / "many", 4, trees, max_turns=max_turns)
    assert list(read_rollouts(tmp_path / "many")) == trees
    for table in ("episodes", "steps", "turns"):
        one, many = (pq.ParquetFile(part_path(tmp_path / name, table, 4)) for name in ("one", "many"))
        assert one.schema_arrow.equals(many.schema_arrow, check_metadata=True)
        assert one.read().to_pylist() == many.read().to_pylist()
        assert [p.name for p in part_path(tmp_path / "many", table, 4).parent.iterdir()] == ["part-0.parquet"]
    write_with(tmp_path / "none", 4, [])
    assert list(read_rollouts(tmp_path / "none")) == []


def test_writer_when_much_text_comes_then_it_is_not_held(tmp_path: Path) -> None:
    trees = play(Counting(), lambda seat: Scripted(seat, say=lambda seen, key: "x" * 1000), num_groups=6)
    write_with(tmp_path, 0, trees, max_characters=5000)
    assert pq.ParquetFile(part_path(tmp_path, "turns", 0)).num_row_groups == 6


def test_writer_when_left_by_an_exception_then_the_old_files_stand(tmp_path: Path) -> None:
    trees = play(Counting(), num_groups=2)
    write_with(tmp_path, 0, trees)
    for wrong, told in ((trees[0], "more than once"), (mixed(1)[0], "of iteration 1; expected 0")):
        with pytest.raises(ValueError, match=told), RolloutWriter(tmp_path, 0, max_turns=1) as writer:
            writer.add(trees[0])
            writer.add(wrong)
    with pytest.raises(RuntimeError, match="not open"):
        writer.add(trees[1])
    assert list(read_rollouts(tmp_path)) == trees
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


STREAMING = """
import sys
sys.path.insert(0, {folder!r})
from test_questions import mixed, write_with
for iteration in range(10_000):
    write_with({run!r}, iteration % 40, mixed(iteration % 40, 8), max_turns=5)
    print(iteration, flush=True)
"""


def plain_columns(folder: Path, table: str) -> dict[int, int]:
    """Iteration -> rows, by plain pyarrow, whatever lies about."""
    found = ds.dataset(folder / "rollouts" / table, partitioning="hive").to_table(columns=["iteration"])
    return {n["values"]: n["counts"] for n in found.column("iteration").value_counts().to_pylist()}


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(8))
def test_kill_when_at_any_moment_then_every_finished_iteration_is_read_by_plain_tools(
    tmp_path: Path, kill: int
) -> None:
    """B47, law 8."""
    code = STREAMING.format(folder=str(Path(__file__).parent), run=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2 + kill % 3):
            process.stdout.readline()
        time.sleep(kill * 0.0037)
        process.send_signal(signal.SIGKILL)
        told = [int(line) for line in process.stdout.read().split()]
        finished = max(told, default=1 + kill % 3) + 1
    assert process.returncode == -signal.SIGKILL
    counted = {table: plain_columns(tmp_path, table) for table in ("episodes", "steps", "turns")}
    for iteration in range(finished):
        trees = mixed(iteration, 8)
        steps = [step for tree in trees for step in tree.steps]
        assert counted["episodes"][iteration] == len(trees)
        assert counted["steps"][iteration] == len(steps)
        assert counted["turns"][iteration] == sum(len(step.turns) + len(step.closing) for step in steps)
        assert list(read_rollouts(tmp_path, iteration)) == trees
    if importlib.util.find_spec("pandas"):
        import pandas as pd

        frame = pd.read_parquet(tmp_path / "rollouts" / "episodes")
        assert frame.groupby("iteration", observed=True).size()[finished - 1] == len(mixed(finished - 1, 8))
    if importlib.util.find_spec("duckdb"):
        import duckdb

        files = tmp_path / "rollouts" / "episodes" / "*" / "*.parquet"
        table = duckdb.read_parquet(str(files), hive_partitioning=True)
        rows = table.aggregate("iteration::int, count(*)").fetchall()
        assert dict(rows)[finished - 1] == len(mixed(finished - 1, 8))

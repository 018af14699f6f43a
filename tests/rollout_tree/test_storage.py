"""Parquet and back: exactly, with one schema, whole files only, the same bytes for the same trees."""

import logging
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_fakes import Counting, Scripted, Tokens, play, play_one

from coplay.agents.base import Sampling, Segment
from coplay.games import Choice, Fields, FreeText, Malformed, Move, Number, Observation, StepOutcome
from coplay.rollout_tree import (
    CreditRow,
    Failure,
    RolloutTree,
    Step,
    Turn,
    build_trajectories,
    read_credits,
    read_rollouts,
    write_credits,
    write_rollouts,
)
from coplay.rollout_tree.columns import make_table, steps_table
from coplay.rollout_tree.json_text import dumps, loads, plain, shield, unshield
from coplay.rollout_tree.schema import Table, arrow_schema
from coplay.rollout_tree.storage import part_path

ODD_TEXT = st.text(st.characters(codec=None, exclude_categories=())) | st.sampled_from(
    ["", "\0", "\ud83d", "\ude00\ud83d", "\ud83d\ude00", "😀", "\0x", "a\\ud83d", "\x1b[31m", "{}", "é\r\n"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=8,
)
INT32 = st.integers(0, 2**31 - 1)
FLOAT32 = st.floats(allow_nan=False, allow_infinity=False, width=32)
FLOAT64 = st.floats(allow_nan=False, allow_infinity=False)
SEGMENTS = st.lists(
    st.lists(INT32, max_size=4).map(lambda ids: Segment(tuple(ids)))
    | st.lists(st.tuples(INT32, FLOAT32), max_size=4).map(
        lambda pairs: Segment(tuple(i for i, _ in pairs), True, tuple(p for _, p in pairs))
    ),
    max_size=4,
).map(tuple)
GRAMMARS = st.sampled_from(
    [
        Choice(("A", "B")),
        Choice(("é", "ü"), "move"),
        FreeText(20),
        Number(low=0, high=9),
        Number(values=(0, 5, 10), tag="claim"),
        Fields(("apples", "pears"), 0, 4),
    ]
)
TURNS = st.builds(
    Turn,
    player=st.sampled_from(["ada", "bo\ud83d"]),
    observation=st.builds(
        Observation,
        text=ODD_TEXT,
        grammar=GRAMMARS,
        system=ODD_TEXT,
        fresh_context=st.booleans(),
        facts=st.dictionaries(ODD_TEXT, JSON, max_size=3),
    ),
    reply=ODD_TEXT,
    action=st.builds(Move, value=JSON, text=ODD_TEXT)
    | st.builds(Malformed, reason=st.sampled_from(["empty", "cut_off", "no_move"]), text=ODD_TEXT),
    segments=SEGMENTS,
    policy=ODD_TEXT,
    finish=st.sampled_from(["stop", "length", "grammar", "none"]),
    attempt=st.integers(0, 3),
    sampling=st.none()
    | st.builds(
        Sampling,
        temperature=FLOAT64,
        max_new_tokens=INT32,
        seed=st.integers(0, 2**63 - 1),
        constrained=st.booleans(),
    ),
    tokenizer=ODD_TEXT,
    fresh_context=st.booleans(),
    penalty=FLOAT64,
    trains_once_for=ODD_TEXT,
)
STEPS = st.builds(
    Step,
    id=st.just(0),
    parent=st.none() | st.integers(0, 5),
    branch=ODD_TEXT,
    index=st.integers(0, 5),
    tick=st.integers(0, 5),
    turns=st.lists(TURNS, max_size=3).map(tuple),
    rewards=st.dictionaries(ODD_TEXT, FLOAT64, max_size=3),
    status=st.sampled_from(["running", "terminated", "truncated"]),
    info=st.dictionaries(ODD_TEXT, JSON, max_size=3),
    closing=st.lists(TURNS, max_size=2).map(tuple),
)
TREES = st.builds(
    RolloutTree,
    episode=ODD_TEXT,
    iteration=st.just(3),
    game=ODD_TEXT,
    group=ODD_TEXT,
    group_seed=st.integers(0, 2**63 - 1),
    seats=st.dictionaries(ODD_TEXT, ODD_TEXT, min_size=1, max_size=3),
    steps=st.lists(STEPS, max_size=3).map(lambda steps: tuple(replace(s, id=n) for n, s in enumerate(steps))),
    failure=st.none() | st.builds(Failure, player=ODD_TEXT, step=st.integers(0, 9), reason=ODD_TEXT),
)


def same_types(one: object, other: object) -> bool:
    """Equal with equal types at every depth, keys included (0 is not "0", 1 is not True)."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same_types(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_types, one, other))
    return type(one) is type(other) and one == other


@settings(max_examples=40)
@given(trees=st.lists(TREES, max_size=3, unique_by=lambda tree: tree.episode))
def test_trees_when_written_and_read_then_equal(trees, tmp_path_factory) -> None:
    """B42, B43, B45, B46, B85: odd texts, empty info, None, any JSON, exactly the keys that were there."""
    folder = tmp_path_factory.mktemp("run")
    write_rollouts(folder, 3, trees)
    back = list(read_rollouts(folder))
    assert back == sorted(trees, key=lambda tree: tree.episode)
    for tree, again in zip(sorted(trees, key=lambda tree: tree.episode), back, strict=True):
        assert list(again.seats) == list(tree.seats)
        for step, step_again in zip(tree.steps, again.steps, strict=True):
            assert same_types(step.info, step_again.info)
            for turn, turn_again in zip(step.turns, step_again.turns, strict=True):
                assert same_types(turn.observation.facts, turn_again.observation.facts)
                assert type(turn.action) is type(turn_again.action)


@given(text=ODD_TEXT)
def test_text_when_shielded_then_utf8_holds_it_and_it_comes_back(text: str) -> None:
    """B85."""
    assert unshield(shield(text)) == text
    shield(text).encode("utf-8")
    if text.isascii() and not text.startswith("\0"):
        assert shield(text) == text


@given(value=JSON)
def test_json_when_dumped_then_loads_gives_it_back_with_its_types(value) -> None:
    """B42."""
    assert same_types(loads(dumps(value, "value")), value) and plain(value, "value") is value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({0: "a"}, "key 0"),
        ({"a": {0: 1, "0": 2}}, "key 0"),
        ({"a": (1, 2)}, r"plain JSON value {'a': \[1, 2\]}"),
        ({"a": {1}}, "type set"),
        ({"a": b"x"}, "type bytes"),
        ([float("nan")], "finite"),
    ],
)
def test_json_when_a_value_has_no_json_form_then_refused_and_named(value, words: str) -> None:
    """B42: a dict with 0 and "0" is refused, never merged."""
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        dumps(value, "info of step 4")
    assert "info of step 4" in str(caught.value)


def test_integer_keys_when_stored_then_the_write_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    """B42, B44."""
    tree = play_one(Counting(), Scripted)
    odd = replace(tree, steps=(replace(tree.steps[0], info={"cells": {0: "x"}}),))
    with pytest.raises(TypeError, match="info of step 0"):
        write_rollouts(tmp_path, 0, [odd])
    assert not list(tmp_path.rglob("*.parquet"))


def test_columns_when_one_is_missing_or_unknown_then_the_write_names_it() -> None:
    """B44: no column is dropped or filled in silently."""
    with pytest.raises(KeyError, match="illegal_moves"):
        make_table("steps", {"illegal_moves": [1]})


def test_schema_when_files_are_empty_or_full_then_the_same(tmp_path: Path) -> None:
    """B43: never inferred; all-null columns and empty lists keep their types; files are read together."""
    write_rollouts(tmp_path, 0, [])
    write_rollouts(tmp_path, 1, [play_one(Counting(), Scripted, iteration=1)])
    write_rollouts(tmp_path, 2, [play_one(Counting(), Tokens, iteration=2)])
    for table in ("episodes", "steps", "turns"):
        files = [pq.read_schema(part_path(tmp_path, table, n)) for n in (0, 1, 2)]
        assert files[0].equals(files[1], check_metadata=True) and files[1].equals(
            files[2], check_metadata=True
        )
        assert files[0].metadata[b"coplay.schema_version"] == b"1"
        assert files[0].names == arrow_schema(table).names
        together = ds.dataset(tmp_path / "rollouts" / table, partitioning="hive").to_table()
        assert set(together.column("iteration").to_pylist()) == {1, 2}
    assert [tree.iteration for tree in read_rollouts(tmp_path)] == [1, 2]


def test_rewards_when_players_differ_by_game_then_exactly_their_keys(tmp_path: Path) -> None:
    """B45: no one is invented."""
    first = play_one(Counting(players=("ada", "bo")), Scripted)
    second = replace(play_one(Counting(players=("ada", "cy")), Scripted), episode="000000/00001")
    write_rollouts(tmp_path, 0, [second, first])
    assert [set(tree.steps[0].rewards) for tree in read_rollouts(tmp_path)] == [{"ada", "bo"}, {"ada", "cy"}]


def test_failed_episode_when_stored_then_kept_with_its_reason_and_without_a_return(tmp_path: Path) -> None:
    """B37, rule 12."""
    tree = play_one(Counting(length=5, max_steps=2), max_failed_share=1.0)
    write_rollouts(tmp_path, 0, [tree])
    assert list(read_rollouts(tmp_path)) == [tree] and tree.failure
    table = pq.read_table(part_path(tmp_path, "episodes", 0), partitioning=None)
    assert table.column("returns").to_pylist() == [None]
    assert table.column("failure_reason").to_pylist() == [tree.failure.reason]


def test_bytes_when_the_same_trees_come_in_another_order_then_the_same(tmp_path: Path) -> None:
    """Law 8, law 5: a redone iteration replaces itself with equal files."""
    trees = play(Counting(), num_groups=3)
    write_rollouts(tmp_path / "a", 0, trees)
    write_rollouts(tmp_path / "b", 0, trees[::-1])
    write_rollouts(tmp_path / "b", 0, trees)
    for table in ("episodes", "steps", "turns"):
        one, other = (part_path(tmp_path / run, table, 0) for run in "ab")
        assert one.read_bytes() == other.read_bytes()
        assert [path.name for path in one.parent.iterdir()] == ["part-0.parquet"]


def test_partial_file_when_a_reader_comes_then_skipped_with_a_notice(tmp_path: Path, caplog) -> None:
    """B47, B40."""
    for iteration in (1, 2):
        write_rollouts(tmp_path, iteration, play(Counting(), iteration=iteration))
    unfinished = part_path(tmp_path, "episodes", 3)
    unfinished.parent.mkdir(parents=True)
    (unfinished.parent / f".{unfinished.name}.tmp").write_bytes(b"PAR1 half of it")
    with caplog.at_level(logging.WARNING):
        assert [tree.iteration for tree in read_rollouts(tmp_path)] == [1, 2]
    assert ".part-0.parquet.tmp" in caplog.text and "not finished" in caplog.text


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from rollout_fakes import Counting, play
from coplay.rollout_tree import storage, write_rollouts
for iteration in (1, 2):
    write_rollouts({run!r}, iteration, play(Counting(), iteration=iteration))
replace = os.replace
def die_at_episodes(one, other):
    os.kill(os.getpid(), signal.SIGKILL) if "episodes" in str(other) else replace(one, other)
storage.os.replace = die_at_episodes
write_rollouts({run!r}, 3, play(Counting(), iteration=3))
"""


def test_kill_when_in_the_middle_of_a_write_then_earlier_iterations_are_whole(tmp_path: Path) -> None:
    """B47, law 8: kill -9 between the tables of iteration 3; writing it again repairs it."""
    code = KILLED.format(folder=str(Path(__file__).parent), run=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [tree.iteration for tree in read_rollouts(tmp_path)] == [1, 2]
    with pytest.raises(FileNotFoundError, match="iteration 3"):
        read_rollouts(tmp_path, 3)
    write_rollouts(tmp_path, 3, play(Counting(), iteration=3))
    assert [tree.iteration for tree in read_rollouts(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("died_at", ["turns", "steps", "episodes"])
def test_kill_when_an_iteration_is_written_again_then_it_was_readable_throughout(
    tmp_path: Path, monkeypatch, died_at: str
) -> None:
    """Law 8: the same content leaves the files that stand; other content is there whole, or not at all."""
    trees, others = play(Counting(), num_groups=2), play(Counting(length=4), num_groups=2)
    write_rollouts(tmp_path, 0, trees)
    path = part_path(tmp_path, "turns", 0)
    before = path.stat().st_mtime_ns, path.stat().st_ino
    write_rollouts(tmp_path, 0, trees)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert [found.name for found in path.parent.iterdir()] == [path.name]

    def die(one: Path, other: Path) -> None:
        if died_at in str(other):
            raise KeyboardInterrupt
        one.rename(other)

    monkeypatch.setattr("coplay.rollout_tree.storage.os.replace", die)
    write_rollouts(tmp_path, 0, trees)
    assert list(read_rollouts(tmp_path)) == trees
    with pytest.raises(KeyboardInterrupt):
        write_rollouts(tmp_path, 0, others)
    with pytest.raises(FileNotFoundError, match="no episodes"):
        read_rollouts(tmp_path)
    monkeypatch.undo()
    write_rollouts(tmp_path, 0, others)
    assert list(read_rollouts(tmp_path)) == others


def test_writers_when_two_write_one_iteration_then_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    """B101."""
    trees = play(Counting(), num_groups=4)
    write_rollouts(tmp_path, 0, trees[:1], writer=0)
    write_rollouts(tmp_path, 0, trees[1:], writer=1)
    assert list(read_rollouts(tmp_path, 0)) == trees


def test_reader_when_nothing_or_another_version_is_there_then_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected the folder of a run"):
        read_rollouts(tmp_path)
    write_rollouts(tmp_path, 0, play(Counting()))
    with pytest.raises(FileNotFoundError, match="stored are 0 to 0"):
        read_rollouts(tmp_path, 5)
    path = part_path(tmp_path, "episodes", 0)
    table = pq.read_table(path, partitioning=None).replace_schema_metadata({"coplay.schema_version": "99"})
    pq.write_table(table, path)
    with pytest.raises(ValueError, match="version 99"):
        list(read_rollouts(tmp_path))


@pytest.mark.parametrize("table", ["episodes", "steps", "turns"])
def test_file_when_cut_empty_or_gone_then_it_is_named_and_other_iterations_are_read(
    tmp_path: Path, table: Table
) -> None:
    """B47: damage after the fact, which no rename guards against."""
    for iteration in (0, 1):
        write_rollouts(tmp_path, iteration, play(Counting(), iteration=iteration))
    path = part_path(tmp_path, table, 0)
    whole = path.read_bytes()
    flipped = whole[:-40] + bytes(255 - byte for byte in whole[-40:-20]) + whole[-20:]
    for damage in (b"", whole[: len(whole) // 2], flipped):
        path.write_bytes(damage)
        with pytest.raises(ValueError, match=f"{table}/iteration=000000/part-0.parquet' is damaged"):
            list(read_rollouts(tmp_path))
        assert len(list(read_rollouts(tmp_path, 1))) == 1
    if table != "episodes":  # without it there is no such iteration
        path.unlink()
        with pytest.raises(FileNotFoundError, match=f"{table}/iteration=000000/part-0.parquet' is missing"):
            list(read_rollouts(tmp_path))


def test_writer_when_trees_are_of_another_iteration_or_double_then_refused(tmp_path: Path) -> None:
    trees = play(Counting())
    with pytest.raises(ValueError, match="of iteration 0; expected 4"):
        write_rollouts(tmp_path, 4, trees)
    with pytest.raises(ValueError, match="more than once"):
        write_rollouts(tmp_path, 0, trees * 2)


def test_rows_when_a_tool_has_reordered_them_then_episodes_come_together_by_id(tmp_path: Path) -> None:
    """Law 5."""
    trees = play(Counting(), num_groups=3)
    write_rollouts(tmp_path, 0, trees)
    path = part_path(tmp_path, "turns", 0)
    table = pq.ParquetFile(path).read()
    order = np.random.default_rng(0).permutation(len(table))
    pq.write_table(table.take(pa.array(order)), path)
    assert list(read_rollouts(tmp_path)) == trees


def test_long_chats_when_above_a_row_group_then_read_back(tmp_path: Path, monkeypatch) -> None:
    """B99: token lists split into chunks come back."""
    monkeypatch.setattr("coplay.rollout_tree.storage.ROW_GROUP", 7)
    trees = play(Counting(length=40), num_groups=2)
    write_rollouts(tmp_path, 0, trees)
    assert pq.ParquetFile(part_path(tmp_path, "turns", 0)).num_row_groups > 10
    assert list(read_rollouts(tmp_path)) == trees


def test_trajectories_when_built_from_disk_then_those_of_memory(tmp_path: Path) -> None:
    """Law 1: what is trained on is what was stored."""

    def outcome(step, actions, chance):
        return StepOutcome(rewards={"ada": 1.0, "bo": 0.5}, truncated=step == 3)

    (tree,) = trees = play(Counting(length=4, outcome=outcome), lambda s: Tokens(s, fresh_at=(2,)))
    write_rollouts(tmp_path, 0, trees)
    (again,) = read_rollouts(tmp_path)
    for one, other in zip(build_trajectories(tree), build_trajectories(again), strict=True):
        assert one.value_points == other.value_points and one.turns == other.turns
        for row, row_again in zip(one.rows, other.rows, strict=True):
            for name in ("ids", "sampled", "log_probs", "turn", "tick"):
                assert np.array_equal(getattr(row, name), getattr(row_again, name))


def test_steps_when_empty_info_stands_beside_full_then_both_come_back() -> None:
    """B46."""
    tree = play_one(Counting(length=2), Scripted)
    mixed = replace(tree, steps=(replace(tree.steps[0], info={}), tree.steps[1]))
    texts = steps_table([mixed]).column("info_json").to_pylist()
    assert texts[0] == "{}" and '"luck"' in texts[1]


def credit(**changes) -> CreditRow:
    values = {
        "episode": "000001/00000",
        "branch": "",
        "player": "ada",
        "row": 0,
        "position": np.array([3, 4]),
        "token": np.array([5, 9]),
        "tick": np.array([0, 0]),
        "turn": np.array([0, 0]),
        "credit": np.array([0.5, -0.25], dtype=np.float32),
    }
    return CreditRow(**(values | changes))


def test_credits_when_written_and_read_then_equal_and_unknown_is_not_zero(tmp_path: Path) -> None:
    rows = [credit(player="bo", value=[1.0, 2.0]), credit(), credit(row=1)]
    write_credits(tmp_path, 1, rows)
    back = list(read_credits(tmp_path))
    assert [(row.player, row.row) for row in back] == [("ada", 0), ("ada", 1), ("bo", 0)]
    assert back[0].value is None and back[2].value.tolist() == [1.0, 2.0]
    assert back[0].credit.tolist() == [0.5, -0.25] and back[0].token.tolist() == [5, 9]
    one = part_path(tmp_path, "credits", 1).read_bytes()
    write_credits(tmp_path, 1, rows[::-1])
    assert part_path(tmp_path, "credits", 1).read_bytes() == one
    write_credits(tmp_path, 2, [])
    assert list(read_credits(tmp_path, 2)) == []


def test_credits_when_lengths_differ_then_the_row_is_named(tmp_path: Path) -> None:
    """B09."""
    with pytest.raises(ValueError, match="row 0 of player 'ada'"):
        write_credits(tmp_path, 1, [credit(value=[1.0])])

"""From trajectories to tensors (laws 1 and 5, rules 1, 2, 9; B25)."""

from dataclasses import replace

import pytest
import torch
from run_fakes import make_tree, table_of

from coplay.rollout_tree.records import Failure
from coplay.training.extract import extract, in_table_order, token_batch, value_batch
from coplay.training.records import PathKey, TokenBatch


def batch_of(*trees, policy: str = "shared@0", **options) -> TokenBatch | None:  # type: ignore[no-untyped-def]
    arguments = {"reward_scale": 1.0, "trie_of": lambda grammar: None} | options
    return token_batch(extract(trees), policy=policy, **arguments)


def test_trajectories_when_extracted_then_ascending_and_without_failed_games() -> None:
    trees = [make_tree({"Bo": [1.0], "Ada": [2.0]}, episode=f"e{n}") for n in (2, 0, 1)]
    trees[0] = replace(trees[0], failure=Failure(player="Ada", step=0, reason="OSError: x"))
    found = [(t.episode, t.player) for t in extract(trees)]
    assert found == [("e0", "Ada"), ("e0", "Bo"), ("e1", "Ada"), ("e1", "Bo")]


def test_table_when_games_differ_in_length_then_padded_and_masked() -> None:
    trees = [
        make_tree({"Ada": [2.0], "Bo": [4.0]}, episode="short"),
        make_tree({"Ada": [6.0, 8.0], "Bo": [0.0, 2.0]}, episode="long", truncated=True),
    ]
    _, table = table_of(*trees, reward_scale=2.0)
    assert table.keys[0] == PathKey("long", "", "Ada")
    assert table.rewards.tolist() == [[3.0, 4.0], [0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]
    assert table.mask.tolist() == [[True, True]] * 2 + [[True, False]] * 2
    assert table.truncated.tolist() == [True, True, False, False]
    assert table.opponents == ("shared@0",) * 4


def test_groups_when_numbered_then_by_luck_seat_policy_and_opponents() -> None:
    seats = {"Ada": "a@0", "Bo": "b@0"}
    other = {"Ada": "a@0", "Bo": "b@1"}
    trees = [
        make_tree({"Ada": [0.0], "Bo": [0.0]}, episode="e0", group="g", seats=seats),
        make_tree({"Ada": [0.0], "Bo": [0.0]}, episode="e1", group="g", seats=seats),
        make_tree({"Ada": [0.0], "Bo": [0.0]}, episode="e2", group="h", seats=seats),
        make_tree({"Ada": [0.0], "Bo": [0.0]}, episode="e3", group="g", seats=other),
    ]
    _, table = table_of(*trees)
    groups = table.group_ids.tolist()
    assert groups[0::2] == [groups[0], groups[0], groups[4], groups[6]]
    assert len(set(groups)) == 6


def test_batch_when_made_then_tokens_know_path_tick_turn_and_place() -> None:
    batch = batch_of(
        make_tree({"Ada": [1.0, 2.0], "Bo": [0.0, 0.0]}, replies={"Ada": [11, 12], "Bo": [13, 14]})
    )
    assert batch is not None
    assert batch.targets.tolist() == [11, 12, 13, 14]
    assert batch.path.tolist() == [0, 0, 1, 1]
    assert batch.tick.tolist() == [0, 1, 0, 1]
    assert batch.column.tolist() == [2, 5, 2, 5]
    assert len(set(batch.turn.tolist())) == 4
    assert batch.place.tolist() == [[0, 0], [0, 1], [0, 0], [0, 1]]
    assert batch.behaviour.tolist() == [-0.5] * 4
    assert (batch.num_tokens, batch.num_trajectories, batch.ids.shape) == (4, 2, (2, 6))


def test_alike_dialogues_when_in_a_batch_then_one_row_and_all_their_tokens() -> None:
    trees = [make_tree({"Ada": [1.0, 2.0], "Bo": [0.0, 0.0]}, episode=f"e{n}") for n in range(3)]
    batch = batch_of(*trees)
    assert batch is not None
    assert batch.ids.shape[0] == 1
    assert (batch.num_tokens, batch.num_trajectories) == (12, 6)


def test_rows_when_of_another_policy_or_without_action_tokens_then_not_in_the_batch_b25() -> None:
    seats = {"Ada": "a@0", "Bo": "b@0"}
    tree = make_tree({"Ada": [1.0], "Bo": [2.0]}, seats=seats)
    batch = batch_of(tree, policy="b@0")
    assert batch is not None
    assert batch.path.tolist() == [1]
    assert batch.num_trajectories == 1
    assert batch_of(tree, policy="a@1") is None
    assert batch_of(make_tree({"Ada": [1.0], "Bo": [2.0]}, silent=["Ada", "Bo"])) is None
    assert batch_of() is None


def test_penalties_when_scaled_then_on_the_malformed_attempt_alone() -> None:
    tree = make_tree({"Ada": [1.0, 1.0], "Bo": [0.0, 0.0]}, malformed={1: 3.0})
    batch = batch_of(tree, reward_scale=2.0)
    assert batch is not None
    assert batch.penalty[batch.path == 0].tolist() == [0.0, 1.5, 0.0]
    assert batch.tick[batch.path == 0].tolist() == [0, 1, 1]


@pytest.mark.parametrize(("pattern", "expected"), [(None, True), ("A", True), ("^B", False)])
def test_entropy_mask_when_a_pattern_is_given_then_by_reply(pattern: str | None, expected: bool) -> None:
    batch = batch_of(make_tree({"Ada": [1.0], "Bo": [0.0]}), entropy_mask_regex=pattern)
    assert batch is not None
    assert batch.entropy_mask.tolist() == [expected] * 2


def test_value_points_when_a_game_is_truncated_then_one_beyond_the_last_tick() -> None:
    for truncated, ticks in ((False, [0, 1]), (True, [0, 1, 2])):
        trajectories, _ = table_of(make_tree({"Ada": [1.0, 2.0], "Bo": [0.0, 0.0]}, truncated=truncated))
        batch = value_batch(trajectories)
        assert batch.tick[batch.path == 0].tolist() == ticks
        assert batch.column[batch.path == 0].tolist()[:2] == [1, 4]


def test_trajectories_when_put_in_table_order_then_found_by_key() -> None:
    trees = [make_tree({"Ada": [1.0], "Bo": [0.0]}, episode=f"e{n}") for n in range(3)]
    trajectories, table = table_of(*trees)
    assert in_table_order(trajectories[::-1], table) == trajectories
    with pytest.raises(KeyError):
        in_table_order(trajectories[1:], table)


def test_padding_when_rows_differ_in_length_then_known_from_lengths() -> None:
    trees = [
        make_tree({"Ada": [1.0], "Bo": [0.0]}, episode="e0"),
        make_tree({"Ada": [1.0] * 3, "Bo": [0.0] * 3}, episode="e1"),
    ]
    batch = batch_of(*trees)
    assert batch is not None
    assert sorted(batch.lengths.tolist()) == [3, 9]
    assert (batch.column < batch.lengths[batch.row]).all()
    assert torch.equal(batch.ids[batch.row, batch.column], batch.targets)

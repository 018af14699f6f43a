"""Packets: each player's advantages find their game by id, tick by tick (rule 3, B57)."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from run_fakes import make_tree, table_of

from coplay.training.packets import AdvantagePacket, MissingPacketError, exchange, make_packets
from coplay.training.records import PathKey


def three() -> tuple[tuple[PathKey, ...], tuple[AdvantagePacket, ...]]:
    trees = [
        make_tree({"Ada": [1.0, 2.0, 3.0], "Bo": [10.0, 20.0, 30.0], "Cy": [100.0] * 3}, episode="long"),
        make_tree({"Ada": [4.0], "Bo": [40.0], "Cy": [400.0]}, episode="short"),
    ]
    _, table = table_of(*trees)
    return table.keys, make_packets(table, table.rewards)


@given(st.permutations(range(6)))
def test_sum_when_packets_come_in_any_order_then_by_game_and_tick_b57(order: list[int]) -> None:
    keys, packets = three()
    others = exchange(keys, [packets[n] for n in order], ("Ada", "Bo", "Cy"))
    expected = {
        ("long", "Ada"): [110.0, 120.0, 130.0],
        ("long", "Bo"): [101.0, 102.0, 103.0],
        ("long", "Cy"): [11.0, 22.0, 33.0],
        ("short", "Ada"): [440.0, 0.0, 0.0],
        ("short", "Bo"): [404.0, 0.0, 0.0],
        ("short", "Cy"): [44.0, 0.0, 0.0],
    }
    assert {(k.episode, k.player): row for k, row in zip(keys, others.tolist(), strict=True)} == expected


def test_packet_when_of_another_game_then_not_taken_for_the_missing_one_b57() -> None:
    keys, packets = three()
    without = [p for p in packets if p.key != PathKey("long", "", "Bo")]
    with pytest.raises(MissingPacketError, match="no packet of player 'Bo' for episode 'long'"):
        exchange(keys, without, ("Ada", "Bo", "Cy"))
    assert exchange([PathKey("short", "", "Ada")], without, ("Ada", "Bo", "Cy")).tolist() == [[440.0]]


def test_packet_when_its_ticks_differ_then_refused_b57() -> None:
    keys, packets = three()
    short = AdvantagePacket(key=packets[1].key, advantages=packets[1].advantages[:2])
    with pytest.raises(MissingPacketError, match=r"'Bo' in episode 'long' has 2 ticks; expected 3"):
        exchange(keys[:1], [packets[0], short, packets[2]], ("Ada", "Bo", "Cy"))


def test_packet_when_double_or_of_another_version_then_refused() -> None:
    keys, packets = three()
    with pytest.raises(ValueError, match="two packets for"):
        exchange(keys, [*packets, packets[0]], ("Ada", "Bo", "Cy"))
    future = AdvantagePacket(key=packets[0].key, advantages=packets[0].advantages, version=2)
    with pytest.raises(ValueError, match="has version 2; expected 1"):
        exchange(keys, [future, *packets[1:]], ("Ada", "Bo", "Cy"))


def test_packets_when_made_then_hold_real_ticks_only() -> None:
    _, packets = three()
    assert [len(p.advantages) for p in packets] == [3, 3, 3, 1, 1, 1]


def test_sum_when_nobody_asks_then_empty() -> None:
    _, packets = three()
    assert exchange([], packets, ("Ada", "Bo", "Cy")).shape == (0, 0)


def test_players_when_renamed_then_their_sums_go_along() -> None:
    rewards = {"Ada": [1.0], "Bo": [2.0], "Cy": [4.0]}
    for order in itertools.permutations(rewards):
        _, table = table_of(make_tree({player: rewards[player] for player in order}))
        others = exchange(table.keys, make_packets(table, table.rewards), order)
        total = torch.tensor([[7.0 - rewards[key.player][0]] for key in table.keys], dtype=torch.float64)
        assert torch.equal(others, total)

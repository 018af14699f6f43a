"""What trainers tell one another: each player's advantages, joined by (episode, branch, tick, player)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coplay.training.records import PathKey, TickTable

PACKET_VERSION = 1


class MissingPacketError(KeyError):
    """A player's advantages were expected and did not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantagePacket:
    """One player's advantages along one path, one number per tick from tick 0 on."""

    key: PathKey
    advantages: NDArray[np.float64]  # (num_ticks,)
    version: int = PACKET_VERSION


def make_packets(table: TickTable, advantages: Tensor) -> tuple[AdvantagePacket, ...]:
    """A packet for every player, trained or not (rule 3)."""
    lengths = table.mask.sum(dim=1).tolist()
    laid = advantages.double().numpy()
    return tuple(
        AdvantagePacket(key=key, advantages=laid[row, : int(length)])
        for row, (key, length) in enumerate(zip(table.keys, lengths, strict=True))
    )


def exchange(keys: Sequence[PathKey], packets: Iterable[AdvantagePacket], players: Sequence[str]) -> Tensor:
    """Sum over the opponents' advantages for each of B paths, (B, S) padded with zeros.

    Args:
        keys: whose opponents are asked for.
        packets: all packets of the iteration, in any order.
        players: all players of the game.

    Raises:
        MissingPacketError: if an opponent's packet is missing or has another number of ticks.
        ValueError: if two packets have one key, or a packet has another version.
    """
    by_key: dict[PathKey, AdvantagePacket] = {}
    for packet in packets:
        if packet.version != PACKET_VERSION:
            raise ValueError(f"packet {packet.key} has version {packet.version}; expected {PACKET_VERSION}")
        if packet.key in by_key:
            raise ValueError(f"two packets for {packet.key}; expected one for each (episode, branch, player)")
        by_key[packet.key] = packet
    sums: list[NDArray[np.float64]] = []
    for key in keys:
        length = len(_find(by_key, key).advantages)
        total = np.zeros(length)
        for player in players:
            if player == key.player:
                continue
            other = _find(by_key, PathKey(key.episode, key.branch, player)).advantages
            if len(other) != length:
                raise MissingPacketError(
                    f"packet of {player!r} in episode {key.episode!r} has {len(other)} ticks;"
                    f" expected {length}, as {key.player!r} has"
                )
            total += other
        sums.append(total)
    width = max(map(len, sums), default=0)
    laid = np.zeros((len(sums), width))
    for row, total in enumerate(sums):
        laid[row, : len(total)] = total
    return torch.from_numpy(laid)


def _find(packets: dict[PathKey, AdvantagePacket], key: PathKey) -> AdvantagePacket:
    if key not in packets:
        raise MissingPacketError(
            f"no packet of player {key.player!r} for episode {key.episode!r}, branch {key.branch!r};"
            " expected one for every player of every game that is trained on"
        )
    return packets[key]

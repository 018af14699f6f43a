"""Rollout trees made up for benchmarks: as large as asked, played by nobody, the same at every call."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coplay.agents.base import Sampling, Segment
from coplay.games import FreeText, Move, Observation
from coplay.rollout_tree import RolloutTree, Step, Turn
from coplay.rollout_tree.plan import episode_name

PLAYERS = ("Ada", "Bo")
GROUP_SIZE = 8
NUM_WORDS = 2000
SYSTEM = (
    "You are {player} and share coins, books and hats with another player over several rounds. In each round both say"
    " what they would like to have; what is claimed by both beyond what is there is divided in proportion. Values are"
    " drawn anew in every round, and only the values of the round count. Answer in one or two sentences and end with"
    " your claim."
)


def make_trees(
    num_turns: int, num_iterations: int, *, rounds: int = 10, seed: int = 0
) -> Iterator[RolloutTree]:
    """Episodes of `rounds` rounds of two players, 20 sampled tokens a reply, in groups of eight.

    Words follow Zipf's law, each has one token; log-probs are random float32, which no format can shrink much.
    """
    rng = np.random.default_rng(seed)
    words = [_word(rng) for _ in range(NUM_WORDS)]
    tokens = rng.permutation(49152)[:NUM_WORDS].astype(np.int64)
    per_iteration = num_turns // (num_iterations * rounds * len(PLAYERS))
    for iteration in range(num_iterations):
        for index in range(per_iteration):
            group = index // GROUP_SIZE
            steps = [_step(rng, words, tokens, number, rounds) for number in range(rounds)]
            yield RolloutTree(
                episode=episode_name(iteration, index),
                iteration=iteration,
                game="made_up",
                group=f"{iteration:06d}/g{group:04d}",
                group_seed=iteration * 1_000_003 + group,
                seats=dict.fromkeys(PLAYERS, "shared@0"),
                steps=tuple(steps),
            )


def _word(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), int(rng.integers(2, 9))))


def _step(
    rng: np.random.Generator, words: list[str], tokens: NDArray[np.int64], number: int, rounds: int
) -> Step:
    values = {
        item: int(value) for item, value in zip(("coins", "books"), rng.integers(1, 11, 2), strict=True)
    }
    claims = {player: int(claim) for player, claim in zip(PLAYERS, rng.integers(0, 11, 2), strict=True)}
    turns = []
    for player in PLAYERS:
        heard, said = (np.minimum(rng.zipf(1.3, 20), NUM_WORDS) - 1 for _ in range(2))
        log_probs = -rng.exponential(0.7, 20).astype(np.float32)
        reply = " ".join(words[place] for place in said)
        seed = int(rng.integers(0, 2**63))
        turns.append(
            Turn(
                player=player,
                observation=Observation(
                    text=f"Round {number + 1}. The other said: {' '.join(words[place] for place in heard)}",
                    grammar=_GRAMMAR,
                    system=SYSTEM.format(player=player),
                    facts={"round": number, "values": values},
                ),
                reply=reply,
                action=Move(value=claims[player], text=reply),
                segments=(
                    Segment(tuple(tokens[heard].tolist())),
                    Segment(tuple(tokens[said].tolist()), True, tuple(log_probs.tolist())),
                ),
                policy="shared@0",
                finish="stop",
                sampling=Sampling(temperature=1.0, max_new_tokens=32, seed=seed, constrained=False),
                tokenizer="0123456789abcdef",
            )
        )
    return Step(
        id=number,
        parent=number - 1 if number else None,
        branch="",
        index=number,
        tick=number,
        turns=tuple(turns),
        rewards={player: float(claim) for player, claim in claims.items()},
        status="terminated" if number == rounds - 1 else "running",
        info={"claims": claims, "values": values},
    )


_GRAMMAR = FreeText(400)


def line(num_steps: int) -> RolloutTree:
    """One main line, players taking turns, five tokens each."""
    return _tree(
        tuple(_bare_step(n, n - 1 if n else None, "", n, n == num_steps - 1) for n in range(num_steps))
    )


def bush(num_steps: int, depth: int = 50) -> RolloutTree:
    """A main line of `depth` steps, and branches from its steps to the end until the tree has `num_steps`."""
    steps = [_bare_step(n, n - 1 if n else None, "", n, n == depth - 1) for n in range(depth)]
    for number in count():
        if len(steps) >= num_steps:
            break
        fork, branch = number % depth, f"b{number}"
        for index in range(fork, depth):
            parent = (fork - 1 if fork else None) if index == fork else len(steps) - 1
            steps.append(_bare_step(len(steps), parent, branch, index, index == depth - 1))
    return _tree(tuple(steps))


def _bare_step(number: int, parent: int | None, branch: str, index: int, last: bool) -> Step:
    return Step(
        id=number,
        parent=parent,
        branch=branch,
        index=index,
        tick=index,
        turns=(_BARE_TURNS[index % 2][number % 7],),
        rewards=_REWARDS,
        status="terminated" if last else "running",
        info=_INFO[number % 4],
    )


def _bare_turn(player: str, number: int) -> Turn:
    return Turn(
        player=player,
        observation=Observation(text="your move", grammar=_GRAMMAR, system=""),
        reply="C" if number % 2 else "D",
        action=Move(value=number, text=""),
        segments=(Segment((1, 2, 3)), Segment((4, 5 + number), True, (-0.5, -0.25 * number))),
        policy="shared@0",
        finish="stop",
        tokenizer="t",
    )


def _tree(steps: tuple[Step, ...]) -> RolloutTree:
    return RolloutTree(
        episode="000000/00000",
        iteration=0,
        game="made_up",
        group="000000/g0000",
        group_seed=0,
        seats=dict.fromkeys(PLAYERS, "shared@0"),
        steps=steps,
    )


_BARE_TURNS = [[_bare_turn(player, number) for number in range(7)] for player in PLAYERS]
_REWARDS = dict.fromkeys(PLAYERS, 1.0)
_INFO: list[dict[str, Any]] = [
    {"cooperated": {"Ada": bool(number % 2), "Bo": number > 1}} for number in range(4)
]

"""Small runs to look at: hostile texts, branches, three players, and one as large as a page gets."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rollout_fakes import YES_NO, Counting, play

from coplay.agents.base import Agent, Reply, Sampling, Seat, Segment, ToolCall, TurnKey
from coplay.agents.chat import tokenizer_digest
from coplay.agents.embedded_tokenizer import CHAT_TEMPLATE, END, START, embedded_backend
from coplay.games import Observation
from coplay.rollout_tree import (
    BranchPlan,
    CreditRow,
    RolloutTree,
    branch_trajectories,
    build_trajectories,
    write_credits,
    write_rollouts,
)

SCRIPT = "<script>document.title = 'owned'</script>"
HOSTILE = (
    SCRIPT,
    "</script><img src=x onerror=\"document.title='owned'\"> & \"quotes\" 'single' <!-- {{ 7 * 7 }}",
    "\u05e9\u05dc\u05d5\u05dd \u202egnp.exe \u0000 \ud800",
    "\U0001f642 \U0001f469\u200d\U0001f469\u200d\U0001f467",
)

LONG = "coins " * 17_000
"""Over 100 kB, said once."""


@cache
def digest() -> str:
    return tokenizer_digest(embedded_backend().to_str(), CHAT_TEMPLATE, START, END)


@dataclass
class Writer:
    """Says what it is told to, in tokens of the embedded model's tokenizer."""

    seat: Seat
    say: Callable[[Seat, TurnKey], str]
    policy: str = "writer@3"

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        text = self.say(self.seat, key)
        backend = embedded_backend_once()
        seen = backend.encode(observation.text).ids
        ids = backend.encode(text.encode("utf-8", "replace").decode()).ids
        return Reply(
            text=text,
            policy=self.policy,
            segments=(
                Segment(tuple(seen)),
                Segment(tuple(ids), True, tuple(-0.1 * (place % 40) for place in range(len(ids)))),
            ),
            sampling=Sampling(temperature=1.0, max_new_tokens=len(ids), seed=key.step, constrained=False),
            tokenizer=digest(),
        )

    def close(self, observation: Observation) -> Reply | None:
        return None

    def fork(self) -> Agent:
        return replace(self)


@cache
def embedded_backend_once() -> Any:
    return embedded_backend()


def fake_credits(trees: list[RolloutTree]) -> list[CreditRow]:
    """A number for every sampled token, told apart by player, turn and place."""
    found = []
    for tree in trees:
        for path in (*build_trajectories(tree), *branch_trajectories(tree)):
            for number, row in enumerate(path.rows):
                place = np.flatnonzero(row.sampled)
                if not len(place):
                    continue
                sign = 1 if path.player == path.player.lower() else -1
                advantage = sign * (row.turn[place] - 2 + 0.01 * np.arange(len(place)))
                found.append(
                    CreditRow(
                        episode=path.episode,
                        branch=path.branch,
                        player=path.player,
                        row=number,
                        position=place,
                        token=row.ids[place],
                        tick=row.tick[place],
                        turn=row.turn[place],
                        baseline=np.full(len(place), 0.5),
                        advantage=advantage,
                        shaping=0 * advantage + 0.25,
                        credit=advantage + 0.25,
                    )
                )
    return found


def store(folder: Path, iteration: int, trees: list[RolloutTree]) -> None:
    write_rollouts(folder, iteration, trees)
    write_credits(folder, iteration, fake_credits(trees))


def hostile_run(folder: Path) -> Path:
    """Two iterations of two groups, players and texts that would like to be markup; one episode fails."""

    def say(seat: Seat, key: TurnKey) -> str:
        if key.episode.endswith("3") and key.step == 2:
            raise RuntimeError(f"no reply {SCRIPT}")
        if (key.episode, key.player, key.step) == ("000000/00000", "ada", 8):
            return LONG
        if key.step % 2 == 0:
            return HOSTILE[(key.step // 2 + int(key.episode[-1])) % len(HOSTILE)]
        return "yes" if key.step % 4 == 1 else "no"

    def observed(state: Any, player: str) -> Observation:
        return Observation(
            text=f"{SCRIPT} {state.step}", grammar=YES_NO, system=f"you are {player} {HOSTILE[1]}"
        )

    for iteration in (0, 5):
        game = Counting(10, ("ada", "<b>Bo</b>"), observed=observed)
        trees = play(
            game,
            lambda seat: Writer(seat, say),
            num_groups=2,
            group_size=2,
            iteration=iteration,
            max_failed_share=1.0,
        )
        store(folder, iteration, trees)
    return write_training(folder, ("ada", "<b>Bo</b>"))


def tool_run(folder: Path) -> Path:
    """One turn with a call of a tool that says what would like to be markup, and one that had nothing to say."""
    (tree,) = play(
        Counting(1, ("ada",)), lambda seat: Writer(seat, lambda *_: "yes"), num_groups=1, group_size=1
    )
    (step,) = tree.steps
    (turn,) = step.turns
    seen, said = turn.segments[0], turn.segments[-1]
    calls = tuple(
        ToolCall(
            text="look", tool="look", arguments={}, result=f"told {SCRIPT}", outcome=outcome, place=place
        )
        for outcome, place in (("ok", 2), ("timeout", 4))
    )
    segments = (seen, said, Segment(seen.ids), said, Segment(seen.ids), said)
    turn = replace(turn, segments=segments, calls=calls)
    store(folder, 0, [replace(tree, steps=(replace(step, turns=(turn,)),))])
    return folder


def branched_run(folder: Path) -> Path:
    """Three players, each of whose replies is resampled twice at every third step."""

    def say(seat: Seat, key: TurnKey) -> str:
        return (
            "yes"
            if random.Random(f"{key.episode}{key.branch}{key.player}{key.step}").random() < 0.5
            else "no"
        )

    game = Counting(7, ("ada", "bo", "cy"))
    plan = BranchPlan(every=3, num_alternatives=2)
    trees = play(game, lambda seat: Writer(seat, say), num_groups=2, group_size=3, branching=plan)
    store(folder, 0, trees)
    return folder


def large_run(folder: Path, episodes: int = 500) -> Path:
    """10 rounds, two players, 20 tokens a reply, each with its own credit and log-prob."""
    words = (" coins", " claim", " hand", " fair", " half", " deal", " keep", " give", " 10", " I", " you")

    def say(seat: Seat, key: TurnKey) -> str:
        drawn = random.Random(f"{key.episode}{key.player}{key.step}")
        return "".join(drawn.choices(words, k=20)).strip()

    game = Counting(10, ("Ada", "Bo"))
    trees = play(game, lambda seat: Writer(seat, say), num_groups=episodes // 10, group_size=10)
    store(folder, 0, trees)
    return write_training(folder, ("Ada", "Bo"), updates=400)


def payoff_cell(row: int, column: int) -> dict[str, Any]:
    """Pay 10 row + 3 - column, so that the last column is every row's least."""
    mean = 10.0 * row + 3 - column
    pay = {"mean": mean, "low": mean - 0.5, "high": mean + 0.25}
    return {"pay": pay, "games": 8, "failed": row, "self_play": row == column}


def nested_run(folder: Path) -> Path:
    """Branches that leave branches: two from a branch that parts at step 1, one of them parted from itself."""

    def say(seat: Seat, key: TurnKey) -> str:
        return "yes" if (len(key.branch) + key.step) % 2 else "no"

    plan = BranchPlan(players=("ada",), every=3, num_alternatives=1)
    trees = play(Counting(8), lambda seat: Writer(seat, say), branching=plan)
    write_rollouts(folder, 0, [grow(tree) for tree in trees])
    return folder


def grow(tree: RolloutTree) -> RolloutTree:
    """Side branches grown onto the first branch and onto one another, each a copy of the steps it stands beside."""
    steps = list(tree.steps)
    first = next(step.branch for step in steps if step.branch)
    leaves = ((first, 2, "early"), (first, 5, "late"), ("early", 4, "twig"))
    for source, index, name in leaves:
        line = {step.index: step for step in steps if step.branch == source}
        parent = line[index - 1].id
        for beside in (line[number] for number in range(index, max(line) + 1)):
            steps.append(replace(beside, id=len(steps), parent=parent, branch=name))
            parent = steps[-1].id
    return replace(tree, steps=tuple(steps))


def write_training(folder: Path, players: tuple[str, ...], updates: int = 30) -> Path:
    """Metrics and evaluations as a training run leaves them; the last line is cut off by a crash."""
    drawn = random.Random(1)
    lines = []
    for update in range(updates):
        line: dict[str, Any] = {
            "update": update,
            "time/collect": drawn.random(),
            "policy/shared/skipped": 0.0,
        }
        for place, player in enumerate(players):
            line[f"rollout/return_per_tick/{player}"] = 1 + place + update / updates + drawn.gauss(0, 0.2)
            line[f"rollout/malformed/{player}/cut_off"] = None if update == 3 else drawn.random()
        line["policy/shared/entropy"] = 2 - update / updates
        lines.append(json.dumps(line) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines) + lines[0][:20], encoding="utf-8")
    interval = {"mean": 2.5, "low": 2.25, "high": 2.75}
    row = {"opponent": SCRIPT, "games": 8, "failed": 1, "own": interval, "other": None, "cooperation": None}
    results = [row | {"malformed": 0.125}, row | {"opponent": "greedy", "other": interval, "malformed": 0.0}]
    payoffs = [
        {
            "game": "counting",
            "seed": 0,
            "games": 8,
            "rows": [SCRIPT, "greedy"],
            "columns": [SCRIPT, "greedy", "fair"],
            "cells": [[payoff_cell(row, column) for column in range(3)] for row in range(2)],
        }
    ]
    (folder / "payoffs.json").write_text(json.dumps(payoffs), encoding="utf-8")
    content = [{"update": 0, "results": results}, {"update": updates, "results": results}]
    (folder / "evaluations.json").write_text(json.dumps(content), encoding="utf-8")
    return folder

"""Runs small enough for tests, hand-made data for every stage of training, and players with written habits."""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coplay.agents.base import Agent, Reply, Sampling, Seat, Segment, TurnKey
from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.local_engine import LocalEngine
from coplay.games import Choice, Malformed, Move, Observation
from coplay.rollout_tree import RolloutTree, Trajectory, collect_sync, plan_episodes
from coplay.rollout_tree.plan import CollectPlan
from coplay.rollout_tree.records import Step, Turn
from coplay.training.config import RunConfig
from coplay.training.extract import extract, tick_table
from coplay.training.kl import penalise
from coplay.training.packets import AdvantagePacket, make_packets
from coplay.training.passes import Packing, ReadPlan
from coplay.training.records import Estimate, TickTable, TokenBatch
from coplay.training.references import read_references, with_references
from coplay.training.run import Run, new_run
from coplay.training.stages import (
    Reading,
    collect_rollouts,
    estimate_advantages,
    estimate_past,
    lay_out,
    look_beside,
    read_critic,
)
from coplay.training.trainer import Credit
from coplay.training.updates import StepPlan, policy_step

LORA = {"kind": "lora", "rank": 2, "alpha": 4}
FULL = {"kind": "full"}
SETTINGS: dict[str, Any] = {
    "name": "tiny",
    "seed": 3,
    "game": {"kind": "iterated_matrix", "wording": "terse", "num_rounds": 3},
    "agents": {
        "model": {"kind": "embedded", "hidden": 16, "intermediate": 16, "num_layers": 1, "num_heads": 2},
        "policies": {"shared": {"weights": FULL}},
        "sampling": {"max_new_tokens": 4},
    },
    "collect": {"num_groups": 2, "group_size": 2},
    "estimator": {"kind": "returns", "reward_scale": 5.0},
    "objective": {"largest_gap": None},  # hand-made trees have hand-made log-probs
    "update": {"num_updates": 3, "lr": 1e-2},
    "storage": {"checkpoint_every": 1, "keep": None},
}


def tiny_settings(folder: Path | None = None, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Nested settings of a run of milliseconds; `changes` maps dotted paths to values."""
    data = json.loads(json.dumps(SETTINGS))
    if folder is not None:
        data["storage"]["folder"] = str(folder)
    for path, value in (changes or {}).items():
        *sections, name = path.split(".")
        node = data
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = deepcopy(value)
    return data


def tiny_config(folder: Path, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """The same, checked."""
    return RunConfig.model_validate(tiny_settings(folder, changes))


def tiny_run(folder: Path, changes: Mapping[str, Any] | None = None) -> Run:
    """A new run in a new folder."""
    return new_run(tiny_config(folder, changes))


SEATS = {"Ada": "welfare_maximising", "Bo": "fair"}
TALK = {"kind": "games", "num_games": 5, "seats": SEATS}


def imitation_settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """An imitation of milliseconds; `changes` by dotted path, with `__` for the dots."""
    data: dict[str, Any] = {
        "name": "tiny",
        "seed": 3,
        "game": {"kind": "trust_and_split", "wording": "terse", "num_rounds": 2, "claims": [0, 5, 10]},
        "agents": {
            "model": {"kind": "embedded", "hidden": 16, "intermediate": 16, "num_layers": 1, "num_heads": 2},
            "policies": {"shared": {"weights": FULL}},
            "sampling": {"max_new_tokens": 40, "constrained": False},
        },
        "sources": {"talk": TALK},
        "imitation": {"validation_share": 0.2},
        "update": {"num_epochs": 2, "batch_size": 3, "lr": 1e-2},
        "storage": {"folder": str(folder), "checkpoint_every": 1, "keep": None},
    }
    for path, value in changes.items():
        *sections, name = path.split("__")
        node = data
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    return data


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """Everything one iteration made before its update."""

    trees: list[RolloutTree]
    trajectories: tuple[Trajectory, ...]
    table: TickTable
    reading: Reading
    estimate: Estimate
    packets: tuple[AdvantagePacket, ...]

    def credit(self, run: Run, update: int = 0) -> Credit:
        """The first trainer's credit."""
        found = run.trainers[0].credit(
            self.trajectories, self.table, self.estimate, self.packets, update=update
        )
        assert found is not None
        name = run.trainers[0].policy.name
        return read_references({name: found}, run.policies, run.config)[name]


def play_iteration(run: Run, update: int = 0) -> Iteration:
    """Collect, extract, estimate, exchange."""
    return reckon(run, collect_rollouts(run, update), update)


def reckon(run: Run, trees: list[RolloutTree], update: int = 0) -> Iteration:
    """Extract, estimate, exchange."""
    trajectories = extract(trees, branches=run.config.estimator.kind == "branches")
    table = lay_out(run, trajectories)
    reading = read_critic(run, trajectories, table)
    penalty = penalise(run.trainers, trajectories, table)
    found = estimate_advantages(run, table, reading, update=update, penalty=penalty)
    found = estimate_past(run, trajectories, table, found, look_beside(run, trees), update=update)
    return Iteration(
        trees=trees,
        trajectories=trajectories,
        table=table,
        reading=reading,
        estimate=found,
        packets=make_packets(table, found.exchanged),
    )


def gradients(
    run: Run,
    credit: Credit,
    folder: Path,
    *,
    micro_batch_tokens: int = 16384,
    packing: Packing = "trie",
    **changes: Any,
) -> dict[str, Tensor]:
    """The gradient of a step that moves nothing; `changes` of the step's plan."""
    plan: dict[str, Any] = {
        "lr": 0.0,
        "entropy_coefficient": run.config.objective.entropy_coefficient.value(0),
        "kl_coefficient": run.trainers[0].kl_coefficient,
        "gradient_clip": None,
        "reading": ReadPlan(micro_batch_tokens=micro_batch_tokens, packing=packing),
        "refused": folder / "refused.safetensors",
    } | changes
    policy, batch = run.trainers[0].policy, credit.batch
    if batch.reference is not None:
        batch = with_references({policy.name: batch}, run.policies, plan["reading"])[policy.name]
    parameters = policy.named_parameters()
    still = torch.optim.SGD(list(parameters.values()), lr=0.0)
    policy_step(policy, still, batch, credit.tokens, run.config.objective, StepPlan(**plan))
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in parameters.items()}


def in_double(network: Any) -> None:
    """Let a policy or critic compute in float64, so that only its own rounding of scores remains."""
    for name, parameter in network.named_parameters().items():
        if not name.startswith("head."):  # a critic's head reads float32
            parameter.data = parameter.data.double()


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Norm of the difference over the norm of the first."""
    flat = [torch.cat([tensors[name].flatten() for name in one]) for tensors in (one, other)]
    return float((flat[0] - flat[1]).norm() / flat[0].norm())


def unmerged(batch: TokenBatch) -> TokenBatch:
    """The same batch with a row of its own for every dialogue, alike or not."""
    owners = torch.stack([batch.path, batch.place[:, 0]], dim=1)
    unique, row = torch.unique(owners, dim=0, return_inverse=True)
    first = torch.stack([batch.row[(row == number).nonzero()[0, 0]] for number in range(len(unique))])
    return replace(batch, ids=batch.ids[first], lengths=batch.lengths[first], row=row)


def permuted(batch: TokenBatch, order: Tensor) -> TokenBatch:
    """The same rows in another order."""
    place = torch.argsort(order)
    return replace(batch, ids=batch.ids[order], lengths=batch.lengths[order], row=place[batch.row])


def make_tree(  # noqa: PLR0913 - what a game may have
    rewards: Mapping[str, Sequence[float]],
    *,
    episode: str = "000000/00000",
    group: str = "g0",
    seats: Mapping[str, str] | None = None,
    ticks: Sequence[int] | None = None,
    truncated: bool = False,
    silent: Sequence[str] = (),
    malformed: Mapping[int, float] | None = None,
    replies: Mapping[str, Sequence[int]] | None = None,
) -> RolloutTree:
    """A hand-made game: one step for each reward, two observed ids and one sampled id a turn.

    Args:
        rewards: player -> reward of each step.
        ticks: tick of each step; None: one each.
        silent: players without tokens.
        malformed: step -> penalty of a malformed first attempt by the first player.
        replies: player -> id sampled at each step.
    """
    players = tuple(rewards)
    names = seats or dict.fromkeys(players, "shared@0")
    count = len(rewards[players[0]])
    steps = []
    for index in range(count):
        turns = []
        for player in players:
            penalty = (malformed or {}).get(index) if player == players[0] else None
            if penalty is not None:
                turns.append(_turn(player, names[player], index, 30, penalty=penalty))
            said = replies[player][index] if replies and player in replies else 10 + index
            turns.append(
                _turn(
                    player,
                    names[player],
                    index,
                    said,
                    silent=player in silent,
                    attempt=int(penalty is not None),
                )
            )
        last = index == count - 1
        steps.append(
            Step(
                id=index,
                parent=index - 1 if index else None,
                branch="",
                index=index,
                tick=index if ticks is None else ticks[index],
                turns=tuple(turns),
                rewards={player: float(rewards[player][index]) for player in players},
                status="running" if not last else "truncated" if truncated else "terminated",
            )
        )
    return RolloutTree(
        episode=episode,
        iteration=0,
        game="hand-made",
        group=group,
        group_seed=0,
        seats=dict(names),
        steps=tuple(steps),
    )


def _turn(
    player: str,
    policy: str,
    index: int,
    said: int,
    *,
    silent: bool = False,
    attempt: int = 0,
    penalty: float = 0.0,
) -> Turn:
    segments = () if silent else (Segment((3, 20 + index)), Segment((said,), True, (-0.5,)))
    return Turn(
        player=player,
        observation=Observation(text="now", grammar=Choice(("A", "B"))),
        reply="A",
        action=Malformed(reason="no_move", text="A") if penalty else Move(value="A", text="A"),
        segments=segments,
        policy=policy,
        finish="stop",
        attempt=attempt,
        penalty=penalty,
        tokenizer="" if silent else "hand",
        sampling=None
        if silent
        else Sampling(temperature=1.0, max_new_tokens=4, seed=index, constrained=False),
    )


def table_of(
    *trees: RolloutTree, reward_scale: float = 1.0, has_chance: bool = True
) -> tuple[tuple[Trajectory, ...], TickTable]:
    """Trajectories and tick table of hand-made games."""
    trajectories = extract(trees)
    return trajectories, tick_table(trajectories, reward_scale=reward_scale, has_chance=has_chance)


class RecordingEngine:
    """The local engine, which also keeps every request with its answer."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.seen: list[tuple[SampleRequest, Sample]] = []

    async def sample(self, request: SampleRequest) -> Sample:
        answer = await self.engine.sample(request)
        self.seen.append((request, answer))
        return answer

    def publish(self, policy: str) -> str:
        return self.engine.publish(policy)

    def clear(self) -> None:
        self.engine.clear()

    def close(self) -> None:
        self.engine.close()


@dataclass
class Sayer:
    """Says what `say(observation, key)` gives; may raise. No tokens."""

    seat: Seat
    say: Callable[[Observation, TurnKey], str]
    policy: str
    seen: list[Observation] = field(default_factory=list)

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        self.seen.append(observation)
        return Reply(text=self.say(observation, key), policy=self.policy)

    def close(self, observation: Observation) -> Reply | None:
        return None

    def fork(self) -> Agent:
        return self


def play_sayers(game: Any, says: Mapping[str, Callable[[Observation, TurnKey], str]]) -> RolloutTree:
    """One game among sayers."""

    def sits(player: str) -> Callable[[Seat], Sayer]:
        return lambda seat: Sayer(seat, says[player], player)

    episodes = plan_episodes(
        game,
        run_seed=0,
        iteration=0,
        num_groups=1,
        group_size=1,
        seats={player: sits(player) for player in says},
        seat_names={player: player for player in says},
    )
    return collect_sync(CollectPlan(game=game, episodes=episodes))[0]


def run_bytes(folder: Path) -> dict[str, Any]:
    """What law 8 speaks of: rollout tables, metrics without times, checkpoints, evaluations; as written."""
    found: dict[str, Any] = {}
    for pattern in ("rollouts/*/*/*.parquet", "checkpoints/*/**/*", "evaluations.json"):
        for path in folder.glob(pattern):
            if path.is_file():
                found[str(path.relative_to(folder))] = path.read_bytes()
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        metrics = json.loads(line)
        found[f"metrics {metrics['update']}"] = {
            k: v for k, v in metrics.items() if not k.startswith("time/")
        }
        found.setdefault("updates", []).append(metrics["update"])
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Names of what two run folders do not share."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))

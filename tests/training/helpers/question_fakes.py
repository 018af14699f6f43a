"""Small runs of every estimator and shaping, which questions are asked of afterwards."""

from pathlib import Path
from typing import Any

from run_fakes import FULL, LORA, tiny_run

from coplay.training.loop import train

CRITIC = {
    "kind": "critic",
    "reward_scale": 5.0,
    "lr": 1e-2,
    "gae_lambda": {"kind": "tanh", "limit": 0.95, "tau": 1.0},
}
ALIGNED = {
    "kind": "advantage_alignment",
    "beta": {"kind": "linear", "initial": 0.9, "final": 0.1, "end": 3},
}
TWO = {
    "agents.policies": {"ada": {"weights": LORA}, "bo": {"weights": FULL}},
    "agents.seats": {"Ada": "ada", "Bo": "bo"},
}
SCRIPTED = {"agents.seats": {"Ada": "shared", "Bo": "tit_for_tat"}}
THREE = {"game.players": ["Ada", "Bo", "Cy"]}
LUCK = {"game": {"kind": "split", "wording": "terse", "num_rounds": 3}}
ALONE = LUCK | {"collect": {"num_groups": 3, "group_size": 1}}

RUNS: dict[str, dict[str, Any]] = {
    "returns": {},
    "critic": {"estimator": CRITIC},
    "critic, aligned, two policies": TWO | {"estimator": CRITIC, "shaping": ALIGNED},
    "critic, aligned, one seat scripted": SCRIPTED | {"estimator": CRITIC, "shaping": ALIGNED},
    "aligned, three players": THREE | {"shaping": ALIGNED | {"include_current": True}},
    "whitened": {"shaping": ALIGNED | {"whiten_before": "tick", "centre_after": "batch"}},
    "shared reward, three players": THREE | {"shaping.kind": "shared_reward"},
    "running mean": {"estimator.baseline": "running_mean"},
    "no baseline, visited": {"estimator.baseline": "none", "objective.visitation": True},
    "groups of one": ALONE,
    "sign, clip, time": {"shaping": ALIGNED | {"sign": True, "divide_by_time": True, "force_first": True}},
    "clip": {"shaping": ALIGNED | {"clip": 0.2, "extra_discount": False, "discount": 0.7}},
    "normalised by t": {"shaping": ALIGNED | {"normalise": "t"}},
    "normalised by t + 1": {"shaping": ALIGNED | {"normalise": "t+1", "clip": 0.3}},
    "critic, shared reward, three policies": THREE
    | {
        "agents.policies": {name: {"weights": LORA} for name in ("a", "b", "c")},
        "agents.seats": {"Ada": "a", "Bo": "b", "Cy": "c"},
        "estimator": CRITIC,
        "shaping": {"kind": "shared_reward", "whiten_before": "batch"},
    },
    "luck": LUCK | {"shaping": ALIGNED},
    "critic, branches kept to a horizon": {
        "estimator": CRITIC,
        "collect.branching": {"num_alternatives": 1, "horizon": 1},
    },
    "critic, whitened, visited": {
        "estimator": CRITIC,
        "shaping.whiten_after": "batch",
        "objective.visitation": True,
    },
    "grpo": {"estimator": {"kind": "grpo", "reward_scale": 5.0}},
    "grpo without deviations, whitened": {
        "estimator": {"kind": "grpo", "reward_scale": 5.0, "divide_by_deviation": False},
        "shaping.whiten_before": "batch",
    },
    "grpo, aligned, luck, several steps": LUCK
    | {
        "estimator": {"kind": "grpo", "discount": 0.9, "deviation": "population"},
        "shaping": ALIGNED,
        "objective.kind": "ppo",
        "update.num_mini_batches": 2,
    },
    "grpo, groups of one": ALONE | {"estimator": {"kind": "grpo"}},
    "ppo, several steps over a critic that warms up": {
        "estimator": CRITIC | {"value_clip": 0.2},
        "objective": {"kind": "ppo", "ratio": "turn", "largest_gap": None},
        "update.num_epochs": 2,
        "update.critic_warmup": 1,
    },
}

CUT = {"kind": "branches", "reward_scale": 5.0, "critic": {"lr": 1e-2}}
BRANCHED: dict[str, dict[str, Any]] = {
    name: {
        "estimator": {"kind": "branches", "reward_scale": 5.0},
        "collect.branching": {"num_alternatives": 2, "share": 0.7},
    }
    | changes
    for name, changes in {
        "branches": {},
        "branches, aligned": {"shaping": ALIGNED},
        "branches, luck, visited": LUCK | {"objective.visitation": True},
        "branches, three players": THREE | {"shaping": ALIGNED, "game.num_rounds": 2},
        "branches, two policies": TWO | {"shaping.kind": "shared_reward"},
        "branches, one seat scripted": SCRIPTED | {"shaping": ALIGNED},
        "branches, one player's": {"collect.branching": {"players": ["Bo"]}},
        "branches, groups of one": ALONE,
        "branches, nested": {
            "collect.branching": {"depth": 3, "share": 0.5, "num_alternatives": 2},
            "shaping": ALIGNED,
        },
        "branches, nested, three players": THREE
        | {"game.num_rounds": 2, "collect.branching": {"depth": 2}, "shaping.kind": "shared_reward"},
        "branches to a horizon": {
            "estimator": CUT,
            "collect.branching": {"num_alternatives": 2, "horizon": 1},
            "objective.visitation": True,
        },
        "branches to a horizon, nested, three players": THREE
        | {
            "estimator": CUT,
            "collect.branching": {"horizon": 2, "depth": 2, "share": 0.6},
            "shaping": ALIGNED,
        },
        "branches, chosen and paid for": TWO
        | LUCK
        | {
            "estimator": CUT,
            "collect.branching": {"min_entropy": 0.1, "max_value": 50.0, "max_branch_tokens": 8, "depth": 2},
        },
    }.items()
}
BRANCHED["branches, groups of one"] = BRANCHED["branches, groups of one"] | {
    "collect": {"num_groups": 3, "group_size": 1, "branching": {"num_alternatives": 1}}
}
RUNS |= BRANCHED

PENALTY = {"coefficient": 0.5, "kind": "k1", "place": "reward"}
"""A KL in the rewards."""
LOWERED = {
    "aligned, lowered by a KL": TWO | {"shaping": ALIGNED},
    "running mean, lowered, whitened": {
        "estimator.baseline": "running_mean",
        "shaping": ALIGNED | {"whiten_before": "tick"},
    },
    "critic, lowered, one seat scripted": SCRIPTED | {"estimator": CRITIC},
    "grpo, lowered by an adaptive KL": LUCK
    | {
        "estimator": {"kind": "grpo", "discount": 0.9},
        "objective.kl": PENALTY
        | {"kind": "k3", "controller": {"kind": "adaptive", "target": 0.01, "horizon": 8}},
    },
}
RUNS |= {
    name: {"objective.kl": PENALTY, "objective.largest_gap": None} | changes
    for name, changes in LOWERED.items()
}

EXPECTED = ALIGNED | {"past": {"kind": "expected"}}
RUNS |= {
    name: {"collect.branching": {"num_alternatives": 2}} | changes
    for name, changes in {
        "expected past": {"shaping": EXPECTED},
        "expected past, critic to a horizon": {
            "estimator": CRITIC,
            "shaping": EXPECTED,
            "collect.branching": {"num_alternatives": 1, "horizon": 1},
        },
        "expected past, luck, among siblings": LUCK
        | {
            "shaping": ALIGNED
            | {"past": {"kind": "expected", "replies": "siblings", "baseline": "leave_one_out"}}
        },
        "expected past where games branch, thinned": {
            "shaping": ALIGNED | {"clip": 0.3, "past": {"kind": "expected", "unforked": "zero"}},
            "collect.branching": {"num_alternatives": 2, "share": 0.6},
        },
        "expected past, rounds of several turns, one seat scripted": {
            "game": {"kind": "trust_and_split", "wording": "terse", "num_rounds": 2},
            "agents.seats": {"Ada": "shared", "Bo": "random"},
            "shaping": EXPECTED | {"include_current": True},
        },
        "expected past, branches": {
            "estimator": {"kind": "branches", "reward_scale": 5.0},
            "shaping": ALIGNED
            | {"past": {"kind": "expected", "unforked": "taken", "baseline": "leave_one_out"}},
        },
    }.items()
}

SHAPINGS: dict[str, dict[str, Any]] = {
    "independent": {"kind": "independent"},
    "shared reward": {"kind": "shared_reward"},
    "aligned": ALIGNED,
    "aligned, expected past": ALIGNED | {"past": {"kind": "expected", "unforked": "taken"}},
}
GRID: dict[str, dict[str, Any]] = {
    f"{estimator}, {shaping}, {len(players)} players": {
        "game": {"kind": "iterated_matrix", "wording": "terse", "num_rounds": 2, "players": players},
        "estimator": CRITIC if estimator == "critic" else {"kind": estimator, "reward_scale": 5.0},
        "shaping": SHAPINGS[shaping],
        "collect.num_groups": 1,
        "collect.branching": {"num_alternatives": 2},
        "update.num_updates": 2,
    }
    for estimator in ("returns", "critic", "branches")
    for shaping in SHAPINGS
    for players in (["Ada", "Bo"], ["Ada", "Bo", "Cy"])
}
"""Every estimator with every shaping, two and three players, all with branches."""


def finished(folder: Path, changes: dict[str, Any]) -> Path:
    """The folder of a run of three updates."""
    run = tiny_run(folder, changes)
    train(run, lambda update, metrics: None)
    return run.folder

"""Rollout trees: playing, keeping, reading and measuring games. Importable without torch."""

from coplay.rollout_tree.branching import BranchPlan
from coplay.rollout_tree.collect import TooManyFailedEpisodes, collect, collect_sync
from coplay.rollout_tree.credits import CreditRow, read_credits, write_credits
from coplay.rollout_tree.graph import to_graphml, to_networkx, to_node_link
from coplay.rollout_tree.paths import Fork, branch_steps, forks, main_line
from coplay.rollout_tree.plan import CollectPlan, EpisodePlan, Progress, plan_episodes
from coplay.rollout_tree.records import SCHEMA_VERSION, Failure, RolloutTree, Step, Turn
from coplay.rollout_tree.render import render_text, safe_text
from coplay.rollout_tree.statistics import behaviour_rates, counts, episode_returns, gini, returns, welfare
from coplay.rollout_tree.storage import read_rollouts, write_rollouts
from coplay.rollout_tree.trajectories import (
    Row,
    Trajectory,
    ValuePoint,
    branch_trajectories,
    build_trajectories,
)

__all__ = [
    "SCHEMA_VERSION",
    "BranchPlan",
    "CollectPlan",
    "CreditRow",
    "EpisodePlan",
    "Failure",
    "Fork",
    "Progress",
    "RolloutTree",
    "Row",
    "Step",
    "TooManyFailedEpisodes",
    "Trajectory",
    "Turn",
    "ValuePoint",
    "behaviour_rates",
    "branch_steps",
    "branch_trajectories",
    "build_trajectories",
    "collect",
    "collect_sync",
    "counts",
    "episode_returns",
    "forks",
    "gini",
    "main_line",
    "plan_episodes",
    "read_credits",
    "read_rollouts",
    "render_text",
    "returns",
    "safe_text",
    "to_graphml",
    "to_networkx",
    "to_node_link",
    "welfare",
    "write_credits",
    "write_rollouts",
]

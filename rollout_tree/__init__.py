"""Rollout trees: playing, keeping, reading and measuring games. Importable without torch."""

from coplay.rollout_tree.branching import BranchPlan, ValueReader, ValueRow
from coplay.rollout_tree.collect import TooManyFailedEpisodes, collect, collect_sync
from coplay.rollout_tree.conduct import exploitation, outcomes, reciprocity, speech, summary
from coplay.rollout_tree.conversations import (
    Conversation,
    Message,
    conversations,
    tree_conversations,
    write_conversations,
)
from coplay.rollout_tree.credits import CreditRow, read_credits, write_credits
from coplay.rollout_tree.episode_json import to_verifiers
from coplay.rollout_tree.graph import to_graphml, to_networkx, to_node_link
from coplay.rollout_tree.paths import Fork, branch_steps, forks, main_line
from coplay.rollout_tree.plan import CollectPlan, EpisodePlan, Progress, plan_episodes, plan_mixture
from coplay.rollout_tree.records import SCHEMA_VERSION, Failure, RolloutTree, Step, Turn
from coplay.rollout_tree.render import render_text, render_tree, safe_text
from coplay.rollout_tree.report import write_report
from coplay.rollout_tree.statistics import behaviour_rates, counts, episode_returns, gini, returns, welfare
from coplay.rollout_tree.storage import read_rollouts, write_rollouts
from coplay.rollout_tree.tables import read_table
from coplay.rollout_tree.trajectories import (
    Forked,
    Row,
    Trajectory,
    ValuePoint,
    branch_trajectories,
    build_trajectories,
)
from coplay.rollout_tree.writer import RolloutWriter

__all__ = [
    "SCHEMA_VERSION",
    "BranchPlan",
    "CollectPlan",
    "Conversation",
    "CreditRow",
    "EpisodePlan",
    "Failure",
    "Fork",
    "Forked",
    "Message",
    "Progress",
    "RolloutTree",
    "RolloutWriter",
    "Row",
    "Step",
    "TooManyFailedEpisodes",
    "Trajectory",
    "Turn",
    "ValuePoint",
    "ValueReader",
    "ValueRow",
    "behaviour_rates",
    "branch_steps",
    "branch_trajectories",
    "build_trajectories",
    "collect",
    "collect_sync",
    "conversations",
    "counts",
    "episode_returns",
    "exploitation",
    "forks",
    "gini",
    "main_line",
    "outcomes",
    "plan_episodes",
    "plan_mixture",
    "read_credits",
    "read_rollouts",
    "read_table",
    "reciprocity",
    "render_text",
    "render_tree",
    "returns",
    "safe_text",
    "speech",
    "summary",
    "to_graphml",
    "to_networkx",
    "to_node_link",
    "to_verifiers",
    "tree_conversations",
    "welfare",
    "write_conversations",
    "write_credits",
    "write_report",
    "write_rollouts",
]

"""What `bias_table` measures: tabular policies that play small games, and every way to credit what they did.

One batch of games serves all schemes. Each goes through the run's own stages: engine, agents, trees, rows, estimator,
packets, shaping, and the policy's step, which does not move it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coplay.agents.language import SamplingSettings, language_agent_factory
from coplay.agents.local_engine import LocalEngine
from coplay.agents.policy import Policy
from coplay.agents.tabular import TabularWeights, tabular_policy, tabular_strategy
from coplay.games import Game, make_game
from coplay.games.game_tree import GameTree, Information, Real, game_tree
from coplay.games.solve import information_values
from coplay.rollout_tree import (
    BranchPlan,
    CollectPlan,
    RolloutTree,
    Trajectory,
    collect_sync,
    plan_episodes,
)
from coplay.scripts.settings import read_settings
from coplay.training.config import RunConfig
from coplay.training.estimators import estimate
from coplay.training.extract import extract, in_table_order, tick_table, token_batch, ungrouped
from coplay.training.gradients import gradient
from coplay.training.packets import make_packets
from coplay.training.records import Estimate, TickTable, TickValues, TokenBatch
from coplay.training.trainer import make_credit, shape_ticks

GAMES: dict[str, dict[str, Any]] = {
    "iterated_matrix": {"num_rounds": 2, "wording": "terse"},
    "two_round_bargaining": {"coins": 1, "wording": "terse"},
}
DISCOUNT = 0.9
BETA = 0.5
GROUP_SIZE = 4
FORK_SHARE = 0.1
SCALE = 0.5
"""Of the random logits."""
Fault = Callable[[TickTable, Estimate], Estimate]
"""What is made of the advantages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One way from games to a gradient, by the settings that choose it."""

    name: str
    estimator: str = "returns"
    baseline: str = "none"
    shaping: str = "independent"
    grouped: bool = True
    """Whether games of the same luck are a group; False: all games of the batch are one."""
    flags: tuple[str, ...] = ()
    """Further settings."""
    fault: Fault | None = None
    """Planted, to see that it is found."""

    @property
    def branches(self) -> bool:
        """Whether it trains on branches."""
        return self.estimator == "branches"

    def suits(self, game: Game[Any]) -> bool:
        """Without luck all games are one group anyway."""
        return self.grouped or game.spec.has_chance

    def config(self) -> RunConfig:
        """A run's configuration under this scheme."""
        flags = ["--estimator.kind", self.estimator, "--estimator.discount", str(DISCOUNT)]
        flags += ["--estimator.reward-scale", "1.0", "--shaping.kind", self.shaping]
        flags += ["--objective.entropy-coefficient.kind", "constant"]
        flags += ["--objective.entropy-coefficient.level", "0.0"]
        flags += ["--estimator.baseline", self.baseline] if self.estimator == "returns" else []
        if self.shaping == "advantage_alignment":
            flags += ["--shaping.beta.kind", "constant", "--shaping.beta.level", str(BETA)]
        flags += ["--collect.branching.share", str(FORK_SHARE)] if self.branches else []
        return read_settings("dilemma_independent", [*flags, *self.flags])


SCHEMES = (
    Scheme(name="REINFORCE"),
    Scheme(name="RLOO, same luck", baseline="leave_one_out"),
    Scheme(name="RLOO, all games", baseline="leave_one_out", grouped=False),
    Scheme(name="GAE, exact critic", estimator="critic"),
    Scheme(name="branches", estimator="branches"),
    Scheme(name="shared reward", shaping="shared_reward", baseline="leave_one_out"),
    Scheme(name="alignment, REINFORCE", shaping="advantage_alignment"),
    Scheme(name="alignment, RLOO", shaping="advantage_alignment", baseline="leave_one_out"),
    Scheme(name="alignment, exact critic", shaping="advantage_alignment", estimator="critic"),
)


class Bench:
    """One game with a tabular policy in each seat.

    Args:
        name: of the game, one of `GAMES`.
        seed: of the logits and of all luck.
        scale: of the random logits.
        batch: games of one batch.
    """

    def __init__(self, name: str, *, seed: int, scale: float = SCALE, batch: int = 64) -> None:
        self.game: Game[Any] = make_game(name, **GAMES[name])
        self.tree: GameTree = game_tree(self.game, discount=DISCOUNT)
        self.seed, self.batch = seed, batch
        self.policies: dict[str, Policy] = {}
        luck = torch.Generator().manual_seed(seed)
        for player in self.game.spec.players:
            policy = tabular_policy(player.lower(), self.tree, players=(player,))
            logits = policy.state()["logits"]
            policy.load_state({"logits": scale * torch.randn(logits.shape, generator=luck)})
            self.policies[player] = policy
        self.engine = LocalEngine({policy.name: policy for policy in self.policies.values()})
        self.strategies = {player: tabular_strategy(policy) for player, policy in self.policies.items()}
        self.known: dict[str, dict[Information, tuple[Real, Real]]] = {
            player: information_values(self.tree, player, self.strategies) for player in self.policies
        }
        """What a perfect critic says: by player and information, how likely it is and V."""

    @property
    def luck_group(self) -> int:
        """How many games share their luck: without chance all of a batch."""
        return GROUP_SIZE if self.game.spec.has_chance else self.batch

    def weights(self, player: str) -> TabularWeights:
        """A player's table."""
        weights = self.policies[player].weights
        assert isinstance(weights, TabularWeights)
        return weights

    def collect(self, number: int, *, branches: bool) -> list[RolloutTree]:
        """Play one batch."""
        settings = SamplingSettings(max_new_tokens=4)
        seats = {
            player: language_agent_factory(
                self.engine, policy.chat, policy.label, settings, run_seed=self.seed
            )
            for player, policy in self.policies.items()
        }
        episodes = plan_episodes(
            self.game,
            run_seed=self.seed,
            iteration=number,
            num_groups=self.batch // GROUP_SIZE,
            group_size=GROUP_SIZE,
            seats=seats,
            seat_names={player: policy.label for player, policy in self.policies.items()},
        )
        branching = BranchPlan(share=FORK_SHARE) if branches else None
        trees: list[RolloutTree] = collect_sync(
            CollectPlan(game=self.game, episodes=episodes, branching=branching)
        )
        self.engine.clear()
        return trees

    def critic_values(self, trajectories: Iterable[Trajectory], table: TickTable) -> TickValues:
        """What a perfect critic reads: V(information) before each tick's first reply."""
        values = torch.full(table.mask.shape, torch.nan, dtype=torch.float64)
        for row, path in enumerate(in_table_order(trajectories, table)):
            heard: tuple[str, ...] = ()
            for turn, tick in zip(path.turns, path.turn_ticks, strict=True):
                heard = (*heard, turn.observation.text)
                if values[row, tick].isnan():
                    values[row, tick] = float(self.known[path.player][heard][1])
                assert turn.action is not None
                heard = (*heard, turn.action.text)
        return TickValues(values=values, bootstrap=torch.zeros(len(table.keys), dtype=torch.float64))


class Rows:
    """What schemes have in common that look at the same paths of a batch."""

    def __init__(self, bench: Bench, trees: Sequence[RolloutTree], *, branches: bool) -> None:
        self.bench = bench
        self.trajectories = extract(trees, branches=branches)
        self.table = tick_table(self.trajectories, reward_scale=1.0, has_chance=bench.game.spec.has_chance)
        self._tokens: dict[str, TokenBatch] = {}

    @cached_property
    def values(self) -> TickValues:
        """Of the perfect critic."""
        return self.bench.critic_values(self.trajectories, self.table)

    def tokens(self, policy: Policy) -> TokenBatch:
        """The action tokens of one policy."""
        if policy.label not in self._tokens:
            found = token_batch(
                in_table_order(self.trajectories, self.table),
                policy=policy.label,
                trie_of=policy.chat.trie,
                reward_scale=1.0,
            )
            assert found is not None
            self._tokens[policy.label] = found
        return self._tokens[policy.label]

    def directions(self, scheme: Scheme, config: RunConfig) -> dict[str, Tensor]:
        """By player, the ascent direction that the batch gives under a scheme, through the run's own stages."""
        table = self.table if scheme.grouped else ungrouped(self.table)
        values = self.values if scheme.estimator == "critic" else None
        found = estimate(config.estimator, table, running_means={}, values=values)
        if scheme.fault is not None:
            found = scheme.fault(table, found)
        packets = make_packets(table, found.advantages)
        players, directions = self.bench.game.spec.players, {}
        for player, policy in self.bench.policies.items():
            ticks = shape_ticks(config, policy.label, players, table, found, packets, update=0)
            credit = make_credit(config, table, found, self.tokens(policy), ticks)
            slope = gradient(policy, credit, config, 0, folder=Path("bias_table"))["logits"]
            directions[player] = -slope.double()
        return directions

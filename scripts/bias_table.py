"""`python -m coplay.scripts.bias_table [--batches M] [--seed N]`: every estimator's gradient against enumeration.

Tabular policies with random logits play small games through engine, agents, trees, rows and the policy step. The mean
of each estimator's gradient over independent batches is held against the exact gradient from the game's tree by
Hotelling's T², whose p is that of χ² with as many degrees of freedom as free logits; its variance is the trace of the
covariance of one batch.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from coplay.agents.language import SamplingSettings, language_agent_factory
from coplay.agents.local_engine import LocalEngine
from coplay.agents.policy import Policy
from coplay.agents.tabular import TabularWeights, tabular_policy, tabular_strategy
from coplay.games import Game, make_game
from coplay.games.game_tree import Decision, GameTree, game_tree
from coplay.games.solve import information_values, logit_gradient
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
from coplay.training.extract import extract, in_table_order, tick_table, ungrouped
from coplay.training.gradients import gradient
from coplay.training.packets import make_packets
from coplay.training.records import Estimate, TickTable, TickValues
from coplay.training.trainer import Trainer

GAMES: dict[str, dict[str, Any]] = {
    "iterated_matrix": {"num_rounds": 2, "wording": "terse"},
    "two_round_bargaining": {"coins": 1, "wording": "terse"},
}
DISCOUNT = 0.9
NUM_GROUPS, GROUP_SIZE = 16, 4
FORK_SHARE = 0.5
SCALE = 0.5
"""Of the random logits: no reply so rare that the mean over batches is far from normal."""
SMALLEST_P = 1e-3
CONSTANT = 1e-7
"""Rounding of float32; what varies less does not vary."""
Fault = Callable[[TickTable, Estimate], Estimate]
"""What is made of the advantages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One way to a gradient, by the settings that choose it."""

    name: str
    estimator: str = "returns"
    shaping: str = "independent"
    grouped: bool = True
    fault: Fault | None = None
    """Planted, to see that it is found."""

    @property
    def branches(self) -> bool:
        """Whether it trains on branches."""
        return self.estimator == "branches"

    def config(self) -> RunConfig:
        """A run's configuration under this scheme."""
        flags = ["--estimator.kind", self.estimator, "--estimator.discount", str(DISCOUNT)]
        flags += ["--estimator.reward-scale", "1.0", "--shaping.kind", self.shaping]
        flags += ["--objective.entropy-coefficient.kind", "constant"]
        flags += ["--objective.entropy-coefficient.level", "0.0"]
        flags += ["--collect.branching.share", str(FORK_SHARE)] if self.branches else []
        return read_settings("dilemma_independent", flags)


SCHEMES = (
    Scheme(name="returns, in groups"),
    Scheme(name="returns, ungrouped", grouped=False),
    Scheme(name="exact critic", estimator="critic"),
    Scheme(name="branches", estimator="branches"),
    Scheme(name="shared reward", shaping="shared_reward"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one scheme's batches say."""

    bias: float
    """|mean − exact gradient|."""
    exact: float
    """|exact gradient|."""
    variance: float
    """Trace of the covariance of one batch's gradient."""
    variance_error: float
    """Half of its 95 % interval."""
    noise: float
    """What |bias| comes to by chance: √(trace / batches)."""
    p: float
    """Of a T² as large as this, if there is no bias."""


class Bench:
    """One game with a tabular policy in each seat."""

    def __init__(self, name: str, *, seed: int) -> None:
        self.game: Game[Any] = make_game(name, **GAMES[name])
        self.tree: GameTree = game_tree(self.game, discount=DISCOUNT)
        self.seed = seed
        self.policies: dict[str, Policy] = {}
        luck = torch.Generator().manual_seed(seed)
        for player in self.game.spec.players:
            policy = tabular_policy(player.lower(), self.tree, players=(player,))
            logits = policy.state()["logits"]
            policy.load_state({"logits": SCALE * torch.randn(logits.shape, generator=luck)})
            self.policies[player] = policy
        self.engine = LocalEngine({policy.name: policy for policy in self.policies.values()})
        self.strategies = {player: tabular_strategy(policy) for player, policy in self.policies.items()}

    def weights(self, player: str) -> TabularWeights:
        """A player's table."""
        weights = self.policies[player].weights
        assert isinstance(weights, TabularWeights)
        return weights

    def collect(self, batch: int) -> list[RolloutTree]:
        """One batch of games, with branches."""
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
            iteration=batch,
            num_groups=NUM_GROUPS,
            group_size=GROUP_SIZE,
            seats=seats,
            seat_names={player: policy.label for player, policy in self.policies.items()},
        )
        plan = CollectPlan(game=self.game, episodes=episodes, branching=BranchPlan(share=FORK_SHARE))
        trees: list[RolloutTree] = collect_sync(plan)
        self.engine.clear()
        return trees

    def exact(self, scheme: Scheme) -> dict[str, Tensor]:
        """By player, the exact gradient laid out like his table."""
        weights = dict.fromkeys(self.game.spec.players, 1.0) if scheme.shaping == "shared_reward" else None
        found = {}
        for player, policy in self.policies.items():
            slope = logit_gradient(self.tree, player, self.strategies, weights)
            found[player] = torch.zeros_like(policy.state()["logits"], dtype=torch.float64)
            for (information, reply), number in slope.items():
                ((row, columns, taken),) = self.weights(player).cells(player, information, reply)
                found[player][row, columns[taken]] += float(number)
        return found

    def free_cells(self) -> dict[str, Tensor]:
        """By player, which cells are free: of each row all possible ones but the last."""
        found = {}
        for player, policy in self.policies.items():
            found[player] = torch.zeros(policy.state()["logits"].shape, dtype=torch.bool)
            for information, (node, *_) in self.tree.decisions(player).items():
                decision = self.tree.nodes[node]
                assert isinstance(decision, Decision)
                for reply in decision.moves[:-1]:
                    ((row, columns, taken),) = self.weights(player).cells(player, information, reply)
                    found[player][row, columns[taken]] = True
        return found

    def critic_values(self, trajectories: Iterable[Trajectory], table: TickTable) -> TickValues:
        """What a perfect critic reads: V(information) before each tick's first reply."""
        known = {
            player: information_values(self.tree, player, self.strategies)
            for player in self.game.spec.players
        }
        values = torch.full(table.mask.shape, torch.nan, dtype=torch.float64)
        for row, path in enumerate(in_table_order(trajectories, table)):
            heard: tuple[str, ...] = ()
            for turn, tick in zip(path.turns, path.turn_ticks, strict=True):
                heard = (*heard, turn.observation.text)
                if values[row, tick].isnan():
                    values[row, tick] = float(known[path.player][heard][1])
                assert turn.action is not None
                heard = (*heard, turn.action.text)
        return TickValues(values=values, bootstrap=torch.zeros(len(table.keys), dtype=torch.float64))


def one_gradient(
    bench: Bench, scheme: Scheme, config: RunConfig, trees: Sequence[RolloutTree]
) -> dict[str, Tensor]:
    """By player, the ascent direction that one batch gives, through the run's own stages."""
    trajectories = extract(trees, branches=scheme.branches)
    table = tick_table(trajectories, reward_scale=1.0, has_chance=bench.game.spec.has_chance)
    if not scheme.grouped:
        table = ungrouped(table)
    values = bench.critic_values(trajectories, table) if scheme.estimator == "critic" else None
    found = estimate(config.estimator, table, running_means={}, values=values)
    if scheme.fault is not None:
        found = scheme.fault(table, found)
    packets = make_packets(table, found.advantages)
    directions = {}
    for player, policy in bench.policies.items():
        trainer = Trainer(policy, config, bench.game.spec.players)
        credit = trainer.credit(trajectories, table, found, packets, update=0)
        assert credit is not None
        slope = gradient(policy, credit, config, 0, folder=Path("bias_table"))["logits"]
        directions[player] = -slope.double()
    return directions


def measure(bench: Bench, schemes: Sequence[Scheme], *, num_batches: int) -> list[Row]:
    """Hold each scheme's mean over the same batches against enumeration."""
    configs, free = [scheme.config() for scheme in schemes], bench.free_cells()
    samples: list[list[Tensor]] = [[] for _ in schemes]
    for batch in range(num_batches):
        trees = bench.collect(batch)
        for found, scheme, config in zip(samples, schemes, configs, strict=True):
            found.append(_flat(one_gradient(bench, scheme, config, trees), free))
    exact = [_flat(bench.exact(scheme), free) for scheme in schemes]
    return [compare(torch.stack(found), truth) for found, truth in zip(samples, exact, strict=True)]


def compare(samples: Tensor, exact: Tensor) -> Row:
    """Hotelling's T² = M·(x̄ − g)ᵀ S⁻¹ (x̄ − g), scaled by (M − d)/(M − 1), against χ² with d degrees of freedom.

    Cells that never vary, as under a perfect critic, must be exact.

    Args:
        samples: (M, d), M > d.
        exact: (d,) g.
    """
    number = len(samples)
    gap, covariance = samples.mean(0) - exact, samples.T.cov()
    varies = samples.std(0) > CONSTANT
    size = int(varies.sum())
    inner = covariance[varies][:, varies]
    distance = number * gap[varies] @ torch.linalg.solve(inner, gap[varies]) * (number - size) / (number - 1)
    half = torch.tensor(size / 2, dtype=torch.float64)
    sound = bool((gap[~varies].abs() <= CONSTANT).all())
    spread = (samples - samples.mean(0)).square().sum(1)
    return Row(
        bias=float(gap.norm()),
        exact=float(exact.norm()),
        variance=float(covariance.trace()),
        variance_error=1.96 * float(spread.std()) / number**0.5,
        noise=float((covariance.trace() / number).sqrt()),
        p=float(torch.special.gammaincc(half, distance / 2)) if sound else 0.0,
    )


def _flat(directions: Mapping[str, Tensor], free: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([directions[player][free[player]] for player in sorted(free)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any p is below 0.001."""
    parser = argparse.ArgumentParser(prog="python -m coplay.scripts.bias_table", description=__doc__)
    parser.add_argument("--batches", type=int, default=200, help="M, batches per row (64 games each)")
    parser.add_argument("--seed", type=int, default=1, help="of logits and of all luck")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    table = Table(title=f"{chosen.batches} batches of {NUM_GROUPS * GROUP_SIZE} games, discount {DISCOUNT}")
    for title in ("game", "scheme", "|gradient|", "|bias|", "noise", "variance (95 %)", "p"):
        table.add_column(title, justify="left" if title in ("game", "scheme") else "right")
    worst = 1.0
    for name in GAMES:
        bench = Bench(name, seed=chosen.seed)
        for scheme, row in zip(SCHEMES, measure(bench, SCHEMES, num_batches=chosen.batches), strict=True):
            worst = min(worst, row.p)
            spread = f"{row.variance:.4f} ± {row.variance_error:.4f}"
            cells = (f"{row.exact:.4f}", f"{row.bias:.4f}", f"{row.noise:.4f}", spread, f"{row.p:.3f}")
            table.add_row(name, scheme.name, *cells)
    Console(file=sys.stdout, width=110, highlight=False).print(table)
    return 0 if worst >= SMALLEST_P else 1


if __name__ == "__main__":
    sys.exit(main())

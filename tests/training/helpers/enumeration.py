"""Games small enough to list every play: the exact gradient and values, and what an estimate makes of them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import sqrt
from typing import Any

import torch
from branch_fakes import Chances, uneven
from rollout_fakes import Counting, said

from coplay.games import Chance, Game, StepOutcome, make_game
from coplay.rollout_tree import RolloutTree
from coplay.rollout_tree.paths import branch_paths
from coplay.training.estimators import estimate
from coplay.training.extract import extract, in_table_order, tick_table
from coplay.training.records import TickTable, TickValues
from coplay.training.schemes import BranchesEstimator, CriticLearning

Cell = tuple[Any, ...]
"""(player, situation, label): one parameter of a tabular policy."""
FEW = 40
"""Episodes."""


def half(mine, observation) -> dict[str, float]:
    yes = 0.35 + 0.4 * (mine[-1:] == ("yes",))
    return {"yes": yes, "no": 1 - yes}


def entangled(step: int, actions, chance) -> StepOutcome:
    ada, bo = (said(actions.get(player)) == "yes" for player in ("ada", "bo"))
    rewards = {"ada": ada * (1.0 + step) - 2.0 * bo, "bo": 3.0 * (ada and bo) + step * bo}
    return StepOutcome(rewards=rewards, round_ended=step % 2 == 1, terminated=step == 3)


GAMES: dict[str, tuple[Game, Chances]] = {
    "two": (make_game("iterated_matrix", num_rounds=2, wording="terse"), uneven),
    "three": (
        make_game("iterated_matrix", num_rounds=2, wording="terse", players=("Ada", "Bo", "Cy")), uneven,
    ),
    "rounds": (Counting(length=4, has_rounds=True, outcome=entangled), half),
}  # fmt: skip


def exact_gradient(game: Game, chances: Chances, discount: float) -> dict[Cell, float]:
    """d/d theta(player, situation, label) of what he gets, over all plays: sum of P G_t (e_label - pi)."""
    total: dict[Cell, float] = defaultdict(float)

    def go(state, step: int, tick: int, chance: float, mine, turns, rewards) -> None:
        movers = game.to_move(state)
        if not movers:
            for player, situation, label, pi, at in turns:
                gain = sum(discount ** (k - at) * r[player] for k, r in rewards if k >= at)
                for other, p in pi.items():
                    total[player, situation, other] += chance * gain * ((other == label) - p)
            return
        seen = {player: game.observe(state, player) for player in movers}
        tables = {player: chances(mine[player], seen[player]) for player in movers}
        combined: list[dict[str, str]] = [{}]
        for player in movers:
            combined = [{**one, player: label} for one in combined for label in tables[player]]
        for chosen in combined:
            likely, new = chance, []
            for player, label in chosen.items():
                likely *= tables[player][label]
                situation = (mine[player], str(seen[player].facts.get("last", step)))
                new.append((player, situation, label, tables[player], tick))
            actions = {player: seen[player].grammar.parse(label) for player, label in chosen.items()}
            after, outcome = game.step(state, actions, Chance(0, step + 1))
            grown = {
                player: (*moves, *([chosen[player]] if player in chosen else []))
                for player, moves in mine.items()
            }
            ended = outcome.round_ended or not game.spec.has_rounds
            go(after, step + 1, tick + ended, likely, grown, turns + new, [*rewards, (tick, outcome.rewards)])

    go(game.initial_state(Chance(0)), 0, 0, 1.0, dict.fromkeys(game.spec.players, ()), [], [])
    return total


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What trees and an estimator make of the gradient."""

    sums: Mapping[str, Mapping[Cell, float]]
    """By episode."""
    shares: Mapping[tuple[str, str, int], float]
    """(episode, player, step) -> weights of all turns there together."""


def measured_gradient(
    trees: Sequence[RolloutTree],
    game: Game[Any],
    chances: Chances,
    *,
    discount: float,
    values: float | None = None,
) -> Measured:
    """Sum of weight, advantage and score over all turns that train.

    Args:
        values: a critic says so many times the exact value; None: no critic.
    """
    trajectories = extract(trees, branches=True)
    table = tick_table(trajectories, reward_scale=1.0, has_chance=game.spec.has_chance)
    critic = None if values is None else CriticLearning()
    read = None if values is None else exact_values(trees, table, game, chances, discount, values)
    settings = BranchesEstimator(discount=discount, critic=critic)
    found = estimate(settings, table, running_means={}, values=read)
    assert found.turns is not None
    sums: dict[str, dict[Cell, float]] = {tree.episode: defaultdict(float) for tree in trees}
    shares: dict[tuple[str, str, int], float] = defaultdict(float)
    index = {(tree.episode, step.id): step.index for tree in trees for step in tree.steps}
    for row, path in enumerate(in_table_order(trajectories, table)):
        trained = {int(turn) for ids in path.rows for turn in ids.turn[ids.sampled]}
        moves = [str(said(turn.action)) for turn in path.turns]
        for place in trained:
            turn, mine = path.turns[place], tuple(moves[:place])
            weight = float(found.turns.weights[row, place])
            step = index[path.episode, path.turn_steps[place]]
            shares[path.episode, path.player, step] += weight
            situation = (mine, str(turn.observation.facts.get("last", step)))
            for label, p in chances(mine, turn.observation).items():
                part = weight * float(found.turns.advantages[row, place]) * ((label == moves[place]) - p)
                sums[path.episode][path.player, situation, label] += part
    return Measured(sums=sums, shares=shares)


def misses(found: Measured, exact: Mapping[Cell, float]) -> Iterator[tuple[Cell, float, float, float]]:
    """Cells whose mean over episodes lies more than four standard errors from the exact number.

    Only those that enough episodes came to: of rarer ones the error itself is not known.
    """
    parts_of = {cell: [episode.get(cell, 0.0) for episode in found.sums.values()] for cell in exact}
    judged = [cell for cell, parts in parts_of.items() if sum(part != 0 for part in parts) >= FEW]
    assert len(judged) > len(exact) / 6
    for cell in judged:
        truth, parts = exact[cell], parts_of[cell]
        mean = sum(parts) / len(parts)
        error = sqrt(sum((part - mean) ** 2 for part in parts)) / len(parts)
        if abs(mean - truth) >= 4 * error + 1e-12:
            yield cell, mean, truth, error


def assert_unbiased(found: Measured, exact: Mapping[Cell, float]) -> None:
    assert list(misses(found, exact)) == []
    assert {cell for episode in found.sums.values() for cell in episode} <= exact.keys()


def exact_values(
    trees: Sequence[RolloutTree],
    table: TickTable,
    game: Game[Any],
    chances: Chances,
    discount: float,
    factor: float,
) -> TickValues:
    """What a perfect critic reads along every path: expected discounted returns from each tick's state on."""
    value = _state_values(game, chances, discount)
    values = torch.full(table.mask.shape, float("nan"), dtype=table.rewards.dtype)
    bootstrap = torch.zeros(len(table.keys), dtype=table.rewards.dtype)
    paths = {tree.episode: branch_paths(tree) for tree in trees}
    for row, key in enumerate(table.keys):
        path, history = paths[key.episode][key.branch], list[tuple[str, ...]]()
        for number, step in enumerate(path):
            if not number or step.tick > path[number - 1].tick:
                values[row, step.tick] = factor * value(tuple(history))[key.player]
            moves = {turn.player: str(said(turn.action)) for turn in step.turns}
            history.append(tuple(moves[player] for player in game.spec.players if player in moves))
        if path[-1].status == "truncated":
            bootstrap[row] = factor * value(tuple(history))[key.player]
    return TickValues(values=values, bootstrap=bootstrap)


def _state_values(game: Game[Any], chances: Chances, discount: float) -> Any:
    """History of labels -> player -> value, for games without chance whose players all move at every step."""
    players = game.spec.players

    def replay(history: tuple[tuple[str, ...], ...]) -> tuple[Any, bool]:
        state, ended = game.initial_state(Chance(0)), True
        for step, labels in enumerate(history):
            grammars = {player: game.observe(state, player).grammar for player in players}
            actions = {p: grammars[p].parse(label) for p, label in zip(players, labels, strict=True)}
            state, outcome = game.step(state, actions, Chance(0, step + 1))
            ended = outcome.round_ended or not game.spec.has_rounds
        return state, ended

    @cache
    def value(history: tuple[tuple[str, ...], ...]) -> dict[str, float]:
        state, _ = replay(history)
        if not game.to_move(state):
            return dict.fromkeys(players, 0.0)
        tables = []
        for place, player in enumerate(players):
            mine = tuple(labels[place] for labels in history)
            tables.append(chances(mine, game.observe(state, player)))
        total = dict.fromkeys(players, 0.0)
        for labels in product(*tables):
            likely = 1.0
            for table, label in zip(tables, labels, strict=True):
                likely *= table[label]
            after = (*history, labels)
            grammars = [game.observe(state, player).grammar for player in players]
            actions = {p: g.parse(one) for p, g, one in zip(players, grammars, labels, strict=True)}
            _, outcome = game.step(state, actions, Chance(0, len(after)))
            ended = outcome.round_ended or not game.spec.has_rounds
            for player, later in value(after).items():
                total[player] += likely * (outcome.rewards[player] + (discount if ended else 1.0) * later)
        return total

    return value

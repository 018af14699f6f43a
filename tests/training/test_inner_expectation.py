"""The inner expectation of Advantage Alignment: own past advantages over fresh replies, from branches."""

import math
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from branched_trees import asymmetric, branch, grow
from pydantic import ValidationError
from run_fakes import differences, make_tree, run_bytes, tiny_config, tiny_run

from coplay.rollout_tree import RolloutTree
from coplay.training.estimators import estimate
from coplay.training.extract import extract, tick_table
from coplay.training.inner_expectation import (
    Beside,
    UnforkedTickError,
    expect_past,
    expects_past,
    paths_beside,
)
from coplay.training.loop import train
from coplay.training.metrics import read_metrics
from coplay.training.packets import make_packets
from coplay.training.records import Estimate, PathKey, TickTable
from coplay.training.run import resume_run
from coplay.training.schemes import BranchesEstimator, EstimatorSettings, ExpectedPast, ReturnsEstimator
from coplay.training.trainer import shape_ticks

PLAIN = ReturnsEstimator(discount=1.0, baseline="none")
EVERYONE = ("shared@0", "ada@0")


def expected(
    trees: list[RolloutTree],
    past: ExpectedPast,
    estimator: EstimatorSettings = PLAIN,
    policies: tuple[str, ...] = EVERYONE,
) -> tuple[TickTable, Estimate]:
    """Extract, estimate, and expect the past."""
    trains = isinstance(estimator, BranchesEstimator)
    paths = extract(trees, branches=trains)
    table = tick_table(paths, reward_scale=1.0, has_chance=True)
    beside = None
    if not trains:
        branches = paths_beside(trees)
        laid = tick_table(branches, reward_scale=1.0, has_chance=True)
        beside = Beside(trajectories=branches, table=laid)
    found = estimate(estimator, table, running_means={})
    return table, expect_past(estimator, past, paths, table, found, beside, policies=policies)


def past_of(table: TickTable, found: Estimate, episode: str, player: str, branch: str = "") -> list[float]:
    """The own past that a path's weights are made of."""
    assert found.past is not None
    row = table.keys.index(PathKey(episode, branch, player))
    return found.past.advantages[row, table.mask[row]].tolist()


# --- Regrouping ---


def test_alternatives_when_two_at_each_of_two_steps_then_the_mean_of_each_step_g53() -> None:
    """[10, 20, 30, 40] by (step, alternative) is [15, 35]; with the axes swapped it would be [20, 30]."""
    trees = []
    for episode, shift in (("e0", 0.0), ("e1", 100.0)):  # games and steps are groups of their own
        tree = make_tree({"Ada": [0.0, 5.0], "Bo": [0.0, 0.0]}, episode=episode)
        for number, gain in enumerate((10.0, 20.0), start=1):
            tree = branch(tree, 0, "Ada", [{"Ada": gain + shift, "Bo": 0.0}, {"Ada": 0.0, "Bo": 1.0}], number)
        for number, gain in enumerate((30.0, 40.0), start=1):
            tree = branch(tree, 1, "Ada", [{"Ada": gain + shift, "Bo": 0.0}], number)
        trees.append(tree)
    table, found = expected(trees, ExpectedPast(unforked="taken"))
    assert past_of(table, found, "e0", "Ada") == [15.0, 35.0]
    assert past_of(table, found, "e1", "Ada") == [115.0, 135.0]
    assert found.metrics["credit/past_expected"] == 4
    assert found.metrics["credit/past_unforked"] == 4  # Bo's, which stay as taken
    assert past_of(table, found, "e0", "Bo") == [0.0, 0.0]


def test_numbers_of_alternatives_when_they_differ_then_those_done_by_hand() -> None:
    """Ada was given 5 and would have had 1, 2, 10; Bo 2 and would have had 6; the other game does not branch."""
    trees = asymmetric()
    fresh, joined = ExpectedPast(unforked="zero"), ExpectedPast(unforked="zero", replies="siblings")
    table, found = expected(trees, fresh)
    assert past_of(table, found, "e0", "Ada") == [pytest.approx(13 / 3), 0.0]
    assert past_of(table, found, "e0", "Bo") == [0.0, 6.0]
    assert past_of(table, found, "e1", "Ada") == [0.0, 0.0]
    table, found = expected(trees, joined)
    assert past_of(table, found, "e0", "Ada") == [pytest.approx(18 / 4), 0.0]
    assert past_of(table, found, "e0", "Bo") == [0.0, 4.0]
    table, found = expected(
        trees, fresh, ReturnsEstimator(discount=1.0)
    )  # against the main lines' own baselines
    assert past_of(table, found, "e0", "Ada") == [pytest.approx(13 / 3 - 3.0), 0.0]
    assert past_of(table, found, "e0", "Bo") == [0.0, 6.0 - 0.5]


def test_baseline_when_it_is_that_of_the_expected_then_the_other_games_means_at_the_tick() -> None:
    """Three games expect 15, 3 and nothing at tick 0: 15 - 3, 3 - 15; at tick 1 one alone takes its own baseline."""
    trees = [make_tree({"Ada": [n, n], "Bo": [0.0, 0.0]}, episode=f"e{n:.0f}") for n in (1.0, 2.0, 4.0)]
    for number, gain in enumerate((10.0, 20.0), start=1):
        trees[0] = branch(trees[0], 0, "Ada", [{"Ada": gain, "Bo": 0.0}, {"Ada": 0.0, "Bo": 0.0}], number)
    trees[0] = branch(trees[0], 1, "Ada", [{"Ada": 7.0, "Bo": 0.0}], 1)
    trees[1] = branch(trees[1], 0, "Ada", [{"Ada": 3.0, "Bo": 0.0}, {"Ada": 0.0, "Bo": 0.0}], 1)
    past = ExpectedPast(unforked="taken", baseline="leave_one_out")
    table, found = expected(trees, past, ReturnsEstimator(discount=1.0))
    assert past_of(table, found, "e1", "Ada") == pytest.approx([12.0, 7.0 - (2.0 + 4.0) / 2])
    assert past_of(table, found, "e2", "Ada") == pytest.approx([-12.0, 2.0 - (1.0 + 4.0) / 2])
    assert past_of(table, found, "e4", "Ada") == pytest.approx([8.0 - (2.0 + 4.0) / 2, 4.0 - (1.0 + 2.0) / 2])


def test_round_when_it_holds_several_replies_then_its_last_fork_counts_and_its_reward_is_the_rounds() -> None:
    """1 + 3 was played; another first reply gives 20, another second one 1 + 7."""
    tree = make_tree({"Ada": [1.0, 3.0, 0.0], "Bo": [0.0] * 3}, episode="e0", ticks=(0, 0, 1))
    last = [{"Ada": 0.0, "Bo": 0.0}]
    tree = branch(tree, 0, "Ada", [{"Ada": 20.0, "Bo": 0.0}, *last, *last], 1)
    table, found = expected([tree], ExpectedPast(unforked="taken"))
    assert past_of(table, found, "e0", "Ada") == [20.0, 0.0]
    tree = branch(tree, 1, "Ada", [{"Ada": 7.0, "Bo": 0.0}, *last], 1)
    table, found = expected([tree], ExpectedPast(unforked="taken"))
    assert past_of(table, found, "e0", "Ada") == [8.0, 0.0]


def test_paths_when_branches_are_trained_on_then_each_reply_has_its_siblings_for_alternatives() -> None:
    """On Ada's branch 3 her fresh replies are 5 (taken), 1 and 2; on Bo's, where hers was held, those of her fork."""
    undiscounted = BranchesEstimator(discount=1.0)
    tree = asymmetric()[0]
    past = ExpectedPast(unforked="zero")
    table, found = expected([tree], past, undiscounted)
    assert past_of(table, found, "e0", "Ada")[0] == pytest.approx(13 / 3)
    main = 1.0 + (4.0 + 8.0) / 2  # Bo's fork at tick 1 is later than Ada's tick 0
    assert past_of(table, found, "e0", "Ada", "s0.Ada.3") == [pytest.approx((main + 1.0 + 2.0) / 3), 0.0]
    assert past_of(table, found, "e0", "Ada", "s1.Bo.1") == [pytest.approx(13 / 3), 0.0]
    assert past_of(table, found, "e0", "Bo", "s0.Ada.1") == [0.0, 0.0]  # no reply of his was resampled there
    assert past_of(table, found, "e0", "Bo", "s1.Bo.1") == [0.0, 2.0]
    table, found = expected([tree], replace_past(past, replies="siblings"), undiscounted)
    assert past_of(table, found, "e0", "Ada", "s0.Ada.3")[0] == pytest.approx((main + 1.0 + 2.0 + 10.0) / 4)


def test_alternatives_when_forks_are_nested_then_those_of_the_own_line_and_not_the_main_lines() -> None:
    """On branch 1 Ada took 3 at tick 1 and would have had 6 or 9; the main line's 4 and 20 stand elsewhere."""
    tree = make_tree({"Ada": [1.0, 4.0, 0.0], "Bo": [0.0] * 3}, episode="e0")
    gains = [
        [{"Ada": gain, "Bo": 0.0} for gain in path] for path in ((2.0, 3.0, 0.0), (20.0, 0.0), (6.0, 0.0))
    ]
    tree = grow(tree, "", 0, "Ada", gains[0])
    tree = grow(tree, "", 1, "Ada", gains[1])
    tree = grow(tree, "s0.Ada.1", 1, "Ada", gains[2])
    tree = grow(tree, "s0.Ada.1", 1, "Ada", [{"Ada": 9.0, "Bo": 0.0}, {"Ada": 0.0, "Bo": 0.0}])
    undiscounted, past = BranchesEstimator(discount=1.0), ExpectedPast(unforked="zero")
    first, second, third = "s0.Ada.1", "s0.Ada.1/s1.Ada.1", "s0.Ada.1/s1.Ada.2"
    table, found = expected([tree], past, undiscounted)
    of_branch, of_main = (
        2.0 + (3.0 + 6.0 + 9.0) / 3,
        1.0 + (4.0 + 20.0) / 2,
    )  # at tick 0, later forks averaged
    assert past_of(table, found, "e0", "Ada") == pytest.approx([of_branch, 20.0, 0.0])
    assert past_of(table, found, "e0", "Ada", first) == pytest.approx([of_main, (6.0 + 9.0) / 2, 0.0])
    assert past_of(table, found, "e0", "Ada", second) == pytest.approx([of_main, (3.0 + 9.0) / 2, 0.0])
    assert past_of(table, found, "e0", "Ada", third) == pytest.approx([of_main, (3.0 + 6.0) / 2, 0.0])
    joined = replace_past(past, replies="siblings")
    table, found = expected([tree], joined, undiscounted)
    for path in (first, second, third):
        assert past_of(table, found, "e0", "Ada", path)[1] == pytest.approx((3.0 + 6.0 + 9.0) / 3)
    assert found.past is not None
    replies = found.past.replies[table.keys.index(PathKey("e0", second, "Ada")), 1]
    assert replies.lines == tuple(PathKey("e0", path, "Ada") for path in (second, first, third))
    table, found = expected(
        [tree], past
    )  # where only the main line learns, branches of branches tell it nothing
    assert past_of(table, found, "e0", "Ada") == pytest.approx([2.0 + 3.0, 20.0, 0.0])


def replace_past(past: ExpectedPast, **changes: Any) -> ExpectedPast:
    return ExpectedPast.model_validate(past.model_dump() | changes)


@pytest.mark.parametrize("estimator", [PLAIN, BranchesEstimator(discount=1.0)], ids=lambda one: one.kind)
@pytest.mark.parametrize("baseline", ["estimator", "leave_one_out"])
def test_expected_past_when_trees_steps_and_paths_are_shuffled_then_bit_for_bit(
    estimator: EstimatorSettings, baseline: str
) -> None:
    """Law 5."""
    trees = asymmetric()
    trees.append(replace(trees[0], episode="e2"))
    past = ExpectedPast(unforked="taken", baseline=baseline)
    _, one = expected(trees, past, estimator)
    mixed = [replace(tree, steps=tuple(reversed(tree.steps))) for tree in reversed(trees)]
    table, other = expected(mixed, past, estimator)
    assert one.past is not None and other.past is not None
    assert torch.equal(one.past.advantages, other.past.advantages) and one.past.replies == other.past.replies
    paths = extract(trees, branches=isinstance(estimator, BranchesEstimator))
    branches = paths_beside(trees)[::-1]
    beside = (
        Beside(trajectories=branches, table=tick_table(branches, reward_scale=1.0, has_chance=True))
        if estimator is PLAIN
        else None
    )
    found = estimate(estimator, table, running_means={})
    third = expect_past(estimator, past, paths[::-1], table, found, beside, policies=EVERYONE)
    assert third.past is not None and torch.equal(third.past.advantages, one.past.advantages)


@pytest.mark.parametrize("filler", [float("nan"), 1e9])
def test_expected_past_when_cells_beyond_the_end_hold_anything_then_the_same(filler: float) -> None:
    """Law 3; and a longer game in the batch, which pads the others, changes none of theirs."""
    past = ExpectedPast(unforked="taken", baseline="leave_one_out")
    trees = asymmetric()
    table, plain = expected(trees, past)
    longer = make_tree({"Ada": [1.0] * 5, "Bo": [1.0] * 5}, episode="e9", group="g9")
    wide, found = expected([*trees, longer], past)
    for key in table.keys:
        assert past_of(wide, found, key.episode, key.player) == past_of(table, plain, key.episode, key.player)
    paths, branches = extract([*trees, longer]), paths_beside(trees)
    spoilt = replace(wide, rewards=torch.where(wide.mask, wide.rewards, filler))
    laid = tick_table(branches, reward_scale=1.0, has_chance=True)
    bare = estimate(PLAIN, spoilt, running_means={})
    bare = replace(bare, baseline=torch.where(wide.mask, bare.baseline, filler))
    again = expect_past(
        PLAIN, past, paths, spoilt, bare, Beside(trajectories=branches, table=laid), policies=EVERYONE
    )
    assert again.past is not None and found.past is not None
    assert torch.equal(again.past.advantages, found.past.advantages)


# --- What is expected: exact enumeration ---

Play = tuple[tuple[int, ...], ...]
"""What everybody chose, tick by tick."""


@dataclass(frozen=True)
class Table:
    """A game of ticks in which everyone chooses 0 or 1, and how likely each is to choose 1 after what was played."""

    players: tuple[str, ...]
    length: int

    def chance(self, place: int, so_far: Play) -> float:
        """The learner (first) and, at tick 0, the others are uncertain; later others copy the one before them."""
        if not so_far:
            return (0.3, 0.6, 0.2)[place]
        if place == 0:
            return 0.25 + 0.4 * so_far[-1][1] + 0.2 * so_far[0][0]
        return float(so_far[-1][place - 1])

    def rewards(self, play: Play, tick: int) -> dict[str, float]:
        """Entangled between players and ticks."""
        now, before = play[tick], play[tick - 1] if tick else (0,) * len(self.players)
        return {
            player: 2.0 * now[place - 1] - now[place] + (1 + tick) * now[place] * before[place - 1]
            + 0.5 * sum(now) * before[place]
            for place, player in enumerate(self.players)
        }  # fmt: skip

    def plays(self, so_far: Play = (), held: Mapping[int, int] | None = None) -> Iterator[tuple[float, Play]]:
        """Every play on from here with its chance; `held` fixes choices of the next tick, whose chance is then 1."""
        if len(so_far) == self.length:
            yield 1.0, so_far
            return
        for now in product((0, 1), repeat=len(self.players)):
            likely = 1.0
            for place, choice in enumerate(now):
                if held and place in held:
                    likely *= choice == held[place]
                else:
                    one = self.chance(place, so_far)
                    likely *= one if choice else 1 - one
            if likely:
                for later, play in self.plays((*so_far, now)):
                    yield likely * later, play

    def returns(self, play: Play, player: str, tick: int, discount: float) -> float:
        return sum(discount ** (k - tick) * self.rewards(play, k)[player] for k in range(tick, self.length))

    def tree(self, play: Play, episode: str) -> RolloutTree:
        gains = [self.rewards(play, tick) for tick in range(self.length)]
        seats = {player: "ada@0" if player == self.players[0] else "others@0" for player in self.players}
        rewards = {player: [one[player] for one in gains] for player in self.players}
        return make_tree(rewards, episode=episode, group=episode, seats=seats)


def scores(game: Table, play: Play, tick: int) -> dict[tuple[Play, int], float]:
    """d log pi(what the learner chose at the tick) / d logit, by what was played before."""
    one = game.chance(0, play[:tick])
    return {(play[:tick], 1): play[tick][0] - one}


def exact_gradient(
    game: Table, discount: float, beta: float, *, inner: bool
) -> dict[tuple[Play, int], float]:
    """Sum over plays of P c_t d log pi, with E over a' of R(h_k, a', b_k), or R as played, in the weight."""
    found: dict[tuple[Play, int], float] = defaultdict(float)
    ada, others = game.players[0], game.players[1:]
    for chance, play in game.plays():
        past = []
        for k in range(game.length):
            held = {place: play[k][place] for place in range(1, len(game.players))}
            ways = [(p, game.returns(way, ada, k, discount)) for p, way in game.plays(play[:k], held)]
            mean = math.fsum(p * gain for p, gain in ways)
            past.append(mean if inner else game.returns(play, ada, k, discount))
        for t in range(game.length):
            weight = discount * sum(discount ** (t - k) * past[k] for k in range(t))
            shaped = sum(game.returns(play, other, t, discount) for other in others)
            credit = game.returns(play, ada, t, discount) + beta * weight * shaped
            for cell, score in scores(game, play, t).items():
                found[cell] += chance * credit * score
    return found


def every_tree(
    game: Table, forked: tuple[int, ...], alternatives: int
) -> Iterator[tuple[float, RolloutTree, dict[str, Play]]]:
    """Every main line with every set of alternatives at the forked ticks: its chance, and what each path played."""
    number = 0
    for chance, play in game.plays():
        ways = []
        for tick in forked:
            held = {place: play[tick][place] for place in range(1, len(game.players))}
            ways += [[(tick, *way) for way in game.plays(play[:tick], held)]] * alternatives
        for chosen in product(*ways):
            tree, likely, paths = game.tree(play, f"e{number:05d}"), chance, {"": play}
            for place, (tick, p, way) in enumerate(chosen):
                gains = [game.rewards(way, k) for k in range(tick, game.length)]
                name = place % alternatives + 1
                tree = branch(tree, tick, game.players[0], gains, name)
                paths[f"s{tick}.{game.players[0]}.{name}"] = way
                likely *= p
            number += 1
            yield likely, tree, paths


def gradient_of_trees(
    game: Table,
    estimator: EstimatorSettings,
    shaping: dict[str, Any],
    forked: tuple[int, ...],
    alternatives: int,
    folder: Path,
) -> dict[tuple[Play, int], float]:
    """The expectation of the very credit that training would use, times its shares, over all trees."""
    config = tiny_config(
        folder, {"shaping": shaping, "collect.branching": {"num_alternatives": alternatives},
                 "estimator": estimator.model_dump()},
    )  # fmt: skip
    whole = list(every_tree(game, forked, alternatives))
    assert math.fsum(chance for chance, _, _ in whole) == pytest.approx(1.0)
    past = expects_past(config.shaping)
    trees = [tree for _, tree, _ in whole]
    if past is None:
        paths = extract(trees)
        table = tick_table(paths, reward_scale=1.0, has_chance=True)
        found = estimate(estimator, table, running_means={})
    else:
        table, found = expected(trees, past, estimator, ("ada@0",))
    packets = make_packets(table, found.advantages)
    shaped = shape_ticks(config, "ada@0", game.players, table, found, packets, update=0)
    played = {tree.episode: (chance, paths) for chance, tree, paths in whole}
    total: dict[tuple[Play, int], float] = defaultdict(float)
    for place, row in enumerate(shaped.rows.tolist()):
        key = table.keys[row]
        chance, lines = played[key.episode]
        for tick in range(game.length):
            credit, share = float(shaped.credits[place, tick]), 1.0
            if found.turns is not None and shaped.turns is not None:
                credit += float(shaped.turns[row, tick])
                share = float(found.turns.weights[row, tick])
            for cell, score in scores(game, lines[key.branch], tick).items():
                total[cell] += chance * share * credit * score
    return total


CASES = {
    "two players, two past ticks": (Table(("Ada", "Bo"), 3), (0, 1), 1),
    "two alternatives": (Table(("Ada", "Bo"), 2), (0,), 2),
    "three players": (Table(("Ada", "Bo", "Cy"), 2), (0,), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_gradient_when_summed_over_all_trees_then_exactly_that_of_the_inner_expectation(
    name: str, tmp_path: Path
) -> None:
    """E over main lines and alternatives of c_t d log pi = E with E_{a'}[R(h_k, a', b_k)] in the weight."""
    game, forked, alternatives = CASES[name]
    estimator = ReturnsEstimator(discount=0.8, baseline="none")
    shaping = {"kind": "advantage_alignment", "beta": 0.5}
    fresh = shaping | {"past": {"kind": "expected", "unforked": "taken"}}
    got = gradient_of_trees(game, estimator, fresh, forked, alternatives, tmp_path)
    inner, taken = (exact_gradient(game, 0.8, 0.5, inner=inner) for inner in (True, False))
    assert got == pytest.approx(inner, abs=1e-9)
    assert max(abs(inner[cell] - taken[cell]) for cell in inner) > 0.02  # the taken past is another estimand
    plain = gradient_of_trees(game, estimator, shaping, forked, alternatives, tmp_path)
    assert plain == pytest.approx(taken, abs=1e-9)
    joined = shaping | {"past": {"kind": "expected", "unforked": "taken", "replies": "siblings"}}
    share = 1 / (1 + alternatives)
    mixed = {cell: share * taken[cell] + (1 - share) * inner[cell] for cell in inner}
    assert gradient_of_trees(game, estimator, joined, forked, alternatives, tmp_path) == pytest.approx(
        mixed, abs=1e-9
    )


@pytest.mark.parametrize("name", ["two alternatives", "three players"])
def test_gradient_when_branches_are_trained_on_too_then_the_same_expectation(
    name: str, tmp_path: Path
) -> None:
    """Each sibling with the others for alternatives, each at its share: exchangeable (rule 11)."""
    game, forked, alternatives = CASES[name]
    shaping = {
        "kind": "advantage_alignment", "beta": 0.5, "past": {"kind": "expected", "unforked": "taken"},
    }  # fmt: skip
    estimator = BranchesEstimator(discount=0.8)
    got = gradient_of_trees(game, estimator, shaping, forked, alternatives, tmp_path)
    assert got == pytest.approx(exact_gradient(game, 0.8, 0.5, inner=True), abs=1e-9)


# --- Settings and runs ---

EXPECTED: dict[str, Any] = {
    "collect.branching": {"num_alternatives": 2},
    "shaping": {"kind": "advantage_alignment", "past": {"kind": "expected"}},
    "objective.largest_gap": 1e-3,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"collect.branching": None}, "'expected' and no branches are played; expected a section"),
        (
            {"collect.branching.share": 0.5},
            r"'collect.branching.share' is 0.5; expected a fork at every tick",
        ),
        ({"collect.branching.every": 2}, "'collect.branching.every' is 2; expected a fork at every tick"),
        ({"collect.branching.max_branches": 4}, "'collect.branching.max_branches' is 4; expected a fork"),
        (
            {"collect.branching.max_branch_tokens": 9},
            "'collect.branching.max_branch_tokens' is 9; expected a fork at every tick",
        ),
        ({"collect.branching.min_entropy": 0.0}, "has bounds on entropies or values; expected a fork"),
        (
            {"collect.branching.max_value": 1.0, "estimator": {"kind": "critic"}},
            "has bounds on entropies or values; expected a fork",
        ),
        (
            {"collect.branching.players": ["Ada"]},
            r"players' leaves out \['Bo'\]; expected a fork at every tick",
        ),
        ({"estimator": {"kind": "branches"}}, "whose branches have ticks without a fork; expected a fork"),
        ({"shaping.whiten_before": "tick"}, "'shaping.whiten_before' is 'tick', which would act on"),
        (
            {
                "collect.branching.players": ["Bo"],
                "agents.seats": {"Bo": "random"},
                "shaping.past.unforked": "zero",
            },
            r"'collect.branching.players' is \['Bo'\]; expected some of those who learn, 'Ada'",
        ),
    ],
)
def test_settings_when_branches_cannot_tell_the_past_then_one_sentence(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match=words):
        tiny_config(tmp_path, EXPECTED | changes)
    tiny_config(tmp_path, EXPECTED)


@pytest.mark.parametrize("gap", ["max_branch_tokens", "min_entropy", "max_entropy", "max_branches"])
def test_settings_when_it_is_said_what_stands_at_gaps_then_they_may_have_any(
    gap: str, tmp_path: Path
) -> None:
    said = {f"collect.branching.{gap}": 1, "shaping.past.unforked": "taken"}
    config = tiny_config(tmp_path, EXPECTED | said)
    assert config.collect.branching is not None and getattr(config.collect.branching, gap) == 1


def test_tick_when_no_reply_was_resampled_then_refused_by_its_name() -> None:
    with pytest.raises(
        UnforkedTickError, match=r"'Ada' of episode 'e0' replied at tick 1 and no other reply of his"
    ):
        expected(asymmetric(), ExpectedPast())


def test_players_when_silent_frozen_or_without_a_reply_then_nothing_is_asked_of_them() -> None:
    """Only learners have a weight, and a tick without a reply has nothing to average over."""
    tree = make_tree({"Ada": [1.0, 2.0], "Bo": [3.0, 4.0]}, episode="e0", silent=["Bo"])
    for at, rest in ((0, 2), (1, 1)):
        tree = branch(tree, at, "Ada", [{"Ada": 5.0, "Bo": 0.0}] * rest, 1)
    table, found = expected([tree], ExpectedPast())
    assert past_of(table, found, "e0", "Ada") == [10.0, 5.0]
    assert past_of(table, found, "e0", "Bo") == [7.0, 4.0]
    bare = replace(tree, steps=tuple(step for step in tree.steps if not step.branch))
    table, found = expected([bare], ExpectedPast(), policies=())
    assert past_of(table, found, "e0", "Ada") == [3.0, 2.0]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"estimator": {"kind": "critic", "reward_scale": 5.0}, "collect.branching.horizon": 1},
        {"game.players": ["Ada", "Bo", "Cy"], "game.num_rounds": 2, "shaping.past.baseline": "leave_one_out"},
        {
            "estimator": {"kind": "branches"},
            "shaping.past.unforked": "taken",
            "shaping.past.replies": "siblings",
        },
        {
            "game": {"kind": "trust_and_split", "wording": "terse", "num_rounds": 2},
            "agents.seats": {"Bo": "random"},
        },
    ],
    ids=["returns", "critic to a horizon", "three players", "branches", "rounds of several turns"],
)
def test_run_when_its_past_is_expected_then_ratio_one_and_a_resumed_run_is_the_same(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """Laws 2 and 8; every tick of every learner's main line is expected."""
    run = tiny_run(tmp_path, EXPECTED | changes)
    train(run, lambda update, values: None)
    for metrics in read_metrics(run.folder / "metrics.jsonl"):
        assert metrics["policy/shared/ratio_gap_max"] < 1e-4
        assert metrics["credit/past_expected"] > 0
        assert (metrics["credit/past_unforked"] > 0) == (run.config.estimator.kind == "branches")
    whole = run_bytes(run.folder)
    for name in ("000002", "000003"):
        shutil.rmtree(run.folder / "checkpoints" / name)
    train(resume_run(run.folder), lambda update, values: None)
    assert differences(whole, run_bytes(run.folder)) == []


def test_weights_when_the_past_is_expected_then_others_than_as_taken(tmp_path: Path) -> None:
    """The games are the same and branches change nothing but the alignment weight."""
    weights = []
    for number, kind in enumerate(("taken", "expected")):
        run = tiny_run(
            tmp_path / str(number), EXPECTED | {"shaping.past": {"kind": kind}, "update.num_updates": 1}
        )
        train(run, lambda update, values: None)
        weights.append(run.policies["shared"].named_parameters())
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])

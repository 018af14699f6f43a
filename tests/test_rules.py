"""The rules of CONTRIBUTING.md through the assembled training half; each test names its rule."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_fakes import (
    FULL,
    LORA,
    distance,
    gradients,
    in_double,
    make_tree,
    play_iteration,
    play_sayers,
    reckon,
    table_of,
    tiny_run,
)

from coplay.games import make_game
from coplay.games.iterated_matrix import IteratedMatrix
from coplay.rollout_tree import RolloutTree, behaviour_rates
from coplay.training import critic_updates, updates
from coplay.training.estimators import CriticNotApplicableError, estimate, values_per_tick
from coplay.training.extract import value_batch
from coplay.training.loop import train
from coplay.training.metrics import read_metrics
from coplay.training.packets import MissingPacketError, exchange, make_packets
from coplay.training.passes import ReadPlan
from coplay.training.run import Run, check_critic
from coplay.training.schemes import CriticEstimator, ReturnsEstimator
from coplay.training.stages import collect_rollouts, update_critic

CRITIC = {"kind": "critic", "reward_scale": 5.0, "lr": 1e-2}
PLAIN = {"kind": "returns", "discount": 0.0, "baseline": "none"}
"""Advantage = reward."""


def silent(update: int, metrics: Mapping[str, float]) -> None:
    """Hears what the loop reports."""


def own_credit(run: Run, trees: list[RolloutTree]) -> dict[tuple[str, str, int], float]:
    """Credit by (episode, player, tick); all tokens of a tick must agree."""
    played = reckon(run, trees)
    credit = played.credit(run)
    found: dict[tuple[str, str, int], float] = {}
    for path, tick, value in zip(
        credit.batch.path.tolist(), credit.batch.tick.tolist(), credit.tokens.tolist(), strict=True
    ):
        key = played.table.keys[path]
        assert found.setdefault((key.episode, key.player, tick), value) == value
    return found


def lines(run: Run) -> list[dict[str, Any]]:
    return list(read_metrics(run.folder / "metrics.jsonl"))


# --- Rule 1: groups ---


def test_rule_1_a_group_of_one_takes_the_running_mean_read_before_its_update() -> None:
    settings = ReturnsEstimator(discount=1.0)
    first = make_tree({"Ada": [4.0], "Bo": [1.0]}, group="a", seats={"Ada": "x@0", "Bo": "y@0"})
    second = make_tree({"Ada": [6.0], "Bo": [1.0]}, group="b", seats={"Ada": "x@1", "Bo": "y@1"})
    one = estimate(settings, table_of(first)[1], running_means={})
    assert one.advantages[:, 0].tolist() == [4.0, 1.0]
    assert one.metrics["credit/groups_of_one"] == 2
    two = estimate(settings, table_of(second)[1], running_means=one.running_means)
    assert two.advantages[:, 0].tolist() == [2.0, 0.0], "the mean outlives the opponents' version"
    third = estimate(settings, table_of(second)[1], running_means=two.running_means)
    assert third.advantages[:, 0].tolist() == [1.0, 0.0]


def test_rule_1_running_means_are_per_player_and_opponents() -> None:
    settings = ReturnsEstimator(discount=1.0)
    means = estimate(
        settings, table_of(make_tree({"Ada": [4.0], "Bo": [1.0]}))[1], running_means={}
    ).running_means
    other = make_tree({"Ada": [6.0], "Bo": [1.0]}, seats={"Ada": "shared@0", "Bo": "grim"})
    found = estimate(settings, table_of(other)[1], running_means=means)
    assert found.advantages[:, 0].tolist() == [6.0, 0.0]


def test_rule_1_a_run_in_groups_of_one_is_counted_and_remembers(tmp_path: Path) -> None:
    changes = {"game": {"kind": "split", "wording": "terse", "num_rounds": 2, "stock": 3, "items": ["hats"]}}
    changes |= {"collect": {"num_groups": 3, "group_size": 1}, "game.at_least_one_conflict": False}
    run = tiny_run(tmp_path, changes)
    train(run, silent)
    assert [line["credit/groups_of_one"] for line in lines(run)] == [6, 6, 6]
    assert set(run.state.running_means) == {'["Ada", "shared"]', '["Bo", "shared"]'}
    assert run.state.running_means['["Ada", "shared"]'][1] == [9.0, 9.0]


def test_rule_1_without_chance_all_equally_seated_games_are_one_group() -> None:
    trees = [make_tree({"Ada": [n], "Bo": [0.0]}, episode=f"e{n}", group=f"g{n}") for n in (1.0, 2.0, 6.0)]
    _, table = table_of(*trees, has_chance=False)
    assert len(table.group_ids.unique()) == 2
    found = estimate(ReturnsEstimator(), table, running_means={})
    assert found.advantages[::2, 0].tolist() == [-3.0, -1.5, 4.5]
    assert found.metrics["credit/groups_of_one"] == 0
    assert len(table_of(*trees, has_chance=True)[1].group_ids.unique()) == 6


def test_rule_1_each_seat_is_its_own_group_though_seats_share_a_policy_g52(tmp_path: Path) -> None:
    """Ada always gets 0, Bo always 10: neither did better than his seat's mean (G52)."""
    run = tiny_run(tmp_path, {"estimator.discount": 1.0})
    trees = [make_tree({"Ada": [0.0], "Bo": [10.0]}, episode=f"e{n}") for n in range(3)]
    assert set(own_credit(run, trees).values()) == {0.0}
    batch = reckon(run, trees).credit(run).batch
    assert batch.num_trajectories == 6, "the policy's loss sums both seats"


def test_rule_1_opponents_of_another_version_are_another_group() -> None:
    trees = [
        make_tree({"Ada": [n], "Bo": [0.0]}, episode=f"e{n}", seats={"Ada": "a@0", "Bo": bo})
        for n, bo in ((1.0, "b@0"), (3.0, "b@0"), (9.0, "b@1"))
    ]
    found = estimate(ReturnsEstimator(), table_of(*trees)[1], running_means={})
    assert found.advantages[::2, 0].tolist() == [-2.0, 2.0, 9.0]


def test_rule_1_the_baseline_is_over_the_rows_alive_at_a_tick_g19() -> None:
    trees = [
        make_tree({"Ada": [1.0, 1.0, 1.0], "Bo": [0.0] * 3}, episode="long"),
        make_tree({"Ada": [2.0], "Bo": [0.0]}, episode="short"),
    ]
    _, table = table_of(*trees)
    found = estimate(ReturnsEstimator(discount=1.0), table, running_means={})
    rows = {key: found.advantages[n].tolist() for n, key in enumerate(table.keys) if key.player == "Ada"}
    assert list(rows.values()) == [[1.0, 2.0, 1.0], [-1.0, 0.0, 0.0]]


# --- Rule 2: ticks ---


def test_rule_2_rewards_inside_a_round_are_summed_and_its_turns_share_the_credit(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"estimator": {**PLAIN, "reward_scale": 1.0}})
    tree = make_tree({"Ada": [1.0, 2.0, 4.0], "Bo": [0.0, 0.0, 8.0]}, ticks=[0, 0, 1])
    assert own_credit(run, [tree]) == {
        (tree.episode, "Ada", 0): 3.0,
        (tree.episode, "Ada", 1): 4.0,
        (tree.episode, "Bo", 0): 0.0,
        (tree.episode, "Bo", 1): 8.0,
    }
    batch = reckon(run, [tree]).credit(run).batch
    assert batch.tick.tolist().count(0) == 4, "message and move of both players"


def test_rule_2_discount_counts_ticks_and_not_steps() -> None:
    tree = make_tree({"Ada": [0.0, 0.0, 8.0], "Bo": [0.0] * 3}, ticks=[0, 0, 1])
    found = estimate(ReturnsEstimator(discount=0.5), table_of(tree)[1], running_means={})
    assert found.returns[0].tolist() == [4.0, 8.0]


def test_rule_2_every_player_has_a_reward_at_every_tick_and_a_mask_says_who_spoke() -> None:
    tree = make_tree({"Ada": [1.0, 2.0], "Bo": [3.0, 4.0]}, silent=["Bo"])
    _, table = table_of(tree)
    assert table.rewards.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert table.mask.all()
    assert table.acted.tolist() == [[True, True], [False, False]]


# --- Rule 3: packets ---


def test_rule_3_scripted_opponents_advantages_shape_the_learners_credit(tmp_path: Path) -> None:
    changes = {
        "agents.seats": {"Bo": "tit_for_tat"},
        "shaping": {"kind": "shared_reward"},
        "estimator": PLAIN,
    }
    run = tiny_run(tmp_path, changes)
    played = play_iteration(run)
    assert {key.player for key in (packet.key for packet in played.packets)} == {"Ada", "Bo"}
    credit = played.credit(run)
    for row, key in enumerate(played.table.keys):
        if key.player == "Ada":
            both = played.table.rewards[row] + played.table.rewards[row + 1]
            mine = credit.tokens[credit.batch.path == row]
            assert mine.tolist() == pytest.approx(both.tolist())


def test_rule_3_a_missing_packet_is_an_error() -> None:
    tree = make_tree({"Ada": [1.0], "Bo": [3.0]})
    _, table = table_of(tree)
    packets = make_packets(table, table.rewards)
    with pytest.raises(MissingPacketError, match="no packet of player 'Bo'"):
        exchange(table.keys[:1], packets[:1], ("Ada", "Bo"))


# --- Rule 4: the reward scale ---

ALIGNED = {"kind": "advantage_alignment", "beta": 0.3}


def graded(factor: float) -> list[RolloutTree]:
    return [
        make_tree({"Ada": [n * factor, 2 * factor], "Bo": [factor, n * n * factor]}, episode=f"e{n}")
        for n in (1, 2, 5)
    ]


def test_rule_4_scaled_rewards_give_the_same_credit(tmp_path: Path) -> None:
    changes = {"shaping": ALIGNED, "estimator.kind": "returns"}
    one = tiny_run(tmp_path / "1", changes | {"estimator.reward_scale": 1.0})
    ten = tiny_run(tmp_path / "10", changes | {"estimator.reward_scale": 10.0})
    assert own_credit(ten, graded(10.0)) == pytest.approx(own_credit(one, graded(1.0)))


def test_rule_4_beta_and_penalties_are_in_scaled_units(tmp_path: Path) -> None:
    one = tiny_run(tmp_path / "1", {"shaping": ALIGNED, "estimator.reward_scale": 1.0})
    five = tiny_run(tmp_path / "5", {"shaping": ALIGNED | {"beta": 1.5}, "estimator.reward_scale": 5.0})
    plain, scaled = own_credit(one, graded(1.0)), own_credit(five, graded(1.0))
    assert scaled == pytest.approx({key: value / 5 for key, value in plain.items()})
    tree = make_tree({"Ada": [1.0], "Bo": [0.0]}, malformed={0: 10.0})
    batch = reckon(five, [tree]).credit(five).batch
    assert sorted(batch.penalty.tolist()) == [0.0, 0.0, 2.0]


def test_rule_4_reported_rewards_are_raw(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"estimator.reward_scale": 1000.0, "update.num_updates": 1})
    trees = collect_rollouts(run, 0)
    train(run, silent)
    mean = sum(sum(s.rewards["Ada"] for s in t.steps) for t in trees) / len(trees)
    assert lines(run)[0]["rollout/return/Ada"] == pytest.approx(mean)


# --- Rule 5: alignment ---

A25, B25 = [1.0, -2.0, 0.5], [2.0, 1.0, -1.0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [1, -1.595, 0.9455], id="P"),
        pytest.param({"include_current": True}, [2, -2.55, 0.745], id="I"),
        pytest.param({"normalise": "t"}, [1, -1.5, 0.75], id="N-t"),
        pytest.param({"normalise": "t+1"}, [1, -1.75, 0.5 + 0.5 / 3], id="N-1+t"),
    ],
)
def test_rule_5_conventions_through_the_configuration_g25(
    tmp_path: Path, options: dict[str, Any], expected: list[float]
) -> None:
    shaping = {"kind": "advantage_alignment", "beta": 0.5, "discount": 0.9} | options
    run = tiny_run(tmp_path, {"shaping": shaping, "estimator": PLAIN})
    found = own_credit(run, [make_tree({"Ada": A25, "Bo": B25})])
    assert [found["000000/00000", "Ada", tick] for tick in range(3)] == pytest.approx(expected)


def test_rule_5_discount_of_the_weight_defaults_to_the_estimators(tmp_path: Path) -> None:
    estimator = {"kind": "returns", "discount": 0.7, "baseline": "none"}
    given = tiny_run(tmp_path / "a", {"shaping": ALIGNED | {"discount": 0.7}, "estimator": estimator})
    default = tiny_run(tmp_path / "b", {"shaping": ALIGNED, "estimator": estimator})
    other = tiny_run(tmp_path / "c", {"shaping": ALIGNED | {"discount": 0.9}, "estimator": estimator})
    tree = make_tree({"Ada": A25, "Bo": B25})
    assert own_credit(default, [tree]) == own_credit(given, [tree]) != own_credit(other, [tree])


def test_rule_5_several_opponents_are_summed(tmp_path: Path) -> None:
    game = {"kind": "iterated_matrix", "wording": "terse", "players": ["Ada", "Bo", "Cy"]}
    rewards = {"Ada": A25, "Bo": B25, "Cy": [1.0, 1.0, 1.0]}
    shared = tiny_run(
        tmp_path / "s", {"game": game, "shaping": {"kind": "shared_reward"}, "estimator": PLAIN}
    )
    found = own_credit(shared, [make_tree(rewards)])
    for player in rewards:
        assert [found["000000/00000", player, t] for t in range(3)] == pytest.approx([4.0, 0.0, 0.5])
    shaping = {"kind": "advantage_alignment", "beta": 0.5, "discount": 0.9}
    aligned = tiny_run(tmp_path / "a", {"game": game, "shaping": shaping, "estimator": PLAIN})
    found = own_credit(aligned, [make_tree(rewards)])
    # w = 0, 0.81, 0.9 (0.81 - 1.8) = -0.891; the others sum to 3, 2, 0.
    assert [found["000000/00000", "Ada", t] for t in range(3)] == pytest.approx([1, -2 + 0.81, 0.5])


class TakingTurns(IteratedMatrix):
    """The first player alone moves first, and no rounds are declared."""

    def to_move(self, state: Any) -> tuple[str, ...]:
        return self.spec.players[:1]


def test_rule_5_alternating_moves_without_rounds_refuse_a_critic_with_the_reason(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"estimator": CRITIC})
    game = TakingTurns(run.config.game)
    with pytest.raises(
        CriticNotApplicableError, match=r"players move in turn.*use estimator.kind = 'returns'"
    ):
        check_critic(game, run.config)
    check_critic(run.game, run.config)
    returns = tiny_run(tmp_path / "r", {})
    check_critic(game, returns.config)


# --- Rule 6: whitening ---


@pytest.mark.parametrize("place", ["whiten_before", "whiten_after"])
def test_rule_6_whitening_is_off_by_default_and_never_sees_padding(tmp_path: Path, place: str) -> None:
    trees = [
        make_tree({"Ada": [9.0], "Bo": [1.0]}, episode="e0"),
        make_tree({"Ada": [1.0, 2.0, 3.0, 4.0], "Bo": [5.0, 6.0, 7.0, 8.0]}, episode="e1"),
    ]
    plain = tiny_run(tmp_path / "off", {"estimator": {**PLAIN, "reward_scale": 1.0}})
    assert sorted(own_credit(plain, trees).values()) == [1, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    run = tiny_run(tmp_path / "on", {"estimator": PLAIN, "shaping": {"kind": "independent", place: "batch"}})
    found = own_credit(run, trees)
    seats = ["Ada", "Bo"] if place == "whiten_before" else ["AdaBo"]  # before: each seat over its own games
    for seat in seats:
        values = torch.tensor([value for (_, player, _), value in found.items() if player in seat])
        assert values.mean().abs() < 1e-6
        assert values.std() == pytest.approx(1.0)


def test_rule_6_whitening_before_and_after_shaping_differ(tmp_path: Path) -> None:
    found = []
    for place in ("whiten_before", "whiten_after"):
        shaping = ALIGNED | {place: "batch", "discount": 0.9}
        run = tiny_run(tmp_path / place, {"estimator": PLAIN, "shaping": shaping})
        found.append(own_credit(run, [make_tree({"Ada": A25, "Bo": B25})]))
    assert found[0] != pytest.approx(found[1])


# --- Rule 7: order, importance, normalisers, schedules ---


def test_rule_7_visitation_is_off_by_default_and_applied_last(tmp_path: Path) -> None:
    """Also the penalty, which comes after shaping, is weighed: (A - penalty) gamma^t."""
    estimator = {"kind": "returns", "discount": 0.5, "baseline": "none", "reward_scale": 1.0}
    plain = tiny_run(tmp_path / "off", {"estimator": estimator})
    last = tiny_run(tmp_path / "on", {"estimator": estimator, "objective.visitation": True})
    tree = make_tree({"Ada": [1.0, 2.0, 3.0], "Bo": [0.0] * 3}, malformed={2: 1.0})
    one, other = (reckon(run, [tree]).credit(run) for run in (plain, last))
    assert other.tokens.tolist() == pytest.approx((one.tokens * 0.5**one.batch.tick).tolist())
    assert one.tokens[one.batch.penalty > 0].tolist() == [2.0]


def test_rule_7_importance_is_per_token_capped_at_two_and_not_on_the_kl_term(tmp_path: Path) -> None:
    changes = {
        "objective.kl": {"coefficient": 1.0},
        "estimator.baseline": "none",
        "estimator.kind": "returns",
    }
    run = tiny_run(tmp_path, changes)
    assert (run.config.objective.importance, run.config.objective.importance_cap) == ("token", 2.0)
    run.trainers[0].step(play_iteration(run).credit(run), update=0, folder=tmp_path)
    run.engine.publish("shared")
    credit = play_iteration(run).credit(run)
    in_double(run.policies["shared"])
    none = replace(credit, tokens=torch.zeros_like(credit.tokens))
    far = replace(none, batch=replace(none.batch, behaviour=none.batch.behaviour - 10.0))
    kl = gradients(run, none, tmp_path)
    assert sum(float(g.norm()) for g in kl.values()) > 1e-4
    assert distance(kl, gradients(run, far, tmp_path)) == 0
    plan = updates.StepPlan(
        lr=0.0,
        entropy_coefficient=0.0,
        gradient_clip=None,
        reading=ReadPlan(micro_batch_tokens=99),
        refused=tmp_path / "x",
    )
    still = torch.optim.SGD(list(run.policies["shared"].named_parameters().values()), lr=0.0)
    result = updates.policy_step(
        run.policies["shared"], still, far.batch, credit.tokens, run.config.objective, plan
    )
    assert result.weights.tolist() == [2.0] * credit.batch.num_tokens
    assert result.metrics["importance_clipped"] == 1.0


@pytest.mark.parametrize("normaliser", ["trajectories", "tokens"])
def test_rule_7_loss_is_the_sum_over_the_count_of_the_whole_batch(tmp_path: Path, normaliser: str) -> None:
    run = tiny_run(tmp_path, {"objective.normaliser": normaliser, "update.micro_batch_tokens": 1})
    credit = play_iteration(run).credit(run)
    assert credit.batch.num_trajectories == 8
    divisor = {"trajectories": 8, "tokens": credit.batch.num_tokens}[normaliser]
    metrics = run.trainers[0].step(credit, update=0, folder=tmp_path).metrics
    expected = -(credit.tokens * credit.batch.behaviour).sum() / divisor
    assert metrics["loss"] == pytest.approx(float(expected), rel=1e-4, abs=1e-6)


def test_rule_7_schedules_count_updates_and_not_micro_batches_b94(tmp_path: Path) -> None:
    line = {"kind": "linear", "initial": 1e-2, "final": 0.0, "end": 4}
    changes = {
        "update": {"num_updates": 4, "lr": line, "micro_batch_tokens": 1},
        "estimator": CRITIC | {"gae_lambda": line},
    }
    run = tiny_run(tmp_path, changes)
    train(run, silent)
    assert [entry["policy/shared/lr"] for entry in lines(run)] == pytest.approx([1e-2, 7.5e-3, 5e-3, 2.5e-3])
    assert [entry["critic/gae_lambda"] for entry in lines(run)] == pytest.approx([1e-2, 7.5e-3, 5e-3, 2.5e-3])
    assert {type(group["lr"]) for group in run.trainers[0].optimizer.param_groups} == {float}
    assert run.trainers[0].optimizer.param_groups[0]["lr"] == pytest.approx(2.5e-3)


# --- Rule 8: the critic ---


def test_rule_8_the_critic_is_read_at_the_last_context_token_before_the_first_sampled_one(
    tmp_path: Path,
) -> None:
    game = {"kind": "trust_and_split", "wording": "terse", "num_rounds": 2, "max_message_characters": 8}
    run = tiny_run(tmp_path, {"estimator": CRITIC, "game": game})
    played = play_iteration(run)
    assert played.reading.batch is not None
    batch = played.reading.batch
    rows = [row for trajectory in played.trajectories for row in trajectory.rows]
    seen = set()
    for row, column, path, tick in zip(
        *(x.tolist() for x in (batch.row, batch.column, batch.path, batch.tick)), strict=True
    ):
        lived = rows[row]
        assert batch.ids[row, : batch.lengths[row]].tolist() == lived.ids.tolist()
        first = int((lived.sampled & (lived.tick == tick)).argmax())
        assert column == first - 1
        assert not lived.sampled[column]
        seen.add((path, tick))
    assert len(seen) == len(batch.row) == int(played.table.mask.sum()), "one value a tick of every player"


def test_rule_8_values_come_before_the_update_and_one_step_pools_all_players(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"estimator": CRITIC})
    played = play_iteration(run)
    assert run.critic is not None and played.reading.batch is not None and played.estimate.targets is not None
    batch = played.reading.batch
    targets = played.estimate.targets[batch.path, batch.tick]
    assert len({played.table.keys[int(p)].player for p in batch.path}) == 2
    numbers = update_critic(run, played.reading, played.table, played.estimate, update=0)
    per_point = torch.nn.functional.huber_loss(torch.zeros_like(targets), targets)
    assert numbers["critic/loss"] == pytest.approx(float(per_point)), "V is 0 at first; mean over all points"
    after = critic_updates.critic_values(run.critic, batch, ReadPlan(micro_batch_tokens=999))
    assert after.abs().max() > 0
    assert played.reading.values is not None
    assert played.reading.values.values.abs().max() == 0, "read before"


def test_rule_8_terminated_is_zero_beyond_and_truncated_bootstraps_b15() -> None:
    """Three rewards of 1, gamma 0.5, lambda 1, V = 0 inside and 4 beyond (B15)."""
    settings = CriticEstimator(discount=0.5, gae_lambda=1.0)
    for truncated, expected in ((False, [1.75, 1.5, 1.0]), (True, [2.25, 2.5, 3.0])):
        tree = make_tree({"Ada": [1.0] * 3, "Bo": [1.0] * 3}, truncated=truncated)
        trajectories, table = table_of(tree)
        batch = value_batch(trajectories)
        beyond = batch.tick == 3
        assert int(beyond.sum()) == (2 if truncated else 0)
        values = values_per_tick(table, batch, torch.where(beyond, 4.0, 0.0))
        found = estimate(settings, table, running_means={}, values=values)
        assert found.advantages[0].tolist() == pytest.approx(expected)


def test_rule_8_a_full_context_truncates_and_the_critic_reads_on(tmp_path: Path) -> None:
    sampling = {"max_new_tokens": 4, "max_context": 48}
    run = tiny_run(tmp_path, {"estimator": CRITIC, "agents.sampling": sampling, "game.num_rounds": 40})
    played = play_iteration(run)
    assert {tree.status for tree in played.trees} == {"truncated"}
    assert played.reading.batch is not None and run.critic is not None
    batch = played.reading.batch
    assert (batch.tick == played.table.mask.sum(1)[batch.path]).sum() == len(played.table.keys)
    assert played.table.truncated.all()
    settings = run.config.estimator
    ones = values_per_tick(played.table, batch, torch.ones(len(batch.row)))
    assert ones.bootstrap.tolist() == [1.0] * len(played.table.keys)
    zero = replace(ones, bootstrap=torch.zeros_like(ones.bootstrap))
    with_bootstrap = estimate(settings, played.table, running_means={}, values=ones)
    without = estimate(settings, played.table, running_means={}, values=zero)
    last = played.table.mask.sum(1) - 1
    rows = torch.arange(len(last))
    gained = with_bootstrap.advantages[rows, last] - without.advantages[rows, last]
    assert gained.tolist() == pytest.approx([settings.discount] * len(last))
    numbers = update_critic(run, played.reading, played.table, with_bootstrap, update=0)
    assert math.isfinite(numbers["critic/loss"])


# --- Rule 9: malformed replies ---


def test_rule_9_each_attempt_trains_with_the_steps_credit_minus_its_penalty(tmp_path: Path) -> None:
    game = {"kind": "iterated_matrix", "wording": "terse", "num_rounds": 2, "retries": 2, "penalty": 2.5}
    changes = {
        "game": game,
        "agents.sampling": {"max_new_tokens": 2, "constrained": False},
        "estimator": PLAIN | {"reward_scale": 5.0},
    }
    run = tiny_run(tmp_path, changes)
    played = play_iteration(run)
    turns = [turn for tree in played.trees for step in tree.steps for turn in step.turns]
    assert any(turn.attempt == 2 for turn in turns)
    assert all(turn.malformed == (turn.penalty == 2.5) for turn in turns)
    credit = played.credit(run)
    batch = credit.batch
    rewards = played.table.rewards[batch.path, batch.tick]
    for n in range(batch.num_tokens):
        turn = played.trajectories[int(batch.path[n])].turns[int(batch.place[n, 1])]
        assert float(credit.tokens[n]) == pytest.approx(float(rewards[n]) - 0.5 * turn.malformed)


def test_rule_9_cut_off_replies_have_a_counter_of_their_own(tmp_path: Path) -> None:
    changes = {"agents.sampling": {"max_new_tokens": 1, "constrained": False}, "update.num_updates": 1}
    run = tiny_run(tmp_path, changes)
    trees = collect_rollouts(run, 0)
    cut = [
        turn.finish == "length"
        for tree in trees
        for step in tree.steps
        for turn in step.turns
        if turn.player == "Ada"
    ]
    assert any(cut)
    rates = behaviour_rates(trees)
    assert rates["malformed/Ada/cut_off"] == pytest.approx(sum(cut) / len(cut))
    train(run, silent)
    line = lines(run)[0]
    reasons = ("empty", "cut_off", "no_move", "ambiguous", "out_of_range", "too_long")
    assert line["rollout/malformed/Ada/cut_off"] == pytest.approx(sum(cut) / len(cut))
    assert sum(line[f"rollout/malformed/Ada/{reason}"] for reason in reasons) == pytest.approx(
        line["rollout/malformed/Ada"]
    )


# --- Rule 10: constrained decoding ---


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_rule_10_sampler_trainer_reference_and_entropy_renormalise_alike(
    tmp_path: Path, temperature: float
) -> None:
    objective = {"kl": {"coefficient": 0.5}, "entropy_coefficient": 0.1}
    sampling = {"max_new_tokens": 8, "temperature": temperature}
    game = {"kind": "split", "wording": "terse", "num_rounds": 2, "stock": 3, "items": ["hats", "books"]}
    run = tiny_run(tmp_path, {"objective": objective, "agents.sampling": sampling, "game": game})
    credit = play_iteration(run).credit(run)
    batch, policy = credit.batch, run.policies["shared"]
    sets = batch.allowed
    assert (sets.index >= 0).all()
    assert int(sets.table_mask.sum(1).max()) < 10
    with torch.no_grad():
        logits = policy.logits(policy.hidden(batch.ids)[batch.row, batch.column - 1])
        table, included = sets.table[sets.index], sets.table_mask[sets.index]
        scores = (logits.gather(1, table) / temperature).masked_fill(~included, -torch.inf)
        log_p = scores.log_softmax(1)
        mine = log_p[torch.arange(batch.num_tokens), (table == batch.targets[:, None]).long().argmax(1)]
    assert (mine - batch.behaviour).abs().max() <= 1e-4
    entropy = -(log_p.exp() * log_p.masked_fill(~included, 0.0)).sum(1)
    metrics = run.trainers[0].step(credit, update=0, folder=tmp_path).metrics
    assert metrics["ratio_gap_max"] <= 1e-4
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-9), "the policy is still its reference"
    assert metrics["entropy"] == pytest.approx(float(entropy.mean()), rel=1e-4)


def test_rule_10_prefix_free_choices_need_no_end_token_and_others_train_theirs(tmp_path: Path) -> None:
    letters = tiny_run(tmp_path / "letters", {})
    end = letters.base.tokenizer.eos_token_id
    assert end not in play_iteration(letters).credit(letters).batch.targets.tolist()
    game = {"kind": "iterated_matrix", "wording": "terse", "moves": ["A", "A A"], "num_rounds": 4}
    prefixes = tiny_run(tmp_path / "prefixes", {"game": game})
    played = play_iteration(prefixes)
    assert {turn.finish for tree in played.trees for s in tree.steps for turn in s.turns} == {"grammar"}
    assert end in played.credit(prefixes).batch.targets.tolist()


# --- Rule 12: failed episodes ---


def test_rule_12_a_failed_episode_leaves_its_group_and_a_lone_survivor_falls_under_rule_1() -> None:
    from coplay.rollout_tree.records import Failure

    trees = [make_tree({"Ada": [n], "Bo": [0.0]}, episode=f"e{n}") for n in (1.0, 4.0, 100.0)]
    failed = replace(trees[2], failure=Failure(player="Ada", step=1, reason="OSError: gone"))
    settings = ReturnsEstimator(discount=1.0)
    found = estimate(settings, table_of(trees[0], trees[1], failed)[1], running_means={})
    assert found.advantages[::2, 0].tolist() == [-3.0, 3.0]
    means = {'["Ada", "shared"]': ([3.0], [5.0]), '["Bo", "shared"]': ([0.0], [5.0])}
    dead = replace(trees[1], failure=failed.failure)
    alone = estimate(settings, table_of(trees[0], dead, failed)[1], running_means=means)
    assert alone.advantages[:, 0].tolist() == [-2.0, 0.0]
    assert alone.metrics["credit/groups_of_one"] == 2


# --- Rule 13: context overflow ---


@pytest.mark.parametrize("overflow", ["truncate", "window"])
def test_rule_13_a_full_context_shrinks_the_reply_then_follows_the_declared_policy(
    tmp_path: Path, overflow: str
) -> None:
    sampling = {"max_new_tokens": 12, "max_context": 48, "overflow": overflow}
    run = tiny_run(tmp_path, {"game.num_rounds": 40, "agents.sampling": sampling, "update.num_updates": 1})
    played = play_iteration(run)
    budgets = [
        t.sampling.max_new_tokens for tree in played.trees for s in tree.steps for t in s.turns if t.sampling
    ]
    assert max(budgets) == 12
    assert min(budgets) < 12
    if overflow == "truncate":
        assert {tree.status for tree in played.trees} == {"truncated"}
        assert all(len(t.rows) == 1 for t in played.trajectories)
    else:
        assert {tree.status for tree in played.trees} == {"terminated"}
        assert all(len(t.rows) > 1 for t in played.trajectories)
    train(run, silent)
    line = lines(run)[0]
    cut = len(played.trees) if overflow == "truncate" else 0
    assert line["rollout/count/context_overflow"] == line["rollout/count/truncated"] == cut
    assert line["policy/shared/ratio_gap_max"] <= 1e-4


# --- Rule 14: private reasoning ---


@pytest.mark.parametrize(
    "said",
    ["<think>my secret hand</think> hello", "my secret hand</think>hello", "hello<think>my secret hand"],
)
def test_rule_14_reasoning_is_stored_and_never_in_anothers_observation(said: str) -> None:
    game = make_game("trust_and_split", num_rounds=2)

    def say(observation: Any, key: Any) -> str:
        return (
            said
            if observation.facts["phase"] == "message"
            else f"<think>my secret</think>{observation.grammar.write(3)}"
        )

    tree = play_sayers(
        game, {"Ada": say, "Bo": lambda o, k: o.grammar.write("hi" if o.facts["phase"] == "message" else 2)}
    )
    assert tree.failure is None
    bo = [turn for step in tree.steps for turn in step.turns if turn.player == "Bo"]
    assert any("hello" in turn.observation.text for turn in bo)
    assert not any("secret" in turn.observation.text + str(turn.observation.facts) for turn in bo)
    ada = [turn for step in tree.steps for turn in step.turns if turn.player == "Ada"]
    assert all("secret" in turn.reply for turn in ada)
    claims = [step.info["claims"]["Ada"] for step in tree.steps if step.info["phase"] == "claim"]
    assert claims == [3, 3], "the thought is no part of the move"


# --- Everyone trains: one shared policy, one each, frozen, scripted, three players (issue 2, point 5) ---

LAYOUTS: dict[str, dict[str, Any]] = {
    "shared": {},
    "one-each": {
        "agents.policies": {"ada": {"weights": LORA}, "bo": {"weights": LORA}},
        "agents.seats": {"Ada": "ada", "Bo": "bo"},
    },
    "frozen": {
        "agents.policies": {"ada": {"weights": FULL}, "old": {"weights": FULL, "trained": False}},
        "agents.seats": {"Ada": "ada", "Bo": "old"},
    },
    "scripted": {"agents.seats": {"Ada": "shared", "Bo": "always_defect"}},
    "three": {"game.players": ["Ada", "Bo", "Cy"]},
    "three-mixed": {
        "game.players": ["Ada", "Bo", "Cy"],
        "agents.policies": {"ada": {"weights": LORA}, "old": {"weights": FULL, "trained": False}},
        "agents.seats": {"Ada": "ada", "Bo": "old", "Cy": "tit_for_tat"},
    },
}


@pytest.mark.parametrize("estimator", [{"kind": "returns"}, CRITIC], ids=["returns", "critic"])
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_rule_3_one_trainer_for_each_trained_policy_in_every_layout(
    tmp_path: Path, layout: str, estimator: dict[str, Any]
) -> None:
    changes = LAYOUTS[layout] | {"estimator": estimator, "shaping": ALIGNED, "update.num_updates": 2}
    run = tiny_run(tmp_path, changes)
    trained = {name for name, policy in run.policies.items() if policy.trained}
    assert {trainer.policy.name for trainer in run.trainers} == trained
    train(run, silent)
    for line in lines(run):
        for name in run.policies:
            assert (f"policy/{name}/loss" in line) == (name in trained)
    assert {name: policy.version for name, policy in run.policies.items()} == {
        name: 2 if name in trained else 0 for name in run.policies
    }

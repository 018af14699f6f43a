"""Every estimator's mean against enumeration through the whole stack, and planted faults that have to be found."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from coplay.agents.language import SamplingSettings, language_agent_factory
from coplay.agents.local_engine import LocalEngine
from coplay.agents.tabular import tabular_policy
from coplay.games import make_game
from coplay.games.game_tree import game_tree
from coplay.games.plays import credit_gradient, plays
from coplay.games.solve import logit_gradient
from coplay.rollout_tree import CollectPlan, collect_sync, plan_episodes
from coplay.scripts.bias_bench import BETA, DISCOUNT, SCHEMES, Bench, Scheme
from coplay.scripts.bias_expectations import advantages, expectation
from coplay.scripts.bias_table import NUM_BATCHES, SMALLEST_P, Row, compare, main, measure
from coplay.training.baselines import leave_one_out
from coplay.training.estimators import estimate
from coplay.training.extract import extract, tick_table
from coplay.training.gradients import gradient
from coplay.training.packets import make_packets
from coplay.training.records import Estimate, TickTable
from coplay.training.trainer import Trainer

RLOO = {"baseline": "leave_one_out"}
LUCKY = [scheme for scheme in SCHEMES if scheme.name.startswith("R")]
"""REINFORCE, and RLOO with and without groups of the same luck."""


def swap_seats(table: TickTable, found: Estimate) -> Estimate:
    """Wrong seat: each row takes the advantages of the other player of his game."""
    place = {key: row for row, key in enumerate(table.keys)}
    other = {"Ada": "Bo", "Bo": "Ada"}
    order = torch.tensor([place[key._replace(player=other[key.player])] for key in table.keys])
    return replace(found, advantages=found.advantages[order])


def late(table: TickTable, found: Estimate) -> Estimate:
    """Wrong tick: each tick takes the advantage of the next one."""
    return replace(found, advantages=found.advantages.roll(-1, 1))


def twice(table: TickTable, found: Estimate) -> Estimate:
    """γ once too often: what is at tick t counts γ^t, which the tree's gradient does not hold."""
    ticks = torch.arange(found.advantages.shape[1])
    return replace(found, advantages=found.advantages * DISCOUNT**ticks)


def padded(table: TickTable, found: Estimate) -> Estimate:
    """Padded mean: over all rows of the group, those that have ended and the row itself included."""
    size = table.group_ids.bincount()
    sums = torch.zeros(len(size), found.returns.shape[1], dtype=found.returns.dtype)
    sums.index_add_(0, table.group_ids, torch.where(table.mask, found.returns, 0.0))
    means = (sums / size[:, None])[table.group_ids]
    return replace(found, advantages=torch.where(table.mask, found.returns - means, 0.0))


def pooled(table: TickTable, found: Estimate) -> Estimate:
    """Seats pooled: both seats of a match are rows of one group (G52)."""
    own = dict(zip(table.keys, table.group_ids.tolist(), strict=True))
    first = [own[key._replace(player="Ada")] for key in table.keys]
    return replace(found, advantages=leave_one_out(found.returns, first, mask=table.mask))


def planted(*faults: Any, **settings: Any) -> list[Scheme]:
    return [Scheme(name=fault.__name__, fault=fault, **settings) for fault in faults]


ALIGNED = {"shaping": "advantage_alignment", "baseline": "leave_one_out"}
TOO_WEAK = Scheme(name="γ² in the weight", flags=("--shaping.beta.level", str(BETA * DISCOUNT)), **ALIGNED)
"""Alignment with γ once too often."""


def told(bench: Bench, schemes: list[Scheme], *, num_batches: int) -> dict[str, Row]:
    rows = measure(bench, schemes, num_batches=num_batches)
    return {scheme.name: row for scheme, row in zip(schemes, rows, strict=True)}


@pytest.mark.parametrize(
    ("game", "faulty"),
    [
        ("iterated_matrix", planted(swap_seats, late)),
        ("two_round_bargaining", planted(padded, pooled, **RLOO)),
    ],
)
def test_means_when_held_against_enumeration_then_right_and_faults_are_found(
    game: str, faulty: list[Scheme]
) -> None:
    bench = Bench(game, seed=1, batch=128)
    sound = [scheme for scheme in SCHEMES if scheme.suits(bench.game) and not scheme.branches]
    found = told(bench, sound + faulty, num_batches=30)
    assert all(found[scheme.name].p > SMALLEST_P for scheme in sound), found
    assert all(found[scheme.name].p < SMALLEST_P for scheme in faulty), found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("game", "sound", "faulty"),
    [
        (
            "iterated_matrix",
            [scheme for scheme in SCHEMES if scheme.grouped],
            [*planted(swap_seats, late, twice), TOO_WEAK],
        ),
        ("two_round_bargaining", LUCKY, planted(padded, pooled, **RLOO)),
    ],
)
def test_means_when_of_a_hundred_thousand_episodes_then_right_and_faults_are_found(
    game: str, sound: list[Scheme], faulty: list[Scheme]
) -> None:
    """10^5 episodes for each estimator, fixed seeds, one p each."""
    bench = Bench(game, seed=1, batch=500)
    assert bench.batch * NUM_BATCHES == 100_000
    found = told(bench, sound + faulty, num_batches=NUM_BATCHES)
    assert all(found[scheme.name].p > SMALLEST_P for scheme in sound), found
    assert all(found[scheme.name].p < SMALLEST_P for scheme in faulty), found


@pytest.mark.parametrize("game", ["iterated_matrix", "two_round_bargaining"])
@pytest.mark.parametrize("scheme", [Scheme(name="none"), Scheme(name="groups", **RLOO)])
def test_expectation_when_summed_over_plays_then_the_gradient_by_nodes(game: str, scheme: Scheme) -> None:
    """Two formulations: Σ_z P(z) Σ_t A_t ∇ log π, and the policy gradient theorem; a baseline moves neither."""
    bench = Bench(game, seed=3)
    for player in bench.policies:
        summed = credit_gradient(bench.tree, player, bench.strategies, advantages(bench, scheme, player))
        by_nodes = logit_gradient(bench.tree, player, bench.strategies)
        assert summed == pytest.approx({cell: by_nodes[cell] for cell in summed}, abs=1e-12)


def test_seats_when_they_share_a_policy_then_rows_of_their_own_g52(tmp_path: Path) -> None:
    """One-shot dilemma, even odds, two matches: all 16 outcomes through rows, estimator, packets, credit and step."""
    game = make_game("iterated_matrix", num_rounds=1, wording="terse")
    policy = tabular_policy("both", game_tree(game))
    sampling = SamplingSettings(max_new_tokens=2)
    sit = language_agent_factory(
        LocalEngine({"both": policy}), policy.chat, policy.label, sampling, run_seed=1
    )
    players = game.spec.players
    plan = plan_episodes(
        game, run_seed=1, iteration=0, num_groups=10, group_size=4, seats=dict.fromkeys(players, sit),
        seat_names=dict.fromkeys(players, policy.label),
    )  # fmt: skip
    played = collect_sync(CollectPlan(game=game, episodes=plan))
    outcomes = {tuple(turn.reply for turn in tree.steps[0].turns): tree for tree in played}
    assert len(outcomes) == 4
    config = Scheme(name="RLOO", **RLOO).config()
    sums = {"apart": 0.0, "pooled": 0.0}
    for pair in product(outcomes.values(), repeat=2):
        trees = [replace(tree, episode=f"000000/{place:05d}") for place, tree in enumerate(pair)]
        paths = extract(trees)
        table = tick_table(paths, reward_scale=1.0, has_chance=False)
        apart = estimate(config.estimator, table, running_means={})
        for name, found in (("apart", apart), ("pooled", pooled(table, apart))):
            trainer = Trainer(policy, config, players)
            credit = trainer.credit(paths, table, found, make_packets(table, found.advantages), update=0)
            assert credit is not None
            slope = -gradient(policy, credit, config, 0, folder=tmp_path)["logits"]
            sums[name] += float(slope[:, 0].sum()) / 16
    assert sums == pytest.approx({"apart": -3 / 8, "pooled": -2 / 3}, abs=1e-6)


def test_plays_when_listed_then_their_chances_sum_to_one_and_ticks_are_rounds() -> None:
    bench = Bench("two_round_bargaining", seed=2)
    known = list(plays(bench.tree, bench.strategies))
    assert sum(play.probability for play in known) == pytest.approx(1)
    assert {len(play.rewards) for play in known} == {1, 2}
    assert {play.start for play in known} == {0, 1, 2, 3}
    assert all([taken.tick for taken in play.replies] in ([0, 0], [0, 0, 1, 1]) for play in known)


def test_alignment_when_the_others_are_listed_too_then_the_expectation_given_for_it() -> None:
    """Groups of two dilemmas, all pairs of plays: the two means are correlated, and the sum has none of it."""
    bench = Bench("iterated_matrix", seed=4, batch=2)
    scheme = Scheme(name="aligned", **ALIGNED)
    plain = Scheme(name="plain", shaping="advantage_alignment")
    known = list(plays(bench.tree, bench.strategies))
    gains = {name: advantages(bench, plain, name) for name in bench.policies}
    total: dict[Any, float] = {}
    for play in known:
        for peer in known:
            mine, theirs = (
                [a - b for a, b in zip(gains[name](play), gains[name](peer), strict=True)]
                for name in ("Ada", "Bo")
            )
            credits = [mine[0], mine[1] + BETA * DISCOUNT**2 * mine[0] * theirs[1]]
            for taken in play.replies:
                if taken.decision.player == "Ada":
                    weight = play.probability * peer.probability * credits[taken.tick]
                    for reply, share in bench.strategies["Ada"](taken.decision).items():
                        cell = (taken.decision.information, reply)
                        total[cell] = total.get(cell, 0) + weight * ((reply == taken.reply) - share)
    told = expectation(bench, scheme)["Ada"]
    for (information, reply), number in total.items():
        ((row, columns, taken_at),) = bench.weights("Ada").cells("Ada", information, reply)
        assert float(told[row, columns[taken_at]]) == pytest.approx(number, abs=1e-12)


def test_compare_when_samples_are_biased_or_not_then_p_tells() -> None:
    luck = torch.Generator().manual_seed(1)
    samples = torch.randn(400, 3, generator=luck, dtype=torch.float64) + torch.tensor([1.0, 2.0, 3.0])
    fair = compare(samples, torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    off = compare(samples, torch.tensor([1.0, 2.0, 3.5], dtype=torch.float64))
    assert fair.p > SMALLEST_P > off.p
    assert fair.variance == pytest.approx(3, rel=0.2)
    assert abs(fair.along) < 2 * fair.along_error < 0.1
    still = torch.cat((samples, torch.zeros(400, 1)), dim=1)
    truth = torch.tensor([1.0, 2.0, 3.0, 0.0], dtype=torch.float64)
    assert compare(still, truth).p == pytest.approx(fair.p)
    assert compare(still, truth + torch.tensor([0, 0, 0, 0.1])).p == 0


def test_compare_when_cells_move_together_then_their_tie_must_hold_and_counts_once() -> None:
    luck = torch.Generator().manual_seed(2)
    samples = torch.randn(300, 2, generator=luck, dtype=torch.float64)
    tied = torch.cat((samples, -2 * samples[:, :1]), dim=1)
    zero = torch.zeros(3, dtype=torch.float64)
    assert compare(tied, zero).p == pytest.approx(compare(samples, zero[:2]).p)
    assert compare(tied, zero + torch.tensor([0, 0, 0.05])).p == 0


def test_table_when_asked_for_then_a_line_for_each_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--episodes", "240", "--batches", "30", "--games", "two_round_bargaining"])
    said = capsys.readouterr().out
    assert code in (0, 1) and "two_round_bargaining" in said
    assert all(scheme.name in said for scheme in SCHEMES)

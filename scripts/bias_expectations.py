"""What the schemes of `bias_table` are held against, enumerated: a gradient, or the expectation of a credit.

REINFORCE, RLOO, GAE, branches and shared reward estimate the gradient of the returns, which the policy gradient
theorem gives node by node (`solve.logit_gradient`). Advantage Alignment has no objective: what can be held against its
mean is E[Σ_t c_t ∇ log π(a_t)] of that very credit c_t = A_i,t + β γ (Σ_{k<t} γ^{t−k} A_i,k) A_j,t, summed over plays.

- Without a baseline, and with an exact critic, c_t is a function of the play.
- With leave-one-out means M of a group, c_t is a product (G_i,k − M_i,k)(G_j,t − M_j,t), whose means are correlated:
  both are of the same other games. Those are independent of the play itself, given the luck that all share, so the
  product's expectation given the play and the luck is (G_i,k − m_i,k)(G_j,t − m_j,t) + Cov(M_i,k, M_j,t), with m = E M;
  and the covariance, a constant given the luck, falls out, since E[∇ log π(a_t)] = 0 at every information. m is the
  mean of G over plays that last so long, times the chance that one of the other games does (else M is 0).
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from coplay.games.game_tree import Decision, Real, Transition
from coplay.games.plays import Credit, Play, credit_gradient, plays
from coplay.games.solve import logit_gradient
from coplay.scripts.bias_bench import BETA, DISCOUNT, Bench, Scheme
from coplay.training.schemes import CriticEstimator


def expectation(bench: Bench, scheme: Scheme) -> dict[str, Tensor]:
    """By player, what a sound scheme's direction is on average, laid out like his table."""
    found = {}
    weights = dict.fromkeys(bench.policies, 1.0) if scheme.shaping == "shared_reward" else None
    for player, policy in bench.policies.items():
        if scheme.shaping == "advantage_alignment":
            credit = alignment_credit(bench, scheme, player)
            slope = credit_gradient(bench.tree, player, bench.strategies, credit)
        else:
            slope = logit_gradient(bench.tree, player, bench.strategies, weights)
        found[player] = torch.zeros_like(policy.state()["logits"], dtype=torch.float64)
        for (information, reply), number in slope.items():
            ((row, columns, taken),) = bench.weights(player).cells(player, information, reply)
            found[player][row, columns[taken]] += float(number)
    return found


def free_cells(bench: Bench) -> dict[str, Tensor]:
    """By player, which cells are free: of each row all possible ones but the last."""
    found = {}
    for player, policy in bench.policies.items():
        found[player] = torch.zeros(policy.state()["logits"].shape, dtype=torch.bool)
        for information, (node, *_) in bench.tree.decisions(player).items():
            decision = bench.tree.nodes[node]
            assert isinstance(decision, Decision)
            for reply in decision.moves[:-1]:
                ((row, columns, taken),) = bench.weights(player).cells(player, information, reply)
                found[player][row, columns[taken]] = True
    return found


def alignment_credit(bench: Bench, scheme: Scheme, player: str) -> Credit:
    """c_t of a play, in convention P, means over other games replaced by their expectations."""
    (other,) = (name for name in bench.policies if name != player)
    own, others = (advantages(bench, scheme, name) for name in (player, other))

    def credit(play: Play) -> list[Real]:
        mine, theirs = own(play), others(play)
        past = [
            DISCOUNT * sum(DISCOUNT ** (tick - k) * mine[k] for k in range(tick)) for tick in range(len(mine))
        ]
        return [a + BETA * w * b for a, w, b in zip(mine, past, theirs, strict=True)]

    return credit


def advantages(bench: Bench, scheme: Scheme, player: str) -> Credit:
    """A_t of a play: G_t; G_t − m_t; or GAE(λ) over V of what the player knows when he first replies in a tick."""
    seat = bench.tree.players.index(player)

    def returns(play: Play) -> list[Real]:
        paid = [rewards[seat] for rewards in play.rewards]
        return [sum(DISCOUNT ** (k - t) * paid[k] for k in range(t, len(paid))) for t in range(len(paid))]

    if scheme.estimator == "critic":
        settings = scheme.config().estimator
        assert isinstance(settings, CriticEstimator)
        lam = settings.gae_lambda.value(0)
        return lambda play: _gae(
            [rewards[seat] for rewards in play.rewards], _values(bench, play, player), lam
        )
    if scheme.baseline == "none":
        return returns
    assert scheme.grouped or not bench.game.spec.has_chance, "a game's own luck is among the others' then"
    means = _group_means(bench, returns)
    return lambda play: [gain - means(play.start, tick) for tick, gain in enumerate(returns(play))]


def _values(bench: Bench, play: Play, player: str) -> list[Real]:
    found: dict[int, Real] = {}
    for taken in play.replies:
        if taken.decision.player == player:
            found.setdefault(taken.tick, bench.known[player][taken.decision.information][1])
    return [found[tick] for tick in range(len(play.rewards))]


def _gae(paid: Sequence[Real], values: Sequence[Real], lam: float) -> list[Real]:
    following = [*values[1:], 0]
    gaps = [r + DISCOUNT * v - now for r, v, now in zip(paid, following, values, strict=True)]
    return [sum((DISCOUNT * lam) ** (k - t) * gaps[k] for k in range(t, len(gaps))) for t in range(len(gaps))]


def _group_means(bench: Bench, returns: Credit) -> Callable[[int, int], Real]:
    """M by luck of the start and tick."""
    later = [node for node in bench.tree.nodes[1:] if isinstance(node, Transition)]
    assert all(len(node.outcomes) == 1 for node in later), "all luck is at the start"
    known = list(plays(bench.tree, bench.strategies))

    @cache
    def mean(start: int, tick: int) -> Real:
        same = [play for play in known if play.start == start]
        lasting = [play for play in same if len(play.rewards) > tick]
        all_in, alive = (sum(play.probability for play in some) for some in (same, lasting))
        met = 1 - (1 - alive / all_in) ** (bench.luck_group - 1)
        return met * sum(play.probability * returns(play)[tick] for play in lasting) / alive

    return mean

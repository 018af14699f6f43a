"""Golden numbers, worked out by hand and named by their ids, and enumerated variances."""

import itertools
from fractions import Fraction

import pytest
import torch
from pydantic import TypeAdapter

from coplay.training import masked, shaping
from coplay.training.baselines import group_relative, leave_one_out
from coplay.training.credit import discounted_returns, generalized_advantages, token_credits
from coplay.training.importance import effective_sample_size, importance_ratios, importance_weights
from coplay.training.log_probs import token_log_probs
from coplay.training.losses import entropy, huber, kl_k1, kl_k2, kl_k3, mse, normaliser, reinforce
from coplay.training.schedules import Constant, Decay, Linear, Tanh

TOLERANCE = 1e-9


def t(*rows):
    """Float64 rows."""
    return torch.tensor(rows, dtype=torch.float64)


def same(got, expected, tolerance=TOLERANCE):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
    assert (got.detach().double() - expected).abs().max() <= tolerance, f"got {got.tolist()}"


def differs(got, expected):
    assert (got.detach().double() - torch.as_tensor(expected, dtype=torch.float64)).abs().max() > 1e-3


# --- Returns and advantages: G1 to G11 ---


@pytest.mark.parametrize(
    ("rewards", "discount", "expected"),
    [
        pytest.param([1, 0, 2], 0.9, [2.62, 1.8, 2.0], id="G1"),
        pytest.param([3, 3, 0, 5], 0.5, [5.125, 4.25, 2.5, 5.0], id="G2"),
        pytest.param([1, 2, 3, 4], 1.0, [10, 9, 7, 4], id="G3-undiscounted"),
        pytest.param([1, 2, 3, 4], 0.0, [1, 2, 3, 4], id="G3-myopic"),
        pytest.param([3 / 5, 0 / 5, 5 / 5], 0.9, [1.41, 0.9, 1.0], id="G49"),
    ],
)
def test_returns_of_golden_rewards_are_exact(rewards, discount, expected):
    same(discounted_returns(t(rewards), discount=discount), t(expected))


def test_returns_of_jagged_rows_are_exact_g4():
    mask = torch.tensor([[True, True, True], [True, False, False]])
    same(discounted_returns(t([1, 1, 1], [2, 0, 0]), discount=0.9, mask=mask), t([2.71, 1.9, 1.0], [2, 0, 0]))


@pytest.mark.parametrize(("scale", "expected"), [(1, 19.539646797), (5, 3.9079293594)])
def test_first_return_of_ten_rewards_of_three_is_exact_g5(scale, expected):
    same(discounted_returns(t([3.0 / scale] * 10), discount=0.9)[0, 0], expected)


@pytest.mark.parametrize(
    ("gae_lambda", "bootstrap", "expected"),
    [
        pytest.param(0.95, None, [1.9878125, 0.6875, 2.5], id="G6"),
        pytest.param(0.0, None, [1.4, -1.45, 2.5], id="G7"),
        pytest.param(1.0, None, [2.12, 0.8, 2.5], id="G8"),
        pytest.param(0.95, 2.0, [3.3036575, 2.2265, 4.3], id="G10"),
    ],
)
def test_generalized_advantages_of_golden_rows_are_exact(gae_lambda, bootstrap, expected):
    got = generalized_advantages(
        t([1, 0, 2]),
        t([0.5, 1, -0.5]),
        discount=0.9,
        gae_lambda=gae_lambda,
        bootstrap=None if bootstrap is None else t(bootstrap),
    )
    same(got, t(expected))


def test_generalized_advantages_do_not_read_the_critic_on_padding_g9():
    got = generalized_advantages(
        t([1, 0, 2], [2, 0, 0]),
        t([0.5, 1, -0.5], [0.25, 0.7, 0.7]),
        discount=0.9,
        gae_lambda=0.95,
        mask=torch.tensor([[True, True, True], [True, False, False]]),
    )
    same(got[1], [1.75, 0, 0])
    differs(got[1, 0], 1.8084325)


def test_critic_targets_and_losses_are_exact_g11():
    rewards, values = t([1, 0, 2], [2, 0, 0]), t([0.5, 1, -0.5], [0.25, 0.7, 0.7])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    targets = values + generalized_advantages(rewards, values, discount=0.9, gae_lambda=0.95, mask=mask)
    same(targets[0], [2.4878125, 1.6875, 2.0])
    same(masked.masked_mean(huber(values, targets)[0], None), 1.241380208333)
    same(masked.masked_mean(mse(values, targets)[0], None), 3.558018261719)
    per_cell = huber(values, targets, mask=mask)
    same(masked.masked_mean(per_cell, mask), 1.24353515625)
    same(masked.masked_mean(per_cell, None), 0.8290234375)
    differs(masked.masked_mean(per_cell, mask), 0.8290234375)


# --- Baselines: G12 to G20 ---


@pytest.mark.parametrize(
    ("returns", "ids", "expected"),
    [
        pytest.param([3], ["a"], [3], id="G12"),
        pytest.param([3, 5], ["a"] * 2, [-2, 2], id="G13"),
        pytest.param([0, 1, 3, 4], ["a"] * 4, [-8 / 3, -4 / 3, 4 / 3, 8 / 3], id="G14"),
        pytest.param([10, 12, 1, 3, 5], [7, 7, 9, 9, 9], [-2, 2, -3, 0, 3], id="G16"),
        pytest.param([10, 12, 1, 3, 5], [0] * 5, [4.75, 7.25, -6.5, -4, -1.5], id="G16-ungrouped"),
        pytest.param([4, 6, 9], [1, 1, 2], [-2, 2, 9], id="G17"),
        pytest.param([10, 1, 12, 3, 5], [7, 9, 7, 9, 9], [-2, -3, 2, 0, 3], id="G18"),
    ],
)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_leave_one_out_of_golden_groups_is_exact(returns, ids, expected, as_tensor):
    numbers = torch.tensor([hash(i) for i in ids]) if as_tensor else ids
    same(leave_one_out(t(returns).T, numbers), t(expected).T)


def test_leave_one_out_over_time_is_exact_g15():
    returns = discounted_returns(t([1, 2, 3], [4, 5, 6], [7, 8, 9]), discount=0.9)
    same(returns, t([5.23, 4.7, 3], [13.36, 10.4, 6], [21.49, 16.1, 9]))
    same(leave_one_out(returns, [0, 0, 0]), t([-12.195, -8.55, -4.5], [0, 0, 0], [12.195, 8.55, 4.5]))


def test_leave_one_out_of_jagged_rows_compares_the_rows_alive_g19():
    mask = torch.tensor([[True, True, True], [True, False, False]])
    returns = discounted_returns(t([1, 1, 1], [2, 0, 0]), discount=1.0, mask=mask)
    same(leave_one_out(returns, [0, 0], mask=mask), t([1, 2, 1], [-1, 0, 0]))


@pytest.mark.parametrize(
    ("returns", "deviation", "expected"),
    [
        pytest.param([1, 0, 0, 1], "population", [1, -1, -1, 1], id="G20-population"),
        pytest.param(
            [1, 0, 0, 1],
            "sample",
            [0.866025403784, -0.866025403784, -0.866025403784, 0.866025403784],
            id="G20-sample",
        ),
        pytest.param([1, 0, 0, 1], "none", [0.5, -0.5, -0.5, 0.5], id="G20-none"),
        pytest.param(
            [0, 1, 3, 4],
            "population",
            [-1.264911064067, -0.632455532034, 0.632455532034, 1.264911064067],
            id="G20b-population",
        ),
        pytest.param(
            [0, 1, 3, 4],
            "sample",
            [-1.095445115010, -0.547722557505, 0.547722557505, 1.095445115010],
            id="G20b-sample",
        ),
        pytest.param([0, 1, 3, 4], "none", [-2, -1, 1, 2], id="G20b-none"),
    ],
)
def test_group_relative_of_golden_groups_is_exact(returns, deviation, expected):
    same(group_relative(t(returns).T, ["g"] * 4, deviation=deviation), t(expected).T)


# --- Whitening: G21 to G24, G33 ---

JAGGED = torch.tensor([[True, True, True], [True, False, False]])


def test_whiten_does_not_count_padding_g21_g22():
    got = masked.whiten(t([1, 2, 3], [4, 0, 0]), JAGGED)
    same(got, t([-1.161895002962, -0.387298334321, 0.387298334321], [1.161895002962, 0, 0]))
    padded = t([-0.408248290214, 0.204124145107, 0.816496580428], [1.428869015749, 0, 0])
    differs(got, padded)
    # The defect's own numbers: what padding inside the statistics gives.
    same(torch.where(JAGGED, masked.whiten(t([1, 2, 3], [4, 0, 0]), None), 0), padded)
    same(masked.masked_mean(t([1, 2, 3], [4, 0, 0]), JAGGED), 2.5)
    same(masked.masked_std(t([1, 2, 3], [4, 0, 0]), JAGGED), 1.290994448736)


def test_whiten_per_step_is_exact_g23():
    got = masked.whiten(t([1, 2], [3, 6], [5, 10]), None, per_step=True)
    same(got, t([-1, -1], [0, 0], [1, 1]), tolerance=1e-8)


def test_whiten_per_step_leaves_out_padding_g24():
    got = masked.whiten(t([2], [6], [0]), torch.tensor([[True], [True], [False]]), per_step=True)
    same(got, t([-0.707106780937], [0.707106780937], [0]), tolerance=1e-8)
    differs(got[:2], t([-0.218217890165], [1.091089450823]))


def test_centre_over_the_batch_is_exact_g33():
    same(masked.centre(t([1, 2], [3, 5]), None, per_step=True), t([-1, -1.5], [1, 1.5]))


# --- Shaping: G25 to G32, G34 ---

P, D, I = {}, {"extra_discount": False}, {"include_current": True}  # noqa: E741 - the conventions' names
N_T, N_1T = {"normalise": "t"}, {"normalise": "t+1"}
A25, B25 = [1, -2, 0.5], [2, 1, -1]
A27, B27 = [1, 4, 0], [6, 5, 0]
A28, ONES = [2, 1, 0, -4], [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("own", "others", "beta", "discount", "options", "expected"),
    [
        pytest.param(A25, B25, 0.5, 0.9, P, [1, -1.595, 0.9455], id="G25-P"),
        pytest.param(B25, A25, 0.5, 0.9, P, [2, -0.62, -0.433], id="G25-P-swapped"),
        pytest.param(A25, B25, 0.5, 0.9, D, [1, -1.55, 0.995], id="G25-D"),
        pytest.param(B25, A25, 0.5, 0.9, D, [2, -0.8, -0.37], id="G25-D-swapped"),
        pytest.param(A25, B25, 0.5 / 0.9, 0.9, P, [1, -1.55, 0.995], id="G25-D-is-P-at-beta-over-gamma"),
        pytest.param(A25, B25, 0.5, 0.9, I, [2, -2.55, 0.745], id="G25-I"),
        pytest.param(B25, A25, 0.5, 0.9, I, [3, -1.8, -0.62], id="G25-I-swapped"),
        pytest.param(A25, B25, 0.5, 0.9, N_1T, [1, -1.75, 2 / 3], id="G25-N1t"),
        pytest.param(B25, A25, 0.5, 0.9, N_1T, [2, 0, -0.75], id="G25-N1t-swapped"),
        pytest.param(A25, B25, 0.5, 0.9, N_T, [1, -1.5, 0.75], id="G25-Nt"),
        pytest.param(B25, A25, 0.5, 0.9, N_T, [2, -1, -0.625], id="G25-Nt-swapped"),
        pytest.param([3, 9, 4, 15], [14, 12, 2, 47], 0.7, 0.9, P, [3, 29.412, 17.2678, 402.20997], id="G26"),
        pytest.param(A27, B27, 1, 0.9, P, [1, 8.05, 0], id="G27-P"),
        pytest.param(A27, B27, 1, 0.9, D, [1, 8.5, 0], id="G27-D"),
        pytest.param(A27, B27, 1, 0.9, I, [7, 28.5, 0], id="G27-I"),
        pytest.param(A28, ONES, 2, 0.5, {"clip": 0.5}, [2, 2, 1, -3.5], id="G28"),
        pytest.param(A28, ONES, 1, 0.9, {**D, "sign": True}, [2, 2, 1, -3], id="G29"),
        pytest.param(A28, ONES, 1, 0.9, {"divide_by_time": True}, [2, 1.81, 0.756, -3.4897], id="G30"),
        pytest.param(A28, ONES, 1, 0.9, {"force_first": True}, [3, 2.62, 2.268, -1.9588], id="G31"),
    ],
)
def test_advantage_alignment_of_golden_rows_is_exact(own, others, beta, discount, options, expected):
    got = shaping.advantage_alignment(t(own), t(others), beta=beta, discount=discount, **options)
    same(got, t(expected))


@pytest.mark.parametrize(
    ("own", "discount", "expected"),
    [
        pytest.param(A25, 0.9, [0, 0.81, -0.891], id="G25"),
        pytest.param(B25, 0.9, [0, 1.62, 2.268], id="G25-swapped"),
        pytest.param([3, 9, 4, 15], 0.9, [0, 2.43, 9.477, 11.7693], id="G26"),
        pytest.param(A28, 0.5, [0, 0.5, 0.5, 0.25], id="G28"),
    ],
)
def test_alignment_weights_of_golden_rows_are_exact(own, discount, expected):
    same(shaping.alignment_weights(t(own), discount=discount), t(expected))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(N_1T, [[1, 2.5, 2], [0, 1, 4 / 3], [-1, -1.5, 2]], id="G32-N1t"),
        pytest.param(N_T, [[1, 3, 3.5], [0, 1, 1.5], [-1, -3, 2]], id="G32-Nt"),
    ],
)
def test_advantage_alignment_of_three_players_sums_the_opponents_g32(options, expected):
    rows = t([1, 2, -1], [0, 1, 1], [-1, 0, 2])
    others = rows.sum(0, keepdim=True) - rows
    same(shaping.advantage_alignment(rows, others, beta=1.0, discount=0.9, **options), t(*expected))


@pytest.mark.parametrize(
    ("credits", "discount", "expected"),
    [
        pytest.param([4, 4, 4], 0.5, [4, 2, 1], id="G34-half"),
        pytest.param([1, -2, 3], 0.9, [1, -1.8, 2.43], id="G34"),
    ],
)
def test_visitation_weights_of_golden_credits_are_exact(credits, discount, expected):
    mask = torch.ones(1, 3, dtype=torch.bool)
    same(t(credits) * shaping.visitation_weights(mask, discount, dtype=torch.float64), t(expected))


# --- Divergences, importance weights, entropy: G35 to G42, G48, G51 ---


@pytest.mark.parametrize(
    ("estimator", "options", "expected"),
    [
        pytest.param(kl_k1, {}, [0.69314718056, -0.69314718056, 0], id="G35-k1"),
        pytest.param(kl_k2, {}, [0.240226506959, 0.240226506959, 0], id="G35-k2"),
        pytest.param(kl_k3, {}, [0.193147180560, 0.306852819440, 0], id="G35-k3"),
        pytest.param(kl_k3, {"drop_likelier": True}, [0.193147180560, 0, 0], id="G37"),
    ],
)
def test_kl_estimators_of_golden_tokens_are_exact(estimator, options, expected):
    same(estimator(t(0.5, 0.2, 0.1).log(), t(0.25, 0.4, 0.1).log(), **options), expected)


@pytest.mark.parametrize(
    ("estimator", "mean", "variance"),
    [
        pytest.param(kl_k1, 0.218011910943, 0.370587399731, id="G36-k1"),
        pytest.param(kl_k2, 0.209058296522, 0.020477348737, id="G36-k2"),
        pytest.param(kl_k3, 0.218011910943, 0.039340547981, id="G36-k3"),
    ],
)
def test_kl_estimators_have_golden_mean_and_variance(estimator, mean, variance):
    p, q = t(0.5, 0.3, 0.2), t(0.25, 0.25, 0.5)
    values = estimator(p.log(), q.log())
    same(p @ values, mean)
    same(p @ values.square() - (p @ values) ** 2, variance)


def test_importance_weights_per_token_are_exact_g38():
    new, engine = t(-1, -2, -0.5), t(-1.5, -1.5, -2)
    exact = [1.648721270700, 0.606530659713, 4.481689070338]
    same(importance_weights(new, engine, cap=None), exact)
    same(importance_weights(new, engine, cap=0), exact)
    same(importance_weights(new, engine), [exact[0], exact[1], 2])


def test_importance_weights_per_turn_and_per_sequence_are_exact_g39():
    gaps, zeros = t(0.2, 0.3, -0.1, 0.5, 0.6), torch.zeros(5, dtype=torch.float64)
    turns, rows = torch.tensor([0, 0, 1, 1, 1]), torch.zeros(5, dtype=torch.long)
    one, two = 1.648721270700, 2.718281828459
    same(
        importance_weights(gaps, zeros, strategy="turn", turn_ids=turns, cap=None), [one, one, two, two, two]
    )
    same(importance_weights(gaps, zeros, strategy="turn", turn_ids=turns), [one, one, 2, 2, 2])
    same(importance_weights(gaps, zeros, strategy="sequence", row_ids=rows, cap=None), [4.481689070338] * 5)
    same(importance_weights(gaps, zeros), gaps.exp())  # a cap per token would clip nothing


def test_token_credits_and_their_loss_are_exact_g40():
    steps, action = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([False, True, True, False, True, True])
    per_token = token_credits(t([0.5, -1, 2]), torch.zeros(6, dtype=torch.long), steps)
    same(per_token, [0.5, 0.5, 0.5, -1, -1, 2])
    log_probs = t(float("nan"), -0.5, -1, float("nan"), -2, -0.25)
    loss = masked.masked_sum(reinforce(log_probs, per_token, mask=action), action)
    same(loss, -0.75)
    tokens = int(action.sum())
    same(loss / normaliser("tokens", num_trajectories=1, num_tokens=tokens), -0.1875)
    same(loss / normaliser("trajectories", num_trajectories=1, num_tokens=tokens), -0.75)


def test_normaliser_by_tokens_is_blind_to_the_partition_g41():
    token_losses = t(2, 1, 1, 1)
    pieces = [token_losses[:1], token_losses[1:]]
    tokens = normaliser("tokens", num_trajectories=2, num_tokens=4)
    same(sum(masked.masked_sum(piece, None) / tokens for piece in pieces), 1.25)
    of_means = torch.stack([masked.masked_mean(piece, None) for piece in pieces]).mean()
    same(of_means, 1.5)
    differs(of_means, 1.25)


@pytest.mark.parametrize(
    ("top_k", "expected"),
    [(None, 1.142120042988), (2, 0.661563238158), (3, 0.993268210150), (9, 1.142120042988)],
)
def test_entropy_of_the_golden_distribution_is_exact_g42(top_k, expected):
    got = entropy(t([0.5, 0.3, 0.15, 0.05]).log(), top_k=top_k)
    same(got, [expected])
    differs(got, [0.707765431578])


def test_policy_gradient_of_a_softmax_is_exact_g48():
    p, q = t(0.2, 0.3, 0.5), t(1, 2, 4)
    logits = p.log().requires_grad_()
    log_probs = token_log_probs(logits.expand(3, 3), torch.arange(3)).log_probs
    (-masked.masked_sum(p * reinforce(log_probs, q), None)).backward()
    same(logits.grad, [-0.36, -0.24, 0.6])


def test_effective_sample_size_of_golden_ratios_is_exact_g51():
    ratios = importance_ratios(t(0.5, 1, 2, 0.25).log(), torch.zeros(4, dtype=torch.float64))
    same(effective_sample_size(ratios), 2.647058823529)


# --- Schedules: G43, G50 ---


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0), (1, 0.099667994625), (5, 0.462117157260), (10, 0.761594155956), (50, 0.999909204263)],
)
def test_lambda_annealing_is_exact_g43(step, expected):
    assert Tanh(limit=1.0, tau=5).value(step) == pytest.approx(expected, abs=TOLERANCE)
    if step == 5:
        assert Tanh(limit=0.95, tau=5).value(5) == pytest.approx(0.439011299397, abs=TOLERANCE)


def test_beta_schedule_is_exact_and_counts_updates_g50():
    every_update = Decay(start=2.0, factor=0.5, every=1, floor=0.3)
    assert [every_update.value(step) for step in range(5)] == [2, 1, 0.5, 0.3, 0.3]
    every_third = Decay(start=2.0, factor=0.5, every=3, floor=0.3)
    assert [every_third.value(step) for step in range(7)] == [2, 2, 2, 1, 1, 1, 0.5]


def test_schedules_are_read_from_plain_numbers_and_tables():
    from coplay.training.schedules import Schedule

    read = TypeAdapter(Schedule).validate_python
    assert read(0.3) == Constant(level=0.3)
    assert read(2).value(99) == 2.0
    assert isinstance(read({"kind": "decay", "start": 2.0, "every": 60, "floor": 0.3}), Decay)
    line = read({"kind": "linear", "initial": 1.0, "final": 0.0, "begin": 2, "end": 4})
    assert isinstance(line, Linear)
    assert [line.value(step) for step in range(6)] == [1, 1, 1, 0.5, 0, 0]
    assert read(TypeAdapter(Schedule).dump_python(line)) == line
    with pytest.raises(ValueError, match="cubic"):
        read({"kind": "cubic"})
    with pytest.raises(ValueError, match="True"):
        read(True)


# --- Exact gradients by enumeration: G46, G52, section 4(c) ---

PAYOFF = {(0, 0): 3.0, (0, 1): 0.0, (1, 0): 5.0, (1, 1): 1.0}  # own move, other's move; 0 is C
STATE = {(0, 0): 1, (0, 1): 2, (1, 0): 3, (1, 1): 4}  # logit read after own move, other's move


def _enumerated_ipd(own_logits, other_logits, steps=3):
    """All joint histories: rewards (B, S), own log-probs (B, S), probability of each history (B,)."""
    rewards, own, joint = [], [], []
    for moves in itertools.product(itertools.product((0, 1), repeat=2), repeat=steps):
        mine, other = 0, 0
        logs, total = [], torch.zeros((), dtype=torch.float64)
        for a, b in moves:
            sign_a, sign_b = 1 - 2 * a, 1 - 2 * b
            log_a = torch.nn.functional.logsigmoid(sign_a * own_logits[mine])
            log_b = torch.nn.functional.logsigmoid(sign_b * other_logits[other])
            logs.append(log_a)
            total = total + log_a + log_b
            mine, other = STATE[a, b], STATE[b, a]
        rewards.append([PAYOFF[move] for move in moves])
        own.append(torch.stack(logs))
        joint.append(total.exp())
    return t(*rewards), torch.stack(own), torch.stack(joint)


@pytest.mark.parametrize(
    ("visitation", "expected"),
    [
        pytest.param(True, [-0.234504700, -0.048218830, -0.044142260, -0.038852520, -0.043602640], id="G46"),
        pytest.param(
            False,
            [-0.234504700, -0.139482760, -0.127688610, -0.114541170, -0.128148420],
            id="G46-without-visitation",
        ),
    ],
)
def test_reinforce_with_visitation_weights_is_the_gradient_of_the_discounted_return_g46(visitation, expected):
    logits = t(0, 1, -1, 0.5, -0.5).requires_grad_()
    rewards, log_probs, probability = _enumerated_ipd(logits, logits.detach())
    returns = discounted_returns(rewards, discount=0.5)
    value = (probability * returns[:, 0]).sum()
    same(value, 3.935516741962)
    mask = torch.ones_like(rewards, dtype=torch.bool)
    credits = returns * shaping.visitation_weights(mask, 0.5, dtype=torch.float64) if visitation else returns
    loss = (probability.detach()[:, None] * reinforce(log_probs, credits)).sum()
    (gradient,) = torch.autograd.grad(-loss, logits, retain_graph=True)
    same(gradient, expected, tolerance=1e-7)
    (truth,) = torch.autograd.grad(value, logits)
    if visitation:
        same(gradient, truth, tolerance=1e-12)
    else:
        differs(gradient, truth)


def _one_shot_pd_gradient(group_ids):
    """Mean over the equally likely outcomes of 2 matches, and over 4 rows, of the gradient in the C-logit."""
    outcomes = t(*itertools.product((0, 1), repeat=4)).T  # (4, 16): two seats of two matches
    other = outcomes[[1, 0, 3, 2]]
    payoff = t([3.0, 0.0], [5.0, 1.0])[outcomes.long(), other.long()]
    logits = torch.zeros((), dtype=torch.float64, requires_grad=True)
    log_probs = torch.nn.functional.logsigmoid((1 - 2 * outcomes) * logits)
    loss = masked.masked_mean(reinforce(log_probs, leave_one_out(payoff, group_ids)), None)
    (gradient,) = torch.autograd.grad(-loss, logits)
    return gradient


def test_leave_one_out_per_seat_is_unbiased_and_pooled_over_seats_is_not_g52():
    same(_one_shot_pd_gradient(["row", "column", "row", "column"]), -3 / 8, tolerance=1e-12)
    pooled = _one_shot_pd_gradient(["both"] * 4)
    same(pooled, -2 / 3, tolerance=1e-12)
    differs(pooled, -3 / 8)


def _moments(reward, contexts, p, n, k, estimator):
    """Exact mean and variance of mean_i A_i (a_i − p), over all contexts and actions.

    Groups of k share a context for `grouped` and `same`; each rollout draws one for `iid` and `none`.
    """
    num_groups, repeat = (n, 1) if estimator in ("iid", "none") else (n // k, k)
    drawn = list(itertools.product(contexts, repeat=num_groups))
    moves = list(itertools.product((0, 1), repeat=n))
    x = t(*[[c for c in group for _ in range(repeat)] for group in drawn for _ in moves]).T  # (n, outcomes)
    a = t(*(moves * len(drawn))).T
    weight = (p**a * (1 - p) ** (1 - a)).prod(0) / len(drawn)
    returns = reward(x, a)
    ids = [i // k for i in range(n)] if estimator == "grouped" else [0] * n
    advantages = returns if estimator == "none" else leave_one_out(returns, ids)
    sampled = (advantages * (a - p)).mean(0)
    mean = (weight * sampled).sum()
    return float(mean), float((weight * (sampled - mean) ** 2).sum())


def additive(x, a):
    return x + a


def mixed(x, a):
    return x * (1 + a)


def multiplicative(x, a):
    return x * a


def contextless(x, a):
    return a + 0 * x


# (reward, contexts, p, N, k); mean, variance grouped, global on the same data; global iid, no baseline.
CRN_CASES = [
    pytest.param(
        (additive, (0, 8), 0.5, 4, 2), ("1/4", "1/32", "259/288"), (1.34375, 2.265625), id="additive-4-2"
    ),
    pytest.param(
        (additive, (0, 8), 0.5, 6, 3), ("1/4", "1/96", "581/1200"), (0.804167, 1.510417), id="additive-6-3"
    ),
    pytest.param(
        (additive, (0, 8), 0.2, 4, 2), ("4/25", "17/625", "661/1125"), (0.872, 1.5616), id="additive-biased"
    ),
    pytest.param((mixed, (1, 10), 0.5, 4, 2), ("11/8", "283/128", "695/192"), (4.53385, 7.41797), id="mixed"),
    pytest.param(
        (multiplicative, (1, 10), 0.5, 4, 2),
        ("11/8", "283/128", "263/192"),
        (1.15885, 1.10547),
        id="multiplicative",
    ),
    pytest.param((contextless, (0,), 0.5, 4, 2), ("1/4", "1/32", "1/96"), (1 / 96, 1 / 64), id="no-context"),
]


@pytest.mark.parametrize(("case", "exact", "rounded"), CRN_CASES)
def test_crn_groups_have_the_enumerated_variance(case, exact, rounded):
    moments = {kind: _moments(*case, kind) for kind in ("grouped", "same", "iid", "none")}
    mean, grouped, pooled = (float(Fraction(number)) for number in exact)
    assert [found for found, _ in moments.values()] == pytest.approx([mean] * 4, abs=1e-12)
    assert moments["grouped"][1] == pytest.approx(grouped, abs=1e-12)
    assert moments["same"][1] == pytest.approx(pooled, abs=1e-12)
    assert (moments["iid"][1], moments["none"][1]) == pytest.approx(rounded, abs=1e-5)


def test_crn_groups_help_or_hurt_as_the_table_says():
    cases = [parameters.values[0] for parameters in CRN_CASES]
    ratios = [_moments(*case, "same")[1] / _moments(*case, "grouped")[1] for case in cases]
    assert ratios == pytest.approx([28.78, 46.48, 21.60, 1.637, 0.6196, 1 / 3], rel=1e-3)

"""Ways to estimate advantages and to shape credit, as settings: a scheme is a class, its kind chooses it."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from coplay.agents.settings import Settings, default_kind
from coplay.training.messages import ConfigError
from coplay.training.schedules import Constant, LearningRate, Schedule

Whitening = Literal["off", "batch", "tick"]


class EstimatorBase(Settings):
    """What every estimator has."""

    discount: float = Field(0.9, ge=0, le=1)
    """gamma, per tick."""
    reward_scale: float = Field(1.0, gt=0)
    """Divides raw rewards first; beta, penalties and what a KL costs are in scaled units too."""


class ReturnsEstimator(EstimatorBase):
    """Advantage = discounted reward-to-go minus a baseline: A_t = G_t - b_t."""

    kind: Literal["returns"] = "returns"
    baseline: Literal["leave_one_out", "running_mean", "none"] = "leave_one_out"
    """Mean of the others in the group (RLOO), mean of earlier iterations per (player, opponents), or nothing."""


class CriticLearning(Settings):
    """How a critic that all players share learns."""

    loss: Literal["huber", "mse"] = "huber"
    """Loss of the value against its target."""
    lr: LearningRate = Constant(level=1e-3)
    """Learning rate of the critic, by update number."""
    gradient_clip: float | None = Field(1.0, gt=0)
    """Largest gradient norm of the critic."""
    value_clip: float | None = Field(None, gt=0)
    """Farthest that the loss lets a value move from what it was before the update, in scaled units; None: any."""


class CriticEstimator(EstimatorBase, CriticLearning):
    """Generalised advantage estimation over a critic that all players share."""

    kind: Literal["critic"] = "critic"
    gae_lambda: Schedule = Constant(level=0.95)
    """lambda of GAE, by update number."""


class BranchesEstimator(EstimatorBase):
    """At a fork, a reply's return minus the mean of its siblings'; else as `returns`, averaged over later forks."""

    kind: Literal["branches"] = "branches"
    critic: CriticLearning | None = None
    """Says what lies beyond a horizon and beyond truncated games, and learns the returns; None: there is none."""


class GrpoEstimator(EstimatorBase):
    """The game's return against the group's, for all ticks alike: A = (R - mean) / (deviation + epsilon).

    GRPO (arXiv 2402.03300); without the deviation Dr. GRPO (arXiv 2503.20783).
    """

    kind: Literal["grpo"] = "grpo"
    discount: float = Field(1.0, ge=0, le=1)
    """gamma, per tick, of the return of a whole game."""
    divide_by_deviation: bool = True
    """Divide by the group's deviation; False is Dr. GRPO."""
    deviation: Literal["sample", "population"] = "sample"
    """Over n - 1, as in TRL and verl, or over n."""
    epsilon: float = Field(1e-4, ge=0)
    """Added to the deviation; TRL's value."""


EstimatorSettings = Annotated[
    Annotated[
        ReturnsEstimator | CriticEstimator | BranchesEstimator | GrpoEstimator, Field(discriminator="kind")
    ],
    default_kind("returns"),
]


def critic_learning(settings: EstimatorSettings) -> CriticLearning | None:
    """How the critic of an estimator learns; None without one."""
    if isinstance(settings, BranchesEstimator):
        return settings.critic
    return settings if isinstance(settings, CriticEstimator) else None


class ShapingBase(Settings):
    """What every shaping may do around itself; all statistics are masked and over the rows of one policy."""

    whiten_before: Whitening = "off"
    """Whiten every player's advantages, each seat over its own games, before they are exchanged and shaped."""
    centre_before: Whitening = "off"
    """Subtract their mean there: a second baseline, which a critic that learns slowly may need."""
    whiten_after: Whitening = "off"
    """Whiten credits after shaping."""
    centre_after: Whitening = "off"
    """Subtract the mean of the credits after shaping."""


class Independent(ShapingBase):
    """Credit is the own advantage."""

    kind: Literal["independent"] = "independent"


class SharedReward(ShapingBase):
    """Credit is the sum of all players' advantages."""

    kind: Literal["shared_reward"] = "shared_reward"


class TakenPast(Settings):
    """The weight is made of the player's advantages along the path as it was played."""

    kind: Literal["taken"] = "taken"


class ExpectedPast(Settings):
    """The weight is made of expected advantages: over fresh replies of the player, what others did there held.

    The replies come from branches, which `collect.branching` plays.
    """

    kind: Literal["expected"] = "expected"
    replies: Literal["alternatives", "siblings"] = "alternatives"
    """The mean is over the alternatives to the path's own reply, or over all siblings, that reply among them."""
    baseline: Literal["estimator", "leave_one_out"] = "estimator"
    """What is subtracted from it: the path's own baseline, or the mean of the group's other games' expected returns."""
    unforked: Literal["refuse", "taken", "zero"] = "refuse"
    """What stands for a tick at which the player replied and no reply of his was resampled: an error, the advantage
    as it was taken, or 0. Ticks without a reply of his keep theirs: there is nothing to average over."""


PastSettings = Annotated[
    Annotated[TakenPast | ExpectedPast, Field(discriminator="kind")], default_kind("taken")
]


class AdvantageAlignment(ShapingBase):
    """Credit c_t = A_t + beta w_t sum_j A^j_t with w_t = gamma sum_{k<t} gamma^(t-k) A_k (arXiv 2406.14662)."""

    kind: Literal["advantage_alignment"] = "advantage_alignment"
    beta: Schedule = Constant(level=0.3)
    """Weight of the alignment term in scaled reward units, by update number."""
    discount: float | None = Field(None, ge=0, le=1)
    """gamma of the weight; None takes the estimator's."""
    include_current: bool = False
    """Sum over k <= t (convention I) in place of k < t (convention P)."""
    normalise: Literal["none", "t", "t+1"] = "none"
    """Replace the discounted sum by a mean over the ticks so far (the N variants)."""
    extra_discount: bool = True
    """False leaves out the gamma before the sum (convention D)."""
    divide_by_time: bool = False
    """Divide the weight by t + 1."""
    sign: bool = False
    """Use only the sign of the weight."""
    clip: float | None = Field(None, gt=0)
    """Clip the weight to [-clip, clip]."""
    force_first: bool = False
    """Set the first tick's weight to 1."""
    past: PastSettings = TakenPast()
    """Which own past advantages the weight is made of: those taken, or their expectation over fresh replies."""

    @model_validator(mode="after")
    def _check_convention(self) -> "AdvantageAlignment":
        if self.include_current and self.normalise != "none":
            raise ConfigError(
                f"'shaping.include_current' is true (convention I) and 'shaping.normalise' is {self.normalise!r}"
                " (convention N); expected one of them"
            )
        return self


ShapingSettings = Annotated[
    Annotated[Independent | SharedReward | AdvantageAlignment, Field(discriminator="kind")],
    default_kind("independent"),
]

"""What a policy's step minimises, as settings: an objective is a class, its kind chooses it."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from coplay.agents.settings import Settings, default_kind
from coplay.training.messages import ConfigError
from coplay.training.schedules import Constant, Schedule


class FixedKl(Settings):
    """The coefficient stays."""

    kind: Literal["fixed"] = "fixed"


class AdaptiveKl(Settings):
    """The coefficient follows the KL: times 1 + clip(KL / target - 1, -0.2, 0.2) min(n / horizon, 1) (1909.08593)."""

    kind: Literal["adaptive"] = "adaptive"
    target: float = Field(gt=0)
    """KL to steer towards, mean of a token, in nats."""
    horizon: float = Field(gt=0)
    """Trajectories over which a KL far off changes the coefficient by a fifth; n are those of an update."""


class KlSettings(Settings):
    """How far a policy is from a frozen one, by its sampled tokens, and what that costs."""

    coefficient: float = Field(0.1, ge=0)
    """What a nat costs, in scaled reward units; with an adaptive controller at first. 0: it is only reported."""
    kind: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the KL at a token (Schulman). In the loss k1 has the gradient of k2: its own is 0 in the mean."""
    place: Literal["loss", "reward"] = "loss"
    """A term of the loss; or taken from the player's own rewards, tick by tick, before advantages are estimated."""
    against: Literal["reference", "behaviour"] = "reference"
    """The policy as it was at the start (of a LoRA: the base model), or the one that sampled."""
    drop_likelier: bool = False
    """Leave out tokens which the other policy finds likelier."""
    corrected: bool = False
    """In the loss, times pi / pi_old, which has a gradient too: k3's is then the KL's own (arXiv 2512.02556)."""
    controller: Annotated[
        Annotated[FixedKl | AdaptiveKl, Field(discriminator="kind")], default_kind("fixed")
    ] = FixedKl()
    """How the coefficient moves from update to update."""

    @model_validator(mode="after")
    def _check(self) -> "KlSettings":
        if isinstance(self.controller, AdaptiveKl) and not self.coefficient:
            raise ConfigError(
                "'objective.kl.coefficient' is 0 and 'objective.kl.controller.kind' is 'adaptive', which multiplies it;"
                " expected a start above 0"
            )
        if self.place == "reward" and self.corrected:
            raise ConfigError(
                "'objective.kl.corrected' is true and 'objective.kl.place' is 'reward', which has no gradient;"
                " expected place = 'loss', or corrected = false"
            )
        if self.place == "reward" and self.against == "behaviour":
            raise ConfigError(
                "'objective.kl.against' is 'behaviour' and 'objective.kl.place' is 'reward': before an update the"
                " policy is the one that sampled, so that their KL is 0; expected against = 'reference', or place ="
                " 'loss'"
            )
        return self


class ObjectiveBase(Settings):
    """What every objective has around its policy term: importance weights, regularisers, a normaliser."""

    importance: Literal["token", "turn", "sequence", "none"] = "token"
    """Over what the ratio trainer / sampler is taken; truncated from above, detached."""
    importance_cap: float | None = Field(2.0, gt=0)
    """Largest importance weight; None = no cap."""
    entropy_coefficient: Schedule = Constant(level=0.0)
    """Weight of the entropy bonus, by update number."""
    entropy_top_k: int | None = Field(None, ge=2)
    """Entropy over the k likeliest tokens, renormalised; None = all allowed tokens."""
    entropy_mask_regex: str | None = None
    """Entropy only on turns whose reply the pattern is found in; None = all turns."""
    kl: KlSettings | None = None
    """KL to a frozen policy, in the loss or in the rewards; None: none."""
    visitation: bool = False
    """Weigh tick t by gamma^t, so that the gradient is that of the discounted return."""
    largest_gap: float | None = Field(0.05, gt=0)
    """Mean |log pi - log mu| a token before an update above which the step is refused (law 2); None = any."""
    alarm_gap: float | None = Field(0.01, gt=0)
    """The same above which a run's first update warns, as it does if one token in a hundred is off by more than 0.1;
    None = never."""
    normaliser: Literal["trajectories", "tokens", "sequence", "constant"] = "trajectories"
    """What the summed loss of a step's batch is divided by: trajectories, tokens, each trajectory's own tokens and then
    trajectories (GRPO), or trajectories times `constant_length` (Dr. GRPO)."""
    mask_tool_output: bool = True
    """What tools say is context (state masking). False shows the harm: it counts in the loss as if it had been sampled;
    credits cannot be stored then."""
    constant_length: int | None = Field(None, ge=1)
    """Tokens that normaliser 'constant' takes every trajectory to have."""

    @property
    def kl_in_loss(self) -> KlSettings | None:
        """The KL term of the loss."""
        return self.kl if self.kl is not None and self.kl.place == "loss" else None

    @property
    def kl_in_reward(self) -> KlSettings | None:
        """The KL that rewards are lowered by."""
        return self.kl if self.kl is not None and self.kl.place == "reward" else None

    @property
    def needs_reference(self) -> bool:
        """Whether policies keep their frozen start."""
        return self.kl is not None and self.kl.against == "reference"

    @field_validator("entropy_mask_regex")
    @classmethod
    def _check_regex(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ConfigError(
                f"'objective.entropy_mask_regex' is {pattern!r}, no regular expression: {error}"
            ) from None
        return pattern

    @model_validator(mode="after")
    def _check_length(self) -> "ObjectiveBase":
        if (self.normaliser == "constant") != (self.constant_length is not None):
            raise ConfigError(
                f"'objective.normaliser' is {self.normaliser!r} and 'objective.constant_length' is"
                f" {self.constant_length}; expected normaliser = 'constant' with a length, or another without"
            )
        return self


class ReinforceObjective(ObjectiveBase):
    """Token-wise REINFORCE: -w c log pi with w = min(pi / mu, cap) of the policy as it is at each step."""

    kind: Literal["reinforce"] = "reinforce"


class PpoObjective(ObjectiveBase):
    """Clipped surrogate -w min(r c, clip(r, 1 - low, 1 + high) c), r = pi / pi_old (arXiv 1707.06347).

    pi_old is the policy before the update, read by the trainer; w = min(pi_old / mu, cap) says how it differs from the
    sampler mu, fixed before the first step. In a single step r = 1, and the gradient is that of REINFORCE.
    """

    kind: Literal["ppo"] = "ppo"
    ratio: Literal["token", "turn", "sequence"] = "token"
    """What r is taken over: a token, or, as the mean of its tokens' log-ratios, a turn or all of a player's game
    (GSPO-token, arXiv 2507.18071)."""
    clip_low: float = Field(0.2, gt=0, le=1)
    """Below 1 - clip_low a token with negative credit is pushed down no further."""
    clip_high: float = Field(0.2, gt=0)
    """Above 1 + clip_high a token with positive credit is pushed up no further."""
    dual_clip: float | None = Field(None, gt=1)
    """Above this ratio a token with negative credit is not pushed at all (arXiv 1912.09729); None: it is."""

    @model_validator(mode="after")
    def _check_dual(self) -> "PpoObjective":
        if self.dual_clip is not None and self.dual_clip <= 1 + self.clip_high:
            raise ConfigError(
                f"'objective.dual_clip' is {self.dual_clip} and 'objective.clip_high' is {self.clip_high}; expected a"
                " dual clip above 1 + clip_high, or none"
            )
        return self


ObjectiveSettings = Annotated[
    Annotated[ReinforceObjective | PpoObjective, Field(discriminator="kind")], default_kind("reinforce")
]

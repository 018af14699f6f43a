"""Numbers that change over training: pure functions of the update number (rule 7), as settings.

A plain number in a configuration is a `Constant`.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from coplay.agents.settings import Settings


def linear(step: int, initial: float, final: float, begin: int, end: int) -> float:
    """`initial` until update `begin`, then a straight line to `final` at update `end`, which then holds."""
    share = min(max((step - begin) / max(end - begin, 1), 0.0), 1.0)
    return initial + share * (final - initial)


def beta_schedule(step: int, start: float, factor: float, every: int, floor: float) -> float:
    """β(step) = max(floor, start · factor^⌊step / every⌋)."""
    return max(floor, start * factor ** (step // every))


def gae_lambda_annealing(step: int, limit: float, tau: float) -> float:
    """λ(step) = λ_max (2 / (1 + e^{−step/τ}) − 1) = λ_max tanh(step / 2τ); starts at 0."""
    return limit * math.tanh(step / (2 * tau))


class Constant(Settings):
    """Always the same; a plain number means this."""

    kind: Literal["constant"] = "constant"
    level: float
    """The number."""

    def value(self, step: int) -> float:
        """The number at update `step`."""
        return self.level


class Linear(Settings):
    """Held until `begin`, then a straight line until `end`, then held."""

    kind: Literal["linear"] = "linear"
    initial: float
    """Value up to update `begin`."""
    final: float
    """Value from update `end` on."""
    begin: int = Field(0, ge=0)
    """Update at which the line starts."""
    end: int = Field(ge=1)
    """Update at which it arrives."""

    def value(self, step: int) -> float:
        """The number at update `step`."""
        return linear(step, self.initial, self.final, self.begin, self.end)


class Decay(Settings):
    """Multiplied by `factor` every so many updates, never below `floor`."""

    kind: Literal["decay"] = "decay"
    start: float
    """Value at update 0."""
    factor: float = Field(0.5, gt=0, le=1)
    """Multiplies the value each time."""
    every: int = Field(ge=1)
    """Updates between two multiplications."""
    floor: float = 0.0
    """Lower bound."""

    def value(self, step: int) -> float:
        """The number at update `step`."""
        return beta_schedule(step, self.start, self.factor, self.every, self.floor)


class Tanh(Settings):
    """From 0 towards `limit`: limit · tanh(step / 2τ), the annealing of λ."""

    kind: Literal["tanh"] = "tanh"
    limit: float
    """Value approached."""
    tau: float = Field(gt=0)
    """Time scale τ in updates; 76 % of the limit at 2τ."""

    def value(self, step: int) -> float:
        """The number at update `step`."""
        return gae_lambda_annealing(step, self.limit, self.tau)


def _number_to_constant(given: Any) -> Any:
    """A plain number as the settings of a constant; everything else is left to the union."""
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return {"kind": "constant", "level": given}
    return given


def _never_negative(schedule: "Constant | Linear | Decay | Tanh") -> "Constant | Linear | Decay | Tanh":
    numbers = {name: value for name, value in schedule if isinstance(value, float)}
    if min(numbers.values()) < 0:
        raise ValueError(
            f"a learning rate is {numbers}; expected no number below 0, which would train upwards"
        )
    return schedule


Schedule = Annotated[
    Annotated[Constant | Linear | Decay | Tanh, Field(discriminator="kind")],
    BeforeValidator(_number_to_constant),
]

LearningRate = Annotated[Schedule, AfterValidator(_never_negative)]

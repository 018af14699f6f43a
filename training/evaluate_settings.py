"""Evaluation as settings: when, against whom, in which games, sampled how, and which checkpoint counts as best."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator, model_validator

from coplay.agents.settings import Settings
from coplay.games.names import nearest
from coplay.training.messages import ConfigError
from coplay.training.mixtures import GamesEntry

SELF_PLAY = "self-play"
"""What results of policies among themselves are called."""
Way = Literal["temperature", "greedy"]
"""How policies draw their replies."""
Measure = Literal["own", "other", "cooperation", "malformed", "best_of"]
"""A number of a result."""


class BestSettings(Settings):
    """Which number of an evaluation says that a checkpoint is the best one."""

    metric: Measure = "own"
    """Own return per tick, the others', share of cooperation or of malformed replies, or the best of the samples."""
    goal: Literal["max", "min"] = "max"
    """Whether more of it is better, or less."""
    opponent: str | None = None
    """`self-play` or one of the anchors; None: the mean over all of them."""
    game: str | None = None
    """A part of the mixture, or what is held out; None: the mean over what is trained on."""
    sampling: Way | None = None
    """How replies were drawn; None: the first of `evaluate.sampling`."""
    source: str | None = None
    """Only plays of which the game's info says this `source`; None: all."""


class EvaluateSettings(Settings):
    """Evaluation in games of their own luck: before, during and after training."""

    every: int = Field(0, ge=0)
    """Evaluate after every n-th update, and at start and end; 0 = never."""
    before: bool = True
    """Whether the start is evaluated too, before the first update."""
    anchors: tuple[str, ...] = ()
    """Scripted agents to meet, besides self-play; in a mixture each in the games that it has rules for."""
    num_games: int = Field(32, ge=1)
    """Games per pairing and seat, and of a mixture per part."""
    num_samples: int = Field(1, ge=1)
    """How often each of these games is played, with the same luck and replies drawn anew; greedily it is once."""
    sampling: tuple[Way, ...] = Field(("temperature",), min_length=1)
    """How policies draw replies: by temperature, the likeliest token always, or one evaluation of each."""
    temperature: float | None = Field(None, gt=0)
    """For `temperature`; None: that of training."""
    seed: int | None = Field(None, ge=0)
    """The evaluation's luck is a function of it; None: of the run's seed. Training never has the same luck."""
    held_out: tuple[GamesEntry, ...] = ()
    """Games that are evaluated and never trained on."""
    best: BestSettings = BestSettings()
    """What is kept as the best checkpoint."""

    @field_validator("sampling")
    @classmethod
    def _once_each(cls, ways: tuple[Way, ...]) -> tuple[Way, ...]:
        if len(set(ways)) != len(ways):
            raise ConfigError(f"'evaluate.sampling' is {list(ways)}; expected each way once")
        return ways

    @model_validator(mode="after")
    def _best_is_measured(self) -> "EvaluateSettings":
        best, way = self.best, self.best_sampling
        if way not in self.sampling:
            raise ConfigError(
                f"'evaluate.best.sampling' is {way!r}; expected one of evaluate.sampling, {list(self.sampling)}"
            )
        if best.metric == "best_of" and (self.num_samples == 1 or way == "greedy"):
            raise ConfigError(
                "'evaluate.best.metric' is 'best_of'; expected evaluate.num_samples above 1, drawn by temperature"
            )
        opponents = (SELF_PLAY, *self.anchors)
        if best.opponent is not None and best.opponent not in opponents:
            raise ConfigError(
                f"'evaluate.best.opponent' is {best.opponent!r}; expected one of {', '.join(map(repr, opponents))}"
                f"{nearest(best.opponent, opponents)}"
            )
        return self

    @property
    def best_sampling(self) -> Way:
        """How the replies were drawn of which the best checkpoint is told."""
        return self.best.sampling or self.sampling[0]


def check_best(settings: EvaluateSettings, games: Sequence[str]) -> None:
    """Refuse a best checkpoint by a game that is not evaluated.

    Args:
        settings: of the evaluation.
        games: names of what it plays; empty for the one game of a run without a mixture.
    """
    game = settings.best.game
    if game is not None and game not in games:
        known = [name for name in games if name]
        raise ConfigError(
            f"'evaluate.best.game' is {game!r}; expected a part of the mixture or what is held out, one of"
            f" {known!r}{nearest(game, known)}"
        )

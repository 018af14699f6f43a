"""A model that judges what players say, as settings, and what it may stand beside."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, field_validator

from coplay.agents.settings import Settings
from coplay.games.names import nearest
from coplay.training.branching import BranchingSettings
from coplay.training.messages import ConfigError


class RewardModelSettings(Settings):
    """A frozen sequence classifier whose score of a player's conversation is added to his rewards.

    Rewards of the game stay as they are in what is stored; scores stand beside them, in the steps' info.
    """

    path: str
    """Folder of the classifier and its tokenizer, as transformers saves them."""
    weight: float = 1.0
    """What a score is multiplied by; raw reward units, so `estimator.reward_scale` divides the product."""
    players: tuple[str, ...] = ()
    """Whose conversations are judged; empty: everyone's."""
    per: Literal["turn", "episode"] = "episode"
    """Score the conversation after each step in which the player spoke, for that step; or once, for the last step."""
    label: int | None = Field(None, ge=0)
    """Which of several outputs is the score; None: the model has only one."""
    batch_tokens: int = Field(16384, ge=1)
    """Most tokens of one forward pass; a longer conversation goes alone. Nothing is padded."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of its weights."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it runs; `auto`: an accelerator if there is one."""

    @field_validator("weight")
    @classmethod
    def _check_weight(cls, weight: float) -> float:
        if weight == 0:
            raise ConfigError(
                "'reward_model.weight' is 0; expected a number that changes rewards, or no section 'reward_model'"
            )
        return weight


def check_reward_model(
    settings: RewardModelSettings | None, branching: BranchingSettings | None, players: Sequence[str]
) -> None:
    """Refuse a judge of nobody, and one whose verdict lies beyond what lines are compared on.

    Raises:
        ConfigError: if so.
    """
    if settings is None:
        return
    for player in settings.players:
        if player not in players:
            raise ConfigError(
                f"'reward_model.players' names {player!r}; expected some of {list(players)}{nearest(player, players)}"
            )
    if settings.per == "episode" and branching is not None and branching.horizon is not None:
        raise ConfigError(
            "'reward_model.per' is 'episode' and 'collect.branching.horizon' cuts lines before their end, where the"
            " score would be given; expected reward_model.per = 'turn', or no horizon"
        )

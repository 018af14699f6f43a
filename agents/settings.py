"""What can be said about models and policies in a configuration; no torch here."""

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Settings(BaseModel):
    """A frozen part of a configuration: unknown keys are errors, every field is documented once."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


Sampled = TypeVar("Sampled", bound=Settings)


def at_temperature(settings: Sampled, temperature: float | None) -> Sampled:
    """The same way of sampling at another temperature, for evaluation: 0 takes the likeliest token; None: the same."""
    return settings if temperature is None else settings.model_copy(update={"temperature": temperature})


def default_kind(kind: str) -> BeforeValidator:
    """A table without `kind` is of this kind, so that one field can be changed without repeating it."""

    def named(given: Any) -> Any:
        return {"kind": kind, **given} if isinstance(given, dict) else given

    return BeforeValidator(named)


class EmbeddedModel(Settings):
    """The tiny Llama, tokenizer and chat template made in code: runs offline in seconds."""

    kind: Literal["embedded"] = "embedded"
    hidden: int = Field(64, ge=8, le=1_000_000)
    """Width of the residual stream."""
    intermediate: int = Field(128, ge=8, le=1_000_000)
    """Width of the feed-forward layers."""
    num_layers: int = Field(2, ge=1)
    """Number of transformer layers."""
    num_heads: int = Field(2, ge=1)
    """Number of attention heads; divides `hidden`."""
    max_positions: int = Field(4096, ge=64)
    """Longest context in tokens."""


class FolderModel(Settings):
    """A causal language model with a chat template, in a local folder as transformers saves it."""

    kind: Literal["folder"] = "folder"
    path: str
    """The folder."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the base weights; adapters and critic heads are float32 always."""
    gradient_checkpointing: bool = False
    """Trade time for memory in the training step."""


class TabularModel(Settings):
    """No model: a table with a logit for each next token in each situation of a game small enough to enumerate."""

    kind: Literal["tabular"] = "tabular"
    max_nodes: int = Field(300_000, ge=1)
    """Most nodes of the game's tree; a larger game is refused."""


ModelSettings = Annotated[
    Annotated[EmbeddedModel | FolderModel | TabularModel, Field(discriminator="kind")],
    default_kind("embedded"),
]
LanguageModelSettings = EmbeddedModel | FolderModel
"""Those that read any text."""


class LoraWeights(Settings):
    """One low-rank adapter over the shared base; the reference policy is the base without it, or the policy's start."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(16, ge=1, le=100_000)
    """Rank of the update."""
    alpha: int = Field(32, ge=1, le=1_000_000)
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = Field(("all-linear",), min_length=1)
    """Names of the linear layers adapted, never the head; `all-linear` means every one of them."""


class FullWeights(Settings):
    """The whole model trained; each such policy has a copy of its own."""

    kind: Literal["full"] = "full"


WeightSettings = Annotated[
    Annotated[LoraWeights | FullWeights, Field(discriminator="kind")], default_kind("lora")
]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_name(name: str) -> str:
    """Return a policy's name.

    Raises:
        ValueError: if it cannot stand in `name@version`, in `RUN@iteration:player` and as a folder.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name for a policy; expected up to 64 letters, digits, '_', '-' or '.', the first"
            " a letter or digit: rename it in agents.policies"
        )
    return name


class PolicySettings(Settings):
    """One policy: a name in `agents.policies`, weights of its own, any number of seats."""

    weights: WeightSettings = LoraWeights()
    """Adapter or whole model."""
    trained: bool = True
    """False: frozen at its start."""
    start: str | None = None
    """Where its weights come from: `RUN[@iteration][:player]`, or None for fresh ones."""

"""Agents: whoever chooses replies for a player. Importing this loads neither torch nor transformers."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coplay.agents.base import (
    Agent,
    AgentFactory,
    ContextOverflowError,
    Finish,
    Reply,
    Sampling,
    Seat,
    Segment,
    TurnKey,
)

if TYPE_CHECKING:
    from coplay.agents.chat import ChatFormat
    from coplay.agents.critic import Critic
    from coplay.agents.human import HumanAgent
    from coplay.agents.language import LanguageAgent, SamplingSettings, language_agent_factory
    from coplay.agents.loading import load_agent
    from coplay.agents.local_engine import LocalEngine
    from coplay.agents.policy import Policy
    from coplay.agents.transcript import Transcript

__all__ = [
    "Agent",
    "AgentFactory",
    "ChatFormat",
    "ContextOverflowError",
    "Critic",
    "Finish",
    "HumanAgent",
    "LanguageAgent",
    "LocalEngine",
    "Policy",
    "Reply",
    "Sampling",
    "SamplingSettings",
    "Seat",
    "Segment",
    "Transcript",
    "TurnKey",
    "language_agent_factory",
    "load_agent",
]

_HOMES = {
    "ChatFormat": "chat",
    "Critic": "critic",
    "HumanAgent": "human",
    "LanguageAgent": "language",
    "LocalEngine": "local_engine",
    "Policy": "policy",
    "SamplingSettings": "language",
    "Transcript": "transcript",
    "language_agent_factory": "language",
    "load_agent": "loading",
}
"""Names whose modules are imported when first asked for, because they may bring torch or transformers."""


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""What agents ask of a token sampler, whichever library or server answers. No torch here."""

from dataclasses import dataclass, field
from typing import Protocol

from coplay.agents.constraint import TokenTrie


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One reply to be sampled. It carries everything: there is no current adapter, no hidden default."""

    key: tuple[str, str, str, int, int, int]
    """(episode, branch, player, step, call, attempt): order inside a batch, and name in messages."""
    policy: str
    """`name@version`; an engine that does not hold this version refuses."""
    context: tuple[int, ...]
    """All token ids before the reply, from the first one on."""
    dialogue: str
    """Requests of one dialogue extend one another's context; an engine may keep its cache between them."""
    seed: int
    temperature: float = 1.0
    max_new_tokens: int = 64
    stop_ids: tuple[int, ...] = ()
    """Token ids that end a reply; the one that was sampled is part of it."""
    trie: TokenTrie | None = field(default=None, compare=False)
    """Allowed replies; None samples freely."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The tokens of one reply."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    """Under the distribution sampled from: temperature and trie included; 0.0 at forced tokens."""
    sampled: tuple[bool, ...]
    """False where the trie left no choice: the token is context, not an action."""
    finish: str
    """`stop`, `length` or `grammar`."""


class Engine(Protocol):
    """Samples replies; batching lives inside."""

    async def sample(self, request: SampleRequest) -> Sample:
        """Sample one reply. Requests that wait together are answered together."""
        ...

    def publish(self, policy: str) -> str:
        """Make the current weights of a policy the ones sampled from; returns `name@version`."""
        ...

    def close(self) -> None:
        """Free caches and connections."""
        ...

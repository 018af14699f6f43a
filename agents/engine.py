"""What agents ask of a token sampler, whichever library or server answers. No torch here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, overload

from coplay.agents.constraint import TokenTrie


class Prefix(Sequence[int]):
    """The first ids of a list that is only ever appended to, without copying them: cheap at any length."""

    __slots__ = ("_ids", "_length")

    def __init__(self, ids: list[int]) -> None:
        """Take all ids that the list holds now."""
        self._ids, self._length = ids, len(ids)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids[: self._length])

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...

    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        if isinstance(place, slice):
            start, stop, step = place.indices(self._length)
            return tuple(self._ids[start:stop] if step == 1 else self._ids[: self._length][place])
        return self._ids[range(self._length)[place]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | Prefix) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One reply to be sampled. It carries everything: there is no current adapter, no hidden default."""

    key: tuple[str, str, str, int, int, int]
    """(episode, branch, player, step, call, attempt): order inside a batch, and name in messages."""
    policy: str
    """`name@version`; an engine that does not hold this version refuses."""
    context: Sequence[int]
    """All token ids before the reply, from the first one on: a tuple or a `Prefix`; slices of it are tuples."""
    dialogue: str
    """Requests of one dialogue extend one another's context; an engine may keep its cache between them."""
    seed: int
    temperature: float = 1.0
    """Divides the logits; 0: always the likeliest token, which no learner trains on."""
    max_new_tokens: int = 64
    stop_ids: tuple[int, ...] = ()
    """Token ids that end a reply; the one that was sampled is part of it."""
    trie: TokenTrie | None = field(default=None, compare=False)
    """Allowed replies; None samples freely."""
    tells_entropy: bool = False
    """True: the sample is to say its `entropy`."""
    is_whole: Callable[[Sequence[int]], bool] | None = field(default=None, compare=False)
    """Of the ids sampled so far: True ends the reply there (`stop`); asked only where `trie` is None."""


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
    entropy: float | None = None
    """Nats of the distribution that the first chosen token was drawn from, 0 where all were forced or greedily taken;
    None: not asked."""


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

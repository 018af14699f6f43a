"""A player's private chat as exact token ids, extended turn by turn; no text is encoded again to do so."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coplay.agents.base import ContextOverflowError
from coplay.agents.engine import Prefix
from coplay.games import Observation

if TYPE_CHECKING:
    from coplay.agents.chat import ChatFormat

Overflow = Literal["truncate", "window"]


@dataclass(frozen=True, slots=True)
class Heard:
    """What one observation adds to a context."""

    ids: tuple[int, ...]
    fresh: bool
    """True if the ids start a new context (a new training row)."""


class Transcript:
    """The context of one player's next reply.

    Rows: the first turn starts one, as do an observation that asks for it, a template that rewrites
    history (every turn then), and a full context under `overflow="window"`. A window drops all earlier turns
    whole and keeps the system text and the newest observation; nothing is ever cut inside a turn.
    """

    __slots__ = (
        "_chat",
        "_ended",
        "_ids",
        "_overflow",
        "_replies",
        "_system",
        "_texts",
        "max_context",
        "num_windows",
        "row",
    )

    def __init__(
        self, chat: "ChatFormat", *, max_context: int | None = None, overflow: Overflow = "truncate"
    ) -> None:
        """Start empty.

        Args:
            chat: tokenizer and template.
            max_context: most tokens of context and reply together; None: what the model can hold.
            overflow: what a full context does: end the episode (`truncate`), or start a new row (`window`).

        Raises:
            ValueError: if `max_context` is more than the model can hold, or neither is known.
        """
        limit = chat.max_positions
        if max_context is None and limit is None:
            raise ValueError(
                "neither the model nor its tokenizer says how long a context may be; set max_context"
            )
        if max_context is not None and limit is not None and max_context > limit:
            raise ValueError(
                f"max_context is {max_context}, but the model holds {limit} tokens; expected at most {limit}"
            )
        self._chat = chat
        self._overflow = overflow
        self.max_context: int = max_context or limit or 0
        self.num_windows = 0
        """How often a full context started a new row."""
        self.row = -1
        """Number of the current row, from 0; -1 before the first observation."""
        self._ids: list[int] = []
        self._ended = False
        self._system = ""
        self._texts: list[str] = []
        self._replies: list[str] = []

    @property
    def ids(self) -> tuple[int, ...]:
        """The context: all ids of the current row."""
        return tuple(self._ids)

    @property
    def context(self) -> Prefix:
        """The same ids, not copied."""
        return Prefix(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def observe(self, observation: Observation, *, reply_tokens: int = 1) -> Heard:
        """Add what is new.

        Args:
            observation: the next observation.
            reply_tokens: least room to be left for the reply.

        Raises:
            ContextOverflowError: if it does not fit; the transcript stays as it was.
        """
        fresh = observation.fresh_context or self.row < 0
        ids = self._opening(observation) if fresh else self._continuation(observation)
        rewritten = not fresh and not self._chat.append_only
        held = 0 if fresh or rewritten else len(self._ids)
        room = self.max_context - reply_tokens
        windowed = held + len(ids) > room and self._overflow == "window" and not fresh
        if windowed:
            ids, held = self._opening(observation), 0
        if held + len(ids) > room:
            raise ContextOverflowError(
                f"the context holds {held} tokens and the next observation has {len(ids)}, expected at most"
                f" {self.max_context} together with {reply_tokens} for a reply; the episode ends as truncated"
                " (raise max_context, or set overflow to 'window')"
            )
        self._commit(observation, ids, forget=fresh or windowed, new_row=fresh or windowed or rewritten)
        self.num_windows += windowed
        return Heard(ids, fresh or windowed or rewritten)

    def hear(self, text: str) -> tuple[int, ...] | None:
        """Add what a tool said inside a turn, as a further message of the user; None if no reply would fit behind it.

        Raises:
            ValueError: if the template rewrites history, so that one turn would be several rows.
        """
        if not self._chat.append_only:
            raise ValueError(
                "this chat template rewrites history, so a reply, a tool's result and the next reply would stand in"
                " different rows; expected an append-only template: play without tools, or with another model"
            )
        ids = self._chat.following(text, self._ended)
        if len(self._ids) + len(ids) >= self.max_context:
            return None
        self._ids.extend(ids)
        return ids

    def budget(self, max_new_tokens: int) -> int:
        """Most tokens the reply to the last observation may have."""
        return min(max_new_tokens, self.max_context - len(self._ids))

    def record(self, ids: tuple[int, ...], text: str) -> None:
        """Add a reply as it was sampled; its text is kept only for templates that rewrite history."""
        self._ids.extend(ids)
        self._ended = self._chat.ended(ids)
        if not self._chat.append_only:
            self._replies.append(text)

    def fork(self) -> "Transcript":
        """An independent copy."""
        copy = Transcript.__new__(Transcript)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(copy, name, value.copy() if isinstance(value, list) else value)
        return copy

    def _opening(self, observation: Observation) -> tuple[int, ...]:
        return self._chat.opening(observation.system, observation.text)

    def _continuation(self, observation: Observation) -> tuple[int, ...]:
        if self._chat.append_only:
            return self._chat.following(observation.text, self._ended)
        return self._chat.history(self._system, [*self._texts, observation.text], self._replies)

    def _commit(self, observation: Observation, ids: tuple[int, ...], *, forget: bool, new_row: bool) -> None:
        if forget:
            self._system, self._texts, self._replies = observation.system, [], []
        if new_row:
            self.row += 1
            self._ids = []  # engines may still look at the old one
        if not self._chat.append_only:
            self._texts.append(observation.text)
        self._ids.extend(ids)

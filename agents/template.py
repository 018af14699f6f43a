"""What a chat template writes around messages, found by rendering marked messages. Text only, no tokens."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jinja2 import TemplateError

Message = dict[str, str]
Render = Callable[[Sequence[Message], bool], str]
"""(messages, with generation header) -> the text a template makes of them."""

_SYSTEM, _USERS, _REPLIES = (
    "QzqSYSTEMqzQ",
    ("QzqUSERqzQ", "QzqSECONDqzQ", "QzqTHIRDqzQ"),
    ("QzqREPLYqzQ", "QzqNEXTqzQ"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The constant text of a template between the contents of a chat."""

    system_head: str | None
    """Before the system text; None if the template has no system role."""
    system_user: str
    """Between the system text and the first user text."""
    user_head: str
    """Before the first user text of a chat without system text, a default system prompt included."""
    generation: str
    """After a user text: its end, and the header that asks for a reply."""
    closing: str
    """Between a reply and the next user text."""
    end: str
    """The token that the template writes right after a reply; empty if none."""
    default_system: str
    """The system text that the template adds on its own to a chat without one; empty if none is seen."""
    trims: frozenset[str]
    """Roles whose text the template strips of surrounding blanks."""
    append_only: bool
    """False if a longer chat is no continuation of a shorter one (e.g. earlier thoughts are dropped)."""

    @property
    def closing_after_end(self) -> str:
        """What closes a reply whose own last token was the end token."""
        return self.closing[self.closing.index(self.end) + len(self.end) :] if self.end else self.closing


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _turns(users: Sequence[str], replies: Sequence[str]) -> list[Message]:
    """Alternate user texts and replies, the first user text first."""
    messages = []
    for place, text in enumerate(users):
        messages.append({"role": "user", "content": text})
        if place < len(replies):
            messages.append({"role": "assistant", "content": replies[place]})
    return messages


def _try(render: Render, messages: Sequence[Message], header: bool) -> str:
    """Render, or give the empty text where the template refuses these roles."""
    try:
        return render(messages, header)
    except TemplateError:
        return ""


def _between(text: str, left: str, right: str) -> str | None:
    """The text from the end of `left` to the start of `right`; None if they do not follow each other."""
    match = re.search(f"{re.escape(left)}(.*?){re.escape(right)}", text, re.DOTALL)
    return match.group(1) if match else None


def derive_pieces(render: Render, control: re.Pattern[str]) -> Pieces:
    """Find what a template writes around system, user and assistant texts.

    Args:
        render: the template.
        control: matches any control token of its tokenizer.

    Raises:
        ValueError: if the template does not show a user's text.
    """
    user, reply = _USERS[0], _REPLIES[0]
    alone = render(_turns([user], []), True)
    if alone.count(user) != 1:
        raise ValueError(
            f"the chat template writes a user's text {alone.count(user)} times, expected once: it cannot"
            " carry a dialogue; use a tokenizer with a chat template for conversations"
        )
    user_head, generation = alone.split(user)
    with_system = _try(render, [_system(_SYSTEM), *_turns([user], [])], True)
    system_user = _between(with_system, _SYSTEM, user)
    system_head = with_system.split(_SYSTEM)[0] if system_user is not None else None
    closing = _between(_try(render, _turns(_USERS[:2], _REPLIES[:1]), True), reply, _USERS[1])
    pieces = Pieces(
        system_head=system_head,
        system_user=system_user or "",
        user_head=user_head,
        generation=generation,
        closing=closing or "",
        end=_end(render, control, closing or ""),
        default_system=_default_system(system_head, system_user, user_head),
        trims=_trims(render),
        append_only=closing is not None,
    )
    if closing is not None and _continues(render, pieces):
        return pieces
    return Pieces(**{**{name: getattr(pieces, name) for name in Pieces.__slots__}, "append_only": False})


def _end(render: Render, control: re.Pattern[str], closing: str) -> str:
    """The control token that follows a reply at the end of a chat and inside it alike."""
    last = _try(render, _turns(_USERS[:1], _REPLIES[:1]), False)
    match = control.match(last.rpartition(_REPLIES[0])[2].lstrip()) if _REPLIES[0] in last else None
    return match.group() if match and closing.lstrip().startswith(match.group()) else ""


def _default_system(head: str | None, system_user: str | None, user_head: str) -> str:
    if not head or not system_user or not user_head.startswith(head) or not user_head.endswith(system_user):
        return ""
    return user_head[len(head) : len(user_head) - len(system_user)]


def _trims(render: Render) -> frozenset[str]:
    wide_system, wide_user = f" \n{_SYSTEM}\n ", f" \n{_USERS[0]}\n "
    found = set()
    if wide_user not in render(_turns([wide_user], []), True):
        found.add("user")
    text = _try(render, [_system(wide_system), *_turns(_USERS[:1], [])], True)
    if _SYSTEM in text and wide_system not in text:
        found.add("system")
    return frozenset(found)


def _continues(render: Render, pieces: Pieces) -> bool:
    """Whether the pieces together are what the template makes of three turns, thoughts included."""
    thought = f"<think>QzqTHOUGHTqzQ</think>{_REPLIES[0]}"
    heads: list[tuple[list[Message], str]] = [([], pieces.user_head)]
    if pieces.system_head is not None:
        heads.append(([_system(_SYSTEM)], pieces.system_head + _SYSTEM + pieces.system_user))
    for first in (_REPLIES[0], thought):
        for system, head in heads:
            replies = (first, _REPLIES[1])
            expected = re.escape(head)
            for place, text in enumerate(_USERS):
                # Some templates put a blank before a reply; the policy samples it, so it may stand there.
                expected += re.escape(text + pieces.generation)
                if place < len(replies):
                    expected += r"\s*" + re.escape(replies[place] + pieces.closing)
            if not re.fullmatch(expected, _try(render, [*system, *_turns(_USERS, replies)], True)):
                return False
    return True

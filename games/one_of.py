"""Replies of several kinds: a message or an offer, an offer or an answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coplay.games.answers import MAX_LABELS
from coplay.games.moves import Action, Grammar, Malformed, Move
from coplay.games.replies import strip_reasoning


@lru_cache(maxsize=1024)
def _joined_replies(grammar: "OneOf") -> tuple[str, ...] | None:
    replies: list[str] = []
    for option in grammar.options:
        labels = option.labels()
        if labels is None or len(replies) + len(labels) > MAX_LABELS:
            return None
        replies += labels
    return tuple(replies)


@lru_cache(maxsize=1024)
def _shared_reply(grammar: "OneOf") -> str | None:
    """A listed reply of one kind on which not this kind alone has a say."""
    for name, option in zip(grammar.names, grammar.options, strict=True):
        for label in option.labels() or ():
            if grammar.verdicts(label) != {name: option.parse(label)}:
                return label
    return None


@dataclass(frozen=True, slots=True)
class OneOf(Grammar):
    """A reply of exactly one of several kinds; the value is `{kind: value}`.

    Every kind looks at the whole reply: one that finds nothing of its own there (`no_move`) has no say. If exactly
    one kind has a say, its verdict holds, malformed or not; if several have, the reply is ambiguous. The kind
    `otherwise` (an untagged message) is asked only if no other has a say.
    """

    names: tuple[str, ...]
    options: tuple[Grammar, ...]
    otherwise: str | None = None

    def __post_init__(self) -> None:
        names, size = self.names, len(self.names)
        if size < 2 or len(set(names)) != size or len(self.options) != size:
            raise ValueError(
                f"kinds {names!r} with {len(self.options)} grammars; expected at least two different names and as"
                " many grammars"
            )
        if self.otherwise is not None and self.otherwise not in names:
            raise ValueError(f"otherwise {self.otherwise!r}; expected None or one of {names!r}")
        shared = _shared_reply(self)
        if shared is not None:
            raise ValueError(
                f"the reply {shared!r} is of several of the kinds {names!r}; expected kinds that no reply shares,"
                " such as ones with different tags"
            )

    def option(self, name: str) -> Grammar:
        """The grammar of one kind."""
        return self.options[self.names.index(name)]

    def verdicts(self, text: str) -> dict[str, Action]:
        """The verdicts of the kinds that have a say."""
        verdicts = {
            name: option.parse(text)
            for name, option in zip(self.names, self.options, strict=True)
            if name != self.otherwise
        }
        heard = {
            name: verdict
            for name, verdict in verdicts.items()
            if isinstance(verdict, Move) or verdict.reason not in ("no_move", "empty")
        }
        if not heard and self.otherwise is not None:
            heard = {self.otherwise: self.option(self.otherwise).parse(text)}
        return heard

    def parse(self, text: str) -> Action:
        """Understand a finished reply."""
        spoken = strip_reasoning(text).strip()
        if not spoken:
            return Malformed(reason="empty", text="")
        heard = self.verdicts(text)
        if len(heard) != 1:
            return Malformed(reason="ambiguous" if heard else "no_move", text=spoken)
        ((name, verdict),) = heard.items()
        if isinstance(verdict, Malformed):
            return verdict
        return Move(value={name: verdict.value}, text=verdict.text)

    def write(self, value: Any) -> str:
        """The canonical reply for `{kind: value}`."""
        if not isinstance(value, Mapping) or len(value) != 1 or not value.keys() <= set(self.names):
            raise ValueError(f"{value!r} is no move; expected one of the kinds {self.names!r} with its value")
        ((name, inner),) = value.items()
        text = self.option(name).write(inner)
        if self.parse(text) != Move(value={name: inner}, text=text):
            raise ValueError(
                f"{value!r} is no move; expected a {name} that is not also of another kind of {self.names!r}"
            )
        return text

    def labels(self) -> tuple[str, ...] | None:
        """Every canonical reply, if few."""
        return _joined_replies(self)

    def describe(self) -> str:
        """What to reply."""
        told = [
            f"{name} ({option.describe()})" for name, option in zip(self.names, self.options, strict=True)
        ]
        return "one of: " + "; ".join(told)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with `kind`."""
        return {
            "kind": "one_of",
            "names": list(self.names),
            "options": [option.to_json() for option in self.options],
            "otherwise": self.otherwise,
        }

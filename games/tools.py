"""Tools that a game lets a player call before he moves: what he may call, how a call is written and read.

Pure data: who runs a tool is the agents' affair (`coplay.agents.tools`). Calls and results are parts of one turn.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Literal

from coplay.games.answers import MAX_LABELS, check_tag
from coplay.games.grammar import Choice
from coplay.games.moves import Grammar
from coplay.games.names import nearest
from coplay.games.one_of import OneOf
from coplay.games.replies import strip_reasoning, tagged_answers

CallForm = Literal["tagged", "json", "plain"]
JSON_TAG = "tool_call"
"""Models of the Hermes family write this tag around a JSON call; with or without it, it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool as the player knows it."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ("query",)
    """Names of its arguments; calls that are no JSON give exactly one, as text."""
    terms: tuple[str, ...] | None = None
    """The arguments to choose from, where constrained decoding is to list the calls; None: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that was understood."""

    tool: str
    arguments: Mapping[str, Any]
    """JSON values by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCall:
    """What was meant as a call and is none."""

    outcome: Literal["malformed", "unknown"]
    tool: str
    """The tool named; empty where none was."""
    fault: str
    """What was wrong, in a sentence to the player."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a player may call before he moves.

    A reply that holds a call is one, whatever else it says; every other reply is his move. Each call, understood
    or not, takes one from the budget.
    """

    offered: tuple[Tool, ...]
    form: CallForm = "tagged"
    """`<search>term</search>`; `{"name": "search", "arguments": {"query": "term"}}`; or `search term`, which must be
    the whole reply."""
    max_calls: int = 1
    """Budget of a turn; after it, the reply has to be a move."""
    around: tuple[str, str] = ("", "")
    """What stands before and after a result."""
    spent: str = "No calls are left: reply with your move."
    """What he is told who calls beyond the budget, and with the last result where replies are not constrained."""
    refusal: str | None = None
    """What he is told whose call is none; None: what was wrong with it."""

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.offered]
        if not names or len(set(names)) != len(names) or self.max_calls < 1:
            raise ValueError(
                f"tools {names!r} with a budget of {self.max_calls} calls; expected at least one tool, all names"
                " different, and at least one call: a game without tools says tools=None"
            )
        for tool in self.offered:
            check_tag(tool.name)
            if not tool.arguments or (self.form != "json" and len(tool.arguments) != 1):
                raise ValueError(
                    f"tool {tool.name!r} has the arguments {tool.arguments!r}; expected one, or form 'json'"
                )
            for term in tool.terms or ():
                if self.read(self.write(tool.name, term)) != Call(
                    tool=tool.name, arguments={tool.arguments[0]: term}
                ):
                    raise ValueError(
                        f"term {term!r} of tool {tool.name!r} cannot be read back from a call; expected visible text"
                        " without surrounding space and without tags"
                    )

    def read(self, text: str) -> Call | BadCall | None:
        """The call that a reply holds; None if it holds none."""
        spoken = strip_reasoning(text).strip()
        if self.form == "json":
            return self._read_json(spoken)
        found = self._plain(spoken) if self.form == "plain" else self._tagged(spoken)
        if not found:
            return None
        name, content = found[0]
        if len(found) > 1:
            return BadCall(outcome="malformed", tool=name, fault="One call at a time.")
        if not content:
            return BadCall(
                outcome="malformed", tool=name, fault=f"A call is written {self.example(name)} and is whole."
            )
        return Call(tool=name, arguments={self._tool(name).arguments[0]: content})

    def _plain(self, spoken: str) -> list[tuple[str, str]]:
        word, _, rest = spoken.partition(" ")
        return [(tool.name, rest.strip()) for tool in self.offered if word == tool.name]

    def _tagged(self, spoken: str) -> list[tuple[str, str]]:
        """Calls by tool and content; an opening tag that is never closed is an empty one."""
        if "<" not in spoken:
            return []
        found = [
            (tool.name, content) for tool in self.offered for content in tagged_answers(spoken, tool.name)
        ]
        opened = [(tool.name, "") for tool in self.offered if f"<{tool.name}>" in spoken.casefold()]
        return found or opened

    def _read_json(self, spoken: str) -> Call | BadCall | None:
        wrapped = tagged_answers(spoken, JSON_TAG)
        if len(wrapped) > 1:
            return BadCall(outcome="malformed", tool="", fault="One call at a time.")
        written = wrapped[0] if wrapped else spoken
        if not wrapped and not (written.startswith("{") and '"name"' in written):
            return None
        try:
            data = json.loads(written, parse_constant=_refuse, parse_float=_finite)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            fault = f"A call is one JSON object, {self.example(self.offered[0].name)}."
            return BadCall(outcome="malformed", tool="", fault=fault)
        name, arguments = data["name"], data.get("arguments")
        names = [tool.name for tool in self.offered]
        if name not in names:
            fault = f"There is no tool {name!r}; there is {', '.join(names)}{nearest(name, names)}."
            return BadCall(outcome="unknown", tool=name, fault=fault)
        if not isinstance(arguments, dict) or set(arguments) != set(self._tool(name).arguments):
            fault = f"Tool {name} takes exactly the arguments {', '.join(self._tool(name).arguments)}."
            return BadCall(outcome="malformed", tool=name, fault=fault)
        return Call(tool=name, arguments=arguments)

    def is_whole(self, text: str) -> bool:
        """True once a reply that is still being sampled holds a whole call: what follows would be made up."""
        if self.form == "plain" or not may_close(text):
            return False
        call = self.read(text)
        return isinstance(call, Call) or (isinstance(call, BadCall) and call.outcome == "unknown")

    def write(self, name: str, argument: Any) -> str:
        """The canonical call of a tool with one argument."""
        if self.form == "json":
            return json.dumps(
                {"name": name, "arguments": {self._tool(name).arguments[0]: argument}}, ensure_ascii=False
            )
        return f"<{name}>{argument}</{name}>" if self.form == "tagged" else f"{name} {argument}"

    def example(self, name: str) -> str:
        """How a call of a tool is written."""
        tool = self._tool(name)
        if self.form != "json":
            return self.write(name, f"{tool.arguments[0]}" if self.form == "tagged" else "...")
        return json.dumps({"name": name, "arguments": dict.fromkeys(tool.arguments, "...")})

    def describe(self) -> str:
        """Every tool with the form of its call, for prompts."""
        return "; ".join(
            f"{self.example(tool.name)} ({tool.description})" if tool.description else self.example(tool.name)
            for tool in self.offered
        )

    def labels(self) -> tuple[str, ...] | None:
        """Every canonical call, if all tools list their terms and these are few; else None."""
        return _call_labels(self)

    def grammar_of(self, call: int, moves: Grammar) -> Grammar | None:
        """What constrained decoding lists for the sample that follows `call` calls; None: it cannot.

        While the budget lasts: calls and moves; then moves alone.
        """
        return _with_calls(self, moves) if call < self.max_calls else moves

    def result_text(self, result: str, *, last: bool) -> str:
        """What the player is told of a call; `last` if none are left and nothing else will stop him."""
        told = f"{self.around[0]}{result}{self.around[1]}"
        return f"{told}\n{self.spent}" if last and self.spent else told

    def _tool(self, name: str) -> Tool:
        return next(tool for tool in self.offered if tool.name == name)


def may_close(text: str) -> bool:
    """Whether the end of a text could be that of a call in tags or JSON."""
    return text.rstrip().endswith((">", "}"))


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _finite(written: str) -> float:
    number = float(written)
    return number if isfinite(number) else _refuse(written)


@lru_cache(maxsize=256)
def _call_labels(tools: Tools) -> tuple[str, ...] | None:
    labels: list[str] = []
    for tool in tools.offered:
        if tool.terms is None or len(labels) + len(tool.terms) > MAX_LABELS:
            return None
        labels += [tools.write(tool.name, term) for term in tool.terms]
    return tuple(labels)


@lru_cache(maxsize=256)
def _with_calls(tools: Tools, moves: Grammar) -> Grammar | None:
    labels = tools.labels()
    if labels is None or moves.labels() is None:
        return None
    return OneOf(("call", "move"), (Choice(labels), moves))


def tools_to_json(tools: Tools) -> dict[str, Any]:
    """A JSON object; the inverse is `tools_from_json`."""
    return {
        "offered": [
            {
                "name": tool.name,
                "description": tool.description,
                "arguments": list(tool.arguments),
                "terms": None if tool.terms is None else list(tool.terms),
            }
            for tool in tools.offered
        ],
        "form": tools.form,
        "max_calls": tools.max_calls,
        "around": list(tools.around),
        "spent": tools.spent,
        "refusal": tools.refusal,
    }


def tools_from_json(data: Mapping[str, Any]) -> Tools:
    """The inverse of `tools_to_json`."""
    offered = tuple(
        Tool(
            name=tool["name"],
            description=tool["description"],
            arguments=tuple(tool["arguments"]),
            terms=None if tool["terms"] is None else tuple(tool["terms"]),
        )
        for tool in data["offered"]
    )
    return Tools(**{**data, "offered": offered, "around": tuple(data["around"])})

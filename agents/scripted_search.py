"""Scripted players of `search_qa`: one who looks things up, one who guesses, and one who does both badly.

They run their calls through the desk of their seat, as language agents do, so that their dialogues can be imitated.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from coplay.agents.base import Reply, Seat, ToolCall, TurnKey
from coplay.agents.tools import answer_call
from coplay.games import FreeText, Observation, derive_seed
from coplay.games.tools import Tools

Habit = Callable[[TurnKey, "SearchingAgent"], tuple[bool, bool, bool]]
"""Whether he searches, whether for the right thing, and whether he then answers with what he found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchingAgent:
    """Searches once or not at all, then answers."""

    name: str
    seat: Seat
    habit: Habit

    @property
    def policy(self) -> str:
        """The name; there are no weights."""
        return self.name

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        """Call the search tool, read the result, answer."""
        searches, aptly, honestly = self.habit(key, self)
        tools = observation.tools
        calls: list[ToolCall] = []
        if searches and tools is not None and not key.attempt:
            text = tools.write(tools.offered[0].name, self._term(observation, tools, key, aptly=aptly))
            call = await answer_call(self.seat.tools, tools, text, number=0)
            assert call is not None
            calls.append(call)
        found = _last_word(calls[0].result, observation) if calls and calls[0].outcome == "ok" else None
        answer = found if found is not None and honestly else self._guess(observation, key)
        return Reply(text=observation.grammar.write(answer), policy=self.name, calls=tuple(calls))

    def _term(self, observation: Observation, tools: Tools, key: TurnKey, *, aptly: bool) -> str:
        terms = tools.offered[0].terms
        question = str(observation.facts["question"])
        if terms is None:
            return question if aptly else "market"
        return observation.text if aptly else terms[self._lot(key, "term") % len(terms)]

    def _guess(self, observation: Observation, key: TurnKey) -> str:
        listed = observation.grammar.labels()
        return "nothing" if listed is None else listed[self._lot(key, "answer") % len(listed)]

    def _lot(self, key: TurnKey, *purpose: str) -> int:
        return derive_seed(self.seat.seed, key.step, key.attempt, key.branch, *purpose)

    def chance(self, key: TurnKey, purpose: str) -> float:
        """A number in [0, 1), by name."""
        return self._lot(key, purpose) / 2**63 % 1.0

    def close(self, observation: Observation) -> None:
        """Nothing to read: there are no tokens."""
        return None

    def fork(self) -> "SearchingAgent":
        """An independent copy; it remembers nothing."""
        return replace(self)


def _last_word(result: str, observation: Observation) -> str | None:
    """What the first passage found ends with, if that could be an answer."""
    assert observation.tools is not None
    before, after = observation.tools.around
    lines = result.removeprefix(before).split("\n")[0].removesuffix(after).split()
    word = lines[-1].rstrip(".") if lines else ""
    listed = observation.grammar.labels()
    known = isinstance(observation.grammar, FreeText) if listed is None else word in listed
    return word if word and known else None


def _always(key: TurnKey, agent: SearchingAgent) -> tuple[bool, bool, bool]:
    return True, True, True


def _never(key: TurnKey, agent: SearchingAgent) -> tuple[bool, bool, bool]:
    return False, False, False


def _half(key: TurnKey, agent: SearchingAgent) -> tuple[bool, bool, bool]:
    """Each with chance one half: right in 1/8 of all cases by search, and in a tenth of the rest by luck."""
    searches, aptly, honestly = (
        agent.chance(key, purpose) < 0.5 for purpose in ("searches", "aptly", "honestly")
    )
    return searches, aptly, honestly


HABITS: dict[str, Habit] = {"searcher": _always, "guesser": _never, "clumsy_searcher": _half}


def searching_agent(name: str, seat: Seat) -> SearchingAgent:
    """The agent of one of `HABITS` in a seat."""
    return SearchingAgent(name=name, seat=seat, habit=HABITS[name])

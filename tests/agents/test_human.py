"""A person at the terminal, with written lines in place of a keyboard."""

import asyncio
from collections.abc import Iterator

import pytest

from coplay.agents import Seat, TurnKey
from coplay.agents.base import ToolResult
from coplay.agents.human import HumanAgent, PlayerQuitError, human_factory, printable
from coplay.games import Observation, Tool, Tools
from coplay.games.grammar import Choice
from coplay.games.tools import Call

KEY = TurnKey(episode="0", branch="", player="Ada", step=0)
SEEN = Observation(text="Your move.", grammar=Choice(("stay", "go")), system="The rules.")


def seated(lines: list[str]) -> tuple[HumanAgent, list[str]]:
    shown: list[str] = []
    rest: Iterator[str] = iter(lines)

    def read(prompt: str) -> str:
        line = next(rest, None)
        if line is None:
            raise EOFError
        return line

    return HumanAgent("Ada", read=read, write=shown.append), shown


def test_reply_when_no_move_then_says_why_and_asks_again() -> None:
    agent, shown = seated(["", "perhaps", "/help", " go "])
    reply = asyncio.run(agent.reply(SEEN, KEY))
    assert (reply.text, reply.policy, reply.segments) == ("go", "human", ())
    assert shown[:2] == ["The rules.", "Your move."]
    assert "it is empty" in shown[2] and "'perhaps' is no move" in shown[3] and "stay" in shown[3]
    assert "/quit" in shown[4]


def test_rules_when_seen_once_then_not_repeated() -> None:
    agent, shown = seated(["go", "stay"])
    asyncio.run(agent.reply(SEEN, KEY))
    asyncio.run(agent.reply(SEEN, KEY))
    assert shown == ["The rules.", "Your move.", "Your move."]


@pytest.mark.parametrize("lines", [["/quit"], []])
def test_person_when_leaving_then_the_game_stops(lines: list[str]) -> None:
    """Passes the boundary that records failures, as Ctrl-C does."""
    agent, _ = seated(lines)
    with pytest.raises(PlayerQuitError, match="'Ada' left"):
        asyncio.run(agent.reply(SEEN, KEY))
    assert not issubclass(PlayerQuitError, Exception)


def test_text_when_it_holds_terminal_codes_then_shown_harmless() -> None:
    """Law 10: others' messages do not drive the terminal."""
    assert printable("a\x1b[2Jb\n\tc\x07") == "a\ufffd[2Jb\n\tc\ufffd"


def test_factory_when_used_then_seats_are_named_and_forks_ask_the_same_person() -> None:
    prompts: list[str] = []

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return "go"

    sit = human_factory(read=read, write=prompts.append)
    agent = sit(Seat(game="g", player="Bo", players=("Ada", "Bo"), episode="0", seed=1))
    asyncio.run(agent.fork().reply(SEEN, KEY))
    assert prompts[-1] == "Bo> " and agent.close(SEEN) is None and prompts[-1] == "Your move."


class Echo:
    """A desk whose tools say the query again, with a terminal code."""

    def check(self, tools: Tools) -> None:
        """Whatever is offered."""

    async def run(self, call: Call) -> ToolResult:
        return ToolResult(f"{call.arguments['query']}\x1b[2J")


def test_line_when_it_is_a_call_then_answered_harmlessly_and_asked_again() -> None:
    tools = Tools(offered=(Tool(name="look"),), max_calls=1, spent="None left.")
    seen = Observation(text="Your move.", grammar=Choice(("stay", "go")), tools=tools)
    lines, shown = iter(["<look>up</look>", "<look>down</look>", "go"]), []
    sit = human_factory(read=lambda _: next(lines), write=shown.append, tools=Echo())
    agent = sit(Seat(game="g", player="Ada", players=("Ada",), episode="0", seed=0)).fork()
    reply = asyncio.run(agent.reply(seen, KEY))
    assert reply.text == "go" and [call.outcome for call in reply.calls] == ["ok", "over_budget"]
    assert shown == ["Your move.", "up\ufffd[2J", "None left."]

"""Tools inside a turn: exact tokens, budgets, corrections, the desk's waves, functions that are late or fail."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from coplay.agents import TurnKey
from coplay.agents.base import Reply, ToolResult
from coplay.agents.chat import ChatFormat
from coplay.agents.desk import make_desk
from coplay.agents.language import LanguageAgent, SamplingSettings
from coplay.agents.scripted import scripted_agent
from coplay.agents.tool_functions import GROUP, FunctionRunner, UnknownToolError, announced_tool
from coplay.agents.tool_settings import FunctionTool
from coplay.agents.tools import ToolDesk, ToolsNotConfiguredError, answer_call
from coplay.games import Choice, FreeText, Grammar, Observation, Tool, Tools, derive_seed, plugins
from coplay.games.tools import Call

TOOLS = Tools(offered=(Tool(name="s"),), max_calls=2, around=("(", ")"))
TALK = FreeText(200)


class Echo:
    """Answers with the query in capitals, and keeps what it was asked, batch by batch."""

    blocks = False
    data = None

    def __init__(self) -> None:
        self.batches: list[list[Mapping[str, Any]]] = []

    def run(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        self.batches.append(list(calls))
        return [ToolResult(str(call["query"]).upper()) for call in calls]


class SlowEcho(Echo):
    """Waits until every call of a wave could have come on its own."""

    blocks = True
    data = None

    def run(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        time.sleep(0.05)
        return super().run(calls)


def see(grammar: Grammar = TALK, tools: Tools | None = TOOLS, **options: Any) -> Observation:
    return Observation(text="q", grammar=grammar, tools=tools, **options)


def key(step: int = 0, episode: str = "000001/0002") -> TurnKey:
    return TurnKey(episode=episode, branch="", player="Ada", step=step)


def agent_of(engine: Any, chat: ChatFormat, desk: ToolDesk | None, **options: Any) -> LanguageAgent:
    return LanguageAgent(engine, chat, "ada@3", SamplingSettings(**options), run_seed=11, tools=desk)


@pytest.fixture
def said(chatml: ChatFormat, make_answer: Any, written_engine: Any) -> Callable[..., tuple[Any, Reply]]:
    """The engine and the reply of an agent whose samples are these texts."""

    def play(*texts: str, tools: Tools = TOOLS, finish: str = "stop", **options: Any) -> tuple[Any, Reply]:
        end = chatml.stop_ids[0]
        answers = [make_answer((*chatml.encode_label(text), end), finish) for text in texts]
        engine = written_engine(answers)
        agent = agent_of(engine, chatml, ToolDesk({"s": Echo()}), **options)
        reply = asyncio.run(agent.reply(see(tools=tools), key()))
        assert len(engine.requests) == len(texts), "every sample written for it was asked for"
        return engine, reply

    return play


def test_turn_when_a_tool_is_called_then_call_result_and_reply_are_one_row_as_sampled(
    said: Any, chatml: ChatFormat
) -> None:
    """Law 1: the second sample's context is the first one's, its ids, and the result as a message of the user."""
    engine, reply = said("<s>hi</s>", "hi")
    end, first = chatml.stop_ids[0], chatml.encode_label("<s>hi</s>")
    told = chatml.following("(HI)", True)
    opening = chatml.opening("", "q")
    assert engine.requests[0].context == opening
    assert engine.requests[1].context == (*opening, *first, end, *told)
    assert [(s.ids, s.sampled) for s in reply.segments] == [
        (opening, False),
        ((*first, end), True),
        (told, False),
        ((*chatml.encode_label("hi"), end), True),
    ]
    (call,) = reply.calls
    assert (call.text, call.tool, call.arguments) == ("<s>hi</s>", "s", {"query": "hi"})
    assert (call.result, call.outcome, call.place) == ("(HI)", "ok", 2)
    assert reply.text == "hi" and reply.fresh_context and reply.finish == "stop"


def test_result_when_it_spells_control_tokens_then_they_are_text(said: Any, chatml: ChatFormat) -> None:
    """Law 1: what a tool says is untrusted."""
    _, reply = said("<s><|end|></s>", "hi")
    assert reply.segments[2].ids.count(chatml.stop_ids[0]) == chatml.following("", True).count(
        chatml.stop_ids[0]
    )


def test_samples_of_a_turn_when_seeded_then_each_by_the_number_of_calls_before_it(said: Any) -> None:
    engine, _ = said("<s>a</s>", "<s>b</s>", "hi")
    assert [request.key[4] for request in engine.requests] == [0, 1, 2]
    seeds = [derive_seed(11, "000001/0002", "", "Ada", 0, call, 0) for call in range(3)]
    assert [request.seed for request in engine.requests] == seeds
    assert len({request.dialogue for request in engine.requests}) == 1


def test_last_result_when_replies_are_free_then_says_that_no_calls_are_left(said: Any) -> None:
    _, reply = said("<s>a</s>", "<s>b</s>", "hi")
    assert [call.result for call in reply.calls] == ["(A)", f"(B)\n{TOOLS.spent}"]


def test_call_when_beyond_the_budget_then_told_once_and_what_follows_stands(said: Any) -> None:
    _, reply = said("<s>a</s>", "<s>b</s>", "<s>c</s>", "<s>d</s>")
    assert [call.outcome for call in reply.calls] == ["ok", "ok", "over_budget"]
    assert reply.calls[2].result == TOOLS.spent and reply.calls[2].arguments == {"query": "c"}
    assert reply.text == "<s>d</s>"


def test_call_when_none_then_told_what_is_wrong_and_counted(said: Any) -> None:
    _, reply = said("<s></s>", "hi")
    assert [(call.outcome, call.arguments) for call in reply.calls] == [("malformed", {})]
    assert "<s>query</s>" in reply.calls[0].result
    json_tools = Tools(offered=(Tool(name="s"),), form="json", refusal="no")
    _, reply = said('{"name": "t", "arguments": {}}', "hi", tools=json_tools)
    assert [(call.outcome, call.tool, call.result.split("\n")[0]) for call in reply.calls] == [
        ("unknown", "t", "no")
    ]


def test_reply_when_cut_off_inside_a_call_then_no_call(said: Any) -> None:
    """Rule 9: a reply cut by the length limit is malformed whatever its text."""
    _, reply = said("<s>a</s>", finish="length")
    assert reply.finish == "length" and not reply.calls


def test_result_when_the_context_cannot_hold_it_then_the_turn_ends_cut_off_and_keeps_its_tokens(
    said: Any, chatml: ChatFormat
) -> None:
    call = f"<s>{'a' * 30}</s>"
    held = len(chatml.opening("", "q")) + len(chatml.encode_label(call)) + 1
    _, reply = said(call, max_context=held + 20)
    assert [(one.outcome, one.place) for one in reply.calls] == [("too_long", None)]
    assert reply.finish == "length" and reply.text == call
    assert [segment.sampled for segment in reply.segments] == [False, True]


def test_game_when_it_offers_what_nobody_runs_then_says_what_to_configure(
    chatml: ChatFormat, make_answer: Any, written_engine: Any
) -> None:
    answers = [make_answer(chatml.encode_label("<s>a</s>"))]
    for desk in (None, ToolDesk({"t": Echo()})):
        agent = agent_of(written_engine(list(answers)), chatml, desk)
        with pytest.raises(ToolsNotConfiguredError, match=r"offers the tool 's'.*\[agents\.tools\.s\]"):
            asyncio.run(agent.reply(see(), key()))


def test_tool_when_the_template_rewrites_history_then_refused(
    make_tokenizer: Callable[..., PreTrainedTokenizerFast], make_answer: Any, written_engine: Any
) -> None:
    """Law 1: a call and the reply after it would stand in different rows."""
    template = (
        "{% for m in messages %}{% set c = m['content'] %}"
        "{% if m['role'] == 'assistant' and not loop.last %}{% set c = c.split('</think>')[-1] %}{% endif %}"
        "<|start|>{{ m['role'] }}\n{{ c }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
    )
    chat = ChatFormat(make_tokenizer(template))
    assert not chat.append_only
    agent = agent_of(
        written_engine([make_answer(chat.encode_label("<s>a</s>"))]), chat, ToolDesk({"s": Echo()})
    )
    with pytest.raises(ValueError, match="rewrites history"):
        asyncio.run(agent.reply(see(), key()))


def test_constrained_turn_when_terms_are_listed_then_calls_and_moves_and_at_last_moves_alone(
    terse: ChatFormat, make_answer: Any, written_engine: Any
) -> None:
    tools = Tools(offered=(Tool(name="book", terms=("A 1", "B 2")),), form="plain")
    moves = Choice(("hats", "books"))
    first, last = terse.encode_label("book B 2"), terse.encode_label("hats")
    engine = written_engine(
        [make_answer(first, "grammar", [True, True, False]), make_answer(last, "grammar")]
    )
    agent = agent_of(engine, terse, ToolDesk({"book": Echo()}))
    reply = asyncio.run(agent.reply(see(moves, tools), key()))
    combined, moves_only = (request.trie for request in engine.requests)
    assert {terse.decode([token]) for token in combined.allowed[0]} == {"book", "hats", "books"}
    assert {terse.decode([token]) for token in moves_only.allowed[0]} == {"hats", "books"}
    assert reply.calls[0].constrained and reply.sampling is not None and reply.sampling.constrained
    assert reply.calls[0].result == "B 2", (
        "the grammar keeps the next reply to moves, so nothing else is said"
    )
    assert [s.sampled for s in reply.segments] == [False, True, False, False, True] and reply.calls[
        0
    ].place == 3


def test_fork_when_taken_then_has_the_tools_too(
    chatml: ChatFormat, make_answer: Any, written_engine: Any
) -> None:
    answers = [make_answer(chatml.encode_label(text)) for text in ("<s>a</s>", "hi")]
    agent = agent_of(written_engine(answers), chatml, ToolDesk({"s": Echo()}))
    assert asyncio.run(agent.fork().reply(see(), key())).calls[0].outcome == "ok"


def test_calls_when_made_together_then_answered_together_and_equal_ones_once() -> None:
    """Law 8: one wave, whatever the tool takes, in an order that is not that of asking."""
    for echo in (Echo(), SlowEcho()):
        desk = ToolDesk({"s": echo})
        done: list[str] = []

        async def one(query: str, desk: ToolDesk = desk, done: list[str] = done) -> str:
            result = await desk.run(Call(tool="s", arguments={"query": query}))
            done.append(query)
            return result.text

        async def all_of(*queries: str) -> list[str]:
            return list(await asyncio.gather(*map(one, queries)))

        assert asyncio.run(all_of("b", "a", "b")) == ["B", "A", "B"]
        assert echo.batches == [[{"query": "a"}, {"query": "b"}]] and done == ["b", "a", "b"]
        assert asyncio.run(all_of("a")) == ["A"], "a desk serves one event loop after another"


def test_tool_when_its_own_code_breaks_then_the_error_reaches_everyone() -> None:
    class Broken(Echo):
        def run(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
            raise ZeroDivisionError("ours")

    desk = ToolDesk({"s": Broken()})

    async def both() -> list[Any]:
        calls = [desk.run(Call(tool="s", arguments={"query": q})) for q in "ab"]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert [type(error) for error in asyncio.run(both())] == [ZeroDivisionError] * 2


def test_result_when_long_then_cut_with_a_mark() -> None:
    desk = ToolDesk({"s": Echo()}, max_characters=5)
    call = asyncio.run(answer_call(desk, TOOLS, "<s>abcdefgh</s>", number=0))
    assert call is not None and call.result == "(ABCD…)"


def test_function_when_late_or_failing_or_odd_then_outcomes_and_the_others_are_answered() -> None:
    let_go = threading.Event()

    def tool(query: str) -> Any:
        if query == "late":
            let_go.wait(10)
        if query == "bad":
            raise KeyError("secret")
        return 3 if query == "odd" else query.upper()

    runner = FunctionRunner(tool, timeout=0.3)
    results = runner.run([{"query": query} for query in ("late", "bad", "odd", "fine")])
    let_go.set()
    assert [result.outcome for result in results] == ["timeout", "failed", "failed", "ok"]
    assert results[3].text == "FINE" and "secret" not in results[1].text
    assert [result.outcome for result in runner.run([{"wrong": "x"}])] == ["failed"]
    many = FunctionRunner(tool, timeout=5.0).run([{"query": str(number)} for number in range(30)])
    assert [result.text for result in many] == [str(number) for number in range(30)]


def test_function_when_not_announced_then_says_where_it_is_looked_for() -> None:
    """Law 10: a configuration can name what is installed and announced, and no other code."""
    with pytest.raises(UnknownToolError, match=r"'os:system'.*'coplay\.tools'"):
        announced_tool("os:system")
    with pytest.raises(UnknownToolError):
        make_desk({"s": FunctionTool(name="subprocess.run")})
    assert make_desk({}) is None


def test_scripted_searcher_when_it_has_no_desk_then_says_so() -> None:
    from coplay.agents import Seat
    from coplay.games import Chance, make_game

    game = make_game("search_qa", wording="terse")
    agent = scripted_agent("searcher")(
        Seat(game="search_qa", player="Ada", players=("Ada",), episode="e", seed=1)
    )
    observation = game.observe(game.initial_state(Chance(0)), "Ada")
    with pytest.raises(ToolsNotConfiguredError, match=r"agents\.tools is empty"):
        asyncio.run(agent.reply(observation, key()))


def test_function_when_a_package_announces_it_then_called_with_the_arguments_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    announced = [
        EntryPoint(name="titled", value="string:capwords", group=GROUP),
        EntryPoint(name="gone", value="string:nothing_like_it", group=GROUP),
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: announced if group == GROUP else [])
    tools = Tools(offered=(Tool(name="title", arguments=("s",)),), form="json")
    desk = make_desk({"title": FunctionTool(name="titled")})
    text = '{"name": "title", "arguments": {"s": "an old well"}}'
    call = asyncio.run(answer_call(desk, tools, text, number=0))
    assert call is not None and (call.result, call.outcome) == ("An Old Well", "ok")
    with pytest.raises(UnknownToolError, match=r"'gone'.*cannot be loaded"):
        make_desk({"title": FunctionTool(name="gone")})
    with pytest.raises(UnknownToolError, match="did you mean 'titled'"):
        make_desk({"title": FunctionTool(name="title")})

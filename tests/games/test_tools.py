"""How calls of tools are written, read, listed and refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplay.games import Choice, FreeText, Number
from coplay.games.tools import BadCall, Call, CallForm, Tool, Tools, tools_from_json, tools_to_json

SEARCH = Tool(name="search", description="an index")
TAGGED = Tools(offered=(SEARCH,))
JSON = Tools(offered=(SEARCH, Tool(name="add", arguments=("a", "b"))), form="json", max_calls=2)
PLAIN = Tools(offered=(Tool(name="book", terms=("A 1", "B 2")),), form="plain", refusal="no")


def test_tagged_call_when_read_then_its_content_without_thoughts() -> None:
    call = Call(tool="search", arguments={"query": "old wells"})
    assert TAGGED.read("<search> old wells </search>") == call
    assert (
        TAGGED.read("<think>or <search>new</search>?</think>Let me look. <search>old wells</search>") == call
    )
    assert TAGGED.read("<answer>old wells</answer>") is None and TAGGED.read("search old wells") is None


def test_tagged_call_when_empty_unclosed_or_twice_then_malformed() -> None:
    for text in ("<search></search>", "I <search>old", "<search>a</search> and <search>b</search>"):
        read = TAGGED.read(text)
        assert isinstance(read, BadCall) and read.outcome == "malformed" and read.tool == "search"
    assert "<search>query</search>" in TAGGED.read("<search></search>").fault  # type: ignore[union-attr]


def test_json_call_when_read_then_bare_or_in_its_tag() -> None:
    text = '{"name": "search", "arguments": {"query": "wells"}}'
    call = Call(tool="search", arguments={"query": "wells"})
    assert JSON.read(text) == JSON.read(f"Hm. <tool_call>\n{text}\n</tool_call>") == call
    assert JSON.read('{"name": "add", "arguments": {"a": 1, "b": [2]}}') == Call(
        tool="add", arguments={"a": 1, "b": [2]}
    )
    assert JSON.read('{"price": 5}') is None and JSON.read("my move is 5") is None


@pytest.mark.parametrize(
    ("text", "outcome", "said"),
    [
        ('{"name": "serch", "arguments": {}}', "unknown", "search"),
        ('{"name": "search", "arguments": {"q": "x"}}', "malformed", "query"),
        ('{"name": "search", "arguments": "x"}', "malformed", "query"),
        ('{"name": "search"', "malformed", "one JSON object"),
        ('<tool_call>{"name": 3}</tool_call>', "malformed", "one JSON object"),
        ('{"name": "add", "arguments": {"a": NaN, "b": 1}}', "malformed", "one JSON object"),
        ('{"name": "add", "arguments": {"a": 1e999, "b": 1}}', "malformed", "one JSON object"),
        ("{" * 50_000 + '"name"', "malformed", "one JSON object"),
        ("<tool_call>{}</tool_call><tool_call>{}</tool_call>", "malformed", "at a time"),
    ],
)
def test_json_call_when_wrong_then_says_what(text: str, outcome: str, said: str) -> None:
    read = JSON.read(text)
    assert isinstance(read, BadCall) and read.outcome == outcome and said in read.fault


def test_plain_call_when_read_then_the_whole_reply_after_the_name() -> None:
    assert PLAIN.read("book A 1") == Call(tool="book", arguments={"query": "A 1"})
    assert PLAIN.read("books") is None and PLAIN.read("a book A 1") is None
    assert isinstance(PLAIN.read("book"), BadCall)


@pytest.mark.parametrize("form", ["tagged", "json", "plain"])
@given(term=st.text("abc <>\"'\\{}\n", min_size=1).map(str.strip).filter(bool))
def test_term_when_written_then_read_back_or_refused(form: CallForm, term: str) -> None:
    try:
        tools = Tools(offered=(Tool(name="look", terms=(term,)),), form=form)
    except ValueError as error:
        assert repr(term) in str(error)
        return
    (label,) = tools.labels() or ()
    assert tools.read(label) == Call(tool="look", arguments={"query": term})


def test_grammar_when_budget_lasts_then_calls_and_moves_and_then_moves() -> None:
    moves = Choice(("hats", "books"))
    first = PLAIN.grammar_of(0, moves)
    assert first is not None and first.labels() == ("book A 1", "book B 2", "hats", "books")
    assert PLAIN.grammar_of(1, moves) is moves
    assert PLAIN.grammar_of(0, FreeText(9)) is None and TAGGED.grammar_of(0, moves) is None
    assert PLAIN.grammar_of(0, Number(0, 3)) is not None


def test_grammar_when_a_call_is_also_a_move_then_refused() -> None:
    with pytest.raises(ValueError, match="'book A 1' is of several"):
        PLAIN.grammar_of(0, Choice(("book A 1", "hats")))


def test_reply_when_its_call_is_whole_then_says_so_at_its_last_character() -> None:
    text = "Hm <search>wells</search>"
    assert [TAGGED.is_whole(text[:end]) for end in (len(text) - 1, len(text))] == [False, True]
    assert TAGGED.is_whole(f"{text}\n") and not TAGGED.is_whole("<search></search>")
    call = '{"name": "add", "arguments": {"a": {"b": 1}, "b": {}}}'
    assert [end for end in range(len(call) + 1) if JSON.is_whole(call[:end])] == [len(call)]
    assert JSON.is_whole('{"name": "ad", "arguments": {}}') and not PLAIN.is_whole("book A 1")


def test_tools_when_stored_then_come_back() -> None:
    for tools in (TAGGED, JSON, PLAIN):
        assert tools_from_json(json.loads(json.dumps(tools_to_json(tools)))) == tools


def test_tools_when_they_make_no_sense_then_refused() -> None:
    with pytest.raises(ValueError, match="at least one tool"):
        Tools(offered=())
    with pytest.raises(ValueError, match="all names"):
        Tools(offered=(SEARCH, SEARCH))
    with pytest.raises(ValueError, match="at least one call"):
        Tools(offered=(SEARCH,), max_calls=0)
    with pytest.raises(ValueError, match="form 'json'"):
        Tools(offered=(Tool(name="add", arguments=("a", "b")),))
    with pytest.raises(ValueError, match="tag 'think'"):
        Tools(offered=(Tool(name="think"),))

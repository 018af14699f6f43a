"""Grammars: what is a move, what is not, and why (B33, B34, B85; rules 9 and 14)."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplay.games import (
    Action,
    Choice,
    Fields,
    FreeText,
    Grammar,
    Malformed,
    Move,
    Number,
    OneOf,
    grammar_from_json,
    strip_reasoning,
)

TAGS = st.sampled_from([None, "x", "move", "coins_to_self"])
WORDS = st.text(alphabet="abcXYZäß_", min_size=1, max_size=6)
ODD = st.text(
    alphabet=st.one_of(
        st.characters(),
        st.sampled_from("\x00\ud800\udfff\U0001f600<>/ABx 0123456789.,!\n"),
        st.characters(categories=["Cs"]),
    ),
    max_size=80,
)


@st.composite
def newer_grammars_and_values(draw: st.DrawFn, kind: str, tag: str | None) -> tuple[Grammar, object]:
    if kind == "one_of":
        first, second = Choice(("accept", "Reject"), tag), Fields(("hats", "books"), 0, (3, 40), "deal")
        options = (first, second, FreeText(30, None))
        name, value = draw(
            st.sampled_from(
                [("answer", "Reject"), ("deal", {"hats": 3, "books": 21}), ("message", "what about 5?")]
            )
        )
        return OneOf(("answer", "deal", "message"), options, "message"), {name: value}
    highs = tuple(draw(st.lists(st.integers(0, 60), min_size=2, max_size=2)))
    grammar = Fields(("hats", "books"), 0, highs, tag, draw(st.booleans()))
    return grammar, {"hats": draw(st.integers(0, highs[0])), "books": draw(st.integers(0, highs[1]))}


@st.composite
def grammars_and_values(draw: st.DrawFn) -> tuple[Grammar, object]:
    tag = draw(TAGS)
    kind = draw(st.sampled_from(["choice", "range", "values", "fields", "highs", "free", "one_of"]))
    if kind in ("one_of", "highs"):
        return draw(newer_grammars_and_values(kind, tag))
    if kind == "choice":
        labels = tuple(draw(st.lists(WORDS, min_size=1, max_size=6, unique=True)))
        return Choice(labels, tag), draw(st.sampled_from(labels))
    if kind == "range":
        low = draw(st.integers(-50, 50))
        high = draw(st.integers(low, low + 5000))
        return Number(low, high, tag=tag), draw(st.integers(low, high))
    if kind == "values":
        values = tuple(draw(st.lists(st.integers(-(10**14), 10**14), min_size=1, max_size=8, unique=True)))
        return Number(values=values, tag=tag), draw(st.sampled_from(values))
    if kind == "fields":
        names = tuple(
            draw(
                st.lists(
                    st.sampled_from(["hats", "hat", "books", "as", "glass", "Äpfel"]),
                    min_size=1,
                    max_size=4,
                    unique=True,
                )
            )
        )
        high = draw(st.integers(0, 12))
        grammar = Fields(names, 0, high, tag, draw(st.booleans()))
        return grammar, {name: draw(st.integers(0, high)) for name in names}
    text = draw(st.text(min_size=1, max_size=40).map(str.strip).filter(lambda t: t and "<" not in t))
    return FreeText(draw(st.integers(len(text), 60)), tag), text


@given(grammars_and_values())
def test_parse_when_value_was_written_then_same_value_and_canonical_text(
    pair: tuple[Grammar, object],
) -> None:
    grammar, value = pair
    assert grammar.parse(grammar.write(value)) == Move(value=value, text=grammar.write(value))
    assert grammar.parse(f" \n{grammar.write(value)}\t ") == Move(value=value, text=grammar.write(value))


@given(grammars_and_values())
def test_grammar_from_json_when_written_to_json_then_equal(pair: tuple[Grammar, object]) -> None:
    grammar = pair[0]
    again = grammar_from_json(json.loads(json.dumps(grammar.to_json())))
    assert again == grammar
    assert hash(again) == hash(grammar)


@given(grammars_and_values())
def test_labels_when_listed_then_each_is_a_move_and_all_differ(pair: tuple[Grammar, object]) -> None:
    grammar, value = pair
    labels = grammar.labels()
    if labels is not None:
        assert len(set(labels)) == len(labels) <= 2000
        assert all(isinstance(grammar.parse(label), Move) for label in labels[:50])
        assert grammar.write(value) in labels
        assert grammar.labels() is labels


@given(grammars_and_values(), ODD)
def test_parse_when_text_is_odd_then_an_action_and_never_an_error(
    pair: tuple[Grammar, object], text: str
) -> None:
    """B85: lone surrogates, emojis, NULs."""
    grammar, value = pair
    for reply in (
        text,
        grammar.write(value) + text,
        text + grammar.write(value),
        text + grammar.write(value) + text,
    ):
        action = grammar.parse(reply)
        assert isinstance(action, Move | Malformed)
        if isinstance(action, Move):
            assert grammar.parse(action.text) == action


def reason(action: Action) -> str:
    assert isinstance(action, Malformed), action
    return action.reason


@pytest.mark.parametrize(
    "text", ["", "   ", "\n\t", "<think>I should play A</think>", "<think>A", "A</think>"]
)
@pytest.mark.parametrize(
    "grammar",
    [Choice(("A", "B")), Choice(("A", "B"), "x"), Number(0, 9), FreeText(9), Fields(("hats",), 0, 9)],
)
def test_parse_when_nothing_is_said_then_empty(grammar: Grammar, text: str) -> None:
    """B34; private reasoning is no reply (rule 14)."""
    assert reason(grammar.parse(text)) == "empty"


@pytest.mark.parametrize(
    "text",
    [
        "A or B",
        "I play A",
        "not B",
        "Apple",
        "A B",
        "AB",
        "A, not B",
        "If you play B I play A",
        "(A)",
        "<x>A</x>",
    ],
)
def test_untagged_choice_when_move_is_only_discussed_then_no_move(text: str) -> None:
    """B33."""
    assert reason(Choice(("A", "B")).parse(text)) == "no_move"


@pytest.mark.parametrize(
    ("text", "label"), [("A", "A"), (" B.", "B"), ("a", "A"), ("b!?", "B"), ("A .", "A")]
)
def test_untagged_choice_when_reply_is_one_label_then_that_move(text: str, label: str) -> None:
    assert Choice(("A", "B")).parse(text) == Move(value=label, text=label)


def test_choice_when_labels_differ_by_case_then_exact_case_decides() -> None:
    grammar = Choice(("go", "Go", "stop"))
    assert grammar.parse("Go") == Move(value="Go", text="Go")
    assert reason(grammar.parse("GO")) == "no_move"
    assert grammar.parse("STOP.") == Move(value="stop", text="stop")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B looks good, but <x>A</x>", "A"),
        ("<x>B</x> ... again <x> b </x>", "B"),
        ("<X>A</x >", "A"),
        ("<x><x>A</x>", "A"),
        ("A", "no_move"),
        ("<x>A", "no_move"),
        ("A</x>", "no_move"),
        ("<x>A</x> no, <x>B</x>", "ambiguous"),
        ("<x>A</x><x>C</x>", "ambiguous"),
        ("<x>C</x>", "out_of_range"),
        ("<x>C</x> so I play A", "out_of_range"),
        ("<x>A or B</x>", "out_of_range"),
        ("<x></x>", "out_of_range"),
        ("<think><x>B</x></think><x>A</x>", "A"),
        ("<think><x>B</x></think>A", "no_move"),
    ],
)
def test_tagged_choice_when_read_then_the_declared_rule_holds(text: str, expected: str) -> None:
    """B33: no fallback to the text around an illegal answer; several answers must agree."""
    action = Choice(("A", "B"), "x").parse(text)
    assert (action.value if isinstance(action, Move) else action.reason) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5),
        ("+5.", 5),
        ("007", 7),
        ("-0", 0),
        ("11", "out_of_range"),
        ("-1", "out_of_range"),
        ("9" * 5000, "out_of_range"),
        ("5 coins", "no_move"),
        ("five", "no_move"),
        ("5.5", "no_move"),
        ("\u0665", "no_move"),
        ("5 5", "no_move"),
        ("1e1", "no_move"),
    ],
)
def test_number_when_read_then_plain_digits_alone_count(text: str, expected: object) -> None:
    action = Number(0, 10).parse(text)
    assert (action.value if isinstance(action, Move) else action.reason) == expected


def test_number_when_values_are_listed_then_others_are_out_of_range() -> None:
    grammar = Number(values=(0, 5, 10))
    assert grammar.labels() == ("0", "5", "10")
    assert reason(grammar.parse("7")) == "out_of_range"


ITEMS = ("hats", "books", "balls")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 hats 0 books 5 balls", (10, 0, 5)),
        ("5 Balls, 1 hat and 2 books.", (1, 2, 5)),
        ("10 hats 0 books", "no_move"),
        ("10 hats 10 hats 0 books 5 balls", "ambiguous"),
        ("10 hats 9 hats 0 books", "ambiguous"),
        ("11 hats 0 books 5 balls", "out_of_range"),
        ("10 0 5", "no_move"),
        ("10 hats 0 books 5 coins", "no_move"),
        ("all hats 0 books 5 balls", "no_move"),
        ("hats 10 books 0 balls 5", "no_move"),
        ("I want 10 hats 0 books 5 balls", "no_move"),
    ],
)
def test_fields_when_a_name_is_missing_or_repeated_then_malformed(text: str, expected: object) -> None:
    """The reference took a missing item for 0 and the last of repeated ones."""
    action = Fields(ITEMS, 0, 10).parse(text)
    assert (tuple(action.value.values()) if isinstance(action, Move) else action.reason) == expected


def test_fields_when_bare_then_numbers_stand_in_the_order_of_names() -> None:
    grammar = Fields(ITEMS, 0, 10, bare=True)
    assert grammar.parse("10 0 5") == Move(value={"hats": 10, "books": 0, "balls": 5}, text="10 0 5")
    assert reason(grammar.parse("10 0")) == "no_move"
    assert reason(grammar.parse("10 0 11")) == "out_of_range"
    labels = grammar.labels()
    assert labels is not None and len(labels) == 11**3
    assert Fields(ITEMS, 0, 20).labels() is None


def test_fields_when_highs_differ_then_each_name_has_its_own() -> None:
    grammar = Fields(ITEMS, 0, (1, 2, 0), "d")
    assert reason(grammar.parse("<d>2 hats 1 book 0 balls</d>")) == "out_of_range"
    assert grammar.labels() == tuple(
        f"<d>{hats} hats {books} books 0 balls</d>" for hats in (0, 1) for books in (0, 1, 2)
    )
    assert grammar.describe() == (
        "numbers x from 0 to 1 hats 2 books 0 balls, written <d>x hats x books x balls</d>"
    )


ANSWER_OR_PRICE = OneOf(("answer", "price"), (Choice(("accept", "quit")), Number(0, 9)))
TALK = OneOf(
    ("message", "price", "answer"),
    (FreeText(40), Number(0, 9, tag="price"), Choice(("accept",), "answer")),
    otherwise="message",
)


@pytest.mark.parametrize(
    ("grammar", "text", "expected"),
    [
        (ANSWER_OR_PRICE, "Accept.", {"answer": "accept"}),
        (ANSWER_OR_PRICE, "7", {"price": 7}),
        (ANSWER_OR_PRICE, "12", "out_of_range"),
        (ANSWER_OR_PRICE, "I accept", "no_move"),
        (ANSWER_OR_PRICE, "accept 7", "no_move"),
        (ANSWER_OR_PRICE, "<think>7</think>", "empty"),
        (TALK, "accept", {"message": "accept"}),
        (TALK, "How about <price>5</price>?", {"price": 5}),
        (TALK, "<think><price>5</price></think>How about 5?", {"message": "How about 5?"}),
        (TALK, "<price>99</price>", "out_of_range"),
        (TALK, "<price>5</price> or <answer>accept</answer>", "ambiguous"),
        (TALK, "<price>99</price> <answer>accept</answer>", "ambiguous"),
        (TALK, "<price>5</price> <price>6</price>", "ambiguous"),
        (TALK, "x" * 41, "too_long"),
        (TALK, "<price>5", {"message": "<price>5"}),
    ],
)
def test_one_of_when_read_then_exactly_one_kind_must_have_a_say(
    grammar: Grammar, text: str, expected: object
) -> None:
    """B33: an answer and an offer in one reply are no move, and neither is one that is only talked about."""
    action = grammar.parse(text)
    assert (action.value if isinstance(action, Move) else action.reason) == expected


def test_one_of_when_all_kinds_are_few_then_listed_in_order() -> None:
    assert ANSWER_OR_PRICE.labels() == ("accept", "quit", *map(str, range(10)))
    assert TALK.labels() is None


def test_free_text_when_too_long_then_malformed_and_the_content_is_kept() -> None:
    assert FreeText(3).parse("abcd") == Malformed(reason="too_long", text="abcd")
    assert FreeText(3, "m").parse("say <m>abcd</m>") == Malformed(reason="too_long", text="abcd")
    assert FreeText(3, "m").parse("abc") == Malformed(reason="no_move", text="abc")
    assert FreeText(3).parse("<think>long thoughts</think> abc") == Move(value="abc", text="abc")


@pytest.mark.parametrize(
    "hostile",
    [
        "<x>" * 20000,
        "</x>" * 20000,
        "<think>" * 20000,
        "</think>" * 20000,
        "<x" + " " * 100000,
        "9" * 100000,
        "1 hats " * 20000,
        "<x>A</x>" * 10000,
    ],
)
def test_parse_when_text_is_hostile_then_linear_time(hostile: str) -> None:
    start = time.process_time()
    for grammar in (
        Choice(("A", "B"), "x"),
        Choice(("A", "B")),
        Number(0, 9, tag="x"),
        Fields(("hats",), 0, 9),
        FreeText(9, "x"),
        TALK,
    ):
        grammar.parse(hostile)
    assert time.process_time() - start < 2.0


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a<think>b</think>c", "ac"),
        ("a<THINK >b</think>c", "ac"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("secret</think>said", "said"),
        ("said<think>secret", "said"),
        ("a <b> c", "a <b> c"),
    ],
)
def test_strip_reasoning_when_tags_are_odd_then_nothing_private_is_left(text: str, left: str) -> None:
    """Rule 14."""
    assert strip_reasoning(text) == left


@pytest.mark.parametrize(
    "make",
    [
        lambda: Choice(()),
        lambda: Choice(("A", "A")),
        lambda: Choice(("A", " B")),
        lambda: Choice(("",)),
        lambda: Choice(("<think>",)),
        lambda: Choice(("</x>",), "x"),
        lambda: Choice(("A",), "think"),
        lambda: Choice(("A",), "a b"),
        Number,
        lambda: Number(3, 2),
        lambda: Number(0, 3, (1, 2)),
        lambda: Number(values=(1, 1)),
        lambda: FreeText(0),
        lambda: Fields((), 0, 1),
        lambda: Fields(("two words",), 0, 1),
        lambda: Fields(("hats", "HATS"), 0, 1),
        lambda: Fields(("hats",), -1, 1),
        lambda: Fields(("hats",), 0, (1, 2)),
        lambda: Fields(("hats", "books"), 1, (0, 2)),
        lambda: Fields(("hats", "books"), 0, (0, 2)).write({"hats": 1, "books": 0}),
        lambda: OneOf(("a",), (Number(0, 1),)),
        lambda: OneOf(("a", "a"), (Number(0, 1), Choice(("x",)))),
        lambda: OneOf(("a", "b"), (Number(0, 1), Number(1, 2))),
        lambda: OneOf(("a", "b"), (Number(0, 1), Choice(("x",))), otherwise="c"),
        lambda: ANSWER_OR_PRICE.write({"price": 10}),
        lambda: ANSWER_OR_PRICE.write({"price": 1, "answer": "quit"}),
        lambda: ANSWER_OR_PRICE.write("quit"),
        lambda: TALK.write({"message": "<price>5</price>"}),
        lambda: grammar_from_json({"kind": "choise"}),
        lambda: Choice(("A", "B")).write("C"),
        lambda: Number(0, 3).write(True),
        lambda: Number(0, 3).write(4),
        lambda: FreeText(3).write(" a"),
        lambda: FreeText(3).write("abcd"),
        lambda: FreeText(9, "x").write("a</x>b"),
        lambda: Fields(("hats",), 0, 1).write({"hats": 2}),
        lambda: Fields(("hats",), 0, 1).write({}),
    ],
)
def test_grammar_when_made_or_asked_wrongly_then_value_error(make: object) -> None:
    with pytest.raises(ValueError):
        make()  # type: ignore[operator]


def test_grammar_from_json_when_kind_is_misspelt_then_nearest_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'choice'"):
        grammar_from_json({"kind": "choise", "options": ["A"], "tag": None})

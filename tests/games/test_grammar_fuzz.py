"""Grammars against replies that nobody would write: no error, no wrong move, linear time (B33, B85).

What a reply comes to is judged a second time by a plain reading of the rules, in `verdict`: no regular expressions, no
shortcuts, one character after another. All grammars read the same replies, those near to another's moves too.
"""

import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.games import Choice, Fields, FreeText, Grammar, Malformed, Move, Number, OneOf
from coplay.games import answers as answers_module
from coplay.games import quantities as quantities_module
from coplay.games import replies as replies_module

KINDS: dict[str, Grammar] = {
    "choice": Choice(("A", "B", "cooperate")),
    "choice tagged": Choice(("A", "B", "cooperate"), "x"),
    "number": Number(0, 70),
    "number tagged": Number(values=(0, 5, 21), tag="x"),
    "fields": Fields(("hats", "books"), 0, 9),
    "fields tagged": Fields(("hats", "books"), 0, (3, 40), "x"),
    "fields bare": Fields(("hats", "books"), 0, 9, bare=True),
    "free text": FreeText(40),
    "free text tagged": FreeText(40, "x"),
    "one of": OneOf(("answer", "price"), (Choice(("A", "B")), Number(0, 70))),
    "one of, or a message": OneOf(
        ("deal", "answer", "message"),
        (Fields(("hats", "books"), 0, 9, "x"), Choice(("A", "B"), "y"), FreeText(40)),
        "message",
    ),
}
# fmt: off
PIECES = (
    # Tags, whole and broken.
    "<x>", "</x>", "<X >", "</x\n>", "<y>", "</y>", "<think>", "</think>", "<THINK>", "<x", "x>", "<",
    ">", "</",
    # Moves, and what is near to them.
    "A", "B", "a", "cooperate", "Cooperate.", "not A", "A or B", "0", "5", "07", "+5", "-1", "21", "70",
    "71", "5.0",
    # Numbers as words, items.
    "five", "twenty-one", "seven hats", "1 hat 2 books", "2 books, 1 hats", "1 hats and 2 books.",
    "3 2", "10 hats",
    # Items twice, numbers that are none.
    "1 hats 1 hats", "hats", "books", "9" * 40, "1e1", "\u0665", "\uff15", "\xb2", "NaN", "I take",
    "and", ",",
    # Space, line ends, unicode.
    " ", "\n", "\t", "\r\n", ".", "!?", "\xa0", "\u200b", "\x00", "\ud800", "\udfff", "\U0001f600",
    "\u0130", "\xdf",
)
# fmt: on


@lru_cache(maxsize=8)
def spoken(text: str) -> str:
    """What is left without reasoning: an unopened end hides all before it, an unclosed start all after it."""
    kept, depth, place = "", 0, 0
    while place < len(text):
        closing, after = tag_at(text, place, "think")
        if closing is None:
            kept += text[place] if depth == 0 else ""
            place += 1
            continue
        if closing and depth == 0:
            kept = ""
        depth = max(0, depth - 1) if closing else depth + 1
        place = after
    return kept.strip()


def tag_at(text: str, place: int, tag: str) -> tuple[bool | None, int]:
    """Whether a closing (True) or opening (False) tag stands here, and where it ends; None if none does."""
    if text[place] != "<":
        return None, place
    closing = text[place + 1 : place + 2] == "/"
    start = place + 1 + closing
    end = start + len(tag)
    # A letter such as the long s folds to another one in a pattern that ignores case, so ask letter by letter.
    if not re.fullmatch(re.escape(tag), text[start:end], re.IGNORECASE):
        return None, place
    while end < len(text) and text[end].isspace():
        end += 1
    return (closing, end + 1) if text[end : end + 1] == ">" else (None, place)


@lru_cache(maxsize=8)
def contents(text: str, tag: str) -> tuple[str, ...]:
    found, start, place = [], -1, 0
    while place < len(text):
        closing, after = tag_at(text, place, tag)
        if closing is None:
            place += 1
            continue
        if closing and start >= 0:
            found.append(text[start:place].strip())
        start, place = (-1 if closing else after), after
    return tuple(found)


def whole_number(word: str) -> int | None:
    digits = word[1:] if word[:1] in ("+", "-") else word
    return int(word) if digits and all(sign in "0123456789" for sign in digits) else None


def one_answer(grammar: Any, said: str) -> Any:
    """The value of an answer, or None."""
    bare = said.rstrip(".,;:!? \t\r\n")
    if isinstance(grammar, FreeText):
        return said if 0 < len(said) <= grammar.max_characters else None
    if isinstance(grammar, Choice):
        for want in (said, bare):
            if want in grammar.options:
                return want
        folded = [
            label for label in grammar.options for w in (said, bare) if label.casefold() == w.casefold()
        ]
        return folded[0] if len(set(folded)) == 1 else None
    if isinstance(grammar, Number):
        number = whole_number(bare)
        return number if number is not None and grammar.allows(number) else None
    return fields_answer(grammar, said)


def fields_answer(grammar: Any, said: str) -> Any:
    words = said.replace(",", " ").rstrip(".,;:!? \t\r\n").split()
    if not grammar.bare:
        words = [word for word in words if word.casefold() != "and"]
    numbers, names = (words, list(grammar.names)) if grammar.bare else (words[::2], words[1::2])
    if len(numbers) != len(grammar.names) or len(names) != len(grammar.names):
        return None
    value = {}
    for number, name in zip(numbers, names, strict=True):
        known = [each for each in grammar.names if name.casefold() in (each, each.removesuffix("s"))]
        if not known or known[0] in value or whole_number(number) is None:
            return None
        value[known[0]] = whole_number(number)
    allowed = all(0 <= value[name] <= high for name, high in zip(grammar.names, grammar.highs(), strict=True))
    return {name: value[name] for name in grammar.names} if allowed else None


def verdict(grammar: Any, text: str) -> Any:
    """The value of the move that a reply is by the rules of the README, or None."""
    said = spoken(text)
    if not said:
        return None
    if isinstance(grammar, OneOf):
        asked = [
            (n, o) for n, o in zip(grammar.names, grammar.options, strict=True) if n != grammar.otherwise
        ]
        voices = [(n, verdict(o, text)) for n, o in asked if has_a_say(o, said)]
        if not voices and grammar.otherwise:
            voices = [(grammar.otherwise, verdict(grammar.option(grammar.otherwise), text))]
        return {voices[0][0]: voices[0][1]} if len(voices) == 1 and voices[0][1] is not None else None
    if grammar.tag is None:
        return one_answer(grammar, said)
    values = [one_answer(grammar, answer) for answer in contents(said, grammar.tag)]
    return values[0] if values and all(value == values[0] for value in values) else None


def has_a_say(option: Any, said: str) -> bool:
    """Whether a reply is meant for this kind: a tag of its own, or (untagged) a move or a number out of range."""
    if option.tag is not None:
        return bool(contents(said, option.tag))
    return one_answer(option, said) is not None or (
        isinstance(option, Number) and whole_number(said.rstrip(".,;:!? \t\r\n")) is not None
    )


def judge(grammar: Grammar, text: str) -> bool:
    """Whether a reply is a move; fails if it is a wrong one."""
    action = grammar.parse(text)
    expected = verdict(grammar, text)
    if isinstance(action, Move):
        assert action.value == expected, (text, action)
        assert grammar.parse(action.text) == action
        return True
    assert isinstance(action, Malformed) and expected is None, (text, action, expected)
    return False


def moves_of(grammar: Grammar) -> tuple[str, ...]:
    """Canonical replies: all of them, or a few where there is no list."""
    return grammar.labels() or ("<x>hello there</x>", "<x>1 hats 12 books</x>", "hello there")


def reply_near(grammar: Grammar, draw: random.Random, most: int) -> str:
    """Pieces in a row, a canonical reply among them in every second one, at most so many characters."""
    pieces = draw.choices(PIECES, k=draw.choice((1, 2, 3, 5, 9, 20, 150)))
    if draw.random() < 0.5:
        said = draw.choice(moves_of(grammar))
        pieces.insert(draw.randrange(len(pieces) + 1), said)
        if draw.random() < 0.3:
            pieces = [said, draw.choice((" ", "\n", ".", " " + said, "</think>" + said))]
    return "".join(pieces)[:most]


@pytest.mark.parametrize("kind", KINDS)
def test_grammar_when_few_seeded_replies_are_read_then_no_error_and_no_wrong_move(kind: str) -> None:
    draw = random.Random(f"few {kind}")
    found = sum(judge(KINDS[kind], reply_near(KINDS[kind], draw, 2000)) for _ in range(1500))
    assert 20 < found < 1500  # both verdicts were really met


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_grammar_when_200000_seeded_replies_are_read_then_no_error_and_no_wrong_move() -> None:
    draw, kinds, found = random.Random("many"), tuple(KINDS), Counter[str]()
    for number in range(200_000):
        reply = reply_near(KINDS[kinds[number % len(kinds)]], draw, 2000)
        found.update(kind for kind in kinds if judge(KINDS[kind], reply))
    assert min(found[kind] for kind in kinds) > 2000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_grammar_when_20000_hypothesis_replies_are_read_then_no_error_and_no_wrong_move() -> None:
    text = st.text(st.characters() | st.sampled_from("<>/xX05AB \ud800\n."), max_size=60)
    known = st.one_of([st.sampled_from(moves_of(grammar)) for grammar in KINDS.values()])
    around = text | st.text(st.sampled_from(" \n.!?,;"), max_size=6)
    pieces = st.lists(st.sampled_from(PIECES) | known | text, max_size=12)
    read, found = 0, Counter[str]()

    @settings(max_examples=20_000, deadline=None, database=None)
    @given(text | pieces.map("".join) | st.tuples(around, known, around).map("".join))
    def run(reply: str) -> None:
        nonlocal read
        read += 1
        found.update(kind for kind in KINDS if judge(KINDS[kind], reply))

    run()
    assert read >= 20_000 and min(found[kind] for kind in KINDS) > 40, found


SIZE = 1_000_000
HOSTILE: tuple[Callable[[int], str], ...] = (
    *(
        lambda size, piece=piece: (piece * (size // len(piece) + 1))[:size]  # type: ignore[misc]
        for piece in (
            *PIECES,
            "<x>A</x>",
            "<x>5</x><x>6</x>",
            "<think>a</think>",
            "<x   ",
            "1 hats ",
            "and ",
            ", ",
        )
    ),
    *(
        lambda size, first=first, rest=rest: (first + rest * size)[:size]  # type: ignore[misc]
        for first in ("<x", "<think>", "A", "5", "<x>A", "1 hats")
        for rest in (" ", "9", "<", "\n", "\u00a0", ".")
    ),
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_grammar_when_a_hundred_replies_of_a_megabyte_are_read_then_no_error_and_no_wrong_move(
    kind: str,
) -> None:
    """Anything but linear time would run into the timeout; that it is linear the next two tests show."""
    assert len(HOSTILE) >= 100
    for make in HOSTILE:
        text = make(SIZE)
        action = KINDS[kind].parse(text)
        if isinstance(action, Move):
            assert KINDS[kind].parse(action.text) == action
            assert len(set(contents(text, "x")) | {text}) < 4  # only ever the one answer, repeated


def steps_of(grammar: Grammar, text: str) -> int:
    """How many lines of the project's own code are run to read a reply."""
    count, folder = 0, str(Path(answers_module.__file__).parent)

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(folder):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        grammar.parse(text)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_grammar_when_replies_grow_then_at_most_six_lines_run_for_each_character(kind: str) -> None:
    for make in HOSTILE:
        for size in (500, 8000):
            steps = steps_of(KINDS[kind], make(size))
            assert steps <= 6 * size + 500, (make(60), size, steps)


def test_patterns_when_read_then_one_pass_each() -> None:
    """A pattern is linear if it begins with one fixed sign and nothing that it repeats can hold that sign.

    Then two attempts never read the same text, however often it fails.
    """
    tag = replies_module._tag_pattern("x").pattern
    assert tag == r"<(/?)x\s*>" and not re.match(r"\s", "<")
    assert answers_module._INTEGER.pattern == "[+-]?[0-9]+"  # matched in full: one attempt
    for module in (answers_module, replies_module, quantities_module):
        source = Path(str(module.__file__)).read_text("utf-8")
        used = re.findall(r"re\.(?:compile|fullmatch|search|match|sub|split|findall)\(", source)
        expected = {answers_module: 2, replies_module: 1, quantities_module: 1}[module]
        assert len(used) == expected, (module, used)  # the others read names and tags that a game declares


ROOT = Path(__file__).parent.parent.parent
TRICKY = [
    [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "games" / "README.md").read_text("utf-8").split("tricky replies")[-1].splitlines()
    if line.startswith("| `")
]
NAMED: dict[str, Grammar] = {
    "A or B": Choice(("A", "B")),
    "A or B in x": Choice(("A", "B"), "x"),
    "0 to 10": Number(0, 10),
    "hats, books": Fields(("hats", "books"), 0, 9),
    "price in x, or a message": OneOf(("price", "message"), (Number(0, 9, tag="x"), FreeText(20)), "message"),
    "message": FreeText(20),
}


@pytest.mark.parametrize(("grammar", "reply", "expected"), TRICKY, ids=[row[1] for row in TRICKY])
def test_tricky_reply_when_read_then_the_verdict_of_the_readme(
    grammar: str, reply: str, expected: str
) -> None:
    action = NAMED[grammar].parse(reply.replace("\\n", "\n"))
    assert (str(action.value) if isinstance(action, Move) else action.reason) == expected
    assert (verdict(NAMED[grammar], reply.replace("\\n", "\n")) is not None) == isinstance(action, Move)


def test_tricky_replies_when_counted_then_every_grammar_and_verdict_is_there() -> None:
    assert {row[0] for row in TRICKY} == set(NAMED) and len(TRICKY) >= 30
    assert {"empty", "no_move", "ambiguous", "out_of_range", "too_long"} <= {row[2] for row in TRICKY}

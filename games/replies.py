"""Reading untrusted replies in linear time: private reasoning, tagged answers, safe quotation."""

import json
import re
from functools import lru_cache

REASONING_TAG = "think"
CLOSING_PUNCTUATION = ".,;:!?"


@lru_cache(maxsize=256)
def _tag_pattern(tag: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){re.escape(tag)}\s*>", re.IGNORECASE)


def strip_reasoning(text: str, tag: str = REASONING_TAG) -> str:
    """Remove private reasoning, `<think>…</think>`, from a reply (rule 14).

    An opening tag that is never closed hides the rest; a closing tag that was never opened hides all before
    it (chat templates may put the opening tag into the prompt). Tags nest.
    """
    if "<" not in text:
        return text
    kept: list[str] = []
    depth = start = 0
    for match in _tag_pattern(tag).finditer(text):
        if match[1]:
            if depth == 0:
                kept.clear()
            depth = max(0, depth - 1)
        else:
            if depth == 0:
                kept.append(text[start : match.start()])
            depth += 1
        start = match.end()
    if depth == 0:
        kept.append(text[start:])
    return "".join(kept)


def tagged_answers(text: str, tag: str) -> tuple[str, ...]:
    """The contents of all complete `<tag>…</tag>` in order, stripped; of nested openings the last counts."""
    answers: list[str] = []
    start: int | None = None
    for match in _tag_pattern(tag).finditer(text):
        if not match[1]:
            start = match.end()
        elif start is not None:
            answers.append(text[start : match.start()].strip())
            start = None
    return tuple(answers)


def sound_text(text: str) -> str:
    """Replace lone halves of surrogate pairs by U+FFFD, so that tokenizers and files can hold the text."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def quote_text(text: str) -> str:
    """Put untrusted text in double quotes on one line, so that it cannot pass for the game's own words.

    Quotes, line ends and control characters inside are escaped.
    """
    quoted = json.dumps(sound_text(text), ensure_ascii=False)
    for line_end in ("\x85", "\u2028", "\u2029"):
        quoted = quoted.replace(line_end, f"\\u{ord(line_end):04x}")
    return quoted


def number_text(number: float) -> str:
    """Write a number as briefly as it can be read back: 3.0 as `3`."""
    return str(int(number)) if float(number).is_integer() else repr(float(number))

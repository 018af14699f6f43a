"""Rules on the grammars that a game hands out: what is written is read, and nothing else passes for a move."""

import json
from collections.abc import Iterator
from itertools import islice

from coplay.games.chance import derive_seed
from coplay.games.conformance_plays import ODD_REPLIES, Play, raised
from coplay.games.conformance_rules import Exhibit, Fault, plain
from coplay.games.grammar import Grammar, Malformed, Move, grammar_from_json
from coplay.games.plugins import GAME_ERRORS
from coplay.games.random_moves import random_move

MAX_GRAMMARS = 24
"""So many different grammars of a game are looked at."""
NUM_MOVES, NUM_REPLIES = 20, 120
"""Moves written and replies read for each."""
ALPHABET = (
    *"abcXYZ0123456789 .,!?<>/-+\n\t\"'",
    "<think>",
    "</think>",
    "<move>",
    "</move>",
    "seven",
    "twenty one",
    "é",
    "\u0663",
    "\u200b",
    "\ud800",
    "\U0001f600",
)


def grammars(exhibit: Exhibit) -> Iterator[tuple[Grammar, Play, int]]:
    """Different grammars, and where each was first met."""
    met: dict[str, tuple[Grammar, Play, int]] = {}
    for play, visit in exhibit.visits():
        for seen in visit.observations.values():
            name = json.dumps(seen.grammar.to_json(), default=repr, sort_keys=True)
            met.setdefault(name, (seen.grammar, play, visit.step - 1))
    return islice(iter(met.values()), MAX_GRAMMARS)


def moves(grammar: Grammar) -> list[str]:
    """Some canonical replies."""
    labels = grammar.labels()
    if labels is not None:
        places = {derive_seed("label", number) % len(labels) for number in range(NUM_MOVES)}
        return [labels[0], labels[-1], *(labels[place] for place in sorted(places))]
    return [grammar.write(random_move(grammar, ("move", number))) for number in range(NUM_MOVES)]


def odd_replies(grammar: Grammar) -> Iterator[str]:
    """Nasty replies, and moves with something wrong in them, drawn by name."""
    yield from ODD_REPLIES
    canonical = moves(grammar)
    for number in range(NUM_REPLIES):
        lot = derive_seed("reply", number)
        noise = "".join(
            ALPHABET[derive_seed("noise", number, place) % len(ALPHABET)] for place in range(1 + lot % 24)
        )
        move, place = canonical[lot % len(canonical)], derive_seed("place", number) % 20
        yield (noise, move[:place] + noise + move[place:], move[:place] + move[place + 1 :])[lot // 97 % 3]


def grammar_reads_what_it_writes(exhibit: Exhibit) -> Iterator[Fault]:
    """Every canonical reply is a move, that of its value, with white space around it too; all differ."""
    for grammar, play, steps in grammars(exhibit):
        labels = grammar.labels()
        if labels is not None and (not labels or len(set(labels)) < len(labels)):
            what = (
                f"labels {labels!r:.120} of {grammar.describe()!r:.80}; expected at least one, all different"
            )
            yield Fault(what=what, play=play, steps=steps)
            continue
        for reply in moves(grammar):
            for text in (reply, f" {reply}\n"):
                action = grammar.parse(text)
                if (
                    not isinstance(action, Move)
                    or action.text != reply
                    or grammar.write(action.value) != reply
                ):
                    what = f"the canonical reply {reply!r} of {grammar.describe()!r:.80} is read as {action!r:.120}"
                    yield Fault(what=what, play=play, steps=steps)


def grammar_rejects_the_rest(exhibit: Exhibit) -> Iterator[Fault]:
    """Any reply comes to an action without an error; one that is a move can be written, and read back as it."""
    for grammar, play, steps in grammars(exhibit):
        listed = set(grammar.labels() or ())
        for reply in odd_replies(grammar):
            told = f"{grammar.describe()!r:.80} reads {reply[:60]!r}"
            try:
                action = grammar.parse(reply)
                again = grammar.parse(action.text) if isinstance(action, Move) else action
            except GAME_ERRORS as error:
                yield Fault(what=f"{told}: raised {raised(error)}", play=play, steps=steps)
                continue
            if isinstance(action, Malformed):
                continue
            if not isinstance(action, Move):
                what = f"{told} as {action!r:.80}; expected Move or Malformed"
            elif again != action or grammar.write(action.value) != action.text or not plain(action.value):
                what = (
                    f"{told} as {action!r:.120}, which does not come to the same when written and read again"
                )
            elif listed and action.text not in listed:
                what = f"{told} as {action.text!r}, which is not among its labels"
            else:
                continue
            yield Fault(what=what, play=play, steps=steps)


def grammar_needs_a_clear_answer(exhibit: Exhibit) -> Iterator[Fault]:
    """A reply that names two different moves, or only talks about one, is none (of grammars that list theirs)."""
    for grammar, play, steps in grammars(exhibit):
        labels = grammar.labels()
        if labels is None:
            continue
        one, other = labels[0], labels[-1]
        discussed = [f"<think>{one}</think>", f"<think>{one}"]
        if one != other and one.startswith("<") == other.startswith("<"):
            discussed += [f"{one} or {other}", f"{one} {other}", f"{other}\n{one}"]
        if not one.startswith("<"):
            discussed += [f"I could play {one}", f"not {one}", f"{one} is what I fear"]
        for reply in discussed:
            action = grammar.parse(reply)
            if isinstance(action, Move) and reply not in labels:
                what = f"{grammar.describe()!r:.80} takes {reply!r} for the move {action.text!r}"
                yield Fault(what=what, play=play, steps=steps)


def grammar_serialises(exhibit: Exhibit) -> Iterator[Fault]:
    """A grammar is written as JSON and read back as an equal one (its kind registered), and can be hashed."""
    for grammar, play, steps in grammars(exhibit):
        text = json.dumps(grammar.to_json(), allow_nan=False)
        try:
            again = grammar_from_json(json.loads(text))
        except GAME_ERRORS as error:
            what = f"{text:.120} cannot be read back: {raised(error)}"
            yield Fault(what=what, play=play, steps=steps)
            continue
        if again != grammar or hash(again) != hash(grammar):
            what = f"{text:.120} is read back as {again!r:.120}; expected {grammar!r:.120}"
            yield Fault(what=what, play=play, steps=steps)

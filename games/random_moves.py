"""Moves drawn by lot from any grammar: of scripted agents, and of the plays of the conformance kit."""

from typing import Any

from coplay.games.chance import derive_seed
from coplay.games.grammar import Fields, FreeText, Grammar, Move, Number, OneOf

LINE = "Let us share fairly."
"""What is said where something must be said."""


class UndrawableError(ValueError):
    """No move can be drawn from a grammar of this kind."""


def random_move(grammar: Grammar, lot: tuple[int | str, ...]) -> Any:
    """Any move of the grammar, each equally likely; of several kinds of moves, first the kind.

    Raises:
        UndrawableError: if the grammar is of an own kind that does not list its labels.
    """
    if isinstance(grammar, OneOf):
        name = grammar.names[derive_seed(*lot, "kind") % len(grammar.names)]
        return {name: random_move(grammar.option(name), (*lot, name))}
    if isinstance(grammar, FreeText):
        return LINE[: grammar.max_characters].strip()
    labels = grammar.labels()
    if labels is not None:
        action = grammar.parse(labels[derive_seed(*lot) % len(labels)])
        assert isinstance(action, Move)
        return action.value
    if isinstance(grammar, Number):
        least, most = grammar.ends()
        numbers = range(least, most + 1) if grammar.values is None else grammar.values
        return numbers[derive_seed(*lot) % len(numbers)]
    if isinstance(grammar, Fields):
        return {
            name: grammar.low + derive_seed(*lot, name) % (high - grammar.low + 1)
            for name, high in zip(grammar.names, grammar.highs(), strict=True)
        }
    raise UndrawableError(f"no move can be drawn from {grammar!r}; expected a grammar that lists its labels")

"""Games: rules that players meet in. Importable without torch."""

from coplay.games.base import Game, GameParameters, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance, derive_seed
from coplay.games.grammar import Action, Grammar, Malformed, Move

__all__ = [
    "Action",
    "Chance",
    "Game",
    "GameParameters",
    "GameSpec",
    "Grammar",
    "Malformed",
    "MalformedRule",
    "Move",
    "Observation",
    "StepOutcome",
    "derive_seed",
]

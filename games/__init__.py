"""Games: rules that players meet in. Importable without torch."""

from coplay.games.base import Game, GameParameters, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance, derive_seed
from coplay.games.grammar import (
    Action,
    Choice,
    Fields,
    FreeText,
    Grammar,
    Malformed,
    MalformedReason,
    Move,
    Number,
    OneOf,
    grammar_from_json,
)
from coplay.games.iterated_matrix import IteratedMatrix
from coplay.games.names import nearest
from coplay.games.registry import (
    GameParameterError,
    GamePluginError,
    GameRegistrationError,
    UnknownGameError,
    available_games,
    game_class,
    make_game,
    register_game,
)
from coplay.games.replies import strip_reasoning
from coplay.games.split import Split
from coplay.games.trust_and_split import TrustAndSplit

for _game in (IteratedMatrix, Split, TrustAndSplit):
    register_game(_game)

__all__ = [
    "Action",
    "Chance",
    "Choice",
    "Fields",
    "FreeText",
    "Game",
    "GameParameterError",
    "GameParameters",
    "GamePluginError",
    "GameRegistrationError",
    "GameSpec",
    "Grammar",
    "IteratedMatrix",
    "Malformed",
    "MalformedReason",
    "MalformedRule",
    "Move",
    "Number",
    "Observation",
    "OneOf",
    "Split",
    "StepOutcome",
    "TrustAndSplit",
    "UnknownGameError",
    "available_games",
    "derive_seed",
    "game_class",
    "grammar_from_json",
    "make_game",
    "nearest",
    "register_game",
    "strip_reasoning",
]

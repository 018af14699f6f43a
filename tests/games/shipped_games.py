"""The games that come with coplay, those of other libraries marked with what they need."""

import pytest

from coplay.games import available_games, game_class

LIBRARIES = {"open_spiel": ("pyspiel",), "pettingzoo": ("pettingzoo", "pygame"), "text_arena": ("textarena",)}
OURS = [
    name
    for name in available_games()
    if name not in LIBRARIES and game_class(name).__module__.startswith("coplay.games.")
]
SHIPPED = [*OURS, *(pytest.param(name, marks=pytest.mark.needs(*needs)) for name, needs in LIBRARIES.items())]

"""The games that come with coplay, those of other libraries marked with what they need."""

import pytest

from coplay.games import available_games

LIBRARIES = {"open_spiel": ("pyspiel",), "pettingzoo": ("pettingzoo", "pygame"), "text_arena": ("textarena",)}
SHIPPED = [
    pytest.param(name, marks=pytest.mark.needs(*LIBRARIES[name])) if name in LIBRARIES else name
    for name in available_games()
]

"""Games by name: plug-ins, parameters, and sentences for wrong names (B50, B86)."""

import logging
import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any, ClassVar, Literal

import pytest

from coplay.games import (
    Game,
    GameParameterError,
    GameParameters,
    GamePluginError,
    GameRegistrationError,
    IteratedMatrix,
    UnknownGameError,
    available_games,
    game_class,
    make_game,
    register_game,
    registry,
)
from coplay.games import plugins as plugins_module
from coplay.games.iterated_matrix_parameters import IteratedMatrixParameters


class PluggedParameters(GameParameters):
    kind: Literal["plugged"] = "plugged"


class Plugged(IteratedMatrix):
    Parameters: ClassVar[type[Any]] = PluggedParameters
    name: ClassVar[str] = "plugged"

    def __init__(self, parameters: Any) -> None:
        super().__init__(IteratedMatrixParameters())


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Entry points that the registry sees; registrations are undone after the test."""
    found: list[EntryPoint] = []
    monkeypatch.setattr(
        plugins_module, "entry_points", lambda group: found if group == "coplay.games" else []
    )
    monkeypatch.setattr(registry, "_GAMES", dict(registry._GAMES))
    plugins_module.warn_once.cache_clear()
    return found


def plugin(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "coplay.games")


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `coplay_test_shop` that holds the plugged-in game."""
    import types

    module = types.ModuleType("coplay_test_shop")
    module.Plugged = Plugged  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "coplay_test_shop", module)


def test_available_games_then_the_built_in_ones_sorted() -> None:
    assert {"iterated_matrix", "split", "trust_and_split"} <= set(available_games())
    assert list(available_games()) == sorted(available_games())


def test_make_game_when_name_is_misspelt_then_nearest_is_named() -> None:
    with pytest.raises(
        UnknownGameError, match=r"'iterated_matrx' is unknown.*did you mean 'iterated_matrix'"
    ):
        make_game("iterated_matrx")


def test_make_game_when_parameter_is_misspelt_then_nearest_is_named() -> None:
    with pytest.raises(
        GameParameterError, match=r"no parameter 'num_round'.*did you mean 'num_rounds'"
    ) as caught:
        make_game("iterated_matrix", num_round=5)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "parameters",
    [
        {"num_rounds": 0},
        {"num_rounds": "many"},
        {"wording": "short"},
        {"players": ("Ada",)},
        {"players": ("Ada", "Ada")},
        {"players": ("Ada", " ")},
        {"retries": -1},
        {"penalty": float("nan")},
    ],
)
@pytest.mark.parametrize("name", ["iterated_matrix", "split", "trust_and_split"])
def test_make_game_when_value_is_not_allowed_then_one_sentence_names_it(
    name: str, parameters: dict[str, Any]
) -> None:
    with pytest.raises(GameParameterError) as caught:
        make_game(name, **parameters)
    assert name in str(caught.value)
    assert next(iter(parameters)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_register_game_when_name_is_taken_then_refused() -> None:
    class Copy(IteratedMatrix):
        pass

    with pytest.raises(GameRegistrationError, match="already registered by"):
        register_game(Copy)
    assert register_game(IteratedMatrix) is IteratedMatrix


def test_register_game_when_parameters_lack_kind_then_refused() -> None:
    class Nameless(IteratedMatrix):
        Parameters: ClassVar[type[Any]] = GameParameters
        name: ClassVar[str] = "nameless"

    with pytest.raises(GameRegistrationError, match="kind"):
        register_game(Nameless)
    with pytest.raises(GameRegistrationError):
        register_game(Game)


def test_plugin_when_its_name_is_asked_for_then_loaded(plugins: list[EntryPoint], shop: None) -> None:
    plugins += [
        plugin("plugged", "coplay_test_shop:Plugged"),
        plugin("broken", "coplay_test_no_such_module:Game"),
    ]
    assert isinstance(make_game("plugged"), Plugged)
    assert game_class("plugged") is Plugged


def test_plugin_when_it_cannot_be_imported_then_reported_by_name(
    plugins: list[EntryPoint], shop: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Law 9: nothing silent."""
    plugins += [
        plugin("broken", "coplay_test_no_such_module:Game"),
        plugin("plugged", "coplay_test_shop:Plugged"),
    ]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert "plugged" in available_games()
        plugins_module.import_announced()
    assert ["'broken'" in record.getMessage() for record in caplog.records] == [True], "once, whoever looks"
    assert "broken" not in available_games()
    with pytest.raises(GamePluginError, match="coplay_test_no_such_module"):
        make_game("broken")
    with pytest.raises(UnknownGameError, match="did you mean 'plugged'"):
        make_game("pluged")


@pytest.mark.parametrize("name", [3, ["split"], {"kind": "split"}, None])
def test_game_when_its_name_is_no_text_then_unknown(name: object) -> None:
    with pytest.raises(UnknownGameError, match="is unknown; expected a name"):
        make_game(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [RuntimeError, ValueError, TypeError, KeyError, NameError, OSError])
def test_plugin_when_it_raises_anything_while_imported_then_other_games_are_not_stopped(
    plugins: list[EntryPoint], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    class Raising(EntryPoint):
        def load(self) -> None:
            raise error("half installed")

    plugins.append(Raising("broken", "somewhere:Game", "coplay.games"))
    assert "iterated_matrix" in available_games()
    with pytest.raises(GamePluginError, match=f"'broken' cannot be loaded: {error.__name__}"):
        make_game("broken")


def test_plugin_when_named_otherwise_than_its_class_then_refused(
    plugins: list[EntryPoint], shop: None
) -> None:
    plugins.append(plugin("other", "coplay_test_shop:Plugged"))
    with pytest.raises(GamePluginError, match="same name"):
        make_game("other")


def test_games_when_made_twice_then_share_no_mutable_object() -> None:
    """B86: different settings do not leak from one game to the next."""
    first, second = make_game("iterated_matrix", num_rounds=3), make_game("iterated_matrix", num_rounds=5)
    assert (first.spec.max_steps, second.spec.max_steps) == (3, 5)
    for name, value in vars(first).items():
        if isinstance(value, dict | list | set):
            assert value is not vars(second)[name]


def test_import_when_games_alone_then_no_torch_and_under_a_second() -> None:
    code = (
        "import time; start = time.process_time(); import coplay.games, coplay.agents.scripted, sys;"
        " print(time.process_time() - start, 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    told = min(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    )
    assert float(told[0]) < 1.0
    assert told[1:] == ["False", "False"]

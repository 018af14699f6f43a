"""The conformance kit: silent on every shipped game, and it names the rule that each faulty game breaks."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from shipped_games import SHIPPED

from coplay.games import game_class, make_game
from coplay.games.conformance import RULES, check_game, load_game, stable_wording
from coplay.games.conformance_rules import Exhibit
from coplay.games.conformance_secrets import leaves, number_words
from coplay.games.registry import GameRegistrationError

FOLDER = Path(__file__).parent
if str(FOLDER) not in sys.path:
    sys.path.append(str(FOLDER))  # other processes must find the faulty games


def load(name: str) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


faulty: Any = load("faulty_games")
FAULTY = [(rule, game) for rule, games in faulty.FAULTY.items() for game in games]
MORE: list[tuple[str, dict[str, Any]]] = load("test_contract").CASES


@pytest.mark.parametrize(("rule", "game"), FAULTY, ids=lambda each: getattr(each, "__name__", each))
def test_faulty_game_when_checked_then_caught_by_the_named_rule(rule: str, game: type[Any]) -> None:
    findings = check_game(game(game.Parameters()), other_processes=rule == "stable_wording")
    caught = {finding.rule: finding for finding in findings}
    assert rule in caught, [finding.line() for finding in findings]
    line = caught[rule].line()
    assert line.startswith(f"{rule}: ") and "\n" not in line


def test_faulty_games_when_counted_then_every_rule_has_one() -> None:
    """A rule that no game can break would be no rule."""
    assert len(FAULTY) >= 15
    assert len(set(RULES)) == len(RULES)
    assert {rule for rule, _ in FAULTY} == {rule.__name__ for rule in RULES}


@pytest.mark.parametrize("kind", [faulty.Whisper, faulty.Owes])
def test_correct_game_when_checked_then_no_finding(kind: type[faulty.Whisper]) -> None:
    game = kind(faulty.WhisperParameters())
    assert [finding.line() for finding in check_game(game)] == []


@pytest.mark.parametrize("wording", ["full", "terse"])
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_game_when_checked_then_no_finding(name: str, wording: str) -> None:
    findings = check_game(make_game(name, wording=wording), other_processes=False)
    assert [finding.line() for finding in findings] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_game_when_played_in_other_processes_then_the_same_words(name: str) -> None:
    game = make_game(name)
    exhibit = Exhibit(game=game, plays=())
    assert list(stable_wording(exhibit)) == []


@pytest.mark.slow
@pytest.mark.parametrize("wording", ["full", "terse"])
@pytest.mark.parametrize("place", range(len(MORE)))
def test_shipped_game_when_checked_with_other_parameters_then_no_finding(place: int, wording: str) -> None:
    name, parameters = MORE[place]
    if "num_rounds" in type(make_game(name).parameters).model_fields:
        parameters = {"num_rounds": 3, **parameters}
    findings = check_game(make_game(name, **parameters, wording=wording), other_processes=False)
    assert [finding.line() for finding in findings] == []


@pytest.mark.parametrize(
    "name", ["kuhn_poker", "deal_or_no_deal", "buy_sell", "trust_and_split", "bargaining"]
)
@pytest.mark.parametrize("place", ["text", "system"])
def test_shipped_game_when_it_tells_one_player_what_another_holds_then_caught(name: str, place: str) -> None:
    """Among all the other numbers of a negotiation, and only to one reader, in words."""

    class Leaking(game_class(name)):  # type: ignore[misc]
        def observe(self, state: Any, player: str) -> Any:
            seen, owner = super().observe(state, player), self.spec.players[0]
            if player == owner:
                return seen
            held = [value for _, value in leaves(self.private(state, owner))]
            told = " ".join(number_words(each) if type(each) is int else str(each) for each in held)
            return replace(seen, **{place: f"{getattr(seen, place)} {told}"})

    told = check_game(Leaking(Leaking.Parameters(wording="terse")), other_processes=False)
    assert "private_stays_private" in {finding.rule for finding in told}


def test_finding_when_several_plays_show_it_then_the_shortest_is_told() -> None:
    game = faulty.TellsTheOthersNumber(faulty.WhisperParameters())
    told = {each.rule: each for each in check_game(game, other_processes=False)}["private_stays_private"]
    assert "1:" not in told.transcript  # it stands in the very first observation
    assert "private 'number'" in told.what


def test_scripted_player_when_added_then_its_plays_are_checked_too() -> None:
    class Wins(faulty.Whisper):  # type: ignore[misc]
        def said(self, action: Any) -> str:
            assert action.text != "open sesame"
            return str(super().said(action))

    def thief(observation: Any, player: str, seed: int, step: int) -> str:
        return "open sesame"

    game = Wins(faulty.WhisperParameters())
    assert not check_game(game, other_processes=False)
    (finding,) = check_game(game, repliers={"thief": thief}, other_processes=False)
    assert finding.rule == "runs"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (21, "twenty one"),
        (305, "three hundred five"),
        (12040, "twelve thousand forty"),
    ],
)
def test_number_words_then_as_people_write_them(number: int, words: str) -> None:
    assert number_words(number) == words


@pytest.mark.parametrize("target", ["faulty_games:Nobody", "faulty_games:WORDS"])
def test_load_game_when_there_is_no_game_then_refused(target: str) -> None:
    with pytest.raises(GameRegistrationError, match="expected"):
        load_game(target, {})

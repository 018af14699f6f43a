"""What a game has without saying so: no secrets, and a state that JSON can hold."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import pytest

from coplay.games import (
    Action,
    Chance,
    Choice,
    Game,
    GameParameters,
    GameSpec,
    MalformedRule,
    Observation,
    StepOutcome,
)

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Held:
    number: int
    words: tuple[str, ...] = ()
    pairs: tuple[tuple[int, float], ...] = ()


class Empty(Game[Kept], Generic[Kept]):
    """A game of any state that is over at once."""

    Parameters = GameParameters
    name = "empty"

    @property
    def spec(self) -> GameSpec:
        return GameSpec(
            players=("Ada",),
            max_steps=1,
            has_chance=False,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=(0.0, 0.0),
            malformed_rule=MalformedRule(consequence="counts as nothing"),
        )

    def initial_state(self, chance: Chance) -> Kept:
        raise AssertionError("nobody plays this")

    def to_move(self, state: Kept) -> tuple[str, ...]:
        return ()

    def observe(self, state: Kept, player: str) -> Observation:
        return Observation(text="", grammar=Choice(("A",)))

    def step(self, state: Kept, actions: Mapping[str, Action], chance: Chance) -> tuple[Kept, StepOutcome]:
        raise AssertionError("nobody plays this")


class Holding(Empty[Held]):
    """Says what its state is."""


class Heir(Holding):
    """Has the state of the class it is made from."""


class Silent(Empty):  # type: ignore[type-arg]
    """Does not say what its state is."""


@pytest.mark.parametrize("kind", [Holding, Heir])
def test_state_when_a_game_says_nothing_of_json_then_its_fields_there_and_back(
    kind: type[Game[Held]],
) -> None:
    game = kind(GameParameters())
    for state in (Held(3), Held(-1, ("a", "b"), ((1, 0.5), (2, 0.0)))):
        data = json.loads(json.dumps(game.encode(state)))
        assert list(data) == ["number", "words", "pairs"]
        assert game.decode(data) == state and hash(game.decode(data)) == hash(state)


def test_private_when_a_game_says_nothing_then_nobody_has_a_secret() -> None:
    assert Holding(GameParameters()).private(Held(3), "Ada") == {}


def test_decode_when_a_game_does_not_name_its_state_then_one_sentence() -> None:
    with pytest.raises(
        TypeError, match=r"^Silent does not say .* expected `class Silent\(Game\[MyState\]\)`"
    ):
        Silent(GameParameters()).decode({"number": 3})

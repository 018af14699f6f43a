"""What a run plays, from its settings: one game, or a mixture; and what is held out for evaluation."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import floor, isfinite, prod
from typing import Any, NamedTuple

from pydantic import Field, ValidationError, field_validator, model_validator

from coplay.agents.settings import Settings
from coplay.games import GameParameters, Mixture, Variant
from coplay.games.registry import game_class
from coplay.training.messages import ConfigError, explain

HasChance = bool | Mapping[str, bool]
"""Whether the game has luck; of a mixture, by the label that its episodes are stored under."""

MAX_VARIANTS = 1000
"""Most games that a mixture spells out."""


class ValueRange(Settings):
    """Numbers at equal distances."""

    low: int | float
    """The first number."""
    high: int | float
    """None is larger."""
    step: int | float = Field(1, gt=0)
    """Distance from each to the next."""

    @model_validator(mode="after")
    def _is_range(self) -> "ValueRange":
        if not (isfinite(self.low) and isfinite(self.high) and self.low <= self.high):
            raise ConfigError(f"a range from {self.low} to {self.high}; expected finite low <= high")
        return self

    @property
    def size(self) -> int:
        """How many numbers."""
        return floor((self.high - self.low) / self.step + 1e-9) + 1

    def values(self) -> tuple[int | float, ...]:
        """All of them, ascending."""
        return tuple([self.low + place * self.step for place in range(self.size)])


class GamesEntry(Settings):
    """A game under one or several sets of parameters, equally often."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """What its results are called."""
    game: dict[str, Any] = Field(default_factory=dict)
    """Parameters where they differ from section `game`; with another `kind`, all that are not its defaults."""
    vary: dict[str, ValueRange | tuple[Any, ...]] = Field(default_factory=dict)
    """Parameter -> its values, listed or as a range; every combination is a game of its own."""

    @field_validator("vary")
    @classmethod
    def _are_some(
        cls, vary: dict[str, ValueRange | tuple[Any, ...]]
    ) -> dict[str, ValueRange | tuple[Any, ...]]:
        for name, values in vary.items():
            if isinstance(values, tuple) and not values:
                raise ConfigError(f"'vary.{name}' is empty; expected at least one value")
        return vary

    @property
    def size(self) -> int:
        """How many games."""
        return prod([one.size if isinstance(one, ValueRange) else len(one) for one in self.vary.values()])

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Each choice of one value for every varied parameter."""
        lists = [one.values() if isinstance(one, ValueRange) else one for one in self.vary.values()]
        for chosen in product(*lists):
            yield dict(zip(self.vary, chosen, strict=True))


class MixtureEntry(GamesEntry):
    """One part of what a run trains on."""

    weight: float = Field(1.0, gt=0)
    """Its share of the groups over the sum of all weights; its games have equal parts of it."""


class Exam(NamedTuple):
    """What one table of an evaluation is about."""

    name: str
    """Empty for the one game of a run without a mixture."""
    games: Mixture
    held_out: bool = False

    @property
    def kind(self) -> str:
        """The kind of its games."""
        return self.games.variants[0].game.name


def read_game(value: Any, section: str) -> GameParameters:
    """The parameters in a table with a `kind`.

    Raises:
        ConfigError: if there are none.
    """
    if isinstance(value, GameParameters):
        return value
    if not isinstance(value, dict) or "kind" not in value:
        raise ConfigError(f"section {section!r} is {value!r}; expected a table with a 'kind' and parameters")
    parameters = game_class(value["kind"]).Parameters
    try:
        return parameters(**value)
    except ValidationError as error:
        raise ConfigError(explain(error, parameters, prefix=section)) from None


def make_mixture(base: GameParameters, entries: Sequence[MixtureEntry]) -> Mixture:
    """What the groups of an iteration play; without entries section `game` alone.

    Raises:
        ConfigError: if an entry has no such games, or its games seat other players.
    """
    if not entries:
        return Mixture.of(_class_of(base)(base))
    _check_size(entries)
    variants: list[Variant] = []
    for entry in entries:
        variants += _variants(base, entry, f"mixture.{entry.name}", entry.weight / entry.size)
    return _checked(base, variants, "mixture")


def exams(
    base: GameParameters, mixture: Sequence[MixtureEntry], held_out: Sequence[GamesEntry]
) -> tuple[Exam, ...]:
    """What an evaluation plays: each part of the mixture, then what is held out.

    Raises:
        ConfigError: if something held out is trained on, or a name stands for two things.
    """
    names = [entry.name for entry in (*mixture, *held_out)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"'mixture' and 'evaluate.held_out' name {twice[0]!r} twice; expected a name for each entry"
        )
    _check_size(held_out)
    trained = make_mixture(base, mixture)
    found = [Exam("", trained)] if not mixture else [Exam(name, trained.part(name)) for name in trained.names]
    seen = {_identity(variant): variant.label for variant in trained.variants}
    for entry in held_out:
        games = _checked(
            base, _variants(base, entry, f"evaluate.held_out.{entry.name}", 1.0), "evaluate.held_out"
        )
        for variant in games.variants:
            if _identity(variant) in seen:
                raise ConfigError(
                    f"'evaluate.held_out.{entry.name}' holds out {variant.label!r}, which is trained on as"
                    f" {seen[_identity(variant)]!r}; expected other parameters"
                )
        found.append(Exam(entry.name, games, held_out=True))
    return tuple(found)


def _variants(base: GameParameters, entry: GamesEntry, section: str, weight: float) -> Iterator[Variant]:
    own: Mapping[str, Any] = base.model_dump()
    if entry.game.get("kind", own["kind"]) != own["kind"]:
        own = {}
    both = sorted(set(entry.game) & set(entry.vary))
    if both or "kind" in entry.vary:
        raise ConfigError(
            f"{section!r} varies {(both or ['kind'])[0]!r}; expected a parameter that its table 'game' leaves out"
            " (another kind is an entry of its own)"
        )
    for chosen in entry.combinations():
        parameters = read_game({**own, **entry.game, **chosen}, f"{section}.game")
        told = [
            f"{name}={json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
            for name, value in chosen.items()
        ]
        yield Variant(
            name=entry.name,
            label=" ".join([entry.name, *told]),
            game=_class_of(parameters)(parameters),
            weight=weight,
        )


def _class_of(parameters: GameParameters) -> Any:
    kind: str = parameters.kind  # type: ignore[attr-defined]
    return game_class(kind)


def _identity(variant: Variant) -> str:
    return json.dumps(variant.game.parameters.model_dump(mode="json"), sort_keys=True)


def _check_size(entries: Sequence[GamesEntry]) -> None:
    size = sum([entry.size for entry in entries])
    if size > MAX_VARIANTS:
        raise ConfigError(
            f"{[entry.name for entry in entries]!r} spell out {size} games; expected {MAX_VARIANTS} at most: shorter"
            " lists in 'vary', or a larger 'step'"
        )


def _checked(base: GameParameters, variants: Iterable[Variant], section: str) -> Mixture:
    """All of them different, with the players of section `game`."""
    known: dict[str, str] = {}
    home = _class_of(base)(base).spec.players
    found = tuple(variants)
    for variant in found:
        identity = _identity(variant)
        if identity in known:
            raise ConfigError(
                f"{section!r} has one game as {known[identity]!r} and as {variant.label!r}; expected it once, with a"
                " weight"
            )
        known[identity] = variant.label
        players = variant.game.spec.players
        if set(players) != set(home):
            raise ConfigError(
                f"{section!r} has {variant.label!r} with players {', '.join(map(repr, players))}, but section 'game'"
                f" has {', '.join(map(repr, home))}; expected the same names in any order (parameter 'players')"
            )
    return Mixture(variants=found)

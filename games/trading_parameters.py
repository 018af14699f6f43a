"""The parameters of trading."""

from typing import Literal

from pydantic import Field, model_validator

from coplay.games.grammar import Choice, Fields
from coplay.games.parameters import RoundsParameters, Tag

MAX_PLAYERS = 10
PASSES = "pass"


class TradingParameters(RoundsParameters):
    """What trading can be told."""

    kind: Literal["trading"] = "trading"
    players: tuple[str, ...] = Field(("Ada", "Bo", "Cy"), min_length=2, max_length=MAX_PLAYERS)
    """Names of the seats in their fixed order."""
    num_rounds: int = Field(6, ge=1, le=1_000_000)
    """Number of rounds; in each one player may make one offer, in turn, and who begins is drawn."""
    goods: tuple[str, ...] = Field(("wheat", "salt", "gold"), min_length=2, max_length=8)
    """Names of the goods, one word each."""
    endowment: Literal["equal", "own"] = "equal"
    """`equal`: everyone begins with `units` of each good; `own`: with `units` of one, a different one for each."""
    units: int = Field(2, ge=1, le=100)
    """Units to begin with."""
    max_value: int = Field(9, ge=1, le=1000)
    """A unit's values are drawn from 1 to this, for each player and good."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no tag."""

    @model_validator(mode="after")
    def _fits_together(self) -> "TradingParameters":
        Fields(self.goods, 0, 1)
        names = (*self.players, PASSES)
        if len({name.casefold() for name in names}) < len(names) or not all(
            name.strip() == name and name.isprintable() and name for name in names
        ):
            raise ValueError(
                f"players {self.players!r}; expected different, visible names without surrounding space, none"
                f" {PASSES!r}"
            )
        Choice(names, self.tag)
        if self.endowment == "own" and len(self.goods) != len(self.players):
            raise ValueError(
                f"endowment 'own' with {len(self.players)} players and {len(self.goods)} goods; expected one good for"
                " each player"
            )
        return self

    def endowments(self) -> tuple[tuple[int, ...], ...]:
        """For each player, the units of each good he begins with."""
        places = range(len(self.players))
        equal = self.endowment == "equal"
        return tuple(
            tuple(self.units if equal or good == place else 0 for good in range(len(self.goods)))
            for place in places
        )

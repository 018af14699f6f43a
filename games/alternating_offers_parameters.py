"""The parameters of alternating offers and of the ultimatum game."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from coplay.games.parameters import RoundsParameters, Tag, TwoPlayers


class OffersParameters(RoundsParameters):
    """What both games can be told."""

    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats."""
    num_rounds: int = Field(1, ge=1, le=1_000_000)
    """Number of rounds; who offers first alternates."""
    coins: int = Field(10, ge=1, le=1_000_000)
    """Coins to divide in a round."""
    first_offer: Literal["drawn", "first player"] = "drawn"
    """Who offers first in the first round."""
    tag: Tag = "offer"
    """In the full wording, the tag that an offer stands in. Terse moves have no tags."""
    answer_tag: Tag = "answer"
    """In the full wording, the tag that an answer stands in."""

    @model_validator(mode="after")
    def _tags_differ(self) -> "OffersParameters":
        if self.tag is not None and self.tag == self.answer_tag:
            raise ValueError(f"tag and answer_tag are both {self.tag!r}; expected two")
        return self


class UltimatumParameters(OffersParameters):
    """What the ultimatum game can be told."""

    kind: Literal["ultimatum"] = "ultimatum"


Share = Annotated[float, Field(ge=0.0, le=1.0)]


class AlternatingOffersParameters(OffersParameters):
    """What alternating offers can be told."""

    kind: Literal["alternating_offers"] = "alternating_offers"
    coins: int = Field(100, ge=1, le=1_000_000)
    """Coins to divide in a round."""
    max_offers: int = Field(10, ge=1, le=1000)
    """Offers in a round, both players' together."""
    discounts: tuple[Share, Share] = (0.9, 0.9)
    """For each seat, what his coins are multiplied with for every offer that was rejected."""

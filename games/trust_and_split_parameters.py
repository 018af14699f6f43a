"""The parameters of trust and split."""

from typing import Literal

from pydantic import Field, model_validator

from coplay.games.parameters import RoundsParameters, Tag


class TrustAndSplitParameters(RoundsParameters):
    """What trust and split can be told."""

    kind: Literal["trust_and_split"] = "trust_and_split"
    coins: int = Field(10, ge=1, le=1_000_000)
    """Coins on the table each round."""
    high_value: int = Field(10, ge=0, le=1_000_000)
    """Worth of a coin to the owner of the winning hand."""
    low_value: int = Field(1, ge=0, le=1_000_000)
    """Worth of a coin to the other."""
    messages_per_player: int = Field(1, ge=0, le=20)
    """Messages of each player before the claims, taking turns; 0 means no talk."""
    max_message_characters: int = Field(500, ge=1, le=100_000)
    """Longer messages are malformed and delivered cut to this length."""
    claims: tuple[int, ...] | None = None
    """The claims allowed; None allows every whole number from 0 to `coins`."""
    public_values: bool = False
    """True: both see both values of a coin; False: each sees his own hand only."""
    alternating_hands: bool = False
    """Whether the upper hand changes sides every round; who begins with it is drawn."""
    alternating_mix_ratio: float | None = Field(None, ge=0.0, le=1.0)
    """Chance, drawn once a game, that the upper hand changes sides every round; None leaves it to
    `alternating_hands`."""
    tag: Tag = "claim"
    """In the full wording, the tag that a claim stands in; None for the number alone. Terse claims have no
    tag."""
    message_tag: Tag = None
    """In the full wording, the tag that a message stands in; None takes the whole reply as the message."""

    @model_validator(mode="after")
    def _fits_together(self) -> "TrustAndSplitParameters":
        if len(self.players) != 2:
            raise ValueError(f"players {self.players!r}; expected two, for two hands")
        if self.alternating_hands and self.alternating_mix_ratio is not None:
            raise ValueError("alternating_hands and alternating_mix_ratio are both set; expected one of them")
        claims = self.claims
        if claims is not None and not (
            claims and len(set(claims)) == len(claims) and min(claims) >= 0 and max(claims) <= self.coins
        ):
            raise ValueError(
                f"claims {claims!r}; expected different numbers from 0 to {self.coins}, at least one"
            )
        return self

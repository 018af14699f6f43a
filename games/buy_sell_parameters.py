"""The parameters of buying and selling."""

from typing import Literal

from pydantic import Field, model_validator

from coplay.games.parameters import RoundsParameters, Tag, TwoPlayers


class BuySellParameters(RoundsParameters):
    """What buying and selling can be told."""

    kind: Literal["buy_sell"] = "buy_sell"
    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats, the seller first."""
    num_rounds: int = Field(1, ge=1, le=1_000_000)
    """Number of rounds, each with new reservation prices."""
    max_price: int = Field(20, ge=1, le=1000)
    """Prices, the seller's cost and the buyer's value are whole numbers from 0 to this, the two drawn by lot."""
    always_gains: bool = False
    """Draw both again until the value is above the cost."""
    max_turns: int = Field(10, ge=2, le=1000)
    """Turns in a round, both players' together; then there is no deal."""
    opens: Literal["seller", "buyer", "drawn"] = "seller"
    """Who moves first in a round."""
    talk: bool = True
    """Whether a turn may be a message."""
    max_message_characters: int = Field(300, ge=1, le=100_000)
    """Longer messages are malformed and delivered cut to this length."""
    tag: Tag = "price"
    """In the full wording, the tag that a price stands in. Terse moves have no tags."""
    answer_tag: Tag = "answer"
    """In the full wording, the tag that an answer stands in."""
    message_tag: Tag = None
    """In the full wording, the tag that a message stands in; None takes every reply that is no other move as one."""

    @model_validator(mode="after")
    def _tags_differ(self) -> "BuySellParameters":
        tags = [tag for tag in (self.tag, self.answer_tag, self.message_tag) if tag is not None]
        if len(set(tags)) < len(tags):
            raise ValueError(f"tag, answer_tag and message_tag are {tags!r}; expected different ones")
        return self

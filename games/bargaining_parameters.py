"""The parameters of bargaining over a pool of items."""

from math import factorial
from typing import Literal

from pydantic import Field, model_validator

from coplay.games.grammar import Fields
from coplay.games.parameters import RoundsParameters, Tag, TwoPlayers


class BargainingParameters(RoundsParameters):
    """What bargaining can be told."""

    kind: Literal["bargaining"] = "bargaining"
    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats."""
    num_rounds: int = Field(1, ge=1, le=1_000_000)
    """Number of rounds, each with a new pool and new values."""
    items: tuple[str, ...] = Field(("books", "hats", "balls"), min_length=1, max_length=5)
    """Names of the items, one word each."""
    max_count: int = Field(5, ge=1, le=9)
    """Units of an item are drawn from 0 to this, not all 0."""
    max_value: int = Field(10, ge=1, le=1000)
    """Values of a unit are drawn from 0 to this, such that the pool is worth something to both."""
    min_turns: int = Field(4, ge=1, le=100)
    """Least number of turns in a round, both players' together."""
    max_turns: int = Field(10, ge=1, le=100)
    """Greatest number of turns in a round; nobody is told how many there are."""
    mean_turns: float = Field(7.0, gt=0.0, le=100.0)
    """Rate of the Poisson distribution of turns, of which the part from `min_turns` to `max_turns` is drawn from."""
    messages: Literal["text", "symbols", "none"] = "text"
    """What goes with a proposal: a free text, symbols without a meaning of their own, or nothing."""
    max_message_characters: int = Field(200, ge=1, le=100_000)
    """Longer texts are malformed and delivered cut to this length."""
    num_symbols: int = Field(6, ge=1, le=20)
    """Symbols in a message."""
    alphabet_size: int = Field(10, ge=2, le=100)
    """Symbols are the numbers from 0 to this less one."""
    show_proposals: bool = True
    """False: a proposal is binding, but the other only hears the message that goes with it."""
    reward: Literal["fraction", "raw"] = "fraction"
    """Pay as a part of what the whole pool is worth to the player, or as it is."""
    tag: Tag = "proposal"
    """In the full wording, the tag that a proposal stands in. Terse moves have no tags."""
    answer_tag: Tag = "answer"
    """In the full wording, the tag that an answer stands in."""
    message_tag: Tag = None
    """In the full wording, the tag that a message stands in; None takes the whole reply as the message."""

    @model_validator(mode="after")
    def _fits_together(self) -> "BargainingParameters":
        Fields(self.items, 0, self.max_count)
        if self.min_turns > self.max_turns:
            raise ValueError(
                f"min_turns {self.min_turns} is more than max_turns {self.max_turns}; expected at most that"
            )
        if self.tag is not None and self.tag == self.answer_tag:
            raise ValueError(f"tag and answer_tag are both {self.tag!r}; expected two")
        return self

    def turn_chances(self) -> tuple[float, ...]:
        """Probability of each number of turns from `min_turns` on: μⁿ/n! over its sum up to `max_turns`."""
        numbers = range(self.min_turns, self.max_turns + 1)
        weights = [self.mean_turns**number / factorial(number) for number in numbers]
        return tuple(weight / sum(weights) for weight in weights)

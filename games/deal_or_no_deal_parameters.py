"""The parameters of deal or no deal."""

from typing import Literal

from pydantic import Field, model_validator

from coplay.games.deal_instances import NUM_ITEMS
from coplay.games.grammar import Fields
from coplay.games.parameters import RoundsParameters, Tag


class DealOrNoDealParameters(RoundsParameters):
    """What deal or no deal can be told."""

    kind: Literal["deal_or_no_deal"] = "deal_or_no_deal"
    num_rounds: int = Field(1, ge=1, le=1_000_000)
    """Number of rounds, each with a new instance."""
    items: tuple[str, ...] = Field(("books", "hats", "balls"), min_length=NUM_ITEMS, max_length=NUM_ITEMS)
    """Names of the items, one word each."""
    instances: str | None = None
    """A file of the published data set to take instances from; None draws from all 5,793 that meet its
    constraints."""
    final_deal: Literal["simultaneous", "sequential"] = "simultaneous"
    """`simultaneous`: both say what they take, neither sees the other's claim; `sequential`: the second sees what
    the first takes, and accepts the rest or rejects."""
    max_messages: int = Field(10, ge=0, le=100)
    """Messages of both together in a round, taking turns; then the next to speak must say what he takes."""
    max_message_characters: int = Field(300, ge=1, le=100_000)
    """Longer messages are malformed and delivered cut to this length."""
    tag: Tag = "deal"
    """In the full wording, the tag that a claim stands in. Terse claims have no tag."""
    message_tag: Tag = None
    """In the full wording, the tag that a message stands in; None takes every reply that is no claim as one."""
    answer_tag: Tag = "answer"
    """In the full wording, the tag that accept or reject stands in."""

    @model_validator(mode="after")
    def _fits_together(self) -> "DealOrNoDealParameters":
        if len(self.players) != 2:
            raise ValueError(f"players {self.players!r}; expected two")
        Fields(self.items, 0, 1)
        if self.wording == "full" and self.tag is not None and self.tag == self.message_tag:
            raise ValueError(
                f"tag and message_tag are both {self.tag!r}; expected two, to tell claims from messages"
            )
        return self

"""What the others hear of a message."""

from coplay.games.moves import Action, Malformed
from coplay.games.replies import sound_text, strip_reasoning


def delivered(action: Action, max_characters: int, *, whole_reply: bool) -> str:
    """Never private reasoning, never more than the limit; silence is empty.

    Args:
        action: what the message grammar made of the reply.
        max_characters: the limit; a message that is too long is cut.
        whole_reply: True where the grammar takes any reply as a message: one that is malformed is heard too.
    """
    if isinstance(action, Malformed) and not whole_reply and action.reason != "too_long":
        return ""
    said = action.text if isinstance(action, Malformed) else action.value
    return sound_text(strip_reasoning(said).strip()[:max_characters])

"""What becomes of a reply: which action it is, and what is asked again if it is no move."""

from dataclasses import dataclass, replace
from itertools import takewhile

from coplay.agents.base import Reply
from coplay.games import Action, Grammar, Malformed, Move, Observation
from coplay.games.replies import strip_reasoning
from coplay.rollout_tree.records import Turn

_FAULTS = {
    "empty": "Your reply was empty.",
    "cut_off": "Your reply was cut off by the length limit.",
    "no_move": "Your reply was not a move.",
    "ambiguous": "Your reply named several different moves.",
    "out_of_range": "Your reply was out of range.",
    "too_long": "Your reply was too long.",
}


@dataclass(slots=True)
class Ask:
    """A request for one reply."""

    player: str
    observation: Observation
    attempt: int


def understand(reply: Reply, grammar: Grammar) -> Action:
    """The action of a reply: cut-off whatever its text (rule 9), empty, or what the grammar makes of it.

    Private reasoning is no part of it (rule 14).
    """
    spoken = strip_reasoning(reply.text)
    if reply.finish == "length":
        return Malformed(reason="cut_off", text=spoken)
    if not spoken.strip():
        return Malformed(reason="empty", text=spoken)
    action = grammar.parse(spoken)
    if not isinstance(action, Move | Malformed):
        raise TypeError(f"the grammar {grammar!r} made {action!r} of a reply; expected a Move or Malformed")
    return action


def ask_again(observation: Observation, malformed: Malformed) -> Observation:
    """What a player sees after a malformed reply with retries left: what was wrong and what is expected.

    The facts of the step are repeated, with the reason under "malformed", so that scripted agents can answer.
    """
    fault = _FAULTS.get(malformed.reason, f"Your reply was malformed ({malformed.reason}).")
    return replace(
        observation,
        text=f"{fault} Expected: {observation.grammar.describe()}.",
        fresh_context=False,
        facts={**observation.facts, "malformed": malformed.reason},
    )


def turn_of(
    player: str, observation: Observation, reply: Reply, action: Action, *, attempt: int, penalty: float
) -> Turn:
    """The record of an observation and its reply."""
    return Turn(
        player=player,
        observation=observation,
        reply=reply.text,
        action=action,
        segments=reply.segments,
        policy=reply.policy,
        finish=reply.finish,
        attempt=attempt,
        sampling=reply.sampling,
        tokenizer=reply.tokenizer,
        fresh_context=reply.fresh_context,
        penalty=penalty,
        calls=reply.calls,
    )


def closing_turn(player: str, observation: Observation, reply: Reply) -> Turn:
    """The record of an observation that was read and not answered."""
    return Turn(
        player=player,
        observation=observation,
        reply="",
        action=Move(value=None, text=""),
        segments=reply.segments,
        policy=reply.policy,
        finish="none",
        tokenizer=reply.tokenizer,
        fresh_context=reply.fresh_context,
    )


def unanswered(turn: Turn) -> Turn:
    """A turn of a step that is not played, without its reply: its observation is the player's closing one."""
    return replace(
        turn,
        reply="",
        action=Move(value=None, text=""),
        segments=tuple(takewhile(lambda segment: not segment.sampled, turn.segments)),
        finish="none",
        sampling=None,
        penalty=0.0,
        calls=(),
    )

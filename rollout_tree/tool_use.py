"""Tool calls inside turns: a turn as what was said and told in turn, and how much tools are used."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Literal, get_args

from coplay.agents.base import CallOutcome, Segment
from coplay.rollout_tree.records import Turn
from coplay.rollout_tree.statistics import Line

OUTCOMES: tuple[str, ...] = get_args(CallOutcome)
UNDERSTOOD = ("ok", "timeout", "failed", "too_long")
"""Outcomes of calls that a tool was asked."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A part of a turn after its observation."""

    role: Literal["assistant", "tool"]
    """Who speaks: the player, or a tool."""
    text: str
    segments: tuple[Segment, ...]
    """The tokens of it; empty without tokens."""


def exchanges(turn: Turn) -> tuple[Exchange, ...]:
    """What was said and told in a turn after its observation, in order: calls, results, the reply.

    Tokens that a template or a grammar gave before the first sampled one belong to the observation.
    """
    segments = tuple(dropwhile(lambda segment: not segment.sampled, turn.segments))
    skipped = len(turn.segments) - len(segments)
    found, start = [], 0
    for call in turn.calls:
        if call.outcome == "too_long":
            break  # nothing was told; the call stands as the reply
        end = 0 if call.place is None else call.place - skipped
        found.append(Exchange("assistant", call.text, segments[start:end]))
        found.append(Exchange("tool", call.result, segments[end : end + (call.place is not None)]))
        start = end + (call.place is not None)
    return (*found, Exchange("assistant", turn.reply, segments[start:]))


def tool_use(line: Line) -> dict[str, float]:
    """How a player uses tools, over the turns in which a game offers some.

    `tool_calls/PLAYER`: calls a turn, and `tool_calls/PLAYER/OUTCOME` those of each outcome; `tool_calls_valid/PLAYER`:
    share of calls that were understood and within the budget; `tool_tokens/PLAYER`: tokens of results a turn, which
    nobody trains on; `sampled_share/PLAYER`: share of sampled ones among all tokens after the observation.
    """
    numbers: dict[str, float] = {}
    for player, turns in line.turns.items():
        own = [turn for turn in turns if turn.observation.tools is not None]
        if not own:
            continue
        outcomes = [call.outcome for turn in own for call in turn.calls]
        numbers[f"tool_calls/{player}"] = len(outcomes) / len(own)
        for outcome in OUTCOMES:
            numbers[f"tool_calls/{player}/{outcome}"] = outcomes.count(outcome) / len(own)  # type: ignore[arg-type]
        if outcomes:
            understood = sum(outcome in UNDERSTOOD for outcome in outcomes)
            numbers[f"tool_calls_valid/{player}"] = understood / len(outcomes)
        numbers |= _tokens_of(player, own)
    return numbers


def _tokens_of(player: str, turns: Sequence[Turn]) -> dict[str, float]:
    parts = [part for turn in turns for part in exchanges(turn)]
    total = sum(len(segment.ids) for part in parts for segment in part.segments)
    if not total:
        return {}
    told = sum(len(segment.ids) for part in parts if part.role == "tool" for segment in part.segments)
    sampled = sum(len(segment.log_probs) for part in parts for segment in part.segments)
    return {f"tool_tokens/{player}": told / len(turns), f"sampled_share/{player}": sampled / total}

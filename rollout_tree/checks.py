"""What foreign code hands in, held against its contract: replies of agents, outcomes of games."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from numbers import Integral, Real
from typing import Any, get_args

from coplay.agents.base import CallOutcome, Finish, Reply, Sampling, Segment, ToolCall
from coplay.games import GameSpec, Grammar, Observation, StepOutcome
from coplay.games.tools import Tools
from coplay.rollout_tree.json_text import plain
from coplay.rollout_tree.records import SCORES

_FINISHES = frozenset(get_args(Finish))
_OUTCOMES = get_args(CallOutcome)
_INT, _FLOAT, _BOOL = frozenset({int}), frozenset({float}), frozenset({bool})
_LARGEST_ID = 2**31 - 1


def check_observation(observation: Observation) -> None:
    """Refuse an observation that no agent could read or no file could hold.

    Raises:
        TypeError: if it is no `Observation`, or a part of it is of another type than declared.
    """
    if not isinstance(observation, Observation):
        raise TypeError(f"observe gave {observation!r}; expected an Observation")
    if not (
        isinstance(observation.text, str)
        and isinstance(observation.system, str)
        and isinstance(observation.grammar, Grammar)
        and _is_mapping(observation.facts)
        and isinstance(observation.fresh_context, bool)
        and (observation.tools is None or isinstance(observation.tools, Tools))
    ):
        raise TypeError(
            f"observe gave {observation!r}; expected text and system of type str, a Grammar, facts by name, a bool"
            " fresh_context, and Tools or None"
        )


def check_reply(reply: Reply, policy: str) -> None:
    """Refuse a reply that could not be trained on or comes from someone else.

    Raises:
        TypeError: if it is no `Reply`, or a part of it is of another type than declared.
        ValueError: if another policy answered than sits there, or ids and log-probs do not fit each other.
    """
    if not isinstance(reply, Reply):
        raise TypeError(f"the agent answered {reply!r} of type {type(reply).__name__}; expected a Reply")
    if reply.policy != policy:
        raise ValueError(f"the reply comes from {reply.policy!r}; expected {policy!r}, which has the seat")
    if not (
        isinstance(reply.text, str)
        and isinstance(reply.tokenizer, str)
        and isinstance(reply.fresh_context, bool)
        and (reply.sampling is None or isinstance(reply.sampling, Sampling))
        and reply.finish in _FINISHES
    ):
        raise TypeError(
            f"the agent answered {reply!r}; expected text and tokenizer of type str, a bool fresh_context, a"
            f" Sampling or None, and a finish of {sorted(_FINISHES)}"
        )
    if reply.entropy is not None and not (_all([reply.entropy], _FLOAT, Real) and isfinite(reply.entropy)):
        raise ValueError(f"a reply has the entropy {reply.entropy!r}; expected a finite number or None")
    for segment in reply.segments:
        check_segment(segment)
    if reply.calls:
        check_calls(reply)


def check_calls(reply: Reply) -> None:
    """Refuse calls that no file could hold, or whose results are not where they say.

    Raises:
        TypeError: if one is no `ToolCall`, or holds what JSON does not know.
        ValueError: if its result is none of the segments, or was sampled.
    """
    for call in reply.calls:
        if not isinstance(call, ToolCall) or call.outcome not in _OUTCOMES:
            raise TypeError(
                f"a reply has the call {call!r}; expected a ToolCall with an outcome of {_OUTCOMES}"
            )
        plain(asdict(call), "a tool call")
        place = call.place
        if place is not None and not (0 < place < len(reply.segments) and not reply.segments[place].sampled):
            raise ValueError(
                f"the result of call {call.text!r} is to be segment {place} of {len(reply.segments)}; expected one"
                " after the first that was not sampled"
            )


def check_segment(segment: Segment) -> None:
    """Refuse a segment whose log-probs do not belong to its ids one by one, or are not finite.

    Raises:
        ValueError: if so; a missing log-prob is never taken for 0.
    """
    expected = len(segment.ids) if segment.sampled else 0
    if len(segment.log_probs) != expected:
        kind = "sampled" if segment.sampled else "given"
        raise ValueError(
            f"a segment of {len(segment.ids)} {kind} ids has {len(segment.log_probs)} log-probs;"
            f" expected {expected}"
        )
    ids = segment.ids
    if not _all(ids, _INT, Integral) or (ids and not (min(ids) >= 0 and max(ids) <= _LARGEST_ID)):
        raise ValueError(f"a reply has the ids {ids!r}; expected whole numbers from 0 to {_LARGEST_ID}")
    if not _all(segment.log_probs, _FLOAT, Real) or not all(map(isfinite, segment.log_probs)):
        raise ValueError(f"a reply has the log-probs {segment.log_probs!r}; expected finite numbers")


def _all(values: Sequence[Any], usual: frozenset[type], kind: type) -> bool:
    """True if every value is of a kind of number and none is a bool; numbers of other libraries count."""
    return usual.issuperset(map(type, values)) or all(
        isinstance(value, kind) and not isinstance(value, bool) for value in values
    )


def check_outcome(outcome: StepOutcome, spec: GameSpec) -> None:
    """Refuse an outcome that breaks the contract of games.

    Raises:
        ValueError: if rewards are not one finite number for every player, or the game both ends and is cut.
        TypeError: if a flag is no bool, or the info holds no names.
    """
    rewards = outcome.rewards
    if len(rewards) != len(spec.players) or not all(map(rewards.__contains__, spec.players)):
        raise ValueError(
            f"step rewarded {sorted(rewards)}; expected exactly the players {list(spec.players)}"
        )
    if not all(map(isfinite, rewards.values())):
        raise ValueError(f"step gave the rewards {dict(rewards)!r}; expected finite numbers")
    if outcome.terminated and outcome.truncated:
        raise ValueError("step ended the game as terminated and as truncated; expected one of them")
    flags = (outcome.terminated, outcome.truncated, outcome.round_ended)
    if not _BOOL.issuperset(map(type, flags)):
        raise TypeError(f"step gave terminated, truncated, round_ended = {flags!r}; expected True or False")
    if not _is_mapping(outcome.info):
        raise TypeError(f"step gave the info {outcome.info!r}; expected a mapping by name")
    if SCORES in outcome.info:
        raise ValueError(
            f"step gave info named {SCORES!r}, where a reward model's scores stand; expected another name"
        )


def _is_mapping(value: object) -> bool:
    """Asked twice a turn: an abstract class takes four times as long to say so of a dict."""
    return type(value) is dict or isinstance(value, Mapping)


def observed(observation: Observation) -> Observation:
    """An observation that keeps its contract, its facts as JSON knows them."""
    check_observation(observation)
    facts = plain(observation.facts, "facts of an observation")
    return observation if facts is observation.facts else replace(observation, facts=facts)


def movers_in(movers: Sequence[str], players: Sequence[str]) -> tuple[str, ...]:
    """Who is to move, in the game's order of players.

    Raises:
        ValueError: if somebody is named who does not play, or twice.
    """
    ordered = tuple([player for player in players if player in movers])
    if len(ordered) != len(movers):
        raise ValueError(f"to_move gave {movers!r}; expected some of the players {players!r}, each once")
    return ordered

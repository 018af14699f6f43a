"""What foreign code hands in, held against its contract: replies of agents, outcomes of games."""

from math import isfinite

from coplay.agents.base import Reply, Segment
from coplay.games import GameSpec, StepOutcome


def check_reply(reply: Reply, policy: str) -> None:
    """Refuse a reply that could not be trained on or comes from someone else.

    Raises:
        TypeError: if it is no `Reply`.
        ValueError: if another policy answered than sits there, or ids and log-probs do not fit each other.
    """
    if not isinstance(reply, Reply):
        raise TypeError(f"the agent answered {reply!r} of type {type(reply).__name__}; expected a Reply")
    if reply.policy != policy:
        raise ValueError(f"the reply comes from {reply.policy!r}; expected {policy!r}, which has the seat")
    for segment in reply.segments:
        check_segment(segment)


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
    if not all(map(isfinite, segment.log_probs)):
        raise ValueError(f"a reply has the log-probs {segment.log_probs!r}; expected finite numbers")


def check_outcome(outcome: StepOutcome, spec: GameSpec) -> None:
    """Refuse an outcome that breaks the contract of games.

    Raises:
        ValueError: if rewards are not one finite number for every player, or the game both ends and is cut.
    """
    rewards = outcome.rewards
    if len(rewards) != len(spec.players) or not all(player in rewards for player in spec.players):
        raise ValueError(
            f"step rewarded {sorted(rewards)}; expected exactly the players {list(spec.players)}"
        )
    if not all(map(isfinite, rewards.values())):
        raise ValueError(f"step gave the rewards {dict(rewards)!r}; expected finite numbers")
    if outcome.terminated and outcome.truncated:
        raise ValueError("step ended the game as terminated and as truncated; expected one of them")

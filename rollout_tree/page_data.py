"""What a run's page shows of its episodes, as one compact JSON value: each text, token and run of ids stands once.

Lists named in `Tables` hold what repeats; everything else names their entries by place. A member that would say
nothing (no branch, no penalty, still running) is left out. Numbers have four digits: they are for looking.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from coplay.games import Malformed
from coplay.rollout_tree.credits import CreditRow
from coplay.rollout_tree.json_text import dumps
from coplay.rollout_tree.paths import branch_paths
from coplay.rollout_tree.pieces import Pieces
from coplay.rollout_tree.records import RolloutTree, Turn

CREDIT_PARTS = ("reward_to_go", "value", "baseline", "advantage", "shaping", "importance_weight", "credit")

TurnCredit = list["float | list[float | None] | None"]
"""In the order of CREDIT_PARTS: a number, a list of one number a token where they differ, or None if not known."""


class Interned:
    """Values by their place; each once."""

    def __init__(self) -> None:
        self.places: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self.places.setdefault(value, len(self.places))

    @property
    def values(self) -> list[Any]:
        """All values in their places."""
        return list(self.places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What repeats, shared by all episodes of a page."""

    pieces: Mapping[str, Pieces]
    """Tokenizers by digest; tokens of others are shown as numbers."""
    texts: Interned = field(default_factory=Interned)
    tokens: Interned = field(default_factory=Interned)
    """(id, text or None)."""
    spans: Interned = field(default_factory=Interned)
    """(tokenizer, ids)."""

    def content(self) -> dict[str, Any]:
        """The tables as lists."""
        spans = [self._span(digest, ids) for digest, ids in self.spans.values]
        tokens = self.tokens.values
        return {
            "texts": self.texts.values,
            "spans": spans,
            "token_ids": [token for token, _ in tokens],
            "token_texts": [text for _, text in tokens],
            "credit_parts": list(CREDIT_PARTS),
        }

    def _span(self, digest: str, ids: tuple[int, ...]) -> list[int]:
        known = self.pieces.get(digest)
        texts: Sequence[str | None] = [None] * len(ids) if known is None else known(ids)
        return [self.tokens(token) for token in zip(ids, texts, strict=True)]


def short(value: Any) -> float | int | None:
    """A number with four digits; None if it is none that JSON knows."""
    number = float(value)
    if not isfinite(number):
        return None
    number = float(f"{number:.4g}")
    return int(number) if number.is_integer() else number


def _said(**members: Any) -> dict[str, Any]:
    """The members that say something; the place 0 does."""
    silent: tuple[Any, ...] = ("", [], {})
    return {
        name: value
        for name, value in members.items()
        if value is not None and value is not False and value not in silent
    }


def turn_credits(tree: RolloutTree, rows: Iterable[CreditRow]) -> dict[tuple[int, int], TurnCredit]:
    """The credit of each turn, by (step, place among the step's turns).

    Raises:
        ValueError: if a row names a turn that the tree does not have, or another number of tokens.
    """
    paths = branch_paths(tree)
    found: dict[tuple[int, int], TurnCredit] = {}
    for row in sorted(rows, key=lambda row: row.branch):
        places = [
            (step.id, place, turn)
            for step in paths.get(row.branch, ())
            for place, turn in enumerate(step.turns)
            if turn.player == row.player
        ]
        owners = np.asarray(row.turn)
        parts = {name: np.asarray(v) for name in CREDIT_PARTS if (v := getattr(row, name)) is not None}
        for number in np.unique(owners).tolist():
            chosen = owners == number
            expected = _num_sampled(places[number][2]) if number < len(places) else 0
            if chosen.sum() != expected:
                where = (
                    f"turn {number} of {row.player!r} in branch {row.branch!r} of episode {tree.episode!r}"
                )
                raise ValueError(
                    f"the credits of {where} are of {chosen.sum()} tokens; expected {expected}, as in the rollouts"
                )
            key = places[number][:2]
            found.setdefault(
                key, [_one_or_all(parts[name][chosen]) if name in parts else None for name in CREDIT_PARTS]
            )
    return found


def _num_sampled(turn: Turn) -> int:
    return sum(len(segment.ids) for segment in turn.segments if segment.sampled)


def _one_or_all(values: Any) -> float | list[float | None] | None:
    numbers = [short(value) for value in values.tolist()]
    return numbers[0] if len(set(numbers)) == 1 else numbers


def surprise(rows: Iterable[CreditRow]) -> float | None:
    """The largest |advantage| of any token; None where none is known."""
    known = [np.abs(np.asarray(row.advantage)) for row in rows if row.advantage is not None]
    return max((float(values.max()) for values in known if values.size), default=None)


def episode_data(tree: RolloutTree, rows: Sequence[CreditRow], tables: Tables) -> dict[str, Any]:
    """One episode.

    Raises:
        ValueError: if the tree's links are broken or its credits are of another one.
    """
    seats = {player: place for place, player in enumerate(tree.seats)}
    credits = turn_credits(tree, rows)
    texts, top = tables.texts, surprise(rows)
    failure = tree.failure
    steps = [
        _said(
            branch=step.branch,
            rewards=[short(step.rewards[player]) for player in seats] if step.rewards else None,
            status=None if step.status == "running" else step.status,
            info=texts(dumps(step.info, f"info of step {step.id}")) if step.info else None,
            turns=[
                _turn(turn, seats, tree.seats, credits.get((step.id, place)), tables)
                for place, turn in enumerate(step.turns)
            ],
            closing=[_turn(turn, seats, tree.seats, None, tables) for turn in step.closing],
        )
        | {"id": step.id, "parent": step.parent, "index": step.index, "tick": step.tick}
        for step in tree.steps
    ]
    return {
        "id": tree.episode,
        "iteration": tree.iteration,
        "group": texts(tree.group),
        "seats": [[texts(player), texts(policy)] for player, policy in tree.seats.items()],
        "status": tree.status,
        "returns": None if failure else _returns(tree),
        "surprise": None if top is None else short(top),
        "failure": [failure.player, failure.step, failure.reason] if failure else None,
        "steps": steps,
    }


def _returns(tree: RolloutTree) -> list[float | None]:
    main = [step for step in tree.steps if not step.branch]
    return [short(sum(step.rewards.get(player, 0.0) for step in main)) for player in tree.seats]


def _turn(
    turn: Turn,
    seats: Mapping[str, int],
    policies: Mapping[str, str],
    credit: TurnCredit | None,
    tables: Tables,
) -> dict[str, Any]:
    texts, action = tables.texts, turn.action
    malformed = isinstance(action, Malformed)
    return _said(
        malformed=action.reason if isinstance(action, Malformed) else None,
        attempt=turn.attempt or None,
        policy=texts(turn.policy) if turn.policy != policies[turn.player] else None,
        finish=None if turn.finish == "stop" else turn.finish,
        penalty=short(turn.penalty) or None,
        held=turn.trains_once_for,
        fresh=turn.fresh_context,
        log_probs=[short(value) for segment in turn.segments for value in segment.log_probs],
        credit=credit,
        calls=[[texts(call.text), texts(call.result), call.outcome, call.place] for call in turn.calls],
    ) | {
        "player": seats[turn.player],
        "system": texts(turn.observation.system),
        "seen": texts(turn.observation.text),
        "reply": texts(turn.reply),
        "move": None if malformed else texts(action.text),
        "segments": [
            [tables.spans((turn.tokenizer, segment.ids)), int(segment.sampled)] for segment in turn.segments
        ],
    }


def by_episode(rows: Iterable[CreditRow]) -> dict[str, list[CreditRow]]:
    """Credits of each episode."""
    found: dict[str, list[CreditRow]] = defaultdict(list)
    for row in rows:
        found[row.episode].append(row)
    return found

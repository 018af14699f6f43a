"""Stag hunt with cheap talk: both say something at the same time, then both hunt at the same time.

Pay, with R > T ≥ P > S: R each if both hunt the stag, S for who hunts it alone and T for the other, P each if both hunt
hare. Both hunting stag and both hunting hare are equilibria. Messages bind nobody; and where T > P, who hunts hare
gains if the other hunts stag, so that each has a reason to say "stag" whatever he means to do (Aumann 1990). A round is
the messages and the moves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.best_outcomes import matrix_yardsticks
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, FreeText, Malformed
from coplay.games.messages import delivered
from coplay.games.parameters import RoundsParameters, Tag, TwoPlayers
from coplay.games.replies import number_text, quote_text

MOVES = ("stag", "hare")


class StagHuntTalkParameters(RoundsParameters):
    """What the stag hunt with cheap talk can be told."""

    kind: Literal["stag_hunt_talk"] = "stag_hunt_talk"
    players: TwoPlayers = ("Ada", "Bo")
    """Names of the two seats."""
    both_stag: float = 4.0
    """R: pay of each if both hunt the stag."""
    lone_stag: float = 0.0
    """S: pay of who hunts the stag alone."""
    lone_hare: float = 3.0
    """T: pay of who hunts hare while the other hunts the stag."""
    both_hare: float = 2.0
    """P: pay of each if both hunt hare."""
    signals: tuple[str, ...] | None = None
    """The only messages allowed; None allows any text."""
    max_message_characters: int = Field(500, ge=1, le=100_000)
    """Longer messages are malformed and delivered cut to this length."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no tag."""
    message_tag: Tag = None
    """In the full wording, the tag that a message stands in; None takes the whole reply as the message."""

    @model_validator(mode="after")
    def _is_a_stag_hunt(self) -> "StagHuntTalkParameters":
        if not self.both_stag > self.lone_hare >= self.both_hare > self.lone_stag:
            raise ValueError(
                f"both_stag {self.both_stag}, lone_hare {self.lone_hare}, both_hare {self.both_hare}, lone_stag"
                f" {self.lone_stag}; expected both_stag > lone_hare >= both_hare > lone_stag"
            )
        self.message_grammar()
        return self

    def message_grammar(self) -> Choice | FreeText:
        """What may be said."""
        tag = self.message_tag if self.wording == "full" else None
        return (
            FreeText(self.max_message_characters, tag) if self.signals is None else Choice(self.signals, tag)
        )

    def table(self) -> tuple[tuple[tuple[float, float], ...], ...]:
        """For each move of the first player, for each of the second: (first pay, second pay)."""
        alone = (self.lone_stag, self.lone_hare)
        return (((self.both_stag,) * 2, alone), (alone[::-1], (self.both_hare,) * 2))


@dataclass(frozen=True, slots=True)
class StagHuntTalkState:
    """Of constant size, however long the game; the messages are those of the round."""

    round: int = 0
    """Rounds played."""
    said: tuple[str, ...] = ()
    """Each player's message as delivered, silence empty; () before both have spoken."""
    last: tuple[int, ...] = ()
    """Index of each player's last move; empty before the first."""


class StagHuntTalk(Game[StagHuntTalkState]):
    """Messages at the same time, then moves at the same time."""

    Parameters: ClassVar[type[StagHuntTalkParameters]] = StagHuntTalkParameters
    name: ClassVar[str] = "stag_hunt_talk"

    def __init__(self, parameters: StagHuntTalkParameters) -> None:
        super().__init__(parameters)
        self._players = parameters.players
        self._full = parameters.wording == "full"
        self._move = Choice(MOVES, parameters.tag if self._full else None)
        self._message = parameters.message_grammar()
        self._table = parameters.table()
        self._yardsticks = matrix_yardsticks(self._players, self._table)
        self._rules = tuple(self._full_rules(seat) if self._full else self._terse_rules() for seat in (0, 1))
        self._spec = GameSpec(
            players=self._players,
            max_steps=2 * parameters.num_rounds,
            has_chance=False,
            has_rounds=True,
            zero_sum=False,
            symmetric=True,
            reward_range=(min(0.0, parameters.lone_stag), max(0.0, parameters.both_stag)),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="a move counts as 'hare'; a text is cut to the limit, any other message is silence",
            ),
        )

    def _terse_rules(self) -> str:
        """Own and the other's move and pay, cell by cell, then what follows a letter.

        `m`: the signals, or the length of a message; `x`: number of rounds.
        """
        told = self.parameters
        cells = [
            f"{own} {other} {number_text(pay[0])} {number_text(pay[1])}"
            for own, row in zip(MOVES, self._table, strict=True)
            for other, pay in zip(MOVES, row, strict=True)
        ]
        talk = [str(told.max_message_characters)] if told.signals is None else told.signals
        return " ".join([*cells, "m", *talk, f"x {told.num_rounds}"])

    def _full_rules(self, seat: int) -> str:
        told, other = self.parameters, self._players[1 - seat]
        both, alone, lone_hare, hares = (
            number_text(pay) for pay in (told.both_stag, told.lone_stag, told.lone_hare, told.both_hare)
        )
        text = isinstance(self._message, FreeText)
        otherwise = "; what is longer is cut" if text else ""
        otherwise += "" if text and self._message.tag is None else "; any other reply is silence"
        return (
            f"You are {self._players[seat]}. You hunt with {other}.\n"
            f"There are {told.num_rounds} rounds. In each, you both first send one message to the other, at the same"
            " time; then you both choose at the same time to hunt stag or hare. Messages bind nobody.\n"
            f"If both hunt stag, each gets {both} points. If only one hunts stag, he gets {alone} and the other, who"
            f" hunts hare, {lone_hare}. If both hunt hare, each gets {hares}.\n"
            "You want as many points as you can get over the whole game.\n"
            f"A message is {self._message.describe()}{otherwise}. A move is {self._move.describe()}; any other move"
            " counts as hare."
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> StagHuntTalkState:
        """No luck at all."""
        return StagHuntTalkState()

    def to_move(self, state: StagHuntTalkState) -> tuple[str, ...]:
        """Both, until all rounds are played."""
        return () if state.round >= self.parameters.num_rounds else self._players

    def observe(self, state: StagHuntTalkState, player: str) -> Observation:
        """The moves of the last round; once both have spoken, the other's message."""
        seat, hunts = self._players.index(player), bool(state.said)
        names = tuple(MOVES[move] for move in state.last)
        facts: dict[str, Any] = {
            "game": self.name,
            "phase": "move" if hunts else "message",
            "round": state.round + 1,
            "num_rounds": self.parameters.num_rounds,
            "moves": list(MOVES),
            "cooperate": dict.fromkeys(self._players, MOVES[0]),
            "signals": None if self.parameters.signals is None else list(self.parameters.signals),
        }
        if hunts:
            facts["heard"] = [state.said[1 - seat]]
        if names:
            facts["last"] = dict(zip(self._players, names, strict=True))
        text = self._full_turn(state, seat, names) if self._full else self._terse_turn(state, seat, names)
        return Observation(
            text=text,
            grammar=self._move if hunts else self._message,
            system=self._rules[seat],
            facts=facts,
        )

    def _terse_turn(self, state: StagHuntTalkState, seat: int, names: tuple[str, ...]) -> str:
        """The other's last move (`go` at first) and `say`; then his message and `move`.

        A signal stands as it is, any other message in quotes.
        """
        if not state.said:
            return f"{names[1 - seat] if names else 'go'} say"
        heard = state.said[1 - seat]
        known = self.parameters.signals is not None and heard
        return f"{heard if known else quote_text(heard)} move"

    def _full_turn(self, state: StagHuntTalkState, seat: int, names: tuple[str, ...]) -> str:
        other = self._players[1 - seat]
        if state.said:
            heard = state.said[1 - seat]
            return f"{other} says{f': {quote_text(heard)}' if heard else ' nothing.'}\nStag or hare?"
        lines = [f"Round {state.round + 1} of {self.parameters.num_rounds}."]
        if names:
            paid = self._table[state.last[0]][state.last[1]]
            own, theirs = number_text(paid[seat]), number_text(paid[1 - seat])
            lines.append(
                f"Last round you hunted {names[seat]} and got {own}, {other} hunted {names[1 - seat]} and got {theirs}."
            )
        return " ".join([*lines, f"Your message to {other}?"])

    def step(
        self, state: StagHuntTalkState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[StagHuntTalkState, StepOutcome]:
        """Deliver both messages, or pay the hunt."""
        if not state.said:
            nothing = dict.fromkeys(self._players, 0.0)
            said = tuple(self._delivered(actions[player]) for player in self._players)
            outcome = StepOutcome(rewards=nothing, round_ended=False, info={"phase": "message"})
            return replace(state, said=said), outcome
        first, second = (self._hunted(actions[player]) for player in self._players)
        played = state.round + 1
        outcome = StepOutcome(
            rewards=dict(zip(self._players, map(float, self._table[first][second]), strict=True)),
            terminated=played >= self.parameters.num_rounds,
            info={
                "phase": "move",
                "moves": dict(zip(self._players, (MOVES[first], MOVES[second]), strict=True)),
                "cooperated": dict(zip(self._players, (first == 0, second == 0), strict=True)),
                **self._yardsticks,
            },
        )
        return StagHuntTalkState(round=played, last=(first, second)), outcome

    def _delivered(self, action: Action) -> str:
        whole_reply = isinstance(self._message, FreeText) and self._message.tag is None
        limit = self.parameters.max_message_characters
        if self.parameters.signals is not None:
            limit = max(map(len, self.parameters.signals))
        return delivered(action, limit, whole_reply=whole_reply)

    def _hunted(self, action: Action) -> int:
        return MOVES.index("hare" if isinstance(action, Malformed) else action.value)

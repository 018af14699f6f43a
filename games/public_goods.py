"""Public goods: everyone keeps or contributes; what is contributed is multiplied and divided equally.

With endowment e, multiplier m and n players, player i who contributes c_i is paid

    e − c_i + m · Σ_j c_j / n

a round (the linear voluntary contribution mechanism: Isaac and Walker 1988; Ledyard 1995). Below m/n = 1 nothing is
the dominant contribution, above m = 1 everything is the best for all together: between the two lies the dilemma.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Malformed, Number
from coplay.games.parameters import Players, RoundsParameters, Tag, join_names
from coplay.games.replies import number_text


class PublicGoodsParameters(RoundsParameters):
    """What the public goods game can be told."""

    kind: Literal["public_goods"] = "public_goods"
    players: Players = ("Ada", "Bo", "Cy", "Di")
    """Names of the seats in their fixed order."""
    endowment: int = Field(20, ge=1, le=1_000_000)
    """Coins that everyone gets anew each round."""
    multiplier: float = Field(1.6, ge=0.0, le=1_000_000.0)
    """What contributions are multiplied by before they are divided; a dilemma between 1 and the number of
    players."""
    all_or_nothing: bool = False
    """True allows only contributions of nothing and of the whole endowment; False every whole number between."""
    tag: Tag = "contribution"
    """In the full wording, the tag that a contribution stands in; None for the number alone. Terse ones have no
    tag."""


@dataclass(frozen=True, slots=True)
class PublicGoodsState:
    """Of constant size, however long the game."""

    round: int = 0
    """Rounds played."""
    last: tuple[int, ...] = ()
    """Each player's last contribution; empty before the first round."""


def pay(contributions: Sequence[int], endowment: int, multiplier: float) -> tuple[float, ...]:
    """E − c_i + m·Σc/n for each player."""
    share = multiplier * sum(contributions) / len(contributions)
    return tuple([endowment - own + share for own in contributions])


class PublicGoods(Game[PublicGoodsState]):
    """All contribute at the same time; contributions are seen by all afterwards."""

    Parameters: ClassVar[type[PublicGoodsParameters]] = PublicGoodsParameters
    name: ClassVar[str] = "public_goods"

    def __init__(self, parameters: PublicGoodsParameters) -> None:
        super().__init__(parameters)
        players, endowment, multiplier = parameters.players, parameters.endowment, parameters.multiplier
        self._players = players
        self._seats = {player: seat for seat, player in enumerate(players)}
        self._full = parameters.wording == "full"
        tag = parameters.tag if self._full else None
        self._grammar = (
            Number(values=(0, endowment), tag=tag)
            if parameters.all_or_nothing
            else Number(0, endowment, tag=tag)
        )
        self._rules = tuple(
            self._full_rules(player) if self._full else self._terse_rules() for player in players
        )
        # The pay is linear in one's own and in the others' contributions: its ends are paid at the corners.
        corners = [
            pay((own, *[others] * (len(players) - 1)), endowment, multiplier)[0]
            for own in (0, endowment)
            for others in (0, endowment)
        ]
        self._best_total = float(len(players) * endowment * max(1.0, multiplier))
        self._spec = GameSpec(
            players=players,
            max_steps=parameters.num_rounds,
            has_chance=False,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=(min(corners), max(corners)),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="counts as a contribution of 0",
            ),
        )

    def _terse_rules(self) -> str:
        """Endowment, then what follows a word or letter.

        `give`: the contributions allowed; `m`: multiplier; `n`: number of players; `x`: number of rounds.
        """
        told = self.parameters
        give = f"0 {told.endowment}" if told.all_or_nothing else f"0 - {told.endowment}"
        factor = number_text(told.multiplier)
        return f"coins {told.endowment} give {give} m {factor} n {len(self._players)} x {told.num_rounds}"

    def _full_rules(self, player: str) -> str:
        told, others = self.parameters, tuple(name for name in self._players if name != player)
        amount = "none or all" if told.all_or_nothing else "how many"
        return (
            f"You are {player}. You share a project with {join_names(others)}.\n"
            f"There are {told.num_rounds} rounds. In each, everyone gets {told.endowment} coins, and all say at the"
            f" same time {amount} of them to put into the project; the rest is kept.\n"
            f"What is put in is multiplied by {number_text(told.multiplier)} and divided equally among all"
            f" {len(self._players)} players, whoever put it in.\n"
            "Your points in a round are the coins you keep plus your share. You want as many points as you can get over"
            " the whole game.\n"
            f"Reply with your contribution: {self._grammar.describe()}. Any other reply contributes 0."
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    def initial_state(self, chance: Chance) -> PublicGoodsState:
        """No luck at all."""
        return PublicGoodsState()

    def to_move(self, state: PublicGoodsState) -> tuple[str, ...]:
        """Everyone, until all rounds are played."""
        return () if state.round >= self.parameters.num_rounds else self._players

    def observe(self, state: PublicGoodsState, player: str) -> Observation:
        """All contributions of the last round."""
        told, seat = self.parameters, self._seats[player]
        facts: dict[str, Any] = {
            "game": self.name,
            "round": state.round + 1,
            "num_rounds": told.num_rounds,
            "endowment": told.endowment,
            "multiplier": told.multiplier,
            "all_or_nothing": told.all_or_nothing,
        }
        if state.last:
            facts["last"] = dict(zip(self._players, state.last, strict=True))
        text = self._full_round(state, seat) if self._full else self._terse_round(state, seat)
        return Observation(text=text, grammar=self._grammar, system=self._rules[seat], facts=facts)

    def _terse_round(self, state: PublicGoodsState, seat: int) -> str:
        """`go`, then nothing but the others' last contributions, in the order of players."""
        return " ".join(map(str, state.last[:seat] + state.last[seat + 1 :])) if state.last else "go"

    def _full_round(self, state: PublicGoodsState, seat: int) -> str:
        text = f"Round {state.round + 1} of {self.parameters.num_rounds}."
        if state.last:
            gains = pay(state.last, self.parameters.endowment, self.parameters.multiplier)
            told = [
                f"{'you' if place == seat else player} put in {state.last[place]} and got"
                f" {number_text(round(gains[place], 2))} points"
                for place, player in enumerate(self._players)
            ]
            text += f" Last round {', '.join(told)}."
        return f"{text} Your contribution?"

    def step(
        self, state: PublicGoodsState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[PublicGoodsState, StepOutcome]:
        """Pay one round."""
        chosen = [actions[player] for player in self._players]
        given = tuple([0 if isinstance(action, Malformed) else action.value for action in chosen])
        gains = pay(given, self.parameters.endowment, self.parameters.multiplier)
        played = state.round + 1
        info: dict[str, Any] = {
            "contributions": dict(zip(self._players, given, strict=True)),
            "best_total": self._best_total,
        }
        if self.parameters.all_or_nothing:
            info["cooperated"] = {p: own > 0 for p, own in zip(self._players, given, strict=True)}
        return PublicGoodsState(played, given), StepOutcome(
            rewards=dict(zip(self._players, gains, strict=True)),
            terminated=played >= self.parameters.num_rounds,
            info=info,
        )

"""Any sequential or simultaneous game of OpenSpiel (Lanctot et al. 2019), in its own words.

A state is the history of actions, chance's included; the library's state is made from it by replay, and remembered
while it is of use. Explicit chance is drawn by name from the outcomes that the library lists. Games that draw behind
closed doors (`SAMPLED_STOCHASTIC`, as `negotiation`) get the seed of all their luck from ours at the start; no luck of
theirs can be drawn afresh in a branch. Rewards are what a step adds to the library's returns, so that they sum to them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from coplay.games.adapters.open_spiel_library import draw_outcome, load_game, needs_seed, which_strings
from coplay.games.adapters.seats import seat_names
from coplay.games.base import Game, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, Malformed
from coplay.games.optional import optional_library
from coplay.games.parameters import SeatsParameters, Tag, check_players
from coplay.games.sentences import reply_with_a_legal_move

MAX_SEED = 2**31 - 1
MAX_REMEMBERED = 4096


class OpenSpielParameters(SeatsParameters):
    """Which game, and how it is shown."""

    kind: Literal["open_spiel"] = "open_spiel"
    load: str = Field("kuhn_poker", min_length=1)
    """The library's name of the game, with its parameters in brackets: `goofspiel(num_cards=4)`."""
    players: Annotated[tuple[str, ...], AfterValidator(check_players)] = ()
    """Names of the seats, player 0 first; as many as the game has, or none for names of ours."""
    strings: Literal["observation", "information_state"] | None = None
    """Which of the library's strings is shown; None: the observation where nothing is hidden or where there is
    no information state, else the information state."""
    list_moves: bool = True
    """Whether the text lists the legal moves."""
    tag: Tag = "move"
    """In the full wording, the tag that a move stands in; None for the move alone. Terse moves have no tag."""


@dataclass(frozen=True, slots=True)
class OpenSpielState:
    """What happened so far."""

    history: tuple[int, ...] = ()
    """The library's numbers of all actions, chance's too; of simultaneous ones one for each player."""
    seed: int | None = None
    """Of all luck, in a game that draws behind closed doors."""


class OpenSpiel(Game[OpenSpielState]):
    """A game of OpenSpiel. Nothing is `private`: the library does not say which part of its strings is."""

    Parameters: ClassVar[type[OpenSpielParameters]] = OpenSpielParameters
    name: ClassVar[str] = "open_spiel"

    def __init__(self, parameters: OpenSpielParameters) -> None:
        super().__init__(parameters)
        self._library = optional_library("pyspiel", extra="games", use=f"game {self.name!r}")
        self._game = load_game(self._library, parameters.load)
        self._type = self._game.get_type()
        self._seeded = needs_seed(self._library, self._game, parameters.load)
        self._observed = (
            which_strings(self._library, self._type, parameters.load, parameters.strings) == "observation"
        )
        self._players = seat_names(parameters.players, self._game.num_players(), parameters.load)
        self._tag = parameters.tag if parameters.wording == "full" else None
        self._known: dict[OpenSpielState, Any] = {}
        sampled = self._type.chance_mode == self._library.GameType.ChanceMode.SAMPLED_STOCHASTIC
        self._always_replayed = sampled
        explicit = self._type.chance_mode == self._library.GameType.ChanceMode.EXPLICIT_STOCHASTIC
        self._spec = GameSpec(
            players=self._players,
            max_steps=self._game.max_game_length(),
            has_chance=explicit or self._seeded,
            has_rounds=False,
            zero_sum=self._type.utility == self._library.GameType.Utility.ZERO_SUM,
            symmetric=False,
            reward_range=self._reward_range(),
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="counts as the first of the legal moves",
            ),
        )

    @property
    def spec(self) -> GameSpec:
        """What the library says about this game."""
        return self._spec

    def initial_state(self, chance: Chance) -> OpenSpielState:
        """Up to the first decision."""
        seed = chance.integer("rng_seed", MAX_SEED) if self._seeded else None
        return self._settle(OpenSpielState((), seed), (), chance)

    def to_move(self, state: OpenSpielState) -> tuple[str, ...]:
        """The current player, or all who have a legal move."""
        return tuple(self._players[seat] for seat in self._seats(self._at(state)))

    def observe(self, state: OpenSpielState, player: str) -> Observation:
        """The library's string, and the legal moves."""
        node, seat = self._at(state), self._players.index(player)
        shown = node.observation_string(seat) if self._observed else node.information_state_string(seat)
        moves = list(self._moves(node, seat))
        facts: dict[str, Any] = {
            "game": self.name,
            "load": self.parameters.load,
            "string": shown,
            "moves": moves,
        }
        full = self.parameters.wording == "full"
        listed = "; ".join(moves) if self.parameters.list_moves else ""
        if full:
            listed = f"Legal moves: {listed}" if listed else "Your move?"
        return Observation(
            text="\n".join(filter(None, (shown.strip(), listed))) or "?",
            grammar=Choice(tuple(moves), self._tag),
            system=self._rules(seat) if full else f"{self._type.long_name} {seat}",
            facts=facts,
        )

    def step(
        self, state: OpenSpielState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[OpenSpielState, StepOutcome]:
        """The players' actions, then chance's."""
        before = self._at(state)
        chosen: dict[int, int] = {}
        told: dict[str, str] = {}
        for seat in self._seats(before):
            player, moves = self._players[seat], self._moves(before, seat)
            action = actions[player]
            label = next(iter(moves)) if isinstance(action, Malformed) else action.value
            chosen[seat], told[player] = moves[label], label
        together = before.is_simultaneous_node()
        played = [chosen.get(seat, 0) for seat in range(len(self._players))] if together else chosen.values()
        after = self._settle(state, tuple(played), chance)
        node = self._at(after)
        gains = (late - early for early, late in zip(before.returns(), node.returns(), strict=True))
        return after, StepOutcome(
            rewards={player: float(gain) for player, gain in zip(self._players, gains, strict=True)},
            terminated=node.is_terminal(),
            info={"moves": told},
        )

    def _rules(self, seat: int) -> str:
        seats = ", ".join(f"{name} is player {number}" for number, name in enumerate(self._players))
        return (
            f"You are {self._players[seat]}. You play {self._type.long_name} as the library OpenSpiel has it:"
            f" {seats}.\n"
            "At each of your turns you are shown what you know, in the library's notation, and your legal moves.\n"
            "You want as high a total reward as you can get.\n" + reply_with_a_legal_move(self._tag)
        )

    def _reward_range(self) -> tuple[float, float]:
        """Returns lie between the utilities; one step may go from the least to the greatest."""
        least, most = min(0.0, self._game.min_utility()), max(0.0, self._game.max_utility())
        if self._type.reward_model == self._library.GameType.RewardModel.TERMINAL:
            return least, most
        return least - most, most - least

    def _seats(self, node: Any) -> tuple[int, ...]:
        if node.is_terminal():
            return ()
        if node.is_simultaneous_node():
            return tuple(seat for seat in range(len(self._players)) if node.legal_actions(seat))
        return (node.current_player(),)

    @staticmethod
    def _moves(node: Any, seat: int) -> dict[str, int]:
        """Label -> the library's number; a label that several moves share has the number added."""
        actions = node.legal_actions(seat)
        labels = [" ".join(node.action_to_string(seat, action).split()) for action in actions]
        return {
            label if label and labels.count(label) == 1 else f"{label} ({action})".strip(): action
            for label, action in zip(labels, actions, strict=True)
        }

    def _settle(self, state: OpenSpielState, played: tuple[int, ...], chance: Chance) -> OpenSpielState:
        """The state after some actions of players, and all chance that follows."""
        node = self._replayed(state) if self._always_replayed else self._at(state).clone()
        self._apply(node, played)
        history, draws = [*state.history, *played], 0
        while not node.is_terminal() and node.is_chance_node():
            action = draw_outcome(node.chance_outcomes(), chance, draws)
            node.apply_action(action)
            history.append(action)
            draws += 1
        after = OpenSpielState(tuple(history), state.seed)
        self._remember(after, node)
        return after

    def _at(self, state: OpenSpielState) -> Any:
        """The library's state, not to be changed."""
        if state not in self._known:
            self._remember(state, self._replayed(state))
        return self._known[state]

    def _remember(self, state: OpenSpielState, node: Any) -> None:
        self._known[state] = node
        if len(self._known) > MAX_REMEMBERED:
            self._known.pop(next(iter(self._known)))

    def _replayed(self, state: OpenSpielState) -> Any:
        game = self._game
        if self._always_replayed:  # a game holds its stream of luck: each replay needs its own
            seed = {} if state.seed is None else {"rng_seed": state.seed}
            game = self._library.load_game(self._type.short_name, self._game.get_parameters() | seed)
        node, rest = game.new_initial_state(), state.history
        while rest:
            size = len(self._players) if node.is_simultaneous_node() else 1
            self._apply(node, rest[:size])
            rest = rest[size:]
        return node

    @staticmethod
    def _apply(node: Any, played: Sequence[int]) -> None:
        if not played:
            return
        if node.is_simultaneous_node():
            node.apply_actions(list(played))
        else:
            node.apply_action(played[0])

"""A small correct game, and faulty ones: each breaks one rule of the contract in a way that people do break it."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from coplay.games import (
    Action,
    Chance,
    Choice,
    FreeText,
    Game,
    GameSpec,
    Malformed,
    MalformedRule,
    Move,
    Observation,
    StepOutcome,
)
from coplay.games.messages import delivered
from coplay.games.moves import Grammar
from coplay.games.parameters import SeatsParameters, TwoPlayers
from coplay.games.replies import quote_text, strip_reasoning

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class WhisperParameters(SeatsParameters):
    kind: Literal["whisper"] = "whisper"
    players: TwoPlayers = ("Ada", "Bo")


@dataclass(frozen=True, slots=True)
class State:
    round: int
    secrets: tuple[int, ...]
    said: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    over: bool = False


class Whisper(Game[State]):
    """Two rounds: both say something, then both choose; each is paid the other's private number if they agree."""

    Parameters: ClassVar[type[Any]] = WhisperParameters
    name: ClassVar[str] = "whisper"
    declared: ClassVar[dict[str, Any]] = {}
    consequence = "counts as the move 'B'"

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.players = parameters.players
        self.message, self.choice = FreeText(200), Choice(("A", "B"), "move")

    @property
    def spec(self) -> GameSpec:
        rule = MalformedRule(consequence=self.consequence)
        told: dict[str, Any] = {
            "players": self.players,
            "max_steps": 4,
            "has_chance": True,
            "has_rounds": True,
        }
        told |= {"zero_sum": False, "symmetric": True, "reward_range": (0.0, 9.0), "malformed_rule": rule}
        return GameSpec(**told | self.declared)

    def initial_state(self, chance: Chance) -> State:
        return State(0, self.secrets(chance))

    def secrets(self, chance: Chance) -> tuple[int, ...]:
        return tuple(1 + chance.integer("secret", 9, index=seat) for seat in range(2))

    def to_move(self, state: State) -> tuple[str, ...]:
        return () if state.over else self.players

    def observe(self, state: State, player: str) -> Observation:
        seat = self.players.index(player)
        talks = not state.said
        heard = "" if talks else f" The other says {self.heard(state, 1 - seat)}."
        last = f" Last time: {' and '.join(state.last)}." if state.last else ""
        return Observation(
            text=self.text(state, seat) + last + heard,
            grammar=self.message if talks else self.choice,
            system=self.rules(state),
            facts=self.facts(state, seat),
        )

    def text(self, state: State, seat: int) -> str:
        return f"Your number is {state.secrets[seat]}."

    def heard(self, state: State, seat: int) -> str:
        return quote_text(state.said[seat])

    def rules(self, state: State) -> str:
        return "Say something, then choose the same letter to be paid."

    def facts(self, state: State, seat: int) -> dict[str, Any]:
        return {"game": self.name, "number": state.secrets[seat], "round": state.round}

    def step(self, state: State, actions: Mapping[str, Action], chance: Chance) -> tuple[State, StepOutcome]:
        chosen = [actions[player] for player in self.players]
        if not state.said:
            said = tuple(self.said(action) for action in chosen)
            return replace(state, said=said), self.outcome((0.0, 0.0), round_ended=False)
        moves = tuple("B" if isinstance(action, Malformed) else action.value for action in chosen)
        over = state.round == 1
        after = State(state.round + 1, self.secrets(chance), (), moves, over)
        return after, self.outcome(self.pay(moves, state.secrets), terminated=over)

    def said(self, action: Action) -> str:
        return delivered(action, 200, whole_reply=True)

    def pay(self, moves: tuple[str, ...], secrets: tuple[int, ...]) -> tuple[float, ...]:
        return tuple(float(secret) for secret in reversed(secrets)) if moves[0] == moves[1] else (0.0, 0.0)

    def outcome(self, rewards: tuple[float, ...], **flags: Any) -> StepOutcome:
        return StepOutcome(rewards=dict(zip(self.players, rewards, strict=True)), **flags)

    def private(self, state: State, player: str) -> Mapping[str, Any]:
        return {"number": state.secrets[self.players.index(player)]}

    def encode(self, state: State) -> Any:
        return {"round": state.round, "secrets": list(state.secrets), "said": list(state.said)} | {
            "last": list(state.last),
            "over": state.over,
        }

    def decode(self, data: Any) -> State:
        told = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        return State(**told)


FAULTY: dict[str, list[type[Game[Any]]]] = {}
"""Rule -> games that break it."""


def breaks(rule: str) -> Any:
    def note(game: type[Game[Any]]) -> type[Game[Any]]:
        FAULTY.setdefault(rule, []).append(game)
        return game

    return note


@breaks("runs")
class RaisesOnNonsense(Whisper):
    def said(self, action: Action) -> str:
        return str(action.value)  # type: ignore[union-attr]


@breaks("deterministic")
class DrawsElsewhere(Whisper):
    def text(self, state: State, seat: int) -> str:
        return f"{super().text(state, seat)} The sky is {random.choice(['grey', 'blue', 'red'])}."


@breaks("deterministic")
class DrawsSecretsElsewhere(Whisper):
    def secrets(self, chance: Chance) -> tuple[int, ...]:
        return (random.randint(1, 9), random.randint(1, 9))


@breaks("stable_wording")
class TellsASet(Whisper):
    def rules(self, state: State) -> str:
        return "Say one of " + ", ".join({"apples", "pears", "plums", "figs", "dates"}) + "."


@breaks("no_addresses")
class TellsAnObject(Whisper):
    def rules(self, state: State) -> str:
        return f"{super().rules(state)} {type(self)}"


@breaks("serialises")
class ReadsListsBack(Whisper):
    def decode(self, data: Any) -> State:
        return State(**data)


@breaks("serialises")
class ForgetsTheLastMoves(Whisper):
    def encode(self, state: State) -> Any:
        return {**super().encode(state), "last": []}


@breaks("pure_step")
class ChangesItsState(Whisper):
    def step(self, state: State, actions: Mapping[str, Action], chance: Chance) -> tuple[State, StepOutcome]:
        after = super().step(state, actions, chance)
        object.__setattr__(state, "round", state.round + 7)
        return after


@breaks("pure_step")
class ChangesTheActions(Whisper):
    def step(self, state: State, actions: Mapping[str, Action], chance: Chance) -> tuple[State, StepOutcome]:
        after = super().step(state, actions, chance)
        for player in self.players:
            actions[player] = Malformed(reason="empty", text="")  # type: ignore[index]
        return after


@breaks("isolated_forks")
class KeepsATotal(Whisper):
    """The total of a play stands in the instance, which all plays share."""

    total = 0.0

    def initial_state(self, chance: Chance) -> State:
        self.total = 0.0
        return super().initial_state(chance)

    def pay(self, moves: tuple[str, ...], secrets: tuple[int, ...]) -> tuple[float, ...]:
        self.total += 1.0
        return (self.total, self.total)


@breaks("replay_is_fork")
class RemembersElsewhere(Whisper):
    """What was said last stands in the instance alone."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.memory: dict[State, int] = {}

    def initial_state(self, chance: Chance) -> State:
        state = super().initial_state(chance)
        self.memory = {state: 1}
        return state

    def step(self, state: State, actions: Mapping[str, Action], chance: Chance) -> tuple[State, StepOutcome]:
        after, outcome = super().step(state, actions, chance)
        count = self.memory.get(state, 0)
        self.memory[after] = count + 1
        return after, replace(outcome, info={"steps": count})


@breaks("branchable")
class KnowsOnlyTheMainLine(Whisper):
    def secrets(self, chance: Chance) -> tuple[int, ...]:
        return ({"": super().secrets(chance)})[chance.branch]


@breaks("private_stays_private")
class TellsTheOthersNumber(Whisper):
    def text(self, state: State, seat: int) -> str:
        return f"{super().text(state, seat)} The other has {state.secrets[1 - seat]}."


@breaks("private_stays_private")
class TellsItInWords(Whisper):
    def rules(self, state: State) -> str:
        return f"{super().rules(state)} Bo's number is {WORDS[state.secrets[1]]}."


@breaks("private_stays_private")
class TellsItInFacts(Whisper):
    def facts(self, state: State, seat: int) -> dict[str, Any]:
        return super().facts(state, seat) | {"numbers": list(state.secrets)}


class Owes(Whisper):
    """Numbers on both sides of zero, as the values of things one would rather not have."""

    declared: ClassVar[dict[str, Any]] = {"reward_range": (-4.0, 4.0)}

    def secrets(self, chance: Chance) -> tuple[int, ...]:
        return tuple(number - 5 for number in super().secrets(chance))


@breaks("private_stays_private")
class TellsWhatIsOwed(Owes):
    """Without the sign it would drown in the other numbers."""

    def text(self, state: State, seat: int) -> str:
        return f"{super().text(state, seat)} The other has {state.secrets[1 - seat]}. Nobody owes 0, 1, 2, 3 or 4."


@breaks("private_stays_private")
class TellsOnlySevens(Whisper):
    def text(self, state: State, seat: int) -> str:
        lucky = " Somebody has seven." if state.secrets[1 - seat] == 7 else ""
        return super().text(state, seat) + lucky


@breaks("private_stays_private")
class TellsItLate(Whisper):
    def text(self, state: State, seat: int) -> str:
        late = f" Now you may know: {state.secrets[0]}." if state.said and state.round else ""
        return super().text(state, seat) + late


@breaks("reasoning_stays_private")
class EchoesThoughts(Whisper):
    def step(self, state: State, actions: Mapping[str, Action], chance: Chance) -> tuple[State, StepOutcome]:
        after, outcome = super().step(state, actions, chance)
        thoughts = tuple(
            "quetzal" if action.text.startswith("a\n") else action.text for action in actions.values()
        )
        return (replace(after, said=thoughts) if after.said else after), outcome


@breaks("replies_are_quoted")
class ShowsRepliesRaw(Whisper):
    def heard(self, state: State, seat: int) -> str:
        return strip_reasoning(state.said[seat])


@breaks("tells_something")
class SaysNothing(Whisper):
    def text(self, state: State, seat: int) -> str:
        return " "


@breaks("tells_something")
class PassesBrokenTextOn(Whisper):
    def said(self, action: Action) -> str:
        return action.text

    def heard(self, state: State, seat: int) -> str:
        return state.said[seat].replace("\n", " ")


@breaks("rules_stay_the_same")
class ChangesTheRules(Whisper):
    def rules(self, state: State) -> str:
        return f"Round {state.round} of 2. {super().rules(state)}"


@breaks("movers_are_players")
class MovesOneTwice(Whisper):
    def to_move(self, state: State) -> tuple[str, ...]:
        return (*super().to_move(state), *super().to_move(state)[:1])


@breaks("ends_in_time")
class TakesLonger(Whisper):
    declared: ClassVar[dict[str, Any]] = {"max_steps": 3}


@breaks("over_when_nobody_moves")
class EndsUnsaid(Whisper):
    def outcome(self, rewards: tuple[float, ...], **flags: Any) -> StepOutcome:
        return super().outcome(rewards, **flags | {"terminated": False})


@breaks("over_when_nobody_moves")
class SaysItIsOver(Whisper):
    def outcome(self, rewards: tuple[float, ...], **flags: Any) -> StepOutcome:
        return super().outcome(rewards, **flags | {"terminated": True})


@breaks("rounds_as_declared")
class HasUndeclaredRounds(Whisper):
    declared: ClassVar[dict[str, Any]] = {"has_rounds": False}


@breaks("rounds_as_declared")
class EndsEveryStep(Whisper):
    def outcome(self, rewards: tuple[float, ...], **flags: Any) -> StepOutcome:
        return super().outcome(rewards, **flags | {"round_ended": True})


@breaks("rewards_complete")
class ForgetsThePoor(Whisper):
    def outcome(self, rewards: tuple[float, ...], **flags: Any) -> StepOutcome:
        paid = super().outcome(rewards, **flags)
        return replace(paid, rewards={name: reward for name, reward in paid.rewards.items() if reward})


@breaks("rewards_finite")
class DividesByNothing(Whisper):
    def pay(self, moves: tuple[str, ...], secrets: tuple[int, ...]) -> tuple[float, ...]:
        return super().pay(moves, secrets) if moves[0] == moves[1] else (float("nan"), float("nan"))


@breaks("rewards_finite")
class PaysWholeNumbers(Whisper):
    def pay(self, moves: tuple[str, ...], secrets: tuple[int, ...]) -> tuple[float, ...]:
        return tuple(map(int, super().pay(moves, secrets)))


@breaks("rewards_in_range")
class PaysTooMuch(Whisper):
    declared: ClassVar[dict[str, Any]] = {"reward_range": (0.0, 5.0)}


@breaks("zero_sum")
class IsNoZeroSum(Whisper):
    declared: ClassVar[dict[str, Any]] = {"zero_sum": True}


@breaks("symmetric")
class FavoursTheFirst(Whisper):
    def pay(self, moves: tuple[str, ...], secrets: tuple[int, ...]) -> tuple[float, ...]:
        one, other = super().pay(moves, secrets)
        return (min(9.0, one + 4.0), other)


@breaks("symmetric")
class FavoursTheFirstWithoutLuck(Whisper):
    declared: ClassVar[dict[str, Any]] = {"has_chance": False}

    def secrets(self, chance: Chance) -> tuple[int, ...]:
        return (3, 3)

    def pay(self, moves: tuple[str, ...], secrets: tuple[int, ...]) -> tuple[float, ...]:
        return (1.0, 0.0) if moves == ("A", "B") else (0.0, 0.0)


@breaks("names_change_nothing")
class PaysInAlphabeticalOrder(Whisper):
    def outcome(self, rewards: tuple[float, ...], **flags: Any) -> StepOutcome:
        paid = dict(zip(sorted(self.players), rewards, strict=True))
        return StepOutcome(rewards={player: paid[player] for player in self.players}, **flags)


@breaks("chance_as_declared")
class HidesItsLuck(Whisper):
    declared: ClassVar[dict[str, Any]] = {"has_chance": False}


@breaks("chance_as_declared")
class ClaimsLuck(Whisper):
    def secrets(self, chance: Chance) -> tuple[int, ...]:
        return (4, 4)


@breaks("draws_have_names")
class DrawsTwiceByOneName(Whisper):
    def secrets(self, chance: Chance) -> tuple[int, ...]:
        return (1 + chance.integer("secret", 9), 1 + chance.integer("secret", 8))


@breaks("json_values")
class TellsTuples(Whisper):
    def facts(self, state: State, seat: int) -> dict[str, Any]:
        return super().facts(state, seat) | {"last": state.last}


@breaks("declares_malformed")
class DeclaresNoConsequence(Whisper):
    consequence = " "


@breaks("malformed_as_declared")
class TakesSilenceForB(Whisper):
    consequence = "counts as the move 'A'"


@breaks("pure_observe")
class CountsLooks(Whisper):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.looks = 0

    def text(self, state: State, seat: int) -> str:
        self.looks += 1
        return f"{super().text(state, seat)} Look {self.looks % 3}."


@breaks("pure_observe")
class HandsOutItsOwnFacts(Whisper):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.shared = {"game": self.name, "items": ["hats"]}

    def facts(self, state: State, seat: int) -> dict[str, Any]:
        return self.shared


class WithGrammar(Whisper):
    grammar: ClassVar[Grammar]

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.choice = self.grammar  # type: ignore[assignment]


class SearchesTheReply(Choice):
    def parse(self, text: str) -> Action:
        if not text.strip():
            return Malformed(reason="empty", text="")
        for label in self.options:
            if label in text:
                return Move(value=label, text=self.write(label))
        return Malformed(reason="no_move", text=text)


@breaks("grammar_needs_a_clear_answer")
class TakesWhatIsOnlyDiscussed(WithGrammar):
    grammar = SearchesTheReply(("A", "B"))


class ReadsOnlyCapitals(Choice):
    def parse(self, text: str) -> Action:
        return super().parse(text.strip()[:1].replace("b", ""))


@breaks("grammar_reads_what_it_writes")
class ListsWhatItDoesNotRead(WithGrammar):
    grammar = ReadsOnlyCapitals(("a", "b"))


class Fragile(Choice):
    def parse(self, text: str) -> Action:
        text.encode("utf-8")
        return super().parse(text)


@breaks("grammar_rejects_the_rest")
class BreaksOnHalfAPair(WithGrammar):
    grammar = Fragile(("A", "B"), "move")


class Generous(Choice):
    def parse(self, text: str) -> Action:
        return super().parse(text) if text in self.options or len(text) < 2 else Move(value=text, text=text)


@breaks("grammar_rejects_the_rest")
class TakesAnything(WithGrammar):
    grammar = Generous(("A", "B"))


class OfAnotherKind(Choice):
    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "kind": "choice_of_mine"}


@breaks("grammar_serialises")
class CannotBeReadBack(WithGrammar):
    grammar = OfAnotherKind(("A", "B"))

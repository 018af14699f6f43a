"""One episode while it is played: its bookkeeping between waves. Exceptions pass; `collect` catches them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from coplay.agents.base import Agent, ContextOverflowError, Reply, Seat, TurnKey
from coplay.games import (
    Action,
    Chance,
    Game,
    GameSpec,
    Malformed,
    Move,
    Observation,
    derive_seed,
)
from coplay.rollout_tree.checks import check_observation, check_outcome, check_reply
from coplay.rollout_tree.json_text import plain
from coplay.rollout_tree.plan import EpisodePlan
from coplay.rollout_tree.records import Failure, RolloutTree, Status, Step, Turn
from coplay.rollout_tree.replies import ask_again, understand


@dataclass(slots=True)
class Ask:
    """A request for one reply."""

    player: str
    observation: Observation
    attempt: int


class Play:
    """An episode in progress: who is asked now, what was played, and why it ended."""

    def __init__(self, game: Game[Any], spec: GameSpec, plan: EpisodePlan) -> None:
        self.plan = plan
        self.asks: list[Ask] = []
        """Who is to reply now; empty once the episode is over."""
        self.culprit = ""
        """Whose code is running: a player's agent, or the game's if empty."""
        self.failure: Failure | None = None
        self.cause: Exception | None = None
        self.waited = 0.0
        """Seconds spent waiting for replies."""
        self.movers: tuple[str, ...] = ()
        self._game, self._spec = game, spec
        self._agents: dict[str, Agent] = {}
        self._state: Any = None
        self._round = 0
        self._steps: list[Step] = []
        self._turns: list[Turn] = []
        self._actions: dict[str, Action] = {}
        self._closing: dict[str, Turn] = {}

    def start(self) -> None:
        """Seat the agents, open the game and ask its first players."""
        plan = self.plan
        for player in self._spec.players:
            self.culprit = player
            seed = derive_seed(plan.run_seed, "agent", plan.iteration, plan.episode, player)
            self._agents[player] = plan.seats[player](
                Seat(
                    game=self._game.name,
                    player=player,
                    players=self._spec.players,
                    episode=plan.episode,
                    seed=seed,
                )
            )
        self.culprit = ""
        self._state = self._game.initial_state(Chance(plan.group_seed))
        self.movers = self._to_move()
        if not self.movers:
            raise ValueError("the game is over before its first step; expected players to move")
        self._ask()

    async def answer(self, ask: Ask) -> Reply:
        """The agent's reply to what he is asked now."""
        key = TurnKey(
            episode=self.plan.episode,
            branch="",
            player=ask.player,
            step=len(self._steps),
            attempt=ask.attempt,
        )
        return await self._agents[ask.player].reply(ask.observation, key)

    def proceed(self, answers: Sequence[Callable[[], Reply]]) -> None:
        """Take one answer for each of `asks`, in their order; then ask again, step, or end.

        An answer that raises `ContextOverflowError` ends the episode: its step is not played, and the
        last complete step becomes the truncated one (rule 13). Without a complete step the error passes.
        """
        asks, self.asks = self.asks, []
        overflows: dict[str, ContextOverflowError] = {}
        for ask, answer in zip(asks, answers, strict=True):
            self.culprit = ask.player
            try:
                reply = answer()
            except ContextOverflowError as error:
                overflows[ask.player] = error
                continue
            self._take(ask, reply)
        if overflows:
            self._cut_short(overflows)
        elif not self.asks:
            self._step()

    def _take(self, ask: Ask, reply: Reply) -> None:
        check_reply(reply, self.plan.seat_names[ask.player])
        self.culprit = ""
        action = understand(reply, ask.observation.grammar)
        penalty = 0.0
        recorded = action
        if isinstance(action, Malformed):
            rule = self._spec.malformed_rule
            penalty = rule.penalty
            if ask.attempt < rule.retries:
                again = self._observed(ask_again(ask.observation, action))
                self.asks.append(Ask(ask.player, again, ask.attempt + 1))
        else:
            value = plain(action.value, "a move")
            recorded = action if value is action.value else replace(action, value=value)
        self._actions[ask.player] = action
        self._turns.append(
            Turn(
                player=ask.player,
                observation=ask.observation,
                reply=reply.text,
                action=recorded,
                segments=reply.segments,
                policy=reply.policy,
                finish=reply.finish,
                attempt=ask.attempt,
                sampling=reply.sampling,
                tokenizer=reply.tokenizer,
                fresh_context=reply.fresh_context,
                penalty=penalty,
            )
        )

    def _step(self) -> None:
        self.culprit = ""
        index = len(self._steps)
        actions = {player: self._actions[player] for player in self.movers}
        luck = Chance(self.plan.group_seed, index + 1)
        self._state, outcome = self._game.step(self._state, actions, luck)
        check_outcome(outcome, self._spec)
        self.movers = self._to_move()
        status: Status = "running"
        if outcome.truncated:
            status = "truncated"
        elif outcome.terminated or not self.movers:
            status = "terminated"
        self._record(index, status, outcome.rewards, plain(outcome.info, f"info of step {index}"))
        self._round += outcome.round_ended
        if status == "running":
            if index + 1 >= self._spec.max_steps:
                raise ValueError(
                    f"the game goes on after step {index}; its max_steps is {self._spec.max_steps}"
                )
            self._ask()

    def _record(
        self, index: int, status: Status, rewards: Mapping[str, float], info: Mapping[str, Any]
    ) -> None:
        turns = self._turns
        if len(turns) > len(self._actions):  # retries came in later waves
            turns.sort(key=lambda turn: self._spec.players.index(turn.player))
        step = Step(
            id=index,
            parent=index - 1 if index else None,
            branch="",
            index=index,
            tick=self._round if self._spec.has_rounds else index,
            turns=tuple(turns),
            rewards={player: float(rewards[player]) for player in self._spec.players},
            status=status,
            info=info,
        )
        self._steps.append(step)
        self._turns, self._actions = [], {}

    def _to_move(self) -> tuple[str, ...]:
        movers = self._game.to_move(self._state)
        players = self._spec.players
        ordered = tuple([player for player in players if player in movers])
        if len(ordered) != len(movers):
            raise ValueError(f"to_move gave {movers!r}; expected some of the players {players!r}, each once")
        return ordered

    def _ask(self) -> None:
        for player in self.movers:
            self.asks.append(Ask(player, self._observed(self._game.observe(self._state, player)), 0))

    @staticmethod
    def _observed(observation: Observation) -> Observation:
        check_observation(observation)
        facts = plain(observation.facts, "facts of an observation")
        return observation if facts is observation.facts else replace(observation, facts=facts)

    def _cut_short(self, overflows: Mapping[str, ContextOverflowError]) -> None:
        first = next(iter(overflows))
        if not self._steps:
            self.culprit = first
            raise overflows[first]
        last = self._steps[-1]
        info = {**last.info, "context_overflow": first}
        self._steps[-1] = replace(last, status="truncated", info=info)
        self.asks = []
        for turn in self._turns:
            if turn.attempt == 0:
                self._closing[turn.player] = _unanswered(turn)
        self._agents = {p: agent for p, agent in self._agents.items() if p not in overflows}

    def closers(self) -> tuple[str, ...]:
        """After a truncation: players whose next observation is still to be read."""
        if not self._steps or self._steps[-1].status != "truncated":
            return ()
        return tuple(player for player in self._agents if player not in self._closing)

    def close(self, player: str) -> None:
        """Let a player's agent read the state after the last step, where V is asked for."""
        self.culprit = ""
        observation = self._observed(self._game.observe(self._state, player))
        self.culprit = player
        reply = self._agents[player].close(observation)
        if reply is None:
            return
        check_reply(reply, self.plan.seat_names[player])
        self._closing[player] = Turn(
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

    def fail(self, cause: Exception) -> None:
        """End the episode as failed; complete steps stay."""
        reason = f"{type(cause).__name__}: {cause}"
        self.failure = Failure(player=self.culprit, step=len(self._steps), reason=reason)
        self.cause = cause
        self.asks = []

    def finish(self) -> None:
        """Put the closing turns where they belong and let the agents go."""
        if self._closing:
            turns = tuple(self._closing[player] for player in self._spec.players if player in self._closing)
            self._steps[-1] = replace(self._steps[-1], closing=turns)
        self._agents = {}

    def tree(self) -> RolloutTree:
        """What was played, as a record."""
        plan = self.plan
        return RolloutTree(
            episode=plan.episode,
            iteration=plan.iteration,
            game=self._game.name,
            group=plan.group,
            group_seed=plan.group_seed,
            seats={player: plan.seat_names[player] for player in self._spec.players},
            steps=tuple(self._steps),
            failure=self.failure,
        )


def _unanswered(turn: Turn) -> Turn:
    """A turn of a step that is not played, without its reply: its observation is the player's closing one."""
    return replace(
        turn,
        reply="",
        action=Move(value=None, text=""),
        segments=tuple(takewhile(lambda segment: not segment.sampled, turn.segments)),
        finish="none",
        sampling=None,
        penalty=0.0,
    )

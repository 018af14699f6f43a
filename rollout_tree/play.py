"""One episode while it is played: its bookkeeping between waves. Exceptions pass; `collect` catches them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from coplay.agents.base import Agent, ContextOverflowError, Reply, Seat, TurnKey
from coplay.games import (
    Action,
    Chance,
    Game,
    GameSpec,
    Malformed,
    derive_seed,
)
from coplay.rollout_tree.branching import BranchPlan, Luck, Origin
from coplay.rollout_tree.checks import check_outcome, check_reply, movers_in, observed
from coplay.rollout_tree.forking import Forks
from coplay.rollout_tree.json_text import plain
from coplay.rollout_tree.plan import EpisodePlan
from coplay.rollout_tree.records import Failure, Status, Step, Turn
from coplay.rollout_tree.replies import Ask, ask_again, closing_turn, turn_of, unanswered, understand


class Play:
    """An episode, or a branch of one, in progress: who is asked now, what was played, and why it ended."""

    def __init__(
        self,
        game: Game[Any],
        spec: GameSpec,
        plan: EpisodePlan,
        *,
        branching: BranchPlan | None = None,
        origin: Origin | None = None,
    ) -> None:
        """Prepare a main line, or the branch that starts at `origin`; either may fork as `branching` says."""
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
        self.origin = origin
        self._game, self._spec = game, spec
        self._first = 0 if origin is None else origin.step
        self.branch = "" if origin is None else origin.branch
        level = 0 if origin is None else origin.level
        self.forks: Forks | None = None
        """What branches of this line start from; None: it does not fork."""
        if branching is not None and level < branching.depth:
            luck = Luck(
                run_seed=plan.run_seed, iteration=plan.iteration, episode=plan.episode, branch=self.branch
            )
            self.forks = Forks(branching, luck, origin)
        self._tells_entropy = branching is not None and branching.reads_entropy
        self._agents: dict[str, Agent] = {}
        self._state: Any = None
        self._round = 0
        self._steps: list[Step] = []
        self._turns: list[Turn] = []
        self._actions: dict[str, Action] = {}
        self._entropies: dict[str, float] = {}
        self._closing: dict[str, Turn] = {}

    def start(self) -> None:
        """Seat the agents, open the game and ask its first players; or take a branch up where it starts."""
        if self.origin is not None:
            self._resume(self.origin)
            return
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
                    parameters=self._game.parameters,
                    tells_entropy=self._tells_entropy,
                )
            )
        self.culprit = ""
        self._state = self._game.initial_state(Chance(plan.group_seed, order=plan.order))
        self.movers = movers_in(self._game.to_move(self._state), self._spec.players)
        if not self.movers:
            raise ValueError("the game is over before its first step; expected players to move")
        self._ask(self.movers)

    def _resume(self, origin: Origin) -> None:
        """Go back to before the step, with the others' replies given, and ask one player anew."""
        for player in self._spec.players:
            self.culprit = player
            agents = origin.before.agents if player == origin.player else origin.agents_after
            self._agents[player] = agents[player].fork()
        self.culprit = ""
        self._state, self._round = origin.before.state, origin.before.round
        self.movers = origin.before.movers
        self._turns, self._actions = list(origin.held), dict(origin.actions)
        self._ask((origin.player,))

    @property
    def _index(self) -> int:
        """Number of the step that is being played."""
        return self._first + len(self._steps)

    async def answer(self, ask: Ask) -> Reply:
        """The agent's reply to what he is asked now."""
        key = TurnKey(
            episode=self.plan.episode,
            branch=self.branch,
            player=ask.player,
            step=self._index,
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
                again = observed(ask_again(ask.observation, action))
                self.asks.append(Ask(ask.player, again, ask.attempt + 1))
        else:
            value = plain(action.value, "a move")
            recorded = action if value is action.value else replace(action, value=value)
        self._actions[ask.player] = action
        if reply.entropy is not None and not ask.attempt:
            self._entropies[ask.player] = reply.entropy
        self._turns.append(
            turn_of(ask.player, ask.observation, reply, recorded, attempt=ask.attempt, penalty=penalty)
        )

    def _step(self) -> None:
        self.culprit = ""
        index, origin = self._index, self.origin
        actions = {player: self._actions[player] for player in self.movers}
        if self.forks is not None:
            self.forks.after(index, actions, self._entropies, self._snapshot)
        fresh = origin is not None and origin.fresh_luck
        luck = Chance(self.plan.group_seed, index + 1, self.branch if fresh else "", self.plan.order)
        self._state, outcome = self._game.step(self._state, actions, luck)
        check_outcome(outcome, self._spec)
        self.movers = movers_in(self._game.to_move(self._state), self._spec.players)
        status: Status = "running"
        info = plain(outcome.info, f"info of step {index}")
        if outcome.truncated:
            status = "truncated"
        elif outcome.terminated or not self.movers:
            status = "terminated"
        elif origin and origin.is_cut(self.tick, ended=outcome.round_ended or not self._spec.has_rounds):
            status, info = "truncated", {**info, "branch_horizon": True}
        if origin and origin.facts and index == self._first:
            info = {**info, "branch_fork": dict(origin.facts)}
        self._record(index, status, outcome.rewards, info)
        self._round += outcome.round_ended
        if status == "running":
            if index + 1 >= self._spec.max_steps:
                raise ValueError(
                    f"the game goes on after step {index}; its max_steps is {self._spec.max_steps}"
                )
            self._ask(self.movers)

    def _snapshot(self) -> dict[str, Agent]:
        """Forks of all agents as they stand."""
        forks = {}
        for player, agent in self._agents.items():
            self.culprit = player
            forks[player] = agent.fork()
        self.culprit = ""
        return forks

    def _record(
        self, index: int, status: Status, rewards: Mapping[str, float], info: Mapping[str, Any]
    ) -> None:
        turns = self._turns
        if len(turns) > len(self._actions) or self.origin is not None:  # retries came in later waves
            turns.sort(key=lambda turn: self._spec.players.index(turn.player))
        step = Step(
            id=index,
            parent=index - 1 if index else None,
            branch=self.branch,
            index=index,
            tick=self.tick,
            turns=tuple(turns),
            rewards={player: float(rewards[player]) for player in self._spec.players},
            status=status,
            info=info,
        )
        self._steps.append(step)
        self._turns, self._actions, self._entropies = [], {}, {}

    @property
    def tick(self) -> int:
        """Tick of the step that is being played."""
        return self._round if self._spec.has_rounds else self._index

    def _ask(self, players: Sequence[str]) -> None:
        if self.forks is not None:
            self.forks.before(self._index, self.tick, self._state, self.movers, self._snapshot)
        for player in players:
            self.asks.append(Ask(player, observed(self._game.observe(self._state, player)), 0))

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
                self._closing[turn.player] = unanswered(turn)
        self._agents = {p: agent for p, agent in self._agents.items() if p not in overflows}

    def closers(self) -> tuple[str, ...]:
        """After a truncation: players whose next observation is still to be read."""
        if not self._steps or self._steps[-1].status != "truncated":
            return ()
        return tuple(player for player in self._agents if player not in self._closing)

    def close(self, player: str) -> None:
        """Let a player's agent read the state after the last step, where V is asked for."""
        self.culprit = ""
        observation = observed(self._game.observe(self._state, player))
        self.culprit = player
        reply = self._agents[player].close(observation)
        if reply is None:
            return
        check_reply(reply, self.plan.seat_names[player])
        self._closing[player] = closing_turn(player, observation, reply)

    def fail(self, cause: Exception) -> None:
        """End the episode as failed; complete steps stay."""
        reason = f"{type(cause).__name__}: {cause}"
        self.failure = Failure(player=self.culprit, step=self._index, reason=reason)
        self.cause = cause
        self.asks = []

    def finish(self) -> None:
        """Put the closing turns where they belong and let the agents go."""
        if self._closing:
            turns = tuple(self._closing[player] for player in self._spec.players if player in self._closing)
            self._steps[-1] = replace(self._steps[-1], closing=turns)
        self._agents = {}

    @property
    def players(self) -> tuple[str, ...]:
        """All players in the game's order."""
        return self._spec.players

    @property
    def steps(self) -> tuple[Step, ...]:
        """What was played, numbered along this line."""
        return tuple(self._steps)

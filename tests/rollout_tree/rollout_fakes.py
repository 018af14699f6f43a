"""Small games and agents, named for how they behave."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from coplay.agents.base import (
    Agent,
    AgentFactory,
    ContextOverflowError,
    Reply,
    Sampling,
    Seat,
    Segment,
    TurnKey,
)
from coplay.games import (
    Action,
    Chance,
    Choice,
    Game,
    GameParameters,
    GameSpec,
    Malformed,
    MalformedRule,
    Observation,
    StepOutcome,
)
from coplay.rollout_tree import CollectPlan, RolloutTree, collect_sync, plan_episodes

YES_NO = Choice(("yes", "no"))
STOP = 9
"""The end token of the fake tokenizer, which is also its padding token (B07)."""
Outcome = Callable[[int, Mapping[str, Action], Chance], StepOutcome]


@dataclass(frozen=True, slots=True)
class Count:
    """How many steps were played, and who has left."""

    step: int = 0
    over: bool = False
    gone: tuple[str, ...] = ()


class Counting(Game[Count]):
    """Ends after `length` steps; every player gets 1 for yes and 0 for anything else, at every step.

    What a test wants otherwise is given by `outcome`, `movers`, `observed` and `spec_changes`.
    """

    Parameters = GameParameters
    name = "counting"

    def __init__(self, length: int = 3, players: Sequence[str] = ("ada", "bo"), **hooks: Any) -> None:
        super().__init__(GameParameters())
        self.length, self.players = length, tuple(players)
        self.outcome: Outcome | None = hooks.pop("outcome", None)
        self.movers: Callable[[Count], tuple[str, ...]] | None = hooks.pop("movers", None)
        self.observed: Callable[[Count, str], Observation] | None = hooks.pop("observed", None)
        changes = {
            "max_steps": length,
            "has_chance": True,
            "has_rounds": False,
            "zero_sum": False,
            "symmetric": True,
            "reward_range": (0.0, 1.0),
            "malformed_rule": MalformedRule(consequence="counts as no"),
        }
        self._spec = GameSpec(players=self.players, **(changes | hooks))

    @property
    def spec(self) -> GameSpec:
        return self._spec

    def initial_state(self, chance: Chance) -> Count:
        return Count()

    def to_move(self, state: Count) -> tuple[str, ...]:
        if state.over:
            return ()
        return self.movers(state) if self.movers else self.players

    def observe(self, state: Count, player: str) -> Observation:
        if self.observed:
            return self.observed(state, player)
        return Observation(
            text=f"step {state.step}", grammar=YES_NO, system=f"you are {player}", facts={"step": state.step}
        )

    def step(self, state: Count, actions: Mapping[str, Action], chance: Chance) -> tuple[Count, StepOutcome]:
        played = state.step + 1
        if self.outcome is not None:
            outcome = self.outcome(state.step, actions, chance)
        else:
            outcome = StepOutcome(
                rewards={p: float(said(actions.get(p)) == "yes") for p in self.players},
                terminated=played == self.length,
                info={
                    "moves": {p: said(a) for p, a in actions.items()},
                    "luck": chance.integer("luck", 1000),
                },
            )
        return replace(state, step=played, over=outcome.terminated), outcome

    def private(self, state: Count, player: str) -> Mapping[str, Any]:
        return {}

    def encode(self, state: Count) -> Any:
        return [state.step, state.over]

    def decode(self, data: Any) -> Count:
        return Count(*data)


def said(action: Action | None) -> Any:
    """A move's value; a malformed reply counts as no."""
    return "no" if action is None or isinstance(action, Malformed) else action.value


@dataclass
class Scripted:
    """Says the same thing, or what `say(observation, key)` gives; no tokens. May raise or sleep."""

    seat: Seat
    say: str | Callable[[Observation, TurnKey], str] = "yes"
    finish: str = "stop"
    policy: str = "scripted"
    seen: list[tuple[Observation, TurnKey]] = field(default_factory=list)

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        self.seen.append((observation, key))
        text = self.say if isinstance(self.say, str) else self.say(observation, key)
        return Reply(text=text, policy=self.policy, finish=self.finish)  # type: ignore[arg-type]

    def close(self, observation: Observation) -> Reply | None:
        return None

    def fork(self) -> Agent:
        return self


@dataclass
class Tokens:
    """A policy with tokens: three ids for what is new (one is the end token), two or so for each reply."""

    seat: Seat
    policy: str = "tiny@0"
    words: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: {"yes": (5, STOP), "no": (6, STOP)})
    say: Callable[[TurnKey], str] = lambda key: "yes" if (key.step + len(key.player)) % 2 else "no"
    fresh_at: tuple[int, ...] = ()
    overflow_at: int | None = None
    log_prob: float = -0.5
    closed: int = 0

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        if key.step == self.overflow_at:
            raise ContextOverflowError(f"{self.seat.player} is full")
        text = self.say(key)
        ids = self.words.get(text, (8,))
        return Reply(
            text=text,
            policy=self.policy,
            segments=(
                Segment((STOP, 1, 100 + key.step)),
                Segment(ids, True, (self.log_prob,) * len(ids)),
            ),
            sampling=Sampling(temperature=1.0, max_new_tokens=4, seed=key.step, constrained=True),
            tokenizer="fake",
            fresh_context=key.step in self.fresh_at,
        )

    def close(self, observation: Observation) -> Reply | None:
        self.closed += 1
        return Reply(
            text="", policy=self.policy, finish="none", segments=(Segment((1, 7)),), tokenizer="fake"
        )

    def fork(self) -> Agent:
        return replace(self)


@dataclass
class Sleeper:
    """Replies at once, but sleeps at step `at` as long as told."""

    seat: Seat
    at: int
    seconds: float
    policy: str = "sleeper"

    async def reply(self, observation: Observation, key: TurnKey) -> Reply:
        if key.step == self.at:
            await asyncio.sleep(self.seconds)
        return Reply(text="yes", policy=self.policy)

    def close(self, observation: Observation) -> Reply | None:
        return None

    def fork(self) -> Agent:
        return self


def plan_for(
    game: Game[Any],
    agents: Mapping[str, AgentFactory],
    names: Mapping[str, str] | None = None,
    *,
    num_groups: int = 1,
    group_size: int = 1,
    iteration: int = 0,
    **options: Any,
) -> CollectPlan:
    """A plan with these agents in every episode; names are asked of the agents where not given."""
    probe = {
        player: make(
            Seat(game=game.name, player=player, players=game.spec.players, episode="", seed=0)
        ).policy
        for player, make in agents.items()
    }
    episodes = plan_episodes(
        game,
        run_seed=7,
        iteration=iteration,
        num_groups=num_groups,
        group_size=group_size,
        seats=agents,
        seat_names=names or probe,
    )
    return CollectPlan(game=game, episodes=episodes, **options)


def play(
    game: Game[Any], agents: Mapping[str, AgentFactory] | AgentFactory = Tokens, **options: Any
) -> list[RolloutTree]:
    """Collect with the same agent everywhere, or one a player."""
    seats = agents if isinstance(agents, Mapping) else dict.fromkeys(game.spec.players, agents)
    return collect_sync(plan_for(game, seats, **options))


def play_one(
    game: Game[Any], agents: Mapping[str, AgentFactory] | AgentFactory = Tokens, **options: Any
) -> RolloutTree:
    """The only tree of a plan of one episode."""
    (tree,) = play(game, agents, **options)
    return tree

"""Which replies are resampled, and what an episode keeps for it while it is played."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coplay.agents.base import Agent
from coplay.games import Action, derive_seed
from coplay.games.chance import SEED_BITS
from coplay.games.names import nearest
from coplay.rollout_tree.records import Step, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPlan:
    """Where the main lines of a collect fork, and how each branch is played on.

    A fork is a step of the main line and a player: his reply is sampled anew, the others' moves of that step are
    held. Places are known before anyone replies there, never by outcome (rule 11). Branches do not fork again.

    Raises:
        ValueError: if a number is out of its range.
    """

    players: tuple[str, ...] | None = None
    """Whose replies are resampled; None: everyone's whose replies have tokens."""
    every: int = 1
    """Fork in every k-th tick (round where declared, else step), from the first on; 1: in all."""
    share: float = 1.0
    """Share of those (step, player) that are drawn to be forks, each by a coin of its own (law 7)."""
    num_alternatives: int = 1
    """Branches at each fork, besides the reply taken."""
    horizon: int | None = None
    """Ticks a branch is played, that of the fork included, before it is truncated; None: to the end."""
    fresh_luck: bool = False
    """Draw later luck anew in every branch; False: the main line's draws (common random numbers)."""
    max_branches: int | None = None
    """Most branches of an episode, spent on whole forks from the first step on; None: no limit."""

    def __post_init__(self) -> None:
        counts = {"every": self.every, "num_alternatives": self.num_alternatives, "horizon": self.horizon}
        for name, count in counts.items():
            if count is not None and count < 1:
                raise ValueError(f"branching.{name} is {count}; expected at least 1")
        if not 0 < self.share <= 1:
            raise ValueError(f"branching.share is {self.share}; expected a number above 0, at most 1")
        if self.max_branches is not None and self.max_branches < 0:
            raise ValueError(f"branching.max_branches is {self.max_branches}; expected at least 0")

    def check_players(self, players: Sequence[str]) -> None:
        """Refuse names that the game does not have.

        Raises:
            ValueError: if there is one.
        """
        for player in self.players or ():
            if player not in players:
                raise ValueError(
                    f"branching names player {player!r}; expected some of"
                    f" {list(players)}{nearest(player, players)}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """What the coins of an episode's forks are a function of, besides step and player."""

    run_seed: int
    iteration: int
    episode: str

    def coin(self, step: int, player: str) -> int:
        """Uniform in [0, 2^SEED_BITS)."""
        return derive_seed(self.run_seed, "fork", self.iteration, self.episode, step, player)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An episode before one of its steps."""

    state: Any
    round: int
    movers: tuple[str, ...]
    agents: Mapping[str, Agent]
    """Forks that never reply themselves."""


@dataclass(slots=True, kw_only=True)
class _Place:
    """A step of the main line at which players were drawn to be resampled."""

    tick: int
    players: tuple[str, ...]
    """In the order in which a budget is spent on them."""
    before: Moment
    actions: Mapping[str, Action] | None = None
    """What was played; None until the step is complete."""
    agents_after: Mapping[str, Agent] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a branch leaves the main line."""

    branch: str
    step: int
    """Step of the main line in whose place the branch's first step stands."""
    player: str
    """Whose reply is sampled anew."""
    before: Moment
    agents_after: Mapping[str, Agent]
    """The agents after they have replied at that step: the others go on from there."""
    held: tuple[Turn, ...]
    """The others' turns of that step."""
    actions: Mapping[str, Action]
    """The others' actions of that step."""
    fresh_luck: bool
    last_tick: int | None
    """Tick after which the branch is cut; None: never."""


class Forks:
    """Keeps what branches of one episode start from, while its main line is played."""

    def __init__(self, plan: BranchPlan, luck: Luck) -> None:
        self._plan, self._luck = plan, luck
        self._places: dict[int, _Place] = {}

    def before(
        self,
        step: int,
        tick: int,
        state: Any,
        movers: tuple[str, ...],
        snapshot: Callable[[], Mapping[str, Agent]],
    ) -> None:
        """Keep the episode as it stands before a step, if somebody is drawn there."""
        drawn = self._drawn(step, tick, movers)
        if drawn:
            last = self._places.get(step - 1)
            agents = snapshot() if last is None or last.agents_after is None else last.agents_after
            moment = Moment(state=state, round=tick, movers=movers, agents=agents)
            self._places[step] = _Place(tick=tick, players=drawn, before=moment)

    def after(
        self, step: int, actions: Mapping[str, Action], snapshot: Callable[[], Mapping[str, Agent]]
    ) -> None:
        """Keep what was played at a step and the agents as they stand after it, if the step is a fork."""
        place = self._places.get(step)
        if place is not None:
            place.actions, place.agents_after = actions, snapshot()

    def origins(self, steps: Sequence[Step]) -> tuple[Origin, ...]:
        """All branches of a complete main line, by step, then by coin, then by number."""
        plan, found = self._plan, list[Origin]()
        for number, place in sorted(self._places.items()):
            if number >= len(steps) or place.actions is None or place.agents_after is None:
                continue  # the main line ended before this step was complete
            held = _held(steps[number])
            for player in place.players:
                if plan.players is None and not _has_tokens(steps[number], player):
                    continue
                if plan.max_branches is not None and len(found) + plan.num_alternatives > plan.max_branches:
                    return tuple(found)
                found += [
                    Origin(
                        branch=f"s{number}.{player}.{alternative}",
                        step=number,
                        player=player,
                        before=place.before,
                        agents_after=place.agents_after,
                        held=tuple(turn for turn in held if turn.player != player),
                        actions={name: action for name, action in place.actions.items() if name != player},
                        fresh_luck=plan.fresh_luck,
                        last_tick=None if plan.horizon is None else place.tick + plan.horizon - 1,
                    )
                    for alternative in range(1, plan.num_alternatives + 1)
                ]
        return tuple(found)

    def _drawn(self, step: int, tick: int, movers: Sequence[str]) -> tuple[str, ...]:
        """Who is to be resampled at a step, by ascending coin; known before anyone replies."""
        plan = self._plan
        if tick % plan.every:
            return ()
        coins = {
            player: self._luck.coin(step, player)
            for player in movers
            if plan.players is None or player in plan.players
        }
        drawn = [player for player, coin in coins.items() if coin < plan.share * (1 << SEED_BITS)]
        return tuple(sorted(drawn, key=lambda player: (coins[player], player)))


def _held(step: Step) -> tuple[Turn, ...]:
    """The turns of a step of the main line as a branch holds them: they train there, once."""
    return tuple([replace(turn, trains_once_for=str(step.id)) for turn in step.turns])


def _has_tokens(step: Step, player: str) -> bool:
    return any(turn.segments for turn in step.turns if turn.player == player)

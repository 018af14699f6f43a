"""Which replies are resampled, and where a branch starts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from coplay.agents.base import Agent
from coplay.games import Action, derive_seed
from coplay.games.names import nearest
from coplay.rollout_tree.records import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPlan:
    """Where the lines of a collect fork, and how each branch is played on.

    A fork is a step of a line and a player: his reply is sampled anew, the others' moves of that step are held.
    Whether it is one depends on nothing that follows the replies of that step (rule 11): bounds on what is known
    before a reply are fixed numbers, since a rank among the places of an episode would depend on its later ones.

    Raises:
        ValueError: if a number is out of its range.
    """

    players: tuple[str, ...] | None = None
    """Whose replies are resampled; None: everyone's whose replies have tokens."""
    every: int = 1
    """Fork in every k-th tick (round where declared, else step), from the first on; 1: in all."""
    share: float = 1.0
    """Share of those (step, player) that are drawn to be forks, each by a coin of its own (law 7)."""
    min_entropy: float | None = None
    """Fork only where the policy's entropy at the first token it chooses is at least this many nats."""
    max_entropy: float | None = None
    """Fork only where it is at most this."""
    min_value: float | None = None
    """Fork only where a critic's value of the player, before he replies, is at least this."""
    max_value: float | None = None
    """Fork only where it is at most this."""
    num_alternatives: int = 1
    """Branches at each fork, besides the reply taken."""
    horizon: int | None = None
    """Ticks a branch is played, that of the fork included, before it is truncated; None: to the end."""
    fresh_luck: bool = False
    """Draw later luck anew in every branch; False: the main line's draws (common random numbers)."""
    max_branches: int | None = None
    """Most branches of an episode, spent on whole forks from the first step on; None: no limit."""
    max_branch_tokens: int | None = None
    """Sampled tokens of an episode's branches from which on no further step forks (`Forking`); None: no limit."""
    depth: int = 1
    """1: the main line forks; 2: its branches fork as well, after their first step; and so on."""

    def __post_init__(self) -> None:
        for name in ("every", "num_alternatives", "horizon", "max_branch_tokens", "depth"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"branching.{name} is {count}; expected at least 1")
        for signal in ("entropy", "value"):
            low, high = getattr(self, f"min_{signal}"), getattr(self, f"max_{signal}")
            if not all(bound is None or isfinite(bound) for bound in (low, high)) or (
                low is not None and high is not None and low > high
            ):
                raise ValueError(
                    f"branching.min_{signal} is {low} and branching.max_{signal} is {high}; expected finite numbers,"
                    " the first no greater than the second"
                )
        if not 0 < self.share <= 1:
            raise ValueError(f"branching.share is {self.share}; expected a number above 0, at most 1")
        if self.max_branches is not None and self.max_branches < 0:
            raise ValueError(f"branching.max_branches is {self.max_branches}; expected at least 0")

    @property
    def reads_entropy(self) -> bool:
        """True if places depend on the entropy of replies."""
        return self.min_entropy is not None or self.max_entropy is not None

    @property
    def reads_value(self) -> bool:
        """True if places depend on a critic's values."""
        return self.min_value is not None or self.max_value is not None

    def admits_entropy(self, entropy: float | None) -> bool:
        """True if it lies within the bounds; without bounds always, where it is not known else never."""
        return _within(entropy, self.min_entropy, self.max_entropy)

    def admits_value(self, value: float | None) -> bool:
        """The same for what a critic says."""
        return _within(value, self.min_value, self.max_value)

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


def _within(known: float | None, low: float | None, high: float | None) -> bool:
    if low is None and high is None:
        return True
    return known is not None and (low is None or low <= known) and (high is None or known <= high)


@dataclass(slots=True, kw_only=True)
class ValueRow:
    """One context of a player, and where in it values are asked for."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    """Of the last token before the first that the policy chose in a reply."""


ValueReader = Callable[[Sequence[ValueRow]], Sequence[Sequence[float]]]
"""Gives the value at every position of every row. It is known before the reply, whenever it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """What the coins of a line's forks are a function of, besides step and player."""

    run_seed: int
    iteration: int
    episode: str
    branch: str
    """Empty on the main line."""

    def coin(self, step: int, player: str) -> int:
        """Uniform in [0, 2^SEED_BITS)."""
        line = (self.branch,) if self.branch else ()
        return derive_seed(self.run_seed, "fork", self.iteration, self.episode, step, player, *line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An episode before one of its steps."""

    state: Any
    round: int
    movers: tuple[str, ...]
    agents: Mapping[str, Agent]
    """Forks that never reply themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a branch leaves its line: the main line, or another branch."""

    branch: str
    line: str
    """Empty for the main line, else the name of the branch that it leaves."""
    level: int
    """1: it leaves the main line; 2: a branch of that; and so on."""
    step: int
    """Step of the line in whose place the branch's first step stands."""
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
    facts: Mapping[str, float | int] = field(default_factory=dict)
    """Why the place was chosen and where all siblings are cut: `branch_fork` in the info of the first step."""

    def is_cut(self, tick: int, *, ended: bool) -> bool:
        """True if the branch has reached its horizon with a step of this tick, which has ended or not."""
        return self.last_tick is not None and ended and tick >= self.last_tick

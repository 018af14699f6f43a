"""The data that flows through a training iteration, in the order in which it arises."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from coplay.training.baselines import RunningMeans
from coplay.training.draws import AllowedSets, moved
from coplay.training.masked import masked_sum


class PathKey(NamedTuple):
    """Names one player's path; everything per player is joined by it."""

    episode: str
    branch: str
    player: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPlace:
    """Where one player's reply was sampled several times in an episode."""

    episode: str
    step: int
    """Id of the step of the line that forks."""
    tick: int
    player: str
    branches: tuple[str, ...]
    first_steps: tuple[int, ...]
    """Id of each branch's first step."""
    line: str = ""
    """Name of the branch that forks; empty for the main line."""
    last_tick: int | None = None
    """Tick after which all lines that part there are cut; None: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTable:
    """Where the turns of B paths stand, right-padded to U turns; needed where paths share turns."""

    forks: tuple[ForkPlace, ...]
    """By episode, then by step."""
    steps: Tensor
    """(B, U) id of each turn's step, -1 beyond the last."""
    ticks: Tensor
    """(B, U) its tick, 0 beyond the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickTable:
    """Rewards per tick of B paths, right-padded to S ticks; all players of all games, trained or not."""

    keys: tuple[PathKey, ...]
    """One per row, ascending."""
    policies: tuple[str, ...]
    """`name@version` or agent name of each row."""
    opponents: tuple[str, ...]
    """The other seats' policies of each row, in the order of players, joined by `+`."""
    group_ids: Tensor
    """(B,) rows with the same luck, seat and opponents share a number."""
    rewards: Tensor
    """(B, S) divided by the reward scale."""
    mask: Tensor
    """(B, S) True on real ticks."""
    acted: Tensor
    """(B, S) True where the player has sampled tokens."""
    truncated: Tensor
    """(B,) True if values beyond the last tick count."""
    games: tuple[str, ...] | None = None
    """What each row plays, in a mixture; None: all rows play one game."""
    turns: TurnTable | None = None
    """Where branches are among the paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickValues:
    """What the critic says, from the weights before the update."""

    values: Tensor
    """(B, S) value before each tick's first reply; NaN where none was read."""
    bootstrap: Tensor
    """(B,) value after the last tick of truncated paths, 0 elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEstimate:
    """What an estimator says of single turns, all (B, U): turns of one tick may differ where it forks between them."""

    returns: Tensor
    baseline: Tensor
    advantages: Tensor
    weights: Tensor
    """Product of 1/siblings over the forks before and at the turn (rule 11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshReplies:
    """Whose mean an expected return is: one player's replies at one fork."""

    steps: tuple[int, ...]
    """Id of the step in which each reply stands."""
    lines: tuple[PathKey, ...]
    """The path on which each was played on."""
    returns: tuple[float, ...]
    """The player's return from the tick on along each; with a critic its lambda-return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEstimate:
    """Own advantages as alignment weights take them, expected over fresh replies."""

    advantages: Tensor
    """(B, S) expected where a fork says so; elsewhere as the settings have it."""
    expected: Tensor
    """(B, S) the mean return over the replies; 0 where there are none."""
    replies: Mapping[tuple[int, int], FreshReplies]
    """By (row, tick), where they are expected."""
    unforked: frozenset[tuple[int, int]]
    """(row, tick) with a reply of the player and no fork of his."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Advantages and what made them, all (B, S)."""

    returns: Tensor
    """Discounted reward-to-go."""
    baseline: Tensor
    """What was subtracted: advantage = returns (or lambda-return) - baseline."""
    advantages: Tensor
    targets: Tensor | None
    """What the critic learns, A + V; None without a critic."""
    running_means: RunningMeans
    """The running baselines after this batch."""
    metrics: Mapping[str, float]
    turns: TurnEstimate | None = None
    """The same by turn, where branches are trained on; what tokens are credited with in place of their tick's."""
    values: Tensor | None = None
    """What the critic said, as far as it read; None without a critic."""
    state_weights: Tensor | None = None
    """(B, S) share of the state before each tick in the critic's loss where paths branch (rule 11); None: 1."""
    past: PastEstimate | None = None
    """What alignment weights are made of in place of `exchanged`; None: nothing else."""
    unpenalised: Tensor | None = None
    """(B, S) the same advantages without a KL penalty in the own rewards; None: there is none."""
    penalty: Tensor | None = None
    """(B, S) that penalty, in scaled units."""

    @property
    def exchanged(self) -> Tensor:
        """(B, S) what others are told and alignment weights are made of: what a player got from the game."""
        return self.advantages if self.unpenalised is None else self.unpenalised


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRows:
    """R rows of at most T tokens, and N action tokens in them, flat: what their log-probs depend on."""

    ids: Tensor
    """(R, T) right-padded; padding is known from `lengths` alone."""
    lengths: Tensor
    """(R,)"""
    row: Tensor
    """(N,) row of each action token."""
    column: Tensor
    """(N,) its position; its log-prob is read one position earlier."""
    targets: Tensor
    """(N,) its id."""
    temperature: Tensor
    """(N,)"""
    allowed: AllowedSets

    @property
    def num_tokens(self) -> int:
        """Number of action tokens."""
        return len(self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch(TokenRows):
    """The rows of one policy, and what a step has to know of their action tokens."""

    behaviour: Tensor
    """(N,) log-prob when it was sampled."""
    path: Tensor
    """(N,) row of its path in the tick table."""
    tick: Tensor
    """(N,)"""
    turn: Tensor
    """(N,) unique per (path, turn)."""
    place: Tensor
    """(N, 2) where the token stands in its trajectory: number of its row there, and of its turn."""
    penalty: Tensor
    """(N,) scaled units taken from the credit of a malformed attempt."""
    entropy_mask: Tensor
    """(N,) True where the entropy bonus applies."""
    num_trajectories: int
    """Games and seats of this policy with at least one action token."""
    weight: Tensor | None = None
    """(N,) share of each token in losses and means where paths branch (rule 11); None: 1."""
    reference: Tensor | None = None
    """(N,) log-probs under the policy's frozen reference; None: not read."""
    owners: tuple[str, ...] = ()
    """(B,) name of the trajectory that each row of the tick table is of, branches included: game and player."""

    def to(self, device: torch.device) -> "TokenBatch":
        """The same batch on a device."""
        return replace(moved(self, device), allowed=self.allowed.to(device))

    def select(self, tokens: Tensor, *, num_trajectories: int) -> "TokenBatch":
        """The batch of some action tokens (n,), ascending, and the rows they stand in."""
        chosen = {
            entry.name: getattr(self, entry.name)[tokens]
            for entry in fields(self)
            if entry.name not in ("ids", "lengths", "allowed")
            and isinstance(getattr(self, entry.name), Tensor)
        }
        rows, row = torch.unique(chosen.pop("row"), return_inverse=True)
        width = int(self.lengths[rows].max()) if len(rows) else 0
        return replace(
            self,
            **chosen,
            row=row,
            ids=self.ids[rows, :width],
            lengths=self.lengths[rows],
            allowed=self.allowed.select(tokens),
            num_trajectories=num_trajectories,
        )

    @property
    def total_weight(self) -> float:
        """Their weights together: their number, where nothing branches."""
        return float(self.num_tokens if self.weight is None else masked_sum(self.weight.double(), None))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueBatch:
    """Where the critic is read: rows of all players with tokens, and P value points."""

    ids: Tensor
    """(R, T) right-padded."""
    lengths: Tensor
    """(R,)"""
    row: Tensor
    """(P,)"""
    column: Tensor
    """(P,)"""
    path: Tensor
    """(P,) row of the tick table."""
    tick: Tensor
    """(P,) tick whose state it is; the path's number of ticks for the state after a truncation."""
    owners: tuple[str, ...] = ()
    """(B,) as of a `TokenBatch`."""

    def to(self, device: torch.device) -> "ValueBatch":
        """The same batch on a device."""
        return moved(self, device)

    def select(self, points: Tensor) -> "ValueBatch":
        """The batch of some points (p,), ascending, and the rows they stand in."""
        rows, row = torch.unique(self.row[points], return_inverse=True)
        width = int(self.lengths[rows].max()) if len(rows) else 0
        chosen = {name: getattr(self, name)[points] for name in ("column", "path", "tick")}
        return replace(self, ids=self.ids[rows, :width], lengths=self.lengths[rows], row=row, **chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What one optimiser step of one policy did, or all steps of one update."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    weights: Tensor = field(default_factory=lambda: torch.zeros(0))
    """(N,) importance weight of each action token."""
    log_probs: Tensor = field(default_factory=lambda: torch.zeros(0))
    """(N,) trainer log-prob before the step."""
    entropies: Tensor = field(default_factory=lambda: torch.zeros(0))
    """(N,) entropy of the distribution each action token was drawn from, before the step."""
    stepped: bool = True
    """False if the policy had gone far enough already, so that the step was left out."""

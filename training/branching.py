"""The part of a configuration that asks for branches, and what it must agree with."""

from collections.abc import Collection, Mapping, Sequence

from pydantic import Field, model_validator

from coplay.agents.settings import Settings
from coplay.games.names import nearest
from coplay.rollout_tree import BranchPlan
from coplay.training.messages import ConfigError
from coplay.training.schemes import (
    AdvantageAlignment,
    BranchesEstimator,
    EstimatorSettings,
    ExpectedPast,
    GrpoEstimator,
    Independent,
    ShapingBase,
    critic_learning,
)


class BranchingSettings(Settings):
    """Which replies are resampled once all games are over, and how each branch is played on."""

    players: tuple[str, ...] | None = None
    """Whose replies are resampled; None: everyone's whose replies have tokens."""
    every: int = Field(1, ge=1)
    """Fork in every k-th tick (round where declared, else step), from the first on."""
    share: float = Field(1.0, gt=0, le=1)
    """Share of those places that are drawn to be forks, each by a coin of its own."""
    min_entropy: float | None = None
    """Fork only where the policy's entropy at the first token it chooses is at least this many nats."""
    max_entropy: float | None = None
    """Fork only where it is at most this."""
    min_value: float | None = None
    """Fork only where the critic's value before the reply, in scaled units, is at least this."""
    max_value: float | None = None
    """Fork only where it is at most this."""
    num_alternatives: int = Field(1, ge=1)
    """Branches at each fork, besides the reply taken."""
    horizon: int | None = Field(None, ge=1)
    """Ticks after which a branch is cut, that of the fork included; needs a critic. None: played to the end."""
    fresh_luck: bool = False
    """Draw later luck anew in every branch, instead of the game's own draws (common random numbers)."""
    max_branches: int | None = Field(None, ge=0)
    """Most branches of a game, spent on whole forks from the first step on; None: no limit."""
    max_branch_tokens: int | None = Field(None, ge=1)
    """Sampled tokens of a game's branches from which on no further step forks; None: no limit."""
    depth: int = Field(1, ge=1)
    """1: games fork; 2: their branches fork as well, after their first step; and so on."""

    @model_validator(mode="after")
    def _check_plan(self) -> "BranchingSettings":
        try:
            self.plan()
        except ValueError as error:
            raise ConfigError(f"collect.{error}") from None
        return self

    def plan(self) -> BranchPlan:
        """The same for `collect`."""
        return BranchPlan(**self.model_dump())


def check_past(
    branching: BranchingSettings | None,
    estimator: EstimatorSettings,
    shaping: ShapingBase,
    *,
    learners: Sequence[str],
) -> None:
    """Refuse an expected past that branches cannot tell.

    Args:
        learners: the players whose policies are trained.

    Raises:
        ConfigError: if no branch can be an alternative to a learner's reply, some tick may have none although that is
            to be refused, advantages are to be whitened or centred before shaping, or the estimator has none by tick.
    """
    past = shaping.past if isinstance(shaping, AdvantageAlignment) else None
    if not isinstance(past, ExpectedPast):
        return
    asked = "'shaping.past.kind' is 'expected'"
    if branching is None:
        raise ConfigError(f"{asked} and no branches are played; expected a section 'collect.branching'")
    without = [] if branching.players is None else [one for one in learners if one not in branching.players]
    if without == list(learners):
        raise ConfigError(
            f"{asked} and 'collect.branching.players' is {list(branching.players or ())!r}; expected some of those"
            f" who learn, {', '.join(map(repr, learners))}"
        )
    if isinstance(estimator, GrpoEstimator):
        raise ConfigError(
            f"{asked} and 'estimator.kind' is 'grpo', whose advantage is one of the whole game and of no tick; expected"
            " 'returns', 'critic' or 'branches'"
        )
    for name in ("whiten_before", "centre_before"):
        if getattr(shaping, name) != "off":
            raise ConfigError(
                f"{asked} and 'shaping.{name}' is {getattr(shaping, name)!r}, which would act on advantages and leave"
                " out the expected past that weighs them; expected 'off' (shaping.past.baseline = 'leave_one_out'"
                " centres the past)"
            )
    gaps = {
        "'estimator.kind' is 'branches', whose branches have ticks without a fork": isinstance(
            estimator, BranchesEstimator
        ),
        f"'collect.branching.players' leaves out {without}": bool(without),
        f"'collect.branching.every' is {branching.every}": branching.every > 1,
        f"'collect.branching.share' is {branching.share}": branching.share < 1,
        f"'collect.branching.max_branches' is {branching.max_branches}": branching.max_branches is not None,
        f"'collect.branching.max_branch_tokens' is {branching.max_branch_tokens}": (
            branching.max_branch_tokens is not None
        ),
        "'collect.branching' has bounds on entropies or values": (
            branching.plan().reads_entropy or branching.plan().reads_value
        ),
    }
    for gap, there in gaps.items():
        if there and past.unforked == "refuse":
            raise ConfigError(
                f"{asked} and {gap}; expected a fork at every tick, or shaping.past.unforked = 'taken' or 'zero'"
            )


def check_branching(
    branching: BranchingSettings | None,
    estimator: EstimatorSettings,
    shaping: ShapingBase,
    *,
    seats: Mapping[str, str],
    policies: Collection[str],
) -> None:
    """Refuse settings that do not go together.

    Args:
        seats: player -> who holds his seat.
        policies: names of those who have tokens.

    Raises:
        ConfigError: if branches are trained on and not played, a horizon has no critic to say what lies beyond,
            places are to be chosen by what nobody knows, a player is unknown, or advantages of branches are to be
            whitened or centred.
    """
    trains = isinstance(estimator, BranchesEstimator)
    if branching is None:
        if trains:
            raise ConfigError(
                "'estimator.kind' is 'branches' and no branches are played; expected a section 'collect.branching'"
            )
        return
    for player in branching.players or ():
        if player not in seats:
            raise ConfigError(
                f"'collect.branching.players' names {player!r}; expected some of"
                f" {', '.join(map(repr, seats))}{nearest(player, list(seats))}"
            )
    _check_signals(branching, estimator, seats, policies)
    _check_horizon(branching, estimator, shaping, seats, policies)
    switches = ("whiten_before", "centre_before", "whiten_after", "centre_after")
    used = [name for name in switches if getattr(shaping, name) != "off"]
    if trains and used:
        raise ConfigError(
            f"'shaping.{used[0]}' is {getattr(shaping, used[0])!r} and 'estimator.kind' is 'branches', whose paths"
            " share turns; expected 'off'"
        )


def _check_signals(
    branching: BranchingSettings,
    estimator: EstimatorSettings,
    seats: Mapping[str, str],
    policies: Collection[str],
) -> None:
    plan = branching.plan()
    if plan.reads_value and critic_learning(estimator) is None:
        raise ConfigError(
            f"'collect.branching' has bounds on values and 'estimator.kind' is {estimator.kind!r} without a critic that"
            " tells any; expected 'critic', or 'branches' with a section 'estimator.critic'"
        )
    for player in branching.players or ():
        if (plan.reads_entropy or plan.reads_value) and seats[player] not in policies:
            signal = "entropies" if plan.reads_entropy else "values"
            raise ConfigError(
                f"'collect.branching' has bounds on {signal} and names player {player!r}, whose seat is held by"
                f" {seats[player]!r}, an agent without tokens; expected players whose seats are held by policies"
            )


def _check_horizon(
    branching: BranchingSettings,
    estimator: EstimatorSettings,
    shaping: ShapingBase,
    seats: Mapping[str, str],
    policies: Collection[str],
) -> None:
    if branching.horizon is None:
        return
    if critic_learning(estimator) is None:
        raise ConfigError(
            f"'collect.branching.horizon' is {branching.horizon} and 'estimator.kind' is {estimator.kind!r}; without a"
            " critic nothing says what lies beyond a horizon: expected none, or a section 'estimator.critic'"
        )
    bare = [player for player, agent in seats.items() if agent not in policies]
    if isinstance(estimator, BranchesEstimator) and bare and not isinstance(shaping, Independent):
        raise ConfigError(
            f"'collect.branching.horizon' is {branching.horizon} and the shaping uses advantages of player {bare[0]!r},"
            " whose agent has no tokens for a critic to read what lies beyond; expected no horizon, or"
            " shaping.kind = 'independent'"
        )

"""A run as frozen settings: each field documented once, bounds in the type, unknown keys refused."""

from typing import Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from coplay.agents.language import SamplingSettings
from coplay.agents.settings import (
    EmbeddedModel,
    FolderModel,
    ModelSettings,
    PolicySettings,
    Settings,
)
from coplay.agents.tool_settings import ToolSettings
from coplay.games import Game, GameParameters, Mixture
from coplay.games.registry import game_class
from coplay.training.branching import BranchingSettings, check_branching, check_past
from coplay.training.evaluate_settings import EvaluateSettings, check_best
from coplay.training.messages import ConfigError
from coplay.training.mixtures import Exam, HasChance, MixtureEntry, exams, make_mixture, read_game
from coplay.training.objectives import ObjectiveSettings, ReinforceObjective
from coplay.training.reward_model_settings import RewardModelSettings, check_reward_model
from coplay.training.schedules import Constant, LearningRate
from coplay.training.schemes import (
    AdvantageAlignment,
    BranchesEstimator,
    CriticEstimator,
    EstimatorSettings,
    ExpectedPast,
    Independent,
    ReturnsEstimator,
    ShapingSettings,
    critic_learning,
)
from coplay.training.seats import check_anchors, check_held, check_policy_names, check_seats
from coplay.training.tabular import check_table_run, check_tables


class AgentsSettings(Settings):
    """Who plays: one base model, policies over it, and which of them (or which other agent) holds each seat."""

    model: ModelSettings = EmbeddedModel()
    """The base model that all adapters share; `tabular`: none, but a table for each policy, in a small game."""
    policies: dict[str, PolicySettings] = Field(
        default_factory=lambda: {"shared": PolicySettings()}, min_length=1
    )
    """Policies by name."""
    seats: dict[str, str] = Field(default_factory=dict)
    """Player -> policy, scripted agent or `library:NAME`; players not named get the first policy."""
    sampling: SamplingSettings = SamplingSettings()
    """How policies sample their replies."""
    tools: dict[str, ToolSettings] = Field(default_factory=dict)
    """Who runs each tool that a game offers, by its name there."""

    @model_validator(mode="after")
    def _check_types(self) -> "AgentsSettings":
        check_tables(self.model, self.policies, self.sampling, self.tools)
        if isinstance(self.model, FolderModel) and self.model.dtype == "bfloat16":
            for name, policy in self.policies.items():
                if policy.trained and policy.weights.kind == "full":
                    raise ConfigError(
                        f"'agents.policies.{name}' trains a whole bfloat16 model, whose weights lose small updates;"
                        " expected weights.kind = 'lora', or agents.model.dtype = 'float32'"
                    )
        return self

    @field_validator("policies")
    @classmethod
    def _check_names(cls, policies: dict[str, PolicySettings]) -> dict[str, PolicySettings]:
        check_policy_names(policies)
        return policies


class CollectSettings(Settings):
    """How many games an iteration plays, and when a game counts as stuck."""

    num_groups: int = Field(8, ge=1)
    """Groups of games with the same luck (common random numbers) an iteration plays."""
    group_size: int = Field(8, ge=1)
    """Games in each group."""
    max_failed_share: float = Field(0.1, ge=0, le=1)
    """The run stops if a larger share of an iteration's games fails."""
    time_limit: float | None = Field(None, gt=0)
    """Seconds of wall time after which a game that waits for a reply is failed."""
    branching: BranchingSettings | None = None
    """Branches of every game; None: none. They are kept, and trained on by estimator 'branches'."""


class StepSettings(Settings):
    """How an optimiser step moves weights, and how its rows are read."""

    lr: LearningRate = Constant(level=5e-4)
    """Learning rate of Adam, by update number."""
    gradient_clip: float | None = Field(1.0, gt=0)
    """Largest gradient norm of a policy."""
    micro_batch_tokens: int = Field(16384, ge=1)
    """Most tokens of one forward pass, padding included; a longer row goes alone."""
    packing: Literal["trie", "flat"] = "trie"
    """Read what rows share once, as trees, or every row apart; a model that cannot read trees gets rows."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What a step multiplies matrices in; weights, softmax and sums stay float32."""
    num_threads: int = Field(1, ge=1, le=1024)
    """CPU threads; what is resumed reproduces the first run only at the same number."""


class UpdateSettings(StepSettings):
    """How weights move."""

    num_updates: int = Field(100, ge=1)
    """Iterations of the run, one update of each trained policy in each."""
    num_epochs: int = Field(1, ge=1)
    """How often an update goes through its batch."""
    num_mini_batches: int = Field(1, ge=1)
    """Optimiser steps of an epoch: the batch is dealt out to so many by trajectories, anew in every epoch."""
    max_kl: float | None = Field(None, gt=0)
    """An update ends before a step on tokens where the policy is already so far from the one before it (k3, nats)."""
    critic_warmup: int = Field(0, ge=0)
    """So many first updates move the critic alone; the policies' steps are computed and not taken."""


def check_updates(
    update: UpdateSettings,
    objective: ObjectiveSettings,
    estimator: EstimatorSettings,
    shaping: ShapingSettings,
) -> None:
    """Refuse settings of an update that do not go together.

    Raises:
        ConfigError: if a critic is to warm up and there is none, or for as long as the run; if a bound on the KL has no
            further step to leave out; if sequences are to be averaged over and paths share turns.
    """
    if update.critic_warmup and critic_learning(estimator) is None:
        raise ConfigError(
            f"'update.critic_warmup' is {update.critic_warmup} and 'estimator.kind' is {estimator.kind!r} without a"
            " critic; expected 0, or an estimator with one"
        )
    if update.critic_warmup >= update.num_updates:
        raise ConfigError(
            f"'update.critic_warmup' is {update.critic_warmup} of {update.num_updates} updates, so that no policy would"
            " ever move; expected fewer"
        )
    if update.max_kl is not None and update.num_epochs == update.num_mini_batches == 1:
        raise ConfigError(
            f"'update.max_kl' is {update.max_kl} and an update has a single step; expected 'update.num_epochs' or"
            " 'update.num_mini_batches' above 1"
        )
    check_penalty(objective, estimator, shaping)
    if objective.normaliser == "sequence" and isinstance(estimator, BranchesEstimator):
        raise ConfigError(
            "'objective.normaliser' is 'sequence' and 'estimator.kind' is 'branches', whose paths share turns, so that"
            " none has a length of its own; expected another normaliser"
        )


def check_penalty(
    objective: ObjectiveSettings, estimator: EstimatorSettings, shaping: ShapingSettings
) -> None:
    """Refuse a KL in the rewards where it would reach what others are told, or a turn that several paths share.

    Raises:
        ConfigError: if so.
    """
    if objective.kl_in_reward is None:
        return
    asked = "'objective.kl.place' is 'reward'"
    if isinstance(estimator, BranchesEstimator):
        raise ConfigError(
            f"{asked} and 'estimator.kind' is 'branches', whose paths share turns; expected place = 'loss'"
        )
    if isinstance(estimator, CriticEstimator) and not isinstance(shaping, Independent):
        raise ConfigError(
            f"{asked}, 'estimator.kind' is 'critic' and 'shaping.kind' is {shaping.kind!r}: the critic learns lowered"
            " rewards, and what others got from the game would be measured against them; expected place = 'loss', or"
            " an estimator without a critic"
        )
    if isinstance(shaping, AdvantageAlignment) and isinstance(shaping.past, ExpectedPast):
        raise ConfigError(
            f"{asked} and 'shaping.past.kind' is 'expected', for which tokens on branches would have to be lowered too;"
            " expected place = 'loss'"
        )


class StorageSettings(Settings):
    """What a run leaves behind, and how often."""

    folder: str = "runs"
    """Where run folders stand."""
    every: int = Field(1, ge=0)
    """Store the rollouts of every n-th iteration; 0 = none."""
    credits: bool = True
    """Store each token's credit and its parts with them."""
    checkpoint_every: int = Field(10, ge=1)
    """Save weights and optimisers after every n-th update; the last one is always saved."""
    keep: int | None = Field(3, ge=1)
    """How many of the newest checkpoints stay (the best one stays too); None = all."""
    trackers: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    """Where metrics are copied to while the run trains; `metrics.jsonl` is always written (extra `track`)."""
    project: str = Field("coplay", min_length=1)
    """What Trackio and W&B file the run under."""


class RunConfig(Settings):
    """One training run."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run's folder."""
    seed: int = Field(1, ge=0)
    """All luck of the run is a function of it."""
    game: SerializeAsAny[GameParameters]
    """Kind and parameters of the game; of a mixture, what its parts have in common."""
    mixture: tuple[MixtureEntry, ...] = ()
    """Parts by weight, of which each group plays one; none: every group plays section `game`."""
    agents: AgentsSettings = AgentsSettings()
    collect: CollectSettings = CollectSettings()
    estimator: EstimatorSettings = ReturnsEstimator()
    shaping: ShapingSettings = Independent()
    objective: ObjectiveSettings = ReinforceObjective()
    update: UpdateSettings = UpdateSettings()
    storage: StorageSettings = StorageSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    reward_model: RewardModelSettings | None = None
    """A model whose scores of conversations are added to rewards; None: none."""

    @field_validator("game", mode="before")
    @classmethod
    def _find_game(cls, value: Any) -> Any:
        return read_game(value, "game")

    @model_validator(mode="after")
    def _check_seats(self) -> "RunConfig":
        agents, game = self.agents, self.make_game()
        kinds = [exam.kind for exam in self.exams()]
        for kind in dict.fromkeys([type(game).name, *kinds]):
            check_seats(agents.seats, policies=agents.policies, players=game.spec.players, game=kind)
        check_anchors(self.evaluate.anchors, games=kinds)
        check_best(self.evaluate, [exam.name for exam in self.exams()])
        check_held(self.seats(), trained=[name for name, policy in agents.policies.items() if policy.trained])
        return self

    @model_validator(mode="after")
    def _check_branching(self) -> "RunConfig":
        check_reward_model(self.reward_model, self.collect.branching, self.make_game().spec.players)
        check_branching(
            self.collect.branching,
            self.estimator,
            self.shaping,
            seats=self.seats(),
            policies=self.agents.policies,
        )
        trained = {name for name, policy in self.agents.policies.items() if policy.trained}
        learners = [player for player, agent in self.seats().items() if agent in trained]
        check_past(self.collect.branching, self.estimator, self.shaping, learners=learners)
        return self

    @model_validator(mode="after")
    def _check_credits(self) -> "RunConfig":
        if not self.objective.mask_tool_output and self.storage.every and self.storage.credits:
            raise ConfigError(
                "'objective.mask_tool_output' is False, so that tokens are trained on that nobody sampled and no stored"
                " turn has a credit for; expected storage.credits = false"
            )
        return self

    @model_validator(mode="after")
    def _check_updates(self) -> "RunConfig":
        check_updates(self.update, self.objective, self.estimator, self.shaping)
        others = {"mixture": self.mixture, "evaluate.held_out": self.evaluate.held_out}
        check_table_run(self.agents.model, self.estimator, games=others, precision=self.update.precision)
        return self

    def make_game(self) -> Game[Any]:
        """The game of section `game`: the one this run plays, if it plays no mixture."""
        kind: str = self.game.kind  # type: ignore[attr-defined]
        return game_class(kind)(self.game)

    def make_mixture(self) -> Mixture:
        """What this run plays."""
        return make_mixture(self.game, self.mixture)

    def has_chance(self) -> HasChance:
        """Whether the game has luck; of a mixture, by label."""
        return self.make_mixture().has_chance if self.mixture else self.make_game().spec.has_chance

    def exams(self) -> tuple[Exam, ...]:
        """What an evaluation of this run plays."""
        return exams(self.game, self.mixture, self.evaluate.held_out)

    def seats(self) -> dict[str, str]:
        """Who holds each seat, in the game's order of players."""
        first = next(iter(self.agents.policies))
        return {player: self.agents.seats.get(player, first) for player in self.make_game().spec.players}

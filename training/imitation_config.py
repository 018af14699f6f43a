"""An imitation as frozen settings: whose dialogues, by which policy, and how its weights follow them."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from coplay.agents.settings import Settings
from coplay.games import GameParameters
from coplay.training.config import (
    AgentsSettings,
    RunConfig,
    StepSettings,
    StorageSettings,
    UpdateSettings,
)
from coplay.training.evaluate_settings import BestSettings, EvaluateSettings
from coplay.training.messages import ConfigError
from coplay.training.mixtures import MixtureEntry, make_mixture, read_game
from coplay.training.schedules import Constant, LearningRate
from coplay.training.seats import check_seats


class GamesSource(Settings):
    """Games that agents without weights play on the spot, each with luck of its own."""

    kind: Literal["games"] = "games"
    num_games: int = Field(250, ge=1)
    """Games; each gives a dialogue of every player who is imitated."""
    seats: dict[str, str]
    """Player -> scripted agent or `library:NAME`; every player of the game."""
    players: tuple[str, ...] = ()
    """Whose replies are imitated; none named: everyone's."""


class RolloutsSource(Settings):
    """Games that are stored: by a run, an imitation or `coplay play --out`; whoever played them."""

    kind: Literal["rollouts"] = "rollouts"
    path: str
    """A run folder, its name inside `runs/`, or any folder that holds `rollouts`."""
    last_iterations: int | None = Field(None, ge=1)
    """Only the last so many that are stored; None: all."""
    players: tuple[str, ...] = ()
    """Whose replies are imitated; none named: everyone's."""
    policies: tuple[str, ...] = ()
    """Only those that these played: a policy's name, `name@version`, or an agent's name; none named: anyone."""
    min_return: float | None = None
    """Only dialogues in which the player's raw return over the game is at least this; None: any."""


class ChatsSource(Settings):
    """A file of chats, one JSON object a line: `{"messages": [{"role": ..., "content": ...}, ...]}`."""

    kind: Literal["chats"] = "chats"
    path: str
    """The file, e.g. as `coplay export --to messages` writes it."""


SourceSettings = Annotated[GamesSource | RolloutsSource | ChatsSource, Field(discriminator="kind")]


class ImitationSettings(Settings):
    """Which tokens are learnt, and from which dialogues."""

    constrained: bool = False
    """Imitate the choice among the moves that a grammar lists; else every token among the whole vocabulary."""
    validation_share: float = Field(0.1, ge=0, lt=1)
    """Share of the games (or chats) that are never trained on, all dialogues of a game together; 0: none."""
    max_dropped_share: float = Field(0.1, ge=0, le=1)
    """The imitation stops if a larger share of the dialogues does not fit `agents.sampling`."""


class ImitationUpdate(StepSettings):
    """How weights move."""

    num_epochs: int = Field(10, ge=1)
    """How often each dialogue is learnt from."""
    batch_size: int = Field(32, ge=1)
    """Dialogues of an optimiser step; the last step of an epoch takes those that are left."""
    lr: LearningRate = Constant(level=1e-3)
    """Learning rate of Adam, by optimiser step."""


class ImitationConfig(Settings):
    """One imitation: a policy learns to say what others said."""

    name: str = Field("imitation", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run folder."""
    seed: int = Field(1, ge=0)
    """All luck is a function of it."""
    game: SerializeAsAny[GameParameters]
    """Kind and parameters of the game that the policy is to play, and that sources of kind `games` play."""
    mixture: tuple[MixtureEntry, ...] = ()
    """Parts by weight, of which each game is one; none: every game is section `game`."""
    agents: AgentsSettings = AgentsSettings()
    sources: dict[str, SourceSettings] = Field(min_length=1)
    """Where dialogues come from, by name."""
    imitation: ImitationSettings = ImitationSettings()
    update: ImitationUpdate = ImitationUpdate()
    storage: StorageSettings = StorageSettings()
    evaluate: EvaluateSettings = EvaluateSettings()

    @field_validator("game", mode="before")
    @classmethod
    def _find_game(cls, value: Any) -> Any:
        return read_game(value, "game")

    @model_validator(mode="after")
    def _check(self) -> "ImitationConfig":
        self.policy()
        self.run(num_steps=1)
        if self.evaluate.best != BestSettings():
            raise ConfigError(
                "'evaluate.best' is given, but the best checkpoint of an imitation is the one with the smallest"
                " validation loss; expected no section 'evaluate.best'"
            )
        for name, source in self.sources.items():
            if isinstance(source, GamesSource):
                self._check_games(f"sources.{name}", source)
        return self

    def _check_games(self, where: str, source: GamesSource) -> None:
        for variant in make_mixture(self.game, self.mixture).variants:
            kind, players = type(variant.game).name, variant.game.spec.players
            check_seats(source.seats, policies=(), players=players, game=kind, where=f"{where}.seats")
            missing = [player for player in players if player not in source.seats]
            if missing:
                raise ConfigError(
                    f"'{where}.seats' seats nobody for {missing[0]!r}; expected an agent without weights for every"
                    f" player of {kind!r}: {', '.join(map(repr, players))}"
                )
            unknown = [player for player in source.players if player not in players]
            if unknown:
                raise ConfigError(
                    f"'{where}.players' names {unknown[0]!r}; expected players of {kind!r}:"
                    f" {', '.join(map(repr, players))}"
                )

    def policy(self) -> str:
        """The one policy that learns.

        Raises:
            ConfigError: if none or several are trained.
        """
        trained = [name for name, policy in self.agents.policies.items() if policy.trained]
        if len(trained) != 1:
            raise ConfigError(
                f"'agents.policies' trains {trained!r}; expected one policy in an imitation: imitate for each of them"
                " in a run of its own, with sources of its own"
            )
        return trained[0]

    def run(self, *, num_steps: int) -> RunConfig:
        """What the run folder says of itself, so that every other command reads it as any run's."""
        steps = {name: getattr(self.update, name) for name in StepSettings.model_fields}
        return RunConfig(
            name=self.name,
            seed=self.seed,
            game=self.game,
            mixture=self.mixture,
            agents=self.agents,
            update=UpdateSettings(num_updates=num_steps, **steps),
            storage=self.storage,
            evaluate=self.evaluate,
        )

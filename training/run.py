"""A run made of its parts: game, policies, critic, engine, trainers, folder. Built once, opened fresh or to go on."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from coplay.agents.base import AgentFactory
from coplay.agents.building import Base, make_base, make_critic, make_policies
from coplay.agents.critic import Critic
from coplay.agents.desk import make_desk
from coplay.agents.language import language_agent_factory
from coplay.agents.local_engine import LocalEngine
from coplay.agents.named import named_agent
from coplay.agents.policy import Policy
from coplay.agents.runs import find_policy_folder, pin_entrant
from coplay.agents.settings import at_temperature
from coplay.games import Chance, Game, Mixture, Observation
from coplay.training.checkpoint import (
    CheckpointError,
    LoopState,
    checkpoint_path,
    complete_checkpoints,
    load_checkpoint,
    optimizer_tensors,
    prune_checkpoints,
    restore_optimizer,
    save_checkpoint,
)
from coplay.training.config import RunConfig
from coplay.training.data import DATA, check_data, data_record, read_data
from coplay.training.environment import ENVIRONMENT_FILE, environment
from coplay.training.estimators import CriticNotApplicableError
from coplay.training.lock import sole_writer
from coplay.training.messages import ConfigError
from coplay.training.metrics import MetricsFile
from coplay.training.mixtures import Exam
from coplay.training.reward_model import RewardModel
from coplay.training.schemes import critic_learning
from coplay.training.seats import check_tools
from coplay.training.starts import STARTS, check_starts, start_digests
from coplay.training.stored_config import CONFIG_FILE, IMITATION_FILE, read_config
from coplay.training.trainer import Trainer


class Run:
    """Everything one training run consists of."""

    def __init__(self, config: RunConfig, *, folder: Path) -> None:
        """Build all parts from the configuration; nothing is read from or written to the folder."""
        torch.set_num_threads(config.update.num_threads)
        self.config = config
        self.folder = folder
        self.game: Game[Any] = config.make_game()
        """Of section `game`; its players are those of the whole mixture."""
        for variant in config.make_mixture().variants:
            check_critic(variant.game, config)
        needs_reference = config.objective.needs_reference
        self.base: Base = make_base(config.agents.model, game=lambda: self.game, seed=config.seed)
        self.mixture: Mixture = config.make_mixture().fitted(self._num_tokens)
        """What is played, without what is too long for its parameters in this model's tokens."""
        self.exams: tuple[Exam, ...] = tuple(
            [exam._replace(games=exam.games.fitted(self._num_tokens)) for exam in config.exams()]
        )
        self.tools = make_desk(config.agents.tools)
        self.data = read_data(self.mixture, self.exams, self.tools.data if self.tools else {})
        self.policies: dict[str, Policy] = make_policies(
            self.base,
            config.agents.policies,
            seed=config.seed,
            keep_reference=needs_reference,
        )
        self.critic: Critic | None = None
        self.critic_optimizer: torch.optim.Optimizer | None = None
        if critic_learning(config.estimator) is not None:
            self.critic = make_critic(self.base, seed=config.seed)
            self.critic_optimizer = torch.optim.Adam(list(self.critic.named_parameters().values()), lr=1.0)
        self.reward_model = None if config.reward_model is None else RewardModel(config.reward_model)
        self.engine = LocalEngine(self.policies)
        for exam in self.exams:
            for variant in exam.games.variants:
                check_tools(variant.game, self.tools, append_only=self.base.chat.append_only)
        players = self.game.spec.players
        held = set(config.seats().values())
        self.trainers = [
            Trainer(policy, config, players)
            for name, policy in self.policies.items()
            if policy.trained and name in held
        ]
        self.idle_updates = 0
        """Updates in a row, up to now, that found nothing to train on."""
        self.alignment_checked = False
        """Whether engine and trainer were compared since this process began."""
        versions = {name: policy.version for name, policy in self.policies.items()}
        self.state = LoopState(update=0, policy_versions=versions, running_means={})

    def _num_tokens(self, observation: Observation) -> int:
        """Tokens of a context that begins with an observation."""
        return len(self.base.chat.opening(observation.system, observation.text))

    def factory(self, agent: str, *, run_seed: int, temperature: float | None = None) -> AgentFactory:
        """Who sits down under the name of a policy or of an agent without weights.

        Args:
            agent: the name.
            run_seed: of the luck in replies.
            temperature: of a policy, in place of that of training; 0: always the likeliest token.
        """
        if agent not in self.policies:
            return named_agent(agent, tools=self.tools)
        policy = self.policies[agent]
        sampling = at_temperature(self.config.agents.sampling, temperature)
        return language_agent_factory(
            self.engine,
            policy.chat,
            lambda: policy.label,
            sampling,
            run_seed=run_seed,
            tools=self.tools,
        )

    def label(self, agent: str) -> str:
        """`name@version` of a policy, or the scripted agent's name."""
        return self.policies[agent].label if agent in self.policies else agent

    def save(self) -> None:
        """Write a checkpoint after `state.update` updates and prune old ones."""
        self.state = self.state.model_copy(
            update={
                "policy_versions": {name: policy.version for name, policy in self.policies.items()},
                "kl_coefficients": {
                    trainer.policy.name: trainer.kl_coefficient
                    for trainer in self.trainers
                    if self.config.objective.kl is not None
                },
            }
        )
        optimizers = {trainer.policy.name: trainer.optimizer_state() for trainer in self.trainers}
        if self.critic is not None and self.critic_optimizer is not None:
            optimizers["critic:"] = optimizer_tensors(self.critic_optimizer, self.critic.named_parameters())
        save_checkpoint(
            self.folder, self.state, policies=self.policies, critic=self.critic, optimizers=optimizers
        )
        prune_checkpoints(self.folder, keep=self.config.storage.keep, protect=self.state.best_update)

    def restore(self, update: int) -> None:
        """Go back to the checkpoint after `update` updates."""
        folder = checkpoint_path(self.folder, update)
        self.state, optimizers = load_checkpoint(folder, policies=self.policies, critic=self.critic)
        for name, policy in self.policies.items():
            policy.version = self.state.policy_versions[name]
            self.engine.publish(name)
        wanted = [trainer.policy.name for trainer in self.trainers] + ["critic:"] * (self.critic is not None)
        missing = [name for name in wanted if name not in optimizers]
        if missing:
            raise CheckpointError(
                f"{folder} holds no optimiser state of {missing}; use an earlier checkpoint"
            )
        for trainer in self.trainers:
            trainer.restore_optimizer(optimizers[trainer.policy.name])
            known = self.state.kl_coefficients
            trainer.kl_coefficient = known.get(trainer.policy.name, trainer.kl_coefficient)
        if self.critic is not None and self.critic_optimizer is not None:
            restore_optimizer(self.critic_optimizer, self.critic.named_parameters(), optimizers["critic:"])

    def metrics_file(self) -> MetricsFile:
        """The run's metrics, without lines of updates that will be done again."""
        return MetricsFile(self.folder / "metrics.jsonl", resume_from=self.state.update)


def new_run(config: RunConfig, *, overwrite: bool = False) -> Run:
    """Build a run and its folder.

    Raises:
        ConfigError: if the folder exists and is not to be overwritten, or another process trains in it.
    """
    run = build_run(config, overwrite=overwrite)
    make_folder(run)
    return run


def build_run(config: RunConfig, *, overwrite: bool = False) -> Run:
    """Build a new run and leave its folder as it is.

    Raises:
        ConfigError: if the folder exists and is not to be overwritten, or another process trains in it.
    """
    folder = Path(config.storage.folder) / config.name
    if folder.exists() and any(folder.iterdir()):
        if not overwrite:
            raise ConfigError(
                f"run folder '{folder}' exists; expected a new name (--name), --resume {folder} to go on with it,"
                " or --overwrite to delete it first"
            )
        if not (folder / CONFIG_FILE).exists():
            raise ConfigError(
                f"'{folder}' holds no {CONFIG_FILE}, so it is no run folder; it was not deleted"
            )
        with sole_writer(folder):
            pass
    config = pin_starts(config)
    for name, policy in config.agents.policies.items():
        if policy.start and find_policy_folder(policy.start).resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"'agents.policies.{name}.start' is {policy.start!r}, which lies in the folder to be overwritten;"
                " expected another name for this run (--name)"
            )
    return Run(config, folder=folder)


def make_folder(run: Run, files: Mapping[str, object] | None = None) -> None:
    """Make the folder of a new run, in place of what is there; JSON `files` by name stand in it before it counts."""
    config, folder = run.config, run.folder
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name, content in (files or {}).items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    resolved = config.model_copy(
        update={"agents": config.agents.model_copy(update={"seats": config.seats()})}
    )
    told = environment()
    for part, found in ((DATA, data_record(run.data)), (STARTS, start_digests(config))):
        if found:
            told[part] = found
    (folder / ENVIRONMENT_FILE).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    (folder / CONFIG_FILE).write_text(resolved.model_dump_json(indent=2) + "\n", encoding="utf-8")


def pin_starts(config: RunConfig) -> RunConfig:
    """Say which checkpoint each policy starts from: a resumed run must find the same reference (law 8)."""
    policies = {
        name: policy
        if policy.start is None
        else policy.model_copy(update={"start": pin_entrant(policy.start)})
        for name, policy in config.agents.policies.items()
    }
    return config.model_copy(update={"agents": config.agents.model_copy(update={"policies": policies})})


def resume_run(folder: Path) -> Run:
    """Build a run from its folder and restore the newest whole checkpoint (none: it starts again).

    Raises:
        ConfigError: if the folder is no run folder or that of an imitation, or tasks or starts
            that it began with are others now.
    """
    if (folder / IMITATION_FILE).is_file():
        raise ConfigError(
            f"'{folder}' was made by coplay imitate; expected coplay imitate --resume {folder} to go on with it, or a"
            f" new run that starts from it (--agents.policies.NAME.start {folder})"
        )
    config = read_config(folder)
    check_starts(folder, config, afresh=not complete_checkpoints(folder))
    run = Run(config, folder=folder)
    check_data(folder, run.data)
    found = complete_checkpoints(folder)
    if found:
        run.restore(found[-1])
    return run


def check_critic(game: Game[Any], config: RunConfig) -> None:
    """Rule 5: with alternating moves and no rounds a critic has ticks without a value.

    Raises:
        CriticNotApplicableError: if so.
    """
    if critic_learning(config.estimator) is None or game.spec.has_rounds:
        return
    first = game.to_move(game.initial_state(Chance(0)))
    if len(first) < len(game.spec.players):
        raise CriticNotApplicableError(
            f"the estimator has a critic, but in {game.name!r} players move in turn and no rounds are declared, so"
            " that most ticks have no reply to read a value at; use estimator.kind = 'returns'"
        )

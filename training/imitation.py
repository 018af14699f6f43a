"""Imitation: gather dialogues, write them down as rows, make what was said likelier: a run, read from top to bottom."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coplay.agents.policy import Policy
from coplay.agents.runs import read_object
from coplay.games import derive_seed
from coplay.rollout_tree import RolloutTree, Trajectory, write_rollouts
from coplay.training.checkpoint import complete_checkpoints
from coplay.training.data import check_data
from coplay.training.demonstration_rows import Lesson, Scribe, lessons
from coplay.training.demonstrations import Demonstrations, gather
from coplay.training.imitation_config import ImitationConfig
from coplay.training.imitation_steps import imitation_step, rows_of, validate
from coplay.training.messages import ConfigError
from coplay.training.metrics import prefixed
from coplay.training.passes import reading_of
from coplay.training.record import evaluate_run
from coplay.training.run import Run, build_run, make_folder
from coplay.training.starts import check_starts
from coplay.training.stored_config import IMITATION_FILE, read_imitation_config
from coplay.training.timing import Clock, NumTokens

Report = Callable[[int, Mapping[str, float]], None]
DEMONSTRATIONS_FILE = "demonstrations.json"
"""What an imitation learnt from: counts, and the digest that a resumed one must find again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curriculum:
    """Which dialogues are learnt from, in which order, and which are kept to be guessed."""

    training: tuple[Trajectory, ...]
    validation: tuple[Trajectory, ...]
    batch_size: int
    num_epochs: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Optimiser steps in which every dialogue is learnt from once; the last takes those that are left."""
        return -(-len(self.training) // self.batch_size)

    @property
    def num_steps(self) -> int:
        """Optimiser steps of the whole imitation."""
        return self.num_epochs * self.steps_per_epoch

    def batches(self, first: int = 0) -> Iterator[tuple[Trajectory, ...]]:
        """The dialogues of each optimiser step from step `first` on: a function of seed, epoch and their names."""
        epoch, place = divmod(first, self.steps_per_epoch)
        for number in range(epoch, self.num_epochs):
            order = sorted(
                self.training, key=lambda path: derive_seed(self.seed, "imitation", number, path.episode)
            )
            for start in range(place * self.batch_size, len(order), self.batch_size):
                yield tuple(order[start : start + self.batch_size])
            place = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitation:
    """A run whose policy learns from dialogues."""

    run: Run
    config: ImitationConfig
    curriculum: Curriculum
    counts: Mapping[str, int]
    """Of the sources: `SOURCE/taken`, and by reason what was left out."""
    dropped: Mapping[str, int]
    """By reason, dialogues that do not fit `agents.sampling`."""
    summary: Mapping[str, object]
    """Both, numbers of dialogues and tokens, and the digest of the texts."""
    played: tuple[RolloutTree, ...]

    @property
    def policy(self) -> Policy:
        """The one that learns."""
        return self.run.policies[self.config.policy()]

    def left_out(self) -> dict[str, int]:
        """Dialogues that are not learnt from and replies that are context only, by reason."""
        kept = {key: number for key, number in self.counts.items() if not key.endswith("/taken")}
        return {**kept, **self.dropped}


def prepare(config: ImitationConfig, run: Run, demonstrations: Demonstrations) -> Imitation:
    """Write dialogues down as rows of the run's model, and split them.

    Raises:
        ConfigError: if too many of them do not fit, or one side of the split is empty.
    """
    policy, imitation = run.policies[config.policy()], config.imitation
    scribe = Scribe(
        chat=policy.chat,
        sampling=config.agents.sampling,
        constrained=imitation.constrained,
        policy=policy.name,
    )
    written, dropped = lessons(scribe, demonstrations.found)
    _check_dropped(dropped, len(demonstrations.found), imitation.max_dropped_share)
    kept = _held_out(written, share=imitation.validation_share, seed=config.seed)
    sides = [[lesson for lesson in written if (lesson.game in kept) == side] for side in (False, True)]
    training, validation = ([lesson.trajectory for lesson in side] for side in sides)
    if not training or (imitation.validation_share and not validation):
        raise ConfigError(
            f"'imitation.validation_share' is {imitation.validation_share}: of {len(written)} dialogues"
            f" {len(training)} would be learnt from and {len(validation)} kept; expected some on both sides: more"
            " dialogues, another share, or 0"
        )
    curriculum = Curriculum(
        training=tuple(training),
        validation=tuple(validation),
        batch_size=config.update.batch_size,
        num_epochs=config.update.num_epochs,
        seed=config.seed,
    )
    run.config = run.config.model_copy(
        update={"update": run.config.update.model_copy(update={"num_updates": curriculum.num_steps})}
    )
    summary = {
        "digest": demonstrations.digest,
        "sources": dict(demonstrations.counts),
        "dropped": dict(sorted(dropped.items())),
        "training": len(training),
        "validation": len(validation),
        "training_tokens": sum(lesson.num_tokens for lesson in sides[0]),
        "validation_tokens": sum(lesson.num_tokens for lesson in sides[1]),
        "steps_per_epoch": curriculum.steps_per_epoch,
        "steps": curriculum.num_steps,
    }
    return Imitation(
        run=run,
        config=config,
        curriculum=curriculum,
        counts=demonstrations.counts,
        dropped=dropped,
        summary=summary,
        played=demonstrations.played,
    )


def _check_dropped(dropped: Counter[str], found: int, largest: float) -> None:
    if dropped.total() > largest * found:
        raise ConfigError(
            f"{dropped.total()} of {found} dialogues do not fit ({dict(sorted(dropped.items()))}); expected at most"
            f" {largest:.0%}: raise agents.sampling.max_context ('too_long') or max_new_tokens ('reply_too_long'), or"
            " say with imitation.max_dropped_share that it may be more"
        )


def _held_out(written: Sequence[Lesson], *, share: float, seed: int) -> frozenset[str]:
    """The games that are never trained on: a function of their names, whatever their order."""
    games = sorted(
        {lesson.game for lesson in written}, key=lambda game: derive_seed(seed, "validation", game)
    )
    return frozenset(games[: round(share * len(games))])


def new_imitation(config: ImitationConfig, *, overwrite: bool = False) -> Imitation:
    """Build an imitation and its run folder; the folder is made once all dialogues are read and written down.

    Raises:
        ConfigError: if the folder exists and is not to be overwritten, or the sources hold too little.
    """
    demonstrations = gather(config)
    run = build_run(config.run(num_steps=1), overwrite=overwrite)
    pinned = config.model_copy(update={"agents": run.config.agents})
    imitation = prepare(pinned, run, demonstrations)
    files = {DEMONSTRATIONS_FILE: imitation.summary, IMITATION_FILE: pinned.model_dump(mode="json")}
    make_folder(run, files)
    return imitation


def resume_imitation(folder: Path) -> Imitation:
    """Build an imitation from its folder and restore the newest whole checkpoint (none: it starts again).

    Raises:
        ConfigError: if the folder holds no imitation, or its sources or starts hold others than before.
    """
    config = read_imitation_config(folder)
    demonstrations = gather(config)
    before = read_object(folder / DEMONSTRATIONS_FILE)["digest"]
    if demonstrations.digest != before:
        raise ConfigError(
            f"the sources of '{folder}' hold other dialogues than when it began (digest {demonstrations.digest},"
            f" before {before}); expected the same: put them back, or begin a new imitation"
        )
    settings = config.run(num_steps=1)
    check_starts(folder, settings, afresh=not complete_checkpoints(folder))
    run = Run(settings, folder=folder)
    check_data(folder, run.data)
    imitation = prepare(config, run, demonstrations)
    found = complete_checkpoints(folder)
    if found:
        imitation.run.restore(found[-1])
    return imitation


def imitate(imitation: Imitation, report: Report) -> None:
    """Take all optimiser steps that are left; `report` hears each one's metrics."""
    run, curriculum = imitation.run, imitation.curriculum
    metrics = run.metrics_file()
    _store_played(imitation)
    if run.config.evaluate.every and run.config.evaluate.before and run.state.update == 0:
        evaluate_run(run, chooses_best=False)
        run.save()
    for paths in curriculum.batches(run.state.update):
        step, clock = run.state.update, Clock()
        values = prefixed("imitation", imitation_metrics(imitation, paths, step))
        run.state = run.state.model_copy(update={"update": step + 1})
        run.engine.publish(imitation.policy.name)
        clock.lap("update")
        values |= clock.metrics(_num_tokens(paths))
        new_best = False
        if (step + 1) % curriculum.steps_per_epoch == 0 and curriculum.validation:
            clock = Clock()
            known = _validate(imitation)
            values |= prefixed("validation", known)
            new_best = _note(run, known["loss"])
            clock.lap("validate")
            values |= clock.metrics(_num_tokens(curriculum.validation))
        metrics.append(step, values)
        _keep(run, new_best=new_best, last=step + 1 == curriculum.num_steps)
        report(step, values)


def _store_played(imitation: Imitation) -> None:
    """Keep the games that were played on the spot, each source as an iteration, unless no rollouts are kept."""
    stored = {tree.iteration for tree in imitation.played} if imitation.config.storage.every else ()
    for iteration in sorted(stored):
        trees = [tree for tree in imitation.played if tree.iteration == iteration]
        write_rollouts(imitation.run.folder, iteration, trees)


def imitation_metrics(imitation: Imitation, paths: Sequence[Trajectory], step: int) -> dict[str, float]:
    """Take one optimiser step and tell what it did."""
    run, update = imitation.run, imitation.config.update
    return imitation_step(
        imitation.policy,
        run.trainers[0].optimizer,
        rows_of(paths, imitation.policy),
        reading_of(run.config.update),
        lr=update.lr.value(step),
        gradient_clip=update.gradient_clip,
        refused=run.folder / "refused" / f"{imitation.policy.name}-{step:06d}.safetensors",
    )


def _num_tokens(paths: Sequence[Trajectory]) -> NumTokens:
    rows = [row for path in paths for row in path.rows]
    return NumTokens(
        sampled=sum(int(row.sampled.sum()) for row in rows), total=sum(len(row.ids) for row in rows)
    )


def _validate(imitation: Imitation) -> dict[str, float]:
    return validate(
        imitation.policy,
        imitation.curriculum.validation,
        reading_of(imitation.run.config.update),
        at_once=imitation.config.update.batch_size,
    )


def _note(run: Run, loss: float) -> bool:
    """Remember the update with the smallest validation loss; True if it is this one."""
    best = run.state.best_score
    if best is not None and loss >= best:
        return False
    run.state = run.state.model_copy(update={"best_update": run.state.update, "best_score": loss})
    return True


def _keep(run: Run, *, new_best: bool, last: bool) -> None:
    """Evaluate and save where it is due; the last step and the best one are always saved."""
    update, every = run.state.update, run.config.evaluate.every
    evaluates = bool(every) and (last or update % every == 0)
    if evaluates:
        evaluate_run(run, chooses_best=False)
    if evaluates or new_best or last or update % run.config.storage.checkpoint_every == 0:
        run.save()

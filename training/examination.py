"""A run examined: its policies in every game that its evaluation names, and what that says of the best checkpoint."""

import math
from collections.abc import Sequence

from coplay.games import derive_seed
from coplay.training.config import RunConfig
from coplay.training.evaluate import Contestant, Result, evaluate, pairings, score
from coplay.training.evaluate_settings import BestSettings, Way
from coplay.training.run import Run
from coplay.training.seats import may_play


class NotMeasuredError(ValueError):
    """The number that chooses the best checkpoint is not known of the games that were played."""


def examine(run: Run) -> list[Result]:
    """Meet itself and the anchors in what is trained on and what is held out, in each way of drawing replies."""
    results = []
    for way in run.config.evaluate.sampling:
        found = _examine(run, way)
        results += [one.model_copy(update={"sampling": told(way)}) for one in found]
    return results


def _examine(run: Run, way: Way) -> list[Result]:
    config, settings = run.config, run.config.evaluate
    seed = derive_seed(config.seed, "evaluation") if settings.seed is None else settings.seed
    temperature = temperature_of(way, settings.temperature)
    trained = {trainer.policy.name for trainer in run.trainers}

    def seated(agent: str) -> Contestant:
        factory = run.factory(agent, run_seed=seed, temperature=temperature)
        return Contestant(label=run.label(agent), factory=factory)

    home = {player: seated(agent) for player, agent in config.seats().items()}
    own = {player: home[player] for player, agent in config.seats().items() if agent in trained}
    anchors = [seated(name) for name in settings.anchors]
    results = []
    for exam in run.exams:
        able = [anchor for anchor in anchors if may_play(anchor.label, exam.kind)]
        asked = pairings(run.game.spec.players, own, home, able)
        samples = 1 if way == "greedy" else settings.num_samples
        found = evaluate(exam.games, asked, games=settings.num_games, seed=seed, samples=samples)
        results += [result.model_copy(update={"game": exam.name}) for result in found]
    return results


def temperature_of(way: Way, temperature: float | None) -> float | None:
    """At what temperature replies are drawn; None: that of training."""
    return 0.0 if way == "greedy" else temperature


def told(way: Way) -> str:
    """How a result calls a way of drawing."""
    return "" if way == "temperature" else way


def best_score(config: RunConfig, results: Sequence[Result]) -> float:
    """The number by which checkpoints are compared.

    Raises:
        NotMeasuredError: if the games played do not say it.
    """
    settings, best = config.evaluate, config.evaluate.best
    games = {exam.name for exam in config.exams() if not exam.held_out} if best.game is None else {best.game}
    chosen = [
        result
        for result in results
        if result.game in games
        and result.sampling == told(settings.best_sampling)
        and result.source == (best.source or "")
        and best.opponent in (None, result.opponent)
    ]
    reached = score(chosen, best.metric)
    if math.isnan(reached):
        sources = sorted({result.source for result in results} - {""})
        raise NotMeasuredError(
            f"the best checkpoint is to be told by evaluate.best = {best.model_dump(exclude_defaults=True)}, which none"
            f" of the games played says; expected a metric they have (sources: {sources})"
        )
    return reached


def is_better(best: BestSettings, reached: float, before: float | None) -> bool:
    """Whether a score is better than the best one before it; equal ones are not."""
    if before is None:
        return True
    return reached > before if best.goal == "max" else reached < before

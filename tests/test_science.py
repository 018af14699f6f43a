"""What the shipped configurations are for, one seed of each: `python -m coplay.scripts.reproduce` runs all seeds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from coplay.scripts.reproduce import EXPERIMENTS, Outcome, run_all
from coplay.training.evaluate import SELF_PLAY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


def trained(folder: Path, *names: str) -> list[Outcome]:
    """What the first seeds of some experiments end as."""
    by_name = {experiment.name: experiment for experiment in EXPERIMENTS}
    jobs = [(by_name[name], by_name[name].seeds[0]) for name in names]
    return run_all(jobs, str(folder), jobs_at_once=len(jobs))


def self_play(outcome: Outcome) -> float:
    return outcome.results[SELF_PLAY].own.mean


def own(outcome: Outcome, opponent: str) -> float:
    return outcome.results[opponent].own.mean


def theirs(outcome: Outcome, opponent: str) -> float:
    other = outcome.results[opponent].other
    assert other is not None
    return other.mean


def aligned(outcome: Outcome) -> bool:
    return (
        self_play(outcome) >= 2.5
        and own(outcome, "always_defect") >= 0.8
        and theirs(outcome, "always_defect") <= 1.6
    )


CLAIMS: dict[str, Callable[[Outcome], bool]] = {
    "dilemma_aligned": aligned,
    "dilemma_aligned_ppo": aligned,
    "dilemma_independent": lambda o: self_play(o) <= 1.10,
    "dilemma_independent_ppo": lambda o: self_play(o) <= 1.10,
    "dilemma_independent_ppo_grpo": lambda o: self_play(o) <= 1.10,
    "dilemma_shared_reward": lambda o: self_play(o) >= 2.9 and theirs(o, "always_defect") >= 4.5,
    "dilemma_critic_aligned": aligned,
    "dilemma_critic_independent": lambda o: self_play(o) <= 1.10,
}


@pytest.mark.parametrize("config", CLAIMS)
def test_shipped_dilemma_when_trained_then_ends_as_theory_says(tmp_path: Path, config: str) -> None:
    (outcome,) = trained(tmp_path, config)
    assert CLAIMS[config](outcome), outcome.results


def test_trust_and_split_when_aligned_then_eight_points_a_round_above_independent(tmp_path: Path) -> None:
    aligned_one, independent = trained(tmp_path, "trust_aligned", "trust_independent")
    assert self_play(aligned_one) - self_play(independent) >= 8

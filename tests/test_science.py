"""What the shipped configurations are for, one seed of each: `python -m coplay.scripts.reproduce` runs all seeds."""

from collections.abc import Callable

import pytest

from coplay.scripts.reproduce import EXPERIMENTS, Outcome, run_all
from coplay.training.evaluate import SELF_PLAY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = str(tmp_path_factory.mktemp("science"))
    jobs = [(experiment, experiment.seeds[0]) for experiment in EXPERIMENTS]
    return {
        experiment.name: outcome
        for (experiment, _), outcome in zip(jobs, run_all(jobs, folder, jobs_at_once=2), strict=True)
    }


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
    "dilemma_critic_independent": lambda o: self_play(o) <= 1.10,
}


@pytest.mark.parametrize("config", CLAIMS)
def test_shipped_dilemma_when_trained_then_ends_as_theory_says(
    outcomes: dict[str, Outcome], config: str
) -> None:
    assert CLAIMS[config](outcomes[config]), outcomes[config].results


def test_trust_and_split_when_aligned_then_eight_points_a_round_above_independent(
    outcomes: dict[str, Outcome],
) -> None:
    assert self_play(outcomes["trust_aligned"]) - self_play(outcomes["trust_independent"]) >= 8

"""Evaluation: games of its own luck, pooled by opponent, with intervals, and nothing of it reaches training."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from run_fakes import run_bytes, tiny_run

from coplay.agents.scripted import scripted_agent
from coplay.games import make_game
from coplay.training.evaluate import SELF_PLAY, Contestant, evaluate, interval, pairings, score
from coplay.training.loop import train


def silent(update: int, metrics: Mapping[str, float]) -> None:
    """Hears what the loop reports."""


def who(name: str) -> Contestant:
    return Contestant(label=name, factory=scripted_agent(name))


def test_pairings_when_made_then_self_play_and_each_own_seat_among_copies_of_each_anchor() -> None:
    own = {player: who("tit_for_tat") for player in ("Ada", "Bo", "Cy")}
    found = pairings(("Ada", "Bo", "Cy"), own, own, [who("grim"), who("random")])
    assert [pairing.name for pairing in found] == [SELF_PLAY, *["grim"] * 3, *["random"] * 3]
    assert found[0].own == ("Ada", "Bo", "Cy")
    assert {p: c.label for p, c in found[2].seats.items()} == {
        "Ada": "grim",
        "Bo": "tit_for_tat",
        "Cy": "grim",
    }


def test_results_when_players_are_scripted_then_their_known_returns() -> None:
    game = make_game("iterated_matrix", num_rounds=10)
    home = {player: who("tit_for_tat") for player in game.spec.players}
    asked = pairings(game.spec.players, home, home, [who("always_defect"), who("always_cooperate")])
    rows = {result.opponent: result for result in evaluate(game, asked, games=3, seed=0)}
    assert rows[SELF_PLAY].own.mean == 3.0
    assert rows[SELF_PLAY].other is None
    assert rows["always_defect"].own.mean == pytest.approx(0.9)
    assert rows["always_defect"].other is not None
    assert rows["always_defect"].other.mean == pytest.approx(1.4)
    assert rows["always_defect"].cooperation is not None
    assert rows["always_defect"].cooperation.mean == pytest.approx(0.1)
    assert rows["always_cooperate"].own.mean == 3.0
    assert rows["always_defect"].games == 6, "both seats, pooled"
    assert all(row.failed == 0 and row.malformed == 0 for row in rows.values())
    assert score(list(rows.values())) == pytest.approx((3 + 0.9 + 3) / 3)


def test_luck_when_evaluated_twice_then_the_same_and_another_seed_is_another() -> None:
    game = make_game("split", num_rounds=2)
    home = {player: who("random") for player in game.spec.players}
    asked = pairings(game.spec.players, home, home, [who("fair")])
    one, same, other = (evaluate(game, asked, games=4, seed=seed) for seed in (1, 1, 2))
    assert one == same != other


def test_interval_when_bootstrapped_then_covers_the_mean_and_narrows() -> None:
    values = np.random.default_rng(0).normal(2.0, 1.0, size=400).tolist()
    wide, narrow = interval(values[:20], seed=1), interval(values, seed=1)
    assert wide.low < wide.mean < wide.high
    assert narrow.high - narrow.low < wide.high - wide.low
    assert interval(values, seed=1) == narrow
    assert narrow.high - narrow.low == pytest.approx(2 * 1.96 / 20, rel=0.15)


@pytest.mark.parametrize("values", [[1.5], [2.0, 2.0, 2.0]])
def test_interval_when_there_is_no_spread_then_no_width(values: list[float]) -> None:
    found = interval(values, seed=0)
    assert found.low == found.mean == found.high == values[0]
    assert str(found) == f"{values[0]:.2f} [{values[0]:.2f}, {values[0]:.2f}]"


def test_interval_when_nearly_constant_then_finite() -> None:
    found = interval([1.0] * 9 + [1.0 + 1e-12], seed=0)
    assert np.isfinite([found.low, found.high]).all()


def test_training_when_evaluated_in_between_then_the_same_as_without(tmp_path: Path) -> None:
    plain = tiny_run(tmp_path / "plain", {})
    watched = tiny_run(
        tmp_path / "watched", {"evaluate": {"every": 1, "num_games": 2, "anchors": ["grim", "random"]}}
    )
    for run in (plain, watched):
        train(run, silent)
    one, other = run_bytes(plain.folder), run_bytes(watched.folder)
    alike = [
        name for name in one if name.startswith(("rollouts", "metrics")) or name.endswith(".safetensors")
    ]
    assert len(alike) > 10
    assert all(one[name] == other[name] for name in alike)


def test_evaluation_when_policies_differ_by_seat_then_each_keeps_its_own(tmp_path: Path) -> None:
    changes = {
        "agents.policies": {"learner": {}, "frozen": {"trained": False}},
        "agents.seats": {"Ada": "learner", "Bo": "frozen"},
        "evaluate": {"every": 3, "num_games": 2, "anchors": ["grim"]},
    }
    run = tiny_run(tmp_path, changes)
    train(run, silent)
    rows = run.state.history[-1]["results"]
    assert [row["opponent"] for row in rows] == [SELF_PLAY, "grim"]
    assert rows[0]["other"] is not None, "the frozen seat is the other"
    assert rows[1]["games"] == 2, "only the learner's seat meets the anchor"

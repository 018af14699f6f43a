"""A reply that the sampling settings would cut off is told before a run: what, how long, what to set."""

import json
from pathlib import Path
from typing import Any

import pytest

from coplay.games import Chance
from coplay.scripts import cli
from coplay.scripts.settings import check_settings, read_settings
from coplay.training.reply_budget import too_long_replies
from coplay.training.run import Run
from coplay.training.stages import collect_rollouts

SMALL = [
    *("--agents.model.hidden", "16", "--agents.model.intermediate", "16", "--agents.model.num-layers", "1"),
    *("--collect.num-groups", "1", "--collect.group-size", "2", "--update.num-updates", "1"),
    *("--evaluate.every", "0"),
]


def run_of(*flags: str, config: str | None = "dilemma_aligned", **changes: Any) -> Run:
    data = json.loads(read_settings(config, [*SMALL, *flags]).model_dump_json())
    return Run(check_settings(data | changes), folder=Path("nowhere"))


def test_warning_when_every_reply_fits_then_none() -> None:
    assert too_long_replies(run_of()) is None
    assert too_long_replies(run_of("--game.kind", "kuhn_poker", config=None)) is None


@pytest.mark.parametrize(("constrained", "needed"), [(True, 14), (False, 15)])
def test_warning_when_a_move_is_spelt_in_more_tokens_then_names_it_and_the_number(
    constrained: bool, needed: int
) -> None:
    """A byte a token after one for its beginning; drawn freely an end token too, else a reply counts as cut off."""
    flags = [
        "--game.moves",
        "yes",
        "zzqqzzqqzzqqz",
        "--agents.sampling.constrained",
        str(constrained).lower(),
    ]
    for budget in (needed - 1, needed):
        told = too_long_replies(run_of(*flags, "--agents.sampling.max-new-tokens", str(budget)))
        if budget == needed:
            assert told is None
        else:
            assert told is not None
            assert f"is {budget}, but the reply 'zzqqzzqqzzqqz' of 'Ada' in game 'iterated_matrix'" in told
            assert (
                f"takes {needed} tokens" in told
                and f"--agents.sampling.max-new-tokens {needed} or more" in told
            )


def test_warning_when_a_game_is_over_after_a_step_then_its_score_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def score(answer: str, task: object) -> float:
        raise AssertionError("asked about a reply that nobody gave")

    monkeypatch.setattr("coplay.games.tasks.find_reward", lambda name, pattern: score)
    assert too_long_replies(run_of(config="tasks")) is None


def test_warning_when_only_a_later_phase_has_the_long_reply_then_found() -> None:
    """Trading asks for one letter first, and then for units of each good."""
    run = run_of("--game.kind", "trading", "--agents.sampling.max-new-tokens", "1", config=None)
    first = run.game.observe(run.game.initial_state(Chance(0)), "Ada").grammar.labels()
    assert first is not None and all(
        len(run.policies["shared"].chat.encode_label(word)) == 1 for word in first
    )
    told = too_long_replies(run)
    assert told is not None and "in game 'trading' takes" in told


@pytest.mark.parametrize(("budget", "malformed"), [(13, 1.0), (14, 0.0)])
def test_number_when_set_then_just_enough(tmp_path: Path, budget: int, malformed: float) -> None:
    """The number told is the one at which replies stop being cut off."""
    flags = ["--game.moves", "qqzzqqzzqqzzq", "zzqqzzqqzzqqz", "--storage.folder", str(tmp_path)]
    run = run_of(*flags, "--game.num-rounds", "2", "--agents.sampling.max-new-tokens", str(budget))
    trees = collect_rollouts(run, 0)
    turns = [turn for tree in trees for step in tree.steps for turn in step.turns]
    assert sum(turn.finish == "length" for turn in turns) / len(turns) == malformed


def test_warning_when_the_long_reply_is_of_a_scripted_seat_then_none() -> None:
    flags = ["--game.moves", "yes", "zzqqzzqqzzqqz"]
    seats = {"Ada": "always_defect", "Bo": "shared"}
    run = run_of(*flags, "--agents.seats.Ada", "always_defect")
    assert run.config.seats() == seats
    told = too_long_replies(run)
    assert told is not None and "of 'Bo'" in told


def test_commands_when_a_reply_would_be_cut_off_then_both_warn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", *SMALL, "--game.num-rounds", "2", "--game.moves", "yes", "zzqqzzqqzzqqz"]
    assert cli.main([*words, "--dry-run"]) == 0
    assert "warning: 'agents.sampling.max_new_tokens' is 4" in capsys.readouterr().out
    assert cli.main(words) == 0
    assert capsys.readouterr().err.startswith("warning: 'agents.sampling.max_new_tokens' is 4")

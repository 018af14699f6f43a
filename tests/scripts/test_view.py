"""`coplay view`: a page, or text."""

from pathlib import Path

import pytest

from coplay.agents.scripted import scripted_agent
from coplay.games import make_game
from coplay.rollout_tree import CollectPlan, collect_sync, plan_episodes, write_rollouts
from coplay.scripts.cli import main


@pytest.fixture
def run(tmp_path: Path) -> Path:
    game = make_game("iterated_matrix", num_rounds=3)
    names = dict(zip(game.spec.players, ["tit_for_tat", "always_defect"], strict=True))
    for iteration in (0, 4):
        plan = plan_episodes(
            game,
            run_seed=1,
            iteration=iteration,
            num_groups=1,
            group_size=2,
            seats={player: scripted_agent(name) for player, name in names.items()},
            seat_names=names,
        )
        write_rollouts(tmp_path / "r", iteration, collect_sync(CollectPlan(game=game, episodes=plan)))
    return tmp_path / "r"


def test_view_when_called_then_the_page_is_written_where_asked(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert main(["view", str(run), "--iteration", "4", "--out", str(tmp_path / "x/page.html")]) == 0
    one, all_of_them = (tmp_path / "x/page.html").read_text("utf-8"), (run / "report.html").read_text("utf-8")
    assert "000004/00001" in one
    assert "000000/00001" not in one
    assert "000000/00001" in all_of_them


def test_view_when_text_is_asked_for_then_dialogues(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(run), "--text"]) == 0
    out = capsys.readouterr().out
    assert "episode 000004/00000" in out
    assert "2 episodes in iteration 4" in out
    assert main(["view", str(run), "--text", "--episode", "0/1", "000004/00001"]) == 0
    out = capsys.readouterr().out
    assert out.count("iterated_matrix  episode") == 2
    assert not (run / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--iteration", "7"], "iteration 7 is not under"),
        (["--text", "--episode", "nobody"], "no episode 'nobody'"),
        (["--text", "--branch", "b"], "has no branch 'b'"),
        (["--episode", "000000/00000"], "--episode and --branch go with --text"),
    ],
)
def test_view_when_asked_for_what_is_not_there_then_one_sentence(
    run: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(run), *words]) in (1, 2)
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1

"""Somebody else's package (tests/plugin_package): installed, found, checked, trained for one update, and read back."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coplay.games import Choice, grammar_from_json, register_grammar

PACKAGE = Path(__file__).parent.parent / "plugin_package"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed package and nothing else; built from a copy, so that no file is left behind."""
    source, target = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("shop")
    shutil.copytree(PACKAGE, source)
    flags = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(target))
    subprocess.run([sys.executable, "-m", "pip", "install", *flags, str(source)], check=True, timeout=200)
    return target


def told(shop: Path, *words: str, cwd: Path | None = None) -> str:
    paths = os.pathsep.join([str(shop), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=cwd or shop,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COPLAY = ("-m", "coplay.scripts.cli")


def test_plugged_game_when_installed_then_found_by_name_and_passes_the_kit(shop: Path) -> None:
    code = (
        "from coplay.games import available_games, make_game\n"
        "print(make_game('sealed_bid', most=3).spec.players, 'sealed_bid' in available_games())"
    )
    assert told(shop, "-c", code) == "('Ada', 'Bo', 'Cy') True\n"
    assert "rules hold" in told(shop, *COPLAY, "check-game", "sealed_bid")
    assert "The highest bidder gets the lot" in told(shop, *COPLAY, "games", "sealed_bid")


def test_own_grammar_when_read_back_then_known_without_importing_its_package(shop: Path) -> None:
    code = (
        "import sys; from coplay.games import grammar_from_json\n"
        "assert 'coplay_sealed_bid' not in sys.modules\n"
        "print(grammar_from_json({'kind': 'sealed_bid/price', 'most': 4}).parse('$ 3').value)"
    )
    assert told(shop, "-c", code) == "3\n"


@pytest.mark.slow
def test_plugged_game_when_trained_for_one_update_then_its_rollouts_are_read_back(
    shop: Path, tmp_path: Path
) -> None:
    words = (
        "train --name bids --game.kind sealed_bid --game.wording terse --evaluate.anchors random"
        " --estimator.kind returns --shaping.kind independent"
        " --update.num-updates 1 --collect.num-groups 2 --collect.group-size 2"
    )
    told(shop, *COPLAY, *words.split(), cwd=tmp_path)
    code = (
        "import sys; from pathlib import Path; from coplay.rollout_tree.storage import read_rollouts\n"
        "trees = list(read_rollouts(Path('runs/bids')))\n"
        "grammar = trees[0].steps[0].turns[0].observation.grammar\n"
        "print(len(trees), grammar.to_json(), 'coplay_sealed_bid' in sys.modules)"
    )
    told_back = told(shop, "-c", code, cwd=tmp_path)
    assert "{'kind': 'sealed_bid/price', 'most': 9} True" in told_back


def test_register_grammar_when_the_kind_is_taken_or_no_grammar_then_refused() -> None:
    with pytest.raises(ValueError, match="is taken by"):

        @register_grammar("choice")
        class Mine(Choice):
            pass

    with pytest.raises(ValueError, match="every method of Grammar"):
        register_grammar("number of mine")(int)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="register_grammar"):
        grammar_from_json({"kind": "of nobody"})
    assert register_grammar("choice")(Choice) is Choice

"""Makes the two pictures of README from two runs of its own: `python tests/rollout_tree/take_screenshots.py`.

Needs Playwright and a Chromium, and two minutes: trains a run with branches, and the aligned one of the demo, which
then meets scripted agents. What it trains lies in a folder that is named at the end, to look at.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from coplay.scripts.cli import main

BRANCHES = """
name = "trust_branches"
seed = 1

[game]
kind = "trust_and_split"
wording = "terse"
messages_per_player = 0
public_values = true
claims = [0, 5, 10]

[agents.policies.shared]
weights = { kind = "full" }

[agents.sampling]
max_new_tokens = 4
constrained = true

[collect]
num_groups = 4
group_size = 4

[collect.branching]
num_alternatives = 3
share = 0.15

[estimator]
kind = "branches"
discount = 0.9
reward_scale = 20.0

[shaping]
kind = "advantage_alignment"
beta = 0.5

[update]
num_updates = 30
lr = 5e-4

[evaluate]
every = 15
anchors = ["greedy", "welfare_maximising"]
num_games = 32

[storage]
every = 10
"""
RIVALS = ("tit_for_tat", "always_defect", "always_cooperate", "random")
PICTURES = Path(__file__).parent / "screenshots"


def train(folder: Path) -> dict[str, Path]:
    """The pages of both runs, by run."""
    os.chdir(folder)
    Path("branches.toml").write_text(BRANCHES, encoding="utf-8")
    for words in (
        ["train", "branches.toml"],
        ["train", "dilemma_aligned"],
        ["evaluate", "dilemma_aligned", *RIVALS, "--matrix", "--games", "64"],
        ["view", "dilemma_aligned"],
    ):
        if main(words):
            raise SystemExit(f"coplay {' '.join(words)} failed; see above")
    return {name: folder / "runs" / name / "report.html" for name in ("trust_branches", "dilemma_aligned")}


def picture(
    browser: Any, report: Path, target: Path, *, scheme: str, place: str, keys: tuple[str, ...]
) -> None:
    """A page as it looks after some keys."""
    page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    page.goto(f"{report.as_uri()}#{place}")
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_timeout(300)
    page.screenshot(path=str(target))
    page.close()


def take(pages: dict[str, Path]) -> None:
    """Both pictures, into the folder beside this file."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = os.environ.get("COPLAY_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        picture(
            browser,
            pages["trust_branches"],
            PICTURES / "branches.png",
            scheme="light",
            place="view=episodes&episode=000000/00000&step=3",
            keys=("b",),
        )
        picture(
            browser, pages["dilemma_aligned"], PICTURES / "pay.png", scheme="dark", place="view=pay", keys=()
        )
        browser.close()


if __name__ == "__main__":
    made = tempfile.mkdtemp(prefix="coplay-")
    take(train(Path(made)))
    sys.stdout.write(f"pictures: {PICTURES}\nruns: {made}/runs\n")

"""What a test lacks skips it on a person's machine, with what to install, and fails it in CI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = Path(__file__).parent / "rollout_tree/test_page_in_browser.py"


@pytest.mark.parametrize(("ci", "outcome"), [("", "skipped"), ("true", "error")])
def test_browser_when_there_is_none_then_skipped_by_people_and_failed_in_ci(ci: str, outcome: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TEST)],
        env=os.environ | {"CI": ci, "COPLAY_CHROMIUM": "no-such-program"},
        capture_output=True,
        text=True,
        check=False,
    )
    closing = done.stdout.splitlines()[-1]
    assert outcome in closing and "passed" not in closing and done.returncode == bool(ci), (
        done.stdout + done.stderr
    )
    assert (
        "apt-get install chromium" in done.stdout
        or "pip install -c constraints.txt playwright" in done.stdout
    )

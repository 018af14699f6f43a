"""Law 8 with real kills: SIGKILL at random moments, resume until done, and not a byte differs."""

import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from run_fakes import FULL, LORA, differences, imitation_settings, run_bytes, tiny_settings

NUM_KILLS = 10
SETTINGS: dict[str, Any] = {
    "agents.policies": {"ada": {"weights": LORA}, "bo": {"weights": FULL}},
    "agents.seats": {"Ada": "ada", "Bo": "bo"},
    "estimator": {
        "kind": "critic",
        "reward_scale": 5.0,
        "lr": 1e-2,
        "gae_lambda": {"kind": "tanh", "limit": 0.95, "tau": 2.0},
    },
    "shaping": {"kind": "advantage_alignment", "beta": 0.5},
    "objective": {
        "entropy_coefficient": {"kind": "linear", "initial": 0.2, "final": 0.0, "end": 6},
        "kl": {"coefficient": 0.1, "controller": {"kind": "adaptive", "target": 0.01, "horizon": 100}},
    },
    "collect": {"num_groups": 2, "group_size": 8},
    "game.num_rounds": 10,
    "update": {"num_updates": 6, "lr": 1e-2},
    "evaluate": {"every": 2, "num_games": 2, "anchors": ["tit_for_tat"]},
}
IMITATION = """
import json, sys
from pathlib import Path
from coplay.training.imitation import imitate, new_imitation, resume_imitation
from coplay.training.imitation_config import ImitationConfig
settings, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
begun = (folder / "config.json").exists()
if begun:
    imitation = resume_imitation(folder)
else:
    imitation = new_imitation(ImitationConfig.model_validate(settings), overwrite=True)
imitate(imitation, lambda step, metrics: None)
"""
CHILD = """
import json, sys
from pathlib import Path
from coplay.training.config import RunConfig
from coplay.training.loop import train
from coplay.training.run import new_run, resume_run
settings, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
begun = (folder / "config.json").exists()
run = resume_run(folder) if begun else new_run(RunConfig.model_validate(settings), overwrite=True)
train(run, lambda update, metrics: None)
"""


class Child:
    """A process that trains or goes on; it waits with everything imported until told to start."""

    def __init__(self, settings: dict[str, Any], folder: Path, program: str = CHILD) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, json.dumps(settings), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def start(self) -> None:
        assert self.process.stdout is not None and self.process.stdin is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.process.stdout, selectors.EVENT_READ)
            assert waiting.select(timeout=240), "the child never came up"
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def finish(self) -> None:
        _, errors = self.process.communicate(timeout=240)
        assert self.process.returncode == 0, errors.decode()

    def kill_after(self, seconds: float) -> bool:
        """True if it was still at work."""
        time.sleep(seconds)
        alive = self.process.poll() is None
        if alive:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.communicate()
        else:
            self.finish()
        return alive


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("checkpoint_every", [1, 3])
def test_law_8_ten_kills_at_random_moments_change_no_byte(tmp_path: Path, checkpoint_every: int) -> None:
    changes = SETTINGS | {"storage.checkpoint_every": checkpoint_every}
    whole = tiny_settings(tmp_path / "whole", changes)
    child = Child(whole, tmp_path / "whole" / "tiny")
    child.start()
    started = time.perf_counter()
    child.finish()
    duration = time.perf_counter() - started
    expected = run_bytes(tmp_path / "whole" / "tiny")
    assert expected["updates"] == list(range(6))

    settings, folder = tiny_settings(tmp_path / "cut", changes), tmp_path / "cut" / "tiny"
    lots = random.Random(8)
    kills = finished = 0
    while kills < NUM_KILLS:
        child = Child(settings, folder)
        child.start()
        killed = child.kill_after(lots.uniform(0.0, 0.5 * duration))
        kills += killed
        if not killed:
            finished += 1
            assert differences(expected, run_bytes(folder)) == []
            shutil.rmtree(folder)
    if (folder / "config.json").exists() or not finished:
        child = Child(settings, folder)
        child.start()
        child.finish()
        assert differences(expected, run_bytes(folder)) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_law_8_imitations_killed_at_random_moments_change_no_byte(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "update__num_epochs": 8,
        "storage__checkpoint_every": 3,
        "evaluate": {"every": 4, "num_games": 2},
    }
    whole = imitation_settings(tmp_path / "whole", **changes)
    child = Child(whole, tmp_path / "whole" / "tiny", IMITATION)
    child.start()
    started = time.perf_counter()
    child.finish()
    duration = time.perf_counter() - started
    expected = run_bytes(tmp_path / "whole" / "tiny")
    assert expected["updates"] == list(range(8 * 3))

    settings, folder = imitation_settings(tmp_path / "cut", **changes), tmp_path / "cut" / "tiny"
    lots = random.Random(6)
    for kills in range(5):
        child = Child(settings, folder, IMITATION)
        child.start()
        if not child.kill_after(lots.uniform(0.0, 0.4 * duration)):
            assert kills, "the first one is to be killed"
            break
    child = Child(settings, folder, IMITATION)
    child.start()
    child.finish()
    assert differences(expected, run_bytes(folder)) == []

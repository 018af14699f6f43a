"""The benchmark against TRL on tiny numbers: both sides read the same prompts and are paid the same."""

import importlib.util
import sys

import pytest

from coplay.agents.base_model import load_base
from coplay.agents.settings import FolderModel
from coplay.games import Chance, make_game
from coplay.games.moves import Malformed, Move
from coplay.scripts.bench_end_to_end import SideError, compare, main, run_side
from coplay.scripts.bench_game import (
    PLAYER,
    SYSTEM,
    make_tiny_model,
    prompt_lengths,
    prompt_messages,
    prompt_text,
    words_for,
)
from coplay.scripts.bench_job import PARTS, Job, Result, StepTime
from coplay.scripts.bench_timers import REST, Timers, timed_parts

JOB = Job(
    trainer="ours", model="", num_words=3, num_prompts=2, group_size=2, new_tokens=4, rank=2, threads=1,
    warm_up=0, steps=1,
)  # fmt: skip
TINY = [
    *("--prompts", "2", "--group-size", "2", "--prompt-tokens", "90", "--new-tokens", "4"),
    *("--rank", "2", "--warm-up", "0", "--steps", "1"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    make_tiny_model(folder)
    return str(folder)


def test_game_when_replied_then_paid_for_its_distinct_characters_even_if_cut() -> None:
    game = make_game("distinct_characters", num_words=2)
    state = game.initial_state(Chance(7))
    assert game.decode(game.encode(state)) == state and game.to_move(state) == (PLAYER,)
    assert game.observe(state, PLAYER).text == prompt_text(state.prompt, 2)
    for action in (Move(value="abca", text="abca"), Malformed(reason="cut_off", text="abca")):
        after, outcome = game.step(state, {PLAYER: action}, Chance(7, 1))
        assert outcome.rewards == {PLAYER: 3.0} and outcome.terminated and game.to_move(after) == ()
    assert game.initial_state(Chance(8)) != state


def test_prompts_when_read_by_either_side_then_the_same_tokens(model: str) -> None:
    base = load_base(FolderModel(path=model), seed=0)
    assert sum(parameter.numel() for parameter in base.model.parameters()) == 803_968
    ours = [len(base.chat.opening(SYSTEM, prompt_text(number, 9))) for number in range(3)]
    assert ours == prompt_lengths(model, [prompt_messages(number, 9) for number in range(3)])
    lengths = prompt_lengths(model, [prompt_messages(n, words_for(model, 200)) for n in range(8)])
    assert sum(lengths) / 8 == pytest.approx(200, abs=4)


def test_timers_when_parts_nest_then_each_moment_is_charged_once() -> None:
    clock = iter(range(0, 1000, 10))

    class Work:
        def outer(self) -> None:
            self.inner()

        def inner(self) -> None:
            pass

    before = Work.outer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("coplay.scripts.bench_timers.time.perf_counter_ns", lambda: next(clock))
        timers = Timers(["a", "b"])
        with timed_parts(timers, {"a": [(Work, "outer")], "b": [(Work, "inner")]}):
            Work().outer()
        assert timers.take() == {"a": 20, "b": 10, REST: 20}
        assert timers.take() == {"a": 0, "b": 0, REST: 10}
    assert Work.outer is before


def test_table_when_a_side_takes_three_times_as_long_then_ours_is_three_times_as_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told(job: Job, python: str) -> Result:
        seconds = {"ours": 2.0, "grpo": 6.0}[job.trainer]
        assert python == job.trainer
        parts = dict.fromkeys(PARTS, 0.0) | {"generation": seconds / 4, REST: seconds * 3 / 4}
        step = StepTime(wall=seconds, cpu=seconds / 2, parts=parts, reply_tokens=4)
        return Result(steps=[step], prompt_tokens=90, peak_mib=10)

    monkeypatch.setattr("coplay.scripts.bench_end_to_end.run_side", told)
    jobs = {"ours": JOB, "GRPOTrainer": JOB.model_copy(update={"trainer": "grpo"})}
    lines = compare(jobs, {"ours": "ours", "grpo": "grpo"}, rounds=2).splitlines()
    assert lines[1].split()[:3] == ["ours", "2.00", "1.00"] and lines[1].endswith("25% / 0% / 0% / 0% / 75%")
    assert lines[3] == "ours over GRPOTrainer: 3.00 times the samples a second, 3.00 a CPU second"


def test_bench_when_trl_is_absent_then_our_side_alone_runs_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("coplay.scripts.bench_end_to_end.has_trl", lambda _: False)
    assert main(TINY) == 0
    told = capsys.readouterr().out
    assert "only our side runs" in told and "GRPOTrainer" not in told
    (row,) = [line.split() for line in told.splitlines() if line.startswith("ours")]
    samples_per_second, reply = float(row[3]), int(row[7])
    assert samples_per_second > 0 and reply == 4


def test_side_when_it_fails_then_what_it_said_is_told() -> None:
    with pytest.raises(SideError, match=r"holds no config\.json"):
        run_side(JOB.model_copy(update={"model": "/nowhere"}), sys.executable)


@pytest.mark.parametrize("flag", ["--model", "--trl-python"])
def test_bench_when_a_path_leads_nowhere_then_one_sentence(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([flag, "/nowhere"]) == 2
    assert f"error: {flag} is '/nowhere'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs TRL: the extra 'bench'")
def test_bench_when_trl_is_there_then_both_its_trainers_are_timed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(TINY) == 0
    told = capsys.readouterr().out
    assert "ours over GRPOTrainer:" in told and "ours over RLOOTrainer:" in told

"""Validation: greedy and sampled, several samples, by source, of its own luck, nothing dropped, the best kept."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch
from run_fakes import tiny_config, tiny_run, tiny_settings

from coplay.agents.loading import load_agent
from coplay.agents.runs import find_policy_folder, parse_entrant, pin_entrant
from coplay.agents.sampling import draw
from coplay.agents.scripted import scripted_agent
from coplay.games import (
    Action,
    Chance,
    Choice,
    Game,
    GameParameters,
    GameSpec,
    MalformedRule,
    Observation,
    StepOutcome,
)
from coplay.rollout_tree import RolloutTree, collect_sync
from coplay.rollout_tree.plan import CollectPlan
from coplay.scripts.settings import check_settings
from coplay.training import evaluate as module
from coplay.training.evaluate import Contestant, Interval, Result, evaluate, pairings
from coplay.training.evaluate_settings import SELF_PLAY
from coplay.training.examination import NotMeasuredError, best_score, examine
from coplay.training.loop import train
from coplay.training.messages import ConfigError
from coplay.training.run import Run, resume_run
from coplay.training.stages import collect_rollouts


def silent(update: int, metrics: Mapping[str, float]) -> None:
    """Hears what the loop reports."""


def watching(monkeypatch: pytest.MonkeyPatch) -> list[RolloutTree]:
    """Every game that evaluations play from now on."""
    seen: list[RolloutTree] = []
    plain = collect_sync

    def collect(plan: CollectPlan) -> list[RolloutTree]:
        trees = plain(plan)
        seen.extend(trees)
        return trees

    monkeypatch.setattr(module, "collect_sync", collect)
    return seen


# Greedy and sampled.


def test_draw_when_the_temperature_is_0_then_the_likeliest_and_others_as_ever() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
    found = draw(logits, [0.0, 0.0, 1.0], [0.99, 0.99, 0.99])
    alone = draw(logits[2:], [1.0], [0.99])
    assert found.columns == [1, 0, *alone.columns]
    assert found.log_probs == [0.0, 0.0, *alone.log_probs]
    assert alone.columns == [2], "the case tells them apart"


def test_greedy_when_evaluated_then_every_reply_is_the_likeliest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_run(tmp_path, {"evaluate": {"num_games": 3, "sampling": ["greedy", "temperature"]}})
    seen = watching(monkeypatch)
    results = examine(run)
    assert [result.sampling for result in results] == ["greedy", ""]
    turns = [turn for tree in seen for step in tree.steps for turn in step.turns]
    drawn = {turn.sampling.temperature for turn in turns if turn.sampling}
    assert drawn == {0.0, 1.0}
    greedy = [tree for tree in seen if tree.steps[0].turns[0].sampling.temperature == 0.0]  # type: ignore[union-attr]
    assert len(greedy) == 3
    assert len({tuple(turn.reply for step in tree.steps for turn in step.turns) for tree in greedy}) == 1
    policy = run.policies["shared"]
    first = greedy[0].steps[0].turns[0]
    context = torch.tensor([first.segments[0].ids])
    allowed = sorted(policy.chat.encode_label(label)[0] for label in ("A", "B"))
    with torch.no_grad():
        logits = policy.logits(policy.hidden(context))[0, -1, torch.tensor(allowed)]
    assert first.segments[1].ids[0] == allowed[int(logits.argmax())]
    assert first.segments[1].log_probs == (0.0,)


def test_temperature_when_given_then_that_of_evaluation_and_training_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_run(tmp_path, {"evaluate": {"num_games": 1, "temperature": 0.5}})
    seen = watching(monkeypatch)
    examine(run)
    turns = [turn for tree in seen for step in tree.steps for turn in step.turns]
    assert {turn.sampling.temperature for turn in turns if turn.sampling} == {0.5}
    trained = [turn for tree in collect_rollouts(run, 0) for step in tree.steps for turn in step.turns]
    assert {turn.sampling.temperature for turn in trained if turn.sampling} == {1.0}


# Luck of its own; nothing dropped; several samples; sources.


@pytest.mark.parametrize("seed", [None, 3])
def test_luck_when_evaluated_then_never_that_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> None:
    """Even with the run's own seed as the evaluation's."""
    game = {"kind": "split", "wording": "terse", "num_rounds": 1}
    run = tiny_run(tmp_path, {"game": game, "evaluate": {"num_games": 20, "seed": seed}})
    assert run.config.seed == 3
    seen = watching(monkeypatch)
    examine(run)
    trained = {tree.group_seed for update in range(5) for tree in collect_rollouts(run, update)}
    tested = {tree.group_seed for tree in seen}
    assert len(tested) == 20 and len(trained) == 10
    assert not tested & trained


def test_games_when_no_multiple_of_anything_then_all_are_counted(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"evaluate": {"num_games": 7, "num_samples": 3, "anchors": ["grim"]}})
    assert [result.games for result in examine(run)] == [7 * 3, 7 * 3 * 2]


@dataclass(frozen=True, slots=True)
class Asked:
    """Which of the tasks."""

    task: int
    over: bool = False


class QuizParameters(GameParameters):
    kind: Literal["quiz"] = "quiz"
    players: tuple[str, ...] = ("Ada",)


class Quiz(Game[Asked]):
    """One player; A is right in tasks from the `even` source, B in those from the `odd` one."""

    Parameters: ClassVar[type[QuizParameters]] = QuizParameters
    name: ClassVar[str] = "quiz"

    @property
    def spec(self) -> GameSpec:
        return GameSpec(
            players=("Ada",), max_steps=1, has_chance=True, has_rounds=False, zero_sum=False, symmetric=True,
            reward_range=(0.0, 1.0), malformed_rule=MalformedRule(retries=0, penalty=0.0, consequence="counts as 0"),
        )  # fmt: skip

    def initial_state(self, chance: Chance) -> Asked:
        return Asked(chance.integer("task", 10))

    def to_move(self, state: Asked) -> tuple[str, ...]:
        return () if state.over else ("Ada",)

    def observe(self, state: Asked, player: str) -> Observation:
        return Observation(text="go", grammar=Choice(("A", "B")), facts={"game": "quiz"})

    def step(self, state: Asked, actions: Mapping[str, Action], chance: Chance) -> tuple[Asked, StepOutcome]:
        source = ("even", "odd")[state.task % 2]
        right = actions["Ada"].text == {"even": "A", "odd": "B"}[source]
        outcome = StepOutcome(
            rewards={"Ada": float(right)}, terminated=True, info={"source": source, "task": state.task}
        )
        return Asked(state.task, over=True), outcome

    def private(self, state: Asked, player: str) -> Mapping[str, Any]:
        return {}

    def encode(self, state: Asked) -> Any:
        return [state.task, state.over]

    def decode(self, data: Any) -> Asked:
        return Asked(*data)


def quizzed(name: str, **asked: Any) -> list[Result]:
    who = Contestant(label=name, factory=scripted_agent(name))
    met = pairings(("Ada",), {"Ada": who}, {"Ada": who}, [])
    return evaluate(Quiz(QuizParameters()), met, seed=0, **asked)


def test_sources_when_games_tell_them_then_a_row_for_each_that_adds_up() -> None:
    whole, even, odd = quizzed("random", games=40, samples=2)
    assert [row.source for row in (whole, even, odd)] == ["", "even", "odd"]
    assert even.games + odd.games == whole.games == 80
    together = (even.own.mean * even.games + odd.own.mean * odd.games) / 80
    assert whole.own.mean == pytest.approx(together)


def test_samples_when_several_then_same_luck_and_the_best_of_each_game(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = watching(monkeypatch)
    whole, *_ = quizzed("random", games=30, samples=4)
    tasks: dict[int, list[RolloutTree]] = {}
    for tree in seen:
        tasks.setdefault(int(tree.episode.rsplit("/", 1)[1]) // 4, []).append(tree)
    assert len(tasks) == 30
    assert all(len({tree.steps[0].info["task"] for tree in trees}) == 1 for trees in tasks.values())
    scores = [[tree.steps[0].rewards["Ada"] for tree in trees] for trees in tasks.values()]
    assert whole.best_of is not None and whole.samples == 4
    assert whole.best_of.mean == pytest.approx(sum(map(max, scores)) / 30)
    assert whole.own.mean == pytest.approx(sum(map(sum, scores)) / 120)
    assert whole.own.mean < whole.best_of.mean
    assert whole.own.low < whole.own.mean < whole.own.high


def test_interval_when_samples_are_equal_then_as_wide_as_that_of_single_plays() -> None:
    """Plays of one game are no independent games: more of the same narrow nothing."""
    (one, *_), (many, *_) = (quizzed_first(samples) for samples in (1, 5))
    assert many.games == 5 * one.games
    assert many.own == one.own


def quizzed_first(samples: int) -> list[Result]:
    """Somebody who always says A."""

    class First:
        policy = "first"

        async def reply(self, observation: Observation, key: Any) -> Any:
            from coplay.agents.base import Reply

            return Reply(text="A", policy="first")

        def close(self, observation: Observation) -> None:
            return None

        def fork(self) -> "First":
            return self

    who = Contestant(label="first", factory=lambda seat: First())
    met = pairings(("Ada",), {"Ada": who}, {"Ada": who}, [])
    return evaluate(Quiz(QuizParameters()), met, seed=0, games=30, samples=samples)


# When, and what is best.


def test_evaluation_when_before_is_off_then_not_at_the_start_and_still_at_the_end(tmp_path: Path) -> None:
    """The end is evaluated and saved though no multiple of either period (a defect of Search-R1's trainer)."""
    for before, expected in ((True, [0, 2, 3]), (False, [2, 3])):
        run = tiny_run(
            tmp_path / str(before),
            {
                "evaluate": {"every": 2, "num_games": 1, "before": before},
                "storage.checkpoint_every": 2,
            },
        )
        train(run, silent)
        told = json.loads((run.folder / "evaluations.json").read_text())
        assert [entry["update"] for entry in told] == expected
        assert (run.folder / "checkpoints" / "000003" / "COMPLETE").is_file()


def test_checkpoint_when_the_end_is_no_multiple_then_saved_without_evaluation_too(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, {"storage.checkpoint_every": 2})
    train(run, silent)
    assert sorted(path.name for path in (run.folder / "checkpoints").iterdir()) == ["000002", "000003"]


def row(opponent: str, own: float, **changes: Any) -> Result:
    known = {"games": 1, "failed": 0, "other": None, "cooperation": None, "malformed": 0.0}
    return Result(**known | {"opponent": opponent, "own": Interval(mean=own, low=own, high=own)} | changes)  # type: ignore[arg-type]


def test_best_score_when_filtered_then_only_the_rows_asked_for(tmp_path: Path) -> None:
    entry = {"name": "longer", "game": {"num_rounds": 5}}
    rows = [
        row(SELF_PLAY, 1.0, malformed=0.5),
        row("grim", 3.0),
        row("grim", 4.0, source="a"),
        row(SELF_PLAY, 10.0, game="longer"),
        row(SELF_PLAY, 20.0, sampling="greedy"),
    ]

    def reached(**best: Any) -> float:
        config = tiny_config(
            tmp_path,
            {
                "evaluate": {
                    "anchors": ["grim"], "held_out": [entry], "sampling": ["temperature", "greedy"], "best": best,
                }
            },
        )  # fmt: skip
        return best_score(config, rows)

    assert reached() == 2.0
    assert reached(opponent="grim") == 3.0
    assert reached(opponent="grim", source="a") == 4.0
    assert reached(game="longer") == 10.0
    assert reached(sampling="greedy") == 20.0
    assert reached(metric="malformed", goal="min") == 0.25
    with pytest.raises(NotMeasuredError, match=r"none of the games played says; .* \(sources: \['a'\]\)"):
        reached(metric="cooperation")


@pytest.mark.parametrize("goal", ["max", "min"])
def test_best_checkpoint_when_told_by_a_goal_then_kept_and_named_best(tmp_path: Path, goal: str) -> None:
    run = tiny_run(
        tmp_path,
        {
            "update": {"num_updates": 6, "lr": 0.05},
            "evaluate": {"every": 1, "num_games": 8, "best": {"metric": "own", "goal": goal}},
            "storage.keep": 1,
        },
    )
    train(run, silent)
    scores = {entry["update"]: entry["results"][0]["own"]["mean"] for entry in run.state.history}
    assert len(set(scores.values())) > 1
    best = (max if goal == "max" else min)(scores, key=lambda update: scores[update])
    assert run.state.best_update == best
    assert run.state.best_score == scores[best]
    assert find_policy_folder(f"{run.folder}@best") == run.folder / f"checkpoints/{best:06d}/policies/shared"
    assert pin_entrant(f"{run.folder}@best:Ada") == f"{run.folder}@{best}:shared"
    assert load_agent(run.folder, "Ada", iteration="best").policy.version == best


def test_best_when_nothing_was_evaluated_then_one_sentence(tmp_path: Path) -> None:
    run = tiny_run(tmp_path)
    train(run, silent)
    assert parse_entrant("pd@best:bo") == ("pd", "best", "bo")
    with pytest.raises(ValueError, match="has no best checkpoint, since nothing was evaluated"):
        find_policy_folder(f"{run.folder}@best")


@pytest.mark.parametrize(
    ("evaluate_settings", "told"),
    [
        (
            {"best": {"opponent": "girm"}},
            "'evaluate.best.opponent' is 'girm'; expected one of 'self-play', 'grim'",
        ),
        ({"best": {"game": "longer"}}, "'evaluate.best.game' is 'longer'; expected a part of the mixture"),
        ({"best": {"sampling": "greedy"}}, "'evaluate.best.sampling' is 'greedy'; expected one of"),
        ({"best": {"metric": "best_of"}}, "expected evaluate.num_samples above 1"),
        ({"sampling": ["greedy", "greedy"]}, "expected each way once"),
        ({"best": {"metrik": "own"}}, "unknown key 'evaluate.best.metrik'; did you mean 'metric'?"),
    ],
)
def test_settings_when_wrong_then_one_sentence(
    tmp_path: Path, evaluate_settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(tiny_settings(tmp_path, {"evaluate": {"anchors": ["grim"]} | evaluate_settings}))
    assert told in str(caught.value)


def test_law_8_when_resumed_then_the_same_evaluations(tmp_path: Path) -> None:
    changes = {
        "evaluate": {"every": 1, "num_games": 2, "num_samples": 2, "sampling": ["greedy", "temperature"]}
    }
    whole = tiny_run(tmp_path / "whole", changes)
    train(whole, silent)

    def stop(update: int, metrics: Mapping[str, float]) -> None:
        if update == 1:
            raise KeyboardInterrupt

    cut = tiny_run(tmp_path / "cut", changes)
    with pytest.raises(KeyboardInterrupt):
        train(cut, stop)
    resumed: Run = resume_run(cut.folder)
    train(resumed, silent)
    assert resumed.state.history == whole.state.history
    assert (resumed.state.best_update, resumed.state.best_score) == (
        whole.state.best_update,
        whole.state.best_score,
    )


# Alone.


def test_command_when_only_to_evaluate_then_the_start_is_kept_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from coplay.scripts.cli import main

    monkeypatch.chdir(tmp_path)
    words = ["train", "dilemma_independent", "--evaluate.num-games", "2", "--game.num-rounds", "2"]
    assert main([*words, "--evaluate-only"]) == 0
    assert "self-play" in capsys.readouterr().out
    (entry,) = json.loads(Path("runs/dilemma_independent/evaluations.json").read_text())
    assert entry["update"] == 0
    assert not Path("runs/dilemma_independent/metrics.jsonl").exists()
    assert main(["train", "--resume", "runs/dilemma_independent", "--evaluate-only"]) == 2
    capsys.readouterr()


def test_command_when_asked_for_ways_and_samples_then_columns_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from coplay.scripts.cli import main

    run = tiny_run(tmp_path / "runs", {"update.num_updates": 1})
    train(run, silent)
    asked = ["evaluate", str(run.folder), "--games", "2", "--samples", "3", "--against", "grim"]
    assert main([*asked, "--sampling", "greedy,temperature", "--json", str(tmp_path / "out.json")]) == 0
    told = capsys.readouterr().out
    assert "greedy" in told and "best of 3" in told
    (rows,) = json.loads((tmp_path / "out.json").read_text()).values()
    assert [row.get("samples", 1) for row in rows] == [1, 1, 3, 3]
    assert main([*asked, "--sampling", "hot"]) == 2
    assert "--sampling is 'hot'; expected temperature or greedy, or both by comma" in capsys.readouterr().err

"""Runs on mixtures: groups of one game, credit within it, held-out games never trained on, laws 5, 7 and 8."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from question_fakes import finished
from run_fakes import (
    SETTINGS,
    differences,
    gradients,
    play_iteration,
    reckon,
    run_bytes,
    tiny_config,
    tiny_run,
)

from coplay.agents.scripted import scripted_agent
from coplay.games import Mixture, make_game
from coplay.rollout_tree import CreditRow, plan_episodes, plan_mixture, read_credits, read_rollouts
from coplay.training.estimators import mean_keys
from coplay.training.evaluate import Contestant, evaluate, pairings
from coplay.training.extract import ungrouped
from coplay.training.loop import train
from coplay.training.metrics import read_metrics
from coplay.training.recredit import load_iteration, recredit, recredited_rows
from coplay.training.run import resume_run
from coplay.training.variance import luck_units

LETTERS = [["A", "B"], ["B", "A"]]
MIXED: dict[str, Any] = {
    "mixture": [
        {"name": "letters", "weight": 2.0, "vary": {"moves": LETTERS, "num_rounds": {"low": 2, "high": 3}}},
        {"name": "random_end", "game": {"continuation_probability": 0.5}},
        {"name": "split", "game": {"kind": "split", "wording": "terse", "num_rounds": 2}},
    ],
    "collect": {"num_groups": 8, "group_size": 2},
    "agents.sampling": {"max_new_tokens": 6, "constrained": True},
}
EXAMS: dict[str, Any] = {
    "evaluate": {
        "every": 3,
        "num_games": 2,
        "anchors": ["tit_for_tat", "fair", "random"],
        "held_out": [{"name": "other_letters", "vary": {"moves": [["C", "D"], ["D", "C"]]}}],
    }
}


def refused(changes: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        tiny_config(Path("unused"), changes)
    return str(caught.value)


def test_groups_when_games_are_mixed_then_each_of_one_game_and_luck(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, MIXED)
    found = play_iteration(run)
    games: dict[int, set[str]] = defaultdict(set)
    lucks: dict[int, set[str]] = defaultdict(set)
    assert found.table.games is not None
    rows = {(t.episode, t.player): t for t in found.trajectories}
    for key, game, group in zip(
        found.table.keys, found.table.games, found.table.group_ids.tolist(), strict=True
    ):
        games[group].add(game)
        lucks[group].add(rows[key.episode, key.player].group)
        assert rows[key.episode, key.player].game == game
    assert all(len(each) == 1 for each in games.values())
    assert all(len(each) == 1 for each in lucks.values())
    assert len(set(found.table.games)) == 6, "8 groups: 4 in the two-letter games, 2 and 2"
    pooled = ungrouped(found.table).group_ids.tolist()
    assert len(set(pooled)) == 2 * 6, "seats times games: even without luck no game is held against another"
    units = luck_units(found.table, has_chance=run.config.has_chance()).tolist()
    episodes = {key.episode: unit for key, unit in zip(found.table.keys, units, strict=True)}
    assert len(set(episodes.values())) == 4 * 2 + 4, "each game without luck, and each luck of the others"


def test_advantages_when_games_pay_differently_then_centred_within_each(tmp_path: Path) -> None:
    found = play_iteration(tiny_run(tmp_path, MIXED))
    table, advantages = found.table, found.estimate.advantages
    for group in table.group_ids.unique():
        mine = table.group_ids == group
        if (table.mask[mine].sum(dim=0) > 1).all():
            torch.testing.assert_close(
                advantages[mine].sum(dim=0), torch.zeros(table.mask.shape[1], dtype=advantages.dtype)
            )


def test_baselines_when_groups_are_of_one_then_running_means_by_game(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, MIXED | {"collect": {"num_groups": 4, "group_size": 1}})
    found = play_iteration(run)
    assert found.table.games is not None
    keys = [json.loads(key) for key in mean_keys(found.table)]
    assert [key[-1] for key in keys] == [{"game": game} for game in found.table.games]
    plain = play_iteration(tiny_run(tmp_path / "plain"))
    assert next(json.loads(key) for key in mean_keys(plain.table)) == ["Ada", "shared"]


def test_plan_when_there_is_one_game_then_as_ever() -> None:
    for kind in ("iterated_matrix", "split"):
        game = make_game(kind)
        seats = {player: scripted_agent("random") for player in game.spec.players}
        options: dict[str, Any] = {
            "run_seed": 3,
            "iteration": 2,
            "num_groups": 3,
            "group_size": 2,
            "seats": seats,
            "seat_names": dict.fromkeys(seats, "random"),
        }
        planned = plan_mixture(Mixture.of(game), **options)
        assert tuple([replace(one, variant=None) for one in planned]) == plan_episodes(game, **options)


def test_credit_when_trees_are_shuffled_then_the_same_gradient(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, MIXED)
    found = play_iteration(run)
    turned = reckon(run, found.trees[::-1])
    assert turned.table.games == found.table.games
    one, other = (gradients(run, each.credit(run), tmp_path) for each in (found, turned))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "estimator": {"kind": "critic", "reward_scale": 5.0},
            "shaping": {"kind": "advantage_alignment", "beta": 0.3},
        },
        {
            "estimator": {"kind": "branches", "reward_scale": 5.0},
            "collect": {"num_groups": 4, "group_size": 2, "branching": {"share": 0.5}},
        },
        {"collect": {"num_groups": 4, "group_size": 1}},
    ],
    ids=["returns", "critic", "branches", "lone"],
)
def test_credit_when_computed_again_then_every_stored_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = finished(tmp_path, MIXED | changes)

    def columns(row: CreditRow) -> list[bytes]:
        return [np.asarray(column, np.float32).tobytes() for column in (row.credit, row.baseline)]

    for number in range(3):
        stored = load_iteration(folder, number)
        result = recredit(stored, stored.config)
        rows = {(r.episode, r.branch, r.player, r.row): columns(r) for r in recredited_rows(result)}
        kept = {(r.episode, r.branch, r.player, r.row): columns(r) for r in read_credits(folder, number)}
        assert rows == kept
        assert kept


def test_run_when_resumed_then_the_bytes_of_one_without_a_stop(tmp_path: Path) -> None:
    whole = tiny_run(tmp_path / "whole", MIXED | EXAMS)
    train(whole, lambda update, metrics: None)
    stopped = tiny_run(tmp_path / "stopped", MIXED | EXAMS)

    class StopError(Exception):
        pass

    def stop(update: int, metrics: object) -> None:
        if update == 1:
            raise StopError

    with pytest.raises(StopError):
        train(stopped, stop)
    train(resume_run(stopped.folder), lambda update, metrics: None)
    assert differences(run_bytes(whole.folder), run_bytes(stopped.folder)) == []


def test_held_out_when_evaluated_then_told_by_game_and_never_trained_on(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, MIXED | EXAMS)
    before = {name: value.clone() for name, value in run.policies["shared"].named_parameters().items()}
    train(run, lambda update, metrics: None)
    assert any(
        not torch.equal(value, before[name])
        for name, value in run.policies["shared"].named_parameters().items()
    )
    history = json.loads((run.folder / "evaluations.json").read_text())
    rows = [(row["game"], row["opponent"]) for row in history[-1]["results"]]
    for game in ("letters", "random_end", "other_letters"):
        assert [who for name, who in rows if name == game] == ["self-play", "tit_for_tat", "random"]
    assert [who for name, who in rows if name == "split"] == ["self-play", "fair", "random"]
    own = [row["own"]["mean"] for row in history[-1]["results"] if row["game"] != "other_letters"]
    scores = [
        sum(row["own"]["mean"] for row in entry["results"] if row["game"] != "other_letters") / len(own)
        for entry in history
    ]
    assert run.state.best_score == pytest.approx(max(scores)), "what is held out chooses nothing"
    labels = set(run.config.make_mixture().shares())
    for number in range(3):
        for tree in read_rollouts(run.folder, number):
            assert tree.game in labels
            texts = [turn.observation.system for step in tree.steps for turn in step.turns]
            assert not [text for text in texts if {"C", "D"} & set(text.split())]
    metrics = list(read_metrics(run.folder / "metrics.jsonl"))[-1]
    for name in ("letters", "random_end", "split"):
        assert f"rollout/game/{name}/return/Ada" in metrics


def test_evaluation_when_pairings_meet_then_in_the_same_games_and_by_exact_returns(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, {"mixture": [{"name": "letters", "vary": {"moves": LETTERS}}]})
    (exam,) = config.exams()
    who = {
        name: Contestant(label=name, factory=scripted_agent(name))
        for name in ("tit_for_tat", "always_defect")
    }
    home = dict.fromkeys(("Ada", "Bo"), who["tit_for_tat"])
    asked = pairings(("Ada", "Bo"), home, home, [who["always_defect"]])
    own, met = evaluate(exam.games, asked, games=4, seed=0)
    assert own.own.mean == 3.0
    assert met.own.mean == pytest.approx(2 / 3), "cooperates once in three rounds, whichever letter that is"
    assert met.cooperation is not None and met.cooperation.mean == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mixture": [{"name": "a", "vary": {"movs": LETTERS}}]}, "unknown key 'mixture.a.game.movs'"),
        ({"mixture": [{"name": "a"}, {"name": "b"}]}, "has one game as 'a' and as 'b'"),
        ({"mixture": [{"name": "a"}, {"name": "a", "game": {"num_rounds": 9}}]}, "name 'a' twice"),
        (
            {"mixture": [{"name": "a", "game": {"players": ["Ada", "Cy"]}}]},
            "expected the same names in any order",
        ),
        ({"mixture": [{"name": "a", "vary": {"num_rounds": []}}]}, "'vary.num_rounds' is empty"),
        ({"mixture": [{"name": "a", "vary": {"num_rounds": [3, 3]}}]}, "expected it once, with a weight"),
        ({"mixture": [{"name": "a", "vary": {"num_rounds": {"low": 3, "high": 2}}}]}, "expected finite low"),
        ({"mixture": [{"name": "a", "vary": {"num_rounds": {"low": 1, "high": 2000}}}]}, "2000 games"),
        (
            {"mixture": [{"name": "a", "game": {"num_rounds": 2}, "vary": {"num_rounds": [3]}}]},
            "varies 'num_rounds'",
        ),
        ({"mixture": [{"name": "a", "vary": {"kind": ["split"]}}]}, "varies 'kind'"),
        ({"mixture": [{"name": "a", "weight": 0}]}, "greater than 0"),
        ({"evaluate": {"held_out": [{"name": "same"}]}}, "is trained on as 'iterated_matrix'"),
        (
            {
                "mixture": [{"name": "a", "vary": {"num_rounds": [2, 3]}}],
                "evaluate": {"held_out": [{"name": "b", "game": {"num_rounds": 3}}]},
            },
            "is trained on as 'a num_rounds=3'",
        ),
        (
            {
                "mixture": [{"name": "a", "game": {"kind": "split"}}],
                "evaluate": {"anchors": ["grim"]},
            },
            "no rule for game 'split'",
        ),
        (
            {"mixture": [{"name": "a", "game": {"kind": "split"}}], "agents.seats": {"Bo": "grim"}},
            "no rule for game 'split'",
        ),
    ],
)
def test_settings_when_wrong_then_one_sentence(changes: dict[str, Any], told: str) -> None:
    assert told in refused(changes)


def test_settings_when_there_is_no_mixture_then_the_game_alone(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    assert SETTINGS["game"]["num_rounds"] == config.make_mixture().variants[0].game.spec.max_steps
    assert config.has_chance() is False
    assert [exam.name for exam in config.exams()] == [""]


def cooperation(folder: Path, mixture: list[dict[str, Any]]) -> float:
    """After 30 updates in harmony, where the cooperative move is best: its share where B stands for it, held out."""
    swapped = {"name": "swapped", "game": {"moves": ["B", "A"], "num_rounds": 4}}
    run = tiny_run(
        folder,
        {
            "game": {"kind": "iterated_matrix", "wording": "terse", "preset": "harmony", "num_rounds": 3},
            "mixture": mixture,
            "agents.model": {"kind": "embedded"},
            "agents.sampling": {"max_new_tokens": 4, "constrained": True},
            "collect": {"num_groups": 4, "group_size": 16},
            "estimator": {"kind": "returns", "discount": 0.0},
            "update": {"num_updates": 30, "lr": 2e-3},
            "storage.every": 0,
            "evaluate": {"every": 30, "num_games": 16, "held_out": [swapped]},
        },
    )
    train(run, lambda update, metrics: None)
    history = json.loads((run.folder / "evaluations.json").read_text())
    (found,) = [row["cooperation"]["mean"] for row in history[-1]["results"] if row.get("game") == "swapped"]
    return float(found)


def test_learning_when_letters_are_counterbalanced_then_the_game_is_learnt_and_not_the_letter(
    tmp_path: Path,
) -> None:
    mixture = [{"name": "harmony", "vary": {"moves": LETTERS, "listed": ["table", "reversed"]}}]
    assert cooperation(tmp_path / "mixed", mixture) > 0.9
    assert cooperation(tmp_path / "one", []) < 0.1, "one wording: its letter is learnt"

"""Configurations: what is refused and how, what is filled in, and that every shipped one can train (B112)."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from run_fakes import tiny_config, tiny_run, tiny_settings

from coplay.agents import axelrod_strategies
from coplay.scripts.settings import check_settings, parse_flags, read_settings, shipped_configs
from coplay.training.config import RunConfig
from coplay.training.loop import train
from coplay.training.messages import ConfigError, explain, field_paths
from coplay.training.stored_config import read_config


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("collect.num_grups", 3, "unknown key 'collect.num_grups'; did you mean 'num_groups'?"),
        (
            "collect.lr",
            1.0,
            "unknown key 'collect.lr'; did you mean 'estimator.critic.lr' or 'estimator.lr' or 'update.lr'?",
        ),
        ("beta", 1.0, "unknown key 'beta'; did you mean 'shaping.beta'?"),
        ("objective.kl.controller.target", 1.0, "it is a key of kind 'adaptive'"),
        ("estimator.gae_lambda", 1.0, "unknown key 'estimator.gae_lambda'; it is a key of kind 'critic'"),
        (
            "agents.policies.shared.weigths",
            {},
            "unknown key 'agents.policies.shared.weigths'; did you mean 'weights'?",
        ),
        (
            "collect.num_groups",
            "many",
            "'collect.num_groups' is 'many'; input should be a valid integer",
        ),
        (
            "agents.sampling.max_context",
            "None",
            "unable to parse string as an integer; a flag writes None as null",
        ),
        ("name", 5, "'name' is 5; input should be a valid string, in a file \"5\", as a flag '\"5\"'"),
        ("objective.kind", "grpo", "'reinforce', 'ppo'; 'grpo' is one of estimator.kind"),
        ("estimator.kind", "ppo", "'grpo'; 'ppo' is one of objective.kind"),
        ("game.num_rouds", 3, "unknown key 'game.num_rouds'; did you mean 'num_rounds'?"),
        ("game.num_rounds", "ten", "'game.num_rounds' is 'ten'; input should be a valid integer"),
        ("game.kind", "iterated_matrx", "; did you mean 'iterated_matrix'?"),
        (
            "agents.seats.Ada",
            "grimm",
            "which is no policy ('shared') and no scripted agent; did you mean 'grim'?",
        ),
        ("agents.seats.Adda", "grim", "'Adda', but the game's players are 'Ada', 'Bo'; did you mean 'Ada'?"),
        (
            "evaluate.anchors",
            ["grmi"],
            "'evaluate.anchors' names 'grmi', no scripted agent; did you mean 'grim'?",
        ),
        ("shaping.kind", "independnt", "'shared_reward', 'advantage_alignment'; did you mean 'independent'?"),
        (
            "update.lr",
            {"kind": "lin", "level": 1.0},
            "expected one of 'constant', 'linear', 'decay', 'tanh'; did you mean 'linear'?",
        ),
        (
            "update.lr",
            "fast",
            "'update.lr' is 'fast'; expected a number, or a table with a kind of 'constant', 'linear', 'decay', 'tanh'",
        ),
        ("agents.policies", [], "'agents.policies' is []; expected a table"),
        (
            "agents.policies.shared.weights",
            7,
            "'agents.policies.shared.weights' is 7; expected a table with a kind of 'lora', 'full'",
        ),
        ("update.num_updates", 0, "'update.num_updates' is 0; input should be greater than or equal to 1"),
        (
            "update.num_threads",
            10**5,
            "'update.num_threads' is 100000; input should be less than or equal to 1024",
        ),
        (
            "agents.model.hidden",
            10**20,
            "'agents.model.hidden' is 100000000000000000000; input should be less than or equal to 1000000",
        ),
        (
            "agents.policies.shared.weights",
            {"kind": "lora", "rank": 10**20},
            "'agents.policies.shared.weights.rank' is 100000000000000000000; input should be less than or equal to",
        ),
        (
            "game",
            {"kind": "tasks", "score_range": [0.0, float("inf")]},
            "'game.score_range.1' is inf; input should be a finite number",
        ),
        (
            "objective.importance_cap",
            float("inf"),
            "'objective.importance_cap' is inf; input should be a finite",
        ),
        ("agents.model.hidden", 4, "'agents.model.hidden' is 4; input should be greater than or equal to 8"),
        (
            "objective.entropy_mask_regex",
            "(",
            "'objective.entropy_mask_regex' is '(', no regular expression: missing )",
        ),
        ("game", {"num_rounds": 3}, "section 'game' is {'num_rounds': 3}; expected a table with a 'kind'"),
    ],
)
def test_settings_when_wrong_then_one_sentence_with_the_way_out(path: str, value: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(tiny_settings(changes={path: value}))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_scripted_agent_when_it_has_no_rule_for_the_game_then_refused_before_the_run() -> None:
    for path, value in (("agents.seats.Bo", "greedy"), ("evaluate.anchors", ["greedy"])):
        with pytest.raises(
            ConfigError, match=r"'greedy', which has no rule for game 'iterated_matrix'; expected"
        ):
            check_settings(tiny_settings(changes={path: value}))


@pytest.mark.needs("axelrod")
def test_library_agent_when_named_then_held_against_its_library_before_the_run() -> None:
    check_settings(tiny_settings(changes={"agents.seats.Bo": "axelrod:Tit For Tat"}))
    for path, value in (("agents.seats.Bo", "axelrod:Grim"), ("evaluate.anchors", ["axelrod:Grim"])):
        with pytest.raises(ConfigError, match=r"names 'axelrod:Grim': .* is unknown; expected axelrod: and"):
            check_settings(tiny_settings(changes={path: value}))


def test_library_agent_when_its_library_is_missing_then_the_run_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "axelrod", None)
    axelrod_strategies._library.cache_clear()
    axelrod_strategies._strategies.cache_clear()
    with pytest.raises(ConfigError, match="needs the library 'axelrod', which is not installed: pip install"):
        check_settings(tiny_settings(changes={"evaluate.anchors": ["axelrod:Tit For Tat"]}))


def test_run_when_nobody_learns_then_refused() -> None:
    frozen = {"agents.policies": {"shared": {"trained": False}}}
    for changes in (frozen, {"agents.seats": {"Ada": "grim", "Bo": "grim"}}):
        with pytest.raises(ConfigError, match="no seat is held by a trained policy"):
            check_settings(tiny_settings(changes=changes))


def test_policy_when_it_is_to_be_trained_and_sits_nowhere_then_refused_by_name() -> None:
    two = {"agents.policies": {"one": {}, "other": {}}}
    with pytest.raises(ConfigError, match=r"policy 'other' .* holds no seat \(Ada = 'one', Bo = 'one'\)"):
        check_settings(tiny_settings(changes=two))
    check_settings(tiny_settings(changes=two | {"agents.seats": {"Bo": "other"}}))
    check_settings(tiny_settings(changes={"agents.policies": {"one": {}, "other": {"trained": False}}}))


def test_kind_when_left_out_then_the_defaults() -> None:
    changes = {
        "agents.model": {"hidden": 32},
        "estimator": {"discount": 0.5},
        "shaping": {"whiten_after": "tick"},
    }
    config = check_settings(
        tiny_settings(changes=changes | {"agents.policies": {"a": {"weights": {"rank": 3}}}})
    )
    assert config.agents.model.kind == "embedded"
    assert config.estimator.kind == "returns"
    assert config.shaping.kind == "independent"
    assert config.agents.policies["a"].weights.kind == "lora"


def test_schedule_when_a_plain_number_then_constant() -> None:
    config = check_settings(tiny_settings(changes={"update.lr": 0.25}))
    assert config.update.lr.value(17) == 0.25
    with pytest.raises(ConfigError, match=r"update\.lr"):
        check_settings(tiny_settings(changes={"update.lr": True}))


def test_settings_when_written_and_read_then_equal(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, {"game.kind": "split", "game": {"kind": "split", "stock": 3}})
    assert RunConfig.model_validate(json.loads(config.model_dump_json())) == config
    with pytest.raises(ValidationError):
        config.name = "other"


def test_run_folder_when_read_then_its_own_place_counts(tmp_path: Path) -> None:
    """A moved run folder goes on where it lies."""
    run = tiny_run(tmp_path / "here", {"agents.seats": {"Ada": "shared"}})
    moved = tmp_path / "there"
    moved.mkdir()
    run.folder.rename(moved / "renamed")
    config = read_config(moved / "renamed")
    assert (config.storage.folder, config.name) == (str(moved), "renamed")
    assert dict(config.agents.seats) == {"Ada": "shared", "Bo": "shared"}


def test_field_paths_when_listed_then_each_documented_once() -> None:
    paths = set(field_paths(RunConfig))
    assert {"seed", "shaping.beta", "estimator.gae_lambda", "agents.policies.NAME.weights.rank"} <= paths
    for section in ("collect", "estimator", "shaping", "objective", "update", "storage", "evaluate"):
        assert section in paths


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--a.b-c", "3"], [(["a", "b_c"], 3)]),
        (["--a=0.5", "--b"], [(["a"], 0.5), (["b"], True)]),
        (["--no-x"], [(["x"], False)]),
        (["--a", "x", "2", "--b", "true"], [(["a"], ["x", 2]), (["b"], True)]),
        (["--a", "{ kind = 'full' }"], [(["a"], {"kind": "full"})]),
        (["--a", "-1"], [(["a"], -1)]),
    ],
)
def test_flags_when_read_then_paths_and_values(flags: list[str], expected: Any) -> None:
    assert parse_flags(flags) == expected


def test_flag_when_it_sets_a_kind_then_the_section_starts_anew() -> None:
    config = read_settings(
        "dilemma_aligned", ["--shaping.kind", "shared_reward", "--shaping.whiten-after", "tick"]
    )
    assert config.shaping.kind == "shared_reward"
    assert config.shaping.whiten_after == "tick"
    same = read_settings("dilemma_aligned", ["--shaping.kind", "advantage_alignment"])
    assert same == read_settings("dilemma_aligned", [])


def test_explain_when_a_field_is_missing_then_says_so() -> None:
    with pytest.raises(ValidationError) as caught:
        RunConfig.model_validate({})
    assert explain(caught.value, RunConfig) == "'game' is missing; it has no default and must be given"


@pytest.mark.parametrize("name", list(shipped_configs()))
def test_shipped_config_when_read_then_valid_and_named_after_its_file(name: str) -> None:
    assert read_settings(name, []).name == name


def test_settings_when_only_a_game_is_named_then_suited_to_it() -> None:
    """Nothing of the dilemma's own configuration is left that another game would have to undo."""
    found = read_settings(None, ["--game.kind", "kuhn_poker"])
    like = read_settings("any_game", [])
    assert (found.name, found.game.wording) == ("kuhn_poker", "terse")  # type: ignore[attr-defined]
    assert found.model_copy(update={"name": like.name, "game": like.game}) == like
    assert like.evaluate.anchors == ("random",)
    assert read_settings(None, ["--game.kind", "iterated_matrix"]) == read_settings("dilemma_aligned", [])
    told = read_settings(None, ["--name", "mine", "--game.kind", "split", "--game.wording", "full"])
    assert (told.name, told.game.wording) == ("mine", "full")  # type: ignore[attr-defined]


def test_settings_when_the_model_is_no_embedded_one_then_the_full_wording() -> None:
    folder = ["--agents.model.kind", "folder", "--agents.model.path", "somewhere"]
    found = read_settings(None, ["--game.kind", "split", *folder])
    assert found.game.wording == "full"  # type: ignore[attr-defined]


NEEDS = {"search_qa": pytest.mark.needs("bm25s")}
"""Shipped configurations that want an extra."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(one, marks=NEEDS.get(one, ())) for one in shipped_configs()])
def test_shipped_config_when_shrunken_then_trains_an_update(tmp_path: Path, name: str) -> None:
    """Every shipped game, trainer and layout of agents runs (B112); a folder model is stood in for."""
    from coplay.training.run import new_run

    data = json.loads(read_settings(name, []).model_dump_json())
    data["agents"]["model"] = {"kind": "embedded", "hidden": 16, "intermediate": 16, "num_layers": 1}
    data["agents"]["sampling"]["max_new_tokens"] = min(data["agents"]["sampling"]["max_new_tokens"], 8)
    data["agents"]["sampling"]["max_context"] = None
    if "num_rounds" in data["game"]:
        data["game"]["num_rounds"] = 2
    data["collect"] = {"num_groups": 2, "group_size": 2}
    data["update"]["num_updates"] = 1
    data["evaluate"]["num_games"] = 1
    data["storage"]["folder"] = str(tmp_path)
    for policy in data["agents"]["policies"].values():
        policy["start"] = None  # a run that was made before
    run = new_run(RunConfig.model_validate(data))
    lines: list[Any] = []
    train(run, lambda update, metrics: lines.append(metrics))
    for trainer in run.trainers:
        assert lines[0][f"policy/{trainer.policy.name}/ratio_gap_max"] <= 1e-4
        assert lines[0][f"policy/{trainer.policy.name}/tokens"] > 0

"""A reward model whose answer is known: it tells which share of a conversation's tokens are the letter A."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from question_fakes import CRITIC
from run_fakes import make_tree, tiny_config, tiny_run
from transformers import LlamaConfig, LlamaForSequenceClassification

from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.games import StepOutcome, make_game
from coplay.rollout_tree import build_trajectories, summary
from coplay.rollout_tree.checks import check_outcome
from coplay.rollout_tree.records import SCORES, RolloutTree
from coplay.training.differences import compare_credits
from coplay.training.explain import TurnName, explain_turn
from coplay.training.loop import train
from coplay.training.messages import ConfigError
from coplay.training.metrics import read_metrics
from coplay.training.recredit import load_iteration, recredit
from coplay.training.reward_model import RewardModel
from coplay.training.reward_model_settings import RewardModelSettings

WIDTH = 8
MARK = "A"


def share_counter(folder: Path, *, outputs: int = 1, template: bool = True, positions: int = 4096) -> Path:
    """A classifier of one layer that attends to all tokens alike; the letter A points one way, the others another."""
    tokenizer = embedded_tokenizer()
    (mark,) = tokenizer(MARK, add_special_tokens=False)["input_ids"]
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1,
        num_labels=outputs, pad_token_id=0, bos_token_id=None, eos_token_id=None, max_position_embeddings=positions,
    )  # fmt: skip
    model = LlamaForSequenceClassification(config)
    layer = model.model.layers[0]
    for parameter in model.parameters():
        parameter.data.zero_()
    for norm in (layer.input_layernorm, layer.post_attention_layernorm, model.model.norm):
        norm.weight.data.fill_(1.0)
    layer.self_attn.v_proj.weight.data.copy_(torch.eye(WIDTH))
    layer.self_attn.o_proj.weight.data.copy_(torch.eye(WIDTH))
    embedding = model.get_input_embeddings().weight.data
    embedding[:, 1] = 1.0
    embedding[mark] = torch.eye(WIDTH)[0]
    model.score.weight.data[-1, 0] = 1.0
    model.save_pretrained(folder)
    if not template:
        tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)
    return folder


def known(ids: tuple[int, ...]) -> float:
    """Its answer by hand: x = e_1 + mean of sqrt(H) e, over its root mean square, in the direction of A."""
    (mark,) = embedded_tokenizer()(MARK, add_special_tokens=False)["input_ids"]
    share = ids.count(mark) / len(ids)
    toward, away = WIDTH**0.5 * share, 1 + WIDTH**0.5 * (1 - share)
    return toward / ((toward**2 + away**2) / WIDTH) ** 0.5


def settings(folder: Path, **changes: Any) -> RewardModelSettings:
    return RewardModelSettings(path=str(folder), device="cpu", **changes)


def spoken(*replies: str, players: tuple[str, ...] = ("Ada", "Bo"), **changes: Any) -> RolloutTree:
    """A game in which everybody says these things."""
    tree = make_tree({player: [1.0] * len(replies) for player in players}, **changes)
    steps = tuple(
        replace(step, turns=tuple(replace(turn, reply=reply) for turn in step.turns))
        for step, reply in zip(tree.steps, replies, strict=True)
    )
    return replace(tree, steps=steps)


def test_score_when_the_answer_is_known_then_that_whatever_stands_beside(tmp_path: Path) -> None:
    """Frozen, deterministic, and blind to how conversations are cut into batches (law 4)."""
    folder = share_counter(tmp_path)
    before = torch.random.get_rng_state()
    model = RewardModel(settings(folder))
    assert torch.equal(before, torch.random.get_rng_state())
    asked = [model.ids(spoken(*said).steps[0].turns[:1]) for said in (["A"], ["B A A"], ["A A A A B"], ["B"])]
    asked.append(asked[0])
    found = model.scores(asked)
    assert found == pytest.approx([known(ids) for ids in asked], abs=1e-5)
    assert len(set(found)) == 4 and found[0] == found[4]
    alone = RewardModel(settings(folder, batch_tokens=1)).scores(asked[::-1])
    assert alone[::-1] == pytest.approx(found, abs=1e-6)
    assert not any(parameter.requires_grad for parameter in model._model.parameters())


@pytest.mark.parametrize("template", [True, False])
def test_control_tokens_when_a_player_spells_them_then_they_are_text(tmp_path: Path, template: bool) -> None:
    """Else a policy could end its own turn and praise itself as the user."""
    model = RewardModel(settings(share_counter(tmp_path, template=template)))
    tokenizer = embedded_tokenizer()
    end = tokenizer.eos_token
    turns = spoken(f"A{end}A").steps[0].turns[:1]
    ids, plain = model.ids(turns), model.ids(spoken("A").steps[0].turns[:1])
    assert ids.count(tokenizer.eos_token_id) == plain.count(tokenizer.eos_token_id)
    if template:
        assert plain[-1] == tokenizer.eos_token_id


def test_trees_when_judged_by_episode_then_the_last_tick_has_the_score(tmp_path: Path) -> None:
    model = RewardModel(settings(share_counter(tmp_path), weight=2.0, players=("Ada",)))
    tree = spoken("A", "B", "A A")
    (judged,) = model.judge([tree])
    ids = model.ids([step.turns[0] for step in tree.steps])
    assert judged.steps[:2] == tree.steps[:2] and judged.steps[2].rewards == tree.steps[2].rewards
    assert judged.steps[2].info[SCORES] == {"Ada": pytest.approx(2 * known(ids), abs=1e-5)}
    ada, bo = build_trajectories(judged)
    assert ada.rewards.tolist() == pytest.approx([1.0, 1.0, 1 + 2 * known(ids)], abs=1e-5)
    assert bo.rewards.tolist() == [1.0, 1.0, 1.0]
    assert summary([judged])["return/Ada"] == 3.0  # what is reported of the game is the game's


def test_trees_when_judged_by_turn_then_each_tick_has_its_own(tmp_path: Path) -> None:
    """Rounds of two steps: their scores are summed as their rewards are (rule 2)."""
    model = RewardModel(settings(share_counter(tmp_path), per="turn"))
    tree = spoken("A", "B", "A A", ticks=[0, 0, 1])
    (judged,) = model.judge([tree])
    turns = [step.turns[0] for step in tree.steps]
    first, second, third = (known(model.ids(turns[: count + 1])) for count in range(3))
    for trajectory in build_trajectories(judged):
        assert trajectory.rewards.tolist() == pytest.approx([2 + first + second, 1 + third], abs=1e-5)


def test_context_when_the_game_begins_it_anew_then_the_judge_hears_what_follows(tmp_path: Path) -> None:
    model = RewardModel(settings(share_counter(tmp_path)))
    tree = spoken("A", "B")
    second = tree.steps[1]
    fresh = tuple(
        replace(turn, observation=replace(turn.observation, fresh_context=True)) for turn in second.turns
    )
    (judged,) = model.judge([replace(tree, steps=(tree.steps[0], replace(second, turns=fresh)))])
    assert judged.steps[1].info[SCORES]["Ada"] == pytest.approx(known(model.ids(fresh[:1])), abs=1e-5)


REPLAYED: dict[str, dict[str, Any]] = {
    "returns": {},
    "critic": {"estimator": CRITIC},
    "branches": {"estimator": {"kind": "branches"}, "collect.branching": {"num_alternatives": 1}},
}


@pytest.mark.parametrize("per", ["turn", "episode"])
@pytest.mark.parametrize("name", REPLAYED)
def test_run_when_judged_then_credit_comes_back_and_its_parts_add_up(
    tmp_path: Path, name: str, per: str
) -> None:
    """From what is stored alone: the reward model is not asked again."""
    folder = share_counter(tmp_path / "judge")
    judge = {"path": str(folder), "weight": 3.0, "per": per, "device": "cpu"}
    run = tiny_run(tmp_path, REPLAYED[name] | {"reward_model": judge, "update.num_updates": 2})
    train(run, lambda *_: None)
    for path in folder.iterdir():
        path.unlink()
    stored = load_iteration(run.folder, 1)
    result = recredit(stored, stored.config)
    assert all(one.identical for one in compare_credits(stored, result))
    scored = 0
    for tree in stored.trees:
        for step in tree.steps:
            for turn in step.turns:
                if turn.trains_once_for:
                    continue
                named = TurnName(step=step.id, player=turn.player, attempt=turn.attempt)
                one = explain_turn(stored, result, tree.episode, named)
                scored += any(part.what.startswith("reward model at tick") for part in one.parts)
                assert all(one.credit == pytest.approx(t.credit, rel=1e-5, abs=1e-6) for t in one.tokens)
    assert scored
    line = list(read_metrics(run.folder / "metrics.jsonl"))[1]
    assert line["reward_model/Ada/mean"] > 0 and line["reward_model/Bo/deviation"] >= 0
    rewards = [step.rewards["Ada"] for tree in stored.trees for step in tree.steps if not step.branch]
    assert line["estimate/score/Ada/mean"] > sum(rewards) / len(stored.trees)
    assert line["rollout/return/Ada"] == pytest.approx(sum(rewards) / len(stored.trees))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": 0.0}, "'reward_model.weight' is 0"),
        ({"players": ["Adda"]}, r"names 'Adda'.*'Ada'"),
        ({"pth": "x"}, "pth"),
    ],
)
def test_settings_when_they_judge_nothing_then_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_config(tmp_path, {"reward_model": {"path": "x"} | changes})


def test_settings_when_lines_are_cut_before_the_verdict_then_refused(tmp_path: Path) -> None:
    branching = {"estimator": CRITIC, "collect.branching": {"num_alternatives": 1, "horizon": 1}}
    with pytest.raises(ValueError, match=r"per = 'turn'"):
        tiny_config(tmp_path, branching | {"reward_model": {"path": "x"}})
    assert tiny_config(tmp_path, branching | {"reward_model": {"path": "x", "per": "turn"}})


def test_folder_when_it_holds_no_such_judge_then_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        RewardModel(settings(tmp_path / "nowhere"))
    three = share_counter(tmp_path / "three", outputs=3)
    with pytest.raises(ConfigError, match="a label from 0 to 2"):
        RewardModel(settings(three))
    assert RewardModel(settings(three, label=2)).scores([(5, 6)]) == pytest.approx([known((5, 6))], abs=1e-5)
    headless = share_counter(tmp_path / "headless")
    model = LlamaForSequenceClassification.from_pretrained(headless)
    model.model.save_pretrained(headless)
    with pytest.raises(ConfigError, match=re.escape("lack ['score.weight']")):
        RewardModel(settings(headless))
    short = RewardModel(settings(share_counter(tmp_path / "short", positions=64)))
    with pytest.raises(ValueError, match=r"65 tokens for the reward model.*reads 64"):
        short.scores([(5,) * 65])


def test_game_when_its_info_takes_the_name_then_refused() -> None:
    """What a game says of itself must not pass for a verdict."""
    spec = make_game("iterated_matrix").spec
    rewards = dict.fromkeys(spec.players, 0.0)
    with pytest.raises(ValueError, match="where a reward model's scores stand"):
        check_outcome(StepOutcome(rewards=rewards, info={SCORES: {"Ada": 9.0}}), spec)

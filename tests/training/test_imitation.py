"""Imitation: what is learnt from which dialogue, by what loss, and that no dialogue is lost without being counted."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from run_fakes import SEATS, TALK, differences, imitation_settings, run_bytes, tiny_run
from transformers import PreTrainedTokenizerFast

from coplay.agents.chat import ChatFormat
from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.agents.language import SamplingSettings
from coplay.games import Malformed
from coplay.rollout_tree import CollectPlan, RolloutTree, Turn, collect_sync, plan_episodes, read_rollouts
from coplay.rollout_tree.chats import read_chats
from coplay.rollout_tree.export import export_messages
from coplay.scripts.imitate import start_imitating
from coplay.scripts.settings import IMITATION, read_settings
from coplay.training.config import RunConfig
from coplay.training.demonstration_rows import Lesson, Scribe, lessons
from coplay.training.demonstrations import Demonstration, Demonstrations, gather
from coplay.training.imitation import Imitation, imitate, new_imitation, resume_imitation
from coplay.training.imitation_config import GamesSource, ImitationConfig
from coplay.training.imitation_steps import rows_of, validate
from coplay.training.loop import train
from coplay.training.messages import ConfigError
from coplay.training.metrics import read_metrics
from coplay.training.passes import ReadPlan
from coplay.training.run import Run, new_run
from coplay.training.tracking import TRACKERS

READING = ReadPlan(micro_batch_tokens=16384)


def config(folder: Path, **changes: Any) -> ImitationConfig:
    return ImitationConfig.model_validate(imitation_settings(folder, **changes))


def scribe(chat: ChatFormat | None = None, *, constrained: bool = False, **sampling: Any) -> Scribe:
    return Scribe(
        chat=chat or ChatFormat(embedded_tokenizer()),
        sampling=SamplingSettings(**{"max_new_tokens": 60, "max_context": 2000} | sampling),
        constrained=constrained,
        policy="shared",
    )


def written(by: Scribe, demonstration: Demonstration) -> Lesson:
    lesson = by.lesson(demonstration)
    assert isinstance(lesson, Lesson)
    return lesson


def learnt(lesson: Lesson, chat: ChatFormat) -> list[str]:
    """The runs of learnt tokens of all rows, as text with the end token shown."""
    found = []
    for row in lesson.trajectory.rows:
        run: list[int] = []
        for token, sampled in zip([*row.ids.tolist(), -1], [*row.sampled.tolist(), False], strict=True):
            if sampled:
                run.append(token)
            elif run:
                found.append(chat.decode(run) + "#" * chat.ended(run))
                run = []
    return found


def first(folder: Path, **changes: Any) -> Demonstration:
    return gather(config(folder, **changes)).found[0]


# What is learnt.


def test_row_when_a_script_talked_then_replies_with_their_end_token_are_learnt_and_nothing_else(
    tmp_path: Path,
) -> None:
    demonstration, by = first(tmp_path), scribe()
    lesson = written(by, demonstration)
    assert learnt(lesson, by.chat) == [f"{turn.reply}#" for turn in demonstration.turns]
    (row,) = lesson.trajectory.rows
    chat, turns = by.chat, demonstration.turns
    expected = list(chat.opening(turns[0].observation.system, turns[0].observation.text))
    for number, turn in enumerate(turns):
        if number:
            expected += chat.following(turn.observation.text, last_reply_ended=True)
        expected += (*chat.encode_label(turn.reply), chat.stop_ids[0])
    assert row.ids.tolist() == expected
    assert lesson.num_tokens == int(row.sampled.sum())


def test_reply_when_constrained_then_only_where_the_grammar_left_a_choice(tmp_path: Path) -> None:
    demonstration, by = first(tmp_path), scribe(constrained=True)
    lesson = written(by, demonstration)
    messages = [f"{turn.reply}#" for turn in demonstration.turns if turn.observation.grammar.labels() is None]
    claims = [turn.reply for turn in demonstration.turns if turn.observation.grammar.labels()]
    assert messages and claims
    assert sorted(learnt(lesson, by.chat)) == sorted([*messages, *claims])
    batch = rows_of([lesson.trajectory], tiny_policy(tmp_path))
    bound = batch.allowed.index >= 0
    assert int(bound.sum()) == len(claims)


def tiny_policy(folder: Path) -> Any:
    run = tiny_run(folder / "policy")
    return run.policies["shared"]


FORGETS = (
    "{% for m in messages %}{% set c = m['content'] %}"
    "{% if m['role'] == 'assistant' and not loop.last %}{% set c = c.split('</think>')[-1] %}{% endif %}"
    "<|start|>{{ m['role'] }}\n{{ c }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def test_template_when_it_rewrites_history_then_each_turn_is_a_row(tmp_path: Path) -> None:
    chat = ChatFormat(_byte_tokenizer(FORGETS), max_positions=4000)
    assert not chat.append_only
    demonstration = first(tmp_path)
    lesson = written(scribe(chat, max_context=4000), demonstration)
    assert len(lesson.trajectory.rows) == len(demonstration.turns) == 4
    assert learnt(lesson, chat) == [f"{turn.reply}#" for turn in demonstration.turns]


def _byte_tokenizer(template: str) -> PreTrainedTokenizerFast:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={token: place for place, token in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    controls = ("<|start|>", "<|end|>", "<think>", "</think>")
    backend.add_tokens([AddedToken(t, normalized=False, special="think" not in t) for t in controls])
    make: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = make(tokenizer_object=backend)
    tokenizer.add_special_tokens({"eos_token": "<|end|>"})
    tokenizer.chat_template = template
    return tokenizer


def test_malformed_reply_when_imitated_then_context_and_counted(tmp_path: Path) -> None:
    source = first(tmp_path)
    bad = replace(source.turns[1], reply="hello", action=Malformed(reason="no_move", text="hello"))
    tree = tree_of([source.turns[0], bad, *source.turns[2:]])
    found = demonstrations_of(tmp_path, [tree])
    assert found.counts["old/malformed"] == 1
    by = scribe()
    texts = learnt(written(by, found.found[0]), by.chat)
    assert len(texts) == 3 and "hello#" not in texts


def tree_of(turns: list[Turn], **changes: Any) -> RolloutTree:
    """A game in which one player had these turns."""
    from coplay.rollout_tree import Step

    steps = tuple(
        Step(
            id=number, parent=number - 1 if number else None, branch="", index=number, tick=number, turns=(turn,),
            rewards={"Ada": 1.0}, status="running" if number < len(turns) - 1 else "terminated",
        )
        for number, turn in enumerate(turns)
    )  # fmt: skip
    known: dict[str, Any] = {
        "episode": "000000/00000", "iteration": 0, "game": "trust_and_split", "group": "g", "group_seed": 1,
        "seats": {"Ada": turns[0].policy}, "steps": steps,
    }  # fmt: skip
    return RolloutTree(**known | changes)


def demonstrations_of(folder: Path, trees: list[RolloutTree], **source: Any) -> Demonstrations:
    from coplay.rollout_tree import write_rollouts

    for iteration in sorted({tree.iteration for tree in trees}):
        write_rollouts(folder / "old", iteration, [tree for tree in trees if tree.iteration == iteration])
    return gather(
        config(folder, sources={"old": {"kind": "rollouts", "path": str(folder / "old"), **source}})
    )


# Sources.


def test_chats_when_exported_then_read_back_as_the_same_rows(tmp_path: Path) -> None:
    by, asked = scribe(), config(tmp_path)
    played = gather(asked)
    export_messages(played.played, tmp_path / "chats.jsonl")
    chats = {"kind": "chats", "path": str(tmp_path / "chats.jsonl")}
    back = gather(config(tmp_path, sources={"talk": chats}))
    rows = [
        sorted((row.ids.tobytes(), row.sampled.tobytes()) for one in found for row in written(by, one).trajectory.rows)
        for found in (played.found, back.found)
    ]  # fmt: skip
    assert rows[0] == rows[1]
    assert back.counts == {"talk/taken": 10}


def test_chat_when_a_tool_answers_then_heard_and_a_weight_of_0_is_not_learnt(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "x 5", "weight": 0},
        {"role": "tool", "content": "7"},
        {"role": "user", "content": "next"},
        {"role": "assistant", "content": "10"},
        {"role": "user", "content": "end"},
    ]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": messages, "other": 1}) + "\n\n")
    (found,) = gather(
        config(tmp_path, sources={"file": {"kind": "chats", "path": str(tmp_path / "chats.jsonl")}})
    ).found
    assert [turn.observation.text for turn in found.turns] == ["go", "7\n\nnext"]
    by = scribe()
    assert learnt(written(by, found), by.chat) == ["10#"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[1]", 'expected {"messages"'),
        (
            '{"messages": [{"role": "assistant", "content": "a"}]}',
            "message 0 is of 'assistant' after nothing",
        ),
        (
            '{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]}',
            "message 1 is of 'system' after a message of 'user'",
        ),
        (
            '{"messages": [{"role": "user", "content": null}]}',
            "message 0 has 'None' as content; expected text",
        ),
        (
            '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 2}]}',
            "message 1 has weight 2; expected 0 or 1",
        ),
        ("{", "line 2 of "),
    ],
)
def test_chat_when_it_is_none_then_one_sentence_names_its_line(tmp_path: Path, line: str, told: str) -> None:
    good = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    path = tmp_path / "chats.jsonl"
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(ValueError, match="line 2 of") as caught:
        list(read_chats(path))
    assert told in str(caught.value)


def test_rollouts_when_filtered_then_what_is_left_out_is_counted_by_reason(tmp_path: Path) -> None:
    trees = list(gather(config(tmp_path)).played)
    trees += [replace(tree, iteration=1, episode=f"000001/{n:05d}") for n, tree in enumerate(trees)]
    everything = demonstrations_of(tmp_path, trees)
    assert everything.counts["old/taken"] == 20
    some = demonstrations_of(tmp_path, trees, last_iterations=1, players=["Ada"])
    assert some.counts["old/taken"] == some.counts["old/other_player"] == 5
    assert all(one.name.startswith("old/1/") and one.name.endswith("/Ada") for one in some.found)
    fair = demonstrations_of(tmp_path, trees, policies=["fair"])
    assert fair.counts["old/taken"] == fair.counts["old/other_policy"] == 10
    totals = sorted(sum(step.rewards[p] for step in tree.steps) for tree in trees for p in tree.seats)
    rich = demonstrations_of(tmp_path, trees, min_return=totals[-3])
    assert rich.counts["old/taken"] == sum(total >= totals[-3] for total in totals)
    assert rich.counts["old/taken"] + rich.counts["old/low_return"] == 20
    with pytest.raises(ConfigError, match=r"'sources\.old' holds no reply that can be imitated"):
        demonstrations_of(tmp_path, trees, policies=["greedy"])


def test_stored_ids_when_of_this_tokenizer_then_learnt_as_they_were_sampled(tmp_path: Path) -> None:
    run = tiny_run(
        tmp_path / "runs",
        {
            "game": imitation_settings(tmp_path)["game"] | {"max_message_characters": 400},
            "agents.sampling": {"max_new_tokens": 3, "constrained": False},
            "update.num_updates": 1,
        },
    )
    train(run, lambda update, metrics: None)
    (tree, *_) = list(read_rollouts(run.folder))
    turns = tuple(turn for step in tree.steps for turn in step.turns if turn.player == "Ada")
    stopped = tuple(replace(turn, finish="stop") for turn in turns)
    taken = Demonstration(name="a", game="a", turns=stopped, learnt=(False, *[True] * (len(turns) - 1)))
    by = scribe(run.policies["shared"].chat)
    row = written(by, taken).trajectory.rows[0]
    ids = [token for turn in turns for segment in turn.segments for token in segment.ids]
    assert row.ids.tolist() == ids
    assert int(row.sampled.sum()) == sum(
        len(segment.ids) for turn in turns[1:] for segment in turn.segments if segment.sampled
    )


def test_dialogue_when_too_long_then_dropped_counted_and_too_many_refused(tmp_path: Path) -> None:
    found = gather(config(tmp_path)).found
    longest = max(len(written(scribe(), one).trajectory.rows[0].ids) for one in found)
    kept, dropped = lessons(scribe(max_context=longest - 1), found)
    assert dropped["too_long"] == len(found) - len(kept) > 0
    kept, dropped = lessons(scribe(max_new_tokens=5), found)
    assert not kept and dropped == {"reply_too_long": 10}
    with pytest.raises(ConfigError, match=r"10 of 10 dialogues do not fit \(\{'reply_too_long': 10\}\)"):
        new_imitation(config(tmp_path, agents__sampling={"max_new_tokens": 5}))
    assert not (tmp_path / "tiny").exists()


# Learning.


def test_step_when_taken_then_cross_entropy_of_the_replies_by_hand(tmp_path: Path) -> None:
    imitation = new_imitation(config(tmp_path, imitation__validation_share=0.0, update__batch_size=100))
    paths = imitation.curriculum.training
    assert len(paths) == 10
    model = imitation.policy._network
    nats = []
    for path in paths:
        for row in path.rows:
            ids = torch.from_numpy(row.ids)[None]
            with torch.no_grad():
                logits = imitation.policy.logits(imitation.policy.hidden(ids))[0]
            said = torch.from_numpy(row.sampled).nonzero()[:, 0]
            nats += torch.log_softmax(logits[said - 1], -1)[torch.arange(len(said)), ids[0, said]].tolist()
    assert model is imitation.policy._network
    told: list[Any] = []
    imitate(imitation, lambda step, metrics: told.append(metrics))
    assert len(told) == imitation.curriculum.num_steps == 2
    assert told[0]["imitation/loss"] == pytest.approx(-sum(nats) / len(nats), abs=1e-5)
    assert told[0]["imitation/tokens"] == len(nats)
    assert told[1]["imitation/loss"] < told[0]["imitation/loss"]


def test_packing_when_trees_or_rows_then_the_same_weights(tmp_path: Path) -> None:
    states = []
    for packing in ("trie", "flat"):
        imitation = new_imitation(config(tmp_path / packing, update__packing=packing, update__num_epochs=1))
        imitate(imitation, lambda step, metrics: None)
        states.append(imitation.policy.state())
    for name, tensor in states[0].items():
        torch.testing.assert_close(tensor, states[1][name], atol=2e-4, rtol=1e-3)


def test_epoch_when_cut_into_batches_then_every_dialogue_once_and_the_last_batch_smaller(
    tmp_path: Path,
) -> None:
    curriculum = new_imitation(config(tmp_path)).curriculum
    batches = list(curriculum.batches())
    assert [len(batch) for batch in batches] == [3, 3, 2] * 2
    epochs = [[path.episode for batch in part for path in batch] for part in (batches[:3], batches[3:])]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(path.episode for path in curriculum.training)
    assert epochs[0] != epochs[1]
    assert list(curriculum.batches(4)) == batches[4:]


def test_split_when_made_then_dialogues_of_a_game_stay_together(tmp_path: Path) -> None:
    curriculum = new_imitation(config(tmp_path)).curriculum
    sides = [{path.group for path in side} for side in (curriculum.training, curriculum.validation)]
    assert not sides[0] & sides[1]
    assert len(curriculum.validation) == 2 and len(sides[1]) == 1


def test_validation_when_computed_then_numbers_of_the_tokens_whatever_the_batches(tmp_path: Path) -> None:
    imitation = new_imitation(config(tmp_path))
    paths = imitation.curriculum.training
    one, other = (validate(imitation.policy, paths, READING, at_once=n) for n in (1, 100))
    assert one == pytest.approx(other)
    assert one["perplexity"] == pytest.approx(torch.tensor(one["loss"]).exp().item(), rel=1e-5)
    row = paths[0].rows[0]
    with torch.no_grad():
        logits = imitation.policy.logits(imitation.policy.hidden(torch.from_numpy(row.ids)[None]))[0]
    said = torch.from_numpy(row.sampled).nonzero()[:, 0]
    right = (logits[said - 1].argmax(-1) == torch.from_numpy(row.ids)[said]).float().mean()
    alone = validate(imitation.policy, paths[:1], READING, at_once=1)
    assert alone["accuracy"] == pytest.approx(float(right))


@pytest.mark.parametrize("stopped_after", [1, 4])
def test_law_8_when_stopped_and_resumed_then_not_a_byte_differs(tmp_path: Path, stopped_after: int) -> None:
    changes: dict[str, Any] = {"evaluate": {"every": 2, "num_games": 2, "anchors": ["greedy"]}}
    whole = new_imitation(config(tmp_path / "whole", **changes))
    imitate(whole, lambda step, metrics: None)

    class Stopped(RuntimeError):
        pass

    def stop(step: int, metrics: Any) -> None:
        if step + 1 == stopped_after:
            raise Stopped

    cut = new_imitation(config(tmp_path / "cut", **changes))
    with pytest.raises(Stopped):
        imitate(cut, stop)
    imitate(resume_imitation(cut.run.folder), lambda step, metrics: None)
    expected = run_bytes(whole.run.folder)
    assert expected["updates"] == list(range(6))
    assert differences(expected, run_bytes(cut.run.folder)) == []


def test_resume_when_the_dialogues_are_others_then_refused(tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    line = '{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "b"}]}\n'
    chats.write_text(line % "a")
    sources = {"file": {"kind": "chats", "path": str(chats)}}
    imitation = new_imitation(config(tmp_path, sources=sources, imitation__validation_share=0.0))
    chats.write_text(line % "c")
    with pytest.raises(ConfigError, match="hold other dialogues than when it began"):
        resume_imitation(imitation.run.folder)


def test_best_checkpoint_when_validation_turns_then_kept(tmp_path: Path) -> None:
    imitation = new_imitation(config(tmp_path, update__num_epochs=6, update__lr=0.2, storage__keep=1))
    imitate(imitation, lambda step, metrics: None)
    state, lines = imitation.run.state, list(read_metrics(imitation.run.folder / "metrics.jsonl"))
    losses = {line["update"] + 1: line["validation/loss"] for line in lines if "validation/loss" in line}
    assert len(losses) == 6
    assert state.best_update == min(losses, key=lambda update: losses[update])
    kept = {int(path.name) for path in (imitation.run.folder / "checkpoints").iterdir()}
    assert kept == {state.best_update, imitation.curriculum.num_steps}


# The run folder.


def finished(folder: Path, **changes: Any) -> Imitation:
    imitation = new_imitation(config(folder, **changes))
    imitate(imitation, lambda step, metrics: None)
    return imitation


def test_training_when_started_from_an_imitation_then_its_weights(tmp_path: Path) -> None:
    imitation = finished(tmp_path)
    data = imitation_settings(tmp_path, name="after")
    for section in ("sources", "imitation"):
        del data[section]
    data["update"] = {"num_updates": 1}
    data["collect"] = {"num_groups": 1, "group_size": 2}
    data["agents"]["policies"]["shared"]["start"] = str(imitation.run.folder)
    run = new_run(RunConfig.model_validate(data))
    for name, tensor in imitation.policy.state().items():
        assert torch.equal(tensor, run.policies["shared"].state()[name])


def test_commands_when_given_an_imitation_then_as_of_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from coplay.scripts.cli import main

    folder = str(finished(tmp_path).run.folder)
    assert main(["evaluate", folder, "--games", "2", "--against", "greedy"]) == 0
    assert "self-play" in capsys.readouterr().out
    assert main(["play", "trust_and_split", "--seats", f"Ada={folder}:Ada", "Bo=fair"]) == 0
    assert "shared@6" in capsys.readouterr().out
    assert main(["view", folder]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", folder]) == 2
    assert "was made by coplay imitate; expected coplay imitate --resume" in capsys.readouterr().err
    assert main(["imitate", "--resume", folder]) == 0


def test_play_when_kept_then_imitated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from coplay.scripts.cli import main

    words = [
        "play",
        "trust_and_split",
        "--seats",
        "Ada=fair",
        "Bo=welfare_maximising",
        "--out",
        str(tmp_path / "kept"),
    ]
    assert main(words) == 0
    assert main([*words, "--seed", "1"]) == 0
    capsys.readouterr()
    found = gather(config(tmp_path, sources={"kept": {"kind": "rollouts", "path": str(tmp_path / "kept")}}))
    assert found.counts == {"kept/taken": 4, "kept/malformed": 0}
    assert len({one.name for one in found.found}) == 4


def test_command_when_dry_then_a_dialogue_is_shown_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from coplay.scripts.cli import main

    monkeypatch.chdir(tmp_path)
    words = [
        "--sources.talk.num-games",
        "4",
        "--update.batch-size",
        "2",
        "--imitation.validation-share",
        "0.25",
    ]
    assert main(["imitate", "trust_imitate", "--dry-run", *words]) == 0
    told = capsys.readouterr().out
    assert "6 dialogues" in told and "[ hand][ is]" in told and "nothing was written" in told
    assert not list(tmp_path.iterdir())


def test_tracker_when_asked_for_then_told_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int | None] = []
    keeper = SimpleNamespace(
        start=lambda: None,
        store_init_configuration=lambda values: None,
        log=lambda values, step: told.append(step if "imitation/loss" in values else None),
        finish=lambda: told.append(-1),
    )
    monkeypatch.setitem(sys.modules, "trackio", ModuleType("trackio"))
    monkeypatch.setitem(TRACKERS, "trackio", lambda run: keeper)
    asked = config(tmp_path, storage__trackers=["trackio"], storage__every=0)
    assert start_imitating(asked) == 0
    steps = len(list(read_metrics(tmp_path / "tiny" / "metrics.jsonl")))
    assert steps > 1 and told == [*range(steps), -1]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"agents__policies": {"a": {}, "b": {}}},
            "'agents.policies' trains ['a', 'b']; expected one policy in an imitation",
        ),
        ({"sources__talk": TALK | {"seats": {"Ada": "fair"}}}, "'sources.talk.seats' seats nobody for 'Bo'"),
        ({"sources__talk": TALK | {"seats": SEATS | {"Bo": "fiar"}}}, "'sources.talk.seats.Bo' is 'fiar'"),
        ({"sources__talk": TALK | {"players": ["Cy"]}}, "'sources.talk.players' names 'Cy'"),
        ({"sources__talk": TALK | {"gmaes": 3}}, "unknown key 'sources.talk.gmaes'"),
        ({"evaluate__best": {"metric": "malformed", "goal": "min"}}, "'evaluate.best' is given"),
        ({"sources__talk": {"kind": "gams"}}, "sources.talk.kind is 'gams'; expected one of"),
    ],
)
def test_config_when_wrong_then_one_sentence(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        IMITATION.check(imitation_settings(tmp_path, **changes))
    assert told in str(caught.value)


@pytest.mark.parametrize("name", list(IMITATION.shipped()))
def test_shipped_imitation_when_read_then_valid(name: str) -> None:
    assert IMITATION.read(name, []).name == name


# What it is for.


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_warm_start_when_reinforced_then_talk_and_format_stay(tmp_path: Path) -> None:
    """500 scripted dialogues; then 20 updates of reinforcement, every token drawn from the whole vocabulary."""
    shipped = IMITATION.read("trust_imitate", ["--storage.folder", str(tmp_path)])
    source = shipped.sources["talk"]
    assert isinstance(source, GamesSource) and not shipped.imitation.constrained
    assert 2 * source.num_games == 500
    before = Run(shipped.run(num_steps=1), folder=tmp_path / "none")
    assert well_formed(before) < 0.05
    imitation = new_imitation(shipped)
    imitate(imitation, lambda step, metrics: None)
    assert imitation.summary["training"] == 450 and imitation.left_out() == {"talk/malformed": 0}
    assert well_formed(imitation.run) >= 0.95
    start = ["--agents.policies.shared.start", str(imitation.run.folder), "--update.num-updates", "20"]
    run = new_run(
        read_settings(
            "trust_after_imitation", [*start, "--evaluate.every", "0", "--storage.folder", str(tmp_path)]
        )
    )
    lines: list[Any] = []
    train(run, lambda update, metrics: lines.append(metrics))
    assert all(line["policy/shared/ratio_gap_max"] <= 1e-4 for line in lines)
    assert well_formed(run) >= 0.95


def well_formed(run: Run) -> float:
    """Share of replies that are moves or messages, drawn freely in 16 games of luck of their own."""
    assert not run.config.agents.sampling.constrained
    factory = run.factory("shared", run_seed=77)
    plans = plan_episodes(
        run.game, run_seed=77, iteration=0, num_groups=16, group_size=1,
        seats=dict.fromkeys(run.game.spec.players, factory),
        seat_names=dict.fromkeys(run.game.spec.players, run.label("shared")),
    )  # fmt: skip
    trees = collect_sync(CollectPlan(game=run.game, episodes=plans))
    run.engine.clear()
    turns = [turn for tree in trees for step in tree.steps for turn in step.turns]
    assert len(turns) == 16 * 5 * 4
    return sum(not turn.malformed for turn in turns) / len(turns)

"""The page of a run: what its data says, and that no text of a rollout can become anything but text (law 10)."""

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_fakes import (
    HOSTILE,
    LONG,
    SCRIPT,
    branched_run,
    digest,
    embedded_backend_once,
    fake_credits,
    hostile_run,
    store,
)
from rollout_fakes import Counting, Scripted, play

from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.rollout_tree import branch_trajectories, read_rollouts, render_text, render_tree, write_report
from coplay.rollout_tree import report as report_module
from coplay.rollout_tree.curves import evaluations, learning_curves
from coplay.rollout_tree.page_data import turn_credits
from coplay.rollout_tree.paths import branch_paths
from coplay.rollout_tree.pieces import Pieces, find_pieces
from coplay.rollout_tree.report import page_data


class Elements(HTMLParser):
    """What a browser makes of a page: its elements, and the text inside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.contents: list[tuple[str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.contents.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}", {}))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("script", "style"):
            tag, before = self.contents[-1]
            self.contents[-1] = (tag, before + data)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_run(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def branched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return branched_run(tmp_path_factory.mktemp("branched"))


def reply_of(data: dict[str, Any], turn: dict[str, Any]) -> str:
    """A reply put together from its tokens, as the page shows it."""
    spans = [data["spans"][span] for span, sampled in turn["segments"] if sampled]
    return "".join(data["token_texts"][token] for span in spans for token in span)


def test_page_when_texts_are_hostile_then_its_elements_are_its_own(hostile: Path) -> None:
    elements = Elements(write_report(hostile).read_text("utf-8"))
    scripts = [text for tag, text in elements.contents if tag == "script"]
    styles = [text for tag, text in elements.contents if tag == "style"]
    assert (len(scripts), len(styles)) == (2, 1)
    assert json.loads(scripts[0]) == page_data(hostile)
    assert "img" not in [tag for tag, _ in elements.found]
    policy = next(a["content"] for t, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    for kind, text in (("script", scripts[1]), ("style", styles[0])):
        named = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{named}'" in str(policy)
    for _, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on") or name == "src"]
        assert str(attributes.get("href", "data:")).startswith("data:")


def test_data_when_texts_are_hostile_then_whole(hostile: Path) -> None:
    data = page_data(hostile)
    trees = list(read_rollouts(hostile))
    assert [episode["id"] for episode in data["episodes"]] == [tree.episode for tree in trees]
    replies = set()
    for tree, episode in zip(trees, data["episodes"], strict=True):
        for step, shown in zip(tree.steps, episode["steps"], strict=True):
            for turn, entry in zip(step.turns, shown["turns"], strict=True):
                assert data["texts"][entry["reply"]] == turn.reply
                assert data["texts"][entry["seen"]] == turn.observation.text
                written = turn.reply.encode("utf-8", "replace").decode()
                assert reply_of(data, entry).removeprefix(" ") == written
                replies.add(turn.reply)
    assert {*HOSTILE, LONG} <= replies
    failed = next(episode for episode in data["episodes"] if episode["status"] == "failed")
    assert SCRIPT in failed["failure"][2]
    assert failed["returns"] is None


def test_report_when_written_twice_then_the_same_bytes_and_no_path_of_this_machine(hostile: Path) -> None:
    first = write_report(hostile).read_bytes()
    assert first == write_report(hostile).read_bytes()
    assert str(hostile.parent).encode() not in first
    assert not list(hostile.glob(".*"))


def test_credits_when_tokens_differ_then_each_has_its_own_and_surprise_is_the_largest(branched: Path) -> None:
    data = page_data(branched)
    names = data["credit_parts"]
    turn = data["episodes"][0]["steps"][3]["turns"][0]
    credit = dict(zip(names, turn["credit"], strict=True))
    assert (credit["baseline"], credit["shaping"], credit["value"]) == (0.5, 0.25, None)
    rows = [row for row in fake_credits(list(read_rollouts(branched))) if row.episode == "000000/00000"]
    own = next(row for row in rows if (row.branch, row.player) == ("", "ada"))
    expected = np.asarray(own.advantage)[np.asarray(own.turn) == 3].tolist()
    assert credit["advantage"] in (pytest.approx(expected), pytest.approx(expected[0]))
    assert len(turn["log_probs"]) == len(expected)
    largest = max(float(np.abs(np.asarray(row.advantage)).max()) for row in rows)
    assert data["episodes"][0]["surprise"] == pytest.approx(largest, rel=1e-3)


def test_credits_when_a_turn_is_held_in_a_branch_then_it_has_none_there(branched: Path) -> None:
    tree = next(read_rollouts(branched))
    credits = turn_credits(tree, fake_credits([tree]))
    steps = {step.id: step for step in tree.steps}
    assert {bool(turn.trains_once_for) for step in tree.steps for turn in step.turns} == {True, False}
    for step in tree.steps:
        for place, turn in enumerate(step.turns):
            assert ((step.id, place) in credits) == (not turn.trains_once_for)
    assert {steps[step].branch for step, _ in credits} == {step.branch for step in tree.steps}


def test_credits_when_of_other_rollouts_then_refused(branched: Path) -> None:
    tree = next(read_rollouts(branched))
    row = fake_credits([tree])[0]
    stray = type(row)(
        episode=row.episode, branch="", player="ada", row=0, position=[1], token=[5], tick=[9], turn=[99]
    )
    with pytest.raises(ValueError, match=r"turn 99 of 'ada' .* are of 1 tokens; expected 0"):
        turn_credits(tree, [stray])


def test_branch_paths_when_branches_part_then_each_goes_from_start_to_end(branched: Path) -> None:
    tree = next(read_rollouts(branched))
    paths = branch_paths(tree)
    assert set(paths) == {step.branch for step in tree.steps}
    for branch, path in paths.items():
        assert [step.index for step in path] == list(range(7))
        assert path[-1].branch == branch
    by_branch = {path.branch: path for path in branch_trajectories(tree)}
    assert all(by_branch[b].turn_steps == tuple(s.id for s in paths[b]) for b in by_branch)


def test_text_when_a_tree_has_branches_then_drawn_and_any_path_is_readable(branched: Path) -> None:
    tree = next(read_rollouts(branched))
    drawn = render_tree(tree)
    assert all(f"[{branch}]" in drawn for branch in branch_paths(tree) if branch)
    assert drawn.count("step 6") == sum(step.index == 6 for step in tree.steps)
    chosen = "s3.bo.1"
    last = branch_paths(tree)[chosen][-1]
    text = render_text(tree, chosen)
    assert f"branch {chosen}" in text
    assert text.count("\nstep ") == 7
    assert text.rstrip().splitlines()[-4].strip() == f"> {last.turns[-1].reply}"
    with pytest.raises(
        ValueError, match=r"has no branch 's3\.bo\.9'.*did you mean|has no branch 's3\.bo\.9'"
    ):
        render_text(tree, "s3.bo.9")


def test_tree_text_when_replies_are_hostile_then_nothing_acts_on_a_terminal(hostile: Path) -> None:
    for tree in read_rollouts(hostile):
        drawn = render_tree(tree)
        assert all(c == "\n" or c.isprintable() for c in drawn)
        assert max(map(len, drawn.splitlines())) < 300


def test_pieces_when_a_character_has_several_tokens_then_it_stands_at_the_first() -> None:
    backend = embedded_backend_once()
    pieces = Pieces(backend)
    for text in ("A B 10", "na\u00efve \U0001f642 \u05e9\u05dc", "x\ny  z", "<|end|>"):
        ids = backend.encode(text).ids
        found = pieces(ids)
        assert len(found) == len(ids)
        assert "".join(found).removeprefix(" ") == text
    smile = backend.encode("\U0001f642").ids
    assert pieces(smile)[-4:] == ["\U0001f642", "", "", ""]
    assert pieces(smile[:-1])[-3:] == ["\ufffd"] * 3


def test_tokenizer_when_made_without_transformers_then_the_one_that_runs_use(tmp_path: Path) -> None:
    tokenizer = embedded_tokenizer()
    assert tokenizer.backend_tokenizer.to_str() == embedded_backend_once().to_str()
    assert set(find_pieces(tmp_path, [digest(), "unknown", ""])) == {digest()}


def test_tokenizer_when_only_in_a_checkpoint_or_a_model_folder_then_found(tmp_path: Path) -> None:
    tokenizer = embedded_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}!{% endfor %}"
    checkpoint = tmp_path / "run/checkpoints/000004"
    tokenizer.save_pretrained(str(checkpoint / "policies/shared"))
    from coplay.agents.chat import ChatFormat

    name = ChatFormat(tokenizer).digest
    assert find_pieces(tmp_path / "run", [name]) == {}, "an unfinished checkpoint is none"
    (checkpoint / "COMPLETE").touch()
    assert set(find_pieces(tmp_path / "run", [name])) == {name}
    config = {"agents": {"model": {"kind": "folder", "path": str(checkpoint / "policies/shared")}}}
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.json").write_text(json.dumps(config), "utf-8")
    assert set(find_pieces(tmp_path / "other", [name])) == {name}


def test_tokens_when_their_tokenizer_is_unknown_then_shown_by_number(tmp_path: Path) -> None:
    store(tmp_path, 0, play(Counting(2)))
    data = page_data(tmp_path)
    assert set(data["token_texts"]) == {None}
    assert {1, 5, 6, 9, 100, 101} == set(data["token_ids"])


def test_iterations_when_too_many_turns_then_spread_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for iteration in range(9):
        store(tmp_path, iteration, play(Counting(5), num_groups=2, group_size=2, iteration=iteration))
    turns = 2 * 5 * 4
    for budget, expected in (
        (9 * turns, list(range(9))),
        (3 * turns, [0, 4, 8]),
        (2 * turns, [0, 8]),
        (turns, [8]),
    ):
        monkeypatch.setattr(report_module, "MAX_TURNS", budget)
        assert page_data(tmp_path)["run"]["shown"] == expected
    monkeypatch.setattr(report_module, "MAX_TURNS", turns - 1)
    data = page_data(tmp_path)
    assert [episode["id"] for episode in data["episodes"]] == ["000008/00000", "000008/00001"], (
        "one whole group"
    )
    assert data["run"]["num_played"] == 4
    assert data["run"]["stored"] == list(range(9))
    asked = page_data(tmp_path, [3, 2])
    assert (asked["run"]["shown"], len(asked["episodes"])) == ([2, 3], 8)
    with pytest.raises(FileNotFoundError, match="iteration 11 is not under"):
        page_data(tmp_path, [11])


def test_report_when_there_is_little_to_show_then_still_written(tmp_path: Path) -> None:
    page = write_report(tmp_path, tmp_path / "deep/page.html")
    assert page == tmp_path / "deep/page.html"
    store(tmp_path, 0, play(Counting(2), Scripted))
    data = page_data(tmp_path)
    assert data["run"]["config"] is None
    assert data["episodes"][0]["surprise"] is None
    assert "credit" not in data["episodes"][0]["steps"][0]["turns"][0]
    with pytest.raises(FileNotFoundError, match="'nowhere' is no folder"):
        write_report("nowhere")


def test_curves_when_metrics_are_long_then_averaged_and_times_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"update": n, "a": n if n % 2 else None, "time/x": 1.0}) for n in range(2500)]
    path.write_text("\n".join(lines) + '\n{"update": 25', "utf-8")
    curves = learning_curves(path)
    assert curves["width"] == 3
    assert curves["updates"][:3] == [0, 3, 6]
    assert curves["series"] == {"a": curves["series"]["a"]}
    assert curves["series"]["a"][:3] == [1, 4, 7]
    path.write_text('{"update": 1}\n[]\n', "utf-8")
    with pytest.raises(ValueError, match=r"line 2 of .* is b'\[\]"):
        learning_curves(path)
    assert learning_curves(tmp_path / "none") == {"updates": [], "width": 1, "series": {}}


def test_evaluations_when_damaged_then_named(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.json"
    assert evaluations(path) == []
    path.write_text('[{"update": 3, "results": [{"malformed": NaN}]}]', "utf-8")
    assert evaluations(path) == [{"update": 3, "results": [{"malformed": None}]}]
    path.write_text('{"update": 3}', "utf-8")
    with pytest.raises(ValueError, match="is no list of evaluations"):
        evaluations(path)

"""Tasks from files: what is read, left out and counted, asked and scored; the order of epochs; mistakes in files."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplay.agents.scripted import scripted_agent
from coplay.games import Chance, Choice, FreeText, Malformed, Mixture, Order, Tasks, Variant, make_game
from coplay.games.registry import GameParameterError
from coplay.games.rewards import REWARDS, RewardError
from coplay.games.task_rows import TaskFileError
from coplay.rollout_tree import CollectPlan, collect_sync, plan_episodes, plan_mixture

PLAIN = [
    {"prompt": "2 and 3 =", "answer": 5, "kind": "sum"},
    {"prompt": "Capital of France?", "answer": ["Paris", "City of Paris"], "kind": "place"},
    {"prompt": "Ripe?", "answer": True, "kind": "place"},
]
CHAT = [
    {
        "prompt": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"Who is {name}?"},
        ],
        "reward_model": {"ground_truth": {"target": [name, name.upper()]}, "style": "rule"},
        "data_source": "nq" if name == "Ada" else "hotpot",
        "extra": [1, 2],
    }
    for name in ("Ada", "Bo", "Cy")
]
SEARCH_R1 = {
    "answer_column": "reward_model.ground_truth.target",
    "source_column": "data_source",
    "tag": "answer",
}


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def parquet(path: Path, rows: list[Any]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def saved(folder: Path, rows: list[Any]) -> Path:
    """A folder as `datasets` saves it: a stream of record batches, and what its files are called."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    path = str(folder / "data-00000-of-00001.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
    )
    (folder / "dataset_info.json").write_text("{}")
    return folder


def tasks(path: Path, **parameters: Any) -> Tasks:
    game = make_game("tasks", path=str(path), **parameters)
    assert isinstance(game, Tasks)
    return game


def ask(game: Tasks, place: int, reply: str) -> Any:
    state = game.decode({"task": place, "over": False})
    action = game.observe(state, "Ada").grammar.parse(reply)
    return game.step(state, {"Ada": action}, Chance(0, 1))[1]


def test_lines_when_plain_then_prompts_answers_and_sources(tmp_path: Path) -> None:
    game = tasks(lines(tmp_path / "quiz.jsonl", PLAIN), source_column="kind")
    assert [(one.prompt, one.answers, one.source) for one in game.tasks] == [
        ("2 and 3 =", ("5",), "sum"),
        ("Capital of France?", ("Paris", "City of Paris"), "place"),
        ("Ripe?", ("true",), "place"),
    ]
    assert game.data.counts["source/place"] == 2
    assert {one.source for one in tasks(tmp_path / "quiz.jsonl").tasks} == {"quiz"}
    seen = game.observe(game.decode({"task": 1, "over": False}), "Ada")
    assert seen.text == "Capital of France?" and "Paris" not in seen.system + str(seen.facts)
    right = ask(game, 1, "paris.")
    assert right.rewards == {"Ada": 1.0} and right.terminated
    assert right.info == {"source": "place", "task": 1, "score": 1.0, "answers": ["Paris", "City of Paris"]}
    assert ask(game, 1, "Rome").rewards == {"Ada": 0.0}


@pytest.mark.parametrize("write", [lines, parquet, saved])
def test_chat_when_as_search_r1_has_it_then_loads_and_scores_the_tagged_answer(
    tmp_path: Path, write: Any
) -> None:
    """Parquet with a chat as prompt, answers deep inside, and a data source; the same as lines or saved."""
    suffix = {lines: "chat.jsonl", parquet: "chat.parquet", saved: "chat"}[write]
    game = tasks(write(tmp_path / suffix, CHAT), **SEARCH_R1)
    assert [one.answers for one in game.tasks] == [("Ada", "ADA"), ("Bo", "BO"), ("Cy", "CY")]
    assert [one.source for one in game.tasks] == ["nq", "hotpot", "hotpot"]
    seen = game.observe(game.decode({"task": 0, "over": False}), "Ada")
    assert seen.text == "Who is Ada?" and seen.system.startswith("Be brief.\n\nGive your answer in <answer>")
    assert "<answer>" in seen.system
    assert ask(game, 0, "<think>Bo</think> It is <answer>ada</answer>").rewards == {"Ada": 1.0}
    untagged = ask(game, 0, "Ada")
    assert untagged.rewards == {"Ada": 0.0}


def test_folder_when_it_has_splits_or_several_files_then_those_asked_for(tmp_path: Path) -> None:
    both = tmp_path / "both"
    saved(both / "train", PLAIN[:1])
    saved(both / "test", PLAIN[1:2])
    (both / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert [one.answers for one in tasks(both, split="test").tasks] == [("Paris", "City of Paris")]
    with pytest.raises(
        TaskFileError, match=r"has splits \['train', 'test'\], got split = 'tets'.*did you mean 'test'"
    ):
        tasks(both, split="tets")
    many = tmp_path / "many"
    many.mkdir()
    lines(many / "b.jsonl", PLAIN[:1])
    parquet(many / "a.parquet", [{"prompt": "first?", "answer": "yes"}])
    assert [one.prompt for one in tasks(many).tasks] == ["first?", "2 and 3 ="]
    with pytest.raises(TaskFileError, match="has no splits, got split = 'test'"):
        tasks(many, split="test")


@pytest.mark.needs("datasets")
def test_folder_when_datasets_saved_it_then_the_same_tasks(tmp_path: Path) -> None:
    import datasets

    rows = [{"prompt": f"say {place}", "answer": str(place)} for place in range(7)]
    datasets.Dataset.from_list(rows).shuffle(seed=1).save_to_disk(str(tmp_path / "one"))
    assert sorted(one.prompt for one in tasks(tmp_path / "one").tasks) == [row["prompt"] for row in rows]
    both = datasets.DatasetDict({"train": datasets.Dataset.from_list(rows[:3])})
    both.save_to_disk(str(tmp_path / "both"))
    assert [one.answers for one in tasks(tmp_path / "both", split="train").tasks] == [("0",), ("1",), ("2",)]


def test_rows_when_left_out_then_each_is_counted(tmp_path: Path) -> None:
    """Nothing is dropped in silence: what stays and what was left out add up to the rows."""
    rows = [
        {"prompt": "a?", "answer": "1"},
        {"prompt": "a?", "answer": "1"},
        {"prompt": "a?", "answer": "2"},
        {"prompt": " ", "answer": "1"},
        {"prompt": "b?", "answer": None},
        {"prompt": "c" * 50, "answer": "1"},
        {"prompt": "d?", "answer": []},
    ]
    game = tasks(lines(tmp_path / "t.jsonl", rows), max_prompt_characters=20)
    counts = game.data.counts
    assert counts == {
        "rows": 7,
        "empty": 3,
        "too_long": 1,
        "duplicates": 1,
        "tasks": 2,
        "sources": 1,
        "source/t": 2,
    }
    assert counts["rows"] == sum(counts[name] for name in ("empty", "too_long", "duplicates", "tasks"))


def test_fitted_when_prompts_have_too_many_tokens_then_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{"prompt": "x " * size, "answer": "1"} for size in range(1, 6)]
    game = tasks(lines(tmp_path / "t.jsonl", rows), max_prompt_tokens=3, num_tasks=2, instruct=False)
    fitted = game.fitted(lambda seen: len(seen.text.split()))
    assert len(game.tasks) == 2 and isinstance(fitted, Tasks)
    assert all(len(one.prompt.split()) <= 3 for one in fitted.tasks)
    assert fitted.data.counts["too_many_tokens"] == 2 and fitted.data.counts["not_drawn"] == 1
    assert fitted.spec == game.spec
    with pytest.raises(TaskFileError, match="has no task left"):
        game.fitted(lambda seen: 99)
    whole = tasks(tmp_path / "t.jsonl")
    assert whole.fitted(lambda seen: 99) is whole


def test_drawn_when_a_seed_is_given_then_a_function_of_it_and_too_few_are_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "t.jsonl", [{"prompt": f"{n}?", "answer": str(n)} for n in range(20)])
    some = [tasks(path, num_tasks=6, draw_seed=seed).tasks for seed in (0, 0, 1)]
    assert some[0] == some[1] != some[2]
    places = [int(one.answers[0]) for one in some[0]]
    assert places == sorted(places) and len(set(places)) == 6
    with pytest.raises(
        TaskFileError, match=r"num_tasks is 21, but .* has 20 tasks \(20 rows\); expected at most 20"
    ):
        tasks(path, num_tasks=21)


def test_labels_when_given_then_a_choice_and_answers_must_be_among_them(tmp_path: Path) -> None:
    rows = [{"prompt": "sky?", "answer": "B", "options": ["A", "B", "C"]}]
    path = lines(tmp_path / "t.jsonl", rows)
    game = tasks(path, labels_column="options", wording="terse", score="choice")
    grammar = game.observe(game.decode({"task": 0, "over": False}), "Ada").grammar
    assert grammar == Choice(("A", "B", "C"))
    assert tasks(path, labels=("B", "D"), tag="answer").observe(
        game.decode({"task": 0, "over": False}), "Ada"
    ).grammar == Choice(("B", "D"), "answer")
    assert isinstance(tasks(path).observe(game.decode({"task": 0, "over": False}), "Ada").grammar, FreeText)
    with pytest.raises(
        TaskFileError, match=r"has the answers \['B'\], and none of its labels \['C'\] is one"
    ):
        tasks(path, labels=("C",))
    with pytest.raises(GameParameterError, match="labels and labels_column are both given"):
        tasks(path, labels=("C",), labels_column="options")


def test_chat_when_it_has_earlier_turns_then_all_are_shown_by_role(tmp_path: Path) -> None:
    chat = [("user", "2 and 2 =?"), ("assistant", "4"), ("user", "3 and 3 =?")]
    row = {"prompt": [{"role": role, "content": text} for role, text in chat], "answer": "6"}
    game = tasks(lines(tmp_path / "t.jsonl", [row]))
    assert game.tasks[0].prompt == "user: 2 and 2 =?\n\nassistant: 4\n\nuser: 3 and 3 =?"
    assert not game.spec.has_chance


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            '{"prompt": "a", "answer": "b"}\n{"prompt": \n',
            "line 2 is '{\"prompt\":'; expected a JSON object, one a line",
        ),
        ('["a"]\n', "line 1 is '\\[\"a\"\\]'; expected a JSON object"),
        (
            '{"prompt": "a", "answr": "b"}\n',
            "line 1 has no column 'answer'; expected one of .*did you mean 'answr'",
        ),
        (
            '{"prompt": 3, "answer": "b"}\n',
            "line 1, column 'prompt': 3; expected a text, or a list of chat messages",
        ),
        (
            '{"prompt": "a", "answer": {"x": 1}}\n',
            "line 1, column 'answer': {'x': 1}; expected a text or number",
        ),
        (
            '{"prompt": [{"role": "tool", "content": ""}], "answer": 1}\n',
            "column 'prompt': message .*expected 'role'",
        ),
        (
            '{"prompt": [{"role": "system", "content": ""}], "answer": 1}\n',
            "does not end with a message of the user",
        ),
        (
            '{"prompt": "a", "answer": ' + "[" * 50_000 + "]" * 50_000 + "}\n",
            "line 1 is .*expected a JSON object",
        ),
        ("", r"has no task left \(0 rows\); expected at least one"),
    ],
)
def test_lines_when_damaged_then_one_sentence_with_the_place(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TaskFileError, match=told) as caught:
        tasks(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_files_when_none_or_of_another_kind_then_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TaskFileError, match=r"there is no '.*no\.jsonl'; expected a file of rows"):
        tasks(tmp_path / "no.jsonl")
    (tmp_path / "t.csv").write_text("a,b")
    with pytest.raises(TaskFileError, match=r"ends in '\.csv'; expected one of \.jsonl"):
        tasks(tmp_path / "t.csv")
    (tmp_path / "t.parquet").write_text("no")
    with pytest.raises(TaskFileError, match="is no Parquet file"):
        tasks(tmp_path / "t.parquet")
    (tmp_path / "t.arrow").write_text("no")
    with pytest.raises(TaskFileError, match="is no Arrow stream"):
        tasks(tmp_path / "t.arrow")
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(TaskFileError, match="cannot be read"):
        tasks(tmp_path / "t.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskFileError, match="has no file of rows"):
        tasks(tmp_path / "empty")
    escape = tmp_path / "escape"
    escape.mkdir()
    (escape / "state.json").write_text('{"_data_files": [{"filename": "../t.arrow"}]}')
    with pytest.raises(TaskFileError, match="expected Arrow files beside it"):
        tasks(escape)
    path = lines(tmp_path / "words.jsonl", [{"prompt": "a", "answer": "ten"}])
    with pytest.raises(
        TaskFileError, match=r"has the answers \['ten'\]; expected numbers \(score 'number'\)"
    ):
        tasks(path, score="number")


def test_sums_when_prompts_are_to_be_short_then_the_long_ones_are_left_out() -> None:
    short = make_game("tasks", max_prompt_characters=7)
    assert isinstance(short, Tasks)
    assert short.data.counts["too_long"] == 100 and {task.source for task in short.tasks} == {"difference"}


def test_file_when_it_changes_then_read_again(tmp_path: Path) -> None:
    path = lines(tmp_path / "t.jsonl", PLAIN[:1])
    before = tasks(path)
    lines(path, PLAIN[1:])
    after = tasks(path)
    assert len(before.tasks) == 1 and len(after.tasks) == 2
    assert before.data.digest != after.data.digest


def test_score_when_it_leaves_its_range_then_the_game_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REWARDS, "length", lambda answer, task: len(answer))
    path = lines(tmp_path / "t.jsonl", PLAIN[:1])
    game = tasks(path, score="length", score_range=(0, 2))
    assert ask(game, 0, "ab").rewards == {"Ada": 2.0}
    with pytest.raises(RewardError, match=r"score 'length' gave 3; expected a number from 0.0 to 2.0"):
        ask(game, 0, "abc")
    with pytest.raises(GameParameterError, match="expected a least and a greater score"):
        tasks(path, score_range=(1, 0))
    malformed = tasks(path, score_range=(-1, 1), tag="answer")
    assert ask(malformed, 0, "5").rewards == {"Ada": -1.0}
    assert isinstance(
        malformed.observe(malformed.decode({"task": 0, "over": False}), "Ada").grammar.parse("5"), Malformed
    )


def test_games_when_imported_and_made_without_files_then_nothing_that_reads_parquet_is_loaded() -> None:
    code = (
        "import sys; from coplay.games import make_game; make_game('tasks'); print('pyarrow' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


# --- epochs ---


@given(size=st.integers(1, 40), seed=st.integers(0, 5), start=st.integers(0, 3))
def test_dealt_when_an_epoch_is_over_then_each_came_once(size: int, seed: int, start: int) -> None:
    """Without replacement: groups of an epoch meet every option exactly once, in any epoch."""
    numbers = range(start * size, (start + 1) * size)
    drawn = [Chance(9, order=Order(run_seed=seed, number=n)).dealt("task", size) for n in numbers]
    assert sorted(drawn) == list(range(size))


def test_dealt_when_epochs_and_runs_differ_then_other_orders_and_without_order_a_plain_draw() -> None:
    def epoch(seed: int, which: int) -> list[int]:
        return [
            Chance(0, order=Order(run_seed=seed, number=which * 20 + n)).dealt("t", 20) for n in range(20)
        ]

    assert epoch(1, 0) == epoch(1, 0)
    assert len({tuple(epoch(seed, which)) for seed in (1, 2) for which in (0, 1)}) == 4
    assert Chance(5).dealt("t", 20) == Chance(5).integer("t", 20)
    fresh = Chance(5, branch="b", order=Order(run_seed=1, number=3))
    assert fresh.dealt("t", 20) == Chance(5, branch="b").integer("t", 20)
    with pytest.raises(ValueError, match="needs at least one option"):
        Chance(5, order=Order(run_seed=1, number=0)).dealt("t", 0)


def asked(game: Tasks, *, iteration: int, num_groups: int, group_size: int = 2) -> list[int]:
    """The task of each group of an iteration; those of a group must agree."""
    seats = dict.fromkeys(game.spec.players, scripted_agent("random"))
    plan = plan_episodes(
        game,
        run_seed=3,
        iteration=iteration,
        num_groups=num_groups,
        group_size=group_size,
        seats=seats,
        seat_names=dict.fromkeys(seats, "random"),
    )
    found: dict[str, set[int]] = {}
    for tree in collect_sync(CollectPlan(game=game, episodes=plan)):
        found.setdefault(tree.group, set()).add(tree.steps[0].info["task"])
    assert all(len(one) == 1 for one in found.values())
    return [next(iter(found[group])) for group in sorted(found)]


def test_epoch_when_groups_do_not_divide_it_then_it_goes_on_in_the_next_iteration() -> None:
    """The last incomplete batch is played: 20 tasks in batches of 6, and the next epoch begins within a batch."""
    game = make_game("tasks", num_tasks=20)
    assert isinstance(game, Tasks)
    order = [task for iteration in range(10) for task in asked(game, iteration=iteration, num_groups=6)]
    assert [sorted(order[start : start + 20]) for start in (0, 20, 40)] == [list(range(20))] * 3
    assert order[:20] != order[20:40]
    assert asked(game, iteration=7, num_groups=6) == order[42:48], (
        "an iteration alone is the same: it can be resumed"
    )


def test_epoch_when_tasks_are_part_of_a_mixture_then_counted_over_its_own_groups() -> None:
    game, other = make_game("tasks", num_tasks=5), make_game("tasks", num_tasks=3, draw_seed=2)
    mixture = Mixture(
        variants=(
            Variant(name="some", label="some", game=game, weight=3.0),
            Variant(name="few", label="few", game=other),
        )
    )
    seats = {"Ada": scripted_agent("random")}
    met: dict[str, list[int]] = {"some": [], "few": []}
    for iteration in range(12):
        plan = plan_mixture(
            mixture,
            run_seed=3,
            iteration=iteration,
            num_groups=3,
            group_size=1,
            seats=seats,
            seat_names={"Ada": "random"},
        )
        for tree in collect_sync(CollectPlan(game=game, episodes=plan)):
            met[tree.game].append(tree.steps[0].info["task"])
    for label, size in (("some", 5), ("few", 3)):
        whole = len(met[label]) // size
        assert whole >= 2
        assert all(
            sorted(met[label][epoch * size : (epoch + 1) * size]) == list(range(size))
            for epoch in range(whole)
        )


def test_plan_when_groups_are_planned_apart_then_refused() -> None:
    with pytest.raises(ValueError, match="goes in order, and groups from number 2 on are planned alone"):
        plan_episodes(
            make_game("tasks"),
            run_seed=1,
            iteration=0,
            num_groups=1,
            group_size=1,
            seats={"Ada": scripted_agent("random")},
            seat_names={"Ada": "random"},
            first_group=2,
        )


def test_random_when_it_answers_sums_then_as_often_right_as_there_are_labels() -> None:
    """Reference return: 19 labels, one of them right: 1/19, over four whole epochs."""
    game = make_game("tasks", wording="terse")
    seats = {"Ada": scripted_agent("random")}
    plan = plan_episodes(
        game,
        run_seed=1,
        iteration=0,
        num_groups=155,
        group_size=4,
        seats=seats,
        seat_names={"Ada": "random"},
    )
    scores = [tree.steps[0].rewards["Ada"] for tree in collect_sync(CollectPlan(game=game, episodes=plan))]
    mean = sum(scores) / len(scores)
    assert abs(mean - 1 / 19) < 4 * (18 / 19 / 19 / len(scores)) ** 0.5

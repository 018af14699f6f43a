"""Questions with a search tool: the facts that ship, exact match, files of one's own (Done when 3 of the issue)."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from coplay.agents.retrievers import read_corpus
from coplay.games import Chance, Game, make_game
from coplay.games.registry import GameParameterError
from coplay.games.search_qa import SearchState, read_questions


def reward(game: Game[Any], reply: str, seed: int = 0) -> float:
    state = game.initial_state(Chance(seed))
    (player,) = game.to_move(state)
    action = game.observe(state, player).grammar.parse(reply)
    after, outcome = game.step(state, {player: action}, Chance(seed, 1))
    assert outcome.terminated and not game.to_move(after)
    return outcome.rewards[player]


def test_facts_when_counted_then_every_answer_as_often_in_both_splits_and_all_words_known_to_training() -> (
    None
):
    questions = read_questions("shipped")
    by_split = Counter((one.split, one.answers[0]) for one in questions)
    assert set(by_split.values()) == {6, 4} and len(by_split) == 20
    assert len({one.terse for one in questions}) == len({one.prompt for one in questions}) == 100
    trained = [one.terse.split() for one in questions if one.split == "train"]
    assert {person for person, _ in trained} == set("ABCDEFGHIJ")
    assert {town for _, town in trained} == set("0123456789")


def test_corpora_when_read_then_hold_the_answer_to_every_question_once() -> None:
    questions = read_questions("shipped")
    full, terse = read_corpus("search_qa"), read_corpus("search_qa_terse")
    assert sorted(terse) == sorted(f"{one.terse} {one.answers[0]}" for one in questions)
    for one in questions:
        asked = one.prompt.removeprefix("What does ").removesuffix(" sell?")
        assert full.count(f"{asked}\n{asked} sells {one.answers[0]}.") == 1


def test_guess_when_of_every_good_then_right_in_one_case_of_ten() -> None:
    game = make_game("search_qa", wording="terse", split="all")
    state = game.initial_state(Chance(0))
    goods = game.observe(state, "Ada").grammar.labels()
    assert goods is not None and len(goods) == 10
    rewards = []
    for number in range(100):
        state = SearchState(number)
        grammar = game.observe(state, "Ada").grammar
        rewards += [
            game.step(state, {"Ada": grammar.parse(good)}, Chance(0, 1))[1].rewards["Ada"] for good in goods
        ]
    assert sum(rewards) / len(rewards) == 0.1


def test_reply_when_full_then_only_the_tagged_answer_counts() -> None:
    game = make_game("search_qa")
    golden = read_questions("shipped")
    state = game.initial_state(Chance(0))
    asked = game.observe(state, "Ada").text.removeprefix("Question: ")
    answer = next(one.answers[0] for one in golden if one.prompt == asked)
    assert reward(game, f"<think>{answer}?</think><answer>The {answer.upper()}.</answer>") == 1.0
    assert reward(game, answer) == 0.0 and reward(game, "<answer>nothing</answer>") == 0.0
    assert reward(game, f"<search>{answer}</search>") == 0.0


def test_held_out_questions_when_asked_then_none_of_training() -> None:
    seen = {
        split: {
            make_game("search_qa", split=split).observe(s, "Ada").text
            for seed in range(300)
            for s in [make_game("search_qa", split=split).initial_state(Chance(seed))]
        }
        for split in ("train", "held_out")
    }
    assert len(seen["held_out"]) == 40 and not seen["train"] & seen["held_out"]


def test_questions_when_from_a_file_then_asked(tmp_path: Path) -> None:
    path = tmp_path / "nq.jsonl"
    path.write_text(
        '{"question": "who wrote it", "golden_answers": ["Ann Lee", "Lee"]}\n\n', encoding="utf-8"
    )
    for wording in ("full", "terse"):
        game = make_game("search_qa", questions=str(path), wording=wording, tag=None, form="json")
        assert reward(game, "ann lee") == reward(game, "Lee.") == 1.0 and reward(game, "ann") == 0.0
        assert "who wrote it" in game.observe(game.initial_state(Chance(0)), "Ada").text


@pytest.mark.parametrize("line", ["{", "[]", '{"question": "x"}', '{"question": "x", "golden_answers": []}'])
def test_questions_when_a_line_is_none_then_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "nq.jsonl"
    path.write_text(f'{{"question": "x", "golden_answers": ["y"]}}\n{line}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 2 of .*golden_answers"):
        make_game("search_qa", questions=str(path))


def test_questions_when_missing_then_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'questions' is 'none\.jsonl'; expected 'shipped'"):
        make_game("search_qa", questions="none.jsonl")
    path = tmp_path / "nq.jsonl"
    path.write_text('{"question": "x", "golden_answers": ["y"]}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="'split' is 'held_out'"):
        make_game("search_qa", questions=str(path), split="held_out")
    marked = tmp_path / "marked.jsonl"
    marked.write_text('{"question": "x", "golden_answers": ["y"]}\n', encoding="utf-8-sig")
    assert [one.prompt for one in read_questions(str(marked))] == ["x"]
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"\xff\xfe")
    with pytest.raises(
        ValueError, match=r"'questions' is '.*other\.jsonl', which cannot be read: .* in UTF-8"
    ):
        make_game("search_qa", questions=str(other))
    with pytest.raises(GameParameterError, match="max_calls"):
        make_game("search_qa", max_calls=0)

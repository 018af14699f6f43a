"""Scores of answers, by name: worked out by hand, and what is refused."""

import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplay.games.rewards import REWARDS, RewardError, checked, find_reward, normalised, read_number
from coplay.games.task_sets import Task


def task(*answers: str) -> Task:
    return Task(prompt="?", answers=answers, source="here")


@pytest.mark.parametrize(
    ("score", "answers", "right", "wrong"),
    [
        (
            "exact_match",
            ("The Eiffel Tower", "Tour Eiffel"),
            ["eiffel  tower.", "the Eiffel Tower!", "tour eiffel"],
            ["eiffel", "the tower of Eiffel", "", "the"],
        ),
        ("exact_match", ("A",), ["a", "A.", "(A)"], ["the", "B", ""]),
        ("exact_match", ("-3.5",), ["-3.5", " -3.5."], ["3.5", "-35", "35"]),
        (
            "contains",
            ("Ada Lovelace",),
            ["It was Ada Lovelace, I think."],
            ["It was Adaline Lovelace", "Ada, Lovelace's"],
        ),
        ("contains", ("ten",), ["about ten"], ["attention", "often"]),
        (
            "number",
            ("1,234.50",),
            ["so it is $1234.5.", "first 7, then 1,234.50", "2469/2"],
            ["1234.5 or 7", "1.2345", "none", "12345", "-1234.5", "1234/0"],
        ),
        ("choice", ("B",), ["b", "(B)", "B.", " B) "], ["A", "B or C", "", "bb"]),
    ],
)
def test_score_when_an_answer_is_right_then_one_and_else_zero(
    score: str, answers: tuple[str, ...], right: list[str], wrong: list[str]
) -> None:
    reward = find_reward(score)
    assert {answer: reward(answer, task(*answers)) for answer in right} == dict.fromkeys(right, 1.0)
    assert {answer: reward(answer, task(*answers)) for answer in wrong} == dict.fromkeys(wrong, 0.0)


def test_regex_when_the_pattern_has_a_group_then_its_last_match_counts() -> None:
    reward = find_reward("regex", r"#### (\S+)")
    assert reward("#### 3\nno:\n#### 42", task("42")) == 1.0
    assert reward("#### 42\n#### 3", task("42")) == 0.0
    assert reward("42", task("42")) == 0.0
    assert find_reward("regex", r"\d+")("41 or 42", task("42")) == 1.0
    assert find_reward("regex", r"x(y)?")("x", task("42")) == 0.0


@pytest.mark.parametrize("score", sorted(REWARDS))
@given(answer=st.text(max_size=60), rights=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=3))
def test_scores_when_texts_are_anything_then_zero_or_one(score: str, answer: str, rights: list[str]) -> None:
    assert REWARDS[score](answer, task(*rights)) in (0.0, 1.0)


@given(text=st.text(max_size=60))
def test_normalised_when_space_and_commas_surround_a_text_then_the_same(text: str) -> None:
    once = normalised(text)
    assert once == " ".join(once.split()) == normalised(f"  {text} , ")


def test_read_number_when_there_are_several_then_the_last_and_words_hold_none() -> None:
    assert read_number("3 of 4") == 4
    assert read_number("x86 and utf8") is None
    assert read_number("9" * 500) is None


def test_find_reward_when_the_name_is_wrong_then_a_sentence() -> None:
    with pytest.raises(
        RewardError, match=r"'exact_macth' is unknown; expected one of .*did you mean 'exact_match'"
    ):
        find_reward("exact_macth")
    with pytest.raises(
        RewardError, match=r"'os:getcwd' is unknown; .*under the entry points 'coplay.rewards'"
    ):
        find_reward("os:getcwd")
    with pytest.raises(RewardError, match="with pattern None; expected a pattern"):
        find_reward("regex")
    with pytest.raises(RewardError, match="expected none, or score = 'regex'"):
        find_reward("number", r"\d")
    with pytest.raises(RewardError, match="is no regular expression"):
        find_reward("regex", "(")


def test_find_reward_when_announced_then_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    announced = [
        EntryPoint(name, f"their_rewards:{name}", "coplay.rewards")
        for name in ("half", "pi", "gone", "alone")
    ]
    module = ModuleType("their_rewards")
    module.half = lambda answer, task: 0.5  # type: ignore[attr-defined]
    module.alone = lambda answer: 0.5  # type: ignore[attr-defined]
    module.pi = 3.14  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_rewards", module)
    monkeypatch.setattr(
        "coplay.games.plugins.entry_points", lambda group: announced if group == "coplay.rewards" else []
    )
    assert find_reward("half")("x", task("y")) == 0.5
    with pytest.raises(RewardError, match=r"'pi' is 3\.14; expected a function of an answer"):
        find_reward("pi")
    with pytest.raises(RewardError, match=r"'alone' is .*; expected a function of an answer and a task"):
        find_reward("alone")
    with pytest.raises(RewardError, match="'gone' cannot be loaded: AttributeError"):
        find_reward("gone")


@pytest.mark.parametrize("value", [2.0, -0.1, float("nan"), float("inf"), "1", None])
def test_checked_when_no_number_in_range_then_refused(value: object) -> None:
    with pytest.raises(RewardError, match=r"score 's' gave .*; expected a number from 0.0 to 1.0"):
        checked(value, name="s", least=0.0, most=1.0)

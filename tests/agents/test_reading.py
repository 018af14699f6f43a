"""What is read of contexts that share beginnings: every distinct token once, in few turns, from what is held."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplay.agents import reading
from coplay.agents.reading import Start, common_length, plan_reading

CONTEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), max_size=8, unique=True)


def read_all(held: Sequence[tuple[int, ...]], wanted: Sequence[tuple[int, ...]]) -> int:
    """Carry a plan out on lists; returns how many tokens were read."""
    starts = plan_reading(held, wanted)
    rows: dict[int, tuple[int, ...]] = {}
    num_read = 0
    for turn in range(1 + max((start.turn for start in starts), default=-1)):
        before = dict(rows)
        for number, start in enumerate(starts):
            if start.turn == turn:
                assert start.held is None or start.wanted is None
                source = () if start.wanted is None else before[start.wanted]
                source = source if start.held is None else held[start.held]
                rows[number] = source[: start.common] + wanted[number][start.common :]
                assert start.common < len(wanted[number])
                num_read += len(wanted[number]) - start.common
    assert [rows[number] for number in range(len(wanted))] == list(wanted)
    return num_read


def distinct(contexts: Sequence[tuple[int, ...]]) -> set[tuple[int, ...]]:
    return {context[:length] for context in contexts for length in range(1, len(context) + 1)}


@given(held=CONTEXTS, wanted=CONTEXTS)
def test_plan_for_any_contexts_reads_each_distinct_beginning_once(
    held: list[tuple[int, ...]], wanted: list[tuple[int, ...]]
) -> None:
    """Tokens read = beginnings that nothing held has, plus the last token of contexts that are held whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "WORTHWHILE", 1)
        num_read = read_all(held, wanted)
    again = sum(context in distinct(held) for context in wanted)
    assert num_read == len(distinct(wanted) - distinct(held)) + again


@given(held=CONTEXTS, wanted=CONTEXTS)
def test_plan_with_short_beginnings_left_out_still_reads_everything(
    held: list[tuple[int, ...]], wanted: list[tuple[int, ...]]
) -> None:
    read_all(held, wanted)


def test_group_with_one_common_prompt_takes_two_turns() -> None:
    prompt = tuple(range(20))
    wanted = [(*prompt, 100 + k, 7) for k in range(5)]
    starts = plan_reading([], wanted)
    assert starts[0] == Start()
    assert starts[1:] == [Start(turn=1, wanted=0, common=20)] * 4


def test_branches_inside_branches_take_a_turn_a_level() -> None:
    """Three levels: prompt, 2 ways after it, 2 ways after each."""
    first, second = (1,) * 10, (2,) * 10
    wanted = [(*first, a, *second, b, 5) for a in (10, 20) for b in (30, 40)]
    assert [start.turn for start in plan_reading([], wanted)] == [0, 1, 1, 2]
    assert read_all([], wanted) == 10 + 2 * 11 + 4 * 2


def test_fork_of_a_held_dialogue_starts_from_it_cut_to_the_common_part() -> None:
    held = [tuple(range(30)), (9,) * 30]
    fork = (*range(20), 77, 78)
    assert plan_reading(held, [fork]) == [Start(held=0, common=20)]
    assert plan_reading(held, [tuple(range(30))]) == [Start(held=0, common=29)]
    assert plan_reading(held, [tuple(range(33))]) == [Start(held=0, common=30)]


@pytest.mark.parametrize(
    ("first", "second", "length"),
    [((), (), 0), ((1,), (), 0), ((1, 2), (1, 2), 2), ((1, 2), (1, 2, 3), 2), ((1, 2, 3), (1, 9, 3), 1)],
)
def test_common_length(first: tuple[int, ...], second: tuple[int, ...], length: int) -> None:
    assert common_length(first, second) == common_length(second, first) == length


@given(first=st.lists(st.integers(0, 1), max_size=40), second=st.lists(st.integers(0, 1), max_size=40))
def test_common_length_is_that_of_a_walk(first: list[int], second: list[int]) -> None:
    walked = 0
    while walked < min(len(first), len(second)) and first[walked] == second[walked]:
        walked += 1
    assert common_length(first, second) == walked

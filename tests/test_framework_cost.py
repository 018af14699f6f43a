"""What a turn costs, counted in calls and not in seconds: bounded per turn, linear in the length of an episode."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coplay.agents.base import Seat
from coplay.agents.chat import ChatFormat
from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.agents.engine import Prefix, Sample, SampleRequest
from coplay.agents.language import LanguageAgent, SamplingSettings
from coplay.games import derive_seed, make_game
from coplay.rollout_tree import (
    CollectPlan,
    RolloutTree,
    build_trajectories,
    collect_sync,
    plan_episodes,
    read_rollouts,
    summary,
    write_rollouts,
)
from coplay.rollout_tree.paths import main_line
from coplay.scripts.bench_framework import PARTS, InstantEngine, bench, play_long
from coplay.training import loop


def calls(work: Callable[[], Any]) -> Counter[Any]:
    """How often every function was called: code objects of Python's, names of C's."""
    counted: Counter[Any] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            counted[frame.f_code] += 1
        elif event == "c_call":
            counted[argument.__name__] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


class RememberingEngine(InstantEngine):
    """Answers at once and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> Sample:
        self.requests.append(request)
        return await super().sample(request)


def play_many(num_games: int, chat: ChatFormat, engine: InstantEngine) -> list[RolloutTree]:
    """Games of ten rounds between language agents."""
    game = make_game("iterated_matrix", wording="terse", num_rounds=10)

    def sit(_: Seat) -> LanguageAgent:
        return LanguageAgent(engine, chat, "instant@0", SamplingSettings(), run_seed=0)

    seats = dict.fromkeys(game.spec.players, sit)
    names = dict.fromkeys(game.spec.players, "instant@0")
    plans = plan_episodes(
        game, run_seed=0, iteration=0, num_groups=1, group_size=num_games, seats=seats, seat_names=names
    )
    return collect_sync(CollectPlan(game=game, episodes=plans))


@pytest.fixture
def chat() -> ChatFormat:
    return ChatFormat(embedded_tokenizer(), max_positions=1 << 22)


def test_turn_when_played_then_one_seed_is_derived_and_equal_texts_are_encoded_once(chat: ChatFormat) -> None:
    """At most 120 µs a turn: no turn hashes twice, and the second game encodes nothing the first one did."""
    few = calls(lambda: play_many(2, chat, InstantEngine()))
    many = calls(lambda: play_many(32, chat, InstantEngine()))
    turns, seats = 32 * 10 * 2, 32 * 2
    assert many[derive_seed.__code__] <= turns + seats + 32
    encode = ChatFormat._text_ids.__code__
    assert few[encode] > 0 and many[encode] == 0


def test_turn_when_played_then_its_calls_are_bounded(chat: ChatFormat) -> None:
    """At most 100 µs a turn: a call is about 0.1 µs; a turn had 199 calls when this bound was set."""
    play_many(2, chat, InstantEngine())
    counted = calls(lambda: play_many(32, chat, InstantEngine()))
    assert counted.total() / (32 * 10 * 2) < 220


def test_statistics_when_taken_then_main_lines_are_walked_once(chat: ChatFormat) -> None:
    """At most 100 µs a turn: all statistics together had 49 calls a turn when this bound was set."""
    trees = play_many(32, chat, InstantEngine())
    counted = calls(lambda: summary(trees))
    assert counted[main_line.__code__] == 32
    assert counted.total() / (32 * 10 * 2) < 60


@pytest.mark.parametrize("stage", ["collect", "store", "read", "trajectory"])
def test_long_episode_when_twice_as_long_then_at_most_twice_the_calls(
    stage: str, chat: ChatFormat, tmp_path: Path
) -> None:
    """Time linear in the length: collected, stored, read and turned into a trajectory."""
    counts = []
    for length in (400, 800):
        folder = tmp_path / str(length)
        tree = play_long(length, chat)
        write_rollouts(folder, 0, [tree])
        work: dict[str, Callable[[], Any]] = {
            "collect": lambda length=length: play_long(length, chat),
            "store": lambda folder=folder, tree=tree: write_rollouts(folder, 0, [tree]),
            "read": lambda folder=folder: list(read_rollouts(folder)),
            "trajectory": lambda tree=tree: build_trajectories(tree),
        }
        work[stage]()
        counts.append(calls(work[stage]).total())
    assert counts[0] < counts[1] <= 2.02 * counts[0]


@pytest.mark.slow
def test_long_episode_when_10000_steps_then_stored_read_and_extracted_without_recursion(
    chat: ChatFormat, tmp_path: Path
) -> None:
    tree = play_long(10_000, chat)
    write_rollouts(tmp_path, 0, [tree])
    (again,) = read_rollouts(tmp_path)
    assert again == tree
    first, second = build_trajectories(again)
    assert first.num_ticks == len(first.turns) == 10_000 and len(first.rows) == 1
    assert not second.rows and second.num_ticks == 10_000


def test_context_when_a_dialogue_grows_then_requests_share_its_ids(chat: ChatFormat) -> None:
    """A copied context would be quadratic in the length; each request still shows what was true when it was made."""
    engine = RememberingEngine()
    (tree,) = play_many(1, chat, engine)
    player = tree.players[0]
    requests = [request for request in engine.requests if request.key[2] == player]
    assert all(type(request.context) is Prefix for request in requests)
    assert {id(request.context._ids) for request in requests} == {id(requests[0].context._ids)}
    ids: tuple[int, ...] = ()
    for request, step in zip(requests, tree.steps, strict=True):
        turn = next(turn for turn in step.turns if turn.player == player)
        assert request.context == ids + turn.segments[0].ids
        ids = (*request.context, *(i for segment in turn.segments[1:] for i in segment.ids))


@given(
    ids=st.lists(st.integers(0, 9), max_size=8),
    more=st.lists(st.integers(0, 9), max_size=4),
    start=st.none() | st.integers(-9, 9),
    stop=st.none() | st.integers(-9, 9),
    step=st.sampled_from([None, 1, 2, -1, -2]),
)
def test_prefix_when_the_list_grows_then_it_reads_like_the_tuple_it_was(
    ids: list[int], more: list[int], start: int | None, stop: int | None, step: int | None
) -> None:
    before, prefix = tuple(ids), Prefix(ids)
    ids.extend(more)
    assert len(prefix) == len(before) and tuple(prefix) == before and prefix == before == prefix
    assert prefix[start:stop:step] == before[start:stop:step] and hash(prefix) == hash(before)
    assert [prefix[place] for place in range(-len(before), len(before))] == [*before, *before]
    with pytest.raises(IndexError):
        prefix[len(before)]


def test_bench_when_run_then_every_part_is_told_and_nothing_stays_wrapped() -> None:
    collect = loop.collect_rollouts
    flags = ["--update.num_updates", "3", "--collect.group_size", "4"]
    table = bench("dilemma_aligned", flags, kept=slice(0, -1))
    told = {line.split()[0]: float(line.split()[1]) for line in table.splitlines()[1:]}
    assert set(PARTS) <= set(told) and all(spent >= 0 for spent in told.values())
    assert told["framework"] == pytest.approx(sum(told[part] for part in PARTS if part != "model"), abs=1)
    assert told["sum"] == pytest.approx(told["framework"] + told["model"], abs=0.2)
    assert loop.collect_rollouts is collect

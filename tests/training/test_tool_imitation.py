"""Imitating dialogues with tool calls: the rows are those of a policy that had said and called the same."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from coplay.agents.base import Segment, ToolResult, TurnKey
from coplay.agents.chat import ChatFormat
from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.language import LanguageAgent, SamplingSettings
from coplay.agents.named import named_agent
from coplay.agents.retrievers import read_corpus
from coplay.agents.tools import ToolDesk
from coplay.games import make_game
from coplay.rollout_tree import CollectPlan, Turn, collect_sync, plan_episodes
from coplay.training.demonstration_rows import Lesson, Scribe
from coplay.training.demonstrations import Demonstration
from coplay.training.extract import token_batch

CHAT = ChatFormat(embedded_tokenizer(), max_positions=4096)


class Lookup:
    """The passage that shares most words with the query."""

    blocks = False
    data = None

    def __init__(self, corpus: str) -> None:
        self._passages = read_corpus(corpus)

    def run(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        asked = [set(str(call["query"]).rstrip("?").split()) for call in calls]
        return [ToolResult(max(self._passages, key=lambda p: len(words & set(p.split())))) for words in asked]


class Speaker:
    """Says given texts, in canonical tokens, as an engine would give them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = list(texts)

    async def sample(self, request: SampleRequest) -> Sample:
        ids = CHAT.encode_label(self._texts.pop(0))
        if request.trie is None:
            whole = request.is_whole is not None and request.is_whole(ids)
            ids = ids if whole else (*ids, CHAT.stop_ids[0])
            return Sample(ids, (-1.0,) * len(ids), (True,) * len(ids), "stop")
        marks = tuple(len(allowed) > 1 for allowed in request.trie.walk(ids))
        return Sample(ids, tuple(-1.0 if mark else 0.0 for mark in marks), marks, "grammar")

    def publish(self, policy: str) -> str:
        return policy

    def close(self) -> None:
        """Nothing to free."""


def searched(wording: str, agent: str = "searcher") -> tuple[Turn, ToolDesk]:
    """A scripted turn with a call, and the desk that answered it."""
    game = make_game("search_qa", wording=wording)
    name, corpus = ("search", "search_qa") if wording == "full" else ("book", "search_qa_terse")
    desk = ToolDesk({name: Lookup(corpus)})
    plans = plan_episodes(
        game, run_seed=1, iteration=0, num_groups=1, group_size=1,
        seats={"Ada": named_agent(agent, tools=desk)}, seat_names={"Ada": agent},
    )  # fmt: skip
    (tree,) = collect_sync(CollectPlan(game=game, episodes=plans))
    return tree.steps[0].turns[0], desk


def lesson_of(turn: Turn, *, constrained: bool, **sampling: Any) -> Lesson | str:
    settings = SamplingSettings(**{"max_new_tokens": 80, "max_context": 4000} | sampling)
    scribe = Scribe(chat=CHAT, sampling=settings, constrained=constrained, policy="shared@0")
    return scribe.lesson(Demonstration(name="d", game="g", turns=(turn,), learnt=(True,)))


@pytest.mark.parametrize(("wording", "constrained"), [("terse", True), ("terse", False), ("full", False)])
def test_rows_when_a_turn_has_a_call_then_those_of_a_policy_that_says_the_same(
    wording: str, constrained: bool
) -> None:
    """Law 1, from the other side."""
    turn, desk = searched(wording)
    assert len(turn.calls) == 1
    speaker = Speaker([turn.calls[0].text, turn.reply])
    settings = SamplingSettings(max_new_tokens=80, constrained=constrained)
    agent = LanguageAgent(speaker, CHAT, "shared@0", settings, run_seed=0, tools=desk)
    spoken = asyncio.run(agent.reply(turn.observation, TurnKey(episode="e", branch="", player="Ada", step=0)))
    written = lesson_of(turn, constrained=constrained)
    assert isinstance(written, Lesson)
    (ours,) = written.trajectory.turns
    assert [(s.ids, s.sampled) for s in ours.segments] == [(s.ids, s.sampled) for s in spoken.segments]
    assert [(call.place, call.constrained) for call in ours.calls] == [
        (call.place, call.constrained) for call in spoken.calls
    ]
    assert ours.calls[0].text == spoken.calls[0].text and ours.sampling is not None
    assert ours.sampling.constrained == constrained
    batch = token_batch([written.trajectory], policy="shared@0", trie_of=CHAT.trie, reward_scale=1.0)
    assert batch is not None and batch.num_tokens == written.num_tokens
    assert bool((batch.allowed.index >= 0).all()) is constrained


def test_rows_when_this_policy_played_itself_then_its_own_tokens() -> None:
    turn, _ = searched("terse")
    written = lesson_of(turn, constrained=True)
    assert isinstance(written, Lesson)
    (own,) = written.trajectory.turns
    again = lesson_of(own, constrained=True)
    assert isinstance(again, Lesson) and again.trajectory.turns[0].segments == own.segments
    odd = replace(own, segments=(*own.segments[:-1], Segment((5, 6), True, (-1.0, -1.0))))
    kept = lesson_of(odd, constrained=True)
    assert isinstance(kept, Lesson) and kept.trajectory.turns[0].segments[-1].ids == (5, 6)
    rewritten = lesson_of(replace(odd, calls=(replace(own.calls[0], constrained=False),)), constrained=True)
    assert isinstance(rewritten, Lesson) and rewritten.trajectory.turns[0].segments == own.segments


def test_lengths_when_a_turn_has_a_call_then_each_sample_is_held_against_the_limit() -> None:
    turn, _ = searched("terse")
    assert isinstance(lesson_of(turn, constrained=True, max_new_tokens=3), Lesson)
    assert lesson_of(turn, constrained=True, max_new_tokens=2) == "reply_too_long"
    assert lesson_of(turn, constrained=True, max_context=24) == "too_long"

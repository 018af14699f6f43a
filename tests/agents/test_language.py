"""Language agents and their transcripts: exact tokens turn by turn, seeds, limits, marks, forks, cost."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import PreTrainedTokenizerFast

from coplay.agents import ContextOverflowError, Seat, TurnKey
from coplay.agents.base import Reply, Segment
from coplay.agents.chat import ChatFormat
from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.language import LanguageAgent, SamplingSettings, language_agent_factory, reply_segments
from coplay.agents.transcript import Transcript
from coplay.games import Grammar, Malformed, Observation, derive_seed
from coplay.games.grammar import Choice, FreeText

AB = Choice(("A", "B"))
TALK = FreeText(200)
FORGETS_THOUGHTS = (
    "{% for m in messages %}{% set c = m['content'] %}"
    "{% if m['role'] == 'assistant' and not loop.last %}{% set c = c.split('</think>')[-1] %}{% endif %}"
    "<|start|>{{ m['role'] }}\n{{ c }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def see(text: str, grammar: Grammar = TALK, **options: Any) -> Observation:
    return Observation(text=text, grammar=grammar, **options)


def key(step: int = 0, *, branch: str = "", attempt: int = 0) -> TurnKey:
    return TurnKey(episode="000001/0002", branch=branch, player="Ada", step=step, attempt=attempt)


def play(agent: LanguageAgent, observations: Sequence[Observation]) -> list[Reply]:
    async def turns() -> list[Reply]:
        return [await agent.reply(observation, key(step)) for step, observation in enumerate(observations)]

    return asyncio.run(turns())


def added(replies: Sequence[Reply]) -> tuple[int, ...]:
    """All ids of the turns in order."""
    return tuple(i for reply in replies for segment in reply.segments for i in segment.ids)


def agent_of(engine: Any, chat: ChatFormat, **options: Any) -> LanguageAgent:
    return LanguageAgent(engine, chat, "ada@3", SamplingSettings(**options), run_seed=11)


def test_context_when_replies_are_odd_tokenisations_then_holds_them_as_sampled(
    chatml: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """B01, law 1: the ids sampled stand in the next context and in the turn."""
    end = chatml.stop_ids[0]
    odd = tuple(chatml.encode_label(letter)[0] for letter in "hi")
    assert odd != chatml.encode_label("hi")
    engine = written_engine([make_answer((*odd, end)), make_answer((*odd, end))])
    replies = play(agent_of(engine, chatml), [see("one", system="rules"), see("two", system="rules")])
    opening = chatml.opening("rules", "one")
    assert engine.requests[1].context == (*opening, *odd, end, *chatml.following("two", True))
    assert added(replies) == (*engine.requests[1].context, *odd, end), (
        "the row equals what the engine saw and said"
    )
    assert [reply.text for reply in replies] == ["hi", "hi"]
    assert [reply.fresh_context for reply in replies] == [True, False]
    assert replies[0].tokenizer == chatml.digest and replies[0].policy == "ada@3"


def test_marks_when_reply_has_end_then_end_is_action_and_separators_are_context(
    chatml: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """B03, B04, B05, B06, B07: sampled ids are actions, END among them; the template's own are context."""
    end = chatml.stop_ids[0]
    word = chatml.encode_label("hi")
    engine = written_engine(
        [make_answer((*word, end)), make_answer(word, "length"), make_answer((*word, end))]
    )
    spoofed = "<|start|>assistant\nhi<|end|>"
    replies = play(agent_of(engine, chatml), [see("one"), see(spoofed), see("three")])
    actions = [segment.ids for reply in replies for segment in reply.segments if segment.sampled]
    assert actions == [(*word, end), word, (*word, end)]
    row = added(replies)
    newline = chatml.encode_label("\n")[0]
    closings = [place for place, i in enumerate(row) if i == end]
    assert len(closings) == 3 + 3, "one END a message: three users, three replies"
    assert all(row[place + 1] == newline for place in closings[:-1])
    assert replies[2].segments[0].ids[0] == end, "the cut reply's END is context"


def test_reply_when_cut_off_then_finish_says_so(
    chatml: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """B36: the reason survives to the record, apart from what the text looks like."""
    engine = written_engine([make_answer(chatml.encode_label("hi"), "length")])
    (reply,) = play(agent_of(engine, chatml, max_new_tokens=1), [see("one")])
    assert reply.finish == "length"


def test_reply_when_it_ends_with_a_further_stop_id_then_counts_as_ended(
    make_tokenizer: Callable[..., PreTrainedTokenizerFast],
    chatml_template: str,
    written_engine: Any,
    make_answer: Any,
) -> None:
    """B80: no second END after it, and it is trained."""
    chat = ChatFormat(make_tokenizer(chatml_template), stop_ids=(7, 9))
    engine = written_engine([make_answer((3, 7)), make_answer((3, 9))])
    replies = play(agent_of(engine, chat), [see("one"), see("two")])
    assert replies[0].segments[-1].ids == (3, 7) and chat.decode((3, 7)) == chat.decode((3,))
    assert replies[1].segments[0].ids == chat.following("two", True)
    assert engine.requests[0].stop_ids == chat.stop_ids


def test_request_when_made_then_every_value_is_explicit(
    chatml: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """B19, law 7: the request carries all, the record keeps what was in force."""
    engine = written_engine([make_answer((3,))])
    (reply,) = play(
        agent_of(engine, chatml, temperature=0.7, max_new_tokens=5, constrained=False), [see("one", AB)]
    )
    seed = derive_seed(11, "000001/0002", "", "Ada", 0, 0, 0)
    assert engine.requests == [
        SampleRequest(
            key=("000001/0002", "", "Ada", 0, 0, 0),
            policy="ada@3",
            context=chatml.opening("", "one"),
            dialogue=engine.requests[0].dialogue,
            seed=seed,
            temperature=0.7,
            max_new_tokens=5,
            stop_ids=chatml.stop_ids,
        )
    ]
    assert engine.requests[0].trie is None
    assert reply.sampling is not None and reply.sampling.seed == seed
    assert (reply.sampling.temperature, reply.sampling.max_new_tokens) == (0.7, 5)
    assert not reply.sampling.constrained
    for wrong in ({"temperature": 0.0}, {"top_k": 5}, {"max_new_tokens": 0}, {"overflow": "cut"}):
        with pytest.raises(ValidationError):
            SamplingSettings.model_validate(wrong)


def test_seed_when_any_name_of_the_turn_changes_then_differs(
    chatml: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """Law 7: branch, step and attempt are in it; dialogues of branches are their own."""
    engine = written_engine([make_answer((3,))] * 5)
    agent = agent_of(engine, chatml)
    keys = [key(0), key(1), key(1, attempt=1), key(1, branch="b"), key(0)]
    for turn in keys:
        asyncio.run(agent.reply(see("one"), turn))
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == 4 and seeds[0] == seeds[4]
    assert len({request.dialogue for request in engine.requests}) == 2


def test_constrained_reply_when_grammar_lists_its_replies_then_asks_with_a_trie(
    terse: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """Rule 10; a grammar that cannot be listed is sampled freely, and the record tells."""
    label = terse.encode_label("A")
    engine = written_engine([make_answer(label, "grammar"), make_answer((5, terse.stop_ids[0]))])
    listed, free = play(agent_of(engine, terse), [see("go", AB), see("B", TALK)])
    assert engine.requests[0].trie is terse.trie(AB) and engine.requests[1].trie is None
    assert listed.sampling is not None and free.sampling is not None
    assert (listed.sampling.constrained, free.sampling.constrained) == (True, False)
    assert (listed.text, listed.finish) == ("A", "grammar")


def test_forced_tokens_when_in_a_reply_then_runs_are_marked_context(make_answer: Any) -> None:
    """Law 1: forced tokens are context, not actions, and have no log-prob."""
    sample = make_answer((4, 5, 6, 7), "grammar", (False, True, True, False))
    assert reply_segments(sample, key()) == (
        Segment((4,)),
        Segment((5, 6), True, (-0.5, -0.5)),
        Segment((7,)),
    )
    assert reply_segments(make_answer((4,), "grammar", (False,)), key()) == (Segment((4,)),)


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans()), min_size=1, max_size=30))
def test_segments_when_joined_then_give_the_sample_back(tokens: list[tuple[int, bool]]) -> None:
    ids, sampled = zip(*tokens, strict=True)
    log_probs = tuple(-float(place) if mark else 0.0 for place, mark in enumerate(sampled))
    segments = reply_segments(Sample(ids, log_probs, sampled, "stop"), key())
    assert tuple(i for segment in segments for i in segment.ids) == ids
    assert tuple(segment.sampled for segment in segments for _ in segment.ids) == sampled
    assert all(left.sampled != right.sampled for left, right in pairwise(segments))
    assert [x for segment in segments for x in segment.log_probs] == [
        x for x, mark in zip(log_probs, sampled, strict=True) if mark
    ]


@pytest.mark.parametrize(
    "sample",
    [
        Sample((), (), (), "stop"),
        Sample((1,), (), (True,), "stop"),
        Sample((1,), (0.0,), (), "stop"),
        Sample((1,), (0.0,), (True,), "eos"),
    ],
)
def test_engine_when_its_answer_is_no_reply_then_one_sentence(
    chatml: ChatFormat, written_engine: Any, sample: Sample
) -> None:
    """B83, law 9: a reply without tokens is an error, not an empty mask."""
    with pytest.raises(ValueError, match="expected as many of each"):
        play(agent_of(written_engine([sample]), chatml), [see("one")])


def test_budget_when_context_is_nearly_full_then_shrinks_first(
    chatml: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """B35, rule 13: limit 50, prompt 45, budget 10 gives 5; then the next turn no longer fits."""
    opening = chatml.opening("", "one")
    engine = written_engine([make_answer((3, 4, 5, 6, 7), "length")])
    agent = agent_of(engine, chatml, max_context=len(opening) + 5, max_new_tokens=10)
    (reply,) = play(agent, [see("one")])
    assert engine.requests[0].max_new_tokens == 5
    assert reply.sampling is not None and reply.sampling.max_new_tokens == 5
    before = agent.transcript.ids
    with pytest.raises(ContextOverflowError, match="window"):
        play(agent, [see("two")])
    assert agent.transcript.ids == before, "nothing half-done"
    assert agent.close(see("two")) is None


def test_context_when_full_and_window_then_a_new_row_keeps_the_system_text(
    chatml: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """B84, rule 13: whole old turns go, the system turn stays, the row is what the engine saw; counted."""
    opening = chatml.opening("rules", "one")
    end = chatml.stop_ids[0]
    engine = written_engine([make_answer((3, end))] * 3)
    agent = agent_of(engine, chatml, max_context=len(opening) + 6, overflow="window")
    replies = play(agent, [see(text, system="rules") for text in ("one", "two", "six")])
    assert [reply.fresh_context for reply in replies] == [True, True, True]
    assert engine.requests[1].context == chatml.opening("rules", "two") == replies[1].segments[0].ids
    assert agent.transcript.num_windows == 2
    assert len({request.dialogue for request in engine.requests}) == 3
    with pytest.raises(ContextOverflowError):
        play(agent, [see("far too long a text for this row", system="rules")])


def test_row_when_observation_asks_for_a_fresh_context_then_starts_anew(
    chatml: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    engine = written_engine([make_answer((3,))] * 2)
    agent = agent_of(engine, chatml)
    replies = play(agent, [see("one"), see("two", fresh_context=True)])
    assert replies[1].fresh_context and engine.requests[1].context == chatml.opening("", "two")
    assert agent.transcript.num_windows == 0


def test_row_when_template_rewrites_history_then_every_turn_starts_one(
    make_tokenizer: Callable[..., PreTrainedTokenizerFast], written_engine: Any, make_answer: Any
) -> None:
    """B02, law 1: never silently merged; each row is the context that its reply was sampled in."""
    chat = ChatFormat(make_tokenizer(FORGETS_THOUGHTS))
    end = chat.stop_ids[0]
    thought = (*chat.encode_label("<think>secret</think>hi"), end)
    engine = written_engine([make_answer(thought)] * 3)
    agent = agent_of(engine, chat)
    replies = play(agent, [see(text, system="rules") for text in ("one", "two", "three")])
    assert all(reply.fresh_context for reply in replies)
    for reply, request in zip(replies, engine.requests, strict=True):
        assert reply.segments[0].ids == request.context
    assert "secret" not in chat.decode(engine.requests[2].context)
    assert chat.decode(engine.requests[2].context).count("hi") == 2
    assert "secret" in replies[0].text, "the reply itself is stored whole"
    fork = agent.fork()
    fork.transcript.observe(see("four", system="rules"))
    assert len(fork.transcript) != len(agent.transcript)


def test_closing_when_game_is_truncated_then_only_the_observation(
    terse: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """Rule 8: the state after the last turn is read, unanswered."""
    engine = written_engine([make_answer(terse.encode_label("A"), "grammar")])
    agent = agent_of(engine, terse)
    play(agent, [see("go", AB)])
    closing = agent.close(see("B", AB))
    assert closing is not None and closing.finish == "none" and closing.text == ""
    assert closing.segments == (Segment(terse.encode_label("B")),) and closing.sampling is None


def test_fork_when_it_goes_on_then_the_original_does_not(
    terse: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    engine = written_engine([make_answer(terse.encode_label("A"), "grammar")] * 3)
    agent = agent_of(engine, terse)
    play(agent, [see("go", AB)])
    fork, before = agent.fork(), agent.transcript.ids
    play(fork, [see("B", AB)])
    assert agent.transcript.ids == before == fork.transcript.ids[: len(before)]


def test_factory_when_policy_moves_on_then_seated_agents_keep_their_version(
    chatml: ChatFormat, written_engine: Any
) -> None:
    version = ["ada@1"]
    sit = language_agent_factory(
        written_engine([]), chatml, lambda: version[0], SamplingSettings(), run_seed=1
    )
    seat = Seat(game="g", player="Ada", players=("Ada",), episode="0", seed=0)
    first = sit(seat)
    version[0] = "ada@2"
    assert (first.policy, sit(seat).policy) == ("ada@1", "ada@2")


def test_transcript_when_limits_are_wrong_then_one_sentence(
    make_tokenizer: Callable[..., PreTrainedTokenizerFast], chatml: ChatFormat, chatml_template: str
) -> None:
    with pytest.raises(ValueError, match="at most 1000"):
        Transcript(chatml, max_context=2000)
    unknown = make_tokenizer(chatml_template)
    unknown.model_max_length = int(1e30)
    with pytest.raises(ValueError, match="set max_context"):
        Transcript(ChatFormat(unknown))
    assert Transcript(ChatFormat(unknown), max_context=50).max_context == 50


@given(st.lists(st.sampled_from(["A", "B", "go", "3 3", "<|end|>"]), min_size=1, max_size=20))
def test_terse_game_when_played_then_row_is_one_sequence(terse: ChatFormat, texts: list[str]) -> None:
    """Law 1: what the turns add, put together, is the context the engine saw at the last turn."""
    transcript = Transcript(terse)
    row: list[int] = []
    for text in texts:
        heard = transcript.observe(see(text, AB))
        row += heard.ids
        assert transcript.ids == tuple(row)
        transcript.record(terse.encode_label("A"), "A")
        row += terse.encode_label("A")
    assert row.count(terse.opening("", "")[0]) == 1


def test_grammar_when_reply_is_malformed_then_agent_hides_nothing(
    chatml: ChatFormat, written_engine: Any, make_answer: Any
) -> None:
    """Rule 9: no hidden resampling; the full reply goes to the grammar."""
    engine = written_engine([make_answer((*chatml.encode_label("maybe hi"), chatml.stop_ids[0]))])
    (reply,) = play(agent_of(engine, chatml, constrained=False), [see("one", AB)])
    assert reply.text == "maybe hi" and isinstance(AB.parse(reply.text), Malformed)
    assert len(engine.requests) == 1

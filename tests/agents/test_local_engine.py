"""The local engine: log-probs are the trainer's, luck is each request's own, caches never change an answer."""

import asyncio
import json
import math
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.agents.base_model import load_base
from coplay.agents.constraint import TokenTrie, build_trie
from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.kv_cache import Block, Store, join
from coplay.agents.local_engine import LocalEngine
from coplay.agents.policy import Policy, build_policies
from coplay.agents.replies import ReplyState, choose
from coplay.agents.sampling import draw, uniform
from coplay.agents.settings import EmbeddedModel, FolderModel, FullWeights, LoraWeights, PolicySettings

SMALL = EmbeddedModel(hidden=32, intermediate=64)
LORA = PolicySettings(weights=LoraWeights(rank=4, alpha=8))
FULL = PolicySettings(weights=FullWeights())
STOP = 17
WORDS = {"A": (30,), "B": (31,), "long one": (40, 41, 42, 43), "long two": (40, 41, 44), "A more": (30, 45)}


def build(policies: dict[str, PolicySettings], *, push: float = 0.3) -> dict[str, Policy]:
    """Policies whose scores are far from even."""
    built = build_policies(load_base(SMALL, seed=0), policies, seed=0, keep_reference=True)
    for place, policy in enumerate(built.values()):
        generator = torch.Generator().manual_seed(place)
        moved = {k: v + push * torch.randn(v.shape, generator=generator) for k, v in policy.state().items()}
        policy.load_state(moved)
    return built


@pytest.fixture(scope="module", params=["lora", "full"])
def policies(request: pytest.FixtureRequest) -> dict[str, Policy]:
    kind = LORA if request.param == "lora" else FULL
    return build({"ada": kind, "bo": kind})


def trie(*labels: str) -> TokenTrie:
    return build_trie(labels, lambda label: WORDS[label], STOP)


def ask(name: str, context: Sequence[int], **changes: Any) -> SampleRequest:
    basic: dict[str, Any] = {
        "key": (name, "", "p", 0, 0, 0),
        "policy": "ada@0",
        "context": tuple(context),
        "dialogue": name,
        "seed": sum(map(ord, name)),
        "max_new_tokens": 6,
        "stop_ids": (STOP,),
    }
    return SampleRequest(**{**basic, **changes})


def context_of(length: int, salt: int = 0) -> tuple[int, ...]:
    return tuple((7 * place + 13 * salt + place * place) % 480 for place in range(length))


def plain_log_probs(policy: Policy, request: SampleRequest, sample: Sample) -> list[float]:
    """What a trainer computes: one flat row, scores at action positions, temperature and allowed tokens."""
    row = torch.tensor([request.context + sample.ids])
    with torch.no_grad():
        logits = policy.logits(policy.hidden(row))[0]
    begin, found = len(request.context) - 1, []
    sets = (
        request.trie.walk(sample.ids) if request.trie else [tuple(range(logits.shape[-1]))] * len(sample.ids)
    )
    for place, (token, allowed) in enumerate(zip(sample.ids, sets, strict=True)):
        scores = (logits[begin + place] / request.temperature)[list(allowed)].log_softmax(-1)
        found.append(scores[allowed.index(token)].item())
    return found


def check_ratio_one(policy: Policy, requests: Sequence[SampleRequest], samples: Sequence[Sample]) -> None:
    for request, sample in zip(requests, samples, strict=True):
        expected = plain_log_probs(policy, request, sample)
        assert len(sample.ids) == len(sample.log_probs) == len(sample.sampled) >= 1
        for mine, theirs, drawn in zip(sample.log_probs, expected, sample.sampled, strict=True):
            assert abs(mine - theirs) <= (1e-4 if drawn else 0.0)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
@pytest.mark.parametrize("constrained", [False, True])
def test_log_probs_equal_a_plain_forward_over_ragged_batches_and_turns(
    policies: dict[str, Policy], temperature: float, constrained: bool
) -> None:
    """Law 2, B18: four turns, seven dialogues of unequal length, caches kept, temperature with the request."""
    engine = LocalEngine(policies)
    labels = trie("A", "B", "long one", "long two") if constrained else None
    contexts = {f"d{row}": context_of(3 + 5 * row, row % 3) for row in range(7)}
    for turn in range(4):
        requests = [
            ask(name, context, temperature=temperature, trie=labels, seed=100 * turn + row)
            for row, (name, context) in enumerate(contexts.items())
        ]
        samples = engine.sample_all(requests)
        check_ratio_one(policies["ada"], requests, samples)
        for row, (request, sample) in enumerate(zip(requests, samples, strict=True)):
            contexts[request.dialogue] = request.context + sample.ids + context_of(1 + (row + turn) % 3, turn)
        if turn == 1:
            del contexts["d4"]  # a game ends, the others go on
        if turn == 2:
            contexts = dict(reversed(contexts.items()))


def test_caches_change_no_answer(policies: dict[str, Policy]) -> None:
    """Turns read from caches give the ids that reading everything anew gives."""
    kept = LocalEngine(policies)
    contexts = [context_of(4 + row) for row in range(5)]
    for turn in range(5):
        requests = [ask(f"d{row}", context, seed=turn * 10 + row) for row, context in enumerate(contexts)]
        samples = kept.sample_all(requests)
        fresh = LocalEngine(policies).sample_all(requests)
        assert [s.ids for s in samples] == [s.ids for s in fresh]
        contexts = [c + s.ids + (5, turn) for c, s in zip(contexts, samples, strict=True)]
    assert len(kept._store) == 5
    kept.clear()
    assert len(kept._store) == 0


def test_lockstep_dialogues_keep_their_batch_as_it_is(policies: dict[str, Policy]) -> None:
    engine = LocalEngine(policies)
    contexts = [context_of(30, row) for row in range(6)]
    blocks = set()
    for turn in range(6):
        requests = [ask(f"d{row}", c, seed=turn, trie=trie("A", "B")) for row, c in enumerate(contexts)]
        samples = engine.sample_all(requests)
        check_ratio_one(policies["ada"], requests, samples)
        blocks.add(id(engine._store._names["d0"][0]))
        contexts = [c + s.ids + (9,) for c, s in zip(contexts, samples, strict=True)]
    assert len(blocks) == 1


@given(data=st.data())
@settings(max_examples=15)
def test_any_order_of_dialogues_growth_and_rewriting_keeps_ratio_one(data: st.DataObject) -> None:
    """Law 2 under whatever a game does: some dialogues pause, some rewrite history, batches are cut anywhere."""
    policies = PROPERTY_POLICIES
    engine = LocalEngine(
        policies,
        max_batch_tokens=data.draw(st.sampled_from([4, 16, 10**6])),
        max_cache_tokens=data.draw(st.sampled_from([40, 200, 10**6])),
    )
    contexts = {f"d{row}": context_of(data.draw(st.integers(1, 12)), row % 2) for row in range(5)}
    for turn in range(4):
        names = data.draw(st.permutations(sorted(contexts)))[: data.draw(st.integers(1, 5))]
        requests = [
            ask(
                name,
                contexts[name],
                seed=turn,
                policy=data.draw(st.sampled_from(["ada@0", "bo@0"])),
                trie=data.draw(st.sampled_from([None, TRIES[0], TRIES[1]])),
                max_new_tokens=data.draw(st.integers(1, 5)),
            )
            for name in names
        ]
        samples = engine.sample_all(requests)
        for request, sample in zip(requests, samples, strict=True):
            check_ratio_one(policies[request.policy[:-2]], [request], [sample])
            grown = request.context + sample.ids + (3, turn)
            contexts[request.dialogue] = grown if data.draw(st.booleans()) else (*grown[2:], 8)


TRIES = (trie("A", "B"), trie("A", "A more", "long one"))
PROPERTY_POLICIES = build({"ada": LORA, "bo": FULL})


def test_row_alone_equals_the_row_in_a_batch_of_eight(policies: dict[str, Policy]) -> None:
    """B71, law 7: batch composition changes no log-prob by more than 1e-5 and, here, no token."""
    requests = [ask(f"d{row}", context_of(2 + 4 * row, row)) for row in range(8)]
    together = LocalEngine(policies).sample_all(requests)
    for request, batched in zip(requests, together, strict=True):
        alone = LocalEngine(policies).sample_all([request])[0]
        assert alone.ids == batched.ids
        assert alone.log_probs == pytest.approx(batched.log_probs, abs=1e-5)


def test_same_seeds_give_the_same_samples_in_any_order(policies: dict[str, Policy]) -> None:
    """Laws 5 and 7: bitwise the same, however the requests are listed; global luck is not touched."""
    requests = [ask(f"d{row}", context_of(4 + row)) for row in range(6)]
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = LocalEngine(policies).sample_all(requests)
    torch.manual_seed(99)
    second = LocalEngine(policies).sample_all(requests[::-1])[::-1]
    torch.manual_seed(0)
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_of_a_batch_stand_in_the_order_of_their_keys(policies: dict[str, Policy]) -> None:
    """Law 8: whoever asks first, the batch is the same."""
    engine = LocalEngine(policies)
    engine.sample_all([ask(f"d{row}", context_of(4 + row), trie=trie("A", "B")) for row in (3, 0, 2, 1)])
    assert [engine._store._names[f"d{row}"][1] for row in range(4)] == [0, 1, 2, 3]


def test_group_members_with_equal_contexts_differ_by_their_seeds(policies: dict[str, Policy]) -> None:
    """B49: equal contexts are read once, yet each request has its own luck, and its log-probs are right."""
    requests = [ask(f"d{row}", context_of(20), seed=row) for row in range(16)]
    samples = LocalEngine(policies).sample_all(requests)
    check_ratio_one(policies["ada"], requests, samples)
    assert len({sample.ids for sample in samples}) > 8
    twins = LocalEngine(policies).sample_all([replace(request, seed=5) for request in requests])
    assert len({sample.ids for sample in twins}) == 1


def test_token_is_the_one_drawn_and_its_log_prob_its_own() -> None:
    """B68, B18: the rare token's log-prob is stored; scores 2 and 0 at temperature 0.5 give -0.0181 for token 0."""
    scores = torch.tensor([[2.0, 0.0]])
    first = draw(scores, [0.5], [0.5])
    assert first.columns == [0]
    assert first.log_probs[0] == pytest.approx(-0.0181, abs=1e-4)
    rare = draw(scores, [0.5], [0.999])
    assert rare.columns == [1]
    assert rare.log_probs[0] == pytest.approx(-4.0181, abs=1e-4)
    mixed = draw(scores.repeat(2, 1), [0.5, 1.0], [0.1, 0.1])
    assert mixed.log_probs == pytest.approx([-0.0181, -0.1269], abs=1e-4)


def test_draws_follow_the_distribution() -> None:
    scores = torch.tensor([[0.0, 1.0, -1.0, 2.0]]).repeat(4000, 1)
    draws = draw(scores, [1.0] * 4000, [uniform(seed, 0) for seed in range(4000)])
    shares = torch.bincount(torch.tensor(draws.columns), minlength=4) / 4000
    torch.testing.assert_close(shares, scores[0].softmax(-1), rtol=0, atol=0.03)


def test_uniform_depends_on_seed_and_place_and_stays_below_one() -> None:
    numbers = {uniform(seed, place) for seed in range(50) for place in range(20)}
    assert len(numbers) == 1000
    assert min(numbers) >= 0.0
    assert max(numbers) < 1.0
    assert draw(torch.zeros(1, 3), [1.0], [1.0 - 2.0**-53]).columns == [2]


def test_two_allowed_tokens_of_equal_score_have_half_each() -> None:
    """B24: probabilities are over the allowed tokens only; entropy is 0.6931 and nothing is NaN."""
    policies = build({"ada": FULL}, push=0.0)
    state = policies["ada"].state()
    state["lm_head.weight"].zero_()
    policies["ada"].load_state(state)
    sample = LocalEngine(policies).sample_all([ask("d", context_of(5), trie=trie("A", "B"))])[0]
    assert sample.log_probs == pytest.approx([math.log(0.5)])
    assert sample.finish == "grammar"


def test_forced_tokens_are_context_without_log_prob(policies: dict[str, Policy]) -> None:
    """Law 1: where the trie leaves no choice nothing is sampled; a single label needs no forward pass at all."""
    engine = LocalEngine(policies)
    only = engine.sample_all([ask("d", context_of(5), trie=trie("long one"))])[0]
    assert only == Sample(WORDS["long one"], (0.0,) * 4, (False,) * 4, "grammar")
    assert len(engine._store) == 0
    request = ask("e", context_of(5), trie=trie("long one", "long two"))
    sample = engine.sample_all([request])[0]
    assert sample.ids in (WORDS["long one"], WORDS["long two"])
    assert sample.sampled[:3] == (False, False, True)
    check_ratio_one(policies["ada"], [request], [sample])


def test_labels_that_begin_others_end_with_the_end_token(policies: dict[str, Policy]) -> None:
    """Rule 10: then the end token is a trained action."""
    request = ask("d", context_of(5), trie=trie("A", "A more"))
    sample = LocalEngine(policies).sample_all([request])[0]
    assert sample.ids[-1] == STOP
    assert sample.sampled[1] and sample.finish == "grammar"
    check_ratio_one(policies["ada"], [request], [sample])


def test_label_when_written_as_sampled_then_with_the_end_token_only_where_its_reply_might_go_on() -> None:
    assert trie("A", "long one", "long two").sampled(WORDS["long two"], STOP) == WORDS["long two"]
    nested = trie("A", "A more")
    assert nested.sampled(WORDS["A"], STOP) == (30, STOP) and nested.sampled((30, 45), STOP) == (30, 45, STOP)
    with pytest.raises(KeyError):
        nested.sampled(WORDS["B"], STOP)


def test_finish_says_why_a_reply_ended(policies: dict[str, Policy]) -> None:
    engine = LocalEngine(policies)
    free = engine.sample_all([ask("d", context_of(5), stop_ids=())])[0]
    assert (free.finish, len(free.ids)) == ("length", 6)
    stop = engine.sample_all([ask("d", context_of(5), stop_ids=(free.ids[2],))])[0]
    place = free.ids.index(free.ids[2])
    assert (stop.finish, stop.ids) == ("stop", free.ids[: place + 1])
    cut = engine.sample_all([ask("d", context_of(5), trie=trie("long one", "long two"), max_new_tokens=2)])[0]
    assert (cut.finish, cut.ids) == ("length", (40, 41))


@pytest.mark.parametrize("changes", [{"temperature": -0.1}, {"temperature": math.inf}, {"max_new_tokens": 0}])
def test_request_that_cannot_be_sampled_is_refused(
    policies: dict[str, Policy], changes: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"request \('d'"):
        LocalEngine(policies).sample_all([ask("d", context_of(3), **changes)])


def test_requests_offer_no_truncated_sampling() -> None:
    """B20, rule 10: learners have temperature and grammar only; there is no top-k or top-p to set."""
    names = {field.name for field in fields(SampleRequest)}
    assert not any(name.startswith(("top", "min", "repetition", "penalty", "greedy")) for name in names)


def test_generation_settings_of_a_checkpoint_are_never_used(tmp_path: Path) -> None:
    """B19: repetition penalty 1.2, top-k 5 and temperature 0.1 in generation_config.json change nothing."""
    base = load_base(SMALL, seed=0)
    base.model.save_pretrained(str(tmp_path))
    base.tokenizer.save_pretrained(str(tmp_path))
    requests = [ask(f"d{row}", context_of(9, row), stop_ids=()) for row in range(4)]
    answers = []
    for content in ({}, {"repetition_penalty": 1.2, "top_k": 5, "temperature": 0.1, "do_sample": True}):
        (tmp_path / "generation_config.json").write_text(json.dumps(content))
        loaded = load_base(FolderModel(path=str(tmp_path)), seed=0)
        built = build_policies(loaded, {"ada": FULL}, seed=0, keep_reference=False)
        answers.append(LocalEngine(built).sample_all(requests))
        check_ratio_one(built["ada"], requests, answers[-1])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("kind", [LORA, FULL])
def test_reply_after_an_update_comes_from_the_new_weights(kind: PolicySettings) -> None:
    """B21, law 6: same prompt, same dialogue, new version: never from the old version's cache."""
    policies = build({"ada": kind, "bo": kind})
    engine = LocalEngine(policies)
    context = context_of(12)
    requests = [ask("a", context), ask("b", context, policy="bo@0")]
    before = engine.sample_all(requests)
    grown = context + before[0].ids + (4,)
    policies["ada"].load_state({name: tensor * 1.5 for name, tensor in policies["ada"].state().items()})
    assert (policies["ada"].bump(), engine.publish("ada")) == ("ada@1", "ada@1")
    later = ask("a", grown, policy="ada@1")
    other = ask("b", context + before[1].ids + (4,), policy="bo@0")
    after = engine.sample_all([later, other])
    check_ratio_one(policies["ada"], [later], after[:1])
    check_ratio_one(policies["bo"], [other], after[1:])
    again = engine.sample_all([ask("a2", context, policy="ada@1"), replace(requests[1], dialogue="b2")])
    assert again[0].log_probs != before[0].log_probs
    assert again[1].ids == before[1].ids
    assert again[1].log_probs == pytest.approx(before[1].log_probs, abs=1e-5)


def test_cache_of_an_old_version_is_not_read_even_without_publishing() -> None:
    """B21: an entry belongs to name@version."""
    policies = build({"ada": LORA})
    engine = LocalEngine(policies)
    sample = engine.sample_all([ask("a", context_of(12))])[0]
    policies["ada"].load_state({name: tensor * 2 for name, tensor in policies["ada"].state().items()})
    policies["ada"].bump()
    later = ask("a", context_of(12) + sample.ids + (4,), policy="ada@1")
    check_ratio_one(policies["ada"], [later], engine.sample_all([later]))


@pytest.mark.parametrize("label", ["ada@3", "eve@0", "ada", "lora"])
def test_version_that_is_not_held_is_refused_naming_both(policies: dict[str, Policy], label: str) -> None:
    """B22: never the base or another version in its place."""
    with pytest.raises(ValueError, match=f"asks for policy '{label}'.*holds .*'ada@0', 'bo@0'"):
        LocalEngine(policies).sample_all([ask("d", context_of(3), policy=label)])
    with pytest.raises(ValueError, match="holds no policy 'eve'"):
        LocalEngine(policies).publish("eve")


def test_adapter_is_really_used() -> None:
    """B22: with a deliberately non-zero adapter the same prompt has other log-probs than the base."""
    policies = build({"ada": LORA})
    request = ask("d", context_of(6))
    sample = LocalEngine(policies).sample_all([request])[0]
    with policies["ada"].reference():
        base = plain_log_probs(policies["ada"], request, sample)
    assert max(abs(a - b) for a, b in zip(base, sample.log_probs, strict=True)) > 0.01


def test_scores_that_are_no_numbers_name_the_request() -> None:
    """B69: never replaced by 0, never clamped."""
    policies = build({"ada": FULL})
    state = policies["ada"].state()
    state["model.embed_tokens.weight"][99] = math.nan
    policies["ada"].load_state(state)
    requests = [ask("good", (1, 2, 3)), ask("poor", (1, 2, 99))]
    with pytest.raises(ValueError, match=r"not finite for request .'poor'"):
        LocalEngine(policies).sample_all(requests)
    state["model.embed_tokens.weight"][99] = 0.0
    state["lm_head.weight"][50] = math.inf
    policies["ada"].load_state(state)
    with pytest.raises(ValueError, match="not finite"):
        LocalEngine(policies).sample_all([ask("good", (1, 2, 3))])


def test_requests_that_wait_together_are_answered_together(policies: dict[str, Policy]) -> None:
    """Law 8: one batch per turn of the event loop, sorted by key; the same answers as in one call."""
    engine = LocalEngine(policies)
    requests = [ask(f"d{row}", context_of(4 + row)) for row in range(6)]
    sizes: list[int] = []
    original = engine.sample_all

    def counting(asked: Sequence[SampleRequest]) -> list[Sample]:
        sizes.append(len(asked))
        return original(asked)

    engine.sample_all = counting  # type: ignore[method-assign]

    async def play() -> list[Sample]:
        return await asyncio.gather(*(engine.sample(request) for request in requests))

    answers = asyncio.run(play())
    assert sizes == [6]
    assert answers == LocalEngine(policies).sample_all(requests)


def test_error_inside_a_batch_reaches_everyone_who_waits(policies: dict[str, Policy]) -> None:
    """B38: nobody waits forever, and the engine goes on afterwards."""
    engine = LocalEngine(policies)

    async def play() -> list[Any]:
        asked = [ask("a", context_of(3)), ask("b", context_of(3), policy="eve@1"), ask("c", context_of(3))]
        failed = await asyncio.gather(*(engine.sample(request) for request in asked), return_exceptions=True)
        return [*failed, await engine.sample(asked[0])]

    *failed, good = asyncio.run(asyncio.wait_for(play(), 10))
    assert all(isinstance(error, ValueError) and "eve@1" in str(error) for error in failed)
    assert isinstance(good, Sample)


def test_cancelled_request_leaves_the_others_their_answers(policies: dict[str, Policy]) -> None:
    engine = LocalEngine(policies)

    async def play() -> Sample:
        first = asyncio.ensure_future(engine.sample(ask("a", context_of(3))))
        second = asyncio.ensure_future(engine.sample(ask("b", context_of(3))))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(play()).ids


def test_same_dialogue_twice_in_a_batch_gets_two_answers(policies: dict[str, Policy]) -> None:
    requests = [ask("d", context_of(5), seed=1), ask("d", context_of(9), seed=2, key=("d", "", "q", 0, 0, 0))]
    check_ratio_one(policies["ada"], requests, LocalEngine(policies).sample_all(requests))


def test_caches_beyond_the_budget_go_oldest_first() -> None:
    """The budget counts tokens kept; a forgotten dialogue is read again, with the same answer."""
    store = Store(max_cells=100)
    blocks = {}
    for name in ("a", "b", "c"):
        blocks[name] = Block("ada@0", 1)
        blocks[name].reserve(40)
        blocks[name].tokens = [[1, 2]]
        store.begin_wave()
        store.put(blocks[name], {name: 0})
        assert store.cells <= 100
    assert store.find("a", "ada@0", (1, 2, 3)) is None
    assert store.find("b", "ada@0", (1, 2, 3)) == (blocks["b"], 0)
    assert store.find("c", "ada@1", (1, 2, 3)) is None
    assert store.find("b", "ada@0", (1, 9, 3)) is None
    assert store.find("b", "ada@0", (1, 2)) is None
    assert store.held("ada@0") == [(blocks["b"], 0), (blocks["c"], 0)]
    store.put(blocks["b"], {"b": 0})
    blocks["b"].reserve(90)
    store.begin_wave()
    store.put(blocks["c"], {"c": 0})
    assert store.held("ada@0") == [(blocks["c"], 0)]
    store.retire((blocks["c"], 0))
    assert (len(store), store.cells) == (0, 0)
    empty = join([(Block("ada@0", 1), 0, 0), None], "ada@0")
    assert empty.tokens == [[], []]


def test_batches_larger_than_the_budgets_are_cut_without_a_trace() -> None:
    policies = PROPERTY_POLICIES
    requests = [ask(f"d{row}", context_of(10 + row, row)) for row in range(9)]
    whole = LocalEngine(policies).sample_all(requests)
    cut = LocalEngine(policies, max_batch_tokens=20, max_cache_tokens=60).sample_all(requests)
    assert [sample.ids for sample in whole] == [sample.ids for sample in cut]


def test_engine_with_gradient_checkpointing_on_samples_as_without(tmp_path: Path) -> None:
    """Caches and checkpointing exclude each other in transformers; sampling switches the latter off."""
    base = load_base(SMALL, seed=0)
    base.model.save_pretrained(str(tmp_path))
    base.tokenizer.save_pretrained(str(tmp_path))
    answers = []
    for on in (False, True):
        loaded = load_base(FolderModel(path=str(tmp_path), gradient_checkpointing=on), seed=0)
        built = build_policies(loaded, {"ada": LORA, "cy": FULL}, seed=0, keep_reference=False)
        for policy in built.values():
            policy.hidden(torch.tensor([context_of(4)])).sum().backward()
        requests = [ask("d", context_of(5)), ask("e", context_of(5), policy="cy@0")]
        answers.append(LocalEngine(built).sample_all(requests))
    assert answers[0] == answers[1]


def test_choice_among_replies_at_different_places_groups_by_place() -> None:
    """Rows of different tries and nodes in one batch, and free ones among them."""
    policies = PROPERTY_POLICIES
    states = [
        ReplyState(ask("a", context_of(3), trie=TRIES[0])),
        ReplyState(ask("b", context_of(3))),
        ReplyState(ask("c", context_of(3), trie=TRIES[1])),
        ReplyState(ask("e", context_of(3), trie=TRIES[0])),
    ]
    with torch.inference_mode():
        hidden = policies["bo"].hidden(torch.tensor([context_of(3)]))[:, -1].repeat(4, 1)
        choose(policies["bo"], states, hidden)
    assert states[0].ids[0] in (30, 31)
    assert states[2].ids[0] in (30, 40)
    assert len(states[1].ids) == 1


@pytest.mark.slow
def test_real_chat_model_has_ratio_one_with_caches() -> None:
    """Law 2 with the 135M model: two turns, ragged contexts, an adapter that is not zero."""
    folder = os.environ.get("COPLAY_SMOLLM", "")
    if not (Path(folder) / "config.json").is_file() or not folder:
        pytest.skip("COPLAY_SMOLLM names no folder with the 135M chat model")
    base = load_base(FolderModel(path=folder), seed=0)
    policies = build_policies(base, {"ada": PolicySettings()}, seed=0, keep_reference=False)
    state = policies["ada"].state()
    generator = torch.Generator().manual_seed(0)
    policies["ada"].load_state(
        {k: v + 0.01 * torch.randn(v.shape, generator=generator) for k, v in state.items()}
    )
    engine = LocalEngine(policies)
    opening = base.chat.opening("You play a game.", "Say hello to the other player.")
    contexts = [opening, opening + base.chat.encode_label("Well"), opening]
    for turn in range(2):
        requests = [
            ask(f"d{row}", context, seed=turn * 3 + row, max_new_tokens=12, stop_ids=base.chat.stop_ids)
            for row, context in enumerate(contexts)
        ]
        samples = engine.sample_all(requests)
        check_ratio_one(policies["ada"], requests, samples)
        contexts = [
            request.context + sample.ids + base.chat.following("And now?", base.chat.ended(sample.ids))
            for request, sample in zip(requests, samples, strict=True)
        ]


@pytest.mark.parametrize("labels", [None, ("A", "B", "long one"), ("long one", "long two"), ("long one",)])
def test_entropy_when_asked_for_then_that_of_the_first_choice_and_nothing_else_changes(
    policies: dict[str, Policy], labels: tuple[str, ...] | None
) -> None:
    """At the first token that is chosen, not forced, under temperature and grammar; a function of the context alone."""
    allowed = None if labels is None else trie(*labels)
    requests = [
        ask(f"d{row}", context_of(4 + row), trie=allowed, temperature=(0.7, 1.3)[row % 2]) for row in range(5)
    ]
    plain = LocalEngine(policies).sample_all(requests)
    asked = [replace(request, tells_entropy=row != 2) for row, request in enumerate(requests)]
    told = LocalEngine(policies).sample_all(asked)
    assert [replace(sample, entropy=None) for sample in told] == plain
    assert [sample.entropy is None for sample in told] == [False, False, True, False, False]
    others = LocalEngine(policies).sample_all([replace(request, seed=request.seed + 1) for request in asked])
    for request, sample, other in zip(asked, told, others, strict=True):
        if sample.entropy is None:
            continue
        assert other.entropy == sample.entropy
        first = sample.sampled.index(True) if any(sample.sampled) else None
        if first is None:
            assert sample.entropy == 0.0
            continue
        row = torch.tensor([(*request.context, *sample.ids[:first])])
        with torch.no_grad():
            scores = policies["ada"].logits(policies["ada"].hidden(row))[0, -1] / request.temperature
        if allowed is not None:
            scores = scores[list(allowed.walk(sample.ids)[first])]
        assert sample.entropy == pytest.approx(
            torch.distributions.Categorical(logits=scores).entropy().item(), abs=1e-5
        )


def test_reply_when_it_is_whole_then_ends_there_and_no_log_prob_changes(policies: dict[str, Policy]) -> None:
    """Free replies end where a tool's call is complete; the tokens before are the same as without that."""
    engine = LocalEngine(policies)
    free = ask("whole", context_of(9))
    (long,) = engine.sample_all([replace(free, stop_ids=())])
    (short,) = engine.sample_all([replace(free, stop_ids=(), is_whole=lambda ids: len(ids) == 3)])
    assert len(long.ids) == 6 and long.finish == "length"
    assert (short.ids, short.finish) == (long.ids[:3], "stop")
    assert short.log_probs == pytest.approx(long.log_probs[:3], abs=1e-5)
    (last,) = engine.sample_all([replace(free, stop_ids=(), is_whole=lambda ids: len(ids) == 6)])
    assert last.finish == "stop", "whole at the limit is not cut off"


def test_entropy_when_the_likeliest_token_is_taken_then_0(policies: dict[str, Policy]) -> None:
    """A greedy agent may sit where forks are chosen by entropy: nothing else could have been said."""
    request = ask("greedy", context_of(9), temperature=0.0, tells_entropy=True)
    (greedy, warm) = LocalEngine(policies).sample_all(
        [request, replace(request, temperature=0.7, key=("warm", "", "p", 0, 0, 0))]
    )
    assert greedy.entropy == 0.0 and warm.entropy is not None and warm.entropy > 0

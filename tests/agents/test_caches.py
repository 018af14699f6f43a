"""What the engine keeps and reads: each shared token once, forks from held rows, a bound on memory, same answers."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coplay.agents.base_model import load_base
from coplay.agents.constraint import build_trie
from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.kv_cache import Block, Store, join
from coplay.agents.linear import Linear, available
from coplay.agents.local_engine import LocalEngine
from coplay.agents.policy import Policy, build_policies
from coplay.agents.settings import EmbeddedModel, FullWeights, LoraWeights, PolicySettings

SMALL = EmbeddedModel(hidden=32, intermediate=64)
LARGE = EmbeddedModel(hidden=384, intermediate=384, num_layers=1)
"""Every adapted layer has more than 100,000 weights."""
LORA, FULL = PolicySettings(weights=LoraWeights(rank=4, alpha=8)), PolicySettings(weights=FullWeights())
MOVES = build_trie(["A", "B"], {"A": (30,), "B": (31,)}.__getitem__, 17)


def build(model: EmbeddedModel = SMALL, push: float = 0.3, **kinds: PolicySettings) -> dict[str, Policy]:
    built = build_policies(load_base(model, seed=0), kinds, seed=0, keep_reference=True)
    for place, policy in enumerate(built.values()):
        generator = torch.Generator().manual_seed(place)
        state = policy.state().items()
        policy.load_state({k: v + push * torch.randn(v.shape, generator=generator) for k, v in state})
    return built


POLICIES = build(ada=LORA, bo=FULL)


def ask(name: str, context: Sequence[int], **changes: Any) -> SampleRequest:
    basic: dict[str, Any] = {
        "key": (name, "", "p", 0, 0, 0),
        "policy": "ada@0",
        "context": tuple(context),
        "dialogue": name,
        "seed": sum(map(ord, name)),
        "max_new_tokens": 6,
    }
    return SampleRequest(**{**basic, **changes})


def tokens(length: int, salt: int = 0) -> tuple[int, ...]:
    return tuple((7 * place + 13 * salt + place * place) % 480 for place in range(length))


def check(policy: Policy, request: SampleRequest, sample: Sample, gap: float = 1e-4) -> None:
    """Law 2: a flat forward pass over context and reply gives the log-probs of the sample."""
    with torch.no_grad():
        logits = policy.logits(policy.hidden(torch.tensor([(*request.context, *sample.ids)])))[0]
    trie, begin = request.trie, len(request.context) - 1
    sets = [range(logits.shape[-1])] * len(sample.ids) if trie is None else trie.walk(sample.ids)
    for place, (token, allowed) in enumerate(zip(sample.ids, sets, strict=True)):
        scores = logits[begin + place][list(allowed)].log_softmax(-1)
        assert abs(scores[allowed.index(token)].item() - sample.log_probs[place]) <= gap


def test_equal_contexts_are_read_once_to_their_last_token() -> None:
    engine = LocalEngine(POLICIES)
    requests = [ask(f"d{row}", tokens(40), seed=row, trie=MOVES) for row in range(16)]
    assert len(set(engine.sample_all(requests))) > 1
    assert engine.tokens_read == 40
    assert engine.cached_tokens == 40


def test_games_that_go_the_same_way_are_read_once_turn_by_turn() -> None:
    """One-token moves: after each turn only the distinct histories are read."""
    engine = LocalEngine(POLICIES)
    contexts = [tokens(40)] * 32
    read: set[tuple[int, ...]] = set()
    for turn in range(5):
        requests = [ask(f"d{n:02}", c, seed=100 * turn + n, trie=MOVES) for n, c in enumerate(contexts)]
        samples = engine.sample_all(requests)
        for request, sample in zip(requests, samples, strict=True):
            check(POLICIES["ada"], request, sample)
        read |= {context[:length] for context in contexts for length in range(1, len(context) + 1)}
        assert engine.tokens_read == len(read)
        contexts = [(*c, *s.ids, 50, 51) for c, s in zip(contexts, samples, strict=True)]


def test_free_replies_read_each_distinct_token_but_the_last_once() -> None:
    """A group from one prompt: the prompt once, then every reply token but its last, turn by turn."""
    engine = LocalEngine(POLICIES)
    contexts = [tokens(20)] * 4
    samples = engine.sample_all([ask(f"d{n}", c, seed=n) for n, c in enumerate(contexts)])
    assert engine.tokens_read == 20 + 4 * 5
    contexts = [(*c, *s.ids, 9, 9, 9) for c, s in zip(contexts, samples, strict=True)]
    engine.sample_all([ask(f"d{n}", c, seed=n) for n, c in enumerate(contexts)])
    assert engine.tokens_read == 20 + 4 * 5 + 4 * (1 + 3 + 5)


def test_fork_and_retry_start_from_the_dialogue_they_left() -> None:
    """A branch (another name) and a retry after the reply read only what is new to them, and disturb nobody."""
    engine = LocalEngine(POLICIES)
    main = ask("main", tokens(60))
    first = engine.sample_all([main])[0]
    before = engine.tokens_read
    fork = ask("fork", tokens(60), seed=5)
    check(POLICIES["ada"], fork, engine.sample_all([fork])[0])
    assert engine.tokens_read - before == 1 + 5  # the last token of the context, and the reply
    before = engine.tokens_read
    retry = ask("main", (*tokens(60), *first.ids, 8, 8), seed=6)
    early = ask("early", (*tokens(60)[:30], 400, 401), seed=7)
    for request, sample in zip([retry, early], engine.sample_all([retry, early]), strict=True):
        check(POLICIES["ada"], request, sample)
    assert engine.tokens_read - before == (1 + 2 + 5) + (2 + 5)


def test_pause_of_a_dialogue_costs_nothing() -> None:
    """Most of a batch goes on in place; who paused goes on from his row later."""
    engine = LocalEngine(POLICIES)
    contexts = {f"d{row}": tokens(30, row) for row in range(8)}
    for turn in range(4):
        names = [name for name in contexts if turn != 1 or name != "d3"]
        requests = [ask(name, contexts[name], seed=turn) for name in names]
        before = engine.tokens_read
        samples = engine.sample_all(requests)
        new = 30 if turn == 0 else 3
        assert engine.tokens_read - before == len(names) * (new + 5)
        for request, sample in zip(requests, samples, strict=True):
            check(POLICIES["ada"], request, sample)
            contexts[request.dialogue] = (*request.context, *sample.ids, 4, turn)


def test_replies_of_unequal_length_leave_their_tokens_in_one_block() -> None:
    """Rows leave the batch as replies end, and the next turn still finds all of every reply, in place."""
    engine = LocalEngine(POLICIES)
    requests = [ask(f"d{row}", tokens(20, row), max_new_tokens=2 + 3 * row) for row in range(8)]
    samples = engine.sample_all(requests)
    (block,) = {id(place[0]): place[0] for place in engine._store._names.values()}.values()
    before = engine.tokens_read
    later = [
        ask(q.dialogue, (*q.context, *s.ids, 5), seed=3, trie=MOVES)
        for q, s in zip(requests, samples, strict=True)
    ]
    for request, sample in zip(later, engine.sample_all(later), strict=True):
        check(POLICIES["ada"], request, sample)
    assert engine.tokens_read - before == 8 * 2
    assert engine._store.held("ada@0") == [(block, row) for row in range(8)]


def test_memory_stays_within_the_budget_and_the_oldest_is_read_again() -> None:
    engine = LocalEngine(POLICIES, max_cache_tokens=150)
    for name in ("a", "b", "c"):
        engine.sample_all([ask(name, tokens(50, ord(name)), trie=MOVES)])
        assert engine.cached_tokens <= 150
    engine.sample_all([ask("d", tokens(40, 9), trie=MOVES)])
    for name, new in (("c", 1), ("b", 1), ("a", 50)):
        before = engine.tokens_read
        request = ask(f"{name}2", tokens(50, ord(name)), trie=MOVES)
        check(POLICIES["ada"], request, engine.sample_all([request])[0])
        assert (name, engine.tokens_read - before) == (name, new)
        assert engine.cached_tokens <= 150


def turns_in_step(budget: int, games: int, turns: int = 6) -> float:
    """Tokens read over distinct ones: games of prompt 100, whose turns add 20 sampled tokens and 10 heard ones."""
    engine = LocalEngine(POLICIES, max_cache_tokens=budget)
    contexts = [tokens(100, game) for game in range(games)]
    for turn in range(turns):
        requests = [
            ask(f"d{game}", context, seed=turn, max_new_tokens=20) for game, context in enumerate(contexts)
        ]
        samples = engine.sample_all(requests)
        assert engine.cached_tokens <= budget
        contexts = [(*c, *s.ids, *[turn] * 10) for c, s in zip(contexts, samples, strict=True)]
    return engine.tokens_read / (games * (len(contexts[0]) - 10))


def test_games_in_step_when_they_just_fit_then_room_to_grow_drives_none_out() -> None:
    """A block grows by half, beyond the budget: it gives the room back instead of being read again."""
    assert turns_in_step(budget=8 * (100 + 6 * 30), games=8) <= 1.0


def test_games_in_step_when_half_of_them_fit_then_these_are_kept() -> None:
    """They come round in turn: whoever is kept last for whoever comes next would find nothing."""
    whole = turns_in_step(budget=1, games=8)
    assert turns_in_step(budget=4 * (100 + 6 * 30), games=8) < 0.8 * whole


@given(data=st.data())
@settings(max_examples=25)
def test_any_tree_of_dialogues_has_the_log_probs_of_a_plain_engine(data: st.DataObject) -> None:
    """Law 2 for forks, retries, rewritten histories, pauses and evictions, at any budget."""
    budget = data.draw(st.sampled_from([30, 150, 10**6]))
    engine = LocalEngine(
        POLICIES, max_batch_tokens=data.draw(st.sampled_from([8, 10**6])), max_cache_tokens=budget
    )
    contexts = [tokens(data.draw(st.integers(1, 30)), salt) for salt in range(2)]
    for turn in range(4):
        requests = []
        for place in range(data.draw(st.integers(1, 6))):
            context = data.draw(st.sampled_from(contexts))
            cut = data.draw(st.sampled_from([0, 0, 0, 3, len(context) // 2]))
            requests.append(
                ask(
                    f"d{data.draw(st.integers(0, 5))}",
                    context[: max(1, len(context) - cut)],
                    key=(f"{place}", "", "p", turn, 0, 0),
                    seed=10 * turn + place,
                    policy=data.draw(st.sampled_from(["ada@0", "bo@0"])),
                    trie=data.draw(st.sampled_from([None, MOVES])),
                    max_new_tokens=data.draw(st.integers(1, 9)),
                )
            )
        samples = engine.sample_all(requests)
        assert engine.cached_tokens <= budget
        for request, sample in zip(requests, samples, strict=True):
            check(POLICIES[request.policy[:-2]], request, sample)
            contexts.append((*request.context, *sample.ids, turn))


def test_answers_do_not_depend_on_what_else_is_in_the_batch_or_held() -> None:
    """Law 7: composition and caches change no log-prob by more than 1e-5 and, here, no token."""
    requests = [ask(f"d{row}", tokens(10 + 7 * (row % 3), row % 2), seed=row) for row in range(9)]
    engine = LocalEngine(POLICIES)
    together = engine.sample_all(requests)
    again = engine.sample_all([ask(f"e{row}", r.context, seed=r.seed) for row, r in enumerate(requests)])
    for request, first, second in zip(requests, together, again, strict=True):
        alone = LocalEngine(POLICIES).sample_all([request])[0]
        assert alone.ids == first.ids == second.ids
        assert alone.log_probs == pytest.approx(first.log_probs, abs=1e-5)
        assert alone.log_probs == pytest.approx(second.log_probs, abs=1e-5)
    assert LocalEngine(POLICIES).sample_all(requests) == together


def test_failed_pass_leaves_no_token_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row claims what it has read, not what it should have."""
    policies = build(ada=LORA)
    engine = LocalEngine(policies)
    engine.sample_all([ask("d", tokens(20), trie=MOVES)])

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(policies["ada"], "extend", fail)
        engine.sample_all([ask("d", (*tokens(20), 3, 4), trie=MOVES)])
    request = ask("d", (*tokens(20), 3, 4), trie=MOVES)
    check(policies["ada"], request, engine.sample_all([request])[0])


@pytest.mark.skipif(not available(), reason="this build of torch is without oneDNN")
@pytest.mark.parametrize("kind", [LORA, FULL])
def test_merged_weights_sample_as_the_adapter_does_and_leave_the_model_alone(kind: PolicySettings) -> None:
    """Law 2 with weights that are large enough to be merged; a new version is merged anew (law 6)."""
    policies = build(LARGE, 0.02, ada=kind, bo=kind)
    state = {name: tensor.clone() for name, tensor in policies["ada"].state().items()}
    ids = torch.tensor([tokens(9)])
    with torch.no_grad():
        plain = policies["ada"].hidden(ids)
    engine = LocalEngine(policies)
    requests = [ask(f"d{row}", tokens(12 + row, row), policy=("ada@0", "bo@0")[row % 2]) for row in range(6)]
    for request, sample in zip(requests, engine.sample_all(requests), strict=True):
        check(policies[request.policy[:-2]], request, sample, gap=5e-5)
    assert engine._merged.keys() == {"ada@0", "bo@0"} and None not in engine._merged.values()
    assert all(torch.equal(state[name], tensor) for name, tensor in policies["ada"].state().items())
    with torch.no_grad():
        assert torch.equal(policies["ada"].hidden(ids), plain)
    trunk = policies["ada"].weights.network.trunk
    assert all(module.packed is None for module in trunk.decoder.modules() if isinstance(module, Linear))
    policies["ada"].load_state({name: tensor * 1.5 for name, tensor in state.items()})
    policies["ada"].bump()
    engine.publish("ada")
    later = ask("d0", tokens(12), policy="ada@1")
    check(policies["ada"], later, engine.sample_all([later])[0], gap=5e-5)
    assert engine._merged.keys() == {"bo@0", "ada@1"}


@pytest.mark.skipif(not available(), reason="this build of torch is without oneDNN")
def test_merged_weights_of_a_version_that_is_gone_are_dropped_even_without_publishing() -> None:
    policies = build(LARGE, 0.02, ada=LORA)
    engine = LocalEngine(policies)
    engine.sample_all([ask("d", tokens(12))])
    policies["ada"].load_state({name: 1.5 * tensor for name, tensor in policies["ada"].state().items()})
    policies["ada"].bump()
    later = ask("d", tokens(12), policy="ada@1")
    check(policies["ada"], later, engine.sample_all([later])[0], gap=5e-5)
    assert engine._merged.keys() == {"ada@1"}


@pytest.mark.skipif(not available(), reason="this build of torch is without oneDNN")
def test_merged_weights_under_autocast_are_refused_and_not_passed_by() -> None:
    """The layers' own weights lack the adapter, which is off while merged ones stand in for them."""
    engine = LocalEngine(build(LARGE, 0.02, ada=LORA))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(AssertionError, match="not under autocast"):
        engine.sample_all([ask("d", tokens(12))])
    engine.sample_all([ask("d", tokens(12))])


def test_small_models_are_not_merged() -> None:
    assert POLICIES["ada"].merged() is None


def test_room_of_a_store_is_by_default_a_quarter_of_the_memory_a_million_at_most() -> None:
    assert LocalEngine(POLICIES)._store.max_cells == 1 << 20
    assert POLICIES["ada"].cache_bytes() == 2 * 2 * 32 * 4  # keys and values, two layers, width 32, float32


def test_room_of_a_store_is_counted_on_the_device_of_its_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables stay on the CPU beside an accelerator that other models use."""
    expected = LocalEngine(POLICIES)._store.max_cells
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert LocalEngine(POLICIES)._store.max_cells == expected


def test_block_when_larger_than_the_budget_then_dropped_and_drives_nothing_out() -> None:
    store = Store(max_cells=50)
    for name, columns in (("small", 20), ("large", 60)):
        block = Block("ada@0", 1)
        block.reserve(columns)
        block.tokens = [[0] * columns]
        store.begin_wave()
        store.put(block, {name: 0})
    assert store.find("small", "ada@0", (0,) * 21) is not None
    assert store.find("large", "ada@0", (0,) * 61) is None
    assert store.cells == 20


def test_rows_taken_over_whole_are_given_up() -> None:
    """A fork keeps its source; a longer copy replaces it."""
    store, block = Store(10**6), Block("ada@0", 2)
    block.reserve(10)
    block.tokens = [[1, 2], [3, 4]]
    store.put(block, {"a": 0, "b": 1})
    store.retire((block, 0))
    assert store.held("ada@0") == [(block, 1)]
    assert store.find("a", "ada@0", (1, 2, 3)) is None
    store.retire((block, 1))
    assert store.cells == 0


@given(
    st.lists(
        st.none() | st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=9
    )
)
def test_rows_when_joined_in_any_order_then_each_begins_as_its_own_source(
    sources: list[tuple[int, int, int] | None],
) -> None:
    """Spread rows, listed ones, some more than once, empty ones, and a block that has read nothing."""
    blocks = [Block("ada@0", 3), Block("ada@0", 3)]
    for number, block in enumerate(blocks):
        block.tokens = [[100 * number + 10 * row + place for place in range(4)] for row in range(3)]
        block.reserve(4)
        cells = torch.tensor(block.tokens).float()[:, None, :, None].expand(3, 2, 4, 5)
        block.keys, block.values = [cells.clone(), cells + 1], [cells + 2]
    chosen = [None if one is None else (blocks[one[0]], one[1], one[2]) for one in sources]
    joined = join(chosen, "ada@0", columns=7)
    for row, source in enumerate(chosen):
        tokens = [] if source is None else source[0].tokens[source[1]][: source[2]]
        assert joined.tokens[row] == tokens
        for more, tensor in zip((0, 1, 2), (*joined.keys, *joined.values), strict=False):
            assert tensor[row, :, : len(tokens)].eq(torch.tensor(tokens)[:, None] + more).all()
            assert tensor.isfinite().all()

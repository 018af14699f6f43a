"""What rows have in common is attended to once: the numbers of `sdpa`, and the engine's replies as before."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from coplay.agents import trunk
from coplay.agents.base_model import load_base
from coplay.agents.common_attention import Common, attention_over_common
from coplay.agents.engine import SampleRequest
from coplay.agents.kv_cache import Block
from coplay.agents.local_engine import LocalEngine
from coplay.agents.policy import Policy, build_policies
from coplay.agents.settings import EmbeddedModel, LoraWeights, PolicySettings


@settings(max_examples=60)
@given(
    rows=st.integers(1, 5),
    heads=st.sampled_from([(1, 1), (2, 1), (4, 2), (9, 3)]),
    length=st.integers(1, 4),
    common=st.integers(1, 9),
    more=st.integers(0, 6),
    seed=st.integers(0, 99),
)
def test_attention_when_rows_begin_alike_then_the_numbers_of_sdpa(
    rows: int, heads: tuple[int, int], length: int, common: int, more: int, seed: int
) -> None:
    luck = torch.Generator().manual_seed(seed)
    columns = common + more + length
    key, value = (torch.randn(rows, heads[1], columns + 3, 8, generator=luck)[:, :, :columns] for _ in "kv")
    for one in (key, value):
        one[1:, :, :common] = one[:1, :, :common]
    query = torch.randn(rows, length, heads[0], 8, generator=luck).transpose(1, 2)
    starts = torch.randint(common, common + more + 1, (rows,), generator=luck)
    positions = starts[:, None] + torch.arange(length)
    mask = (torch.arange(columns) <= positions[:, :, None])[:, None]
    found = attention_over_common(query, key, value, mask, common, 0.3)
    wide = [one.repeat_interleave(heads[0] // heads[1], 1) for one in (key, value)]
    expected = functional.scaled_dot_product_attention(query, *wide, attn_mask=mask, scale=0.3).transpose(
        1, 2
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def engine_of(model: EmbeddedModel) -> tuple[LocalEngine, Policy]:
    settings = {"ada": PolicySettings(weights=LoraWeights(rank=2))}
    policies = build_policies(load_base(model, seed=0), settings, seed=0, keep_reference=False)
    state = {name: tensor + 0.1 for name, tensor in policies["ada"].state().items()}
    policies["ada"].load_state(state)
    return LocalEngine(policies), policies["ada"]


def ask(number: int, context: tuple[int, ...]) -> SampleRequest:
    return SampleRequest(
        key=(f"d{number}", "", "p", 0, 0, 0),
        policy="ada@0",
        context=context,
        dialogue=f"d{number}",
        seed=number,
        max_new_tokens=6 + number % 3,
    )


@pytest.mark.parametrize("heads", [2, 4])
def test_replies_when_a_prompt_is_shared_then_as_with_every_row_read_whole(
    heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group from one prompt, then dialogues that go on from it: log-probs to rounding, the same tokens."""
    engine, policy = engine_of(EmbeddedModel(hidden=32, intermediate=32, num_layers=2, num_heads=heads))
    told: list[Common] = []

    def watched(extend: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def watch(*arguments: Any, common: Sequence[Common] = ()) -> Tensor:
            told.extend(common)
            return extend(*arguments, common=common)

        return watch

    monkeypatch.setattr(policy, "extend", watched(policy.extend))
    prompts = [tuple(5 + (place + salt) % 90 for place in range(40)) for salt in (0, 0, 1)]
    found = []
    for copies in (1, 1 << 60):
        monkeypatch.setattr(trunk, "COPIES", copies)
        engine.clear()
        first = engine.sample_all([ask(number, prompts[number % 3]) for number in range(9)])
        onward = [
            ask(number, (*prompts[number % 3], *one.ids, 7, number)) for number, one in enumerate(first)
        ]
        found.append([*first, *engine.sample_all(onward)])
    assert {one.stop - one.first for one in told if one.length == 40} >= {6, 3}, (
        "rows of one prompt lie together"
    )
    for one, other in zip(*found, strict=True):
        assert one.ids == other.ids
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)


def test_block_when_rows_take_over_another_beginning_then_it_is_compared_anew() -> None:
    block = Block("ada@0", 3)
    block.tokens = [[1, 2, 3, 4], [1, 2, 3], [1, 2, 5]]
    block.compare()
    assert block.common == (Common(0, 3, 2),)
    assert block.common_within(1, 3) == (Common(0, 2, 2),) and block.common_within(2, 3) == ()
    block.copy_beginnings([(2, 1, 3)])
    assert block.common == ()
    block.compare()
    assert block.common == (Common(0, 3, 3),)
    assert block.select([0, 1], room=4).capacity >= 8


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=8))
def test_rows_when_compared_then_those_said_to_begin_alike_do(rows: list[list[int]]) -> None:
    block = Block("ada@0", len(rows))
    block.tokens = rows
    block.compare()
    done = 0
    for one in block.common:
        assert done <= one.first < one.stop - 1 and one.length > 0
        assert len({tuple(row[: one.length]) for row in rows[one.first : one.stop]}) == 1
        assert all(len(row) >= one.length for row in rows[one.first : one.stop])
        done = one.stop
    assert done <= len(rows)


def test_rows_when_two_prompts_begin_alike_then_each_is_kept_whole() -> None:
    block = Block("ada@0", 6)
    block.tokens = [[*range(10), *range(50)]] * 3 + [[*range(10), *range(7, 60)]] * 3
    block.compare()
    assert block.common == (Common(0, 3, 60), Common(3, 6, 63))

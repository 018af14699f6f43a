"""Attention block by block: the numbers of `sdpa` under the dense mask, both ways, and where it steps back."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from coplay.agents import tree_attention, tree_rows, trunk
from coplay.agents.base_model import load_base
from coplay.agents.settings import EmbeddedModel
from coplay.agents.tree_attention import NAME, TreeMask, attention, causal
from coplay.agents.trunk import Trunk

SMALL = EmbeddedModel(hidden=32, intermediate=32, num_heads=2)


@st.composite
def trees(draw: st.DrawFn) -> TreeMask:
    """Exits of a few random trees of one width: each slot's parent is on the path to the slot before it."""
    width = draw(st.integers(1, 40))
    rows = []
    for _ in range(draw(st.integers(1, 2))):
        exits, path = [width] * width, [0]
        for slot in range(1, width):
            kept = draw(st.integers(0, len(path)))
            for left in path[kept:]:
                exits[left] = slot
            path = [*path[:kept], slot]
        rows.append(exits)
    return TreeMask(torch.tensor(rows))


def both(mask: TreeMask, heads: int, shared: int, size: int, seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Output and gradients, block by block and by `sdpa`; keys lie in memory as transformers leaves them."""
    luck = torch.Generator().manual_seed(seed)
    batch, width = mask.exits.shape

    def made(count: int) -> Tensor:
        return torch.randn(batch, width, count, size, generator=luck).transpose(1, 2).requires_grad_()

    query, key, value = made(heads), made(heads // shared), made(heads // shared)
    above = torch.randn(batch, width, heads, size, generator=luck)
    module = torch.nn.Module()
    ours, _ = attention(module, query, key, value, None, tree=mask)
    wide = [x.repeat_interleave(shared, 1) for x in (key, value)]
    theirs = functional.scaled_dot_product_attention(query, *wide, attn_mask=mask.dense()).transpose(1, 2)
    found = [[x, *torch.autograd.grad(x, (query, key, value), above)] for x in (ours, theirs)]
    return found[0], found[1]


@settings(max_examples=60)
@given(trees(), st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]), st.integers(1, 50), st.data())
def test_blocks_when_held_against_the_dense_mask_then_equal(
    mask: TreeMask, heads: tuple[int, int], queries: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_attention, "QUERIES", queries)
        patch.setattr(tree_attention, "LARGE", data.draw(st.sampled_from([0, 10**9])))
        ours, theirs = both(mask, *heads, size=8, seed=data.draw(st.integers(0, 99)))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@given(trees(), st.integers(1, 50))
def test_block_when_looked_at_then_its_keys_are_what_its_queries_see(mask: TreeMask, queries: int) -> None:
    """No key is kept that none of the block sees, and none that one sees is left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_attention, "QUERIES", queries)
        rows = mask.blocks
    for dense, blocks in zip(mask.dense()[:, 0], rows, strict=True):
        assert [(one.first, one.last) for one in blocks] == [
            (first, min(first + queries, len(dense))) for first in range(0, len(dense), queries)
        ]
        for one in blocks:
            keys = torch.arange(one.last) if one.keys is None else one.keys
            assert torch.equal(keys, dense[one.first : one.last].any(0).nonzero()[:, 0])
            seen = dense[one.first : one.last][:, keys]
            assert seen[:, : one.clear].all()
            assert torch.equal(seen[:, one.clear :], ~one.hidden)


def test_plain_rows_see_what_is_before_them() -> None:
    assert torch.equal(causal(2, 5).dense()[1, 0], torch.ones(5, 5, dtype=torch.bool).tril())


def test_scores_when_large_then_finite() -> None:
    query = torch.full((1, 1, 4, 8), 1e4)
    found, _ = attention(torch.nn.Module(), query, query, query, None, tree=causal(1, 4))
    assert torch.isfinite(found).all()


def hidden(one: Trunk, ids: Tensor, mask: TreeMask, positions: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Hidden states under a mask and the gradients of all weights."""
    parameters = [p.requires_grad_() for p in one.decoder.parameters()]
    states = one.hidden(ids, positions, mask)
    above = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    grads = torch.autograd.grad((above * states).sum(), parameters, allow_unused=True)
    return states, [grad for grad in grads if grad is not None]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_trunk_when_rows_are_long_then_by_blocks_and_the_same(
    checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Trunk(load_base(SMALL, seed=0).model.get_decoder())
    if checkpointing:
        one.decoder.gradient_checkpointing_enable({"use_reentrant": False})
    exits = torch.full((1, 300), 300)
    exits[:, 100:200] = 200
    positions = torch.cat([torch.arange(200), torch.arange(100, 200)])[None]
    ids = (positions * 7) % 50
    calls = []
    by_blocks = tree_attention._TreeAttention.forward
    monkeypatch.setattr(
        tree_attention._TreeAttention,
        "forward",
        staticmethod(lambda *given: calls.append(1) or by_blocks(*given)),
    )
    assert one.reads_blocks
    probed = len(calls)
    dense, of_dense = hidden(one, ids, TreeMask(exits), positions)
    assert len(calls) == probed, "short rows are left to sdpa"
    monkeypatch.setattr(trunk, "WORTHWHILE", 0)
    blocks, of_blocks = hidden(one, ids, TreeMask(exits), positions)
    assert len(calls) == probed + len(one.decoder.layers) * (1 + checkpointing)
    torch.testing.assert_close(blocks, dense, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(of_blocks, of_dense, strict=True):
        assert float((ours - theirs).norm()) <= 1e-5 * float(theirs.norm())
    with torch.no_grad():
        plain = one.hidden(ids)
        monkeypatch.setattr(trunk, "WORTHWHILE", 1e99)
        torch.testing.assert_close(plain, one.hidden(ids), rtol=1e-4, atol=1e-5)


def test_half_precision_and_models_that_do_not_pass_it_on_keep_the_dense_mask() -> None:
    decoder = load_base(SMALL, seed=0).model.get_decoder()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not Trunk(decoder)._by_blocks(torch.zeros(1, 10**4, dtype=torch.long), None)
    assert Trunk(decoder)._by_blocks(torch.zeros(1, 10**4, dtype=torch.long), None)

    class Narrow(type(decoder)):  # type: ignore[misc]
        def forward(self, input_ids: Any, position_ids: Any = None, attention_mask: Any = None) -> Any:
            raise AssertionError("not asked")

    class Forgetful(type(decoder)):  # type: ignore[misc]
        def forward(self, *given: Any, tree: Any = None, **words: Any) -> Any:
            return super().forward(*given, **words)

    for kind in (Narrow, Forgetful):
        other = load_base(SMALL, seed=0).model.get_decoder()
        tree_rows._known[other] = None
        other.__class__ = kind
        assert not tree_rows.reads_blocks(other)


def test_saved_model_does_not_know_of_it(tmp_path: Path) -> None:
    """Other programs read what is saved."""
    model = load_base(SMALL, seed=0).model
    assert model.config._attn_implementation == NAME
    model.save_pretrained(str(tmp_path))
    assert NAME not in json.dumps(json.loads((tmp_path / "config.json").read_text()))

"""Rows as trees: every distinct prefix once, budgets, cuts; and the same loss and gradient as row by row."""

import logging
import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rows import SMALL, Rows, forests, num_prefixes, padded, push, random_batch
from run_fakes import distance, in_double
from torch import Tensor
from transformers import MistralConfig, MistralModel

from coplay.agents import tree_rows
from coplay.agents.adapters import enable_checkpointing
from coplay.agents.base_model import load_base
from coplay.agents.critic import Critic, build_critic
from coplay.agents.policy import Policy, build_policies
from coplay.agents.settings import FullWeights, LoraWeights, PolicySettings
from coplay.agents.trunk import Trunk
from coplay.training import passes
from coplay.training.critic_updates import critic_step, critic_values
from coplay.training.draws import AllowedSets
from coplay.training.objectives import KlSettings, ReinforceObjective
from coplay.training.pack import Costs, Pack, costs_of, pack
from coplay.training.passes import ReadPlan, all_log_probs, token_passes
from coplay.training.records import TokenBatch, ValueBatch
from coplay.training.references import with_references
from coplay.training.schemes import CriticEstimator
from coplay.training.terms import Before
from coplay.training.updates import StepPlan, policy_step

FREE = Costs(pair=0.0, launch=0.0)
TOLERANCE, ROUNDING = 1e-5, 1e-7  # of gradients; scores are float32, and their parts may cancel


def every_place(rows: Rows) -> tuple[Tensor, Tensor]:
    row = [number for number, ids in enumerate(rows) for _ in ids]
    return torch.tensor(row), torch.tensor([column for ids in rows for column in range(len(ids))])


def ancestors(one: Pack, slot: int) -> tuple[list[int], list[int]]:
    """Ids and positions of what a slot sees."""
    batch, query = divmod(slot, one.ids.shape[1])
    mask = one.mask()
    seen = range(query + 1) if mask is None else mask.dense()[batch, 0, query].nonzero().squeeze(1).tolist()
    positions = [k if one.positions is None else int(one.positions[batch, k]) for k in seen]
    return one.ids[batch][list(seen)].tolist(), positions


costs = st.builds(Costs, pair=st.sampled_from([0.0, 0.01, 1.0]), launch=st.sampled_from([0.0, 5.0, 100.0]))


@settings(max_examples=100)
@given(forests(), st.integers(1, 30), costs, st.booleans())
def test_place_when_packed_then_sees_its_own_row_up_to_it_and_nothing_else(
    rows: Rows, budget: int, spent: Costs, trees: bool
) -> None:
    row, column = every_place(rows)
    packs = pack(padded(rows), row, column, max_tokens=budget, costs=spent, trees=trees)
    assert sorted(place for one in packs for place in one.places.tolist()) == list(range(len(row)))
    for one in packs:
        assert one.ids.numel() <= budget or len(one.ids) == 1
        for place, slot in zip(one.places.tolist(), one.slots.tolist(), strict=True):
            expected = rows[int(row[place])][: int(column[place]) + 1]
            assert ancestors(one, slot) == (expected, list(range(len(expected))))
        mask = one.mask()
        assert mask is None or mask.dense().any(-1).all(), "a query without a key has no softmax"


@given(forests())
def test_tokens_when_nothing_is_cut_then_each_distinct_prefix_is_read_once(rows: Rows) -> None:
    row, column = every_place(rows)
    packs = pack(padded(rows), row, column, max_tokens=10_000, costs=FREE)
    assert sum(one.num_tokens for one in packs) == num_prefixes(rows)
    flat = pack(padded(rows), row, column, max_tokens=10_000, costs=FREE, trees=False)
    assert sum(one.num_tokens for one in flat) == sum(map(len, rows))


@given(forests(), st.integers(6, 20))
def test_tree_when_larger_than_the_budget_then_cut_at_nodes_with_ancestors_repeated(
    rows: Rows, budget: int
) -> None:
    """A tree's own size obeys the budget, not only its pass; a cut costs the path to it and no more."""
    row, column = every_place(rows)
    packs = pack(padded(rows), row, column, max_tokens=budget, costs=FREE)
    longest = max(map(len, rows))
    for one in packs:
        held = [rows[int(number)] for number in row[one.places].unique()]
        assert one.num_tokens == num_prefixes(held)
        assert one.num_tokens <= max(budget, longest)


def test_tokens_after_the_last_place_read_are_left_out() -> None:
    """Rows that differ only behind it are one."""
    ids = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6, 7]])
    packs = pack(ids, torch.tensor([0, 1, 2]), torch.tensor([2, 2, 1]), max_tokens=99, costs=FREE)
    assert [one.num_tokens for one in packs] == [3]
    assert packs[0].ids.tolist() == [[1, 2, 3]]
    assert packs[0].slots.tolist() == [2, 2, 1]
    assert packs[0].mask() is None, "a single path is plain causal attention"


def test_unrelated_rows_when_packed_then_never_share_a_mask() -> None:
    """Attention's square over two trees is more than over each."""
    ids = torch.tensor([[1] * 40, [2] * 40])
    row, column = every_place(ids.tolist())
    (one,) = pack(ids, row, column, max_tokens=999, costs=costs_of(64, cuda=False))
    assert tuple(one.ids.shape) == (2, 40)
    assert one.mask() is None


def test_nothing_to_read_gives_no_pass() -> None:
    none = torch.zeros(0, dtype=torch.long)
    assert pack(torch.zeros(3, 4, dtype=torch.long), none, none, max_tokens=9, costs=FREE) == ()


def test_place_before_the_first_token_is_no_place() -> None:
    """A token that nothing stands before has no log-prob: it would be read at the end of its row."""
    with pytest.raises(AssertionError, match="nothing before it"):
        pack(torch.ones(1, 3), torch.tensor([0, 0]), torch.tensor([1, -1]), max_tokens=9, costs=FREE)


# --- The same loss and gradient as row by row ---


def trained(weights: LoraWeights | FullWeights, *, checkpointing: bool = False) -> Policy:
    """A policy beside another over the same base, both away from their reference, in float64."""
    base = load_base(SMALL, seed=0)
    made = {"ada": PolicySettings(weights=weights), "bo": PolicySettings(weights=LoraWeights(rank=2))}
    policies = build_policies(base, made, seed=0, keep_reference=True)
    if checkpointing:
        enable_checkpointing(base.model, base.adapters.checkpoint_contexts)
        if isinstance(weights, FullWeights):
            enable_checkpointing(policies["ada"].weights.model)  # type: ignore[attr-defined]
    for name, policy in policies.items():
        push(policy, 0.3 if name == "bo" else 0.1)
    base.model.double()
    in_double(policies["ada"])
    return policies["ada"]


def step(policy: Policy, batch: TokenBatch, folder: Path, read: ReadPlan, importance: Any) -> tuple[Any, Any]:
    """Gradients and metrics of a step with everything on that moves nothing."""
    objective = ReinforceObjective(
        largest_gap=None,
        importance=importance,
        kl=KlSettings(coefficient=0.2),
        entropy_top_k=7,
        normaliser="tokens",
    )
    plan = StepPlan(
        lr=0.0,
        entropy_coefficient=0.1,
        kl_coefficient=0.2,
        gradient_clip=None,
        reading=read,
        refused=folder / "refused",
    )
    still = torch.optim.SGD(list(policy.named_parameters().values()), lr=0.0)
    credits = torch.linspace(-1, 2, batch.num_tokens)
    batch = with_references({"x": batch}, {"x": policy}, read)["x"]
    result = policy_step(policy, still, batch, credits, objective, plan)
    found = {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in _own(policy)}
    return found, result


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    size = torch.cat([gradient.flatten() for gradient in one.values()]).norm()
    return bool(distance(one, other) * size <= TOLERANCE * size + ROUNDING)


def _own(policy: Policy) -> Iterator[tuple[str, torch.nn.Parameter]]:
    return iter(policy.named_parameters().items())


KINDS = {"shared": LoraWeights(rank=2, alpha=4), "separate": FullWeights()}
POLICIES = {
    (name, checkpointing): trained(weights, checkpointing=checkpointing)
    for name, weights in KINDS.items()
    for checkpointing in (False, True)
}


@pytest.mark.parametrize("importance", ["token", "turn", "sequence"])
@pytest.mark.parametrize(("weights", "checkpointing"), POLICIES)
@settings(max_examples=8)
@given(
    rows=forests().filter(lambda rows: max(map(len, rows)) > 1),
    seed=st.integers(0, 99),
    budget=st.integers(1, 60),
)
def test_step_when_rows_are_read_as_trees_then_loss_and_gradient_of_flat_rows(
    tmp_path_factory: pytest.TempPathFactory,
    weights: str,
    checkpointing: bool,
    importance: str,
    rows: Rows,
    seed: int,
    budget: int,
) -> None:
    """Law 4, with entropy, KL, weights by turn, grammars, temperatures and shares of turns all on."""
    policy = POLICIES[weights, checkpointing]
    batch = random_batch(rows, random.Random(seed))
    folder = tmp_path_factory.getbasetemp()
    flat, expected = step(policy, batch, folder, ReadPlan(micro_batch_tokens=1, packing="flat"), importance)
    for read in (ReadPlan(micro_batch_tokens=budget), ReadPlan(micro_batch_tokens=9999)):
        found, result = step(policy, batch, folder, read, importance)
        assert same(flat, found)
        torch.testing.assert_close(result.log_probs, expected.log_probs, rtol=0, atol=1e-5)
        torch.testing.assert_close(result.weights, expected.weights, rtol=1e-4, atol=1e-6)
        for name in ("loss", "entropy", "kl", "gradient_norm"):
            assert result.metrics[name] == pytest.approx(expected.metrics[name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("shared", [True, False], ids=["adapter", "own trunk"])
@settings(max_examples=20)
@given(rows=forests(), budget=st.integers(1, 60))
def test_critic_when_rows_are_read_as_trees_then_values_and_gradient_of_flat_rows(
    rows: Rows, budget: int, shared: bool
) -> None:
    critic = CRITICS[shared]
    row, column = every_place(rows)
    batch = ValueBatch(
        ids=padded(rows),
        lengths=torch.tensor([len(ids) for ids in rows]),
        row=row,
        column=column,
        path=row,
        tick=column,
    )
    found = []
    for read in (
        ReadPlan(micro_batch_tokens=1, packing="flat"),
        ReadPlan(micro_batch_tokens=budget),
        ReadPlan(micro_batch_tokens=9999),
    ):
        values = critic_values(critic, batch, read)
        still = torch.optim.SGD(list(critic.named_parameters().values()), lr=0.0)
        shares = torch.where(column == 1, 0.0, 1 / (1 + column % 3))
        numbers = critic_step(
            critic, still, batch, torch.linspace(0, 3, len(row)), shares, CriticEstimator(), read
        )
        own = critic.named_parameters().items()
        found.append((values, numbers, {name: p.grad.clone() for name, p in own if p.grad is not None}))
    for values, numbers, gradient in found[1:]:
        torch.testing.assert_close(values, found[0][0], rtol=1e-5, atol=1e-6)
        assert numbers == pytest.approx(found[0][1], rel=1e-5)
        assert distance(found[0][2], gradient) <= 1e-5


def critic_of(*, shared: bool) -> Critic:
    base = load_base(SMALL, seed=0)
    if shared:  # as beside a model from a folder
        adapter = base.add_adapter(LoraWeights(rank=2), seed=4)
        base.adapters.train(adapter, trained=True)
        trunk = Trunk(base.model.get_decoder(), base.adapters, (adapter,))
        critic = Critic(trunk, base.adapters.tensors(adapter), base.model.config.hidden_size)
    else:
        critic = build_critic(base, seed=4)
    push(critic, 0.1)
    critic.trunk.decoder.double()  # what trees and rows differ by would else be rounding; the head is float32
    return critic


CRITICS = {shared: critic_of(shared=shared) for shared in (True, False)}


@pytest.mark.parametrize("weights", KINDS)
def test_head_when_asked_in_chunks_then_the_same_gradient(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weights: str
) -> None:
    """Scores made again in the backward pass are those of the forward pass."""
    policy = POLICIES[weights, False]
    luck = random.Random(3)
    batch = random_batch([[luck.randrange(4) for _ in range(12)] for _ in range(5)], luck)
    read = ReadPlan(micro_batch_tokens=999)
    whole, expected = step(policy, batch, tmp_path, read, "token")
    monkeypatch.setattr(passes, "CHUNK", 2 * policy.vocabulary)
    (one,) = token_passes(batch, policy, ReadPlan(micro_batch_tokens=999_999))[:1]
    assert len(one.draws.free.chunks) > 3
    found, result = step(policy, batch, tmp_path, read, "token")
    assert same(whole, found)
    assert torch.equal(result.log_probs, expected.log_probs)


def test_head_when_tokens_share_a_distribution_then_asked_once(tmp_path: Path) -> None:
    """Eight replies to one prompt: one distribution over words, however many were drawn from it."""
    policy = POLICIES["shared", False]
    rows = [[1, 2, 3, reply] for reply in (4, 5, 6, 7, 4, 5, 6, 7)]
    batch = random_batch(rows, random.Random(0))
    row = torch.arange(8)
    batch = TokenBatch(
        **{
            **{name: getattr(batch, name) for name in ("ids", "lengths", "num_trajectories")},
            **{name: torch.zeros(8) for name in ("behaviour", "penalty")},
            **dict.fromkeys(("row", "path", "turn"), row),
            "tick": torch.zeros(8, dtype=torch.long),
            "place": torch.zeros(8, 2, dtype=torch.long),
            "temperature": torch.ones(8),
            "entropy_mask": torch.ones(8, dtype=torch.bool),
            "column": torch.full((8,), 3),
            "targets": batch.ids[:, 3],
            "allowed": AllowedSets.none(8),
        }
    )
    (one,) = token_passes(batch, policy, ReadPlan(micro_batch_tokens=999))
    assert one.draws.free.slots.tolist() == [2]
    assert one.pack.num_tokens == 3
    asked = []
    head = policy._network.head.register_forward_hook(lambda _, given, __: asked.append(given[0].shape[0]))
    scores = all_log_probs(policy, [one], ReadPlan(micro_batch_tokens=999))
    head.remove()
    assert asked == [1]
    assert torch.equal(scores[:4], scores[4:])
    assert len(set(scores.tolist())) == 4


def test_step_when_in_bfloat16_then_near_the_step_in_float32(tmp_path: Path) -> None:
    base = load_base(SMALL, seed=0)
    policy = build_policies(
        base, {"ada": PolicySettings(weights=LoraWeights())}, seed=0, keep_reference=True
    )["ada"]
    push(policy, 0.1)
    batch = random_batch([[1, 2, 3, 0, 1], [1, 2, 0, 3, 3]], random.Random(0))
    exact, expected = step(policy, batch, tmp_path, ReadPlan(micro_batch_tokens=99), "token")
    rough, result = step(
        policy, batch, tmp_path, ReadPlan(micro_batch_tokens=99, precision="bfloat16"), "token"
    )
    assert 0 < distance(exact, rough) < 0.05
    assert (result.log_probs - expected.log_probs).abs().max() < 0.05
    assert all(gradient.dtype == torch.float32 for gradient in rough.values())


def devices(record: Any) -> set[str]:
    """Where the tensors of a record and of the records in it are."""
    found = {record.device.type} if isinstance(record, Tensor) else set[str]()
    if is_dataclass(record):
        found |= {where for entry in fields(record) for where in devices(getattr(record, entry.name))}
    return found


def test_records_of_a_step_when_moved_then_every_tensor_is() -> None:
    batch = random_batch([[1, 2, 3, 0, 1], [1, 2, 0, 3, 3]], random.Random(0))
    policy = POLICIES["shared", False]
    (one,) = token_passes(batch, policy, ReadPlan(micro_batch_tokens=99))
    points = ValueBatch(
        ids=batch.ids,
        lengths=batch.lengths,
        row=batch.row,
        column=batch.column,
        path=batch.row,
        tick=batch.row,
    )
    before = Before(log_probs=batch.behaviour, entropies=batch.behaviour, weights=batch.behaviour)
    elsewhere = torch.device("meta")
    assert one.pack.positions is not None and one.pack.exits is not None
    for record in (one.pack, one.draws, replace(batch, reference=batch.behaviour), points, before):
        assert devices(record) == {"cpu"}
        assert devices(record.to(elsewhere)) == {"meta"}


# --- Models that cannot read trees ---


def windowed() -> MistralModel:
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=3,
        attn_implementation="sdpa",
    )
    return MistralModel(config).eval()


def test_model_with_a_sliding_window_gets_rows_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tree_rows._tell.cache_clear()
    one, other = Trunk(windowed()), Trunk(windowed())
    with caplog.at_level(logging.WARNING):
        assert not one.reads_trees
        assert not one.reads_trees
        assert not other.reads_trees
    assert [record.getMessage() for record in caplog.records] == [
        "MistralModel has a sliding window of 3 tokens: rows that begin alike are read one by one, not as trees"
    ]
    critic = Critic(one, dict(one.decoder.named_parameters()), 16)
    push(critic, 0.1)
    rows = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8]]
    row, column = every_place(rows)
    batch = ValueBatch(
        ids=torch.tensor(rows), lengths=torch.tensor([6, 6]), row=row, column=column, path=row, tick=column
    )
    (laid,) = passes.value_passes(batch, critic, ReadPlan(micro_batch_tokens=99))
    assert laid.mask() is None
    assert laid.num_tokens == 12
    with torch.no_grad():
        alone = torch.cat(
            [critic.values(batch.ids[n : n + 1], None, None, row[:6] * 0, column[:6]) for n in (0, 1)]
        )
    torch.testing.assert_close(critic_values(critic, batch, ReadPlan(micro_batch_tokens=99)), alone)


def test_model_that_reads_a_tree_otherwise_is_found_by_trying(caplog: pytest.LogCaptureFixture) -> None:
    """A decoder that counts positions itself."""

    class Counting(type(load_base(SMALL, seed=0).model.get_decoder())):  # type: ignore[misc]
        def forward(
            self, input_ids: Any, position_ids: Any = None, attention_mask: Any = None, **rest: Any
        ) -> Any:
            return super().forward(input_ids=input_ids, attention_mask=attention_mask, **rest)

    base = load_base(SMALL, seed=0)
    decoder = base.model.get_decoder()
    assert tree_rows.reads_trees(decoder)
    decoder.__class__ = Counting
    del tree_rows._known[decoder]
    with caplog.at_level(logging.WARNING):
        assert not tree_rows.reads_trees(decoder)
    assert "otherwise than its branches" in caplog.text


def test_model_that_gives_no_numbers_under_a_mask_gets_rows() -> None:
    """No number is above a tolerance, nor below."""

    class Masked(type(load_base(SMALL, seed=0).model.get_decoder())):  # type: ignore[misc]
        def forward(
            self, input_ids: Any, position_ids: Any = None, attention_mask: Any = None, **rest: Any
        ) -> Any:
            found = super().forward(input_ids=input_ids, position_ids=position_ids, **rest)
            if attention_mask is not None:
                found.last_hidden_state = found.last_hidden_state * torch.nan
            return found

    decoder = load_base(SMALL, seed=0).model.get_decoder()
    decoder.__class__ = Masked
    assert not tree_rows.reads_trees(decoder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layer_types": ["full_attention", "linear_attention"]}, "layers of kind linear_attention"),
        ({"_attn_implementation": "flash_attention_2"}, "takes no such mask"),
    ],
)
def test_model_when_its_configuration_speaks_against_trees_then_rows(
    change: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    tree_rows._tell.cache_clear()
    decoder = load_base(SMALL, seed=0).model.get_decoder()
    for name, value in change.items():
        object.__setattr__(decoder.config, name, value) if name[0] != "_" else setattr(
            decoder.config, name, value
        )
    with caplog.at_level(logging.WARNING):
        assert not tree_rows.reads_trees(decoder)
    assert reason in caplog.text

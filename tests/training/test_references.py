"""Log-probs under frozen references: the same whoever's rows are read beside, and shared rows are read once."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rows import SMALL, Rows, forests, num_prefixes, push, random_batch
from run_fakes import play_iteration, tiny_run

from coplay.agents.base_model import load_base
from coplay.agents.policy import Policy, build_policies
from coplay.agents.settings import FullWeights, LoraWeights, PolicySettings
from coplay.training import references, stages
from coplay.training.draws import AllowedSets
from coplay.training.passes import ReadPlan, TokenPass, all_log_probs, token_passes
from coplay.training.records import TokenRows
from coplay.training.references import with_references

READING = ReadPlan(micro_batch_tokens=9999)
WEIGHTS = {
    "ada": LoraWeights(rank=2, alpha=4),
    "bo": LoraWeights(rank=3, alpha=4),
    "cy": FullWeights(),
}


def built(*, keep: bool = True) -> dict[str, Policy]:
    """Policies of several sorts over one base, all away from their start."""
    made = {name: PolicySettings(weights=weights) for name, weights in WEIGHTS.items()}
    policies = build_policies(load_base(SMALL, seed=0), made, seed=0, keep_reference=keep)
    for number, policy in enumerate(policies.values()):
        push(policy, 0.1 * (number + 1))
    return policies


POLICIES = built()


def some_rows() -> st.SearchStrategy[Rows]:
    return forests().filter(lambda rows: max(map(len, rows)) > 1)


@settings(max_examples=25)
@given(
    rows=st.tuples(some_rows(), some_rows(), some_rows()), seed=st.integers(0, 99), budget=st.integers(1, 60)
)
def test_reference_when_read_for_all_policies_together_then_as_read_for_each_alone(
    rows: tuple[Rows, ...], seed: int, budget: int
) -> None:
    luck = random.Random(seed)
    batches = {name: random_batch(one, luck) for name, one in zip(POLICIES, rows, strict=True)}
    found = with_references(batches, POLICIES, ReadPlan(micro_batch_tokens=budget))
    assert list(found) == list(batches)
    for name, policy in POLICIES.items():
        assert batches[name].reference is None, "records are not changed where they stand"
        with policy.reference():
            flat = ReadPlan(micro_batch_tokens=1, packing="flat")
            alone = all_log_probs(policy, token_passes(batches[name], policy, flat), flat)
        assert found[name].reference is not None
        torch.testing.assert_close(found[name].reference, alone, rtol=0, atol=2e-5)


def test_reference_when_rows_of_two_policies_begin_alike_then_each_distinct_prefix_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[list[TokenPass]] = []

    def spy(rows: TokenRows, policy: Policy, how: ReadPlan) -> list[TokenPass]:
        read.append(token_passes(rows, policy, how))
        return read[-1]

    monkeypatch.setattr(references, "token_passes", spy)
    shared = [[1, 2, 3, 1, 2], [1, 2, 3, 3, 1]]
    batches = {name: random_batch(shared, random.Random(1)) for name in POLICIES}
    with_references(batches, POLICIES, READING)
    assert len(read) == 1, "adapters and whole weights that started fresh have the base as their reference"
    ends = [
        (int(row), int(column)) for row, column in zip(batches["ada"].row, batches["ada"].column, strict=True)
    ]
    asked = [shared[row][:column] for row, column in ends]
    assert sum(one.pack.num_tokens for one in read[0]) == num_prefixes(asked)


def test_policies_when_one_started_from_other_weights_then_its_reference_is_its_own() -> None:
    policies = built()
    policies["bo"]._reference = policies["bo"].weights.reference(started=True)  # type: ignore[attr-defined]
    batches = {name: random_batch([[1, 2, 3, 1, 2]], random.Random(1)) for name in policies}
    found = with_references(batches, policies, READING)
    assert torch.equal(_reference(found, "ada"), _reference(found, "cy"))
    assert not torch.allclose(_reference(found, "ada"), _reference(found, "bo"))
    with pytest.raises(ValueError, match="keep_reference=True"):
        with_references(batches, built(keep=False), READING)


def _reference(batches: Mapping[str, TokenRows], name: str) -> torch.Tensor:
    found = batches[name].reference  # type: ignore[attr-defined]
    assert isinstance(found, torch.Tensor)
    return found


@given(
    st.lists(st.lists(st.none() | st.sets(st.integers(0, 6), min_size=1), max_size=5), min_size=1, max_size=4)
)
def test_allowed_sets_when_joined_then_those_of_every_token_in_order(
    parts: list[list[set[int] | None]],
) -> None:
    joined = AllowedSets.joined(
        [AllowedSets.from_lists([None if one is None else sorted(one) for one in part]) for part in parts]
    )
    told = [
        None if row < 0 else set(joined.table[row][joined.table_mask[row]].tolist())
        for row in joined.index.tolist()
    ]
    assert told == [one for part in parts for one in part]
    distinct = {frozenset(one) for one in told if one is not None}
    assert len(joined.table) == len(distinct), "equal sets share a row"


@pytest.mark.parametrize("kl", [None, {"coefficient": 0.1, "against": "behaviour"}])
def test_run_when_no_term_compares_with_a_reference_then_none_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kl: dict[str, object] | None
) -> None:
    monkeypatch.setattr(references, "all_log_probs", None)
    run = tiny_run(tmp_path, {"objective": {"kl": kl, "largest_gap": None}})
    played = play_iteration(run)
    credits = stages.shape_credits(
        run, played.trajectories, played.table, played.estimate, played.packets, update=0
    )
    assert stages.update_policies(run, credits, update=0)

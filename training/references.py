"""Log-probs under frozen reference policies: rows of all policies that share one are read together, as one batch."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from coplay.agents.policy import Policy
from coplay.training.config import RunConfig
from coplay.training.passes import ReadPlan, all_log_probs, reading_of, token_passes
from coplay.training.records import TokenBatch, TokenRows
from coplay.training.trainer import Credit


def with_references(
    batches: Mapping[str, TokenBatch], policies: Mapping[str, Policy], reading: ReadPlan
) -> dict[str, TokenBatch]:
    """The batches (on the CPU), by policy, with what the policy's reference says of every action token.

    Adapters over one base that started fresh have that base as their reference: what their rows have in common is
    read once for all of them.

    Raises:
        ValueError: if a policy was built without a reference.
    """
    found: dict[str, TokenBatch] = {}
    for names in _alike(batches, policies):
        policy, rows = policies[names[0]], TokenRows.joined([batches[name] for name in names])
        with policy.reference():
            log_probs = all_log_probs(policy, token_passes(rows, policy, reading), reading).cpu()
        parts = torch.split(log_probs, [batches[name].num_tokens for name in names])
        found |= {
            name: replace(batches[name], reference=part) for name, part in zip(names, parts, strict=True)
        }
    return found


def _alike(batches: Mapping[str, TokenBatch], policies: Mapping[str, Policy]) -> list[list[str]]:
    """Names of policies, those with one reference together."""
    groups: list[list[str]] = []
    for name in batches:
        known = [group for group in groups if policies[name].shares_reference(policies[group[0]])]
        if known:
            known[0].append(name)
        else:
            groups.append([name])
    return groups


def read_references(
    credits: Mapping[str, Credit], policies: Mapping[str, Policy], config: RunConfig
) -> dict[str, Credit]:
    """The credits, by policy, with what references say where a KL term in the loss compares with them."""
    kl = config.objective.kl_in_loss
    if kl is None or kl.against != "reference":
        return dict(credits)
    batches = {name: credit.batch for name, credit in credits.items()}
    read = with_references(batches, policies, reading_of(config.update))
    return {name: replace(credit, batch=read[name]) for name, credit in credits.items()}

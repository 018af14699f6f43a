"""Log-probs under frozen reference policies: rows of all policies that share one are read together, as one batch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch.nn.functional import pad

from coplay.agents.policy import Policy
from coplay.training.config import RunConfig
from coplay.training.draws import AllowedSets
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
        policy, rows = policies[names[0]], _joined([batches[name] for name in names])
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


def _joined(parts: Sequence[TokenRows]) -> TokenRows:
    """All their rows and action tokens, one after the other."""
    width = max(part.ids.shape[1] for part in parts)
    starts = accumulate([len(part.ids) for part in parts[:-1]], initial=0)
    return TokenRows(
        ids=torch.cat([pad(part.ids, (0, width - part.ids.shape[1])) for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
        row=torch.cat([part.row + start for part, start in zip(parts, starts, strict=True)]),
        column=torch.cat([part.column for part in parts]),
        targets=torch.cat([part.targets for part in parts]),
        temperature=torch.cat([part.temperature for part in parts]),
        allowed=AllowedSets.joined([part.allowed for part in parts]),
    )


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

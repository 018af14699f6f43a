"""What an iteration's numbers look like: spreads of what was estimated, by player, and of tokens, by policy.

Read from tables that are there anyway, a few operations each whatever their size. What is told of tokens is told of
those the policy sampled: what it was shown, and what tools answered, is counted as state and enters no other number.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from coplay.training.alignment import gap_measures
from coplay.training.masked import keep, masked_mean, masked_sum, segment_spread
from coplay.training.metrics import fetch
from coplay.training.records import Estimate, TickTable, TokenBatch
from coplay.training.trainer import Credit, Done


def table_metrics(table: TickTable, estimate: Estimate, *, reward_scale: float) -> dict[str, float]:
    """`estimate/QUANTITY/PLAYER/STATISTIC` of main lines: `mean`, `max`, `min` and `deviation`.

    `score` is a game's sum of rewards and `reward` a tick's, both raw; `return`, `advantage` (at ticks where the player
    has tokens) and `value` (where the critic read one) are in units of `reward_scale`.
    """
    rows = torch.tensor([row for row, key in enumerate(table.keys) if not key.branch], dtype=torch.long)
    players = list(dict.fromkeys(key.player for key in table.keys))
    if not len(rows):
        return {}
    seat = torch.tensor([players.index(table.keys[row].player) for row in rows.tolist()])  # (b,)
    mask, rewards = table.mask[rows], keep(table.rewards[rows], table.mask[rows]) * reward_scale
    ticks = seat[:, None].expand(mask.shape)
    cells: dict[str, tuple[Tensor, Tensor]] = {
        "score": (masked_sum(rewards, mask, 1), seat),
        "reward": (rewards[mask], ticks[mask]),
        "return": (estimate.returns[rows][mask], ticks[mask]),
    }
    acted = table.acted[rows] & mask
    cells["advantage"] = (estimate.advantages[rows][acted], ticks[acted])
    if estimate.values is not None:
        values = estimate.values[rows]
        read = mask & ~torch.isnan(values)
        cells["value"] = (values[read], ticks[read])
    numbers = torch.cat([values.double() for values, _ in cells.values()])
    places = torch.cat([owner + number * len(players) for number, (_, owner) in enumerate(cells.values())])
    spreads = segment_spread(numbers, places, len(cells) * len(players))
    told: dict[str, Tensor] = {}
    for number, name in enumerate(cells):
        for place, player in enumerate(players):
            told |= spreads.told(number * len(players) + place, f"estimate/{name}/{player}/")
    return fetch(told)


def token_metrics(done: Mapping[str, Done]) -> dict[str, float]:
    """`policy/NAME/...` of the tokens that each policy was trained on, with log-probs from before its update."""
    told: dict[str, Tensor | float] = {}
    for name, one in done.items():
        found = {
            **lengths(one.credit.batch),
            **_credits(one.credit, one.result.log_probs),
            **gap_measures(one.credit.batch.behaviour, one.result.log_probs),
        }
        told |= {f"policy/{name}/{key}": value for key, value in found.items()}
    return fetch(told)


def _credits(credit: Credit, log_probs: Tensor) -> dict[str, Tensor]:
    """How credits lie, and mean log-probs of tokens with credit above 0 and of the others, each over its own count."""
    tokens = credit.tokens
    spreads = segment_spread(tokens, torch.zeros(len(tokens), dtype=torch.long), 1)
    positive = tokens > 0
    told = {
        f"log_prob_{name}": torch.where(mask.any(), masked_mean(log_probs.double(), mask), float("nan"))
        for name, mask in (("positive", positive), ("nonpositive", ~positive))
    }
    return spreads.told(0, "credit_") | told | {"tokens_positive": positive.sum()}


def lengths(batch: TokenBatch) -> dict[str, Tensor]:
    """How long contexts, replies and games are, and which share of what was read is not the policy's own.

    `prompt_tokens_*`: tokens before a reply's first sampled one; `reply_tokens_*`: sampled tokens of a turn;
    `turns_*`: turns of a game with sampled tokens; `state_tokens`: share of the rows' tokens that were not sampled.
    """
    num_turns, num_paths = int(batch.turn.max()) + 1, int(batch.path.max()) + 1
    zeros = torch.zeros(num_turns, dtype=torch.long)
    sampled = zeros.index_add(0, batch.turn, torch.ones_like(batch.turn))
    first = zeros.scatter_reduce(0, batch.turn, batch.column, "amin", include_self=False)
    owner = zeros.index_copy(0, batch.turn, batch.path)
    real = sampled > 0
    turns = torch.zeros(num_paths, dtype=torch.long).index_add(0, owner[real], torch.ones_like(owner[real]))
    turns = turns[turns > 0]
    row = batch.path * (int(batch.place[:, 0].max()) + 1) + batch.place[:, 0]  # alike rows are one in `ids`
    read = torch.zeros(int(row.max()) + 1, dtype=torch.long).index_copy(0, row, batch.lengths[batch.row])
    cells = torch.cat([first[real], sampled[real], turns])
    sizes = torch.tensor([int(real.sum()), int(real.sum()), len(turns)])
    spreads = segment_spread(cells, torch.arange(3).repeat_interleave(sizes), 3)
    told: dict[str, Tensor] = {"state_tokens": 1 - batch.num_tokens / read.sum().double()}
    for place, name in enumerate(("prompt_tokens", "reply_tokens", "turns")):
        told |= spreads.told(place, f"{name}_")
    return told

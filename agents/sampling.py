"""Draws of one token per row: each from its own seed and scores, whatever else is in the batch (law 7)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coplay.games.chance import SEED_BITS, derive_seed

_BELOW_ONE = 1.0 - 2.0**-53


@dataclass(frozen=True, slots=True)
class Draws:
    """One drawn column per row, and its log-prob under the distribution it was drawn from."""

    columns: list[int]
    log_probs: list[float]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on a request's seed and the place of the token in the reply."""
    return min(derive_seed(seed, position) / (1 << SEED_BITS), _BELOW_ONE)


def draw(logits: Tensor, temperatures: Sequence[float], uniforms: Sequence[float]) -> Draws:
    """Sample each row by its inverse distribution function: the first column whose cumulated mass exceeds u.

    Args:
        logits: (N, A) float32, finite.
        temperatures: N numbers; at 0 the likeliest column is taken, the first of equals, with log-prob 0.
        uniforms: N numbers in [0, 1).
    """
    if 0.0 in temperatures:
        return _some_greedy(logits, temperatures, uniforms)
    log_probs = _log_probs(logits, temperatures)
    mass = log_probs.exp().cumsum(-1, dtype=torch.float64)
    wanted = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)[:, None] * mass[:, -1:]
    columns = torch.searchsorted(mass, wanted, right=True).clamp_max_(logits.shape[1] - 1)
    return Draws(columns.squeeze(1).tolist(), log_probs.gather(1, columns).squeeze(1).tolist())


def _some_greedy(logits: Tensor, temperatures: Sequence[float], uniforms: Sequence[float]) -> Draws:
    """The same where a temperature is 0: those rows apart from the others, which are drawn as ever."""
    best = logits.argmax(-1).tolist()
    warm = [row for row, temperature in enumerate(temperatures) if temperature]
    drawn = draw(logits[warm], [temperatures[row] for row in warm], [uniforms[row] for row in warm])
    found = {row: place for place, row in enumerate(warm)}
    return Draws(
        [drawn.columns[found[row]] if row in found else column for row, column in enumerate(best)],
        [drawn.log_probs[found[row]] if row in found else 0.0 for row in range(len(best))],
    )


def entropies(logits: Tensor, temperatures: Sequence[float]) -> list[float]:
    """Entropy in nats of the distribution that each row is drawn from: -sum p log p.

    Args:
        logits: (N, A) float32, finite.
        temperatures: N numbers > 0.
    """
    log_probs = _log_probs(logits, temperatures).double()
    return [float(entropy) for entropy in torch.special.entr(log_probs.exp()).sum(-1)]


def _log_probs(logits: Tensor, temperatures: Sequence[float]) -> Tensor:
    """(N, A) under each row's temperature."""
    if len(set(temperatures)) == 1:
        scaled = logits if temperatures[0] == 1.0 else logits / temperatures[0]
    else:
        scaled = logits / torch.tensor(temperatures, dtype=torch.float32, device=logits.device)[:, None]
    return torch.log_softmax(scaled, -1)

"""Log-probs of tokens under temperature and grammar: the distribution the engine sampled from (law 1).

Tokens drawn from one distribution share it: a head is asked once for each distinct one, in chunks that the backward
pass computes again, so that no (tokens, V) tensor of a batch is ever made. A constrained token renormalises over its
few allowed tokens (rule 10) and never touches the rest of the vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from coplay.training.draws import AllowedSets, Draws, TokenDraws, prepare
from coplay.training.losses import at_least_float32, entropy

CHUNK = 1 << 24
"""Scores a head gives at a time."""
_PIECE = 256
"""Distributions whose entropies are measured at once."""

Head = Callable[[Tensor, Tensor | None], Tensor]
"""Scores (Q, V) of hidden states (Q, H), or those (Q, A) of A ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyOf:
    """Which entropy is wanted."""

    top_k: int | None = None
    """Renormalise over the k likeliest; None: over all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """What a network says of N tokens."""

    log_probs: Tensor
    """(N,), at least float32."""
    entropies: Tensor | None
    """(N,) of each token's distribution, over its allowed tokens (rule 10); None if not asked for."""
    measured: Tensor | None = None
    """(N,) the same over all allowed tokens, without gradient; None if not asked for."""


def score(
    draws: TokenDraws,
    hidden: Tensor,
    head: Head,
    *,
    entropy_of: EntropyOf | None = None,
    measure: bool = False,
) -> TokenScores:
    """Log-probs, and entropies where asked for, of the tokens drawn at some hidden states.

    Args:
        draws: tokens and distributions; its slots count the rows of `hidden`.
        hidden: (S, H).
        head: scores of hidden states.
        entropy_of: which entropy; None: none with a gradient.
        measure: give the entropy over all allowed tokens without gradient as well.
    """
    parts = [part for part in (draws.free, draws.bound) if len(part.tokens)] or [draws.free]
    answers = [_answer(part, hidden[part.slots], head, entropy_of, measure=measure) for part in parts]
    log_probs, entropies, measured = (torch.cat(parts_of) for parts_of in zip(*answers, strict=True))
    return TokenScores(
        log_probs=log_probs[draws.order],
        entropies=None if entropy_of is None else entropies[draws.order],
        measured=measured[draws.order] if measure else None,
    )


def likeliest(draws: TokenDraws, hidden: Tensor, head: Head) -> Tensor:
    """(N,) True where no other token that was allowed is likelier; arguments as of `score`."""
    found = []
    for part in (draws.free, draws.bound):
        states = hidden[part.slots]
        for first, last, first_token, last_token in part.chunks if len(part.tokens) else ():
            best = _supported(part, slice(first, last), states[first:last], head).argmax(dim=-1)
            tokens = slice(first_token, last_token)
            found.append(best[part.of[tokens] - first] == part.choice[tokens])
    return torch.cat(found)[draws.order]


def _answer(
    draws: Draws, states: Tensor, head: Head, entropy_of: EntropyOf | None, *, measure: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs (n,), entropies and measured ones (n,) or (0,), chunk by chunk."""
    again = len(draws.chunks) > 1 and torch.is_grad_enabled()
    found, measured = [], list[Tensor]()
    for number, (first, last, first_token, last_token) in enumerate(draws.chunks):

        def chunk(
            rows: Tensor,
            number: int = number,
            first: int = first,
            last: int = last,
            tokens: slice = slice(first_token, last_token),
        ) -> tuple[Tensor, Tensor]:
            logits = _supported(draws, slice(first, last), rows, head)
            of = draws.of[tokens] - first
            if measure and len(measured) == number:  # and not again in the backward pass
                measured.append(_measured(logits)[of])
            # not logit - logsumexp: both are large, and 1 - p of a likely token would be their rounding
            chosen = torch.log_softmax(logits, dim=-1)[of, draws.choice[tokens]]
            if entropy_of is None:
                return chosen, chosen[:0]
            return chosen, entropy(logits, top_k=entropy_of.top_k)[of]

        rows = states[first:last]
        if again:
            found.append(checkpoint(chunk, rows, use_reentrant=False, preserve_rng_state=False))
        else:
            found.append(chunk(rows))
    chosen, entropies = (torch.cat(parts) for parts in zip(*found, strict=True))
    return chosen, entropies, torch.cat(measured) if measured else chosen[:0].detach()


def _measured(logits: Tensor) -> Tensor:
    """Entropies without gradient, in pieces, so that no second (Q, V) is ever held."""
    with torch.no_grad():
        starts = range(0, max(len(logits), 1), _PIECE)
        return torch.cat([entropy(logits[start : start + _PIECE]) for start in starts])


def _supported(draws: Draws, places: slice, rows: Tensor, head: Head) -> Tensor:
    """Tempered logits of some distributions over their support, -inf on its padding."""
    temperature = None if draws.temperature is None else draws.temperature[places]
    if draws.support is None or draws.support_mask is None:
        return _tempered(head(rows, None), temperature)
    few = head(rows, draws.ids).gather(1, draws.support[places])
    return _tempered(few, temperature).masked_fill(~draws.support_mask[places], -torch.inf)


def _tempered(logits: Tensor, temperature: Tensor | None) -> Tensor:
    """Logits (N, V) / temperature (N,), None for 1, in float32 at least."""
    exact = at_least_float32(logits)
    return exact if temperature is None else exact / temperature.to(exact)[:, None]


def token_log_probs(
    logits: Tensor,
    targets: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    allowed: AllowedSets | None = None,
    entropy_of: EntropyOf | None = None,
    measure: bool = False,
) -> TokenScores:
    """Log-prob of each target under its tempered and, where a grammar held, renormalised distribution.

    Args:
        logits: (N, V), at action positions only.
        targets: (N,) long.
        temperature: T > 0, or (N,).
        allowed: what the grammar allowed at each token; None: everything everywhere.
        entropy_of: which entropy to give beside; None: none with a gradient.
        measure: give the entropy over all allowed tokens without gradient as well.

    Raises:
        ValueError: if a temperature is not positive, shapes differ, or a target is not allowed.
    """
    if logits.dim() != 2 or targets.shape != logits.shape[:1]:
        raise ValueError(
            f"logits are {tuple(logits.shape)}, targets {tuple(targets.shape)}; expected (N, V) and (N,)"
        )
    heat = temperature if isinstance(temperature, Tensor) else torch.full(targets.shape, float(temperature))
    prepared = prepare(
        targets.cpu(), heat.cpu(), None if allowed is None else allowed.to(torch.device("cpu"))
    )
    places = torch.arange(len(targets))
    draws = prepared.draws(places, places, chunk=CHUNK, vocabulary=logits.shape[1]).to(logits.device)
    return score(
        draws,
        logits,
        lambda rows, ids: rows if ids is None else rows[:, ids],
        entropy_of=entropy_of,
        measure=measure,
    )

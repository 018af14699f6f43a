"""Replies while they are being sampled: which tokens may come next, which were drawn, and why it ended."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.policy import Policy
from coplay.agents.sampling import draw, entropies, uniform


class ReplyState:
    """One reply in the making. Tokens without alternative are appended without asking the model."""

    __slots__ = ("entropy", "finish", "ids", "log_probs", "node", "pending", "request", "sampled")

    def __init__(self, request: SampleRequest) -> None:
        """Start the reply.

        Raises:
            ValueError: if the request asks for what cannot be sampled.
        """
        if not request.context or request.max_new_tokens < 1 or not 0.0 <= request.temperature < math.inf:
            raise ValueError(
                f"request {request.key!r} has {len(request.context)} context tokens, max_new_tokens"
                f" {request.max_new_tokens} and temperature {request.temperature}; expected at least one of"
                " each and a finite temperature of at least 0"
            )
        self.request = request
        self.ids: list[int] = []
        self.log_probs: list[float] = []
        self.sampled: list[bool] = []
        self.entropy = 0.0 if request.tells_entropy else None
        self.finish = ""
        """Empty while tokens are still to come."""
        self.node = 0
        self.pending: tuple[int, ...] = ()
        """Tokens since the last choice, which the model has yet to read."""
        if request.trie is not None:
            self._force()

    def whole(self) -> tuple[int, ...]:
        """All tokens so far: the context and the reply."""
        return (*self.request.context, *self.ids)

    def take(self, token: int, log_prob: float) -> None:
        """Append a drawn token and what follows it by force."""
        request, begun = self.request, len(self.ids)
        self.ids.append(token)
        self.log_probs.append(log_prob)
        self.sampled.append(True)
        if request.trie is not None:
            self.node = request.trie.children[self.node][token]
            self._force()
        elif token in request.stop_ids or (request.is_whole is not None and request.is_whole(self.ids)):
            self.finish = "stop"
        elif len(self.ids) >= request.max_new_tokens:
            self.finish = "length"
        self.pending = tuple(self.ids[begun:])

    def _force(self) -> None:
        trie = self.request.trie
        assert trie is not None
        while not self.finish:
            allowed = trie.allowed[self.node]
            if not allowed:
                self.finish = "grammar"
            elif len(self.ids) >= self.request.max_new_tokens:
                self.finish = "length"
            elif len(allowed) > 1:
                return
            else:
                self.ids.append(allowed[0])
                self.log_probs.append(0.0)
                self.sampled.append(False)
                self.node = trie.children[self.node][allowed[0]]

    def sample(self) -> Sample:
        """The finished reply."""
        return Sample(tuple(self.ids), tuple(self.log_probs), tuple(self.sampled), self.finish, self.entropy)

    @property
    def lacks_entropy(self) -> bool:
        """True if it is asked for and the next token is the first that is drawn; greedily taken ones have 0."""
        return self.entropy is not None and self.request.temperature > 0 and not any(self.sampled)


def choose(policy: Policy, states: Sequence[ReplyState], hidden: Tensor) -> None:
    """Draw the next token of every reply.

    Args:
        policy: gives the scores.
        states: N replies that are not finished.
        hidden: (N, H) at the last token of each.

    Raises:
        ValueError: naming the request whose scores are not finite.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for index, state in enumerate(states):
        groups.setdefault((id(state.request.trie), state.node), []).append(index)
    for members in groups.values():
        chosen = [states[index] for index in members]
        rows = hidden if len(members) == len(states) else hidden[torch.tensor(members, device=hidden.device)]
        trie = chosen[0].request.trie
        allowed = None if trie is None else trie.allowed[chosen[0].node]
        tokens = None if allowed is None else torch.tensor(allowed, device=hidden.device)
        logits = policy.logits(rows, tokens)
        if not torch.isfinite(logits).all():
            broken = [
                chosen[row].request.key for row in (~torch.isfinite(logits)).any(-1).nonzero()[:, 0].tolist()
            ]
            raise ValueError(
                f"policy {policy.label!r} gives scores that are not finite for request {broken[0]!r} and"
                f" {len(broken) - 1} more; expected finite scores: its weights are broken, take a checkpoint"
            )
        asking = [row for row, state in enumerate(chosen) if state.lacks_entropy]
        if asking:
            told = entropies(logits[asking], [chosen[row].request.temperature for row in asking])
            for row, entropy in zip(asking, told, strict=True):
                chosen[row].entropy = entropy
        draws = draw(
            logits,
            [state.request.temperature for state in chosen],
            [uniform(state.request.seed, len(state.ids)) for state in chosen],
        )
        for state, column, log_prob in zip(chosen, draws.columns, draws.log_probs, strict=True):
            state.take(column if allowed is None else allowed[column], log_prob)

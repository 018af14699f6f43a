"""A policy as a strategy on a small game's tree (`games/solve.py`): its probabilities, read once a decision."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp

import torch

from coplay.agents.constraint import TokenTrie
from coplay.agents.language import SamplingSettings
from coplay.agents.policy import Policy
from coplay.agents.scripted_strategies import decisions_of
from coplay.agents.transcript import Transcript
from coplay.games.game_tree import Decision, GameTree, Information
from coplay.games.solve import Strategy, table_strategy

Tokens = tuple[int, ...]
Place = tuple[Tokens, Tokens]
"""All ids before a choice, and the tokens that it is among."""
MAX_BATCH_TOKENS = 16384
"""Of one forward pass, padding included."""


class UnlistedRepliesError(ValueError):
    """A policy's replies cannot be listed: it may say what is no move."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One decision as the policy reads it."""

    transcript: Transcript
    replies: Mapping[str, Tokens]
    """Canonical reply -> its tokens, the end token too where one is sampled."""
    trie: TokenTrie

    def choices(self, reply: str) -> Iterator[tuple[Place, int]]:
        """Of each choice on the way to a reply: where it stands, and which of its tokens is taken."""
        context, tokens = self.transcript.ids, self.replies[reply]
        for place, allowed in enumerate(self.trie.walk(tokens)):
            if len(allowed) > 1:
                yield (context + tokens[:place], allowed), allowed.index(tokens[place])


def policy_strategy(policy: Policy, sampling: SamplingSettings, tree: GameTree, player: str) -> Strategy:
    """What a policy replies in a seat: P(reply) = Π over its tokens of softmax(z / T) among the allowed ones.

    Contexts are those of its transcripts, token for token; each distinct one goes through the model once.

    Raises:
        UnlistedRepliesError: if replies are sampled without their grammar, or would be cut before their end.
        ContextOverflowError: if a dialogue does not fit the context.
    """
    if not sampling.constrained:
        raise UnlistedRepliesError(
            f"policy {policy.label!r} samples without constraint, so that replies which are no moves have a share of"
            " its probability; expected agents.sampling.constrained = true"
        )
    situations: dict[Information, Situation] = {}
    for information, decision in decisions_of(tree, player).items():
        situations[information] = _situation(policy, sampling, situations, information, decision)
    places = {
        place for one in situations.values() for reply in one.replies for place, _ in one.choices(reply)
    }
    scores = _log_probs(policy, sampling.temperature, places)
    return table_strategy(
        {
            information: {
                reply: exp(sum(scores[place][taken] for place, taken in one.choices(reply)))
                for reply in one.replies
            }
            for information, one in situations.items()
        }
    )


def _situation(
    policy: Policy,
    sampling: SamplingSettings,
    known: Mapping[Information, Situation],
    information: Information,
    decision: Decision,
) -> Situation:
    """Read what is new, after what was read and replied before."""
    chat = policy.chat
    if decision.observation.tools is not None:
        raise UnlistedRepliesError(
            f"the game offers tools to {decision.player!r}, whose calls are no listed replies; expected a game without"
        )
    trie = chat.trie(decision.observation.grammar)
    assert trie is not None, "a tree lists its moves"
    replies = {reply: trie.sampled(chat.encode_label(reply), chat.stop_ids[0]) for reply in decision.moves}
    longest = max(map(len, replies.values()))
    if longest > sampling.max_new_tokens:
        raise UnlistedRepliesError(
            f"policy {policy.label!r} is cut after {sampling.max_new_tokens} tokens and a move has {longest}; expected"
            " agents.sampling.max_new_tokens of at least that"
        )
    if len(information) == 1:
        transcript = Transcript(chat, max_context=sampling.max_context, overflow=sampling.overflow)
    else:
        before, reply = known[information[:-2]], information[-2]
        transcript = before.transcript.fork()
        transcript.record(before.replies[reply], chat.decode(before.replies[reply]))
    transcript.observe(decision.observation)
    return Situation(transcript, replies, trie)


def _log_probs(policy: Policy, temperature: float, places: set[Place]) -> dict[Place, Sequence[float]]:
    """Log-softmax over the allowed tokens at each place; contexts that begin others are read with them."""
    found: dict[Place, Sequence[float]] = {}
    rows: list[list[Place]] = []
    for place in sorted(places, reverse=True):
        if rows and rows[-1][0][0][: len(place[0])] == place[0]:
            rows[-1].append(place)
        else:
            rows.append([place])
    rows.sort(key=lambda row: len(row[0][0]))
    for batch in _batches(rows):
        width = len(batch[-1][0][0])
        ids = torch.tensor(
            [[*row[0][0], *[0] * (width - len(row[0][0]))] for row in batch], device=policy.device
        )
        with torch.inference_mode():
            hidden = policy.hidden(ids)
            for states, row in zip(hidden, batch, strict=True):
                for context, allowed in row:
                    tokens = torch.tensor(allowed, device=policy.device)
                    logits = policy.logits(states[len(context) - 1], tokens).double() / temperature
                    found[context, allowed] = logits.log_softmax(0).tolist()
    return found


def _batches(rows: Sequence[list[Place]]) -> Iterator[Sequence[list[Place]]]:
    """Rows of ascending length, so many together as one pass may hold."""
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or len(rows[end][0][0]) * (end + 1 - start) > MAX_BATCH_TOKENS:
            yield rows[start:end]
            start = end

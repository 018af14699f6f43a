"""Tokens of turns with tool calls: what each sample was drawn under, and what tools said, which no loss sees.

State masking (Search-R1's word) is how coplay works: what was not sampled is context. Where a run turns it off to
show the harm (`objective.mask_tool_output`), the fence around it is here: cells of results are taken into a token
batch as if they were actions, free ones, at the trainer's own log-probs. Nothing else ever sees them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from coplay.agents.base import Segment
from coplay.agents.constraint import TokenTrie
from coplay.agents.policy import Policy
from coplay.games import Grammar
from coplay.rollout_tree import Turn
from coplay.rollout_tree.trajectories import Row
from coplay.training.passes import ReadPlan, all_log_probs, token_passes
from coplay.training.records import TokenBatch

TrieOf = Callable[[Grammar], TokenTrie | None]
Drawn = tuple[TokenTrie | None, Sequence[Segment]]
"""What a sample was the choice of (None: it was free), and its tokens, forced ones included."""


def samples(turn: Turn, trie_of: TrieOf, *, tool_output: bool = False) -> list[Drawn]:
    """The samples of a turn, one more than its tool calls.

    Args:
        turn: whose.
        trie_of: the choices of a grammar.
        tool_output: put in between, as free samples, what tools said.
    """
    grammar, constrained = turn.observation.grammar, bool(turn.sampling and turn.sampling.constrained)
    tools = turn.observation.tools
    if tools is None:
        return [(trie_of(grammar) if constrained else None, turn.segments[1:])]
    found: list[Drawn] = []
    start = 1
    for number, end in enumerate([*[call.place for call in turn.calls], None]):
        if start > len(turn.segments):
            break  # the last result found no room, so that nothing follows it
        drawn = turn.calls[number].constrained if number < len(turn.calls) else constrained
        listed = tools.grammar_of(number, grammar) if drawn else None
        found.append((None if listed is None else trie_of(listed), turn.segments[start:end]))
        if end is not None and tool_output:
            found.append((None, [replace(turn.segments[end], sampled=True)]))
        start = len(turn.segments) + 1 if end is None else end + 1
    return found


def with_told(row: Row, turns: Sequence[Turn]) -> Row:
    """The row with what tools said as if it had been sampled, at log-probs that are not known."""
    told = told_cells(row, turns)
    return replace(
        row, sampled=row.sampled | told, log_probs=np.where(told, np.float32(np.nan), row.log_probs)
    )


def told_cells(row: Row, turns: Sequence[Turn]) -> NDArray[np.bool_]:
    """(S,) True where a tool speaks, in turns that train in this row."""
    told = np.zeros(len(row.ids), dtype=np.bool_)
    for number in np.unique(row.turn[row.sampled]).tolist():
        turn, first = turns[number], int(np.argmax(row.turn == number))
        ends = np.cumsum([len(segment.ids) for segment in turn.segments])
        for call in turn.calls:
            if call.place is not None:
                told[first + int(ends[call.place - 1]) : first + int(ends[call.place])] = True
    return told


def with_own_behaviour(policy: Policy, batch: TokenBatch, reading: ReadPlan) -> TokenBatch:
    """The batch with the trainer's log-probs in place of those that nobody sampled with (NaN): a ratio of one there."""
    unknown = torch.isnan(batch.behaviour)
    if not bool(unknown.any()):
        return batch
    own = all_log_probs(policy, token_passes(batch, policy, reading), reading).to(batch.behaviour)
    return replace(batch, behaviour=torch.where(unknown, own, batch.behaviour))

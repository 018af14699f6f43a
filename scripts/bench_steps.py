"""What `bench_train_step` measures: batches of four shapes, and the reference systems' training step."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coplay.agents.base import Seat
from coplay.agents.chat import ChatFormat
from coplay.agents.engine import Sample, SampleRequest
from coplay.agents.language import LanguageAgent, SamplingSettings
from coplay.agents.policy import Policy
from coplay.games import make_game
from coplay.rollout_tree import BranchPlan, CollectPlan, collect_sync, plan_episodes
from coplay.training.draws import AllowedSets
from coplay.training.extract import extract, token_batch
from coplay.training.losses import normaliser, reinforce
from coplay.training.records import TokenBatch

LABEL, OTHER = "bench@0", "other@0"


class ScriptedEngine:
    """Replies by a fixed policy: an option of the grammar, the first with a given chance, after some words."""

    def __init__(self, chat: ChatFormat, *, first: float, words: int) -> None:
        self._chat = chat
        self._first = first
        self._words = words
        self._vocabulary = chat.encode_label("I think that we could both gain more if you trust me now")

    async def sample(self, request: SampleRequest) -> Sample:
        """Draw a reply from the request's seed."""
        luck = random.Random(request.seed)  # noqa: S311 - no secret
        if request.trie is not None:
            node, ids, sampled = 0, list[int](), list[bool]()
            while not request.trie.is_leaf(node):
                options = request.trie.allowed[node]
                token = options[0] if luck.random() < self._first else luck.choice(options[1:] or options)
                ids.append(token)
                sampled.append(len(options) > 1)
                node = request.trie.children[node][token]
            return Sample(tuple(ids), (-0.5,) * len(ids), tuple(sampled), "grammar")
        said = tuple(luck.choices(self._vocabulary, k=self._words))
        move = self._chat.encode_label(f"<move>{'A' if luck.random() < self._first else 'B'}</move>")
        whole = (*said, *move, request.stop_ids[0])
        return Sample(whole, (-0.5,) * len(whole), (True,) * len(whole), "stop")

    def publish(self, policy: str) -> str:
        """There are no weights."""
        return policy

    def close(self) -> None:
        """There is nothing to free."""


def single_decisions(chat: ChatFormat) -> TokenBatch:
    """(a) A group of 8 games of one decision: a prompt of 330 tokens, replies of 30."""
    luck = random.Random(1)  # noqa: S311 - no secret
    known = chat.encode_label(
        "I think that we could both gain more if you trust me now, and I will trust you too."
    )
    prompt = luck.choices(known, k=330)
    firsts = luck.sample(sorted(set(known)), 8)
    rows = [[*prompt, first, *luck.choices(known, k=29)] for first in firsts]
    ids = torch.tensor(rows)
    row, column = torch.arange(8).repeat_interleave(30), torch.arange(330, 360).repeat(8)
    count = len(row)
    return TokenBatch(
        ids=ids,
        lengths=torch.full((8,), 360),
        row=row,
        column=column,
        targets=ids[row, column],
        behaviour=torch.full((count,), -0.5),
        temperature=torch.ones(count),
        path=row,
        tick=torch.zeros(count, dtype=torch.long),
        turn=row,
        place=torch.zeros(count, 2, dtype=torch.long),
        penalty=torch.zeros(count),
        entropy_mask=torch.ones(count, dtype=torch.bool),
        allowed=AllowedSets.none(count),
        num_trajectories=8,
    )


def played(
    chat: ChatFormat,
    *,
    games: int,
    wording: str,
    words: int,
    branching: BranchPlan | None = None,
    one_seat: bool = False,
) -> TokenBatch:
    """All rows of games of ten rounds of the prisoner's dilemma, both seats (or the first) held by the policy."""
    game = make_game("iterated_matrix", preset="prisoners_dilemma", num_rounds=10, wording=wording)
    engine = ScriptedEngine(chat, first=0.9, words=words)
    sampling = SamplingSettings(constrained=wording == "terse")

    names = dict(zip(game.spec.players, (LABEL, OTHER if one_seat else LABEL), strict=True))

    def sits(seat: Seat) -> LanguageAgent:
        return LanguageAgent(engine, chat, names[seat.player], sampling, run_seed=1)

    episodes = plan_episodes(
        game,
        run_seed=1,
        iteration=0,
        num_groups=1,
        group_size=games,
        seats=dict.fromkeys(game.spec.players, sits),
        seat_names=names,
    )
    trees = collect_sync(CollectPlan(game=game, episodes=episodes, branching=branching))
    paths = extract(trees, branches=branching is not None)
    batch = token_batch(paths, policy=LABEL, trie_of=chat.trie, reward_scale=1.0)
    assert batch is not None
    return batch


CASES: dict[str, tuple[str, Callable[[ChatFormat], TokenBatch]]] = {
    "a": ("8 single decisions of one group", single_decisions),
    "b": (
        "8 dialogues of 10 rounds",
        lambda chat: played(chat, games=8, wording="full", words=8, one_seat=True),
    ),
    "c": (
        "a game of 10 rounds, 2 alternatives at every reply",
        lambda chat: played(chat, games=1, wording="full", words=8, branching=BranchPlan(num_alternatives=2)),
    ),
    "d": (
        "64 dilemma games by a fixed policy",
        lambda chat: played(chat, games=64, wording="terse", words=0),
    ),
}


def unmerged(batch: TokenBatch) -> TokenBatch:
    """The batch with a row for every path, alike or not, as reference systems hold it."""
    owners = torch.stack([batch.path, batch.place[:, 0]], dim=1)
    unique, row = torch.unique(owners, dim=0, return_inverse=True)
    source = torch.zeros(len(unique), dtype=torch.long).scatter(0, row, batch.row)
    return replace(batch, ids=batch.ids[source], lengths=batch.lengths[source], row=row)


def some_rows(batch: TokenBatch, every: int) -> TokenBatch:
    """Every n-th row of a batch, with its tokens."""
    rows = torch.arange(0, len(batch.ids), every)
    kept = torch.isin(batch.row, rows)
    names = ("column", "targets", "behaviour", "temperature", "path", "tick", "turn", "place", "penalty")
    chosen = {name: getattr(batch, name)[kept] for name in (*names, "entropy_mask")}
    return replace(
        batch,
        ids=batch.ids[rows],
        lengths=batch.lengths[rows],
        row=batch.row[kept] // every,
        allowed=batch.allowed.select(kept.nonzero().squeeze(1)),
        **chosen,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep:
    """Forward and backward as the reference systems do it.

    Rows in the order they came in, padded; logits of every token; a boolean for every token and word where a grammar
    holds; entropy always computed.
    """

    rows_at_a_time: int = 8

    def __call__(self, policy: Policy, batch: TokenBatch, credits: Tensor) -> float:
        """The loss; gradients are left in the parameters."""
        divisor = normaliser(
            "trajectories", num_trajectories=batch.num_trajectories, num_tokens=batch.num_tokens
        )
        total = 0.0
        for first in range(0, len(batch.ids), self.rows_at_a_time):
            tokens = ((batch.row >= first) & (batch.row < first + self.rows_at_a_time)).nonzero().squeeze(1)
            rows = slice(first, first + self.rows_at_a_time)
            ids = batch.ids[rows, : int(batch.lengths[rows].max())]
            logits = policy.logits(policy.hidden(ids[:, :-1]))  # (B, T - 1, V)
            place = batch.row[tokens] - first, batch.column[tokens] - 1
            sets = batch.allowed.select(tokens)
            if bool((sets.index >= 0).any()):
                logits = logits.masked_fill(~_allowed_words(logits, sets, place), -torch.inf)
            log_probs = torch.log_softmax(logits, dim=-1)
            picked = log_probs.gather(-1, ids[:, 1:, None]).squeeze(-1)[place]
            entropies = -(log_probs.exp() * torch.nan_to_num(log_probs, neginf=0.0)).sum(-1)[place]
            ratios = (picked - batch.behaviour[tokens]).detach().exp().clamp(max=2.0)
            loss = reinforce(picked, credits[tokens], ratios).sum() / divisor
            torch.autograd.backward(loss)
            total += loss.item() + 0.0 * entropies.sum().item()
        return total


def _allowed_words(logits: Tensor, sets: AllowedSets, place: tuple[Tensor, Tensor]) -> Tensor:
    """(B, T, V) True where a word may stand."""
    allowed = torch.ones_like(logits, dtype=torch.bool)
    for row, column, index in zip(*place, sets.index, strict=True):
        if index >= 0:
            allowed[row, column] = False
            allowed[row, column, sets.table[index][sets.table_mask[index]]] = True
    return allowed

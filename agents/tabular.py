"""Tabular softmax policies: one logit for each token that may come next in each situation of a small game.

They take the road of every other policy: a decoder whose hidden state at a position is the table's row for the tokens
read so far, under the same engine, agents, rows and steps. What a player may have read is enumerated beforehand.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from coplay.agents.chat import ChatFormat
from coplay.agents.constraint import TokenTrie
from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.agents.policy import Policy
from coplay.agents.trunk import Trunk
from coplay.agents.weights import Network, read_tensors
from coplay.games.game_tree import Decision, GameTree, Information
from coplay.games.solve import Strategy

TABLE_FILE = "table.safetensors"
ROOT, LOST = 0, 1
"""States of the reader: nothing read yet; something read that the table does not know."""
Tokens = tuple[int, ...]


class TabularError(ValueError):
    """A game cannot be played by a table, or a table is asked about a situation that it lacks."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One decision of one player, as tokens."""

    context: Tokens
    labels: Mapping[str, Tokens]
    """Canonical reply -> its tokens."""
    trie: TokenTrie


class TabularDecoder(nn.Module):
    """Reads tokens and looks up a row of logits, one for each action token; NaN wherever nothing is to be chosen.

    NaN on purpose: sampler and trainer refuse scores that are not finite, so a context that was not enumerated is
    found out and not played by a table of zeros.
    """

    def __init__(self, contexts: tuple[Tokens, ...], num_actions: int, vocabulary: int) -> None:
        super().__init__()
        following: list[dict[int, int]] = [{}, {}]
        rows = [len(contexts)] * 2
        for row, context in enumerate(contexts):
            state = ROOT
            for token in context:
                if token not in following[state]:
                    following[state][token] = len(following)
                    following.append({})
                    rows.append(len(contexts))
                state = following[state][token]
            rows[state] = row
        moves = torch.full((len(following), vocabulary), LOST, dtype=torch.int32)
        for state, nexts in enumerate(following):
            for token, after in nexts.items():
                moves[state, token] = after
        self.config = SimpleNamespace(
            hidden_size=num_actions,
            num_hidden_layers=1,
            num_attention_heads=1,
            head_dim=1,
            _attn_implementation="eager",
        )
        """What a transformer's would say: one cached number a token, masks understood."""
        self.register_buffer("moves", moves)
        self.register_buffer("rows", torch.tensor(rows))
        self.register_buffer("nowhere", torch.full((1, num_actions), torch.nan))
        self.logits = nn.Parameter(torch.zeros(len(contexts), num_actions))

    @property
    def dtype(self) -> torch.dtype:
        """Of the logits."""
        return self.logits.dtype

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool = False,
        past_key_values: Any = None,
    ) -> SimpleNamespace:
        """Rows of logits (B, T, A) as `last_hidden_state`, as a decoder gives hidden states.

        The cache holds what was read: token ids as keys. A mask says which tokens precede which (packed rows).
        """
        if past_key_values is None:
            states = self._walk(input_ids, attention_mask)
        else:
            assert position_ids is not None
            ids = input_ids[:, None, :, None]
            read, _ = past_key_values.update(ids, ids, 0)
            states = self._walk(read[:, 0, :, 0], None).gather(1, position_ids.expand(input_ids.shape))
        table = torch.cat((self.logits, self._buffer("nowhere")))
        return SimpleNamespace(last_hidden_state=functional.embedding(self._buffer("rows")[states], table))

    def _walk(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T) the reader's state after each token: its predecessor's, moved on."""
        num_rows, length = ids.shape
        moves = self._buffer("moves")
        states = torch.full((num_rows, length + 1), ROOT, dtype=torch.int64, device=ids.device)
        before = torch.arange(length, device=ids.device).expand(num_rows, length)
        if mask is not None:
            seen = mask.expand(num_rows, 1, length, length)[:, 0] & torch.ones(length, length).tril(-1).bool()
            places = torch.arange(1, length + 1, device=ids.device)
            before = (seen * places).amax(-1)
        for place in range(length):
            known = states.gather(1, before[:, place : place + 1])[:, 0]
            states[:, place + 1] = moves[known, ids[:, place]]
        return states[:, 1:]

    def _buffer(self, name: str) -> Tensor:
        found: Tensor = self.get_buffer(name)
        return found


class TabularWeights:
    """The table, and which of its cells stand for which reply to which information."""

    def __init__(self, situations: Mapping[tuple[str, Information], Situation], vocabulary: int) -> None:
        self.situations = dict(situations)
        contexts: dict[Tokens, None] = {}
        actions: set[int] = set()
        for situation in situations.values():
            for path, node in _choices(situation.trie):
                contexts.setdefault((*situation.context, *path))
                actions.update(situation.trie.allowed[node])
        self.rows = {context: row for row, context in enumerate(contexts)}
        self.columns = {token: column for column, token in enumerate(sorted(actions))}
        self.decoder = TabularDecoder(tuple(contexts), len(self.columns), vocabulary)
        self.network = self._network(self.decoder)

    def _network(self, decoder: TabularDecoder) -> Network:
        head = nn.Linear(len(self.columns), decoder.get_buffer("moves").shape[1], bias=False)
        head.weight.requires_grad_(False).zero_()
        for token, column in self.columns.items():
            head.weight[token, column] = 1.0
        return Network(Trunk(decoder), head)

    def tensors(self) -> dict[str, nn.Parameter]:
        """The table (rows, action tokens)."""
        return {"logits": self.decoder.logits}

    def train(self, *, trained: bool) -> None:
        """Set whether the table requires grad."""
        self.decoder.logits.requires_grad_(trained)

    def reference(self) -> Network:
        """A frozen copy of the table as it is now."""
        twin = TabularDecoder(tuple(self.rows), len(self.columns), self.decoder.get_buffer("moves").shape[1])
        with torch.no_grad():
            twin.logits.copy_(self.decoder.logits)
        twin.requires_grad_(False)
        return self._network(twin)

    def save(self, folder: Path) -> None:
        """Write the table."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"logits": self.decoder.logits.detach().cpu().contiguous()}, folder / TABLE_FILE)

    def read(self, folder: Path) -> dict[str, Tensor]:
        """The table that `save` wrote."""
        if not (folder / TABLE_FILE).is_file():
            raise ValueError(f"{str(folder)!r} holds no table; expected a file {TABLE_FILE!r}")
        return read_tensors(folder / TABLE_FILE)

    def cells(self, player: str, information: Information, reply: str) -> Iterator[tuple[int, Tensor, int]]:
        """Of each choice on the way to a reply: row, the columns that were possible, and the place of the taken one.

        Raises:
            TabularError: if the table has no such situation or reply.
        """
        situation = self.situations.get((player, information))
        if situation is None or reply not in situation.labels:
            raise TabularError(
                f"the table has no reply {reply!r} of {player!r} to {information!r}; expected one of the game that it"
                " was made for, in the same wording"
            )
        node, tokens = 0, situation.labels[reply]
        for place, token in enumerate(tokens):
            allowed = situation.trie.allowed[node]
            if len(allowed) > 1:
                row = self.rows[(*situation.context, *tokens[:place])]
                yield row, torch.tensor([self.columns[one] for one in allowed]), allowed.index(token)
            node = situation.trie.children[node][token]


def tabular_policy(
    name: str,
    tree: GameTree,
    *,
    players: tuple[str, ...] | None = None,
    trained: bool = True,
    keep_reference: bool = False,
) -> Policy:
    """A uniform policy that can play these players of an enumerated game, by the embedded tokenizer, at temperature 1.

    Replies have to be constrained to the grammar. Situations whose tokens are alike share a row.

    Args:
        name: of the policy.
        tree: of the game, with perfect recall.
        players: None: all.
        trained: whether the table may move.
        keep_reference: whether to keep a frozen copy for a KL term.

    Raises:
        TabularError: if a reply's tokens begin another's.
    """
    tokenizer: Any = embedded_tokenizer()
    chat = ChatFormat(tokenizer, stop_ids=(), max_positions=1 << 16)
    seats = tree.players if players is None else players
    found = {
        (node.player, node.information): _situation(chat, node)
        for node in tree.nodes
        if isinstance(node, Decision) and node.player in seats
    }
    weights = TabularWeights(found, len(tokenizer))
    reference = weights.reference() if keep_reference else None
    return Policy(name=name, weights=weights, chat=chat, trained=trained, reference=reference)


def tabular_strategy(policy: Policy) -> Strategy:
    """What a tabular policy plays now, for `games/solve.py`: P(reply) = Π over its choices of softmax(row).

    Raises:
        TabularError: if the policy is no tabular one.
    """
    weights = policy.weights
    if not isinstance(weights, TabularWeights):
        raise TabularError(f"policy {policy.label!r} is no table; expected one of tabular_policy")
    logits = weights.decoder.logits.detach().double().cpu()

    def strategy(decision: Decision) -> dict[str, float]:
        told = {}
        for reply in decision.moves:
            told[reply] = 1.0
            for row, columns, taken in weights.cells(decision.player, decision.information, reply):
                told[reply] *= float(logits[row, columns].softmax(0)[taken])
        return told

    return strategy


def _situation(chat: ChatFormat, node: Decision) -> Situation:
    """The tokens that a player has read when he decides, as his transcript has them."""
    trie = chat.trie(node.observation.grammar)
    assert trie is not None
    labels = {reply: chat.encode_label(reply) for reply in node.moves}
    if any(trie.walk(tokens) and trie.children[_end(trie, tokens)] for tokens in labels.values()):
        raise TabularError(
            f"the tokens of one of {node.moves!r} begin another's; expected labels that no other begins with, as in"
            " the terse wordings"
        )
    first, *rest = node.information
    context = chat.opening(node.observation.system, first)
    for reply, text in zip(rest[::2], rest[1::2], strict=True):
        context = (*context, *chat.encode_label(reply), *chat.following(text, last_reply_ended=False))
    return Situation(context, labels, trie)


def _end(trie: TokenTrie, tokens: Tokens) -> int:
    node = 0
    for token in tokens:
        node = trie.children[node][token]
    return node


def _choices(trie: TokenTrie) -> Iterator[tuple[Tokens, int]]:
    """Every place of a reply where there is something to choose: the tokens before it, and its node."""
    open_places: list[tuple[Tokens, int]] = [((), 0)]
    while open_places:
        path, node = open_places.pop()
        if len(trie.allowed[node]) > 1:
            yield path, node
        open_places += [((*path, token), after) for token, after in trie.children[node].items()]

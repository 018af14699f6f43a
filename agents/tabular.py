"""Tabular softmax policies: one logit for each token that may come next in each situation of a small game.

They take the road of every other policy: a decoder whose hidden state at a position is the table's row for the tokens
read so far, under the same engine, agents, rows and steps. What a player may have read is enumerated beforehand.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from coplay.agents.adapters import fill
from coplay.agents.chat import ChatFormat
from coplay.agents.constraint import TokenTrie
from coplay.agents.embedded_tokenizer import embedded_tokenizer
from coplay.agents.policy import Policy
from coplay.agents.tabular_decoder import TabularDecoder, Tokens
from coplay.agents.trunk import Trunk
from coplay.agents.weights import Network, read_tensors
from coplay.games.game_tree import Decision, GameTree, Information
from coplay.games.solve import Strategy

TABLE_FILE = "table.safetensors"


class TabularError(ValueError):
    """A game cannot be played by a table, or a table is asked about a situation that it lacks."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One decision of one player, as tokens."""

    context: Tokens
    labels: Mapping[str, Tokens]
    """Canonical reply -> its tokens."""
    trie: TokenTrie


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
        told = repr((tuple(contexts), tuple(self.columns)))
        self.digest = hashlib.sha256(told.encode()).hexdigest()
        """Of what rows and columns stand for."""
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
        """Write the table, and which situations it is of."""
        folder.mkdir(parents=True, exist_ok=True)
        table = {"logits": self.decoder.logits.detach().cpu().contiguous()}
        save_file(table, folder / TABLE_FILE, metadata={"situations": self.digest})

    def read(self, folder: Path) -> dict[str, Tensor]:
        """The table that `save` wrote.

        Raises:
            ValueError: if the folder holds none, or one of other situations.
        """
        path = folder / TABLE_FILE
        if not path.is_file():
            raise ValueError(f"{str(folder)!r} holds no table; expected a file {TABLE_FILE!r}")
        found = read_tensors(path)
        with safe_open(path, framework="pt") as opened:
            known = (opened.metadata() or {}).get("situations")
        if known != self.digest:
            raise ValueError(
                f"the table in {str(folder)!r} is of other situations; expected one of the same game, under the same"
                " parameters and wording"
            )
        return found

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
    start: Path | None = None,
) -> Policy:
    """A uniform policy that can play these players of an enumerated game, by the embedded tokenizer, at temperature 1.

    Replies have to be constrained to the grammar. Situations whose tokens are alike share a row.

    Args:
        name: of the policy.
        tree: of the game, with perfect recall.
        players: None: all.
        trained: whether the table may move.
        keep_reference: whether to keep a frozen copy, as it starts, for a KL term.
        start: a folder with a saved table to start from; None: uniform.

    Raises:
        TabularError: if a reply's tokens begin another's.
        ValueError: if the saved table is none, or of other situations.
    """
    tokenizer: Any = embedded_tokenizer()
    chat = tabular_chat(tokenizer)
    seats = tree.players if players is None else players
    found = {
        (node.player, node.information): _situation(chat, node)
        for node in tree.nodes
        if isinstance(node, Decision) and node.player in seats
    }
    weights = TabularWeights(found, len(tokenizer))
    if start is not None:
        fill(weights.tensors(), weights.read(start), whose=f"policy {name!r}")
    reference = weights.reference() if keep_reference else None
    return Policy(name=name, weights=weights, chat=chat, trained=trained, reference=reference)


def tabular_chat(tokenizer: Any) -> ChatFormat:
    """How tables read dialogues: as the embedded model does, of any length."""
    return ChatFormat(tokenizer, stop_ids=(), max_positions=1 << 16)


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
    if node.observation.tools is not None:
        raise TabularError(
            f"the game offers tools to {node.player!r}, whose calls no table knows; expected a game without"
        )
    trie = chat.trie(node.observation.grammar)
    assert trie is not None
    labels = {reply: chat.encode_label(reply) for reply in node.moves}
    if any(trie.sampled(tokens, chat.stop_ids[0]) != tokens for tokens in labels.values()):
        raise TabularError(
            f"the tokens of one of {node.moves!r} begin another's; expected labels that no other begins with, as in"
            " the terse wordings"
        )
    first, *rest = node.information
    context = chat.opening(node.observation.system, first)
    for reply, text in zip(rest[::2], rest[1::2], strict=True):
        context = (*context, *chat.encode_label(reply), *chat.following(text, last_reply_ended=False))
    return Situation(context, labels, trie)


def _choices(trie: TokenTrie) -> Iterator[tuple[Tokens, int]]:
    """Every place of a reply where there is something to choose: the tokens before it, and its node."""
    open_places: list[tuple[Tokens, int]] = [((), 0)]
    while open_places:
        path, node = open_places.pop()
        if len(trie.allowed[node]) > 1:
            yield path, node
        open_places += [((*path, token), after) for token, after in trie.children[node].items()]

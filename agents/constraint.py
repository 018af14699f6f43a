"""Finite languages as token tries: which token may come next. Shared by sampler and trainer: both renormalise alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class TokenTrie:
    """The allowed replies of a grammar, one canonical tokenisation per label.

    A state is a node number; node 0 is the start. If no label's tokens begin another's (prefix-free), a reply ends
    at a leaf without an end token; otherwise `end_id` is an allowed token after every complete label.
    """

    children: tuple[dict[int, int], ...]
    """Per node: allowed token -> next node. A leaf has no children."""
    allowed: tuple[tuple[int, ...], ...]
    """Per node: the allowed tokens in ascending order."""

    def walk(self, ids: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The allowed tokens at each position of a reply.

        Raises:
            ValueError: if a token is not allowed where it stands (the sampler and this trie disagree).
        """
        node, seen = 0, []
        for place, token in enumerate(ids):
            seen.append(self.allowed[node])
            following = self.children[node].get(token)
            if following is None:
                raise ValueError(
                    f"token {token} at place {place} of a constrained reply is not allowed; expected one of"
                    f" {self.allowed[node]}: the reply was sampled under another grammar or tokenizer"
                )
            node = following
        return tuple(seen)

    def is_leaf(self, node: int) -> bool:
        """True where the reply is complete."""
        return not self.children[node]

    def sampled(self, label: Sequence[int], end_id: int) -> tuple[int, ...]:
        """The tokens of a label as they are sampled: with the end token, where its reply might go on.

        Raises:
            KeyError: if it is no label of this trie.
        """
        node = 0
        for token in label:
            node = self.children[node][token]
        return tuple(label) if self.is_leaf(node) else (*label, end_id)


def label_paths(
    labels: Sequence[str], encode: Callable[[str], Sequence[int]], end_id: int
) -> list[tuple[int, ...]]:
    """The tokens of each reply, its end token included where one reply begins another.

    Raises:
        ValueError: if there is no label, a label has no token, or two labels have the same tokens.
    """
    paths = [tuple(encode(label)) for label in labels]
    if not paths or not all(paths) or len(set(paths)) != len(paths):
        raise ValueError(f"labels {labels!r} give token paths {paths!r}; expected distinct, non-empty ones")
    prefixes = {path[:length] for path in paths for length in range(1, len(path))}
    if any(path in prefixes for path in paths):
        paths = [(*path, end_id) for path in paths]
    return paths


def build_trie(labels: Sequence[str], encode: Callable[[str], Sequence[int]], end_id: int) -> TokenTrie:
    """Build the trie of the canonical tokenisations of `labels`.

    Raises:
        ValueError: if there is no label, a label has no token, or two labels have the same tokens.
    """
    children: list[dict[int, int]] = [{}]
    for path in label_paths(labels, encode, end_id):
        node = 0
        for token in path:
            if token not in children[node]:
                children[node][token] = len(children)
                children.append({})
            node = children[node][token]
    return TokenTrie(tuple(children), tuple(tuple(sorted(nexts)) for nexts in children))

"""A tokenizer and its chat template as pure functions from text to exact token ids. No torch here."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer

from coplay.agents.constraint import TokenTrie, build_trie
from coplay.agents.template import Message, derive_pieces
from coplay.games import Grammar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_GUARD = "\uf8ffcoplay\uf8ff"
_BREAK = "\uf8fe"
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNKNOWN_LENGTH = 10**9
"""transformers writes 1e30 where a tokenizer does not know its model's longest context."""

Part = tuple[bool, str]
"""(True, content) or (False, text of the template)."""


def tokenizer_digest(tokenizer: str, template: str, bos: str | None, eos: str | None) -> str:
    """Name a tokenizer (its JSON text), its chat template and its control tokens; equal ones give equal ids."""
    content = json.dumps([_tokenizer_data(tokenizer), template, bos, eos], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def _tokenizer_data(tokenizer: str) -> dict[str, Any]:
    """A tokenizer's JSON without what only cuts or fills batches."""
    data: dict[str, Any] = json.loads(tokenizer)
    data["truncation"] = data["padding"] = None
    return data


class ChatFormat:
    """Token ids of dialogues, built from a fast tokenizer with a chat template.

    A dialogue is opening ids, then per turn the sampled ids of the reply and the following ids. Contents
    are plain text: a control token spelled out in them never becomes that token. A template without system
    role gets the system text at the head of the first user text. An empty system text gives what the
    template writes for a chat without one, which may be a default prompt of its own (`default_system` shows
    it). Safe to share by threads.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        *,
        stop_ids: Sequence[int] = (),
        max_positions: int | None = None,
    ) -> None:
        """Derive the pieces of the template.

        Args:
            tokenizer: a fast tokenizer with a chat template; it is read, not kept for encoding.
            stop_ids: further end tokens of the model (those of its generation settings).
            max_positions: longest context of the model; else the tokenizer's `model_max_length`.

        Raises:
            ValueError: if there is no chat template, no end token, or the template loses a user's text.
        """
        template = tokenizer.chat_template
        if not isinstance(template, str):
            raise ValueError(
                f"the tokenizer {tokenizer.name_or_path!r} has {template!r} as chat template, expected one"
                " text; choose a chat model, or set tokenizer.chat_template"
            )
        self._tokenizer = tokenizer
        written = tokenizer.backend_tokenizer.to_str()
        data = _tokenizer_data(written)
        self.digest = tokenizer_digest(written, template, tokenizer.bos_token, tokenizer.eos_token)
        """Names tokenizer and template; equal digests give equal ids."""
        controls = [
            token for token in data["added_tokens"] if token["special"] or token["content"] in template
        ]
        self._control_ids = {token["content"]: int(token["id"]) for token in controls}
        self._reserved = frozenset(self._control_ids.values())
        self._control = _any_of(token["content"] for token in controls)
        self._special = _any_of(token["content"] for token in controls if token["special"])
        self._strips = {t["content"]: (bool(t["lstrip"]), bool(t["rstrip"])) for t in controls}
        self._decoder = Tokenizer.from_str(json.dumps(data))
        self._plain = _plain_tokenizer(data, self._control_ids)
        self.pieces = derive_pieces(self._render, self._control)
        """The template's own text around contents."""
        self.stop_ids = self._find_stop_ids(stop_ids)
        """Ids that end a reply; the first is the end of turn that the template writes, if it writes one."""
        known = tokenizer.model_max_length < _UNKNOWN_LENGTH
        self.max_positions = max_positions or (int(tokenizer.model_max_length) if known else None)
        """Longest context in tokens; None if neither model nor tokenizer says."""
        self._opening = lru_cache(maxsize=4096)(self._make_opening)
        self._following = lru_cache(maxsize=16384)(self._make_following)
        self._decode = lru_cache(maxsize=16384)(self._make_text)
        self._trie = lru_cache(maxsize=4096)(self._make_trie)

    @property
    def append_only(self) -> bool:
        """False if the template rewrites history: then each turn is a new row of `history` ids."""
        return self.pieces.append_only

    @property
    def default_system(self) -> str:
        """The system text that the template adds of its own when the game's is empty."""
        return self.pieces.default_system

    def opening(self, system: str, text: str) -> tuple[int, ...]:
        """Ids from the start of a context to the place of its first reply."""
        return self._opening(system, text)

    def following(self, text: str, last_reply_ended: bool) -> tuple[int, ...]:
        """Ids from the end of a reply to the place of the next one.

        Args:
            text: what the user says next.
            last_reply_ended: whether the reply's last id is a stop id (`ended`); else the end token is added.
        """
        return self._following(text, last_reply_ended)

    def history(self, system: str, texts: Sequence[str], replies: Sequence[str]) -> tuple[int, ...]:
        """Ids of a whole chat rendered anew up to the next reply, for templates that rewrite it."""
        messages: list[Message] = []
        texts = list(texts)
        if system and self.pieces.system_head is not None:
            messages.append({"role": "system", "content": self._shielded(system)})
        elif system:
            texts[0] = _joined(system, texts[0])
        for place, text in enumerate(texts):
            messages.append({"role": "user", "content": self._shielded(text)})
            if place < len(replies):
                # A thought that the policy wrote stays one here: the template must see its marks to drop it.
                messages.append(
                    {"role": "assistant", "content": self._shielded(replies[place], self._special)}
                )
        return self._ids([(False, self._render(messages, True))], first=True)

    def ended(self, ids: Sequence[int]) -> bool:
        """Whether a reply's own last token closes it."""
        return bool(ids) and ids[-1] in self.stop_ids

    def encode_label(self, text: str) -> tuple[int, ...]:
        """The canonical ids of a reply, without an end token."""
        return tuple(self._text_ids(_clean(text), first=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a reply; end tokens and control tokens are not shown."""
        return self._decode(tuple(ids))

    def trie(self, grammar: Grammar) -> TokenTrie | None:
        """The replies of a grammar as token paths; None if they are too many to list.

        Raises:
            ValueError: if the tokenizer cannot tell two labels apart.
        """
        return self._trie(grammar)

    def probe(self) -> tuple[int, ...]:
        """Ids of a chat with markers, accents and emoji; two tokenizers that agree on it serve one model."""
        first = self.opening("Règles: 1.\n\n1. go", "Ça va? \U0001f642 <|im_end|></s>")
        return (*first, *self.encode_label("10 5"), *self.following("ok\n\n100", last_reply_ended=False))

    def _render(self, messages: Sequence[Message], header: bool) -> str:
        text = self._tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=header
        )
        return str(text)

    def _find_stop_ids(self, further: Sequence[int]) -> tuple[int, ...]:
        found = [self._control_ids[self.pieces.end]] if self.pieces.end else []
        if self._tokenizer.eos_token_id is not None:
            found.append(int(self._tokenizer.eos_token_id))
        stops = tuple(dict.fromkeys([*found, *further]))
        if not stops:
            raise ValueError(
                f"the tokenizer {self._tokenizer.name_or_path!r} has no end token and its template none"
                " after a reply, expected at least one: replies would never end; set tokenizer.eos_token"
            )
        return stops

    def _make_opening(self, system: str, text: str) -> tuple[int, ...]:
        pieces = self.pieces
        if not pieces.append_only:
            return self.history(system, [text], [])
        if system and pieces.system_head is not None:
            head = [(False, pieces.system_head), self._content("system", system), (False, pieces.system_user)]
        else:
            text = _joined(system, text) if system else text
            head = [(False, pieces.user_head)]
        return self._ids([*head, self._content("user", text), (False, pieces.generation)], first=True)

    def _make_following(self, text: str, last_reply_ended: bool) -> tuple[int, ...]:
        closing = self.pieces.closing_after_end if last_reply_ended else self.pieces.closing
        return self._ids(
            [(False, closing), self._content("user", text), (False, self.pieces.generation)], first=False
        )

    def _make_text(self, ids: tuple[int, ...]) -> str:
        return self._decoder.decode([i for i in ids if i not in self.stop_ids], skip_special_tokens=True)

    def _make_trie(self, grammar: Grammar) -> TokenTrie | None:
        labels = grammar.labels()
        return None if labels is None else build_trie(labels, self.encode_label, self.stop_ids[0])

    def _content(self, role: str, text: str) -> Part:
        return True, text.strip() if role in self.pieces.trims else text

    def _shielded(self, text: str, control: re.Pattern[str] | None = None) -> str:
        """Break control tokens spelled out in a content, so that they are text after rendering, too."""
        pattern = control or self._control
        return pattern.sub(lambda match: match.group()[0] + _BREAK + match.group()[1:], _clean(text))

    def _ids(self, parts: Sequence[Part], *, first: bool) -> tuple[int, ...]:
        """Encode parts as the tokenizer would their joined text, but contents as plain text.

        Text of the template that touches a content is encoded together with it; two contents never are.
        """
        ids: list[int] = []
        run, has_content, strip_next = "", False, False

        def flush() -> None:
            nonlocal run, has_content
            for piece in run.split(_BREAK):
                ids.extend(self._text_ids(piece, first=first and not ids))
            run, has_content = "", False

        for is_content, text in parts:
            if is_content:
                if has_content:
                    flush()
                run, has_content = run + _clean(text), True
                continue
            place = 0
            for match in self._control.finditer(text):
                run += text[place : match.start()]
                run = run.lstrip() if strip_next else run
                lstrip, strip_next = self._strips[match.group()]
                run = run.rstrip() if lstrip else run
                flush()
                ids.append(self._control_ids[match.group()])
                place = match.end()
            run += text[place:]
        run = run.lstrip() if strip_next else run
        flush()
        return tuple(ids)

    def _text_ids(self, text: str, *, first: bool) -> list[int]:
        """Encode plain text; inside a context a guard keeps it from being taken for a text's start."""
        if not text:
            return []
        encode = self._plain.encode
        ids: list[int] = (
            encode(text, add_special_tokens=False).ids
            if first
            else encode(_GUARD + text, add_special_tokens=False).ids[1:]
        )
        if self._reserved.isdisjoint(ids):
            return ids
        # Some vocabularies hold control tokens as ordinary pieces: only letter by letter are they plain text.
        ids = [i for letter in text for i in encode(_GUARD + letter, add_special_tokens=False).ids[1:]]
        if not self._reserved.isdisjoint(ids):
            raise ValueError(
                f"the tokenizer cannot write {text!r} as plain text, expected no control token in it"
            )
        return ids


def _plain_tokenizer(data: dict[str, Any], controls: dict[str, int]) -> Tokenizer:
    """A private copy of a tokenizer that reads control tokens as ordinary text."""
    added = [
        {**token, "special": token["special"] or token["content"] in controls}
        for token in data["added_tokens"]
    ]
    plain = Tokenizer.from_str(json.dumps({**data, "added_tokens": added}))
    plain.encode_special_tokens = True
    plain.add_tokens([AddedToken(_GUARD, normalized=False, special=False)])
    return plain


def _clean(text: str) -> str:
    """Replace what no tokenizer can read (lone surrogates) or what marks borders inside this file."""
    return _SURROGATE.sub("\ufffd", text).replace(_GUARD, "\ufffd").replace(_BREAK, "\ufffd")


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    """Match any of `tokens`, the longest first."""
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) if longest_first else r"(?!)")


def _joined(system: str, text: str) -> str:
    """The declared rule where a template has no system role."""
    return f"{system}\n\n{text}"

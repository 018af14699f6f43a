"""Token ids as text: the tokenizers that a run's replies were sampled with, found in its folder."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coplay.agents.runs import checkpoint_folders, read_object

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PARTIAL = "\ufffd"
"""What a decoder writes for bytes that are no whole character."""


class Pieces:
    """The text of every token of one tokenizer."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, str] = {}

    def __call__(self, ids: Sequence[int]) -> list[str]:
        """Texts of a run of tokens, (len(ids),), which together are its text.

        A character spread over several tokens stands at the first of them; the others are empty.
        """
        texts: list[str] = []
        pending: list[int] = []
        for token in ids:
            piece = self._piece(token)
            if _PARTIAL in piece:
                pending.append(token)
                joined = self._decode(pending)
                if _PARTIAL in joined:
                    continue
                texts += [joined, *[""] * (len(pending) - 1)]
                pending = []
            else:
                texts += [*map(self._piece, pending), piece]
                pending = []
        return [*texts, *map(self._piece, pending)]

    def _piece(self, token: int) -> str:
        """The text of a token that follows another: decoders drop the space before the first one."""
        if token not in self._known:
            alone, twice = self._decode([token]), self._decode([token, token])
            self._known[token] = twice[len(alone) :] if twice.startswith(alone) else alone
        return self._known[token]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))


def find_pieces(run_dir: str | Path, digests: Iterable[str]) -> dict[str, Pieces]:
    """The tokenizers of these digests: in the run's checkpoints, its model's folder, or made in code.

    One that is nowhere to be found is left out; its tokens can only be shown as numbers.
    """
    wanted = set(digests) - {""}
    found: dict[str, Pieces] = {}
    for source in _sources(Path(run_dir)):
        if wanted <= found.keys():
            break
        if source.digest in wanted and source.digest not in found:
            found[source.digest] = Pieces(source.tokenizer)
    return found


class _Source:
    """A place where a tokenizer may be."""

    def __init__(self, tokenizer: "Tokenizer", template: str, bos: Any, eos: Any) -> None:
        self.tokenizer, self._rest = tokenizer, (template, bos, eos)

    @cached_property
    def digest(self) -> str:
        from coplay.agents.chat import tokenizer_digest

        return tokenizer_digest(self.tokenizer.to_str(), *self._rest)


def _sources(run_dir: Path) -> Iterator[_Source]:
    from coplay.agents.embedded_tokenizer import CHAT_TEMPLATE, END, START, embedded_backend

    folders = [
        folder
        for _, checkpoint in sorted(checkpoint_folders(run_dir).items(), reverse=True)
        for folder in sorted((checkpoint / "policies").glob("*"))
    ]
    if (run_dir / "config.json").is_file():
        model = read_object(run_dir / "config.json").get("agents", {}).get("model", {})
        folders += [Path(model["path"])] if isinstance(model.get("path"), str) else []
    for folder in folders:
        if (folder / "tokenizer.json").is_file() and (folder / "tokenizer_config.json").is_file():
            yield _read(folder)
    yield _Source(embedded_backend(), CHAT_TEMPLATE, START, END)


def _read(folder: Path) -> _Source:
    from tokenizers import Tokenizer

    settings = read_object(folder / "tokenizer_config.json")
    written = folder / "chat_template.jinja"
    template = written.read_text("utf-8") if written.is_file() else str(settings.get("chat_template", ""))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return _Source(tokenizer, template, *(_name(settings, key) for key in ("bos", "eos")))


def _name(settings: dict[str, Any], which: str) -> Any:
    """A control token's text; older files write it as an object."""
    token = settings.get(f"{which}_token")
    return token.get("content") if isinstance(token, dict) else token

"""Retrievers as tools: BM25 over a local corpus, and any server that is asked as Search-R1 asks. No torch here."""

import hashlib
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from coplay.agents.base import ToolResult
from coplay.agents.tool_settings import Bm25Tool, HttpTool, PassagesSettings
from coplay.games import GameData, nearest
from coplay.games.optional import optional_library

WORDS = r"(?u)\b\w+\b"
"""What BM25 counts: words of one letter or digit too, no stop words, no stemming."""
SHIPPED = ("search_qa", "search_qa_terse")
MAX_BYTES = 1 << 26
"""Longest answer of a server that is read."""
_LOG = logging.getLogger(__name__)


class RetrieverError(ValueError):
    """A retriever cannot be made: there is no such corpus, or a damaged one."""


def read_corpus(name: str) -> list[str]:
    """The passages of a corpus: `contents` of each line of a JSON Lines file, or of one that ships.

    Raises:
        RetrieverError: if there is none, or a line is none.
    """
    if name in SHIPPED:
        text = (resources.files("coplay.games") / "data" / f"{name}.jsonl").read_text(encoding="utf-8")
    elif Path(name).is_file():
        try:
            text = Path(name).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise RetrieverError(
                f"corpus {name!r} cannot be read: {error}; expected JSON Lines in UTF-8"
            ) from None
    else:
        raise RetrieverError(
            f"corpus {name!r} is no file; expected a JSON Lines file with 'contents' in each line, or one of"
            f" {SHIPPED!r}{nearest(name, SHIPPED)}"
        )
    passages = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            contents = json.loads(line)["contents"]
        except (ValueError, TypeError, KeyError, RecursionError):
            contents = None
        if not isinstance(contents, str):
            raise RetrieverError(
                f"line {number} of corpus {name!r} is {line[:60]!r}; expected a JSON object with the text 'contents'"
            )
        passages.append(contents)
    if not passages:
        raise RetrieverError(f"corpus {name!r} is empty; expected at least one passage")
    return passages


def laid_out(passages: Sequence[str], settings: PassagesSettings) -> str:
    """Passages as one text."""
    if not passages:
        return settings.nothing
    if settings.layout == "plain":
        return "\n".join(passages)
    lines = []
    for place, passage in enumerate(passages, start=1):
        title, _, text = passage.partition("\n")
        lines.append(f"Doc {place}(Title: {title}) {text}")
    return "\n".join(lines)


def query_of(arguments: Mapping[str, Any]) -> str | None:
    """The text that is searched for: the only argument, or the one called `query`."""
    found = next(iter(arguments.values())) if len(arguments) == 1 else arguments.get("query")
    return found if isinstance(found, str) else None


_NO_QUERY = ToolResult("The query must be text.", "failed")


class Bm25Retriever:
    """BM25 (Lucene's variant, k1 1.5, b 0.75, as bm25s has it) over a corpus held in memory."""

    blocks = False

    def __init__(self, settings: Bm25Tool) -> None:
        bm25s = optional_library("bm25s", extra="search", use="a tool of kind 'bm25'")
        self._settings = settings
        self._tokenize = bm25s.tokenize
        self._passages = read_corpus(settings.corpus)
        digest = hashlib.blake2b(json.dumps(self._passages).encode(), digest_size=8).hexdigest()
        self.data: GameData | None = GameData(
            name=settings.corpus, digest=digest, counts={"passages": len(self._passages)}
        )
        words = self._words(self._passages)
        if not any(words):
            raise RetrieverError(
                f"corpus {settings.corpus!r} holds no word; expected letters or digits in at least one passage"
            )
        self._index = bm25s.BM25()
        self._index.index(words, show_progress=False)

    def _words(self, texts: Sequence[str]) -> list[list[str]]:
        found: list[list[str]] = self._tokenize(
            list(texts), token_pattern=WORDS, stopwords=[], return_ids=False, show_progress=False
        )
        return found

    def run(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        """The best passages for each query."""
        return [self._answer(query_of(arguments)) for arguments in calls]

    def _answer(self, query: str | None) -> ToolResult:
        if query is None:
            return _NO_QUERY
        return ToolResult(laid_out(self.best(query), self._settings))

    def best(self, query: str) -> list[str]:
        """At most `top_k` passages that share a word with the query, the best first."""
        (words,) = self._words([query])
        if not words:
            return []
        scores = self._index.get_scores(words)
        order = np.argsort(-scores, kind="stable")[: self._settings.top_k]
        return [self._passages[place] for place in order.tolist() if scores[place] > 0]


class HttpRetriever:
    """Posts the queries of a wave together; what a server does not answer is told as failed or out of time."""

    blocks = True
    data: GameData | None = None

    def __init__(self, settings: HttpTool) -> None:
        self._settings = settings

    def run(self, calls: Sequence[Mapping[str, Any]]) -> list[ToolResult]:
        """The server's passages for each query."""
        queries = [query_of(arguments) for arguments in calls]
        asked = [query for query in queries if query is not None]
        size = self._settings.max_queries
        answers = [
            result
            for start in range(0, len(asked), size)
            for result in self._post(asked[start : start + size])
        ]
        answered = iter(answers)
        return [_NO_QUERY if query is None else next(answered) for query in queries]

    def _post(self, queries: list[str]) -> list[ToolResult]:
        settings = self._settings
        body = json.dumps({"queries": queries, "topk": settings.top_k, "return_scores": True}).encode()
        failure = ToolResult("The search failed.", "failed")
        for attempt in range(settings.retries + 1):
            if attempt:
                time.sleep(min(0.1 * 2**attempt, 2.0))
            try:
                return [ToolResult(laid_out(found, settings)) for found in self._ask(body, len(queries))]
            except TimeoutError as error:
                failure = ToolResult("The search took too long.", "timeout")
                _LOG.warning("%s did not answer within %s s: %s", settings.url, settings.timeout, error)
            except (OSError, HTTPException, ValueError, RecursionError) as error:
                late = isinstance(getattr(error, "reason", None), TimeoutError)
                failure = ToolResult("The search took too long.", "timeout") if late else failure
                _LOG.warning("%s failed: %s: %s", settings.url, type(error).__name__, error)
        return [failure] * len(queries)

    def _ask(self, body: bytes, expected: int) -> list[list[str]]:
        request = urllib.request.Request(  # noqa: S310 (the settings allow http and https alone)
            self._settings.url, data=body, headers={"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=self._settings.timeout) as answer:  # noqa: S310
            data = json.loads(answer.read(MAX_BYTES))
        found = data.get("result") if isinstance(data, dict) else None
        lists = isinstance(found, list) and all(isinstance(entries, list) for entries in found)
        if not isinstance(found, list) or not lists or len(found) != expected:
            raise ValueError(
                f"got {str(data)[:80]!r}; expected 'result' with a list for each of {expected} queries"
            )
        return [[_contents(entry) for entry in entries[: self._settings.top_k]] for entries in found]


def _contents(entry: Any) -> str:
    """The text of a passage, with a score beside it or without."""
    document = entry.get("document", entry) if isinstance(entry, dict) else None
    contents = document.get("contents") if isinstance(document, dict) else None
    if not isinstance(contents, str):
        raise ValueError(f"got the passage {str(entry)[:80]!r}; expected 'document' with the text 'contents'")
    return contents

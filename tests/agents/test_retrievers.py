"""Retrievers: BM25 over the corpora that ship, and a server asked as Search-R1 asks."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from coplay.agents.desk import make_desk
from coplay.agents.retrievers import Bm25Retriever, HttpRetriever, RetrieverError, laid_out, read_corpus
from coplay.agents.tool_settings import Bm25Tool, HttpTool
from coplay.agents.tools import answer_call
from coplay.games import Tool, Tools
from coplay.games.optional import MissingLibraryError
from coplay.games.rewards import exact_match
from coplay.games.search_qa import read_questions

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Starts a server that answers each posted JSON value; gives its address."""
    servers = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                status, data = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                body = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Stay silent."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/retrieve"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def found(text: str) -> dict[str, Any]:
    return {"document": {"id": "7", "contents": text}, "score": 1.5}


def test_server_when_asked_then_in_the_shape_of_search_r1_all_queries_together(serve: Any) -> None:
    asked: list[Any] = []

    def answer(data: dict[str, Any]) -> tuple[int, Any]:
        asked.append(data)
        return 200, {"result": [[found(f"{query}\nis here"), found("b\nc")] for query in data["queries"]]}

    tool = HttpRetriever(HttpTool(url=serve(answer), top_k=2))
    results = tool.run([{"query": "x"}, {"query": "y"}, {"query": 3}])
    assert asked == [{"queries": ["x", "y"], "topk": 2, "return_scores": True}]
    assert [result.text for result in results] == [
        "Doc 1(Title: x) is here\nDoc 2(Title: b) c",
        "Doc 1(Title: y) is here\nDoc 2(Title: b) c",
        "The query must be text.",
    ]
    assert [result.outcome for result in results] == ["ok", "ok", "failed"]


def test_server_when_it_gives_passages_without_scores_then_read_too(serve: Any) -> None:
    url = serve(lambda data: (200, {"result": [[{"contents": "a"}], []]}))
    tool = HttpRetriever(HttpTool(url=url, layout="plain", nothing="no"))
    assert [result.text for result in tool.run([{"query": "x"}, {"query": "y"}])] == ["a", "no"]


def test_queries_when_more_than_one_request_holds_then_in_several(serve: Any) -> None:
    sizes: list[int] = []

    def answer(data: dict[str, Any]) -> tuple[int, Any]:
        sizes.append(len(data["queries"]))
        return 200, {"result": [[found(query)] for query in data["queries"]]}

    tool = HttpRetriever(HttpTool(url=serve(answer), max_queries=2, layout="plain"))
    assert [result.text for result in tool.run([{"query": q} for q in "abcde"])] == list("abcde")
    assert sizes == [2, 2, 1]


def test_server_when_it_fails_at_first_then_asked_again(serve: Any) -> None:
    tries: list[int] = []

    def answer(data: dict[str, Any]) -> tuple[int, Any]:
        tries.append(1)
        return (503, {}) if len(tries) < 3 else (200, {"result": [[found("a")]]})

    tool = HttpRetriever(HttpTool(url=serve(answer), retries=2, layout="plain"))
    assert [result.text for result in tool.run([{"query": "x"}])] == ["a"] and len(tries) == 3


@pytest.mark.parametrize(
    "data",
    [
        b"no json",
        [],
        {"result": []},
        {"result": [[{"document": {}}]]},
        {"result": [["text"]]},
        {"result": "x"},
        {"result": [5]},
        {"result": [None]},
    ],
)
def test_server_when_its_answer_is_none_then_every_call_failed(serve: Any, data: Any) -> None:
    """Law 9: never silent, never an empty result."""
    tool = HttpRetriever(HttpTool(url=serve(lambda _: (200, data)), retries=0))
    assert [(r.outcome, r.text) for r in tool.run([{"query": "x"}])] == [("failed", "The search failed.")]


def test_server_when_late_or_away_then_said_so(serve: Any) -> None:
    def late(data: dict[str, Any]) -> tuple[int, Any]:
        time.sleep(1.0)
        return 200, {"result": [[]]}

    tool = HttpRetriever(HttpTool(url=serve(late), timeout=0.1, retries=0))
    assert [result.outcome for result in tool.run([{"query": "x"}])] == ["timeout"]
    away = HttpRetriever(HttpTool(url="http://127.0.0.1:9/retrieve", timeout=2.0, retries=1))
    assert [result.outcome for result in away.run([{"query": "x"}, {"query": "y"}])] == ["failed"] * 2


def test_passages_when_laid_out_then_as_asked() -> None:
    plain = Bm25Tool(corpus="x", layout="plain")
    assert laid_out(["t\na", "b"], plain) == "t\na\nb" and laid_out([], plain) == "Nothing found."
    assert laid_out(["t\na", "b"], Bm25Tool(corpus="x")) == "Doc 1(Title: t) a\nDoc 2(Title: b) "


def test_corpus_when_missing_empty_or_damaged_then_named(tmp_path: Path) -> None:
    with pytest.raises(RetrieverError, match=r"'search_qaa' is no file.*did you mean 'search_qa'"):
        read_corpus("search_qaa")
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(RetrieverError, match="empty"):
        read_corpus(str(path))
    path.write_text('{"contents": "a"}\n{"text": "b"}\n', encoding="utf-8")
    with pytest.raises(RetrieverError, match="line 2"):
        read_corpus(str(path))
    path.write_text('{"contents": "a"}\n', encoding="utf-8-sig")
    assert read_corpus(str(path)) == ["a"]
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(
        RetrieverError, match=r"corpus '.*corpus\.jsonl' cannot be read: .*expected JSON Lines in UTF-8"
    ):
        read_corpus(str(path))


@pytest.mark.needs("bm25s")
def test_bm25_when_no_passage_holds_a_word_then_the_corpus_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"contents": "..."}\n{"contents": ""}\n', encoding="utf-8")
    with pytest.raises(RetrieverError, match=r"corpus '.*corpus\.jsonl' holds no word; expected letters"):
        Bm25Retriever(Bm25Tool(corpus=str(path)))


def test_bm25_when_its_library_is_missing_then_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("coplay.games.optional.import_module", absent)
    with pytest.raises(
        MissingLibraryError, match=r"'bm25' needs the library 'bm25s'.*pip install .*\[search\]"
    ):
        Bm25Retriever(Bm25Tool(corpus="search_qa"))


@pytest.mark.needs("bm25s")
@pytest.mark.parametrize(("corpus", "wording"), [("search_qa", "full"), ("search_qa_terse", "terse")])
def test_bm25_when_asked_any_question_that_ships_then_the_first_passage_answers_it(
    corpus: str, wording: str
) -> None:
    tool = Bm25Retriever(Bm25Tool(corpus=corpus, top_k=1, layout="plain"))
    questions = read_questions("shipped")
    asked = [{"query": one.prompt if wording == "full" else one.terse} for one in questions]
    for one, result in zip(questions, tool.run(asked), strict=True):
        assert exact_match(result.text.split()[-1], one) == 1.0


@pytest.mark.needs("bm25s")
def test_bm25_when_passages_are_equally_good_then_in_the_order_of_the_file() -> None:
    tool = Bm25Retriever(Bm25Tool(corpus="search_qa_terse", top_k=4, layout="plain"))
    assert tool.best("A") == read_corpus("search_qa_terse")[:4] == tool.best("a!")
    assert tool.best("nobody") == tool.best("?") == []
    assert [r.outcome for r in tool.run([{"query": 1}])] == ["failed"]


def test_server_when_a_wave_of_calls_is_made_then_one_request_and_everyone_is_answered(serve: Any) -> None:
    asked: list[list[str]] = []

    def answer(data: dict[str, Any]) -> tuple[int, Any]:
        asked.append(data["queries"])
        return 200, {"result": [[found(f"{query}\n!")] for query in data["queries"]]}

    tools = Tools(offered=(Tool(name="search"),))
    desk = make_desk({"search": HttpTool(url=serve(answer), layout="plain")})

    async def wave() -> list[Any]:
        texts = [f"<search>{query}</search>" for query in ("b", "a", "b")]
        return await asyncio.gather(*(answer_call(desk, tools, text, number=0) for text in texts))

    assert [call.result for call in asyncio.run(wave())] == ["b\n!", "a\n!", "b\n!"]
    assert asked == [["a", "b"]]

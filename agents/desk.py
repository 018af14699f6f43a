"""The desk of a run: its tools made from their settings, each library imported when it is needed. No torch here."""

from collections.abc import Mapping

from coplay.agents.tool_settings import Bm25Tool, FunctionTool, HttpTool
from coplay.agents.tools import ToolDesk, ToolRunner


def make_desk(settings: Mapping[str, Bm25Tool | HttpTool | FunctionTool]) -> ToolDesk | None:
    """The desk of a run's tools; None where it has none.

    Raises:
        ValueError: if a corpus, a library or an entry point is missing.
    """
    runners: dict[str, ToolRunner] = {}
    for name, one in settings.items():
        if isinstance(one, Bm25Tool):
            from coplay.agents.retrievers import Bm25Retriever

            runners[name] = Bm25Retriever(one)
        elif isinstance(one, HttpTool):
            from coplay.agents.retrievers import HttpRetriever

            runners[name] = HttpRetriever(one)
        else:
            from coplay.agents.tool_functions import FunctionRunner, announced_tool

            runners[name] = FunctionRunner(announced_tool(one.name), timeout=one.timeout)
    return ToolDesk(runners) if runners else None

"""What can be said about tools in a configuration: `[agents.tools.NAME]`, by kind. No torch here."""

from typing import Annotated, Literal

from pydantic import Field

from coplay.agents.settings import Settings

Layout = Literal["numbered", "plain"]


class PassagesSettings(Settings):
    """What all retrievers share."""

    top_k: int = Field(3, ge=1, le=1000)
    """Most passages of a result."""
    layout: Layout = "numbered"
    """`Doc 1(Title: ...) ...` a passage, its first line the title, as Search-R1 shows them; or the passages alone."""
    nothing: str = "Nothing found."
    """What is told where no passage matches."""


class Bm25Tool(PassagesSettings):
    """Search of a local corpus by BM25 (bm25s, extra `search`): deterministic, ties in the order of the file."""

    kind: Literal["bm25"] = "bm25"
    corpus: str
    """A JSON Lines file with `contents` in each line, or a corpus that ships: `search_qa`, `search_qa_terse`."""


class HttpTool(PassagesSettings):
    """A retrieval server that is asked as Search-R1 asks: `{"queries": [...], "topk": k, "return_scores": true}`."""

    kind: Literal["http"] = "http"
    url: str = Field(pattern=r"^https?://")
    """Where queries are posted, e.g. `http://127.0.0.1:8000/retrieve`."""
    timeout: float = Field(30.0, gt=0, le=3600)
    """Seconds for one request."""
    retries: int = Field(2, ge=0, le=10)
    """How often a request that failed is made again; then its calls have failed, which the player is told."""
    max_queries: int = Field(256, ge=1)
    """Most queries of one request."""


class FunctionTool(Settings):
    """A function of another package, announced under the entry-point group `coplay.tools`."""

    kind: Literal["function"] = "function"
    name: str
    """Its name there. It is called with the call's arguments by name and returns text."""
    timeout: float = Field(30.0, gt=0, le=3600)
    """Seconds for one call; the function itself cannot be stopped and should end of its own accord."""


ToolSettings = Annotated[Bm25Tool | HttpTool | FunctionTool, Field(discriminator="kind")]

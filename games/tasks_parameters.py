"""The parameters of tasks from files."""

from typing import Literal

from pydantic import Field, model_validator

from coplay.games.base import GameParameters
from coplay.games.parameters import OnePlayer, Tag, Wording
from coplay.games.rewards import find_reward
from coplay.games.task_sets import SUMS, TaskColumns


class TasksParameters(GameParameters):
    """What tasks can be told."""

    kind: Literal["tasks"] = "tasks"
    players: OnePlayer = ("Ada",)
    """Name of the one seat."""
    wording: Wording = "full"
    """`full` says how to reply and uses tags; `terse` says the prompt alone, for the embedded model."""
    path: str = Field(SUMS, min_length=1)
    """JSON lines, Parquet, a folder of such, or one saved by `datasets`; `coplay:sums` needs no file."""
    split: str | None = None
    """Of a folder with a table of splits, the one to take."""
    prompt_column: str = Field("prompt", min_length=1)
    """Column of the prompt, a text or a list of chat messages; `a.b` lies inside column `a`."""
    answer_column: str = Field("answer", min_length=1)
    """Column of the right answer, or of a list of them: `reward_model.ground_truth.target`."""
    source_column: str | None = None
    """Column of where a task is from; None: all are from the file."""
    system_column: str | None = None
    """Column of a system text of the task's own."""
    labels_column: str | None = None
    """Column of the labels that can be answered."""
    system: str = ""
    """System text of all tasks, before that of each."""
    instruct: bool = True
    """Say in the system text how to reply."""
    labels: tuple[str, ...] = ()
    """Labels that can be answered, the same for all tasks; empty: any text, or `labels_column`."""
    tag: Tag = None
    """In the full wording, the tag that an answer stands in; None: the whole reply is the answer."""
    max_answer_characters: int = Field(20_000, ge=1)
    """A longer answer is malformed."""
    score: str = "exact_match"
    """`exact_match`, `contains`, `number`, `choice`, `regex`, or a name announced under `coplay.rewards`."""
    pattern: str | None = None
    """For `regex`: what it finds last, or its first group there, is the answer."""
    score_range: tuple[float, float] = (0.0, 1.0)
    """Least and greatest score; a malformed reply gets the least."""
    max_prompt_characters: int | None = Field(None, ge=1)
    """Tasks whose prompt and system text are longer are left out."""
    max_prompt_tokens: int | None = Field(None, ge=1)
    """Tasks that begin with more tokens are left out, once the run's tokenizer is known."""
    num_tasks: int | None = Field(None, ge=1)
    """Draw so many of them; None: all."""
    draw_seed: int = Field(0, ge=0)
    """Which ones are drawn is a function of it."""
    retries: int = Field(0, ge=0, le=100)
    """How often the player is asked again whose reply is no answer."""
    penalty: float = Field(0.0, ge=0.0)
    """Taken from the credit of each malformed attempt, in raw reward units."""

    @model_validator(mode="after")
    def _check(self) -> "TasksParameters":
        least, most = self.score_range
        if not least < most:
            raise ValueError(f"score_range {self.score_range!r}; expected a least and a greater score")
        if self.labels and self.labels_column:
            raise ValueError("labels and labels_column are both given; expected one of them")
        find_reward(self.score, self.pattern)
        return self

    def columns(self) -> TaskColumns:
        """Where things stand in a row."""
        return TaskColumns(
            prompt=self.prompt_column,
            answer=self.answer_column,
            source=self.source_column,
            system=self.system_column,
            labels=self.labels_column,
        )

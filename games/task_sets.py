"""Tasks with right answers: what is read of rows, what is left out and counted, and which are drawn."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coplay.games.chance import Chance, derive_seed
from coplay.games.replies import number_text, sound_text
from coplay.games.task_rows import Row, TaskFileError, cell, read_rows, task_files

SUMS = "coplay:sums"
"""Tasks that need no file: sums and differences of small numbers, in words of the embedded model."""
MAX_TOLD_SOURCES = 50
"""Of more sources only the number is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One prompt and what is right."""

    prompt: str
    answers: tuple[str, ...]
    """Each as good as the others; at least one."""
    source: str
    """Where it is from: scores are told for each source."""
    system: str = ""
    labels: tuple[str, ...] = ()
    """What can be answered; empty: any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskColumns:
    """Where things stand in a row; dotted where they lie inside others."""

    prompt: str
    answer: str
    source: str | None
    system: str | None
    labels: str | None

    def named(self) -> tuple[str, ...]:
        """All that are looked at."""
        return tuple(
            [name for name in (self.prompt, self.answer, self.source, self.system, self.labels) if name]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """Tasks in the order of their rows, and how many rows there were."""

    name: str
    tasks: tuple[Task, ...]
    counts: Mapping[str, int]
    """`rows`, and what was left out of them by reason: together with the tasks that stay they add up."""

    def kept(self, which: Iterable[int], *, reason: str) -> "TaskSet":
        """Only the tasks at some places, the others counted."""
        tasks = tuple([self.tasks[place] for place in which])
        return replace(self, tasks=tasks, counts={**self.counts, reason: len(self.tasks) - len(tasks)})

    def within(self, size: Callable[[Task], int], most: int | None, *, reason: str) -> "TaskSet":
        """Only tasks of a size up to `most`; None: of any."""
        if most is None:
            return self
        return self.kept(
            [place for place, task in enumerate(self.tasks) if size(task) <= most], reason=reason
        )

    def drawn(self, num_tasks: int | None, seed: int) -> "TaskSet":
        """Some of them, each equally likely: f(seed, number of tasks), in the order of their rows.

        Raises:
            TaskFileError: if there are fewer.
        """
        if num_tasks is None:
            return self
        if num_tasks > len(self.tasks):
            raise TaskFileError(
                f"num_tasks is {num_tasks}, but '{self.name}' has {len(self.tasks)} tasks ({self.told()}); expected at"
                f" most {len(self.tasks)}"
            )
        order = Chance(derive_seed("tasks", seed)).shuffled("drawn", range(len(self.tasks)))
        return self.kept(sorted(order[:num_tasks]), reason="not_drawn")

    def told(self) -> str:
        """`40 rows, 2 empty, 1 duplicates`."""
        return ", ".join(
            f"{count} {reason}" for reason, count in self.counts.items() if count or reason == "rows"
        )

    def report(self) -> dict[str, int]:
        """All counts, with the tasks that stay, in all and by source."""
        sources = Counter([task.source for task in self.tasks])
        found = {**self.counts, "tasks": len(self.tasks), "sources": len(sources)}
        if len(sources) <= MAX_TOLD_SOURCES:
            found |= {f"source/{name}": count for name, count in sorted(sources.items())}
        return found

    def parts(self) -> frozenset[int]:
        """Each task's prompt, hashed."""
        return frozenset([derive_seed(task.system, task.prompt) for task in self.tasks])

    def digest(self) -> str:
        """Names these tasks in this order."""
        content = json.dumps(
            [[task.system, task.prompt, task.answers, task.source, task.labels] for task in self.tasks]
        )
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def read_tasks(path: str, split: str | None, columns: TaskColumns, max_characters: int | None) -> TaskSet:
    """The tasks of a file or folder; empty and too long prompts and those that come again are left out and counted.

    Raises:
        TaskFileError: if something cannot be read as asked, or no task stays.
    """
    counts = {"rows": 0, "empty": 0, "too_long": 0, "duplicates": 0}
    seen: set[tuple[Any, ...]] = set()
    tasks: list[Task] = []
    for place, row in read_rows(task_files(Path(path), split), columns.named()):
        counts["rows"] += 1
        task = read_task(row, columns, place, default_source=Path(path).stem)
        if task is None:
            counts["empty"] += 1
        elif max_characters is not None and len(task.system) + len(task.prompt) > max_characters:
            counts["too_long"] += 1
        elif (key := (task.system, task.prompt, task.answers, task.labels)) in seen:
            counts["duplicates"] += 1
        else:
            seen.add(key)
            tasks.append(task)
    return TaskSet(name=path, tasks=tuple(tasks), counts=counts)


def read_task(row: Row, columns: TaskColumns, place: str, *, default_source: str) -> Task | None:
    """The task of a row; None if its prompt or its answer is empty.

    Raises:
        TaskFileError: if a column is missing or holds something else.
    """
    asked = cell(row, columns.prompt, place)
    told, prompt = _messages(asked, columns.prompt, place) if isinstance(asked, list) else ("", asked)
    prompt = _text(prompt, columns.prompt, place)
    answers = _texts(cell(row, columns.answer, place), columns.answer, place)
    if columns.system is not None:
        own = _text(cell(row, columns.system, place), columns.system, place)
        told = "\n\n".join([text for text in (own, told) if text])
    source = default_source
    if columns.source is not None:
        source = _text(cell(row, columns.source, place), columns.source, place) or default_source
    labels: tuple[str, ...] = ()
    if columns.labels is not None:
        labels = _texts(cell(row, columns.labels, place), columns.labels, place)
    if not prompt.strip() or not answers:
        return None
    return Task(prompt=prompt, answers=answers, source=source, system=told, labels=labels)


def _text(value: Any, column: str, place: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TaskFileError(
            f"{place}, column {column!r}: {value!r:.60}; expected a text, or a list of chat messages"
        )
    return sound_text(value)


def _texts(value: Any, column: str, place: str) -> tuple[str, ...]:
    """Texts and numbers, one or a list of them, as texts; empty ones are left out."""
    found = []
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, bool):
            found.append(str(one).lower())
        elif isinstance(one, int | float):
            found.append(number_text(one))
        elif one is None or isinstance(one, str):
            found.append(sound_text(one or "").strip())
        else:
            raise TaskFileError(
                f"{place}, column {column!r}: {one!r:.60}; expected a text or number, or a list of them"
            )
    return tuple(dict.fromkeys([text for text in found if text]))


def _messages(messages: Sequence[Any], column: str, place: str) -> tuple[str, str]:
    """System text, and what the user says; with earlier turns, all of them by role, the last one the user's."""
    system: list[str] = []
    turns: list[tuple[str, str]] = []
    for message in messages:
        role = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if role not in ("system", "user", "assistant") or not isinstance(content, str):
            raise TaskFileError(
                f"{place}, column {column!r}: message {message!r:.60}; expected 'role' system, user or assistant and a"
                " text 'content'"
            )
        if role == "system":
            system.append(sound_text(content))
        else:
            turns.append((role, sound_text(content)))
    if not turns or turns[-1][0] != "user":
        raise TaskFileError(
            f"{place}, column {column!r} does not end with a message of the user; expected one to reply to"
        )
    text = turns[0][1] if len(turns) == 1 else "\n\n".join([f"{role}: {content}" for role, content in turns])
    return "\n\n".join(system), text


def sums(largest: int = 9) -> TaskSet:
    """`3 and 4 =` and `7 - 4 =`, from 0 to `largest`, answered by a number."""
    tasks = tuple(_sums(range(largest + 1)))
    return TaskSet(name=SUMS, tasks=tasks, counts={"rows": len(tasks)})


def _sums(numbers: range) -> Iterator[Task]:
    labels = tuple([str(number) for number in range(2 * numbers[-1] + 1)])
    for a in numbers:
        for b in numbers:
            yield Task(prompt=f"{a} and {b} =", answers=(str(a + b),), source="sum", labels=labels)
            if a >= b:
                yield Task(prompt=f"{a} - {b} =", answers=(str(a - b),), source="difference", labels=labels)

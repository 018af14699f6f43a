"""Prompts with right answers, from files, as a game of one player: he replies once, and a score is his reward.

The groups of a run go through the tasks in a drawn order, each task once an epoch (`Chance.dealt`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from coplay.games.answers import wrap_answer
from coplay.games.base import Game, GameData, GameSpec, MalformedRule, Observation, StepOutcome
from coplay.games.chance import Chance
from coplay.games.grammar import Action, Choice, FreeText, Malformed
from coplay.games.rewards import REWARDS, checked, find_reward, read_number
from coplay.games.task_rows import TaskFileError, task_files
from coplay.games.task_sets import SUMS, Task, TaskSet, read_tasks, sums
from coplay.games.tasks_parameters import TasksParameters


@dataclass(frozen=True, slots=True)
class TasksState:
    """Which task, and whether it was answered."""

    task: int
    over: bool = False


class Tasks(Game[TasksState]):
    """Prompts from files, each answered once and scored."""

    Parameters: ClassVar[type[TasksParameters]] = TasksParameters
    name: ClassVar[str] = "tasks"

    def __init__(
        self, parameters: TasksParameters, num_tokens: Callable[[Observation], int] | None = None
    ) -> None:
        """Read the tasks.

        Raises:
            TaskFileError: if they cannot be read as asked, or none stays.
        """
        super().__init__(parameters)
        self._full = parameters.wording == "full"
        self._score = find_reward(parameters.score, parameters.pattern)
        stamp = _stamp(parameters.path, parameters.split)
        self._set = _drawn(parameters, stamp)
        self._several = len(self._set.tasks) > 1
        if num_tokens is not None:
            self._set = _some(
                _tasks(parameters, stamp).within(
                    lambda task: num_tokens(self._shown(task)),
                    parameters.max_prompt_tokens,
                    reason="too_many_tokens",
                ),
                parameters,
            )
        self._spec = GameSpec(
            players=parameters.players,
            max_steps=1,
            has_chance=self._several,
            has_rounds=False,
            zero_sum=False,
            symmetric=True,
            reward_range=parameters.score_range,
            malformed_rule=MalformedRule(
                retries=parameters.retries,
                penalty=parameters.penalty,
                consequence="is scored as a wrong answer",
            ),
            in_order=True,
        )

    @property
    def spec(self) -> GameSpec:
        """What this game declares about itself."""
        return self._spec

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All that may be asked, in the order of their rows."""
        return self._set.tasks

    @property
    def data(self) -> GameData:
        """The tasks, and what was left out of them."""
        return GameData(
            name=self._set.name,
            digest=self._set.digest(),
            counts=self._set.report(),
            parts=self._set.parts(),
        )

    def fitted(self, num_tokens: Callable[[Observation], int]) -> "Tasks":
        """Without tasks of more than `max_prompt_tokens` tokens."""
        return self if self.parameters.max_prompt_tokens is None else Tasks(self.parameters, num_tokens)

    def initial_state(self, chance: Chance) -> TasksState:
        """The next task of the epoch."""
        return TasksState(chance.dealt("task", len(self._set.tasks)))

    def to_move(self, state: TasksState) -> tuple[str, ...]:
        """The one player, once."""
        return () if state.over else self._spec.players

    def observe(self, state: TasksState, player: str) -> Observation:
        """The prompt."""
        return self._shown(self._set.tasks[state.task])

    def _shown(self, task: Task) -> Observation:
        parameters = self.parameters
        grammar = _grammar(
            task.labels or parameters.labels,
            parameters.tag if self._full else None,
            parameters.max_answer_characters,
        )
        how = ""
        if parameters.instruct:
            how = _how(grammar) if self._full else "reply"
        return Observation(
            text=task.prompt,
            grammar=grammar,
            system="\n\n".join([text for text in (parameters.system, task.system, how) if text]),
            facts={"game": self.name, "prompt": task.prompt},
        )

    def step(
        self, state: TasksState, actions: Mapping[str, Action], chance: Chance
    ) -> tuple[TasksState, StepOutcome]:
        """Score the answer."""
        (player,), task = self._spec.players, self._set.tasks[state.task]
        action, (least, most) = actions[player], self.parameters.score_range
        score = least
        if not isinstance(action, Malformed):
            score = checked(
                self._score(action.value, task), name=self.parameters.score, least=least, most=most
            )
        return replace(state, over=True), StepOutcome(
            rewards={player: score},
            terminated=True,
            info={"source": task.source, "task": state.task, "score": score, "answers": list(task.answers)},
        )


def _how(grammar: Choice | FreeText) -> str:
    """How to reply, for chat models."""
    inside = "" if grammar.tag is None else f" in {wrap_answer(grammar.tag, '...')}"
    if isinstance(grammar, Choice):
        what = f"Reply with one of these{inside}: {', '.join(grammar.options)}."
    else:
        what = f"Give your answer{inside}."
    return f"{what} A reply that is no answer is scored as a wrong one."


@lru_cache(maxsize=1024)
def _grammar(labels: tuple[str, ...], tag: str | None, max_characters: int) -> Choice | FreeText:
    return Choice(labels, tag) if labels else FreeText(max_characters, tag)


def _stamp(path: str, split: str | None) -> tuple[tuple[str, int, int], ...]:
    """What says that files are as they were when they were read."""
    if path == SUMS:
        return ()
    return tuple(
        [(str(one), one.stat().st_mtime_ns, one.stat().st_size) for one in task_files(Path(path), split)]
    )


@lru_cache(maxsize=8)
def _tasks(parameters: TasksParameters, stamp: tuple[tuple[str, int, int], ...]) -> TaskSet:
    """All tasks of a file, checked against what is asked of their answers."""
    if parameters.path == SUMS:
        return sums().within(
            lambda task: len(task.system) + len(task.prompt),
            parameters.max_prompt_characters,
            reason="too_long",
        )
    found = read_tasks(
        parameters.path, parameters.split, parameters.columns(), parameters.max_prompt_characters
    )
    for task in found.tasks:
        _check(task, parameters)
    return found


@lru_cache(maxsize=8)
def _drawn(parameters: TasksParameters, stamp: tuple[tuple[str, int, int], ...]) -> TaskSet:
    """Those that are asked, whatever their number of tokens."""
    return _some(_tasks(parameters, stamp), parameters)


def _some(found: TaskSet, parameters: TasksParameters) -> TaskSet:
    if not found.tasks:
        raise TaskFileError(f"'{parameters.path}' has no task left ({found.told()}); expected at least one")
    return found.drawn(parameters.num_tasks, parameters.draw_seed)


def _check(task: Task, parameters: TasksParameters) -> None:
    told = f"the task {task.prompt[:40]!r} of '{parameters.path}' has the answers {list(task.answers)}"
    labels = task.labels or parameters.labels
    if parameters.score == "number" and any(read_number(answer) is None for answer in task.answers):
        raise TaskFileError(f"{told}; expected numbers (score 'number')")
    if not labels:
        return
    try:
        _grammar(labels, parameters.tag, parameters.max_answer_characters)
    except ValueError as error:
        raise TaskFileError(f"the task {task.prompt[:40]!r} of '{parameters.path}': {error}") from None
    score = REWARDS.get(parameters.score)
    if score is not None and not any(score(label, task) for label in labels):
        raise TaskFileError(
            f"{told}, and none of its labels {list(labels)} is one of them; expected one that is"
        )

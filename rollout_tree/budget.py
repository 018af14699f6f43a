"""The branches of one episode in the order in which they are played, within a budget of branches or of tokens.

Forks wait in one queue: those of the main line by step, then those of each branch in the order of the branches. A
branch budget is spent on whole forks from the front. A token budget is looked at before each step's forks: they are
played unless the branches played so far have sampled that many tokens, so it bounds what is started and is overrun by
at most the forks of one step.

What decides on a fork may depend on other lines, never on what followed the replies of its own step in its own line:
whether a reply is compared would else depend on how it turned out (rule 11). Hence a line's own tokens count up to
that step only, the main line's never, forks of one step are decided together, and those of a line go by step.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from coplay.rollout_tree.branching import BranchPlan, Origin
from coplay.rollout_tree.forking import StepForks
from coplay.rollout_tree.play import Play
from coplay.rollout_tree.records import Step, Turn


class Schedule:
    """What is still to be branched in one episode."""

    def __init__(self, plan: BranchPlan, main: Play) -> None:
        self._plan = plan
        self._lines: dict[str, Play] = {"": main}
        self._queue: deque[StepForks] = deque()
        self._sampled: dict[str, dict[int, int]] = {}
        """Branch -> step -> tokens that it sampled there, of branches that are over."""
        self._open = plan.max_branches
        """Branches that may still be begun; None: any number."""

    @property
    def branches(self) -> list[Play]:
        """All branches so far, in the order in which they were begun."""
        return [line for name, line in self._lines.items() if name]

    def path(self, line: Play) -> tuple[Step, ...]:
        """The steps from the first of the episode to the last of a line, numbered along it."""
        steps, origin = list[Step](reversed(line.steps)), line.origin
        while origin is not None:
            line = self._lines[origin.line]
            steps += [step for step in reversed(line.steps) if step.index < origin.step]
            origin = line.origin
        return tuple(reversed(steps))

    def add(self, line: Play, values: Mapping[tuple[int, str], float]) -> None:
        """Take the forks of a line that is over, and has not failed."""
        if line.origin is not None:
            self._sampled[line.branch] = {step.index: _num_sampled(step.turns) for step in line.steps}
        if line.forks is not None and line.failure is None:
            self._queue.extend(line.forks.step_forks(line.steps, values))

    def next(self) -> list[Origin]:
        """The branches to be played now, all together; none if there is nothing more to play."""
        found: list[Origin] = []
        while self._queue:
            forks = self._queue.popleft()
            if (
                self._plan.max_branch_tokens is not None
                and self._spent(forks) >= self._plan.max_branch_tokens
            ):
                continue
            for origins in forks.origins:
                if self._open is None or self._open >= len(origins):
                    self._open = None if self._open is None else self._open - len(origins)
                    found += origins
            if found and self._plan.max_branch_tokens is not None:
                break
        return found

    def begin(self, branches: Iterable[Play]) -> None:
        """Note branches that are about to be played."""
        self._lines |= {branch.branch: branch for branch in branches}

    def _spent(self, forks: StepForks) -> int:
        """Tokens of all branches, the own line's only from before the step."""
        return sum(
            count
            for branch, by_step in self._sampled.items()
            for step, count in by_step.items()
            if branch != forks.line or step < forks.step
        )


def _num_sampled(turns: Iterable[Turn]) -> int:
    return sum(
        len(segment.ids)
        for turn in turns
        if not turn.trains_once_for
        for segment in turn.segments
        if segment.sampled
    )

"""Play many episodes at once, in waves: everyone who is to move replies, then every complete step is taken.

All replies of a wave are asked for together and awaited together, so an engine sees the whole wave in one
batch, and the batch depends on ids alone (law 8). This module has the one boundary at which foreign code (of
games and agents) may raise: such an episode (or branch) is recorded as failed, the others go on (rule 12).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from coplay.agents.base import ContextOverflowError, Reply
from coplay.rollout_tree.branching import BranchPlan, Origin
from coplay.rollout_tree.budget import Schedule
from coplay.rollout_tree.grafting import make_tree
from coplay.rollout_tree.plan import CollectPlan, EpisodePlan, Progress
from coplay.rollout_tree.play import Play
from coplay.rollout_tree.records import RolloutTree
from coplay.rollout_tree.replies import Ask
from coplay.rollout_tree.values import values_before


class TooManyFailedEpisodes(RuntimeError):
    """More episodes failed than the plan puts up with; the first cause is its `__cause__`."""

    def __init__(self, message: str, trees: list[RolloutTree]) -> None:
        super().__init__(message)
        self.trees = trees
        """Everything played so far, for inspection."""


def collect_sync(plan: CollectPlan) -> list[RolloutTree]:
    """`collect` for callers outside an event loop."""
    trees: list[RolloutTree] = []

    async def play() -> None:
        # asyncio.run writes out the repr of its result in putting the signal handler back: let that be short
        trees.extend(await collect(plan))

    asyncio.run(play())
    return trees


async def collect(plan: CollectPlan) -> list[RolloutTree]:
    """Play all episodes of a plan to their end, and then all branches that it asks for.

    Lines are over before a branch of them begins, so branches change nothing about them. A branch that fails is
    recorded as failed; its line and its siblings stay, and it does not fork.

    Returns:
        One tree for each episode, sorted by id, failed ones included.

    Raises:
        TooManyFailedEpisodes: as soon as more than `max_failed_share` of the episodes, or of the branches begun, have
            failed.
        ValueError: if branches are to be chosen by entropy or value and a player has none.
    """
    branching = plan.branching
    mains = [_play(plan, episode) for episode in sorted(plan.episodes, key=lambda p: p.episode)]
    lines = _Lines(plan, mains)
    await lines.play(mains)
    if branching is not None:
        await lines.branch(branching)
    return lines.trees()


def _play(plan: CollectPlan, episode: EpisodePlan, origin: Origin | None = None) -> Play:
    game = plan.game_of(episode)
    return Play(game, game.spec, episode, branching=plan.branching, origin=origin)


class _Lines:
    """The main lines and branches of one collect, and how far they have come."""

    def __init__(self, plan: CollectPlan, mains: Sequence[Play]) -> None:
        self._plan, self._mains = plan, mains
        self._schedules: dict[Play, Schedule] = {}
        self._begun: list[Play] = []
        """All branches so far."""
        self._failed: list[Play] = []
        """Of what is played now, main lines or branches."""
        self._num_failed = self._num_turns = 0

    def trees(self) -> list[RolloutTree]:
        """Everything played so far."""
        return [
            make_tree(
                self._plan.label_of(main.plan),
                main,
                self._schedules[main].branches if main in self._schedules else (),
            )
            for main in self._mains
        ]

    async def branch(self, branching: BranchPlan) -> None:
        """Play the branches of all lines, then theirs, until no schedule has more."""
        plan = self._plan
        self._num_failed, self._failed = len(self._failed), []
        self._schedules = {main: Schedule(branching, main) for main in self._mains}
        over: list[tuple[Schedule, Play]] = [(schedule, main) for main, schedule in self._schedules.items()]
        while True:
            told = values_before(branching, plan.values, over)
            for (schedule, line), values in zip(over, told, strict=True):
                schedule.add(line, values)
            over = [
                (schedule, _play(plan, main.plan, origin))
                for main, schedule in self._schedules.items()
                for origin in schedule.next()
            ]
            if not over:
                return
            for schedule, line in over:
                schedule.begin([line])
            self._begun += [line for _, line in over]
            await self.play([line for _, line in over])

    async def play(self, plays: Sequence[Play]) -> None:
        """Play all of them to their end, wave by wave."""
        plan, failed = self._plan, self._failed
        for play in plays:
            _settle(play, _caught(play, play.start), failed)
        live = [play for play in plays if play.asks]
        while live:
            self._stop_if_too_many()
            self._num_turns += sum([len(play.asks) for play in live])
            await _wave(plan, live, failed)
            live = [play for play in live if play.asks]
            if plan.on_wave is not None:
                plan.on_wave(self._progress(live))
        self._stop_if_too_many()

    def _progress(self, live: Sequence[Play]) -> Progress:
        num_episodes, num_branches, main = len(self._mains), len(self._begun), not self._begun
        return Progress(
            num_episodes=num_episodes,
            num_done=num_episodes - len(live) if main else num_episodes,
            num_failed=len(self._failed) if main else self._num_failed,
            num_turns=self._num_turns,
            num_branches=num_branches,
            num_branches_done=0 if main else num_branches - len(live),
        )

    def _stop_if_too_many(self) -> None:
        plan, failed, plays = self._plan, self._failed, self._begun or self._mains
        if not failed or len(failed) <= plan.max_failed_share * len(plays):
            return
        first = failed[0]
        failure, branch = first.failure, first.branch
        assert failure is not None
        seat = first.plan.seat_names.get(failure.player, "")
        who = f"agent {seat!r} of player {failure.player!r}" if failure.player else "the game itself"
        where = (
            f"branch {branch!r} of episode {first.plan.episode!r}"
            if branch
            else f"episode {first.plan.episode!r}"
        )
        raise TooManyFailedEpisodes(
            f"{len(failed)} of {len(plays)} {'branches' if branch else 'episodes'} of {plan.told_games()} failed,"
            f" more than the share of {plan.max_failed_share} that is allowed; first in {where} at step"
            f" {failure.step}: {who} raised {failure.reason}",
            self.trees(),
        ) from first.cause


async def _wave(plan: CollectPlan, live: Sequence[Play], failed: list[Play]) -> None:
    """Ask every waiting player at once; then let each episode proceed with its answers."""
    loop = asyncio.get_running_loop()
    ask = Play.answer if plan.time_limit is None else _timed_answer
    asked = [[loop.create_task(ask(play, a)) for a in play.asks] for play in live]
    tasks = [task for group in asked for task in group]
    try:
        if plan.time_limit is None:
            for (
                task
            ) in tasks:  # all are done by the time the first one is: waiting for each would wake up for each
                if not task.done():
                    await asyncio.wait([task])
        else:
            await _wait_within(plan.time_limit, live, asked)
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
            elif not task.cancelled():
                task.exception()  # looked at, so that asyncio does not print it once more
    for play, group in zip(live, asked, strict=True):
        late = next((a.player for a, task in zip(play.asks, group, strict=True) if not task.done()), None)
        dropped = next((a.player for a, task in zip(play.asks, group, strict=True) if task.cancelled()), None)
        error: Exception | None
        if dropped is not None:
            play.culprit = dropped
            error = RuntimeError("the agent cancelled its own reply")
        elif late is None:
            error = _caught(play, partial(play.proceed, [task.result for task in group]))
        else:
            play.culprit = late
            error = TimeoutError(f"timed out: the episode waited {plan.time_limit} s for replies")
        _settle(play, error, failed)


async def _timed_answer(play: Play, ask: Ask) -> Reply:
    """Answer, and charge the episode the time from the start of the wave to its last reply."""
    loop = asyncio.get_running_loop()
    start, before = loop.time(), play.waited
    try:
        return await play.answer(ask)
    finally:
        play.waited = max(play.waited, before + loop.time() - start)


async def _wait_within(
    limit: float, live: Sequence[Play], asked: Sequence[Sequence[asyncio.Task[Reply]]]
) -> None:
    """Wait until every episode has its answers or has used up its time; late tasks are left undone."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    waiting = {play: (start + limit - play.waited, group) for play, group in zip(live, asked, strict=True)}
    while waiting:
        tasks = [task for _, group in waiting.values() for task in group if not task.done()]
        if tasks:
            earliest = min(deadline for deadline, _ in waiting.values())
            await asyncio.wait(tasks, timeout=max(0.0, earliest - loop.time()))
        now = loop.time()
        waiting = {
            play: (deadline, group)
            for play, (deadline, group) in waiting.items()
            if deadline > now and not all(task.done() for task in group)
        }


def _caught(play: Play, work: Callable[[], None]) -> Exception | None:
    """The boundary: run a game's and its agents' code for one episode and give back what it raised."""
    try:
        work()
    except Exception as error:
        return error
    return None


def _settle(play: Play, error: Exception | None, failed: list[Play]) -> None:
    """After an episode was moved on: note its failure, and close it if it is over."""
    if error is None and not play.asks:
        error = _close(play)
    if error is not None:
        play.fail(error)
        failed.append(play)
    if not play.asks:
        play.finish()


def _close(play: Play) -> Exception | None:
    """After a truncation, let the players read on once.

    A game need not show anything to players who are not to move, and a full context cannot read on: they have
    no closing turn, and their value is read at their last token.
    """
    for player in play.closers():
        error = _caught(play, partial(play.close, player))
        not_shown = player not in play.movers and not play.culprit
        if error is not None and not not_shown and not isinstance(error, ContextOverflowError):
            return error
    return None

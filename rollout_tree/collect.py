"""Play many episodes at once, in waves: everyone who is to move replies, then every complete step is taken.

All replies of a wave are asked for together and awaited together, so an engine sees the whole wave in one
batch, and the batch depends on ids alone (law 8). This module has the one boundary at which foreign code (of
games and agents) may raise: such an episode is recorded as failed, the others go on (rule 12).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from coplay.agents.base import ContextOverflowError, Reply
from coplay.rollout_tree.plan import CollectPlan, Progress
from coplay.rollout_tree.play import Ask, Play
from coplay.rollout_tree.records import RolloutTree


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
    """Play all episodes of a plan to their end.

    Returns:
        One tree for each episode, sorted by id, failed ones included.

    Raises:
        TooManyFailedEpisodes: as soon as more than `max_failed_share` of the episodes have failed.
    """
    spec = plan.game.spec
    plays = [Play(plan.game, spec, p) for p in sorted(plan.episodes, key=lambda p: p.episode)]
    failed: list[Play] = []
    for play in plays:
        _settle(play, _caught(play, play.start), failed)
    num_turns = 0
    live = [play for play in plays if play.asks]
    while live:
        _stop_if_too_many(plan, plays, failed)
        num_turns += sum([len(play.asks) for play in live])
        await _wave(plan, live, failed)
        live = [play for play in live if play.asks]
        if plan.on_wave is not None:
            num_done = len(plays) - len(live)
            plan.on_wave(
                Progress(
                    num_episodes=len(plays), num_done=num_done, num_failed=len(failed), num_turns=num_turns
                )
            )
    _stop_if_too_many(plan, plays, failed)
    return [play.tree() for play in plays]


async def _wave(plan: CollectPlan, live: Sequence[Play], failed: list[Play]) -> None:
    """Ask every waiting player at once; then let each episode proceed with its answers."""
    loop = asyncio.get_running_loop()
    ask = Play.answer if plan.time_limit is None else _timed_answer
    asked = [[loop.create_task(ask(play, a)) for a in play.asks] for play in live]
    tasks = [task for group in asked for task in group]
    try:
        if plan.time_limit is None:
            await asyncio.wait(tasks)
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


def _stop_if_too_many(plan: CollectPlan, plays: Sequence[Play], failed: Sequence[Play]) -> None:
    if not failed or len(failed) <= plan.max_failed_share * len(plays):
        return
    first = failed[0]
    failure = first.failure
    assert failure is not None
    seat = first.plan.seat_names.get(failure.player, "")
    who = f"agent {seat!r} of player {failure.player!r}" if failure.player else "the game itself"
    raise TooManyFailedEpisodes(
        f"{len(failed)} of {len(plays)} episodes of game {plan.game.name!r} failed, more than the share of"
        f" {plan.max_failed_share} that is allowed; first in episode {first.plan.episode!r} at step"
        f" {failure.step}: {who} raised {failure.reason}",
        [play.tree() for play in plays],
    ) from first.cause

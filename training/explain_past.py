"""Which fresh replies made each own past advantage of an alignment weight, where the past is expected."""

from collections.abc import Iterable

from coplay.training.explain_branches import by_games
from coplay.training.explain_parts import baseline_of
from coplay.training.explanation import Baseline, PastAdvantage, Sibling
from coplay.training.inner_expectation import expects_past
from coplay.training.records import PastEstimate
from coplay.training.recredit import Recredited


def past_of(result: Recredited, row: int, ticks: Iterable[int]) -> tuple[PastAdvantage, ...]:
    """What stands for the own advantage of each of these ticks; nothing where the past is as taken."""
    past, settings = result.estimate.past, expects_past(result.config.shaping)
    if past is None or settings is None:
        return ()
    found = []
    for tick in ticks:
        if (row, tick) in past.unforked:
            found.append(PastAdvantage(tick=tick, kind="zero" if settings.unforked == "zero" else "taken"))
        elif (row, tick) not in past.replies:
            found.append(PastAdvantage(tick=tick, kind="no reply"))
        else:
            found.append(
                _expected(result, past, row, tick, among_expected=settings.baseline == "leave_one_out")
            )
    return tuple(found)


def _expected(
    result: Recredited, past: PastEstimate, row: int, tick: int, *, among_expected: bool
) -> PastAdvantage:
    fresh = past.replies[row, tick]
    replies = tuple(
        Sibling(episode=line.episode, branch=line.branch, returns=gain, step=step)
        for step, line, gain in zip(fresh.steps, fresh.lines, fresh.returns, strict=True)
    )
    baseline = _other_games(result, past, row, tick) if among_expected else None
    return PastAdvantage(
        tick=tick, kind="expected", replies=replies, baseline=baseline or _own_baseline(result, row, tick)
    )


def _other_games(result: Recredited, past: PastEstimate, row: int, tick: int) -> Baseline | None:
    """The mean of the group's other games' expected returns; None if no other has one at the tick."""
    table = result.table
    mates = (table.group_ids == table.group_ids[row]).nonzero().squeeze(1).tolist()
    others = tuple(
        Sibling(episode=table.keys[mate].episode, branch="", returns=float(past.expected[mate, tick]))
        for mate in mates
        if (mate, tick) in past.replies
        and not table.keys[mate].branch
        and table.keys[mate].episode != table.keys[row].episode
    )
    if not others:
        return None
    mean = sum(one.returns for one in others) / len(others)
    return Baseline(kind="leave_one_out", amount=mean, siblings=others)


def _own_baseline(result: Recredited, row: int, tick: int) -> Baseline:
    """The path's own: what its advantage at the tick was measured against."""
    return baseline_of(result, row, tick) if result.raw.turns is None else by_games(result, row, tick)

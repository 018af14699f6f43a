"""`coplay explain RUN EPISODE TURN`: what a turn's credit is made of."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from coplay.rollout_tree.pieces import find_pieces
from coplay.rollout_tree.render import safe_text
from coplay.scripts.entrants import run_folder
from coplay.training.messages import ConfigError

if TYPE_CHECKING:
    from coplay.training.explanation import (
        AlignmentWeight,
        Baseline,
        Explanation,
        Normalising,
        PastAdvantage,
        Sibling,
    )

USAGE = """coplay explain RUN EPISODE TURN [--json]

Shows what a stored turn's credit is made of: rewards and the baseline, or the critic's surprises, the own past and the
opponents' advantages it was multiplied by, whitening, penalty and weight of its tick; they add up to the credit that
its tokens were trained with. Where the game branches, also the lines that a return is the mean of, and the siblings;
where alignment weights expect the own past, the fresh replies that made each of its advantages.

RUN      a run folder, or a name in runs/
EPISODE  ITERATION/NUMBER, as in 000003/00012 or 3/12
TURN     STEP.PLAYER[.ATTEMPT]: number of the step, as transcripts and tables have it (`step` of table turns; a branch's
         steps have numbers of their own), and whose turn; attempts count from 0, and the last one, whose move was
         played, is taken if none is named
--json   print everything as one JSON object instead, texts whole

Example: coplay explain runs/my_run 3/12 4.Ada
"""

BASELINES = {
    "critic": "baseline: the critic's value",
    "leave_one_out": "baseline: mean of the group's other games",
    "group_mean": "baseline: mean of the group's games",
    "running_mean": "baseline: running mean of earlier iterations",
    "none": "baseline: none",
}
UNEXPECTED = {
    "taken": "as taken, since no reply was resampled there",
    "zero": "0, since no reply was resampled there",
    "no reply": "as it is, since the player gave no reply there",
}


def main(arguments: Sequence[str]) -> int:
    """Explain one turn."""
    words = list(arguments)
    if not words or "-h" in words or "--help" in words:
        sys.stdout.write(USAGE)
        return 0 if words else 2
    as_json = "--json" in words
    words = [word for word in words if word != "--json"]
    unknown = [word for word in words if word.startswith("--")]
    if unknown or len(words) != 3:
        got = f"{unknown[0]!r} is no flag" if unknown else f"{len(words)} words"
        raise ConfigError(
            f"{got}; expected three words: coplay explain RUN EPISODE TURN [--json] (a credit under other settings is"
            " told by coplay recredit)"
        )
    folder = run_folder(words[0])
    from coplay.training.explain import explain_turn, find_episode, parse_turn
    from coplay.training.explain_texts import with_pieces
    from coplay.training.recredit import load_iteration, recredit
    from coplay.training.stored_config import read_config

    iteration, episode = find_episode(words[1])
    turn = parse_turn(words[2], read_config(folder).make_game().spec.players)
    stored = load_iteration(folder, iteration)
    found = explain_turn(stored, recredit(stored, stored.config), episode, turn)
    for pieces in find_pieces(folder, [found.tokenizer]).values():
        found = with_pieces(found, pieces)
    if as_json:
        sys.stdout.write(json.dumps(found.plain(), indent=2, allow_nan=False) + "\n")
        return 0
    console = Console(file=sys.stdout, width=110, markup=False, emoji=False, highlight=False)
    for piece in _pieces(found):
        console.print(piece)
    return 0


def _pieces(one: "Explanation") -> Iterable[str | Table]:
    """Everything that is shown, in the order in which credit arises."""
    yield safe_text(
        f"episode {one.episode}  step {one.step}  tick {one.tick}  {one.player} ({one.policy})  attempt"
        f" {one.attempt}{one.branch and f'  branch {one.branch}'}"
    )
    yield from (f"  {mark} {safe_text(' '.join(said.split()))[:200]}" for mark, said in _spoken(one))
    if one.share != 1:
        yield f"  share {_number(one.share)}: what its loss is multiplied by, since the game branches"
    if one.reward_scale != 1:
        yield f"  all numbers are in scaled units: rewards over {one.reward_scale:g}"
    yield reward_table(one)
    yield surprise_table(one) if one.errors else baseline_text(one.baseline)
    for when, change in (("by the group", one.scaled), ("before shaping", one.before)):
        if change:
            yield normalising_text(when, change)
    if one.alignment:
        yield alignment_table(one.alignment)
        for past in one.alignment.expected:
            yield past_table(past) if past.kind == "expected" else past_text(past)
    if one.others:
        yield others_table(one)
    if one.after:
        yield normalising_text("after shaping", one.after)
    yield sum_table(one)
    if one.tokens:
        yield token_table(one)


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", min_width=len(title))
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _number(value: float) -> str:
    return f"{value:.6g}"


def reward_table(one: "Explanation") -> Table:
    """The discounted return."""
    title = "return: rewards from the tick on" + (", less their KL" if one.taken else "")
    table = _table(title, "tick", "weight", "amount", "adds")
    told = [f"branch {line.branch} at {line.tick}: {_said(line.reply)}" for line in one.lines]
    for term in one.rewards:
        table.add_row(str(term.tick), _number(term.weight), _number(term.amount), _number(term.product))
    for line, words in zip(one.lines, told, strict=True):
        numbers = (line.weight, line.returns, line.product)
        table.add_row(safe_text(words), *map(_number, numbers))
    for term in one.beyond:
        numbers = (term.weight, term.amount, term.product)
        table.add_row(f"value at {term.tick}", *map(_number, numbers))
    table.add_row("return", "", "", _number(one.returns))
    return table


def surprise_table(one: "Explanation") -> Table:
    """The advantage under a critic."""
    table = _table(
        "advantage: what the critic had not foreseen",
        "tick",
        "weight",
        "reward",
        "+ value after",
        "- value",
        "= surprise",
        "adds",
    )
    for error in one.errors:
        numbers = (error.weight, error.reward, error.following, error.value, error.delta, error.product)
        table.add_row(str(error.tick), *map(_number, numbers))
    table.add_row("advantage", *[""] * 5, _number(one.advantage))
    return table


def baseline_text(baseline: "Baseline") -> str:
    """What was subtracted, and who made it."""
    if baseline.kind == "none":
        return "baseline: none"
    if baseline.kind == "running_mean":
        return f"baseline {_number(baseline.amount)}: running mean of {baseline.seen:g} returns of earlier iterations"
    at_fork = baseline.kind == "replies"
    whose = "other replies at this fork" if at_fork else "others of the group at the tick"
    if baseline.kind == "group_mean":
        whose = "games of the group, this one among them"
    mates = "\n".join(f"  {_sibling(mate)}" for mate in baseline.siblings)
    return (
        f"baseline {_number(baseline.amount)}: mean return of the {len(baseline.siblings)} {whose}\n{mates}"
    )


def _sibling(one: "Sibling") -> str:
    """Its name, what was answered and what it got."""
    name = one.episode if one.step is None else f"{one.branch or 'main line'} (step {one.step})"
    return f"{safe_text(name)} {_number(one.returns)}: {safe_text(_said(one.reply))}"


def _spoken(one: "Explanation") -> list[tuple[str, str]]:
    """Calls of tools and the reply."""
    return [*(("?", call) for call in one.calls), (">", one.reply)]


def _said(reply: str, length: int = 60) -> str:
    """A reply in one line."""
    line = " ".join(reply.split())
    return line if len(line) <= length else f"{line[:length]}…"


def normalising_text(when: str, one: "Normalising") -> str:
    """One line for whitening or centring."""
    deviation = "" if one.deviation is None else f", deviation {_number(one.deviation)}"
    return safe_text(
        f"normalising {when}: {_number(one.before)} becomes {_number(one.after)} (mean {_number(one.mean)}"
        f"{deviation} over {one.over})"
    )


def alignment_table(alignment: "AlignmentWeight") -> Table:
    """The own past, and what the options made of its sum."""
    table = _table("weight of the others: the own past", "tick", "weight", "own advantage", "adds")
    for term in alignment.past:
        table.add_row(str(term.tick), _number(term.weight), _number(term.amount), _number(term.product))
    for name, value in alignment.steps:
        table.add_row(name, "", "", _number(value))
    beta = _number(alignment.beta)
    table.add_row(f"times beta {beta}", "", "", _number(alignment.beta * alignment.weight))
    return table


def past_table(past: "PastAdvantage") -> Table:
    """The fresh replies whose mean return is expected, and what is subtracted."""
    assert past.baseline is not None
    table = _table(f"own advantage expected at tick {past.tick}", "reply", "return", "share", "adds")
    share = 1 / len(past.replies)
    for one in past.replies:
        name = f"{one.branch or 'main line'} (step {one.step}): {_said(one.reply)}"
        table.add_row(safe_text(name), *map(_number, (one.returns, share, share * one.returns)))
    table.add_row(BASELINES[past.baseline.kind], "", "", _number(-past.baseline.amount))
    table.add_row("expected advantage", "", "", _number(past.amount))
    return table


def past_text(past: "PastAdvantage") -> str:
    """Why nothing was expected at a tick."""
    return f"own advantage at tick {past.tick}: {UNEXPECTED[past.kind]}"


def others_table(one: "Explanation") -> Table:
    """Whose advantages shaping added."""
    table = _table("the others at the tick", "player", "weight", "his advantage", "adds")
    for term in one.others:
        table.add_row(
            safe_text(term.player), _number(term.weight), _number(term.amount), _number(term.product)
        )
    return table


def sum_table(one: "Explanation") -> Table:
    """All parts, their sum, and what was stored."""
    table = _table("credit" if one.trained else "advantage that the others were told", "part", "adds")
    for part in one.parts:
        table.add_row(safe_text(part.what), _number(part.amount))
    table.add_section()
    table.add_row("sum", _number(one.credit))
    if one.stored is not None:
        table.add_row("stored", _number(one.stored))
    return table


def token_table(one: "Explanation") -> Table:
    """What each token's log-prob was multiplied by."""
    table = _table(
        "tokens",
        "position",
        "token",
        "text",
        "log-prob",
        "importance weight",
        "credit",
        "weight times credit",
    )
    for token in one.tokens:
        numbers = (
            token.log_prob,
            token.importance_weight,
            token.credit,
            token.importance_weight * token.credit,
        )
        said = safe_text(repr(token.text)) if token.text else ""
        table.add_row(str(token.position), str(token.token), said, *map(_number, numbers))
    return table

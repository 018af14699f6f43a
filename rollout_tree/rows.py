"""From Arrow tables back to records, joined by ids."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from coplay.agents.base import Sampling, Segment, ToolCall
from coplay.games import Action, Malformed, Move, Observation
from coplay.games.grammar import Grammar, grammar_from_json
from coplay.games.tools import Tools, tools_from_json
from coplay.rollout_tree.json_text import loads, unshield
from coplay.rollout_tree.records import Failure, RolloutTree, Step, Turn

if TYPE_CHECKING:
    import pyarrow as pa

TurnPlace = tuple[str, int, bool]
"""Episode, step, closing."""


def plain_columns(table: "pa.Table") -> dict[str, list[Any]]:
    """Every column as a Python list, texts in their own form again."""
    return {name: _column(table.column(name)) for name in table.column_names}


def grouped(table: "pa.Table", keys: Sequence[str]) -> Iterator[tuple[dict[str, Any], dict[str, list[Any]]]]:
    """The rows that agree in the columns `keys`, wherever they stand: these values, and the other columns."""
    columns = plain_columns(table)
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(zip(*(columns.pop(name) for name in keys), strict=True)):
        places.setdefault(key, []).append(place)
    for key, chosen in places.items():
        values = {name: [column[place] for place in chosen] for name, column in columns.items()}
        yield dict(zip(keys, key, strict=True)), values


def _column(column: "pa.ChunkedArray") -> list[Any]:
    import pyarrow as pa

    kind, values = column.type, []
    for chunk in column.chunks:
        if pa.types.is_dictionary(kind):
            entries = [None if text is None else unshield(text) for text in chunk.dictionary.to_pylist()]
            values += [None if code is None else entries[code] for code in chunk.indices.to_pylist()]
        elif pa.types.is_list(kind) and not pa.types.is_struct(kind.value_type):
            flat = chunk.values.to_numpy(zero_copy_only=False).tolist()
            ends = chunk.offsets.to_pylist()
            values += [flat[start:end] for start, end in pairwise(ends)]
        elif pa.types.is_large_string(kind) or pa.types.is_string(kind):
            values += [None if text is None else unshield(text) for text in chunk.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


def trees_from_tables(
    episodes: "pa.Table", steps: "pa.Table", turns: "pa.Table", iteration: int
) -> Iterator[RolloutTree]:
    """Put episodes together again: equal to what was written, whatever the order of rows between episodes."""
    turns_at = _turns_by_place(plain_columns(turns))
    steps_of: dict[str, list[Step]] = defaultdict(list)
    for episode, step in _steps(plain_columns(steps), turns_at):
        steps_of[episode].append(step)
    columns = plain_columns(episodes)
    for row in _rows(columns):
        failed = row["failure_reason"] is not None
        yield RolloutTree(
            episode=row["episode"],
            iteration=iteration,
            game=row["game"],
            group=row["group"],
            group_seed=row["group_seed"],
            seats={unshield(seat["player"]): unshield(seat["policy"]) for seat in row["seats"]},
            steps=tuple(steps_of.pop(row["episode"], ())),
            failure=Failure(
                player=row["failure_player"], step=row["failure_step"], reason=row["failure_reason"]
            )
            if failed
            else None,
        )


def _rows(columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def _steps(
    columns: Mapping[str, Sequence[Any]], turns_at: Mapping[TurnPlace, list[Turn]]
) -> Iterator[tuple[str, Step]]:
    for row in _rows(columns):
        episode, number = row["episode"], row["step"]
        yield (
            episode,
            Step(
                id=number,
                parent=row["parent"],
                branch=row["branch"],
                index=row["index"],
                tick=row["tick"],
                turns=tuple(turns_at.get((episode, number, False), ())),
                rewards={unshield(pair["player"]): pair["value"] for pair in row["rewards"]},
                status=row["status"],
                info=loads(row["info_json"]),
                closing=tuple(turns_at.get((episode, number, True), ())),
            ),
        )


def _turns_by_place(columns: Mapping[str, Sequence[Any]]) -> dict[TurnPlace, list[Turn]]:
    grammars: dict[str, Grammar] = {}
    placed: dict[TurnPlace, list[tuple[int, Turn]]] = defaultdict(list)
    for row in _rows(columns):
        text = row["grammar_json"]
        if text not in grammars:
            grammars[text] = grammar_from_json(loads(text))
        place = (row["episode"], row["step"], row["closing"])
        placed[place].append((row["position"], _turn(row, grammars[text])))
    for turns in placed.values():
        turns.sort(key=lambda entry: entry[0])
    return {place: [turn for _, turn in turns] for place, turns in placed.items()}


def _turn(row: Mapping[str, Any], grammar: Grammar) -> Turn:
    return Turn(
        player=row["player"],
        observation=Observation(
            text=row["text"],
            grammar=grammar,
            system=row["system"],
            fresh_context=row["forget"],
            facts=loads(row["facts_json"]),
            tools=_tools(row.get("tools_json")),
        ),
        reply=row["reply"],
        action=_action(row),
        segments=_segments(row),
        policy=row["policy"],
        finish=row["finish"],
        attempt=row["attempt"],
        sampling=None
        if row["temperature"] is None
        else Sampling(
            temperature=row["temperature"],
            max_new_tokens=row["max_new_tokens"],
            seed=row["sampling_seed"],
            constrained=row["constrained"],
        ),
        tokenizer=row["tokenizer"],
        fresh_context=row["fresh_context"],
        penalty=row["penalty"],
        trains_once_for=row["trains_once_for"],
        calls=_calls(row.get("calls_json")),
    )


@lru_cache(maxsize=256)
def _tools(written: str | None) -> Tools | None:
    """None where the game offers none; files of before there were tools have no such column."""
    return None if written is None else tools_from_json(loads(written))


def _calls(written: str | None) -> tuple[ToolCall, ...]:
    return () if written is None else tuple([ToolCall(**call) for call in loads(written)])


def _action(row: Mapping[str, Any]) -> Action:
    if row["malformed"] is not None:
        return Malformed(reason=row["malformed"], text=row["action_text"])
    return Move(value=loads(row["move_json"]), text=row["action_text"])


def _segments(row: Mapping[str, Any]) -> tuple[Segment, ...]:
    ids, log_probs = row["ids"], row["log_probs"]
    segments, start, spent = [], 0, 0
    for length, sampled in zip(row["segment_lengths"], row["segment_sampled"], strict=True):
        end = start + length
        probs = tuple(log_probs[spent : spent + length]) if sampled else ()
        spent += len(probs)
        segments.append(Segment(tuple(ids[start:end]), sampled, probs))
        start = end
    return tuple(segments)

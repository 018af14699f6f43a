"""From records to Arrow tables: one pass over the turns for each column, nothing nested, nothing inferred."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from coplay.games import Malformed
from coplay.games.tools import tools_to_json
from coplay.rollout_tree.json_text import dumps, shield
from coplay.rollout_tree.records import RolloutTree, Step, Turn
from coplay.rollout_tree.schema import Table, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


def make_table(name: Table, columns: dict[str, "pa.Array | Sequence[Any]"]) -> "pa.Table":
    """Build a table under its fixed schema from one Arrow array or Python sequence for each column.

    Raises:
        KeyError: if a column is missing or unknown; none is dropped or filled in silently.
    """
    import pyarrow as pa

    schema = arrow_schema(name)
    if set(columns) != set(schema.names):
        odd = sorted(set(columns) ^ set(schema.names))
        raise KeyError(f"columns {odd} of table {name!r}; expected exactly {schema.names}")
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, type=schema.field(key).type)
        for key, column in ((key, columns[key]) for key in schema.names)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def words(values: Iterable[str | None]) -> "pa.DictionaryArray":
    """A column of texts that repeat: each is stored once."""
    import pyarrow as pa

    values = list(values)
    told = [value for value in dict.fromkeys(values) if value is not None]
    codes: dict[str | None, int] = {value: place for place, value in enumerate(told)}
    return pa.DictionaryArray.from_arrays(
        pa.array(list(map(codes.get, values)), pa.int32()),
        pa.array([shield(value) for value in told], pa.string()),
    )


def lists(items: Sequence[Sequence[Any]], kind: Any) -> "pa.ListArray":
    """A column of lists, built flat."""
    import pyarrow as pa

    offsets = pa.array([0, *accumulate(map(len, items))], pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(list(chain.from_iterable(items)), kind))


def pairs(items: Sequence[dict[str, Any] | None], field: str, kind: Any) -> "pa.ListArray":
    """A column of mappings from players, as lists of (player, `field`); exactly the keys each has."""
    import pyarrow as pa

    filled = [item or {} for item in items]
    offsets = pa.array([0, *accumulate(map(len, filled))], pa.int32())
    players = pa.array([shield(key) for item in filled for key in item], pa.string())
    values = pa.array([value for item in filled for value in item.values()], kind)
    structs = pa.StructArray.from_arrays([players, values], ["player", field])
    absent = pa.array([item is None for item in items], pa.bool_())
    return pa.ListArray.from_arrays(offsets, structs, mask=absent)


class _JsonTexts:
    """Writes JSON values, each object once: equal objects of one call are often the same object."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def __call__(self, value: Any, name: str, convert: Callable[[Any], Any] | None = None) -> str:
        text = self._known.get(id(value))
        if text is None:
            text = shield(dumps(convert(value) if convert else value, name))
            self._known[id(value)] = text
        return text


def episodes_table(trees: Sequence[RolloutTree]) -> "pa.Table":
    """One row for each episode."""
    import pyarrow as pa

    failures = [tree.failure for tree in trees]
    return make_table(
        "episodes",
        {
            "episode": [shield(tree.episode) for tree in trees],
            "game": words(tree.game for tree in trees),
            "group": [shield(tree.group) for tree in trees],
            "group_seed": [tree.group_seed for tree in trees],
            "seats": pairs(
                [{player: shield(policy) for player, policy in tree.seats.items()} for tree in trees],
                "policy",
                pa.string(),
            ),
            "status": words(tree.status for tree in trees),
            "num_steps": [len(tree.steps) for tree in trees],
            "returns": pairs([_returns(tree) for tree in trees], "value", pa.float64()),
            "failure_player": words(None if f is None else f.player for f in failures),
            "failure_step": [None if f is None else f.step for f in failures],
            "failure_reason": [None if f is None else shield(f.reason) for f in failures],
        },
    )


def _returns(tree: RolloutTree) -> dict[str, float] | None:
    if tree.failure is not None:
        return None
    totals = dict.fromkeys(tree.seats, 0.0)
    for step in tree.steps:
        if not step.branch:
            for player, reward in step.rewards.items():
                totals[player] = totals.get(player, 0.0) + reward
    return totals


def steps_table(trees: Sequence[RolloutTree]) -> "pa.Table":
    """One row for each step of each episode."""
    import pyarrow as pa

    steps = [step for tree in trees for step in tree.steps]
    json = _JsonTexts()
    return make_table(
        "steps",
        {
            "episode": words(tree.episode for tree in trees for _ in tree.steps),
            "step": [step.id for step in steps],
            "parent": [step.parent for step in steps],
            "branch": words(step.branch for step in steps),
            "index": [step.index for step in steps],
            "tick": [step.tick for step in steps],
            "rewards": pairs([dict(step.rewards) for step in steps], "value", pa.float64()),
            "status": words(step.status for step in steps),
            "info_json": [json(step.info, f"info of step {step.id}") for step in steps],
        },
    )


def turns_table(trees: Sequence[RolloutTree]) -> "pa.Table":
    """One row for each turn of each step, closing turns after the others."""
    places = [
        (tree.episode, step.id, closing, position)
        for tree in trees
        for step in tree.steps
        for closing, turns in ((False, step.turns), (True, step.closing))
        for position in range(len(turns))
    ]
    turns = [turn for tree in trees for step in tree.steps for turn in _all_turns(step)]
    return make_table(
        "turns",
        {
            "episode": words(place[0] for place in places),
            "step": [place[1] for place in places],
            "closing": [place[2] for place in places],
            "position": [place[3] for place in places],
            "player": words(turn.player for turn in turns),
            "attempt": [turn.attempt for turn in turns],
            "policy": words(turn.policy for turn in turns),
            "reply": [shield(turn.reply) for turn in turns],
            "action_text": [shield(turn.action.text) for turn in turns],
            "finish": words(turn.finish for turn in turns),
            "penalty": [turn.penalty for turn in turns],
            "tokenizer": words(turn.tokenizer for turn in turns),
            "fresh_context": [turn.fresh_context for turn in turns],
            "trains_once_for": words(turn.trains_once_for for turn in turns),
            **_observation_columns(turns),
            **_action_columns(turns),
            **_token_columns(turns),
            **_tool_columns(turns),
        },
    )


def _all_turns(step: Step) -> tuple[Turn, ...]:
    return step.turns + step.closing if step.closing else step.turns


def _observation_columns(turns: Sequence[Turn]) -> dict[str, Any]:
    observations = [turn.observation for turn in turns]
    json = _JsonTexts()
    return {
        "text": [shield(seen.text) for seen in observations],
        "system": words(seen.system for seen in observations),
        "grammar_json": words(
            json(seen.grammar, "a grammar", lambda grammar: grammar.to_json()) for seen in observations
        ),
        "facts_json": [json(seen.facts, "facts of an observation") for seen in observations],
        "forget": [seen.fresh_context for seen in observations],
    }


def _action_columns(turns: Sequence[Turn]) -> dict[str, Any]:
    json = _JsonTexts()
    malformed = [turn.action.reason if isinstance(turn.action, Malformed) else None for turn in turns]
    moves = [
        None if isinstance(turn.action, Malformed) else json(turn.action.value, "a move") for turn in turns
    ]
    return {"malformed": words(malformed), "move_json": moves}


def _tool_columns(turns: Sequence[Turn]) -> dict[str, Any]:
    json = _JsonTexts()
    return {
        "tools_json": words(
            None if (tools := turn.observation.tools) is None else json(tools, "tools", tools_to_json)
            for turn in turns
        ),
        "calls_json": [
            shield(dumps([asdict(call) for call in turn.calls], "a tool call")) if turn.calls else None
            for turn in turns
        ],
    }


def _token_columns(turns: Sequence[Turn]) -> dict[str, Any]:
    import pyarrow as pa

    sampling = [turn.sampling for turn in turns]
    segments = [turn.segments for turn in turns]
    ids = [list(chain.from_iterable([s.ids for s in group])) for group in segments]
    log_probs = [list(chain.from_iterable([s.log_probs for s in group])) for group in segments]
    return {
        "temperature": [None if s is None else s.temperature for s in sampling],
        "max_new_tokens": [None if s is None else s.max_new_tokens for s in sampling],
        "sampling_seed": [None if s is None else s.seed for s in sampling],
        "constrained": [None if s is None else s.constrained for s in sampling],
        "ids": lists(ids, pa.int32()),
        "segment_lengths": lists([[len(s.ids) for s in group] for group in segments], pa.int32()),
        "segment_sampled": lists([[s.sampled for s in group] for group in segments], pa.bool_()),
        "log_probs": lists(log_probs, pa.float32()),
    }

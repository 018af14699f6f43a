"""The tables of a run's rollouts: one fixed, versioned Arrow schema for each, never inferred from rows.

Text is stored in the form of `json_text.shield`, which UTF-8 can always hold; columns ending in `_json` hold
JSON text. The iteration is not a column: it is the name of the folder (Hive partition).
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from coplay.rollout_tree.records import SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

Table = Literal["episodes", "steps", "turns", "credits", "estimates"]
VERSION_KEY = b"coplay.schema_version"


@cache
def arrow_schema(table: Table) -> "pa.Schema":
    """The schema of one table, with the version in its metadata."""
    import pyarrow as pa

    makers = {
        "episodes": _episodes,
        "steps": _steps,
        "turns": _turns,
        "credits": _credits,
        "estimates": _estimates,
    }
    fields = [pa.field(name, kind, nullable=name.startswith("?")) for name, kind in makers[table]().items()]
    fields = [field.with_name(field.name.removeprefix("?")) for field in fields]
    return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


def _kinds() -> tuple[Any, Any, Any]:
    """Repeated text, long text, and a number for each player."""
    import pyarrow as pa

    value = pa.struct([pa.field("player", pa.string()), pa.field("value", pa.float64())])
    return pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.list_(value)


def _episodes() -> dict[str, Any]:
    import pyarrow as pa

    word, text, values = _kinds()
    seat = pa.struct([pa.field("player", pa.string()), pa.field("policy", pa.string())])
    return {
        "episode": pa.string(),
        "game": word,
        "group": pa.string(),
        "group_seed": pa.int64(),
        "seats": pa.list_(seat),
        "status": word,
        "num_steps": pa.int32(),
        "?returns": values,  # raw, along the main line; null for failed episodes
        "?failure_player": word,
        "?failure_step": pa.int32(),
        "?failure_reason": text,
    }


def _steps() -> dict[str, Any]:
    import pyarrow as pa

    word, text, values = _kinds()
    return {
        "episode": word,
        "step": pa.int32(),
        "?parent": pa.int32(),
        "branch": word,
        "index": pa.int32(),
        "tick": pa.int32(),
        "rewards": values,
        "status": word,
        "info_json": text,
    }


def _turns() -> dict[str, Any]:
    import pyarrow as pa

    word, text, _ = _kinds()
    return {
        "episode": word,
        "step": pa.int32(),
        "closing": pa.bool_(),
        "position": pa.int32(),  # among the turns of its step
        "player": word,
        "attempt": pa.int32(),
        "policy": word,
        "text": text,
        "system": word,
        "grammar_json": word,
        "facts_json": text,
        "forget": pa.bool_(),  # Observation.fresh_context
        "reply": text,
        "?move_json": text,  # null for a malformed reply
        "action_text": text,
        "?malformed": word,  # the reason
        "finish": word,
        "penalty": pa.float64(),
        "tokenizer": word,
        "fresh_context": pa.bool_(),
        "trains_once_for": word,
        "?temperature": pa.float64(),
        "?max_new_tokens": pa.int32(),
        "?sampling_seed": pa.int64(),
        "?constrained": pa.bool_(),
        "ids": pa.list_(pa.int32()),  # all segments, one after another
        "segment_lengths": pa.list_(pa.int32()),
        "segment_sampled": pa.list_(pa.bool_()),
        "log_probs": pa.list_(pa.float32()),  # of the sampled ids only
        "?tools_json": word,  # null where the game offers none
        "?calls_json": text,  # null where none was called
    }


def _credits() -> dict[str, Any]:
    import pyarrow as pa

    word, _, _ = _kinds()
    numbers = dict.fromkeys(("row", "position", "token", "tick", "turn"), pa.int32())
    named = ("reward_to_go", "value", "baseline", "advantage", "shaping", "importance_weight", "credit")
    return {
        "episode": word,
        "branch": word,
        "player": word,
        **numbers,
        **{f"?{name}": pa.float32() for name in named},
    }


def _estimates() -> dict[str, Any]:
    import pyarrow as pa

    word, _, _ = _kinds()
    return {
        "episode": word,
        "branch": word,
        "player": word,
        "tick": pa.int32(),  # one more than the path has where a critic was read: the state after the last
        "?value": pa.float64(),  # null where no critic was read
        "?running_mean": pa.float64(),  # null after the last tick
        "?running_count": pa.float64(),
        "?penalty": pa.float64(),  # null where no KL lowered rewards
    }

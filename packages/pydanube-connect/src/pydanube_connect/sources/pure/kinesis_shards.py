"""The shards of a stream of Kinesis: which to read, and from where on.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BEGIN = ""
"""The position of a shard that is read from its oldest record on."""
END = "end"
"""The position of a shard that is closed, and read to its end."""
_TIME = "@"

Positions = dict[str, str]
"""The position of each shard: ``BEGIN``, ``END``, a time, or a sequence number."""


def at_time(seconds: float) -> str:
    """Return the position of the first record since *seconds*, in Unix time."""
    return f"{_TIME}{seconds:.3f}"


def with_shards(
    positions: Mapping[str, str],
    shards: Sequence[Mapping[str, Any]],
    *,
    first: str = BEGIN,
) -> Positions:
    """
    Return *positions* with those of all *shards*, and no others.

    *first* is the position of new shards.  Closed ones have no records after a time.
    """
    return {
        shard["ShardId"]: positions.get(
            shard["ShardId"],
            END if first.startswith(_TIME) and _is_closed(shard) else first,
        )
        for shard in shards
    }


def _is_closed(shard: Mapping[str, Any]) -> bool:
    return "EndingSequenceNumber" in shard.get("SequenceNumberRange", {})


def readable(
    positions: Mapping[str, str], shards: Sequence[Mapping[str, Any]]
) -> list[str]:
    """
    Return the shards to read: those whose parents have been read to their end.

    So the records of a key keep their order when a shard is split or merged.
    """
    return [
        shard["ShardId"]
        for shard in shards
        if positions[shard["ShardId"]] != END
        and all(
            positions.get(shard.get(parent, ""), END) == END
            for parent in ("ParentShardId", "AdjacentParentShardId")
        )
    ]


def iterator_at(position: str) -> dict[str, Any]:
    """Return the parameters of an iterator that begins at *position*."""
    if position == BEGIN:
        return {"ShardIteratorType": "TRIM_HORIZON"}
    if position.startswith(_TIME):
        return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": float(position[1:])}
    return {
        "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
        "StartingSequenceNumber": position,
    }

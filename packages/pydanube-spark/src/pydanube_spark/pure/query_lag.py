"""The lag of a streaming query, computed from the progress that Spark reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydanube.model.errors import BrokerError
from pydanube_spark.reader.pure.query_positions import Positions, from_json


def lag(progress: Any) -> dict[str, int]:
    """
    Return how many messages of each topic or partition the query has not read yet.

    Args:
        progress: ``query.lastProgress``, or the progress that Spark passes to a
            ``StreamingQueryListener``.  None, as before the first micro-batch, gives
            no lag.

    The lag is a difference of offsets.  Sources of other formats are ignored.  The lag
    of a topic that was deleted and created again counts from its beginning.
    """
    found: dict[str, int] = {}
    for source in _field(progress, "sources") or ():
        latest = _positions(_field(source, "latestOffset"))
        done = _positions(_field(source, "endOffset"))
        for topic, head in latest.items():
            at = done.get(topic)
            read = at.offset if at is not None and at.topic_id == head.topic_id else 0
            found[topic] = found.get(topic, 0) + max(0, head.offset - read)
    return found


def reached(progress: Any) -> dict[str, int]:
    """
    Return the offsets that the query has reached, by topic or partition.

    *progress* is as for ``lag``.  If several sources read a topic, the smallest counts.
    """
    found: dict[str, int] = {}
    for source in _field(progress, "sources") or ():
        for topic, at in _positions(_field(source, "endOffset")).items():
            found[topic] = min(at.offset, found.get(topic, at.offset))
    return found


def _field(record: Any, name: str) -> Any:
    if isinstance(record, Mapping):
        return record.get(name)
    return getattr(record, name, None)


def _positions(value: Any) -> Positions:
    """Return the positions in *value*, or none if another source wrote it."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
        return from_json(found)
    except (BrokerError, ValueError, KeyError, TypeError, AttributeError):
        return {}

"""How far a streaming query is behind, from what Spark tells about its progress."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydanube.reader import offsets


def lag(progress: Any) -> dict[str, int]:
    """
    How many messages each topic or partition had that the query had not read.

    Args:
        progress: ``query.lastProgress``, or what a ``StreamingQueryListener`` gets.
            None, which it is before the first micro-batch, is no lag.

    Messages are counted by their offsets; sources of other formats are passed over.
    A topic that was created again counts from its beginning.
    """
    found: dict[str, int] = {}
    for source in _field(progress, "sources") or ():
        latest = _positions(_field(source, "latestOffset"))
        done = _positions(_field(source, "endOffset"))
        for topic, head in (latest or {}).items():
            at = (done or {}).get(topic)
            is_same = at is not None and at.topic_id == head.topic_id
            behind = head.offset - (at.offset if at is not None and is_same else 0)
            found[topic] = found.get(topic, 0) + max(0, behind)
    return found


def _field(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def _positions(said: Any) -> offsets.Positions | None:
    """Positions of ours; None if it is another source's, or nothing."""
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except ValueError:
            return None
    if not isinstance(said, dict) or said.get("version") != offsets.VERSION:
        return None
    return offsets.from_json(said)

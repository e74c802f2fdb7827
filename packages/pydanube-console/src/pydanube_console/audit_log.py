"""The last records of the broker's audit log, read as they are added."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from pydanube.client.client import Client
from pydanube.model.errors import PermissionDenied, TopicNotFound
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    element,
    join,
    panel,
    table,
)

TOPIC = "/system/audit"
SEARCHED = 1000
"""How many of the last records are searched for those of a topic."""
CHANGES_SHOWN = 20


class AuditLog:
    """The last records, at most *records_max*."""

    def __init__(self, client: Client, records_max: int = SEARCHED) -> None:
        self.records: deque[dict[str, Any]] = deque(maxlen=records_max)
        """The oldest first."""
        self.problem = ""
        """Why there are none."""
        self._client = client
        self._records_max = records_max
        self._position = -1

    async def update(self) -> None:
        """Read the records that were added since the last call."""
        self.problem = ""
        try:
            topic = await self._client.topics.describe(TOPIC)
        except TopicNotFound:
            self.problem = (
                "The broker has no audit log: enable security in its settings."
            )
            return
        except PermissionDenied:
            self.problem = "You may not read the audit log."
            return
        start = max(
            self._position, topic.base_offset, topic.end_offset - self._records_max
        )
        async for batch in self._client.read(TOPIC, start=start, end=topic.end_offset):
            self.records.extend(json.loads(each) for each in batch.payloads)
        self._position = topic.end_offset


def outcome_badge(record: dict[str, Any]) -> Html:
    """Return whether an operation succeeded."""
    text = str(record.get("outcome", ""))
    return badge(text, "good" if text in {"ok", "success", "done"} else "warn")


def render_changes(log: AuditLog, topic: str) -> Html:
    """Return the last operations on *topic* or one of its partitions."""
    title = f"Last operations on {topic}"
    if log.problem:
        return panel(title, element("p", log.problem, class_="muted"))
    found = [
        each
        for each in reversed(log.records)
        if is_of(topic, str(each.get("resource", "")))
    ]
    rows = [
        (
            each.get("time", ""),
            each.get("principal", ""),
            _operation(each),
            outcome_badge(each),
        )
        for each in found[:CHANGES_SHOWN]
    ]
    columns = [
        Column("Time"),
        Column("Who"),
        Column("Operation"),
        Column("Outcome", is_wide_only=True),
    ]
    empty = f"There are none among the last {SEARCHED} records of the audit log."
    return panel(title, table(columns, rows, caption=title, empty=empty))


def _operation(record: dict[str, Any]) -> Html:
    """Return the operation, and below it the fields of the request."""
    details = element("div", str(record.get("details", "")), class_="muted")
    return join([element("div", str(record.get("operation", ""))), details])


def is_of(topic: str, resources: str) -> bool:
    """Return whether one of *resources* is *topic*, or one of its partitions."""
    return any(
        each == topic or each.startswith(f"{topic}-part-") for each in resources.split()
    )

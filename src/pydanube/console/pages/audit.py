"""The last records of the audit log."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from pydanube.console.frame import frame
from pydanube.console.markup import Column, Html, badge, element, panel, table
from pydanube.console.sessions import Session
from pydanube.console.settings import Payloads
from pydanube.model.errors import PermissionDenied, TopicNotFound

TOPIC = "/system/audit"
SHOWN = 200
COLUMNS = [
    Column("Time"),
    Column("Who"),
    Column("Operation"),
    Column("Resource"),
    Column("Outcome"),
    Column("From", is_wide_only=True),
]


async def show(session: Session, *, payloads: Payloads = Payloads.SHOW) -> None:
    """Show the page."""
    del payloads  # The records are about the broker, not about users' data.
    with frame(session, "Audit log", current="/audit") as page:
        content = page.show()
        records: deque[dict[str, Any]] = deque(maxlen=SHOWN)
        position = -1

        async def update() -> None:
            nonlocal position
            try:
                topic = await page.client.describe_topic(TOPIC)
            except TopicNotFound:
                text = "The broker has no audit log: enable security in its settings."
                content.set_content(element("p", text, class_="muted"))
                return
            except PermissionDenied:
                content.set_content(element("p", "You may not read the audit log."))
                return
            start = max(position, topic.base_offset, topic.end_offset - SHOWN)
            async for batch in page.client.read(
                TOPIC, start=start, end=topic.end_offset
            ):
                records.extend(json.loads(each) for each in batch.payloads)
            position = topic.end_offset
            content.set_content(render(list(records)))

        page.refresh(update)


def render(records: list[dict[str, Any]]) -> Html:
    """Return the records, the newest first."""
    rows = [
        (
            each.get("time", ""),
            each.get("principal", ""),
            each.get("operation", ""),
            each.get("resource", ""),
            _outcome(str(each.get("outcome", ""))),
            each.get("address", ""),
        )
        for each in reversed(records)
    ]
    empty = "There are no records."
    return panel("Last records", table(COLUMNS, rows, caption="Audit log", empty=empty))


def _outcome(text: str) -> Html:
    return badge(text, "good" if text in {"ok", "success", "done"} else "warn")

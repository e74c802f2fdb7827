"""The last records of the audit log."""

from __future__ import annotations

from pydanube_console.audit_log import AuditLog, outcome_badge
from pydanube_console.frame import frame
from pydanube_console.pure.markup import Column, Html, element, panel, table
from pydanube_console.sessions import Session
from pydanube_console.settings import Payloads

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
        log = AuditLog(page.client, SHOWN)

        async def update() -> None:
            await log.update()
            content.set_content(render(log))

        page.refresh(update)


def render(log: AuditLog) -> Html:
    """Return the records, the newest first."""
    if log.problem:
        return element("p", log.problem, class_="muted")
    rows = [
        (
            each.get("time", ""),
            each.get("principal", ""),
            each.get("operation", ""),
            each.get("resource", ""),
            outcome_badge(each),
            each.get("address", ""),
        )
        for each in reversed(log.records)
    ]
    empty = "There are no records."
    return panel("Last records", table(COLUMNS, rows, caption="Audit log", empty=empty))

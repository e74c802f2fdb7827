"""The subjects of the schema registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from pydanube.aio.tasks import gather
from pydanube.client.messages.schema import Schema
from pydanube.model.schemas import SubjectDescription
from pydanube.security.permissions import Permission
from pydanube_console.frame import Page, frame
from pydanube_console.pure.markup import Column, Html, address, link, panel, table
from pydanube_console.sessions import Session

SHOWN_MAX = 500
COLUMNS = [
    Column("Subject"),
    Column("Type"),
    Column("Versions", is_number=True),
    Column("Compatibility"),
    Column("Tags", is_wide_only=True),
]

MAKERS: dict[str, Callable[[str], Schema[Any]]] = {
    "Avro": Schema.avro,
    "JSON Schema": Schema.json_schema,
    "Protobuf": Schema.protobuf,
}


async def show(session: Session) -> None:
    """Show the page."""
    with frame(session, "Schemas", current="/schemas") as page:
        with ui.row().classes("tools"):
            ui.button("New version", on_click=_form(page)).props("unelevated")
        content = page.show()

        async def update() -> None:
            names = sorted(await page.client.schemas.subjects())[:SHOWN_MAX]
            found = await gather(map(page.client.schemas.describe, names))
            content.set_content(render(found))

        page.refresh(update)


def render(subjects: list[SubjectDescription]) -> Html:
    """Return the list."""
    rows = [
        (
            link(each.subject, "/schema", subject=each.subject),
            each.type.value,
            len(each.versions),
            each.compatibility.value,
            ", ".join(each.tags),
        )
        for each in subjects
    ]
    empty = "There are no schemas."
    return panel("Subjects", table(COLUMNS, rows, caption="Subjects", empty=empty))


def _form(page: Page) -> Callable[[], object]:
    with ui.dialog() as dialog, ui.card().classes("form"):
        ui.label("Register a schema version")
        subject = ui.input("Subject")
        kind = ui.select(list(MAKERS), value="Avro", label="Type")
        definition = ui.textarea("Definition").props("outlined autogrow")

        async def register() -> None:
            schema = MAKERS[kind.value](definition.value or "")
            await page.client.schemas.submit(subject.value or "", schema)
            ui.navigate.to(address("/schema", subject=subject.value))

        with ui.row():
            ui.button("Cancel", on_click=dialog.close).props("flat")
            button = ui.button("Register", on_click=lambda: page.attempt(register))
        page.allow_named(
            subject, "subject:{}".format, {button: Permission.SCHEMA_WRITE}
        )
    return dialog.open

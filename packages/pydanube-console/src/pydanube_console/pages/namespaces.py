"""The namespaces, with their limits and retention."""

from __future__ import annotations

from nicegui import ui

from pydanube.aio.tasks import gather
from pydanube.model.descriptions import NamespaceDescription
from pydanube.security.permissions import Permission
from pydanube_console.frame import Page, frame
from pydanube_console.pages.topic import retention_text
from pydanube_console.pure.markup import Column, Html, panel, table
from pydanube_console.sessions import Session

SHOWN_MAX = 500
COLUMNS = [
    Column("Namespace"),
    Column("Topics", is_number=True),
    Column("Retention"),
    Column("Publish rate", is_number=True, is_wide_only=True),
    Column("Message size", is_number=True, is_wide_only=True),
]


async def show(session: Session) -> None:
    """Show the page."""
    with frame(session, "Namespaces", current="/namespaces") as page:
        with ui.row().classes("tools"):
            name = ui.input("Name").props("dense outlined")
            create = ui.button("Create").props("unelevated")
            delete = ui.button("Delete").props("flat color=negative")
        create.on_click(
            lambda: page.attempt(
                lambda: page.client.namespaces.create(name.value or ""), "Created"
            )
        )
        delete.on_click(lambda: _delete(page, name.value or ""))
        page.allow_named(
            name,
            "/{}".format,
            {create: Permission.CREATE, delete: Permission.MANAGE},
        )
        content = page.show()

        async def update() -> None:
            names = sorted(await page.client.namespaces.list())[:SHOWN_MAX]
            found = await gather(map(page.client.namespaces.describe, names))
            content.set_content(render(found))

        page.refresh(update)


def render(namespaces: list[NamespaceDescription]) -> Html:
    """Return the list."""
    rows = [
        (
            each.namespace,
            each.topic_count,
            retention_text(each.retention),
            each.policy.max_publish_rate or "no limit",
            each.policy.max_message_size or "default",
        )
        for each in namespaces
    ]
    return panel("Namespaces", table(COLUMNS, rows, caption="Namespaces"))


async def _delete(page: Page, name: str) -> None:
    question = f"Delete the namespace {name}? It must be empty."
    if name and await page.confirm(question, "Delete", typed=name):
        await page.attempt(lambda: page.client.namespaces.delete(name), "Deleted")

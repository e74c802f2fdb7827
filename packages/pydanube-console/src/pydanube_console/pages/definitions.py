"""Definitions: export them, and import them after a look at what would change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import events, ui

from pydanube_cli.administration.definitions.importing import (
    Action,
    Outcome,
    import_definitions,
)
from pydanube_cli.administration.definitions.pure.document import (
    Definitions,
    parse_definitions,
)
from pydanube_cli.commands.import_ import summary
from pydanube_console.frame import Page, frame
from pydanube_console.guard import FILE_BYTES_MAX
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    element,
    join,
    panel,
    table,
)
from pydanube_console.sessions import Session

SHOWN = 200
KINDS = {
    Action.CREATED: "good",
    Action.CHANGED: "warn",
    Action.UNCHANGED: "plain",
    Action.FAILED: "bad",
}


async def show(session: Session) -> None:
    """Show the page."""
    with frame(session, "Definitions", current="/definitions") as page:
        about = (
            "Namespaces, schemas, topics with settings and subscriptions, roles and "
            "bindings: without messages, positions, quotas and API keys."
        )
        page.show(element("p", about, class_="muted"))
        Exchange(page)


class Exchange:
    """The export, and the import of a file."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._chosen: Definitions | None = None
        with ui.row().classes("tools"):
            export = ui.button("Export").props("unelevated")
            export.on_click(lambda: ui.download.from_url("/definitions/download"))
            # Its own button has no label.
            self._upload = ui.upload(
                on_upload=self._on_file,
                on_rejected=self._on_rejected,
                max_file_size=FILE_BYTES_MAX,
                auto_upload=True,
            )
            self._upload.props("accept=.json").style("display: none")
            choose = ui.button("Choose a file to import").props("flat")
            pick = f"() => getElement({self._upload.id}).pickFiles()"
            choose.on("click", js_handler=pick)
            self._import = ui.button("Import", on_click=self._carry_out)
            self._import.props("flat").disable()
        self._shown = page.show()

    def _on_rejected(self) -> None:
        ui.notify(
            f"The file is longer than {FILE_BYTES_MAX:,} bytes: use danube import",
            type="negative",
        )

    async def _on_file(self, event: events.UploadEventArguments) -> None:
        async def plan() -> None:
            self._chosen = None
            self._import.disable()
            text = await event.file.read()
            # A long file takes a moment.
            chosen = await asyncio.to_thread(parse_definitions, text)
            found = await import_definitions(self._page.client, chosen, dry_run=True)
            self._chosen = chosen
            self._import.set_enabled(
                any(each.action in {Action.CREATED, Action.CHANGED} for each in found)
            )
            self._shown.set_content(render_outcomes(found, dry_run=True))

        self._upload.reset()
        await self._page.attempt(plan)

    async def _carry_out(self) -> None:
        chosen = self._chosen
        if chosen is None:
            return

        async def work() -> None:
            found = await import_definitions(self._page.client, chosen)
            self._shown.set_content(render_outcomes(found, dry_run=False))

        if await self._page.confirm("Create and change what is listed?", "Import it"):
            self._import.disable()
            await self._page.attempt(work)


def render_outcomes(found: Sequence[Outcome], *, dry_run: bool) -> Html:
    """Return what an import did, or would do, without what stays as it is."""
    shown = [each for each in found if each.action is not Action.UNCHANGED]
    # What failed comes first.
    shown.sort(key=lambda each: each.action is not Action.FAILED)
    rows = [
        (
            join([element("span", each.kind, class_="muted"), " ", each.name]),
            badge(each.action.value, KINDS[each.action]),
            each.detail,
        )
        for each in shown[:SHOWN]
    ]
    columns = [
        Column("Name"),
        Column("Outcome"),
        Column("Detail"),
    ]
    more = f" The first {SHOWN} are shown." if len(shown) > SHOWN else ""
    note = element("p", summary(found, dry_run=dry_run), more, role="status")
    listed = table(columns, rows, caption="Outcomes", empty="Nothing differs.")
    return panel("What would change" if dry_run else "What has changed", note, listed)

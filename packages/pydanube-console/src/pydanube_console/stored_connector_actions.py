"""The part of the page of connectors with those that the broker stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from nicegui import ui

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube.model.errors import InvalidRequest
from pydanube.model.stored_connectors import DEFINITION_BYTES_MAX, StoredConnector
from pydanube.security.permissions import Permission
from pydanube_connect.applying import Planned, plan_definitions, store_definitions
from pydanube_connect.definitions import file_of, parse_definitions
from pydanube_console.access import CLUSTER
from pydanube_console.frame import Page
from pydanube_console.pure.markup import element
from pydanube_console.stored_connector_markup import (
    render_planned,
    render_stored,
    render_stored_connector,
)

EXAMPLE = """\
connectors:
  numbers:
    kind: generator-source
    topic: /default/numbers
    options: {rate: 10}
"""
PROBLEMS_MAX = 5
"""How many problems of a definition are shown."""


class StoredSection:
    """The stored connectors, and the actions on one that the user chooses."""

    def __init__(self, page: Page, first: str) -> None:
        self._page = page
        self._first = first
        self._known: dict[str, StoredConnector] = {}
        self._described: StoredConnector | None = None
        with ui.row().classes("tools"):
            self._new = ui.button("New connector").props("unelevated")
            self._new.on_click(_form(page, "New connector", lambda: EXAMPLE))
            with ui.row().classes("tools") as self._row:
                self._select = ui.select({}, label="Stored connector")
                self._select.props("dense outlined").style("min-width: 12rem")
                change = _form(page, "Change the connector", self._text)
                self._change = ui.button("Change", on_click=change).props("flat")
                self._buttons = {
                    action: ui.button(
                        f"{action.capitalize()} it", on_click=partial(self._act, action)
                    ).props("flat")
                    for action in ("pause", "resume", "restart")
                }
                self._delete = ui.button("Delete", on_click=self._on_delete)
                self._delete.props("flat color=negative")
        self._row.set_visibility(False)
        self._table = page.show(element("p", "Asking …", class_="muted"))
        self._chosen = page.show()
        self._select.on_value_change(lambda: page.attempt(self._choose))
        self._has_asked = False

    async def update(self) -> None:
        """Show what the broker stores now."""
        page = self._page
        if not self._has_asked:
            self._has_asked = True
            await page.allow(self._new, Permission.CLUSTER_ADMIN, CLUSTER)
        listed = await page.client.connectors.list()
        self._known = {each.name: each for each in listed.connectors}
        self._table.set_content(render_stored(listed.connectors, listed.now))
        self._row.set_visibility(bool(self._known))
        names = list(self._known)
        if names != list(self._select.options):
            wanted = [self._select.value, self._first, *names]
            value = next((each for each in wanted if each in self._known), None)
            self._select.set_options(names, value=value)
        chosen = self._known.get(self._select.value)
        if chosen is None:
            self._described = None
            self._chosen.set_content("")
            return
        known = self._described
        if known is None or (known.name, known.revision) != (
            chosen.name,
            chosen.revision,
        ):
            await self._choose()
        elif chosen.is_paused is not known.is_paused:
            self._described = await page.client.connectors.describe(chosen.name)
            await self._allow(self._described)
        if self._described is not None:
            self._show(chosen, listed.now)

    def _show(self, chosen: StoredConnector, now: int) -> None:
        assert self._described is not None
        shown = replace(chosen, definition=self._described.definition)
        self._chosen.set_content(render_stored_connector(shown, now))

    async def _choose(self) -> None:
        name = self._select.value
        if name not in self._known:
            return
        self._described = await self._page.client.connectors.describe(name)
        await self._allow(self._described)

    async def _allow(self, chosen: StoredConnector) -> None:
        """Enable the actions that the user may carry out, and that do something."""
        page = self._page
        for each in (self._change, self._delete):
            await page.allow(each, Permission.CLUSTER_ADMIN, CLUSTER)
        for action, each in self._buttons.items():
            await page.allow(each, Permission.MANAGE, chosen.topic)
            if (action == "resume") is not chosen.is_paused:
                each.set_enabled(False)

    def _text(self) -> str:
        chosen = self._described
        return "" if chosen is None else file_of(chosen.name, chosen.definition)

    async def _act(self, action: str) -> None:
        chosen = self._described
        if chosen is None:
            return
        question = f"Disconnect {chosen.name}, and open it again?"
        if action == "restart" and not await self._page.confirm(question, "Restart it"):
            return
        carry_out = getattr(self._page.client.connectors, action)
        done = {"pause": "will pause", "resume": "runs again"}
        text = f"{chosen.name} {done.get(action, 'starts again')}"
        await self._page.attempt(partial(carry_out, chosen.name), text)
        await self._page.attempt(self.update)

    async def _on_delete(self) -> None:
        chosen = self._described
        if chosen is None:
            return
        question = (
            f"Delete {chosen.name}? Its worker stops it; its topic, positions and "
            "subscription stay."
        )
        if await self._page.confirm(question, "Delete it", typed=chosen.name):
            delete = partial(self._page.client.connectors.delete, chosen.name)
            await self._page.attempt(delete, f"{chosen.name} is deleted")
            await self._page.attempt(self.update)


def _form(page: Page, title: str, text_of: Callable[[], str]) -> Callable[[], object]:
    """Return what opens the form for a definition, as in a file."""
    with ui.dialog() as dialog, ui.card().classes("form settings-form"):
        ui.label(title).classes("text-h6")
        note = "As in a file of connectors. Secrets are ${file:NAME} or ${env:NAME}."
        ui.label(note).classes("muted")
        text = ui.textarea("Definition").props("outlined autogrow")
        text.props('input-class="mono" spellcheck=false')
        shown = ui.html("", sanitize=False)
        planned: list[Planned] = []

        async def check() -> None:
            nonlocal planned
            planned = []
            store.disable()
            await page.session.access.require(Permission.CLUSTER_ADMIN, CLUSTER)
            checked = text.value or ""
            planned = await plan_text(page, checked)
            shown.set_content(render_planned(planned))
            # The text may have changed meanwhile.
            store.set_enabled(checked == (text.value or ""))

        async def carry_out() -> None:
            await store_definitions(page.client, planned)
            dialog.close()

        with ui.row():
            ui.button("Cancel", on_click=dialog.close).props("flat")
            ui.button("Check", on_click=lambda: page.attempt(check)).props("flat")
            done = "Stored: workers pick it up within seconds"
            store = ui.button("Store", on_click=lambda: page.attempt(carry_out, done))
            store.disable()
        # What is stored is what was checked.
        text.on_value_change(store.disable)

    def open_form() -> None:
        text.value = text_of()
        shown.set_content("")
        store.disable()
        dialog.open()

    return open_form


async def plan_text(page: Page, text: str) -> list[Planned]:
    """
    Return what storing the definitions in *text* would change.

    Raises:
        InvalidRequest: They are invalid; the error has the first problems.
        PermissionDenied: The user may not do what a connector does.
    """
    if len(text) > DEFINITION_BYTES_MAX:
        raise InvalidRequest(
            f"the definition has {len(text):,} characters; at most "
            f"{DEFINITION_BYTES_MAX:,} are allowed"
        )
    # The files of the console's machine are none of the user's business.
    parse = partial(parse_definitions, text, Path(), may_name_files=False)
    try:
        definitions = await asyncio.to_thread(parse)
    except InvalidDeclaration as error:
        problems = list(map(str, error.problems))
        more = len(problems) - PROBLEMS_MAX
        end = f"; and {more} more" if more > 0 else ""
        raise InvalidRequest("; ".join(problems[:PROBLEMS_MAX]) + end) from None
    return await plan_definitions(page.client, definitions)

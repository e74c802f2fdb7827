"""The connectors that the broker stores, and those of the given processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from nicegui import ui

from pydanube.security.permissions import Permission
from pydanube_console.connector_markup import (
    NOT_GIVEN,
    render_connector,
    render_connectors,
    visible_of,
)
from pydanube_console.connector_monitor import (
    ProcessMonitor,
    WatchedConnector,
    topics_of,
)
from pydanube_console.frame import Page, frame
from pydanube_console.pure.markup import element, join
from pydanube_console.sessions import Session
from pydanube_console.settings import Payloads
from pydanube_console.stored_connector_actions import StoredSection

Key = tuple[str, str]
"""The URL of a process, and the name of its connector."""

DONE = {"pause": "will pause", "resume": "runs again", "restart": "starts again"}
"""The effect of each action, after the name of the connector."""


async def show(
    session: Session, name: str = "", *, payloads: Payloads = Payloads.SHOW
) -> None:
    """Show the page; *name* is the connector that is chosen first."""
    with frame(session, "Connectors", current="/connectors") as page:
        stored = StoredSection(page, name)
        page.refresh(stored.update)
        if not session.connectors.is_given:
            page.show(element("p", NOT_GIVEN, class_="muted"))
            return
        content = page.show(element("p", "Asking …", class_="muted"))
        actions = ConnectorActions(page, name)
        chosen = page.show()

        async def update() -> None:
            processes = await session.connectors.answers()
            topics = await session.access.visible(topics_of(processes))
            error = session.connectors.error
            problem = element("p", error, class_="error") if error else ""
            now_us = time.time_ns() // 1000
            table = render_connectors(processes, topics, now_us)
            content.set_content(join([problem, table]))
            found = list(visible_of(processes, topics))
            actions.set_connectors(found)
            if actions.chosen is None:
                chosen.set_content("")
            else:
                is_shown = payloads is Payloads.SHOW
                chosen.set_content(
                    render_connector(*actions.chosen, has_position=is_shown)
                )

        actions.on_choice(lambda: page.attempt(update))
        page.refresh(update)


class ConnectorActions:
    """The actions on one connector, which the user chooses."""

    def __init__(self, page: Page, first: str) -> None:
        self._page = page
        self._first = first
        self._known: dict[Key, tuple[ProcessMonitor, WatchedConnector]] = {}
        with ui.row().classes("tools") as self._row:
            self._select = ui.select({}, label="Connector").props("dense outlined")
            self._select.style("min-width: 12rem")
            self._buttons = [
                ui.button(
                    action.capitalize(), on_click=partial(self._act, action, done)
                ).props("flat")
                for action, done in DONE.items()
            ]
        self._row.set_visibility(False)

    @property
    def chosen(self) -> tuple[ProcessMonitor, WatchedConnector] | None:
        """The connector that is chosen, and its process."""
        return self._known.get(self._select.value)

    def on_choice(self, work: Callable[[], object]) -> None:
        """Call *work* when the user chooses another connector."""
        self._select.on_value_change(work)

    def set_connectors(
        self, found: Sequence[tuple[ProcessMonitor, WatchedConnector]]
    ) -> None:
        """Offer these connectors, each with its process."""
        self._known = {
            (process.process.url, each.status.connector): (process, each)
            for process, each in found
        }
        self._row.set_visibility(bool(found))
        names = Counter(name for _, name in self._known)
        options = {
            (url, name): name if names[name] == 1 else f"{name} at {url}"
            for url, name in self._known
        }
        if options != self._select.options:
            wanted = [key for key in options if key[1] == self._first]
            kept = [key for key in options if key == self._select.value]
            value = next(iter([*kept, *wanted, *options]), None)
            self._select.set_options(options, value=value)
        has_token = self.chosen is not None and bool(self.chosen[0].process.token)
        for each in self._buttons:
            each.set_enabled(has_token)

    async def _act(self, action: str, done: str) -> None:
        if self.chosen is None:
            return
        process, watched = self.chosen
        name, topic = watched.status.connector, watched.status.topic
        access = self._page.session.access

        async def act() -> None:
            await access.require(Permission.MANAGE, topic)
            await process.act(action, name)
            self._page.session.note_change(f"{action} the connector {name}")

        question = f"Disconnect {name}, and open it again?"
        if action != "restart" or await self._page.confirm(question, "Restart"):
            await self._page.attempt(act, f"{name} {done}")

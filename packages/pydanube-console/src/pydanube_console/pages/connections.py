"""The clients that are connected, with their producers and consumers."""

from __future__ import annotations

import time

from nicegui import ui

from pydanube.model.connections import ConnectionDescription, Connections
from pydanube.model.errors import PermissionDenied
from pydanube_console.connection_markup import (
    Rates,
    key_of,
    matching,
    rates_between,
    render_connections,
)
from pydanube_console.frame import REFRESH_S, Page, frame
from pydanube_console.pure.markup import element
from pydanube_console.sessions import Session

LISTED_MAX = 1000
"""How many connections of each broker are listed; all are counted."""


async def show(session: Session, text: str = "") -> None:
    """Show the page; *text* filters."""
    with frame(session, "Connections", current="/connections") as page:
        ConnectionList(page, text)


class ConnectionList:
    """The table of connections."""

    def __init__(self, page: Page, text: str) -> None:
        self._page = page
        self._found = Connections()
        self._taken_at = self._elapsed_s = 0.0
        self._rates: Rates = {}
        with ui.row().classes("tools"):
            self._text = ui.input("Filter", value=text)
            self._text.props("dense outlined clearable debounce=200")
            self._text.on_value_change(self._draw)
            ui.button("Refresh", on_click=self._load).props("unelevated")
        self._shown = page.show(
            element("p", "Asking the brokers \u2026", class_="muted")
        )
        page.on_press(self._shown, self._close)
        ui.timer(0, self._load, once=True)
        # Two measurements have rates.
        ui.timer(REFRESH_S, self._load, once=True)

    async def _load(self) -> None:
        await self._page.attempt(self._measure)

    async def _measure(self) -> None:
        try:
            found = await self._page.client.cluster.list_connections(LISTED_MAX)
        except PermissionDenied:
            text = "You need the permission cluster_admin to see connections."
            self._shown.set_content(element("p", text, class_="muted"))
            return
        now = time.monotonic()
        if self._taken_at:
            self._elapsed_s = max(now - self._taken_at, 1e-3)
            self._rates = rates_between(
                self._found.connections, found.connections, self._elapsed_s
            )
        self._found, self._taken_at = found, now
        self._draw()

    def _draw(self) -> None:
        if self._taken_at:
            shown = matching(self._found.connections, self._text.value or "")
            content = render_connections(
                shown,
                self._rates,
                count=self._found.connection_count,
                elapsed_s=self._elapsed_s,
            )
            self._shown.set_content(content)

    async def _close(self, _: str, value: str) -> None:
        number, _, broker = value.partition(" ")
        key = (broker, int(number) if number.isdecimal() else 0)
        for each in self._found.connections:
            if key_of(each) == key:
                await self._ask_and_close(each)

    async def _ask_and_close(self, chosen: ConnectionDescription) -> None:
        question = (
            f"Close the connection of {chosen.client or chosen.address}? The client "
            "connects again, unless its credentials are revoked."
        )

        async def close() -> None:
            await self._page.client.cluster.close_connection(
                chosen.connection_id, chosen.broker_id
            )
            await self._measure()

        if await self._page.confirm(question, "Close it"):
            await self._page.attempt(close, "The connection is closed")

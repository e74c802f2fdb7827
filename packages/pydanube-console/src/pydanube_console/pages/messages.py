"""Messages: browse, search, follow and publish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from nicegui import background_tasks, ui

from pydanube.model.errors import InvalidRequest
from pydanube.model.positions import (
    POSITION_HELP,
    PositionLike,
    parse_position,
    to_datetime,
)
from pydanube.model.quantity_formats import format_bytes, format_count
from pydanube.model.subscription_lag import base_of
from pydanube_console.frame import Page, frame
from pydanube_console.message_markup import render_messages, to_json
from pydanube_console.message_search import FoundMessage, Search, sample, value_of
from pydanube_console.pure.markup import element, join, panel
from pydanube_console.sessions import Session
from pydanube_console.settings import Payloads

SHOWN = 50
TAIL_SHOWN = 50
TAIL_INTERVAL_S = 0.5
TABS = ("browse", "follow", "publish")


async def show(
    session: Session,
    topic: str = "",
    tab: str = "browse",
    start: str = "",
    *,
    payloads: Payloads = Payloads.SHOW,
) -> None:
    """Show the page."""
    with frame(session, "Messages", current="/messages") as page:
        names: list[str] = []

        async def load() -> None:
            names.extend(sorted(await page.client.topics.list()))

        await page.attempt(load)
        base_names = sorted(set(map(base_of, names)))
        _, panels = page.tabs(TABS, tab)
        with panels["browse"]:
            partition = topic if topic in names else f"{topic}-part-0"
            _Browser(page, names, partition, start, payloads)
        with panels["follow"]:
            _Follower(page, base_names, topic, payloads)
        with panels["publish"]:
            _publish_form(page, base_names, topic)


def _choose_topic(names: list[str], topic: str) -> ui.select:
    chosen = topic if topic in names else None
    select = ui.select(names, value=chosen, label="Topic", with_input=True)
    return select.props("dense outlined").style("min-width: 14rem")


class _Browser:
    """Reads messages from a position on, and searches them."""

    def __init__(
        self,
        page: Page,
        names: list[str],
        topic: str,
        start: str,
        payloads: Payloads,
    ) -> None:
        self._page = page
        self._payloads = payloads
        self._search = Search()
        with ui.row().classes("tools"):
            self._topic = _choose_topic(names, topic)
            self._start = ui.input("From", value=start).props("dense outlined")
            self._start.tooltip(f"Empty: the last messages. Or {POSITION_HELP}")
            self._key = ui.input("Key").props("dense outlined clearable")
            self._text = ui.input("Contains").props("dense outlined clearable")
            ui.button("Show", on_click=self._begin).props("unelevated")
            self._cancel = ui.button("Stop", on_click=self._stop).props("flat")
            self._more = ui.button("Later messages", on_click=self._continue).props(
                "flat"
            )
            self._copy = ui.button("Copy as JSON", on_click=self._to_clipboard)
            self._copy.props("flat")
        self._cancel.disable()
        self._more.disable()
        self._copy.set_visibility(payloads is Payloads.SHOW)
        self._status = ui.label("").classes("muted").props("role=status")
        self._shown = page.show()
        if self._topic.value:
            ui.timer(0, self._begin, once=True)

    async def _begin(self) -> None:
        await self._page.attempt(self._first)

    async def _first(self) -> None:
        topic = self._topic.value
        if not topic:
            raise InvalidRequest("choose a topic")
        text = (self._start.value or "").strip()
        start: PositionLike
        if text:
            start = parse_position(text, to_datetime(time.time_ns() // 1000))
        else:
            facts = await self._page.client.topics.describe(topic)
            start = max(facts.base_offset, facts.end_offset - SHOWN)
        await self._run(start)

    async def _continue(self) -> None:
        if (offset := self._search.next_offset) is not None:
            await self._page.attempt(lambda: self._run(offset))

    async def _run(self, start: PositionLike) -> None:
        self._stop()
        search = self._search = Search()
        self._cancel.enable()
        self._more.disable()
        try:
            await search.run(
                self._page.client,
                self._topic.value,
                start=start,
                count=SHOWN,
                key=self._key.value or "",
                text=self._text.value or "",
                on_progress=lambda: self._status.set_text(
                    f"Searching: {_text(search)} …"
                ),
            )
        finally:
            self._cancel.disable()
        ending = "" if search.next_offset is None else " There are more."
        self._status.set_text(f"{_text(search)}.{ending}")
        if search.next_offset is not None:
            self._more.enable()
        content = render_messages(search.found, self._payloads)
        nothing = element("p", "No message fits.", class_="muted")
        self._shown.set_content(element("section", content or nothing, class_="panel"))

    def _stop(self) -> None:
        self._search.is_cancelled = True

    def _to_clipboard(self) -> None:
        ui.clipboard.write(to_json(self._search.found))
        ui.notify(f"Copied {len(self._search.found)} messages")


def _text(search: Search) -> str:
    return (
        f"{format_count(len(search.found))} found in "
        f"{format_count(search.message_count)} messages, "
        f"{format_bytes(search.byte_count)}"
    )


class _Follower:
    """Shows new messages as they arrive, or a sample of them if they are too many."""

    def __init__(
        self, page: Page, names: list[str], topic: str, payloads: Payloads
    ) -> None:
        self._page = page
        self._payloads = payloads
        self._arrived: list[FoundMessage] = []
        self._shown_messages: list[FoundMessage] = []
        self._count = 0
        self._reading: asyncio.Task[None] | None = None
        with ui.row().classes("tools"):
            self._topic = _choose_topic(names, topic)
            ui.button("Follow", on_click=self._begin).props("unelevated")
            ui.button("Stop", on_click=self._stop).props("flat")
        self._status = ui.label("").classes("muted").props("role=status")
        self._shown = page.show()
        ui.timer(TAIL_INTERVAL_S, self._draw)
        ui.context.client.on_delete(self._stop)

    def _begin(self) -> None:
        self._stop()
        self._arrived, self._shown_messages, self._count = [], [], 0
        if topic := self._topic.value:
            self._reading = background_tasks.create(self._read(topic))

    def _stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read(self, topic: str) -> None:
        with self._shown:
            await self._page.attempt(lambda: self._receive(topic))

    async def _receive(self, topic: str) -> None:
        batches = self._page.client.read(topic, start="latest", follow=True)
        async for batch in batches:
            self._count += len(batch)
            self._arrived += [
                FoundMessage(each, None) for each in list(batch)[-TAIL_SHOWN:]
            ]
            self._arrived = self._arrived[-4 * TAIL_SHOWN :]

    def _draw(self) -> None:
        if self._reading is None:
            return
        arrived, self._arrived = self._arrived, []
        chosen = sample(arrived, TAIL_SHOWN)
        decoded = [
            FoundMessage(each.message, value_of(each.message)) for each in chosen
        ]
        latest = [*decoded[::-1], *self._shown_messages][:TAIL_SHOWN]
        self._shown_messages = latest
        text = f"{format_count(self._count)} messages so far"
        self._status.set_text(f"{text}; the latest {len(latest)}, or a sample of them:")
        if arrived:
            content = render_messages(latest, self._payloads)
            self._shown.set_content(element("section", content, class_="panel"))


def _publish_form(page: Page, names: list[str], topic: str) -> None:
    with ui.card().classes("form").style("width: 100%; max-width: 44rem"):
        chosen = _choose_topic(names, topic)
        payload = ui.textarea("Payload").props("outlined autogrow")
        key = ui.input("Key").props("dense outlined clearable")
        attributes = ui.input("Attributes", placeholder="source=web, kind=test")
        attributes.props("dense outlined clearable")
        result = page.show()

        async def publish() -> None:
            if not chosen.value:
                raise InvalidRequest("choose a topic")
            async with page.client.producer(chosen.value) as producer:
                message_id = await producer.send(
                    (payload.value or "").encode(),
                    key=key.value or None,
                    attributes=parse_attributes(attributes.value or ""),
                )
            where = f"{message_id.topic} @ {message_id.offset}"
            result.set_content(panel("Published", join(["The message is ", where])))

        ui.button("Publish", on_click=lambda: page.attempt(publish)).props("unelevated")


def parse_attributes(text: str) -> Mapping[str, str]:
    """
    Return the attributes in ``name=value, name=value``.

    Raises:
        InvalidRequest: *text* is not of this form.
    """
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise InvalidRequest(f"{part!r} is not an attribute such as source=web")
        found[name.strip()] = value.strip()
    return found

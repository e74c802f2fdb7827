"""Messages: browse, search, follow and publish."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial

from nicegui import background_tasks, ui

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.positions import (
    POSITION_HELP,
    PositionLike,
    parse_position,
    to_datetime,
)
from pydanube.model.quantity_formats import format_bytes, format_count
from pydanube.model.subscription_lag import base_of
from pydanube_cli.messages.message_fields import MessageField, parse_fields
from pydanube_cli.messages.message_formats import json_line
from pydanube_cli.messages.pure.conditions import parse_conditions
from pydanube_console.frame import Page, frame
from pydanube_console.message_download import (
    MESSAGES_MAX,
    Download,
    DownloadForm,
    parse_form,
)
from pydanube_console.message_markup import (
    render_messages,
    render_suggestions,
    render_table,
    suggested_fields,
)
from pydanube_console.message_search import (
    FoundMessage,
    MessageFilter,
    Search,
    sample,
    value_of,
)
from pydanube_console.missing_topic import shows_missing
from pydanube_console.pure.markup import address, element, join, panel
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
    *,
    start: str = "",
    key: str = "",
    text: str = "",
    where: str = "",
    columns: str = "",
    payloads: Payloads = Payloads.SHOW,
) -> None:
    """Show the page."""
    with frame(session, "Messages", current="/messages") as page:
        names: list[str] = []

        async def load() -> None:
            names.extend(sorted(await page.client.topics.list()))

        await page.attempt(load)
        if topic and topic not in names and await shows_missing(page, topic):
            return
        choice = TopicChoice(names, topic)
        _, panels = page.tabs(TABS, tab)
        with panels["browse"]:
            given = {
                "start": start,
                "key": key,
                "text": text,
                "where": where,
                "columns": columns,
            }
            _Browser(page, choice, given, payloads)
        with panels["follow"]:
            _Follower(page, choice, payloads)
        with panels["publish"]:
            _publish_form(page, choice)


class TopicChoice:
    """The topic that is chosen for all tabs, and one of its partitions to browse."""

    def __init__(self, names: Sequence[str], given: str) -> None:
        """*names* are all topics and partitions, of which *given* may be one."""
        self._partitions: dict[str, list[str]] = {}
        for each in names:
            self._partitions.setdefault(base_of(each), []).append(each)
        is_known = given in names or given in self._partitions
        base = base_of(given) if is_known else None
        with ui.row().classes("tools"):
            self.select = ui.select(
                list(self._partitions), value=base, label="Topic", with_input=True
            )
            self.select.props("dense outlined").style("min-width: 14rem")
            self._number = ui.number("Partition", value=0, min=0, precision=0)
            self._number.props("dense outlined").style("width: 7rem")
        if base is not None and given in names and given != base:
            self._number.value = int(given.rpartition("-")[2])
        self._show_number()
        self.select.on_value_change(self._show_number)

    @property
    def topic(self) -> str:
        """
        The topic.

        Raises:
            InvalidRequest: None is chosen.
        """
        if not self.select.value:
            raise InvalidRequest("choose a topic")
        return str(self.select.value)

    @property
    def partition(self) -> str:
        """
        The partition of the topic, or the topic if it has none.

        Raises:
            InvalidRequest: No topic is chosen, or it has no such partition.
        """
        names = self._partitions[self.topic]
        if names == [self.topic]:
            return self.topic
        name = f"{self.topic}-part-{int(self._number.value or 0)}"
        if name not in names:
            raise InvalidRequest(
                f"{self.topic} has the partitions 0 to {len(names) - 1}, "
                f"not {self._number.value}"
            )
        return name

    def _show_number(self) -> None:
        base = self.select.value
        self._number.set_visibility(
            bool(base) and self._partitions.get(base, [base]) != [base]
        )


class _Browser:
    """Reads messages from a position on, searches them, and downloads them."""

    def __init__(
        self,
        page: Page,
        choice: TopicChoice,
        given: Mapping[str, str],
        payloads: Payloads,
    ) -> None:
        self._page = page
        self._choice = choice
        self._payloads = payloads
        self._search = Search()
        is_shown = payloads is Payloads.SHOW
        with ui.row().classes("tools"):
            self._start = ui.input("From", value=given["start"])
            self._start.tooltip(f"Empty: the last messages. Or {POSITION_HELP}")
            self._key = ui.input("Key", value=given["key"])
            self._text = ui.input("Contains", value=given["text"])
            self._where = ui.textarea("Conditions, one per line", value=given["where"])
            self._where.tooltip("value.user.id = 7, or attributes.source ~ 'web*'")
            self._columns = ui.input("Columns", value=given["columns"])
            self._columns.tooltip("Paths with commas between them: user.name, items[0]")
        for each in (self._start, self._key, self._text, self._where, self._columns):
            each.props("dense outlined clearable")
        self._where.props("autogrow rows=1").style("min-width: 17rem")
        self._columns.set_visibility(is_shown)
        with ui.row().classes("tools"):
            self._show = ui.button("Show", on_click=self._begin).props("unelevated")
            self._cancel = ui.button("Stop", on_click=self._stop).props("flat")
            self._more = ui.button("Later messages", on_click=self._continue)
            self._copy = ui.button("Copy as JSON", on_click=self._to_clipboard)
            self._loads = [
                ui.button(text, on_click=partial(self._download, form))
                for text, form in (
                    ("Download JSON lines", DownloadForm.JSON_LINES),
                    ("Download CSV", DownloadForm.CSV),
                )
            ]
        for button in (self._more, self._copy, *self._loads):
            button.props("flat")
        for button in (self._copy, *self._loads):
            button.set_visibility(is_shown)
        for button in self._loads:
            button.tooltip(
                f"All that fit from there on, at most {format_count(MESSAGES_MAX)}"
            )
        self._status = ui.label("").classes("muted").props("role=status")
        self._suggested = page.show()
        self._shown = page.show()
        page.on_press(self._suggested, self._switch_column)
        choice.select.on_value_change(self._allow)
        self._is_running = False
        self._allow()
        if choice.select.value:
            ui.timer(0, self._begin, once=True)

    def _allow(self) -> None:
        """Enable the buttons that can do something."""
        has_topic = bool(self._choice.select.value)
        self._show.set_enabled(has_topic)
        self._cancel.set_enabled(self._is_running)
        has_more = self._search.next_offset is not None
        self._more.set_enabled(has_more and not self._is_running)
        self._copy.set_enabled(bool(self._search.found))
        for each in self._loads:
            each.set_enabled(has_topic)

    @property
    def _given(self) -> dict[str, str]:
        """The parameters of the page, and of a download, that say what is shown."""
        return {
            "topic": self._choice.partition,
            "start": (self._start.value or "").strip(),
            "key": self._key.value or "",
            "text": self._text.value or "",
            "where": (self._where.value or "").strip(),
            "columns": (self._columns.value or "").strip(),
        }

    async def _begin(self) -> None:
        await self._page.attempt(self._first)

    async def _first(self) -> None:
        given = self._given
        topic = given["topic"]
        start: PositionLike
        if given["start"]:
            start = parse_start(given["start"])
        else:
            facts = await self._page.client.topics.describe(topic)
            start = max(facts.base_offset, facts.end_offset - SHOWN)
        await self._run(start)

    async def _continue(self) -> None:
        if (offset := self._search.next_offset) is not None:
            await self._page.attempt(lambda: self._run(offset))

    async def _run(self, start: PositionLike) -> None:
        given = self._given
        wanted = parse_filter(given["key"], given["text"], given["where"])
        fields = parse_columns(given["columns"])
        self._stop()
        search = self._search = Search()
        ui.navigate.history.replace(address("/messages", **given))
        self._is_running = True
        self._allow()
        try:
            await search.run(
                self._page.client,
                given["topic"],
                start=start,
                count=SHOWN,
                wanted=wanted,
                on_progress=lambda: self._status.set_text(
                    f"Searching: {_text(search)} …"
                ),
            )
        finally:
            # Another search may have begun.
            self._is_running = self._is_running and search is not self._search
            self._allow()
        if search is not self._search:
            return
        ending = "" if search.next_offset is None else " There are more."
        self._status.set_text(f"{_text(search)}.{ending}")
        self._draw(fields)

    def _draw(self, fields: Sequence[MessageField]) -> None:
        found = self._search.found
        if self._payloads is Payloads.SHOW:
            suggested = suggested_fields(found)
            chosen = [each.text for each in fields]
            self._suggested.set_content(render_suggestions(suggested, chosen))
        content = render_table(found, fields, self._payloads)
        self._shown.set_content(element("section", content, class_="panel"))

    async def _switch_column(self, _: str, path: str) -> None:
        def switch() -> None:
            chosen = [each.text for each in parse_columns(self._columns.value or "")]
            if path in chosen:
                chosen.remove(path)
            else:
                chosen.append(path)
            fields = parse_columns(", ".join(chosen))
            self._columns.value = ", ".join(chosen)
            ui.navigate.history.replace(address("/messages", **self._given))
            self._draw(fields)

        await self._page.attempt(switch)

    def _stop(self) -> None:
        self._search.is_cancelled = True

    def _to_clipboard(self) -> None:
        found = self._search.found
        lines = b"".join(json_line(each.message) for each in found)
        ui.clipboard.write(lines.decode(errors="replace"))
        ui.notify(f"Copied {len(found)} messages")

    async def _download(self, form: DownloadForm) -> None:
        def begin() -> None:
            given = self._given
            # What is malformed is said here, and not in a file.
            parse_filter(given["key"], given["text"], given["where"])
            parse_columns(given["columns"])
            if given["start"]:
                parse_start(given["start"])
            path = address("/messages/download", form=form.value, **given)
            ui.download.from_url(path)

        await self._page.attempt(begin)


def parse_start(text: str) -> PositionLike:
    """
    Return the position that *text* names.

    Raises: As ``parse_position``.
    """
    return parse_position(text, to_datetime(time.time_ns() // 1000))


def parse_filter(key: str, text: str, where: str) -> MessageFilter:
    """
    Return the filter with a key, a text, and one condition in each line of *where*.

    Raises:
        InvalidRequest: A condition is malformed, or there are too many.
    """
    lines = [line.strip() for line in where.splitlines()]
    conditions = parse_conditions([line for line in lines if line])
    return MessageFilter(key=key, text=text, conditions=conditions)


def parse_columns(text: str) -> tuple[MessageField, ...]:
    """
    Return the fields whose paths *text* has, with commas between them.

    Raises:
        InvalidRequest: A path is malformed, or there are too many.
    """
    return parse_fields(text) if text.strip() else ()


def parse_download(options: Mapping[str, str]) -> Download:
    """
    Return the download that the parameters of an address ask for.

    Raises:
        InvalidRequest: One of them is malformed.
    """
    start = options.get("start", "").strip()
    return Download(
        topic=str(TopicName.parse(options.get("topic", ""))),
        form=parse_form(options.get("form", "")),
        start=parse_start(start) if start else "earliest",
        wanted=parse_filter(
            options.get("key", ""), options.get("text", ""), options.get("where", "")
        ),
        fields=parse_columns(options.get("columns", "")),
    )


def _text(search: Search) -> str:
    return (
        f"{format_count(len(search.found))} found in "
        f"{format_count(search.message_count)} messages, "
        f"{format_bytes(search.byte_count)}"
    )


class _Follower:
    """Shows new messages as they arrive, or a sample of them if they are too many."""

    def __init__(self, page: Page, choice: TopicChoice, payloads: Payloads) -> None:
        self._page = page
        self._choice = choice
        self._payloads = payloads
        self._arrived: list[FoundMessage] = []
        self._shown_messages: list[FoundMessage] = []
        self._count = 0
        self._reading: asyncio.Task[None] | None = None
        with ui.row().classes("tools"):
            self._follow = ui.button("Follow", on_click=self._begin)
            self._follow.props("unelevated")
            self._cancel = ui.button("Stop", on_click=self._stop).props("flat")
        self._status = ui.label("").classes("muted").props("role=status")
        self._shown = page.show()
        ui.timer(TAIL_INTERVAL_S, self._draw)
        ui.context.client.on_delete(self._end)
        choice.select.on_value_change(self._allow)
        self._allow()

    def _allow(self) -> None:
        self._follow.set_enabled(bool(self._choice.select.value))
        self._cancel.set_enabled(self._reading is not None)

    def _begin(self) -> None:
        self._end()
        self._arrived, self._shown_messages, self._count = [], [], 0
        if topic := self._choice.select.value:
            self._reading = background_tasks.create(self._read(topic))
        self._allow()

    def _stop(self) -> None:
        self._end()
        self._allow()

    def _end(self) -> None:
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


def _publish_form(page: Page, choice: TopicChoice) -> None:
    with ui.card().classes("form").style("width: 100%; max-width: 44rem"):
        payload = ui.textarea("Payload").props("outlined autogrow")
        key = ui.input("Key").props("dense outlined clearable")
        attributes = ui.input("Attributes", placeholder="source=web, kind=test")
        attributes.props("dense outlined clearable")
        result = page.show()

        async def publish() -> None:
            async with page.client.producer(choice.topic) as producer:
                message_id = await producer.send(
                    (payload.value or "").encode(),
                    key=key.value or None,
                    attributes=parse_attributes(attributes.value or ""),
                )
            where = f"{message_id.topic} @ {message_id.offset}"
            result.set_content(panel("Published", join(["The message is ", where])))

        button = ui.button("Publish", on_click=lambda: page.attempt(publish))
        button.props("unelevated")
        button.bind_enabled_from(choice.select, "value", backward=bool)


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

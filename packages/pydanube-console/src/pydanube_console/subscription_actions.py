"""The buttons for subscriptions: pause, resume, seek, skip, and delete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from nicegui import ui

from pydanube.model.descriptions import TopicDescription
from pydanube.model.errors import InvalidRequest, NotFound
from pydanube.model.positions import (
    POSITION_HELP,
    PositionLike,
    parse_position,
    to_datetime,
)
from pydanube.model.quantity_formats import format_messages
from pydanube_console.frame import Page

NEXT, ALL = "The next ones", "All that wait"
"""The messages that can be skipped."""


class SubscriptionActions:
    """The actions on one subscription of a topic, which the user chooses."""

    def __init__(self, page: Page, topic: str) -> None:
        self._page = page
        self._topic = topic
        with ui.row().classes("tools"):
            self._name = ui.select([], label="Subscription")
            self._name.props("dense outlined").style("min-width: 12rem")
            for text, work in (
                ("Pause", self._pause),
                ("Resume", self._resume),
                ("Move the position", self._seek),
                ("Skip messages", self._skip),
                ("Delete", self._delete),
            ):
                button = ui.button(text, on_click=work).props("flat")
                button.bind_enabled_from(self._name, "value", backward=bool)

    @property
    def chosen(self) -> str:
        """The name of the subscription that the user has chosen, or empty."""
        return str(self._name.value or "")

    def on_choice(self, work: Callable[[], object]) -> None:
        """Call *work* when the user chooses another subscription."""
        self._name.on_value_change(work)

    def set_names(self, names: Iterable[str]) -> None:
        """Offer these subscriptions."""
        options = sorted(names)
        if options != self._name.options:
            value = self._name.value if self._name.value in options else None
            self._name.set_options(options, value=value or next(iter(options), None))

    async def _pause(self) -> None:
        name = self._name.value
        await self._page.attempt(
            lambda: self._page.client.subscriptions.configure(
                self._topic, name, is_paused=True
            ),
            f"{name} is paused",
        )

    async def _resume(self) -> None:
        name = self._name.value
        await self._page.attempt(
            lambda: self._page.client.subscriptions.configure(
                self._topic, name, is_paused=False
            ),
            f"{name} continues",
        )

    async def _delete(self) -> None:
        name = self._name.value
        question = (
            f"Delete the subscription {name}, and forget what it has acknowledged?"
        )
        if await self._page.confirm(question, "Delete", typed=name):
            await self._page.attempt(
                lambda: self._page.client.subscriptions.delete(self._topic, name),
                f"{name} is deleted",
            )

    def _seek(self) -> None:
        name = self._name.value
        with ui.dialog() as dialog, ui.card().classes("form"):
            ui.label(f"Continue {name} at another position")
            where = ui.input("Position", value="earliest")
            ui.label(f"The position is {POSITION_HELP}.").classes("muted")
            meaning = ui.label()

            async def preview() -> None:
                position = self._position(where.value)
                meaning.set_text(await self._preview(name, position))
                apply.enable()

            async def seek() -> None:
                position = self._position(where.value)
                await self._page.client.subscriptions.seek(self._topic, name, position)
                dialog.close()

            with ui.row():
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Preview", on_click=lambda: self._page.attempt(preview))
                apply = ui.button("Move")
                apply.on_click(lambda: self._page.attempt(seek, f"{name} has moved"))
                apply.disable()
            where.on_value_change(apply.disable)
        dialog.open()

    async def _skip(self) -> None:
        name, partitions = self._name.value, [self._topic]

        async def find() -> None:
            partitions[:] = await self._page.client.topics.existing_partitions(
                self._topic
            )

        if not await self._page.attempt(find):
            return
        with ui.dialog() as dialog, ui.card().classes("form"):
            ui.label(f"Acknowledge messages of {name} without delivering them")
            what = ui.radio([NEXT, ALL], value=NEXT).props("inline")
            what.props('aria-label="Which messages"')
            of = ui.select(partitions, value=partitions[0], label="Partition")
            count = ui.number("Messages", value=1, min=1, precision=0)
            count.bind_visibility_from(what, "value", value=NEXT)
            of.bind_visibility_from(
                what, "value", lambda value: value == NEXT and len(partitions) > 1
            )
            meaning = ui.label().props("role=status")

            def given() -> int:
                if (number := int(count.value or 0)) < 1:
                    raise InvalidRequest("enter the number of messages to skip")
                return number

            async def preview() -> None:
                if what.value == ALL:
                    text = await self._preview(name, "latest")
                else:
                    text = await self._skip_preview(of.value, name, given())
                meaning.set_text(text)
                apply.enable()

            async def skip() -> None:
                client = self._page.client
                if what.value == ALL:
                    await client.subscriptions.seek(self._topic, name, "latest")
                else:
                    await client.subscriptions.skip(of.value, name, given())
                dialog.close()

            with ui.row():
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Preview", on_click=lambda: self._page.attempt(preview))
                apply = ui.button("Skip")
                apply.on_click(lambda: self._page.attempt(skip, f"{name} goes on"))
                apply.disable()
            for each in (what, of, count):
                each.on_value_change(apply.disable)
        dialog.open()

    async def _skip_preview(self, topic: str, name: str, count: int) -> str:
        described = await self._page.client.topics.describe(topic)
        for each in described.subscriptions:
            if each.subscription == name:
                return skip_text(each.cursor, each.backlog, count)
        raise NotFound(f"{topic} has no subscription {name}")

    def _position(self, text: str) -> PositionLike:
        return parse_position(text or "", to_datetime(time.time_ns() // 1000))

    async def _preview(self, name: str, position: PositionLike) -> str:
        client = self._page.client
        names = await client.topics.existing_partitions(self._topic) or [self._topic]
        before = after = 0
        for each in names:
            topic = await client.topics.describe(each)
            offset = await self._offset_of(topic, position)
            found = [sub for sub in topic.subscriptions if sub.subscription == name]
            before += sum(sub.backlog for sub in found)
            after += topic.end_offset - offset
        return preview_text(before, after)

    async def _offset_of(self, topic: TopicDescription, position: PositionLike) -> int:
        if position == "earliest":
            return topic.base_offset
        if position == "latest":
            return topic.end_offset
        if isinstance(position, int):
            return min(max(position, topic.base_offset), topic.end_offset)
        assert not isinstance(position, str)
        [offset] = await self._page.client.topics.find_offsets(topic.topic, [position])
        return topic.end_offset if offset is None else offset


def skip_text(cursor: int, backlog: int, count: int) -> str:
    """Return what skipping *count* messages means, of which *backlog* wait."""
    skipped = min(count, backlog)
    if not skipped:
        return "Nothing changes: no message waits."
    verb = "is" if skipped == 1 else "are"
    return (
        f"{format_messages(skipped)} {verb} skipped, the first at offset {cursor}; "
        f"{backlog - skipped:,} wait then."
    )


def preview_text(before: int, after: int) -> str:
    """Return what it means that *after* messages wait instead of *before*."""
    change = after - before
    if not change:
        return f"Nothing changes: {format_messages(after)} wait."
    verb = "is" if abs(change) == 1 else "are"
    what = "delivered again" if change > 0 else "skipped"
    return f"About {format_messages(abs(change))} {verb} {what}; {after:,} wait then."

"""Dead letters: by reason, to inspect, edit, replay and drop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import uuid4

from nicegui import ui

from pydanube.client.consumers.dead_letters import DeadLetter, DeadLetters
from pydanube.model.errors import InvalidRequest
from pydanube.model.quantity_formats import format_count
from pydanube.model.subscription_lag import base_of
from pydanube_console.frame import Page, frame
from pydanube_console.pure.markup import (
    Column,
    Html,
    code,
    element,
    facts,
    join,
    panel,
    table,
)
from pydanube_console.pure.payloads import describe_payload, show_payload
from pydanube_console.sessions import Session
from pydanube_console.settings import Payloads

READ_MAX = 2000
"""How many dead letters the page reads at most."""
SHOWN = 50
ALL = "All reasons"


async def show(
    session: Session,
    topic: str = "",
    subscription: str = "",
    *,
    payloads: Payloads = Payloads.SHOW,
) -> None:
    """Show the page."""
    with frame(session, "Dead letters", current="/dead-letters") as page:
        await session.monitor.first()
        Workbench(page, topic, subscription, payloads)


class Workbench:
    """The dead letters of one subscription."""

    def __init__(
        self, page: Page, topic: str, subscription: str, payloads: Payloads
    ) -> None:
        self._page = page
        self._payloads = payloads
        self._letters: list[DeadLetter] = []
        choices = _subscriptions_of(page.session)
        chosen = (topic, subscription)
        with ui.row().classes("tools"):
            self._choice = ui.select(
                {each: f"{each[1]} of {each[0]}" for each in choices},
                value=chosen if chosen in choices else None,
                label="Subscription with a dead-letter topic",
            )
            self._choice.props("dense outlined").style("min-width: 20rem")
            self._reason = ui.select([ALL], value=ALL, label="Reason")
            self._reason.props("dense outlined").style("min-width: 14rem")
            ui.button("Load", on_click=self._load).props("unelevated")
        with ui.row().classes("tools"):
            ui.button("Replay these", on_click=self._replay).props("flat")
            ui.button("Drop these", on_click=self._drop).props("flat color=negative")
            self._edited = ui.number("Offset to edit", precision=0).props(
                "dense outlined"
            )
            ui.button("Edit and replay", on_click=self._edit).props("flat")
        self._status = ui.label("").classes("muted").props("role=status")
        self._groups = page.show()
        self._shown = page.show()
        self._choice.on_value_change(self._load)
        self._reason.on_value_change(self._draw)
        if not choices:
            none = "No subscription of the measured topics has a dead-letter topic."
            self._shown.set_content(element("p", none, class_="muted"))
        elif self._choice.value:
            ui.timer(0, self._load, once=True)

    @property
    def _handler(self) -> DeadLetters:
        if not self._choice.value:
            raise InvalidRequest("choose a subscription")
        return self._page.client.dead_letters(*self._choice.value)

    async def _load(self) -> None:
        async def load() -> None:
            found: list[DeadLetter] = []
            async for each in self._handler.messages():
                found.append(each)
                if len(found) >= READ_MAX:
                    break
            self._letters = found
            reasons = [ALL, *(reason for reason, _ in group_by_reason(found))]
            self._reason.set_options(reasons, value=ALL)
            self._draw()

        await self._page.attempt(load)

    @property
    def _chosen(self) -> list[DeadLetter]:
        reason = self._reason.value
        return [each for each in self._letters if reason in {ALL, each.reason}]

    def _draw(self) -> None:
        chosen = self._chosen
        more = f" (the first {READ_MAX})" if len(self._letters) >= READ_MAX else ""
        self._status.set_text(f"{_dead_letters(len(chosen))}{more}")
        rows = group_by_reason(self._letters)
        columns = [Column("Reason"), Column("Dead letters", is_number=True)]
        groups = table(columns, rows, caption="Reasons", empty="There are none.")
        self._groups.set_content(panel("Reasons", groups))
        shown = [_letter(each, self._payloads) for each in chosen[:SHOWN]]
        self._shown.set_content(panel("Dead letters", *shown) if shown else "")

    async def _replay(self) -> None:
        await self._handle("Replay", self._handler.replay)

    async def _drop(self) -> None:
        await self._handle("Drop", self._handler.drop)

    async def _handle(
        self, word: str, work: Callable[[Sequence[DeadLetter]], object]
    ) -> None:
        chosen = self._chosen
        question = f"{word} {_dead_letters(len(chosen))}?"
        if chosen and await self._page.confirm(question, word):
            done = f"{word}: {_dead_letters(len(chosen))}"
            await self._page.attempt(lambda: work(chosen), done)
            await self._load()

    async def _edit(self) -> None:
        number = self._edited.value
        found = [each for each in self._letters if each.message.offset == number]
        if not found or self._payloads is not Payloads.SHOW:
            ui.notify("There is no such dead letter here", type="warning")
            return
        [letter] = found
        text = editable_text(letter.message.payload)
        if text is None:
            ui.notify(
                "The payload is not text, so it cannot be edited here: replay it as it "
                "is, or publish another with danube produce",
                type="warning",
            )
            return
        # The second press of the button publishes no second copy.
        copy_id = uuid4().hex
        with ui.dialog() as dialog, ui.card().classes("form"):
            ui.label(f"Publish an edited copy to {letter.topic}, and drop this one")
            edited = ui.textarea("Payload", value=text).props("outlined autogrow")

            async def publish() -> None:
                message = letter.message
                async with self._page.client.producer(letter.topic) as producer:
                    await producer.send(
                        (edited.value or "").encode(),
                        key=message.key_bytes,
                        attributes=message.attributes,
                        id=copy_id,
                    )
                await self._handler.drop([letter])
                dialog.close()
                await self._load()

            with ui.row():
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Publish", on_click=lambda: self._page.attempt(publish))
        dialog.open()


def _dead_letters(count: int) -> str:
    return f"{format_count(count)} dead letter{'' if count == 1 else 's'}"


def editable_text(payload: bytes) -> str | None:
    """Return *payload* as text; None if the text would not give the same bytes."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    # A text field of a browser knows one kind of line ends.
    return None if "\r" in text or "\0" in text else text


def group_by_reason(letters: Sequence[DeadLetter]) -> list[tuple[str, int]]:
    """Return the reasons with the number of dead letters, the most frequent first."""
    return Counter(each.reason for each in letters).most_common(100)


def _subscriptions_of(session: Session) -> list[tuple[str, str]]:
    sample = session.monitor.history.sample
    found = {
        (base_of(topic.topic), each.subscription)
        for topic in (() if sample is None else sample.topics)
        for each in topic.subscriptions
        if each.settings.failure_policy is not None
        and each.settings.failure_policy.dead_letter_topic
    }
    return sorted(found)


def _letter(letter: DeadLetter, payloads: Payloads) -> Html:
    message = letter.message
    body = (
        code(show_payload(message.payload).text)
        if payloads is Payloads.SHOW
        else describe_payload(message.payload)
    )
    about = facts(
        [
            ("Offset here", message.offset),
            ("Original", f"{letter.topic} @ {letter.offset}"),
            ("Reason", letter.reason or "none"),
            ("Deliveries", letter.attempt or ""),
            ("Earlier failures", len(letter.history)),
        ]
    )
    return element("article", join([about, body]), class_="message")

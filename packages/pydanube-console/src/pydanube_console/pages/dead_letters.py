"""Dead letters: by reason, to inspect, edit, replay and drop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

from nicegui import ui

from pydanube.client.consumers.dead_letters import DeadLetter, DeadLetters
from pydanube.model.errors import InvalidRequest
from pydanube.model.subscription_lag import base_of
from pydanube.security.permissions import Permission
from pydanube_console.dead_letter_markup import (
    count_text,
    edit_refusal,
    editable_text,
    render_groups,
    render_letters,
    title_of,
)
from pydanube_console.frame import Page, frame
from pydanube_console.missing_topic import shows_missing
from pydanube_console.pure.failure_groups import FailureGroup, group_by_failure
from pydanube_console.pure.markup import element
from pydanube_console.sessions import Session
from pydanube_console.settings import Payloads

READ_MAX = 2000
"""How many dead letters the page reads at most."""
TRIAL_COUNT = 5
"""How many are replayed at first, to see whether they succeed now."""


async def show(
    session: Session,
    topic: str = "",
    subscription: str = "",
    *,
    payloads: Payloads = Payloads.SHOW,
) -> None:
    """Show the page."""
    with frame(
        session, "Dead letters", current="/dead-letters", has_figures=True
    ) as page:
        if topic and await shows_missing(page, topic):
            return
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
        self._groups: list[FailureGroup[DeadLetter]] = []
        self._group: FailureGroup[DeadLetter] | None = None
        self._replay_refusal = self._drop_refusal = ""
        given = (topic, subscription) if topic and subscription else None
        choices = _subscriptions_of(page.session)
        if given is not None and given not in choices:
            # Not all topics are measured.
            choices.insert(0, given)
        with ui.row().classes("tools"):
            self._choice = ui.select(
                {each: f"{each[1]} of {each[0]}" for each in choices},
                value=given or (choices[0] if len(choices) == 1 else None),
                label="Subscription with a dead-letter topic",
            )
            self._choice.props("dense outlined").style("min-width: 20rem")
            self._load_button = ui.button("Load", on_click=self._load)
            self._load_button.props("unelevated")
        self._status = ui.label("").classes("muted").props("role=status")
        self._by_reason = page.show()
        with ui.row().classes("tools"):
            self._trial = ui.button(f"Replay {TRIAL_COUNT} first", on_click=self._try)
            self._replay_all = ui.button("Replay all", on_click=self._replay)
            self._drop_all = ui.button("Drop all", on_click=self._drop)
        for each in (self._trial, self._replay_all, self._drop_all):
            each.props("flat")
        self._drop_all.props("color=negative")
        self._shown = page.show()
        page.on_press(self._by_reason, self._choose)
        page.on_press(self._shown, self._act)
        self._choice.on_value_change(self._load)
        self._draw()
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

    @property
    def _chosen(self) -> list[DeadLetter]:
        return self._letters if self._group is None else self._group.members

    async def _load(self) -> None:
        async def load() -> None:
            found: list[DeadLetter] = []
            handler = self._handler
            async for each in handler.messages():
                found.append(each)
                if len(found) >= READ_MAX:
                    break
            await self._find_refusals(handler)
            before = self._group
            self._letters = found
            self._groups = group_by_failure(found)
            # The group stays chosen while it has dead letters.
            self._group = next(
                (
                    each
                    for each in self._groups
                    if before is not None and each.failure == before.failure
                ),
                None,
            )
            self._draw()

        await self._page.attempt(load)

    async def _find_refusals(self, handler: DeadLetters) -> None:
        may = self._page.session.access.may
        dead = await handler.dead_letter_topic()
        self._drop_refusal = (
            ""
            if await may(Permission.CONSUME, dead)
            else f"You may not consume {dead}."
        )
        self._replay_refusal = self._drop_refusal or (
            ""
            if await may(Permission.PRODUCE, handler.topic)
            else f"You may not publish to {handler.topic}."
        )

    def _draw(self) -> None:
        count = len(self._chosen)
        read = len(self._letters)
        text = count_text(count)
        if self._group is not None:
            text += f" of {read}: {title_of(self._group)}"
        more = f" (the first {READ_MAX} that wait)" if read >= READ_MAX else ""
        self._status.set_text(f"{text}{more}" if self._choice.value else "")
        self._load_button.set_enabled(bool(self._choice.value))
        self._replay_all.set_text(f"Replay all {count}" if count else "Replay all")
        self._drop_all.set_text(f"Drop all {count}" if count else "Drop all")
        can_replay = count > 0 and not self._replay_refusal
        self._trial.set_enabled(can_replay and count > TRIAL_COUNT)
        self._replay_all.set_enabled(can_replay)
        self._drop_all.set_enabled(count > 0 and not self._drop_refusal)
        groups = render_groups(self._groups, self._group) if read else ""
        self._by_reason.set_content(groups)
        letters = render_letters(
            self._chosen,
            self._payloads,
            replay_refusal=self._replay_refusal,
            drop_refusal=self._drop_refusal,
        )
        self._shown.set_content(letters)

    async def _choose(self, _: str, value: str) -> None:
        if value.isdecimal() and int(value) < len(self._groups):
            group = self._groups[int(value)]
            self._group = None if group is self._group else group
            self._draw()

    async def _act(self, action: str, value: str) -> None:
        """Do what a button of one dead letter says."""
        found = [each for each in self._letters if str(each.message.offset) == value]
        for letter in found:
            match action:
                case "replay":
                    await self._handle("Replay", self._handler.replay, found)
                case "drop":
                    await self._handle("Drop", self._handler.drop, found)
                case "edit":
                    await self._edit(letter)

    async def _try(self) -> None:
        chosen = self._chosen[:TRIAL_COUNT]
        await self._handle("Replay", self._handler.replay, chosen)

    async def _replay(self) -> None:
        await self._handle("Replay", self._handler.replay, self._chosen)

    async def _drop(self) -> None:
        await self._handle("Drop", self._handler.drop, self._chosen)

    async def _handle(
        self,
        word: str,
        work: Callable[[Sequence[DeadLetter]], object],
        chosen: Sequence[DeadLetter],
    ) -> None:
        question = f"{word} {count_text(len(chosen))}?"
        if chosen and await self._page.confirm(question, word):
            done = f"{word}: {count_text(len(chosen))}"
            await self._page.attempt(lambda: work(chosen), done)
            await self._load()

    async def _edit(self, letter: DeadLetter) -> None:
        text = editable_text(letter.message.payload)
        refusal = edit_refusal(letter.message.payload)
        if text is None or refusal or self._payloads is not Payloads.SHOW:
            ui.notify(
                f"{refusal or 'Payloads are not shown.'} Replay it as it is, or "
                "publish another with danube produce",
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


def _subscriptions_of(session: Session) -> list[tuple[str, str]]:
    sample = session.monitor.history.sample
    found = {
        (base_of(topic.topic), each.subscription)
        for topic in (() if sample is None else sample.topics)
        for each in topic.subscriptions
        if each.settings.failure_policy is not None
        and each.settings.failure_policy.dead_letter_topic
    }
    found |= {
        (each.topic, each.subscription)
        for each in session.monitor.findings.dead_letter_routes
    }
    return sorted(found)

"""The form with the settings of a topic that can change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nicegui import ui

from pydanube.client.operations.changes import changes_of
from pydanube.model.descriptions import TopicDescription, TopicSettings
from pydanube.model.errors import Conflict
from pydanube.model.setting_documents import (
    INHERIT,
    NONE,
    Change,
    Document,
    changes_between,
    document_of,
    summarize,
    value_of,
    whole_document_of,
    with_document,
)
from pydanube_console.frame import Page
from pydanube_console.pure.markup import Column, Html, element, table

TITLES = {
    "on_corruption": "Corrupt segments",
    "retention": "Retention",
    "sealing": "Segments",
    "deduplication": "Deduplication",
    "limits": "Limits",
    "schema": "Schema",
}
ABSENT = {
    "retention": (INHERIT, "Its own; otherwise that of the namespace"),
    "deduplication": (NONE, "Recognise the ids of messages"),
    "limits": (INHERIT, "Its own; otherwise those of the namespace"),
    "schema": (NONE, "Messages have a schema"),
}
"""The groups that a topic need not have: the word for none, and the switch's text."""
HINT = (
    "Write ages as 12h or 7d, and sizes as 500MB or 10GiB. A limit of 0 means that "
    "there is no limit."
)


@dataclass(slots=True)
class EditedGroup:
    """The fields of a group of settings, as the user has left them."""

    is_own: bool = True
    """Whether the topic has the group itself."""
    values: dict[str, object] = field(default_factory=dict)


def edited_document(
    whole: Document, current: Document, edited: Mapping[str, EditedGroup]
) -> Document:
    """
    Return the document of what was *edited*, for ``with_document``.

    *whole* has what the fields showed first; *current* has the word of each group that
    the topic does not have.
    """
    document: Document = {}
    for name, group in edited.items():
        shown = whole[name]
        if not isinstance(shown, dict):
            if group.values[name] != shown:
                document[name] = group.values[name]
            continue
        if not group.is_own:
            document[name] = ABSENT[name][0]
            continue
        changed = {
            key: value for key, value in group.values.items() if value != shown[key]
        }
        if changed or not isinstance(current[name], dict):
            document[name] = changed
    return document


class SettingsForm:
    """A dialog that changes the settings of one topic, after a preview."""

    def __init__(self, page: Page, name: str, topic: TopicDescription) -> None:
        self._page = page
        self._name = name
        self._topic = topic
        self._whole = whole_document_of(topic)
        self._current = self._document(topic.settings)
        self._edited: dict[str, EditedGroup] = {}
        with ui.dialog() as self._dialog, ui.card().classes("form settings-form"):
            ui.label(f"Settings of {name}").classes("text-h6")
            ui.label(HINT).classes("muted")
            for group, shown in self._whole.items():
                self._add(group, shown)
            self._changes = ui.html("", sanitize=False)
            with ui.row():
                ui.button("Cancel", on_click=self._dialog.close).props("flat")
                ui.button("Preview", on_click=lambda: page.attempt(self._preview))
                self._save = ui.button("Save")
                self._save.on_click(lambda: page.attempt(self._apply, "Saved"))
                self._save.disable()

    def open(self) -> None:
        """Show the dialog."""
        self._dialog.open()

    def _document(self, settings: TopicSettings) -> Document:
        return document_of(settings, is_reliable=self._topic.policy.is_reliable)

    def _add(self, name: str, shown: object) -> None:
        group = self._edited[name] = EditedGroup()
        ui.html(element("h3", TITLES[name]), sanitize=False)
        if not isinstance(shown, dict):
            group.values[name] = shown
            choice = ui.select(["stop", "skip"], value=shown, label="Subscriptions")
            choice.bind_value_to(group.values, name)
            choice.on_value_change(self._on_edit)
            return
        group.is_own = isinstance(self._current[name], dict)
        if name in ABSENT:
            switch = ui.switch(ABSENT[name][1], value=group.is_own)
            switch.bind_value_to(group, "is_own").on_value_change(self._on_edit)
        with ui.row().classes("fields") as fields:
            for key, value in shown.items():
                self._add_field(group, f"{TITLES[name]}: ", key, value)
        fields.bind_visibility_from(group, "is_own")

    def _add_field(
        self, group: EditedGroup, title: str, key: str, value: object
    ) -> None:
        label = key.replace("_", " ")
        # Several groups have an age and a size.
        whole_label = f'aria-label="{title}{label}"'
        group.values[key] = value
        if isinstance(value, bool):
            switch = ui.switch(label, value=value).bind_value_to(group.values, key)
            switch.props(whole_label).on_value_change(self._on_edit)
            return
        entry = ui.input(label, value=str(value)).props("dense outlined")
        entry.props(whole_label)

        def keep() -> None:
            text = str(entry.value or "")
            # A name may look like a number, and a number is written as text.
            group.values[key] = value if text == str(value) else value_of(text)
            self._on_edit()

        entry.on_value_change(keep)

    def _on_edit(self) -> None:
        self._save.disable()
        self._changes.set_content("")

    def _new(self) -> TopicSettings:
        document = edited_document(self._whole, self._current, self._edited)
        return with_document(self._topic, document)

    def _preview(self) -> None:
        changes = changes_between(self._current, self._document(self._new()))
        self._changes.set_content(render_settings_changes(changes))
        self._save.set_enabled(bool(changes))

    async def _apply(self) -> None:
        client = self._page.client
        found = await client.topics.describe(self._topic.topic)
        if found.settings != self._topic.settings:
            raise Conflict(
                f"the settings of {self._name} changed in the meantime: open the form "
                "again"
            )
        changes = changes_of(self._topic.settings, self._new())
        await client.topics.configure(self._name, **changes)
        self._dialog.close()


def render_settings_changes(changes: list[Change]) -> Html:
    """Return the old and the new values."""
    rows = [
        (each.setting, summarize(each.old), summarize(each.new)) for each in changes
    ]
    columns = [Column("Setting"), Column("Now"), Column("Then")]
    return table(columns, rows, caption="Changes", empty="Nothing changes.")

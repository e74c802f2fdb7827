"""Dead letters and their groups as HTML.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.client.consumers.dead_letters import DeadLetter
from pydanube.model.quantity_formats import format_count, format_time
from pydanube_console.pure.failure_groups import FailureGroup
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    button,
    code,
    element,
    facts,
    join,
    panel,
    table,
)
from pydanube_console.pure.payloads import describe_payload, show_payload
from pydanube_console.settings import Payloads

GROUPS_SHOWN = 100
LETTERS_SHOWN = 50
EDITED_BYTES_MAX = 256 * 1024
"""The longest payload that can be edited in the browser."""


def count_text(count: int) -> str:
    """Return *count* with its unit."""
    return f"{format_count(count)} dead letter{'' if count == 1 else 's'}"


def title_of(group: FailureGroup[DeadLetter]) -> str:
    """Return the class and the text of *group* on one line."""
    failure = group.failure
    return ": ".join(filter(None, (failure.kind, failure.text))) or "no reason"


def render_groups(
    groups: Sequence[FailureGroup[DeadLetter]],
    chosen: FailureGroup[DeadLetter] | None,
) -> Html:
    """Return the groups, with a button that shows the dead letters of each."""
    columns = [
        Column("Reason"),
        Column("Count", is_number=True),
        Column("First", is_wide_only=True),
        Column("Last", is_wide_only=True),
        Column(""),
    ]
    rows = [
        (
            join(
                [*map(badge, filter(None, [each.failure.kind])), each.failure.text], " "
            )
            or element("span", "no reason", class_="muted"),
            format_count(len(each.members)),
            format_time(each.members[0].message.publish_time),
            format_time(each.members[-1].message.publish_time),
            button("All" if each is chosen else "Only these", "group", number)
            if len(groups) > 1
            else "",
        )
        for number, each in enumerate(groups[:GROUPS_SHOWN])
    ]
    further = len(groups) - GROUPS_SHOWN
    note = (
        element("p", f"{further} further groups are not shown.", class_="muted")
        if further > 0
        else ""
    )
    shown = table(columns, rows, caption="Dead letters by reason", empty="None.")
    return panel("By reason", shown, note)


def render_letters(
    letters: Sequence[DeadLetter],
    payloads: Payloads,
    *,
    replay_refusal: str,
    drop_refusal: str,
) -> Html:
    """Return *letters* with the buttons of each; *..._refusal*: why not, if so."""
    if not letters:
        return Html("")
    shown = [
        _letter(each, payloads, replay_refusal, drop_refusal)
        for each in letters[:LETTERS_SHOWN]
    ]
    more = (
        element(
            "p",
            f"These are the first {LETTERS_SHOWN} of {count_text(len(letters))}.",
            class_="muted",
        )
        if len(letters) > LETTERS_SHOWN
        else ""
    )
    return panel("Dead letters", more, *shown)


def _letter(
    letter: DeadLetter, payloads: Payloads, replay_refusal: str, drop_refusal: str
) -> Html:
    message = letter.message
    is_shown = payloads is Payloads.SHOW
    body = (
        code(show_payload(message.payload).text)
        if is_shown
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
    refusal = edit_refusal(message.payload) if is_shown else "Payloads are not shown."
    which = f"dead letter {message.offset}"
    buttons = [
        button(text, action, message.offset, refusal=why, label=f"{text} {which}")
        for text, action, why in (
            ("Replay", "replay", replay_refusal),
            ("Edit", "edit", replay_refusal or drop_refusal or refusal),
            ("Drop", "drop", drop_refusal),
        )
    ]
    acts = element("div", *buttons, class_="acts act-row")
    return element("article", join([about, body, acts]), class_="message")


def edit_refusal(payload: bytes) -> str:
    """Return why *payload* cannot be edited in a text field; empty if it can."""
    if len(payload) > EDITED_BYTES_MAX:
        return f"It has {format_count(len(payload))} bytes: too many to edit them here."
    return "" if editable_text(payload) is not None else "It is not plain text."


def editable_text(payload: bytes) -> str | None:
    """Return *payload* as text; None if the text would not give the same bytes."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    # A text field of a browser knows one kind of line ends.
    return None if "\r" in text or "\0" in text else text

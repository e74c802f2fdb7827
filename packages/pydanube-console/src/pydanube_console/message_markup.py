"""Messages as HTML.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pydanube.client.messages.messages import Message
from pydanube.model.errors import InvalidPayload
from pydanube.model.field_paths import quoted_step
from pydanube.model.shown_text import excerpt
from pydanube_cli.messages.message_fields import MessageField, MessageParts
from pydanube_cli.messages.message_formats import text_of
from pydanube_cli.messages.pure.conditions import ROOTS
from pydanube_console.message_search import FoundMessage
from pydanube_console.pure.markup import (
    Column,
    Html,
    badge,
    button,
    code,
    element,
    expandable_table,
    join,
)
from pydanube_console.pure.payloads import describe_payload, show_payload
from pydanube_console.settings import Payloads

HIDDEN = "\u2022\u2022\u2022"
CELL_CHARACTERS_MAX = 120
"""The longest text of a cell; the expanded row has the rest."""
SUGGESTED_MAX = 16
"""How many fields are offered as columns."""
SUGGESTED_CHARACTERS_MAX = 40


def render_messages(found: Iterable[FoundMessage], payloads: Payloads) -> Html:
    """Return the messages, one below the other."""
    return join(_message(each, payloads) for each in found)


def render_table(
    found: Sequence[FoundMessage], fields: Sequence[MessageField], payloads: Payloads
) -> Html:
    """
    Return the messages as a table, whose rows expand to the whole message.

    *fields* are the columns after time and key; by default the payload.
    """
    is_shown = payloads is Payloads.SHOW
    titles = [each.text for each in fields] if is_shown else []
    columns = [
        Column("Time"),
        Column("Offset", is_number=True),
        Column("Key"),
        *map(Column, titles or ["Payload"]),
    ]
    rows = [
        (
            (
                _moment(each.message.publish_time),
                each.message.offset,
                _key(each.message, is_shown),
                *_cells(each.message, fields if is_shown else (), payloads),
            ),
            _message(each, payloads),
        )
        for each in found
    ]
    return expandable_table(
        columns, rows, caption="Messages", empty="No message fits.", row="message"
    )


def _cells(
    message: Message, fields: Sequence[MessageField], payloads: Payloads
) -> list[object]:
    if payloads is not Payloads.SHOW:
        return [describe_payload(message.payload)]
    if not fields:
        # A payload may be much larger than what is shown.
        return [_cell(message.payload[: 4 * CELL_CHARACTERS_MAX + 4])]
    parts = MessageParts(message)
    return [_cell(each.content_in(parts)) for each in fields]


def _moment(moment: datetime) -> Html:
    """Return a time that is broken only between day and hour."""
    parts = _time(moment).split("T")
    return join([element("span", each, class_="whole") for each in parts], " ")


def _cell(content: bytes) -> str:
    return excerpt(text_of(content), CELL_CHARACTERS_MAX)


def _key(message: Message, is_shown: bool) -> str:
    if message.key_bytes is None:
        return "\u2013"
    return _cell(message.key_bytes) if is_shown else HIDDEN


def suggested_fields(found: Iterable[FoundMessage]) -> list[str]:
    """Return the paths of fields that *found* have, which can be columns."""
    names: dict[str, None] = {}
    for each in found:
        try:
            value = MessageParts(each.message).get("value")
        except InvalidPayload:
            value = None
        if isinstance(value, dict):
            names |= dict.fromkeys(map(_path_in_value, map(str, value)))
        names |= dict.fromkeys(
            f"attributes.{quoted_step(name)}" for name in each.message.attributes
        )
        if len(names) >= SUGGESTED_MAX:
            break
    return list(filter(_is_offered, names))[:SUGGESTED_MAX]


def _path_in_value(name: str) -> str:
    step = quoted_step(name)
    return f"value.{step}" if step in ROOTS else step


def _is_offered(path: str) -> bool:
    # A comma separates columns, and no path has a quotation mark within a name.
    is_path = path.count('"') in {0, 2} and "," not in path and '""' not in path
    return is_path and len(path) <= SUGGESTED_CHARACTERS_MAX


def render_suggestions(suggested: Iterable[str], chosen: Iterable[str]) -> Html:
    """Return buttons that add a column, or take it away."""
    given = set(chosen)
    buttons = [
        button(each, "column", each, is_pressed=each in given) for each in suggested
    ]
    if not buttons:
        return Html("")
    return element(
        "div", element("span", "Columns:", class_="muted"), *buttons, class_="acts"
    )


def _message(found: FoundMessage, payloads: Payloads) -> Html:
    message = found.message
    is_shown = payloads is Payloads.SHOW
    head = [element("span", element("b", f"{message.topic} @ {message.offset}"))]
    head.append(element("span", _time(message.publish_time)))
    if message.key_bytes is not None:
        head.append(
            element("span", "key ", element("b", message.key if is_shown else HIDDEN))
        )
    if message.producer:
        head.append(element("span", "from ", message.producer))
    head += [
        element("span", badge(f"{name}={value if is_shown else '•••'}"))
        for name, value in sorted(message.attributes.items())
    ]
    body: list[Html] = []
    if is_shown:
        shown = show_payload(message.payload, found.value)
        body.append(code(shown.text))
        if shown.is_truncated:
            note = f"{len(message.payload)} bytes; this is the beginning"
            body.append(element("p", note, class_="muted"))
    else:
        body.append(element("p", describe_payload(message.payload), class_="muted"))
    return element(
        "article", element("div", *head, class_="message-head"), *body, class_="message"
    )


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

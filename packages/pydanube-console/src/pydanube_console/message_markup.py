"""Messages as HTML and as JSON.  Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from datetime import datetime

from pydanube_console.message_search import FoundMessage
from pydanube_console.pure.markup import Html, badge, code, element, join
from pydanube_console.pure.payloads import describe_payload, show_payload
from pydanube_console.settings import Payloads

HIDDEN = "\u2022\u2022\u2022"


def render_messages(found: Iterable[FoundMessage], payloads: Payloads) -> Html:
    """Return the messages, one below the other."""
    return join(_message(each, payloads) for each in found)


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


def to_json(found: Iterable[FoundMessage]) -> str:
    """Return the messages as a JSON array; payloads that are no text are in Base64."""
    return json.dumps([_record(each) for each in found], indent=2, default=str)


def _record(found: FoundMessage) -> dict[str, object]:
    message = found.message
    record: dict[str, object] = {
        "topic": message.topic,
        "offset": message.offset,
        "publish_time": _time(message.publish_time),
        "key": message.key,
        "attributes": dict(message.attributes),
    }
    if found.value is not None and not isinstance(found.value, bytes):
        return {**record, "value": found.value}
    try:
        return {**record, "payload": message.payload.decode()}
    except UnicodeDecodeError:
        return {**record, "payload_base64": base64.b64encode(message.payload).decode()}

"""The bodies and the answers of ``_bulk``, as Elasticsearch defines them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from pydanube.client.messages.messages import Message
from pydanube_connect.pure.failures import JSON_ERRORS
from pydanube_connect.sinks.templates import IdSource, short_topic

ID_BYTES_MAX = 512
"""The maximum size of an id; a longer one makes a server refuse the whole request."""
REASON_CHARACTERS_MAX = 300

_ITS_OWN_FAULT = frozenset(
    {
        "cluster_block_exception",
        "index_closed_exception",
        "index_not_found_exception",
        "security_exception",
    }
)
"""The errors of documents that do not depend on them."""


class InvalidDocument(Exception):
    """A message is no document."""


def action_of(message: Message, index: str, document_id: IdSource) -> bytes:
    """
    Return the lines of the action that writes *message*.

    By the key of the message, the document is replaced, or deleted if the message is
    empty, unless it has a higher offset.

    Raises:
        InvalidDocument: It cannot be written.
    """
    where: dict[str, Any] = {"_index": index.replace("{topic}", short_topic(message))}
    if document_id is IdSource.MESSAGE:
        where["_id"] = f"{message.topic}:{message.offset}"
        return _lines({"create": where}, _document_of(message))
    where |= {
        "_id": _key_of(message),
        "version": message.offset,
        "version_type": "external",
    }
    if not message.payload:
        return _lines({"delete": where})
    return _lines({"index": where}, _document_of(message))


def _key_of(message: Message) -> str:
    key = message.key_bytes
    if not key:
        raise InvalidDocument("the message has no key")
    if len(key) > ID_BYTES_MAX:
        raise InvalidDocument(f"the key is longer than {ID_BYTES_MAX} bytes")
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise InvalidDocument("the key is not UTF-8") from None


def _document_of(message: Message) -> bytes:
    payload = message.payload
    try:
        payload.decode()  # The decoder does not look into the values.
        msgspec.json.decode(payload, type=dict[str, Raw])
    except JSON_ERRORS:
        raise InvalidDocument("the payload is not a JSON object") from None
    return msgspec.json.format(payload, indent=-1) if b"\n" in payload else payload


def _lines(action: Mapping[str, Any], *more: bytes) -> bytes:
    return b"".join(line + b"\n" for line in (msgspec.json.encode(action), *more))


@dataclass(slots=True)
class BulkResult:
    """The outcome of a request."""

    rejected: dict[int, str] = field(default_factory=dict)
    """Why documents are refused, by the number of the action."""
    is_busy: str | None = None
    """Why some documents must be sent again."""
    failure: str | None = None
    """Why nothing can be written until somebody changes something."""


def result_of(items: Sequence[Mapping[str, Mapping[str, Any]]]) -> BulkResult:
    """Return the outcome of the actions with the answers *items*."""
    result = BulkResult()
    for number, item in enumerate(items):
        [(action, answer)] = item.items()
        status, error = answer["status"], answer.get("error")
        # A document that exists, or is newer, was written before.
        is_done = status < 300 or status == 409 or (action, status) == ("delete", 404)
        if is_done and (error is None or status == 409):
            continue
        reason = _reason_of(error, status)
        if status == 429 or status >= 500:
            result.is_busy = reason
        elif isinstance(error, Mapping) and error.get("type") in _ITS_OWN_FAULT:
            result.failure = reason
        else:
            result.rejected[number] = reason
    return result


def _reason_of(error: object, status: int) -> str:
    text = error
    if isinstance(error, Mapping):
        cause = error.get("caused_by")
        more = f"; {cause['reason']}" if isinstance(cause, Mapping) else ""
        text = f"{error.get('type')}: {error.get('reason')}{more}"
    return f"the server answers {status}: {text}"[:REASON_CHARACTERS_MAX]

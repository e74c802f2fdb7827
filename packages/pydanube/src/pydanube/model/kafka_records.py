"""
Records of Kafka as messages: nulls and headers, which messages do not have.

The listener for Kafka's clients and the connectors store them in the same way;
``docs/format/kafka.md`` describes it.  Pure.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import TypeAlias

TOMBSTONE = "kafka.tombstone"
"""The attribute of a message whose value is null, not empty."""
HEADERS = "kafka.headers"
"""The attribute with headers that attributes cannot hold as they are."""
HEADERS_MAX = 1000
"""The most headers of a record."""

Header: TypeAlias = tuple[str, bytes | None]


def attributes_of(value: bytes | None, headers: Sequence[Header]) -> dict[str, str]:
    """Return the attributes of the message for a record."""
    attributes, is_exact = dict[str, str](), True
    for name, content in headers:
        try:
            text = None if content is None else content.decode()
        except UnicodeDecodeError:
            text = None
        if text is None or name in attributes or name in (TOMBSTONE, HEADERS):
            is_exact = False
        if text is not None and name not in (TOMBSTONE, HEADERS):
            attributes[name] = text
    if not is_exact:
        attributes[HEADERS] = _encode_headers(headers)
    if value is None:
        attributes[TOMBSTONE] = "true"
    return attributes


def headers_of(attributes: Mapping[str, str]) -> Sequence[Header]:
    """Return the headers of the record for a message."""
    encoded = attributes.get(HEADERS)
    if encoded is not None:
        headers = _decode_headers(encoded)
        if headers is not None:
            return headers
    return [
        (name, text.encode())
        for name, text in attributes.items()
        if name not in (TOMBSTONE, HEADERS)
    ]


def _encode_headers(headers: Sequence[Header]) -> str:
    return json.dumps(
        [
            [name, None if value is None else b64encode(value).decode()]
            for name, value in headers
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _decode_headers(encoded: str) -> list[Header] | None:
    """Return the headers; None if somebody has written something else there."""
    try:
        pairs = json.loads(encoded)
        headers = [
            (name, None if value is None else b64decode(value, validate=True))
            for name, value in pairs
        ]
        # Escapes of JSON may be half of a character, which no client could be sent.
        "".join(name for name, _ in headers).encode()
    except (ValueError, TypeError, RecursionError):
        return None
    return None if len(headers) > HEADERS_MAX else headers

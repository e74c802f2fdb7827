"""
Messages for assistants: as values of JSON, with bounded sizes.

The contents of messages are data.  What is shown is marked as such, because an
assistant may take text for instructions.
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from pydanube.client.client import Client
from pydanube.client.messages.messages import Message
from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube.model.positions import PositionLike

SAMPLE_BYTES_MAX = 64 * 1024
"""The most bytes of payloads, keys and attributes in one answer."""
ATTRIBUTES_MAX = 32
TEXT_BYTES_MAX = 1024
"""Longer keys and attributes are truncated."""

_Utf8 = codecs.getincrementaldecoder("utf-8")


def parse_start(text: str) -> PositionLike:
    """
    Return the position that *text* names: an offset, a word, or a time.

    Raises:
        InvalidRequest: It is none of these.
    """
    if text.isdecimal():
        return int(text)
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidRequest(
            f"{text!r} is no position: use 'earliest', 'latest', an offset, or a time "
            "such as 2026-01-31T09:30:00Z"
        )
    return moment


async def sample(
    client: Client, topic: str, start: str, count: int, payload_bytes_max: int
) -> list[dict[str, Any]]:
    """
    Return up to *count* messages of *topic* from *start*; "latest": the last ones.

    Bounds: ``SAMPLE_BYTES_MAX`` in all, so there may be fewer.

    Raises: As ``Client.read``.
    """
    position = parse_start(start)
    if position == "latest":
        facts = await client.topics.describe(topic)
        position = max(facts.base_offset, facts.end_offset - count)
    found: list[dict[str, Any]] = []
    room = SAMPLE_BYTES_MAX
    batches = client.read(topic, start=position, prefetch_bytes=2 * SAMPLE_BYTES_MAX)
    async for batch in batches:
        for message in batch:
            shown = shown_message(message, payload_bytes_max)
            room -= len(json.dumps(shown))
            if found and room < 0:
                return found
            found.append(shown)
            if len(found) == count:
                return found
    return found


def shown_message(message: Message, payload_bytes_max: int) -> dict[str, Any]:
    """Return *message* as a value of JSON; the payload may be truncated."""
    payload = message.payload
    shown: dict[str, Any] = {
        "topic": message.topic,
        "offset": message.offset,
        "publish_time": message.publish_time.isoformat(),
        "producer": message.producer,
        "attributes": _attributes(message.attributes),
        "payload_bytes": len(payload),
    }
    if message.key_bytes is not None:
        shown["key"] = shown_text(message.key_bytes, TEXT_BYTES_MAX)
    if message.schema_id and len(payload) <= payload_bytes_max:
        with suppress(
            BrokerError, RecursionError, OverflowError, TypeError, ValueError
        ):
            value = msgspec.json.encode(message.value, enc_hook=str)
            # A value may be longer than its payload.
            if len(value) <= 4 * payload_bytes_max:
                return shown | {"value": json.loads(value)}
    return shown | {"payload": shown_text(payload, payload_bytes_max)}


def _attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    shown = list(attributes.items())[:ATTRIBUTES_MAX]
    return {
        shown_text(name.encode(), TEXT_BYTES_MAX): shown_text(
            value.encode(), TEXT_BYTES_MAX
        )
        for name, value in shown
    }


def shown_text(content: bytes, bytes_max: int) -> str:
    """Return *content* as text, or in base64, and say if it is truncated."""
    cut = content[:bytes_max]
    note = "" if len(cut) == len(content) else f"… ({len(content)} bytes)"
    try:
        # A character at the end may be cut.
        return _Utf8().decode(cut, final=not note) + note
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(cut).decode()}{note}"

"""
The dead letters of connectors: messages with the reason why they are there.  Pure.

A dead letter is always valid, whatever the message was: its attributes are text, and
payload and attributes are so small that the broker accepts them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydanube.model.arrow import pa
from pydanube.model.batch import batch_of
from pydanube.model.dead_letters import REASON
from pydanube.model.shown_text import excerpt

PAYLOAD_BYTES_MAX = 1024 * 1024
"""Longer payloads are truncated, because they may be the reason."""
ATTRIBUTES_BYTES_MAX = 64 * 1024
"""Attributes of the message that exceed this together are left out."""
KEY_BYTES_MAX = 64 * 1024
"""Longer keys are left out."""
REASON_CHARACTERS_MAX = 1000
ORIGINAL_BYTES = "x-original-bytes"
"""The attribute of a truncated dead letter with the size of the whole payload."""


class DeadLetters:
    """Dead letters that are published together."""

    def __init__(self) -> None:
        self._payloads: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._attributes: list[Mapping[str, str]] = []

    def add(
        self,
        payload: bytes,
        reason: str,
        *,
        key: bytes | None = None,
        attributes: Mapping[str, object],
        origin: Mapping[str, str],
    ) -> None:
        """
        Add a message.

        Args:
            payload: Its payload.
            reason: Why it is a dead letter.
            key: Its key.
            attributes: Its attributes, which may be invalid.
            origin: Attributes that say where it comes from.
        """
        found = _valid(attributes)
        found |= {name: _text(value) for name, value in origin.items()}
        found[REASON] = excerpt(_text(reason), REASON_CHARACTERS_MAX)
        if len(payload) > PAYLOAD_BYTES_MAX:
            found[ORIGINAL_BYTES] = str(len(payload))
        self._payloads.append(payload[:PAYLOAD_BYTES_MAX])
        self._keys.append(None if key and len(key) > KEY_BYTES_MAX else key)
        self._attributes.append(found)

    def __len__(self) -> int:
        return len(self._payloads)

    def batch(self) -> pa.RecordBatch:
        """Return the batch to publish."""
        return batch_of(self._payloads, keys=self._keys, attributes=self._attributes)


def _valid(attributes: Mapping[str, object]) -> dict[str, str]:
    """Return the attributes as text, as many as fit; null is no attribute."""
    found: dict[str, str] = {}
    size = 0
    for given, value in attributes.items():
        if value is None:
            continue
        name, text = _text(given), _text(value)
        size += len(name.encode()) + len(text.encode())
        if size > ATTRIBUTES_BYTES_MAX:
            break
        found[name] = text
    return found


def _text(value: object) -> str:
    """Return *value* as text that has a representation in UTF-8."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    text = value if isinstance(value, str) else str(value)
    return text if text.isascii() else text.encode(errors="replace").decode()

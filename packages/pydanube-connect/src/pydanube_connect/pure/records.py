"""Records, and batches of them with the position of their source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pydanube.model.schemas import SchemaType

SCALAR_BYTES = 8
"""The size of a part that is no text, in a value that is not JSON."""

Refusals = Mapping[int, str]
"""The reasons why records of a batch were not stored, by their index."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class RecordSchema:
    """The schema of values that a source has found encoded; each is one object."""

    type: SchemaType
    definitions: tuple[str, ...]
    """The schema as the last one, after older versions of it, the oldest first: they
    are registered for the topic in this order."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message to publish."""

    value: Any
    """Bytes or text, which become the payload; anything else becomes JSON."""
    key: str | bytes | None = None
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    id: str | None = None
    """For topics that deduplicate: the same message always has the same id."""
    topic: str | None = None
    """None: the topic of the connector."""
    schema: RecordSchema | None = None
    """The schema that *value*, which is bytes, was encoded with. It is ignored
    if the connector declares ``transform``, ``mapping.payload`` or ``schema``."""
    problem: str | None = None
    """Why the source cannot provide the message, so that it becomes a dead letter."""

    def replace(self, **fields: Any) -> Record:
        """Return a copy with other values of *fields*."""
        return msgspec.structs.replace(self, **fields)


def _ignore(_: object) -> None:
    """Do nothing: most sources only need positions."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that follow each other in a source."""

    records: Sequence[Record]
    position: Any = None
    """
    Where the source continues after these records: a JSON value other than None.

    It is stored together with the messages.
    """
    on_stored: Callable[[Refusals], None] = _ignore
    """
    Called when all messages are on the broker's disk, to acknowledge them.

    It gets the records that the source has to refuse; see ``Source.refuses``.
    """
    on_failed: Callable[[Exception], None] = _ignore
    """Called if the batch could not be stored; the source is opened again."""
    byte_count: int = 0
    """About how large the values are; 0: they are measured."""


def size_of_value(value: Any) -> int:
    """Return about how many bytes *value* is as JSON; bytes and text count as such."""
    if isinstance(value, bytes | str):
        return len(value)
    try:
        # Twenty times as fast as to look at each part.
        return len(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _size_of_parts(value)


def _size_of_parts(value: Any) -> int:
    size = 0
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, bytes | str):
            size += len(part)
        elif isinstance(part, Mapping):
            parts += part.keys()
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
        else:
            size += SCALAR_BYTES
    return size

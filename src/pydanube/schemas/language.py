"""The types and limits that all schema languages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydanube.model.errors import (
    InvalidPayload,
    InvalidSchema,
)

if TYPE_CHECKING:
    import pyarrow as pa


DEFINITION_BYTES_MAX = 1024 * 1024
"""The maximum size of a definition."""
DEPTH_MAX = 64
"""The maximum nesting of a schema."""
PARTS_MAX = 10_000
"""The maximum number of types, fields, symbols and keywords of a schema."""

REASON_LENGTH_MAX = 500
"""The maximum number of characters that are quoted from a library's error."""

INCOMPATIBILITIES_MAX = 1000
"""The maximum number of reasons that a comparison of two schemas finds."""

BadPayload = tuple[int, str]
"""The index of a payload in its batch, and the reason why it is invalid."""

Validate = Callable[[Sequence[bytes]], list[BadPayload]]
"""Finds the invalid payloads of a batch; never raises."""

Decoder = Callable[[Sequence[bytes]], list[Any]]
"""Decodes payloads into Python values; raises InvalidPayload for the first bad one."""

Encoder = Callable[[Sequence[Any]], list[bytes]]
"""Encodes Python values as payloads; raises InvalidPayload for the first bad one."""

ColumnDecoder: TypeAlias = "Callable[[pa.Array], pa.Array]"
"""
Decodes a column of payloads into a column of values; nulls stay null.

Raises InvalidPayload for the first bad one, or the error of Arrow if the type of the
column cannot hold a value: a ValueError, a TypeError or an OverflowError.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    """A reason why data written with one schema cannot be read with another."""

    path: str
    """The place in the reader's schema, in the notation of its language."""
    rule: str
    """The identifier of the rule that is broken; identifiers never change."""
    text: str
    """An explanation for people."""

    def __str__(self) -> str:
        return f"{self.path}: {self.text} ({self.rule})"


def invalid_payload(index: int, reason: str) -> InvalidPayload:
    """Return the error for the payload at *index* of a batch."""
    return InvalidPayload(f"message {index} of the batch: {reason}")


def short_repr(value: Any) -> str:
    """Return the beginning of ``repr(value)``, for error messages."""
    try:
        return f"{value!r:.80}"
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"


def reason_of(error: InvalidPayload) -> str:
    """Return the reason in *error*, which concerns a batch of one payload."""
    return str(error).removeprefix(str(invalid_payload(0, "")))


def definition_text(definition: bytes | str) -> str:
    """
    Return a definition as text.

    Raises:
        InvalidSchema: It is too long, or not UTF-8.
    """
    length = len(definition)
    if length > DEFINITION_BYTES_MAX:
        raise InvalidSchema(
            f"the schema has {length} bytes; the maximum is {DEFINITION_BYTES_MAX}"
        )
    if isinstance(definition, str):
        return definition
    try:
        return definition.decode()
    except UnicodeDecodeError as error:
        raise InvalidSchema(f"the schema is not UTF-8 text: {error}") from error

"""The words that all schema languages share."""

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
"""No longer text is taken as a schema."""
DEPTH_MAX = 64
"""So deep may a schema be nested."""
PARTS_MAX = 10_000
"""So many types, fields, symbols and keywords may one schema have."""

REASON_LENGTH_MAX = 500
"""So many characters of a library's words about a payload are repeated."""

INCOMPATIBILITIES_MAX = 1000
"""So many reasons are found at most why two schemas are incompatible."""

BadPayload = tuple[int, str]
"""The index of a payload in its batch, and what is wrong with it."""

Validate = Callable[[Sequence[bytes]], list[BadPayload]]
"""Finds the payloads of a batch that do not keep to a schema; never raises."""

Decoder = Callable[[Sequence[bytes]], list[Any]]
"""Payloads to Python values; raises InvalidPayload with the first bad one."""

Encoder = Callable[[Sequence[Any]], list[bytes]]
"""Python values to payloads; raises InvalidPayload with the first bad one."""

ColumnDecoder: TypeAlias = "Callable[[pa.Array], pa.Array]"
"""
A column of payloads to a column of values; a null stays a null.

Raises InvalidPayload with the first bad one, or what Arrow raises for a value that
its type does not hold: a ValueError, a TypeError or an OverflowError.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    """One reason why data written with one schema cannot be read with another."""

    path: str
    """Where in the reader's schema, in the words of its language."""
    rule: str
    """Which rule is broken, as an identifier that does not change."""
    text: str
    """A sentence for people."""

    def __str__(self) -> str:
        return f"{self.path}: {self.text} ({self.rule})"


def invalid_payload(index: int, reason: str) -> InvalidPayload:
    """The error about the payload at *index* of a batch."""
    return InvalidPayload(f"message {index} of the batch: {reason}")


def short_repr(value: Any) -> str:
    """The beginning of what *value* looks like, for an error message."""
    try:
        return f"{value!r:.80}"
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"


def reason_of(error: InvalidPayload) -> str:
    """What *error* says about the only payload of a batch."""
    return str(error).removeprefix(str(invalid_payload(0, "")))


def definition_text(definition: bytes | str) -> str:
    """
    A definition as text.

    Raises:
        InvalidSchema: It is too long, or not UTF-8.
    """
    length = len(definition)
    if length > DEFINITION_BYTES_MAX:
        raise InvalidSchema(
            f"the schema has {length} bytes; no more than {DEFINITION_BYTES_MAX} "
            "are taken"
        )
    if isinstance(definition, str):
        return definition
    try:
        return definition.decode()
    except UnicodeDecodeError as error:
        raise InvalidSchema(f"the schema is not UTF-8 text: {error}") from error

"""The words that all schema languages share."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from pydanube.model.errors import (
    IncompatibleSchema,
    InvalidPayload,
    InvalidSchema,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from pydanube.model.schemas import SchemaType

DEFINITION_BYTES_MAX = 1024 * 1024
"""No longer text is taken as a schema."""
DEPTH_MAX = 64
"""So deep may a schema be nested."""
PARTS_MAX = 10_000
"""So many types, fields, symbols and keywords may one schema have."""

BadPayload = tuple[int, str]
"""The index of a payload in its batch, and what is wrong with it."""

Validator = Callable[[Sequence[bytes]], list[BadPayload]]
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


class Schema(ABC):
    """
    One schema, parsed and checked; immutable.

    What is costly, a validator or a decoder, is made once for a batch or many;
    the callables that are returned may be kept and used from any thread.
    """

    type: ClassVar[SchemaType]

    def __init__(self, text: str) -> None:
        self.text = text
        """The definition as it was given."""

    @cached_property
    @abstractmethod
    def canonical(self) -> bytes:
        """A form that is equal for schemas that mean the same."""

    @cached_property
    def fingerprint(self) -> str:
        """``sha256:`` and the digest of the canonical form."""
        return f"sha256:{hashlib.sha256(self.canonical).hexdigest()}"

    @abstractmethod
    def incompatibilities(self, writer: Schema) -> list[Incompatibility]:
        """
        Why some of what *writer* allows cannot be read with this schema.

        Empty means that all of it can.  Where that cannot be decided the answer is
        that it cannot, and why.  *writer* is of the same type.
        """

    @abstractmethod
    def validator(self) -> Validator:
        """What finds payloads that are not of this schema."""

    @abstractmethod
    def decoder(self) -> Decoder:
        """What turns payloads into Python values."""

    @abstractmethod
    def encoder(self) -> Encoder:
        """What turns Python values into payloads."""

    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The type of a column of decoded values."""

    def column_decoder(self, writer: Schema | None = None) -> ColumnDecoder:
        """
        What turns columns of payloads into columns of ``arrow_type()``.

        *writer* is the schema that they were written with, by default this one.
        What it has and this one does not is left out; what it does not have is this
        schema's default, if the language has such a thing, or null.

        Raises:
            IncompatibleSchema: Nothing written with *writer* can be read so.
        """
        if writer is not None and writer.type is not self.type:
            raise IncompatibleSchema(
                f"what is written as {writer.type.value} cannot be read as "
                f"{self.type.value}"
            )
        return self._column_decoder(self if writer is None else writer)

    @abstractmethod
    def _column_decoder(self, writer: Schema) -> ColumnDecoder:
        """See ``column_decoder``; *writer* is of the same type."""


def invalid_payload(index: int, reason: str) -> InvalidPayload:
    """The error about the payload at *index* of a batch."""
    return InvalidPayload(f"message {index} of the batch: {reason}")


def reason_alone(error: InvalidPayload) -> str:
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

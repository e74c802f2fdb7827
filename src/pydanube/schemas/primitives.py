"""
The types without a definition: bytes, string and number.

A number is an int64 or a float64 of eight bytes, little-endian.  The definition says
which, ``int64`` (the default) or ``float64``.  The original's four bytes, an int32 or
float32, can be read too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.errors import IncompatibleSchema, InvalidPayload, InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.language import (
    ColumnDecoder,
    Decoder,
    Encoder,
    Incompatibility,
    Validate,
    convert_each,
    find_bad_payloads,
    refuse_bad_payloads,
)
from pydanube.schemas.parsed_schema import ParsedSchema


class PrimitiveSchema(ParsedSchema):
    """A schema of a type without a definition."""

    kinds: ClassVar[dict[str, str]]
    """The kind of values by definition; the default is under the type's name."""
    known: ClassVar[str] = ""
    """The definitions that an error names."""

    def __init__(self, text: str = "") -> None:
        kind = self.kinds.get(text.strip().lower() or self.type.value)
        if kind is None:
            raise InvalidSchema(
                f"a schema of type {self.type.value} has no definition{self.known}, "
                f"not {text:.50}"
            )
        super().__init__(text)
        self.kind = kind

    @cached_property
    def canonical(self) -> bytes:
        return self.fingerprint.encode()

    @cached_property
    def fingerprint(self) -> str:
        """See the base class; it is the type's name, if the kind is the default."""
        is_default = self.kind == self.kinds[self.type.value]
        return self.type.value if is_default else f"{self.type.value}/{self.kind}"

    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        assert isinstance(writer, PrimitiveSchema)
        if self.kind == writer.kind:
            return []
        text = f"the writer's numbers are {writer.kind}, the reader's {self.kind}"
        return [Incompatibility(path="/", rule="number_kind_changed", text=text)]

    def arrow_type(self) -> pa.DataType:
        return _ARROW_TYPES[self.kind]


class BytesSchema(PrimitiveSchema):
    """Payloads of arbitrary bytes."""

    type = SchemaType.BYTES
    kinds: ClassVar = {"bytes": "bytes"}

    def validator_in_process(self) -> Validate:
        return lambda _: []

    def decoder(self) -> Decoder:
        return list

    def encoder(self) -> Encoder:
        return partial(convert_each, convert=_checked_bytes)

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        assert isinstance(writer, BytesSchema)
        return lambda payloads: payloads


class StringSchema(PrimitiveSchema):
    """Payloads of UTF-8 text."""

    type = SchemaType.STRING
    kinds: ClassVar = {"string": "string"}

    def validator_in_process(self) -> Validate:
        return partial(find_bad_payloads, read=_read_text)

    def decoder(self) -> Decoder:
        return partial(convert_each, convert=_read_text)

    def encoder(self) -> Encoder:
        return partial(convert_each, convert=_encode_text)

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        assert isinstance(writer, StringSchema)

        def decode(payloads: pa.Array) -> pa.Array:
            try:
                return payloads.cast(pa.string())
            except pa.ArrowInvalid:
                values = [each or b"" for each in payloads.to_pylist()]
                refuse_bad_payloads(self.validator_in_process(), values)
                raise

        return decode


class NumberSchema(PrimitiveSchema):
    """Payloads that are an int64 or a float64."""

    type = SchemaType.NUMBER
    kinds: ClassVar = {
        "number": "int64",
        "int64": "int64",
        "int": "int64",
        "float64": "float64",
        "float": "float64",
        "double": "float64",
    }
    known = " but int64 or float64"

    def validator_in_process(self) -> Validate:

        def validate(payloads: Sequence[bytes]) -> list[tuple[int, str]]:
            return [
                (index, _wrong_length(payload))
                for index, payload in enumerate(payloads)
                if len(payload) not in (4, 8)
            ]

        return validate

    def decoder(self) -> Decoder:
        return partial(convert_each, convert=self._reader())

    def _reader(self) -> Callable[[bytes], Any]:
        short, long = _FORMATS[self.kind]

        def read(payload: bytes) -> Any:
            if len(payload) == 8:
                return long.unpack(payload)[0]
            if len(payload) == 4:
                return short.unpack(payload)[0]
            raise InvalidPayload(_wrong_length(payload))

        return read

    def encoder(self) -> Encoder:
        return partial(
            convert_each,
            convert=_FORMATS[self.kind][1].pack,
            refusals=struct.error,
            reason=lambda error, value: (
                f"{value!r:.50} is not a valid {self.kind}: {error}"
            ),
        )

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        """See the base class; an int64 may be read as a float64."""
        assert isinstance(writer, NumberSchema)
        if writer.kind == self.kind:
            return self._decode_column
        if writer.kind == "float64":
            raise IncompatibleSchema("a float64 cannot be read as an int64")
        decode_int64 = writer.column_decoder()

        def decode(payloads: pa.Array) -> pa.Array:
            return decode_int64(payloads).cast(pa.float64(), safe=False)

        return decode

    def _decode_column(self, payloads: pa.Array) -> pa.Array:
        lengths = pc.binary_length(payloads)
        if pc.all(pc.equal(lengths, 8)).as_py() and not payloads.null_count:
            # All payloads have the same width, so their data buffer is the column.
            begin = payloads.buffers()[1]
            first = struct.unpack_from("<i", begin, payloads.offset * 4)[0]
            data = payloads.buffers()[2]
            if data is not None:
                body = data.slice(first, 8 * len(payloads))
                return pa.Array.from_buffers(
                    self.arrow_type(), len(payloads), [None, body]
                )
        read = self._reader()
        values = convert_each(
            payloads.to_pylist(),
            lambda payload: None if payload is None else read(payload),
        )
        return pa.array(values, self.arrow_type())


_ARROW_TYPES = {
    "bytes": pa.binary(),
    "string": pa.string(),
    "int64": pa.int64(),
    "float64": pa.float64(),
}
_FORMATS = {
    "int64": (struct.Struct("<i"), struct.Struct("<q")),
    "float64": (struct.Struct("<f"), struct.Struct("<d")),
}


def _checked_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidPayload(f"{value!r:.50} is not bytes")
    return value


def _read_text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"not UTF-8 text: {error}") from error


def _encode_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise InvalidPayload(f"{value!r:.50} is not text")
    return value.encode()


def _wrong_length(payload: bytes) -> str:
    return f"a number has 8 bytes (or 4), not {len(payload)}"

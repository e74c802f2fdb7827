"""
The types without a definition: bytes, string and number.

A number is an int64 or a float64 of eight bytes, little-endian.  The definition says
which, ``int64`` (the default) or ``float64``.  The original's four bytes, an int32 or
float32, can be read too.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.errors import IncompatibleSchema, InvalidSchema
from pydanube.model.schemas import SchemaType
from pydanube.schemas.language import (
    ColumnDecoder,
    Decoder,
    Encoder,
    Incompatibility,
    Validate,
    invalid_payload,
)
from pydanube.schemas.parsed_schema import ParsedSchema

if TYPE_CHECKING:
    from collections.abc import Sequence


class BytesSchema(ParsedSchema):
    """Payloads of arbitrary bytes."""

    type = SchemaType.BYTES

    def __init__(self, text: str = "") -> None:
        _refuse_text("bytes", text, ("bytes",))
        super().__init__(text)

    @cached_property
    def canonical(self) -> bytes:
        return b"bytes"

    @cached_property
    def fingerprint(self) -> str:
        """See the base class; for a type without a definition it is the type's name."""
        return "bytes"

    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        assert isinstance(writer, BytesSchema)
        return []

    def validator_in_process(self) -> Validate:
        return lambda _: []

    def decoder(self) -> Decoder:
        return list

    def encoder(self) -> Encoder:

        def encode(values: Sequence[Any]) -> list[bytes]:
            for index, value in enumerate(values):
                if not isinstance(value, bytes):
                    raise invalid_payload(index, f"{value!r:.50} is not bytes")
            return list(values)

        return encode

    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        assert isinstance(writer, BytesSchema)
        return lambda payloads: payloads


class StringSchema(ParsedSchema):
    """Payloads of UTF-8 text."""

    type = SchemaType.STRING

    def __init__(self, text: str = "") -> None:
        _refuse_text("string", text, ("string",))
        super().__init__(text)

    @cached_property
    def canonical(self) -> bytes:
        return b"string"

    @cached_property
    def fingerprint(self) -> str:
        """See the base class; for a type without a definition it is the type's name."""
        return "string"

    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        assert isinstance(writer, StringSchema)
        return []

    def validator_in_process(self) -> Validate:

        def validate(payloads: Sequence[bytes]) -> list[tuple[int, str]]:
            bad = []
            for index, payload in enumerate(payloads):
                try:
                    payload.decode()
                except UnicodeDecodeError as error:
                    bad.append((index, f"not UTF-8 text: {error}"))
            return bad

        return validate

    def decoder(self) -> Decoder:

        def decode(payloads: Sequence[bytes]) -> list[Any]:
            values = []
            for index, payload in enumerate(payloads):
                try:
                    values.append(payload.decode())
                except UnicodeDecodeError as error:
                    raise invalid_payload(index, f"not UTF-8 text: {error}") from error
            return values

        return decode

    def encoder(self) -> Encoder:

        def encode(values: Sequence[Any]) -> list[bytes]:
            for index, value in enumerate(values):
                if not isinstance(value, str):
                    raise invalid_payload(index, f"{value!r:.50} is not text")
            return [value.encode() for value in values]

        return encode

    def arrow_type(self) -> pa.DataType:
        return pa.string()

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        assert isinstance(writer, StringSchema)

        def decode(payloads: pa.Array) -> pa.Array:
            try:
                return payloads.cast(pa.string())
            except pa.ArrowInvalid:
                _raise_first(self.validator_in_process(), payloads)
                raise

        return decode


class NumberSchema(ParsedSchema):
    """Payloads that are an int64 or a float64."""

    type = SchemaType.NUMBER

    def __init__(self, text: str = "") -> None:
        kind = text.strip().lower() or "int64"
        _refuse_text("number", text, _KINDS)
        super().__init__(text)
        self._kind = _KINDS[kind]

    @cached_property
    def canonical(self) -> bytes:
        return b"number" if self._kind == "int64" else b"number/float64"

    @cached_property
    def fingerprint(self) -> str:
        """See the base class; for integers, the default, it is the type's name."""
        return self.canonical.decode()

    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        assert isinstance(writer, NumberSchema)
        if self._kind == writer._kind:  # noqa: SLF001
            return []
        return [
            Incompatibility(
                path="/",
                rule="number_kind_changed",
                text=f"the writer's numbers are {writer._kind}, "  # noqa: SLF001
                f"the reader's {self._kind}",
            )
        ]

    def validator_in_process(self) -> Validate:

        def validate(payloads: Sequence[bytes]) -> list[tuple[int, str]]:
            return [
                (index, f"a number has 8 bytes (or 4), not {len(payload)}")
                for index, payload in enumerate(payloads)
                if len(payload) not in (4, 8)
            ]

        return validate

    def decoder(self) -> Decoder:
        short, long = _FORMATS[self._kind]

        def decode(payloads: Sequence[bytes]) -> list[Any]:
            values = []
            for index, payload in enumerate(payloads):
                if len(payload) == 8:
                    values.append(long.unpack(payload)[0])
                elif len(payload) == 4:
                    values.append(short.unpack(payload)[0])
                else:
                    raise invalid_payload(
                        index, f"a number has 8 bytes (or 4), not {len(payload)}"
                    )
            return values

        return decode

    def encoder(self) -> Encoder:
        pack = _FORMATS[self._kind][1].pack

        def encode(values: Sequence[Any]) -> list[bytes]:
            payloads = []
            for index, value in enumerate(values):
                try:
                    payloads.append(pack(value))
                except struct.error as error:
                    raise invalid_payload(
                        index, f"{value!r:.50} is not a valid {self._kind}: {error}"
                    ) from error
            return payloads

        return encode

    def arrow_type(self) -> pa.DataType:
        return pa.int64() if self._kind == "int64" else pa.float64()

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        """See the base class; an int64 may be read as a float64."""
        assert isinstance(writer, NumberSchema)
        if writer._kind == self._kind:  # noqa: SLF001
            return self._decode_column
        if writer._kind == "float64":  # noqa: SLF001
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
        values = payloads.to_pylist()
        present = [value for value in values if value is not None]
        decoded = iter(self.decoder()(present))
        return pa.array(
            [None if value is None else next(decoded) for value in values],
            self.arrow_type(),
        )


_KINDS = {
    "int64": "int64",
    "int": "int64",
    "number": "int64",
    "float64": "float64",
    "float": "float64",
    "double": "float64",
}
_FORMATS = {
    "int64": (struct.Struct("<i"), struct.Struct("<q")),
    "float64": (struct.Struct("<f"), struct.Struct("<d")),
}


def _refuse_text(name: str, text: str, known: Sequence[str] | dict[str, str]) -> None:
    if text.strip() and text.strip().lower() not in known:
        raise InvalidSchema(
            f"a schema of type {name} has no definition"
            + (f" but {' or '.join(('int64', 'float64'))}" if name == "number" else "")
            + f", not {text:.50}"
        )


def _raise_first(validate: Validate, payloads: pa.Array) -> None:
    values = [b"" if each is None else each for each in payloads.to_pylist()]
    for index, reason in validate(values):
        raise invalid_payload(index, reason)

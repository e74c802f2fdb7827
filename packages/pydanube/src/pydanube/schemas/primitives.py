"""
The types without a definition: bytes, string and number.

A number is an int64 or a float64 of eight bytes, little-endian.  The definition says
which, ``int64`` (the default) or ``float64``.  The original's four bytes, an int32 or
float32, can be read too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple

from pydanube.model.arrow import pa
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
)
from pydanube.schemas.parsed_schema import ParsedSchema


class _Kind(NamedTuple):
    """A kind of values; its functions raise InvalidPayload."""

    arrow_alias: str
    """The name of the type in Arrow, which need not be installed."""
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]

    def arrow_type(self) -> pa.DataType:
        return pa.type_for_alias(self.arrow_alias)


class PrimitiveSchema(ParsedSchema):
    """A schema of a type without a definition."""

    def __init__(self, type_: SchemaType, definition: bytes | str = "") -> None:
        """
        Create a schema of *type_*; *definition* is the kind of number.

        Raises:
            InvalidSchema: *definition* is not a definition of this type.
        """
        super().__init__(definition)
        self.type = type_
        kinds = _NAMES[type_]
        kind = kinds.get(self.text.strip().lower() or type_.value)
        if kind is None:
            known = " but int64 or float64" if type_ is SchemaType.NUMBER else ""
            raise InvalidSchema(
                f"a schema of type {type_.value} has no definition{known}, "
                f"not {self.text:.50}"
            )
        self.kind = kind
        self._is_default = kind == kinds[type_.value]

    @cached_property
    def canonical(self) -> bytes:
        return self.fingerprint.encode()

    @cached_property
    def fingerprint(self) -> str:
        """See the base class; it is the type's name, if the kind is the default."""
        return self.type.value if self._is_default else f"{self.type.value}/{self.kind}"

    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        assert isinstance(writer, PrimitiveSchema)
        text = f"the writer's numbers are {writer.kind}, the reader's {self.kind}"
        return [Incompatibility(path="/", rule="number_kind_changed", text=text)]

    def validator_in_process(self) -> Validate:
        if self.kind == "bytes":
            return lambda _: []
        return partial(find_bad_payloads, read=_KINDS[self.kind].read)

    def decoder(self) -> Decoder:
        if self.kind == "bytes":
            return list
        return partial(convert_each, convert=_KINDS[self.kind].read)

    def encoder(self) -> Encoder:
        return partial(convert_each, convert=_KINDS[self.kind].write)

    def arrow_type(self) -> pa.DataType:
        return _KINDS[self.kind].arrow_type()

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        """See the base class; an int64 may be read as a float64."""
        assert isinstance(writer, PrimitiveSchema)
        if writer.kind == self.kind:
            return self._decode_column
        if writer.kind == "float64":
            raise IncompatibleSchema("a float64 cannot be read as an int64")
        decode_int64 = writer.column_decoder()
        return lambda payloads: decode_int64(payloads).cast(pa.float64(), safe=False)

    def _decode_column(self, payloads: pa.Array) -> pa.Array:
        kind = _KINDS[self.kind]
        arrow_type, read = kind.arrow_type(), kind.read
        try:
            if self.type is not SchemaType.NUMBER:
                return payloads.cast(arrow_type)
            return payloads.cast(pa.binary(8)).view(arrow_type)
        except pa.ArrowInvalid:
            # Read the payloads one by one: some have four bytes, or one is invalid.
            values = convert_each(
                payloads.to_pylist(),
                lambda payload: None if payload is None else read(payload),
            )
            return pa.array(values, arrow_type)


def _check_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidPayload(f"{value!r:.50} is not bytes")
    return value


def _read_text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"not UTF-8 text: {error}") from error


def _write_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise InvalidPayload(f"{value!r:.50} is not text")
    return value.encode()


def _number(name: str, short: str, long: str) -> _Kind:
    """Return a kind of number from its formats in ``struct``."""
    pack, unpack = struct.Struct(long).pack, struct.Struct(long).unpack
    unpack_short = struct.Struct(short).unpack

    def read(payload: bytes) -> Any:
        if len(payload) == 8:
            return unpack(payload)[0]
        if len(payload) == 4:
            return unpack_short(payload)[0]
        raise InvalidPayload(f"a number has 8 bytes (or 4), not {len(payload)}")

    def write(value: Any) -> bytes:
        try:
            return pack(value)
        except struct.error as error:
            raise InvalidPayload(
                f"{value!r:.50} is not a valid {name}: {error}"
            ) from error

    return _Kind(name, read, write)


_KINDS = {
    "bytes": _Kind("binary", bytes, _check_bytes),
    "string": _Kind("string", _read_text, _write_text),
    "int64": _number("int64", "<i", "<q"),
    "float64": _number("float64", "<f", "<d"),
}
_NAMES = {
    SchemaType.BYTES: {"bytes": "bytes"},
    SchemaType.STRING: {"string": "string"},
    SchemaType.NUMBER: {
        "number": "int64",
        "int64": "int64",
        "int": "int64",
        "float64": "float64",
        "float": "float64",
        "double": "float64",
    },
}
"""The kind of values by definition; the default is under the type's name."""

"""
Protobuf: protoc parses schemas, the protobuf runtime decodes and encodes values.

A payload is the bytes of one message: the one that was chosen, or the first in the
definition.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from pydanube.model.errors import (
    IncompatibleSchema,
    InvalidPayload,
    InvalidSchema,
)
from pydanube.model.schemas import SchemaType
from pydanube.schemas.language import (
    PARTS_MAX,
    REASON_LENGTH_MAX,
    ColumnDecoder,
    Decoder,
    Encoder,
    Incompatibility,
    Validate,
    definition_text,
    invalid_payload,
    short_repr,
)
from pydanube.schemas.parsed_schema import ParsedSchema
from pydanube.schemas.protobuf.columns import arrow_type_of, extractor_of
from pydanube.schemas.protobuf.comparison import find_incompatibilities
from pydanube.schemas.protobuf.compiler import compile_proto

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.descriptor import Descriptor


class ProtobufSchema(ParsedSchema):
    """A message of a ``.proto`` definition."""

    type = SchemaType.PROTOBUF

    def __init__(self, definition: bytes | str, message: str | None = None) -> None:
        """
        Compile *definition*; *message* is a name in it, by default the first one.

        Raises:
            InvalidSchema: The compiler refuses it, or the message does not exist.
        """
        super().__init__(definition_text(definition))
        if "\0" in self.text:
            raise InvalidSchema("the Protobuf schema contains a zero byte")
        self._files = compile_proto(self.text)
        _check_size(self._files[-1])
        pool = descriptor_pool.DescriptorPool()
        for file in self._files:
            pool.Add(file)
        self.message: Descriptor = _find_message(pool, self._files[-1], message)
        """The descriptor of payloads."""

    @property
    def definition(self) -> tuple[str, str, str | None]:
        return self.type.value, self.text, self.message.full_name

    @cached_property
    def canonical(self) -> bytes:
        """See the base class: the descriptor of the file, and the message's name."""
        file = FileDescriptorProto()
        file.CopyFrom(self._files[-1])
        file.ClearField("source_code_info")
        name = self.message.full_name.encode()
        return name + b"\0" + file.SerializeToString(deterministic=True)

    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        assert isinstance(writer, ProtobufSchema)
        return find_incompatibilities(self.message, writer.message)

    def validator_in_process(self) -> Validate:
        read = self._reader()

        def validate(payloads: Sequence[bytes]) -> list[tuple[int, str]]:
            bad = []
            for index, payload in enumerate(payloads):
                try:
                    read(payload)
                except InvalidPayload as error:
                    bad.append((index, str(error)))
            return bad

        return validate

    def decoder(self) -> Decoder:
        """See the base class; a message becomes a dict with the names of its fields."""
        read = self._reader()
        extract = extractor_of(self.message, is_column=False)

        def decode(payloads: Sequence[bytes]) -> list[Any]:
            return _read_all(payloads, read, extract)

        return decode

    def encoder(self) -> Encoder:
        """See the base class; accepts messages of this name, and dicts."""
        cls = message_factory.GetMessageClass(self.message)
        name = self.message.full_name

        def encode_one(value: Any) -> bytes:
            if isinstance(value, Message):
                if value.DESCRIPTOR.full_name != name:
                    raise TypeError(
                        f"it is a {value.DESCRIPTOR.full_name}, not a {name}"
                    )
                return value.SerializeToString()
            return cls(**value).SerializeToString()

        def encode(values: Sequence[Any]) -> list[bytes]:
            payloads: list[bytes] = []
            try:
                for value in values:
                    payloads.append(encode_one(value))  # noqa: PERF401
            # The runtime raises arbitrary exceptions for values of users.
            except Exception as error:
                index = len(payloads)
                reason = f"{short_repr(values[index])} does not fit the schema: {error}"
                raise invalid_payload(index, reason) from error
            return payloads

        return encode

    def arrow_type(self) -> pa.DataType:
        return arrow_type_of(self.message)

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        """See the base class; fields are matched by number."""
        assert isinstance(writer, ProtobufSchema)
        for each in find_incompatibilities(self.message, writer.message):
            # The runtime skips fields of other types silently.
            if each.rule == "type_changed":
                raise IncompatibleSchema(str(each))
        written = None if writer.message is self.message else writer.message
        extract = extractor_of(self.message, is_column=True, written=written)
        read, arrow_type = self._reader(), self.arrow_type()

        def decode(payloads: pa.Array) -> pa.Array:
            values = _read_all(payloads.to_pylist(), read, extract)
            return pa.array(values, arrow_type)

        return decode

    def _reader(self) -> Callable[[bytes], Any]:
        """
        Return a decoder of one payload, which raises InvalidPayload with the reason.
        """
        parse = message_factory.GetMessageClass(self.message).FromString
        name = self.message.full_name

        def read(payload: bytes) -> Any:
            try:
                return parse(payload)
            except DecodeError as error:
                raise InvalidPayload(f"not a valid {name}: {error}") from error

        return read


# Values without a Python counterpart: text that is not UTF-8, times out of range, an
# Any of an unknown type, a Struct with an infinite number.
_REFUSALS = (
    InvalidPayload,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
    json_format.Error,
)


def _read_all(
    payloads: Sequence[bytes | None],
    read: Callable[[bytes], Any],
    extract: Callable[[Any], Any],
) -> list[Any]:
    values: list[Any] = []
    try:
        for payload in payloads:
            value = None if payload is None else extract(read(payload))
            values.append(value)
    except _REFUSALS as error:
        reason = str(error)[:REASON_LENGTH_MAX] or type(error).__name__
        raise invalid_payload(len(values), reason) from error
    return values


def _find_message(
    pool: descriptor_pool.DescriptorPool, file: FileDescriptorProto, name: str | None
) -> Descriptor:
    known = list(pool.FindFileByName(file.name).message_types_by_name.values())
    if not known:
        raise InvalidSchema("the Protobuf schema declares no message")
    if name is None:
        return known[0]
    for full_name in (name, f"{file.package}.{name}"):
        try:
            return pool.FindMessageTypeByName(full_name)
        except KeyError:
            pass
    raise InvalidSchema(
        f"the Protobuf schema has no message {name!r:.100}; it has "
        f"{', '.join(each.full_name for each in known[:10])}"
    )


def _check_size(file: FileDescriptorProto) -> None:
    parts = 0
    pending = [*file.message_type]
    while pending:
        message = pending.pop()
        parts += 1 + len(message.field)
        parts += sum(len(each.value) for each in message.enum_type)
        pending += message.nested_type
    if parts + sum(len(each.value) for each in file.enum_type) > PARTS_MAX:
        raise InvalidSchema(f"the schema has more than {PARTS_MAX} parts")

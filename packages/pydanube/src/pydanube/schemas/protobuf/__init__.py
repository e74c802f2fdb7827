"""
Protobuf: protoc parses schemas, the protobuf runtime decodes and encodes values.

A payload is the bytes of one message: the one that was chosen, or the first in the
definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from pydanube.model.arrow import pa
from pydanube.model.errors import (
    IncompatibleSchema,
    InvalidPayload,
    InvalidSchema,
)
from pydanube.model.schemas import SchemaType
from pydanube.schemas.language import (
    PARTS_MAX,
    Column,
    ColumnDecoder,
    Convert,
    Decoder,
    Encoder,
    Incompatibility,
    Validate,
    convert_each,
    does_not_fit,
    find_bad_payloads,
)
from pydanube.schemas.parsed_schema import ParsedSchema
from pydanube.schemas.protobuf.comparison import find_incompatibilities, find_reuses
from pydanube.schemas.protobuf.compiler import compile_proto
from pydanube.schemas.protobuf.values import plain_values_of

_WELL_KNOWN = "google/protobuf/"


class ProtobufSchema(ParsedSchema):
    """A message of a ``.proto`` definition."""

    type = SchemaType.PROTOBUF

    def __init__(self, definition: bytes | str, message: str | None = None) -> None:
        """
        Compile *definition*; *message* is a name in it, by default the first one.

        Raises:
            InvalidSchema: The compiler refuses it, or the message does not exist.
        """
        super().__init__(definition)
        if "\0" in self.text:
            raise InvalidSchema("the Protobuf schema contains a zero byte")
        self._files = compile_proto(self.text)
        own = [each for each in self._files if not each.name.startswith(_WELL_KNOWN)]
        _check_size(own)
        pool = descriptor_pool.DescriptorPool()
        for file in self._files:
            pool.Add(file)
        self.message: Descriptor = _find_message(pool, self._files[-1], message)
        """The descriptor of payloads."""
        if self.message.file.name == self._files[-1].name:
            self.message_path = tuple(_indexes_of(self.message))

    @property
    def definition(self) -> tuple[str, str, str | None]:
        return self.type.value, self.text, self.message.full_name

    @cached_property
    def canonical(self) -> bytes:
        """See the base class: the message's name, and the descriptors of the files."""
        found = [self.message.full_name.encode()]
        for each in reversed(self._files):
            if not each.name.startswith(_WELL_KNOWN):
                file = FileDescriptorProto()
                file.CopyFrom(each)
                file.ClearField("source_code_info")
                found.append(file.SerializeToString(deterministic=True))
        return b"\0".join(found)

    def incompatibilities_in_process(
        self, writer: ParsedSchema
    ) -> list[Incompatibility]:
        assert isinstance(writer, ProtobufSchema)
        return find_incompatibilities(self.message, writer.message)

    def reuses(self, older: ParsedSchema) -> list[Incompatibility]:
        if not isinstance(older, ProtobufSchema):
            return []
        return find_reuses(self.message, older.message)

    def validator_in_process(self) -> Validate:
        return partial(find_bad_payloads, read=self._reader())

    def decoder(self) -> Decoder:
        """See the base class; a message becomes a dict with the names of its fields."""
        return self._decoder(plain_values_of(self.message))

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

        # The runtime raises arbitrary exceptions for values of users.
        return partial(
            convert_each, convert=encode_one, refusals=Exception, reason=does_not_fit
        )

    def arrow_type(self) -> pa.DataType:
        return _column_of(self.message).type

    def _column_decoder(self, writer: ParsedSchema) -> ColumnDecoder:
        """See the base class; fields are matched by number."""
        assert isinstance(writer, ProtobufSchema)
        for each in find_incompatibilities(self.message, writer.message):
            # The runtime skips fields of other types silently.
            if each.rule == "type_changed":
                raise IncompatibleSchema(str(each))
        written = None if writer.message is self.message else writer.message
        arrow_type, convert = _column_of(self.message, written)
        assert convert is not None
        decode = self._decoder(convert)
        return lambda payloads: pa.array(decode(payloads.to_pylist()), arrow_type)

    def _decoder(
        self, convert: Convert
    ) -> Callable[[Sequence[bytes | None]], list[Any]]:
        """Return a decoder that converts the messages; nulls stay null."""
        read = self._reader()

        def decode_one(payload: bytes | None) -> Any:
            return None if payload is None else convert(read(payload))

        return partial(convert_each, convert=decode_one, refusals=_REFUSALS)

    def _reader(self) -> Callable[[bytes], Any]:
        """Return a decoder of one payload that raises InvalidPayload."""
        parse = message_factory.GetMessageClass(self.message).FromString
        name = self.message.full_name

        def read(payload: bytes) -> Any:
            try:
                return parse(payload)
            except DecodeError as error:
                raise InvalidPayload(f"not a valid {name}: {error}") from error

        return read


def _column_of(message: Descriptor, written: Descriptor | None = None) -> Column:
    # Only Arrow data needs Arrow.
    from pydanube.schemas.protobuf.columns import column_of  # noqa: PLC0415

    return column_of(message, written)


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


def _indexes_of(message: Descriptor) -> list[int]:
    """Return the index of a message, after those of the messages that contain it."""
    outer = message.containing_type
    if outer is None:
        names = list(message.file.message_types_by_name)
        return [names.index(message.name)]
    names = [each.name for each in outer.nested_types]
    return [*_indexes_of(outer), names.index(message.name)]


def _check_size(files: Iterable[FileDescriptorProto]) -> None:
    parts = 0
    pending: list[DescriptorProto] = []
    for file in files:
        pending += file.message_type
        parts += sum(len(each.value) for each in file.enum_type)
    while pending:
        message = pending.pop()
        parts += 1 + len(message.field)
        parts += sum(len(each.value) for each in message.enum_type)
        pending += message.nested_type
    if parts > PARTS_MAX:
        raise InvalidSchema(f"the schema has more than {PARTS_MAX} parts")

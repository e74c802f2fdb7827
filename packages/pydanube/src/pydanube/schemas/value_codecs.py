"""
Encoding and decoding of values of Python types.

The class of a reader may differ from that of the writer: a payload is decoded with the
schema that it was written with, and the fields are assigned by name.  Fields that the
class does not have are dropped, and fields that are missing get the defaults of the
class.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from pydanube.model.errors import InvalidPayload
from pydanube.model.schemas import SchemaType
from pydanube.schemas.class_schemas import inspect_type, is_protobuf, is_pydantic
from pydanube.schemas.language import (
    Convert,
    Decoder,
    Encoder,
    convert_each,
    does_not_fit,
)
from pydanube.schemas.parsed_schema import ParsedSchema

if TYPE_CHECKING:
    from pydanube.schemas.avro import AvroSchema

_AVRO_TYPES = (bytes, bytearray, memoryview, datetime, date, time, UUID, Decimal)
"""Types that the Avro encoder takes unchanged."""

_REFUSALS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""Errors that mean that a value does not fit; pydantic's errors are ValueErrors."""


def value_decoder(writer: ParsedSchema, cls: Any = None) -> Decoder:
    """
    Return a decoder of payloads written with *writer* into values of *cls*.

    Without a class, values are those of the language: numbers, text, lists, dicts.

    Raises:
        InvalidSchema: *cls* is not a type that values can be converted to.
    """
    if cls is None:
        return writer.decoder()
    if is_protobuf(cls):
        return protobuf_decoder(writer.type, cls)
    build: Convert
    if is_pydantic(cls):
        if writer.type is SchemaType.JSON_SCHEMA:
            return _one_by_one(cls.model_validate_json)
        build = cls.model_validate
    else:
        inspect_type(cls)
        if writer.type is SchemaType.JSON_SCHEMA:
            return _one_by_one(msgspec.json.Decoder(cls).decode)

        def build(value: Any) -> Any:
            return msgspec.convert(value, cls)

    decode_plain, build_all = writer.decoder(), _one_by_one(build)

    def decode(payloads: Sequence[bytes]) -> list[Any]:
        return build_all(decode_plain(payloads))

    return decode


def value_encoder(schema: ParsedSchema, cls: Any = None) -> Encoder:
    """
    Return an encoder of values of *cls*, or of plain values, for *schema*.

    Values that do not match the schema are refused.
    """
    if schema.type is SchemaType.AVRO:
        return _avro_encoder(schema, cls)
    encode_plain = schema.encoder()
    if is_pydantic(cls) and schema.type is SchemaType.JSON_SCHEMA:
        return _prepared(
            encode_plain,
            lambda value: msgspec.Raw(value.model_dump_json(by_alias=True)),
        )
    if is_pydantic(cls):
        return _prepared(encode_plain, lambda value: value.model_dump(by_alias=True))
    return encode_plain


def json_value_encoder(schema: ParsedSchema) -> Encoder:
    """
    Return an encoder of values that were JSON, for *schema*.

    In Avro, texts and numbers are also values of types that JSON does not have: times,
    decimals and bytes.
    """
    if schema.type is SchemaType.AVRO:
        return _prepared(_avro_of(schema).value_encoder(takes_json=True), _to_builtins)
    return schema.encoder()


def _avro_encoder(schema: ParsedSchema, cls: Any) -> Encoder:
    avro = _avro_of(schema)
    if is_pydantic(cls):
        return _prepared(
            avro.value_encoder(writes_texts=True),
            lambda value: value.model_dump(by_alias=True),
        )
    if cls is None:
        return _prepared(avro.value_encoder(), _to_builtins)
    return _prepared(
        avro.value_encoder(writes_texts=True),
        # A class has text for durations and decimals, and reads it again.
        partial(msgspec.to_builtins, builtin_types=_AVRO_TYPES),
    )


_to_builtins = partial(msgspec.to_builtins, builtin_types=(*_AVRO_TYPES, timedelta))


def _avro_of(schema: ParsedSchema) -> AvroSchema:
    from pydanube.schemas.avro import AvroSchema  # noqa: PLC0415  # As needed.

    assert isinstance(schema, AvroSchema)
    return schema


def protobuf_decoder(written_as: SchemaType, cls: Any) -> Decoder:
    """Return a decoder into messages of *cls*, a class from the Protobuf compiler."""
    # A caller with such a class has the Protobuf runtime; others may lack it.
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    def decode(payloads: Sequence[bytes]) -> list[Any]:
        if written_as is not SchemaType.PROTOBUF:
            raise InvalidPayload(
                f"written as {written_as.value}, which is not the Protobuf message "
                f"{cls.DESCRIPTOR.full_name}"
            )
        return convert_each(payloads, cls.FromString, DecodeError)

    return decode


def _one_by_one(decode_one: Convert) -> Decoder:
    return partial(convert_each, convert=decode_one, refusals=_REFUSALS)


def _prepared(encode_plain: Encoder, prepare: Convert) -> Encoder:
    refusals = (*_REFUSALS, AttributeError)

    def encode(values: Sequence[Any]) -> list[bytes]:
        return encode_plain(convert_each(values, prepare, refusals, does_not_fit))

    return encode

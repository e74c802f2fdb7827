"""
Encoding of Arrow columns of values into columns of payloads, for Spark.

Arrow's kernels write JSON, text, bytes and numbers, a whole column at a time.  Avro and
Protobuf are encoded value by value.  Values that do not match the schema are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.arrow import pc
from pydanube.model.errors import InvalidRequest
from pydanube.model.schemas import SchemaType
from pydanube.schemas.json_schema import JsonSchema
from pydanube.schemas.json_schema.column_writer import (
    check_writable,
    required_names,
    write_texts,
)
from pydanube.schemas.language import (
    Convert,
    convert_fields,
    convert_items,
    refuse_bad_payloads,
)
from pydanube.schemas.parsed_schema import ParsedSchema

ColumnEncoder = Callable[[Any], Any]
"""
Encodes a column of values as a column of payloads; nulls stay null.

Raises InvalidPayload for the first invalid value.
"""

PROVEN_MAX = 64
"""The number of column shapes that are remembered to always match the schema."""


def column_encoder(schema: ParsedSchema | None, actual: pa.DataType) -> ColumnEncoder:
    """
    Return the encoder for columns of the type *actual*.

    Without a *schema*, text and bytes are payloads already, and all other types are
    written as JSON.

    Raises:
        InvalidRequest: Columns of the type cannot match the schema; the message has the
            place and the reason.
    """
    if schema is None:
        if _is_text(actual):
            return _to_binary
        check_writable(actual)
        return lambda array: _to_binary(write_texts(array)[0])
    match schema.type:
        case SchemaType.BYTES | SchemaType.STRING:
            if actual == schema.arrow_type():
                return _to_binary
            raise InvalidRequest(
                f"value is {actual}, and the schema is {schema.type.value}"
            )
        case SchemaType.NUMBER:
            return _number_encoder(schema.arrow_type(), actual)
        case SchemaType.JSON_SCHEMA:
            assert isinstance(schema, JsonSchema)
            return _json_encoder(schema, actual)
        case _:
            return _one_by_one(schema, actual)


def _number_encoder(expected: pa.DataType, actual: pa.DataType) -> ColumnEncoder:
    is_safe = types.is_integer(actual) or actual == expected
    if not (is_safe or types.is_floating(actual)) or (
        types.is_integer(expected) and not types.is_integer(actual)
    ):
        raise InvalidRequest(
            f"value is {actual}, and the schema is a number, {expected}"
        )
    return partial(_number_payloads, expected)


def _number_payloads(expected: pa.DataType, array: pa.Array) -> pa.Array:
    numbers = array.cast(expected, safe=types.is_integer(expected))
    # A number is 8 bytes, little-endian, as in the column.
    return numbers.view(pa.binary(8)).cast(pa.binary())


def _json_encoder(schema: JsonSchema, actual: pa.DataType) -> ColumnEncoder:
    check_writable(actual)
    if types.is_struct(actual):
        missing = sorted(
            required_names(schema.document) - {field.name for field in actual}
        )
        if missing:
            raise InvalidRequest(
                f"value.{missing[0]} is missing, which the schema requires; value has "
                f"{', '.join(field.name for field in actual) or 'no fields'}"
            )
    validate = schema.validator()
    proven: dict[str, bool] = {}

    def encode(array: pa.Array) -> pa.Array:
        texts, written = write_texts(
            array, schema.document, schema.document, ignored_nulls=array.null_count
        )
        payloads = _to_binary(texts)
        if not _is_proven(schema, written, proven):
            present = payloads.drop_null() if payloads.null_count else payloads
            refuse_bad_payloads(validate, present.to_pylist())
        return payloads

    return encode


def _is_proven(schema: JsonSchema, written: Any, proven: dict[str, bool]) -> bool:
    """Return whether *schema* contains the schema *written*."""
    key = str(written)
    if key not in proven:
        if len(proven) >= PROVEN_MAX:
            proven.clear()
        writer = JsonSchema(msgspec.json.encode(written))
        proven[key] = not schema.incompatibilities(writer)
    return proven[key]


def _one_by_one(schema: ParsedSchema, actual: pa.DataType) -> ColumnEncoder:
    _check_fields(actual, schema.arrow_type())
    encode, convert = schema.encoder(), _converter_of(actual)

    def encode_column(array: pa.Array) -> pa.Array:
        present = array.drop_null() if array.null_count else array
        values = present.to_pylist()
        if convert is not None:
            values = convert_items(convert, values)
        payloads = pa.array(encode(values), pa.binary())
        if not array.null_count:
            return payloads
        return pc.replace_with_mask(
            pa.nulls(len(array), pa.binary()), array.is_valid(), payloads
        )

    return encode_column


def _check_fields(
    actual: pa.DataType, expected: pa.DataType, path: str = "value"
) -> None:
    """Refuse fields that the schema does not have, because they would be lost."""
    if types.is_struct(expected) and not types.is_struct(actual):
        raise InvalidRequest(f"{path} is {actual}, and the schema is a record")
    if types.is_struct(actual) and types.is_struct(expected):
        names = [field.name for field in expected]
        for field in actual:
            if field.name not in names:
                raise InvalidRequest(
                    f"the schema has no {path}.{field.name}; it has "
                    f"{', '.join(names) or 'no fields'}"
                )
            inner = expected.field(names.index(field.name)).type
            _check_fields(field.type, inner, f"{path}.{field.name}")
    elif types.is_list(actual) and types.is_list(expected):
        _check_fields(actual.value_type, expected.value_type, f"{path}[]")


def _converter_of(actual: pa.DataType) -> Convert | None:
    """Return a function that converts maps in values to dicts; None without maps."""
    if types.is_struct(actual):
        converters = {field.name: _converter_of(field.type) for field in actual}
        needed = {
            name: convert for name, convert in converters.items() if convert is not None
        }
        return partial(convert_fields, needed) if needed else None
    if types.is_list(actual):
        inner = _converter_of(actual.value_type)
        return None if inner is None else partial(convert_items, inner)
    if types.is_map(actual):
        return partial(_convert_map, _converter_of(actual.item_type))
    return None


def _convert_map(convert: Convert | None, value: Any) -> dict[Any, Any]:
    if convert is None:
        return dict(value)
    return {key: None if inner is None else convert(inner) for key, inner in value}


def _is_text(actual: pa.DataType) -> bool:
    return bool(types.is_string(actual) or types.is_binary(actual))


def _to_binary(array: pa.Array) -> pa.Array:
    return array.cast(pa.binary())

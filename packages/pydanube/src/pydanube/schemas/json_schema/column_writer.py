"""
Writing columns of values as JSON with Arrow's kernels, a whole column at a time.

Nulls are left out of their object, unless the schema requires the property: then they
are written as ``null``, which the schema may allow or not.  Times are RFC 3339 in UTC,
bytes are base64.  The texts are described as a JSON Schema: if the topic's schema
contains it, the texts need no validation.
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.arrow import pc
from pydanube.model.errors import InvalidPayload, InvalidRequest
from pydanube.schemas.json_schema.columns import single_type

_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_RARE_CONTROLS = [chr(code) for code in range(0x20) if chr(code) not in "\n\r\t"]
_UNUSUAL = r'["\\\x00-\x1f]'
_RARE = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"


def check_writable(actual: pa.DataType, path: str = "value") -> None:
    """
    Refuse types that JSON cannot represent.

    Raises:
        InvalidRequest: There is such a type; the message has its place.
    """
    if types.is_struct(actual):
        for field in actual:
            check_writable(field.type, f"{path}.{field.name}")
    elif types.is_list(actual):
        check_writable(actual.value_type, f"{path}[]")
    elif types.is_map(actual):
        if not types.is_string(actual.key_type):
            raise InvalidRequest(
                f"{path} is a map with keys of type {actual.key_type}, but names in a "
                "JSON object are text; cast them to string"
            )
        check_writable(actual.item_type, f"{path}{{}}")
    elif scalar_schema(actual) is None:
        raise InvalidRequest(
            f"{path} is {actual}, which JSON cannot represent; cast it to string"
        )


def write_texts(
    array: pa.Array, schema: Any = None, document: Any = None, *, ignored_nulls: int = 0
) -> tuple[pa.Array, Any]:
    """
    Return the JSON text of each value, and a JSON Schema that all texts match.

    Nulls stay null, and the schema allows null if there are more than *ignored_nulls*.
    *schema*, a part of *document*, says which properties are required.

    Raises:
        InvalidPayload: A number is infinite or not a number.
    """
    actual = array.type
    if types.is_struct(actual):
        texts, written = _write_objects(array, schema, document)
    elif types.is_list(actual):
        array = _from_zero(array)
        items = _part_of(schema, document, "array", "items")
        inner, written = write_texts(array.values, items, document)
        texts = _joined(array, pc.fill_null(inner, "null"), "[", "]")
        written = {"type": "array", "items": written}
    elif types.is_map(actual):
        array = _from_zero(array)
        values = _part_of(schema, document, "object", "additionalProperties")
        inner, written = write_texts(array.items, values, document)
        entries = pc.binary_join_element_wise(
            quote(array.keys), pc.fill_null(inner, "null"), ":"
        )
        texts = _joined(array, entries, "{", "}")
        written = {"type": "object", "additionalProperties": written}
    else:
        texts, written = scalar_texts(array), scalar_schema(actual)
    if array.null_count > ignored_nulls and not types.is_null(actual):
        written = {"anyOf": [written, {"type": "null"}]}
    return texts, written


def required_names(document: Any) -> set[str]:
    """Return the properties that *document* requires."""
    return set(_part_of(document, document, "object", "required") or ())


def _write_objects(array: pa.Array, schema: Any, document: Any) -> tuple[pa.Array, Any]:
    properties = _part_of(schema, document, "object", "properties") or {}
    required = _part_of(schema, document, "object", "required") or ()
    # Each column has a null where the whole object is null.
    nulls = array.null_count
    parts, written, always = [], {}, []
    for field, column in zip(array.type, array.flatten(), strict=True):
        is_required = field.name in required
        text, written[field.name] = write_texts(
            column,
            properties.get(field.name),
            document,
            # Other nulls are left out.
            ignored_nulls=nulls if is_required else column.null_count,
        )
        if is_required:
            text = pc.fill_null(text, "null")
        if is_required or column.null_count == nulls:
            always.append(field.name)
        name = "," + quote(pa.array([field.name]))[0].as_py() + ":"
        part = pc.binary_join_element_wise(name, text, "")
        parts.append(pc.fill_null(part, ""))
    if parts:
        inner = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*parts, ""), 1)
        texts = pc.binary_join_element_wise("{", inner, "}", "")
    else:
        texts = pa.array(["{}"] * len(array), pa.string())
    return _masked(array, texts), {
        "type": "object",
        "properties": written,
        "required": always,
        "additionalProperties": False,
    }


def scalar_texts(array: pa.Array) -> pa.Array:
    """Return the JSON text of each value; nulls stay null."""
    actual = array.type
    if types.is_string(actual):
        return quote(array)
    if types.is_binary(actual):
        encoded = [
            None if each is None else base64.b64encode(each).decode()
            for each in array.to_pylist()
        ]
        return _between_quotes(pa.array(encoded, pa.string()))
    if types.is_timestamp(actual):
        # The instant in UTC, whatever the time zone of the column.
        text = array.cast(pa.timestamp(actual.unit)).cast(pa.string())
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
        if actual.tz is not None:
            text = pc.binary_join_element_wise(text, "Z", "")
        return _between_quotes(text)
    if types.is_date(actual):
        return _between_quotes(array.cast(pa.string()))
    if types.is_floating(actual):
        at = pc.index(pc.is_finite(array), value=False).as_py()
        if at >= 0:
            raise InvalidPayload(f"{array[at]} is not a number in JSON")
    return array.cast(pa.string())


def scalar_schema(actual: pa.DataType) -> Any:
    """Return the schema of texts of *actual*; None if JSON cannot represent it."""
    if types.is_null(actual):
        return {"type": "null"}
    if types.is_boolean(actual):
        return {"type": "boolean"}
    if types.is_integer(actual):
        return {"type": "integer"}
    if types.is_floating(actual) or types.is_decimal(actual):
        return {"type": "number"}
    if types.is_date(actual):
        return {"type": "string", "format": "date"}
    if types.is_timestamp(actual) and actual.tz is not None:
        return {"type": "string", "format": "date-time"}
    if types.is_timestamp(actual) or types.is_string(actual) or types.is_binary(actual):
        return {"type": "string"}
    return None


def _part_of(schema: Any, document: Any, type_: str, keyword: str) -> Any:
    """Return the value of *keyword* if *schema* is one of *type_*, or None."""
    name, found = single_type(schema, document)
    return found.get(keyword) if name == type_ else None


def quote(texts: pa.Array) -> pa.Array:
    """Return *texts* as JSON strings; nulls stay null."""
    if pc.any(pc.match_substring_regex(texts, _UNUSUAL)).as_py():
        for raw, escaped in _ESCAPES:
            texts = pc.replace_substring(texts, raw, escaped)
        if pc.any(pc.match_substring_regex(texts, _RARE)).as_py():
            for control in _RARE_CONTROLS:
                texts = pc.replace_substring(texts, control, f"\\u{ord(control):04x}")
    return _between_quotes(texts)


def _between_quotes(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _joined(array: pa.Array, texts: pa.Array, begin: str, end: str) -> pa.Array:
    """Join the *texts* of each list in *array*, with commas; nulls stay null."""
    lists = pa.ListArray.from_arrays(array.offsets, texts)
    joined = pc.binary_join_element_wise(begin, pc.binary_join(lists, ","), end, "")
    return _masked(array, joined)


def _masked(array: pa.Array, texts: pa.Array) -> pa.Array:
    if not array.null_count:
        return texts
    return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), texts)


def _from_zero(array: pa.Array) -> pa.Array:
    """Return *array* with offsets that count from the beginning of its values."""
    return array.take(pa.array(range(len(array)), pa.int64()))

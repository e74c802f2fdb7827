"""The number of steps for any schema and any datum of Avro is bounded."""

from __future__ import annotations

import json

import pytest

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.schemas.avro import AvroSchema
from pydanube.schemas.avro.bounds import (
    DECIMAL_BYTES_MAX,
    EMPTY_VALUES_MAX,
    PARTS_PER_BYTE_MAX,
    VALUE_DEPTH_MAX,
    VALUES_MAX,
    check_datum,
)
from support.drivers.limited import run_limited


def schema_of(declared):
    return AvroSchema(json.dumps(declared))


def record_of(name, **fields):
    """Return a record with fields of these types."""
    fields = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return {"type": "record", "name": name, "fields": fields}


def long_of(number):
    """Return an integer in the encoding of Avro."""
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def reason_of(schema, payload):
    """Return why the validator refuses *payload*, which the decoder must refuse too."""
    [(_, reason)] = schema.validator()([payload])
    with pytest.raises(InvalidPayload):
        schema.decoder()([payload])
    with pytest.raises(InvalidPayload):
        schema.decoder()([b"", payload])
    return reason


LINKED_LIST = schema_of(record_of("R", next=["null", "R"]))
NESTED = schema_of({"type": "array", "items": {"type": "array", "items": "null"}})


@pytest.mark.parametrize(
    "endless",
    [
        record_of("R", n="R"),
        record_of("R", n=["R"]),
        record_of("R", n=record_of("S", r=["R", "S"])),
        record_of("R", n=record_of("S", r="R")),
    ],
)
def test_a_record_without_a_finite_value_is_refused(endless):
    with pytest.raises(InvalidSchema, match="none is finite"):
        schema_of(endless)


@pytest.mark.parametrize(
    "finite",
    [
        record_of("R", n=["null", "R"]),
        record_of("R", n={"type": "array", "items": "R"}),
        record_of("R", n={"type": "map", "values": "R"}),
        record_of("R", n=["R", record_of("S", r=["null", "R"])]),
    ],
)
def test_a_record_that_may_contain_itself_is_a_schema(finite):
    assert schema_of(finite).bounds.is_recursive


@pytest.mark.parametrize("count", [VALUE_DEPTH_MAX, 5000, 1_000_000])
def test_a_datum_that_nests_too_deep_is_refused(count):
    assert f"deeper than {VALUE_DEPTH_MAX}" in reason_of(LINKED_LIST, b"\x02" * count)


def test_a_datum_of_the_maximum_depth_is_decoded():
    depth = VALUE_DEPTH_MAX - 1
    payload = b"\x02" * depth + b"\x00"
    assert LINKED_LIST.validator()([payload]) == []
    [value] = LINKED_LIST.decoder()([payload])
    assert LINKED_LIST.encoder()([value]) == [payload]
    assert str(value).count("next") == depth + 1


def test_a_value_that_nests_too_deep_is_not_encoded():
    value = None
    for _ in range(100_000):
        value = {"next": value}
    with pytest.raises(InvalidPayload, match=f"deeper than {VALUE_DEPTH_MAX}"):
        LINKED_LIST.encoder()([value])


def test_types_that_nest_too_deep_by_name_are_refused():
    fields = {"f0": record_of("R0", x="int")}
    for number in range(1, VALUE_DEPTH_MAX + 1):
        fields[f"f{number}"] = record_of(f"R{number}", x=f"R{number - 1}", y="int")
    with pytest.raises(InvalidSchema, match=f"nest deeper than {VALUE_DEPTH_MAX}"):
        schema_of(record_of("Outer", **fields))


def test_records_that_double_without_bytes_are_refused():
    inner = "null"
    for number in range(40):
        again = f"R{number - 1}" if number else "null"
        inner = record_of(f"R{number}", a=inner, b=again)
    with pytest.raises(InvalidSchema, match=f"at most {PARTS_PER_BYTE_MAX}"):
        schema_of(inner)


@pytest.mark.parametrize("count", [EMPTY_VALUES_MAX + 1, 2**31, 2**62, -(2**62)])
@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        record_of("E"),
        record_of("N", a="null", b=record_of("M", c="null")),
    ],
)
def test_an_array_of_too_many_items_without_bytes_is_refused(items, count):
    schema = schema_of({"type": "array", "items": items})
    size = b"\x00" if count < 0 else b""
    reason = reason_of(schema, long_of(count) + size + b"\x00")
    assert "items that take no bytes" in reason


def test_items_without_bytes_are_counted_over_all_arrays_of_a_datum():
    block = long_of(1000) + b"\x00"
    payload = long_of(100) + block * 100 + b"\x00"
    assert "items that take no bytes" in reason_of(NESTED, payload)


def test_an_array_of_some_items_without_bytes_is_decoded():
    count = EMPTY_VALUES_MAX
    [value] = NESTED.decoder()([long_of(1) + long_of(count) + b"\x00\x00"])
    assert value == [[None] * count]


@pytest.mark.parametrize("kind", ["items", "values"])
def test_a_block_of_more_items_than_bytes_is_refused(kind):
    type_ = {"items": "array", "values": "map"}[kind]
    schema = schema_of(record_of("R", a={"type": type_, kind: ["null", "R"]}))
    assert "more than the remaining bytes" in reason_of(
        schema, long_of(2**40) + b"\x00" * 9
    )


def test_a_long_decimal_is_refused():
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    size = 8 * 1024 * 1024
    reason = reason_of(schema_of(decimal), long_of(size) + b"\x7f" * size)
    assert f"at most {DECIMAL_BYTES_MAX}" in reason


@pytest.mark.parametrize(
    "wrong",
    [{"precision": 9, "scale": []}, {"precision": 9, "scale": 10}, {}],
)
def test_a_wrong_decimal_is_decoded_as_bytes(wrong):
    declared = {"type": "bytes", "logicalType": "decimal"} | wrong
    schema = schema_of(record_of("R", a=declared))
    size = 100_000
    value = {"a": b"\x7f" * size}
    assert schema.decoder()([long_of(size) + value["a"]]) == [value]


@pytest.mark.parametrize(
    "declared",
    [
        {"type": "bytes", "logicalType": "decimal", "precision": 10**9},
        {
            "type": "fixed",
            "name": "F",
            "size": 10**6,
            "logicalType": "decimal",
            "precision": 9,
        },
        record_of("R" * 1000, a="int"),
        {"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(10_001)]},
    ],
)
def test_absurd_precisions_names_and_enums_are_refused(declared):
    with pytest.raises(InvalidSchema):
        schema_of(declared)


def test_checking_a_default_takes_a_bounded_number_of_steps():
    type_, default = "null", "no null"
    for number in range(18):
        left = record_of(f"A{number}", a=type_)
        right = record_of(f"B{number}", a=_named(type_))
        type_, default = [left, right], {"a": default}
    field = {"name": "f", "type": type_, "default": default}
    with pytest.raises(InvalidSchema, match="steps"):
        schema_of({"type": "record", "name": "R", "fields": [field]})


def _named(type_):
    """Return the same type, with records referred to by name."""
    return type_ if isinstance(type_, str) else [each["name"] for each in type_]


def test_a_datum_with_too_many_values_is_refused():
    schema = schema_of({"type": "array", "items": "boolean"})
    payload = long_of(VALUES_MAX) + b"\x00" * (VALUES_MAX + 1)
    with pytest.raises(InvalidPayload, match=f"more than {VALUES_MAX}"):
        check_datum(payload, schema.root)


def test_datum_of_a_non_recursive_schema_needs_no_walk():
    schema = schema_of(record_of("R", a="int", b={"type": "array", "items": "string"}))
    assert schema.bounds.walked_bytes_min > 1024 * 1024
    assert schema.bounds.steps_per_byte == 2


@pytest.mark.slow
def test_the_worst_payloads_take_256_mib_and_few_seconds():
    run_limited(
        """
        import json
        from pydanube.model.errors import InvalidPayload
        from pydanube.schemas.avro import AvroSchema

        def record(name, *types):
            fields = [{"name": f"f{n}", "type": t} for n, t in enumerate(types)]
            return {"type": "record", "name": name, "fields": fields}

        def refused(declared, payload):
            schema = AvroSchema(json.dumps(declared))
            assert schema.validator()([payload])
            try:
                schema.decoder()([payload])
            except InvalidPayload:
                return
            raise AssertionError(declared)

        refused(record("R", ["null", "R"]), b"\\x02" * 8_000_000)
        refused(record("R", {"type": "array", "items": "R"}), b"\\x02" * 1_000_000)
        refused({"type": "array", "items": "null"}, b"\\xfe\\xff\\xff\\xff\\x0f\\x00")
        arrays = {"type": "array", "items": {"type": "array", "items": "null"}}
        refused(arrays, b"\\x80\\x80\\x02" + b"\\x80\\x80\\x02\\x00" * 60_000)
        decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9}
        refused(decimal, b"\\x80\\x80\\x80\\x08" + b"\\x7f" * 8_388_608)
        """,
        memory_mib=350 + 256,
        cpu_s=15,
    )

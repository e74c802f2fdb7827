"""Avro: the specification's rules for declaration, resolution and encoding."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest

from pydanube.model.errors import InvalidPayload, InvalidSchema
from pydanube.schemas.avro import AvroSchema
from pydanube.schemas.avro.resolution import STEPS_MAX
from support.fakes.corpora import pairs_of
from support.fakes.hostile_schemas import record_of

PAIRS = pairs_of("avro")


def schema_of(declared):
    """Return the schema that *declared* abbreviates in the corpus."""
    if isinstance(declared, dict) and "type" not in declared:
        declared = {"type": "record", "name": "R", **declared}
    return AvroSchema(json.dumps(declared))


ORDER = schema_of(
    {
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "who", "type": "string"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ]
    }
)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_corpus_of_resolution(pair):
    old, new = schema_of(pair.old), schema_of(pair.new)
    for reader, writer, expected in (
        (new, old, pair.backward),
        (old, new, pair.forward),
    ):
        rules = [each.rule for each in reader.incompatibilities(writer)]
        if expected == "ok":
            assert rules == []
        else:
            assert expected in rules


def test_corpus_is_large_enough():
    assert len(PAIRS) >= 60
    assert len({pair.what for pair in PAIRS}) == len(PAIRS)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_schema_can_read_its_own_data(pair):
    for declared in (pair.old, pair.new):
        schema = schema_of(declared)
        assert schema.incompatibilities(schema_of(declared)) == []


@pytest.mark.parametrize(
    "pair", [each for each in PAIRS if each.backward == "ok"], ids=str
)
def test_fastavro_reads_data_that_resolution_allows(pair):
    """fastavro's own implementation of resolution comes to the same result."""
    old, new = schema_of(pair.old), schema_of(pair.new)
    value = _some_value(old.root)
    if value is _NOTHING:
        return
    sink = BytesIO()
    written = fastavro.parse_schema(json.loads(old.text))
    fastavro.schemaless_writer(sink, written, value)
    sink.seek(0)
    fastavro.schemaless_reader(
        sink, written, fastavro.parse_schema(json.loads(new.text))
    )


def test_an_incompatibility_names_the_path_and_the_rule():
    old = schema_of({"fields": [{"name": "a", "type": _record("S", [])}]})
    fields = [{"name": "z", "type": "int"}]
    new = schema_of({"fields": [{"name": "a", "type": _record("S", fields)}]})
    [found] = new.incompatibilities(old)
    assert found.path == "/fields/a/fields/z"
    assert found.rule == "reader_field_missing_default"
    assert "z" in found.text


def test_result_based_on_a_wrong_assumption_is_dropped():
    """S is readable only if R is; R turns out unreadable after S was compared."""

    def holder(leaf):
        inner = _record("S", [{"name": "r", "type": "R"}])
        return schema_of(
            {
                "fields": [
                    {"name": "first", "type": ["null", inner]},
                    {"name": "leaf", "type": leaf},
                    {"name": "again", "type": ["null", "S"]},
                ]
            }
        )

    reader = AvroSchema(json.dumps(["null", json.loads(holder("int").text)]))
    found = reader.incompatibilities(holder("string"))
    assert {each.rule for each in found} >= {"reader_union_lacks_branch"}


@pytest.mark.slow
def test_comparison_of_huge_schemas_ends():
    def monster(leaf):
        # Each of 12 records may contain any of them, in unions.
        names = [f"M{index}" for index in range(12)]
        inner = leaf
        for name in reversed(names):
            fields = [{"name": "v", "type": inner}] + [
                {"name": f"f{index}", "type": ["null", name], "default": None}
                for index in range(12)
            ]
            inner = _record(name, fields)
        return AvroSchema(json.dumps(inner))

    found = monster("int").incompatibilities(monster("string"))
    assert found
    assert len(found) < STEPS_MAX * 10


def test_comparison_of_long_cycles_is_given_up():
    def cycle(length):
        """A record inside itself, after *length* others of the same last name."""
        inner = "n0.R"
        for number in reversed(range(length)):
            fields = [{"name": "next", "type": ["null", inner]}]
            inner = _record(f"n{number}.R", fields)
        return AvroSchema(json.dumps(inner))

    # They have 30 * 29 pairs of records, each inside the one before.
    [found] = cycle(30).incompatibilities(cycle(29))
    assert found.rule == "too_complex"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("12", "a type must be a name"),
        ('"integer"', "unknown type"),
        ("{}", "the object has no type"),
        ('{"type":"record","fields":[]}', "without a name"),
        ('{"type":"record","name":"R"}', "no list of fields"),
        ('{"type":"record","name":"R","fields":[1]}', "not an object with a name"),
        ('{"type":"record","name":"R","fields":[{"name":"a"}]}', "has no type"),
        (
            (
                '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},'
                '{"name":"a","type":"int"}]}'
            ),
            "twice",
        ),
        ('{"type":"record","name":"1R","fields":[]}', "is not a valid name"),
        ('{"type":"enum","name":"E"}', "list of different symbols"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "different symbols"),
        ('{"type":"enum","name":"E","symbols":["A-B"]}', "is not a valid name"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "not a symbol"),
        ('{"type":"fixed","name":"F"}', "needs a size"),
        ('{"type":"fixed","name":"F","size":-1}', "needs a size"),
        ('{"type":"array"}', "without items"),
        ('{"type":"map"}', "without values"),
        ('["int",["null"]]', "directly inside a union"),
        ('["int","int"]', "twice"),
        ('[{"type":"array","items":"int"},{"type":"array","items":"long"}]', "twice"),
        (
            (
                '{"type":"record","name":"R","fields":[{"name":"a","type":"int",'
                '"default":"x"}]}'
            ),
            "default does not match",
        ),
        (
            (
                '{"type":"record","name":"R","fields":[{"name":"a","type":'
                '{"type":"record","name":"R","fields":[]}}]}'
            ),
            "declared twice",
        ),
        ('{"type":"record","name":"R","fields":[],"aliases":"x"}', "list of names"),
    ],
)
def test_violation_of_the_specification_is_refused_with_the_reason(text, words):
    with pytest.raises(InvalidSchema, match=words):
        AvroSchema(text)


def test_size_depth_and_count_are_bounded():
    with pytest.raises(InvalidSchema, match="the maximum is"):
        AvroSchema(" " * (1024 * 1024 + 1))
    with pytest.raises(InvalidSchema, match="deeper"):
        AvroSchema('{"type":"array","items":' * 100 + '"int"' + "}" * 100)
    with pytest.raises(InvalidSchema, match="not JSON"):
        AvroSchema("[" * 500_000)
    symbols = ",".join(f'"S{index}"' for index in range(20_000))
    with pytest.raises(InvalidSchema, match="parts"):
        AvroSchema(f'{{"type":"enum","name":"E","symbols":[{symbols}]}}')


def test_a_schema_may_be_a_name_without_quotes():
    assert AvroSchema("string").canonical == AvroSchema('"string"').canonical


def test_equal_schemas_have_the_same_fingerprint():
    one = AvroSchema(
        '{"type": "record", "name": "x.R", "doc": "a", '
        '"fields": [{"name": "a", "type": {"type": "int"}}]}'
    )
    other = AvroSchema(
        '{"fields":[{"type":"int","name":"a","doc":"b"}],'
        '"namespace":"x","name":"R","type":"record"}'
    )
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint.startswith("sha256:")


@pytest.mark.parametrize(
    "change",
    [
        {"default": 1},
        {"aliases": ["b"]},
        {"type": "long"},
        {"type": {"type": "int", "logicalType": "date"}},
        {"name": "c"},
    ],
)
def test_attributes_that_affect_reading_change_the_fingerprint(change):
    field = {"name": "a", "type": "int"}
    one = schema_of({"fields": [field]})
    other = schema_of({"fields": [{**field, **change}]})
    assert one.fingerprint != other.fingerprint


def test_values_round_trip():
    values = [
        {"id": number, "who": f"user {number}", "note": None if number % 2 else "x"}
        for number in range(100)
    ]
    payloads = ORDER.encoder()(values)
    assert ORDER.decoder()(payloads) == values
    assert ORDER.validator()(payloads) == []


def test_bad_payloads_are_found_with_their_index_and_reason():
    [good] = ORDER.encoder()([{"id": 1, "who": "me", "note": None}])
    bad = dict(ORDER.validator()([good, b"", good + b"x", good[:-2]]))
    assert list(bad) == [1, 2, 3]
    assert "left over" in bad[2]
    with pytest.raises(InvalidPayload, match="message 2 of the batch"):
        ORDER.decoder()([good, good, good + b"x", good])


def test_payload_is_not_read_beyond_its_end():
    [one, other] = ORDER.encoder()(
        [{"id": 1, "who": "a", "note": None}, {"id": 2, "who": "b", "note": None}]
    )
    joined = one + other
    with pytest.raises(InvalidPayload, match="message 0"):
        ORDER.decoder()([joined[:-1], joined[-1:]])


def test_a_container_file_with_one_datum_is_read_as_well():
    parsed = fastavro.parse_schema(json.loads(ORDER.text))
    value = {"id": 7, "who": "me", "note": None}
    sink = BytesIO()
    fastavro.writer(sink, parsed, [value])
    assert ORDER.decoder()([sink.getvalue()]) == [value]
    assert ORDER.validator()([sink.getvalue()]) == []
    sink = BytesIO()
    fastavro.writer(sink, parsed, [value, value])
    [(_, reason)] = ORDER.validator()([sink.getvalue()])
    assert "holds 2 data" in reason


def test_a_value_that_does_not_fit_is_named():
    with pytest.raises(InvalidPayload, match=r"message 1 .*does not fit"):
        ORDER.encoder()([{"id": 1, "who": "a"}, {"id": "x", "who": "b"}])


def test_a_column_has_arrows_types():
    schema = schema_of(
        {
            "fields": [
                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                {
                    "name": "at",
                    "type": {"type": "long", "logicalType": "timestamp-micros"},
                },
                {
                    "name": "price",
                    "type": {
                        "type": "bytes",
                        "logicalType": "decimal",
                        "precision": 9,
                        "scale": 2,
                    },
                },
                {"name": "counts", "type": {"type": "map", "values": "int"}},
                {"name": "either", "type": ["int", "string"]},
                {"name": "maybe", "type": ["null", "double"]},
                {"name": "kind", "type": _enum("K", ["A", "B"])},
                {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            ]
        }
    )
    value = {
        "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
        "price": Decimal("12.34"),
        "counts": {"a": 1},
        "either": "x",
        "maybe": None,
        "kind": "B",
        "id": "00000000-0000-0000-0000-000000000001",
    }
    payloads = pa.array([*schema.encoder()([value]), None], pa.binary())
    column = schema.column_decoder()(payloads)
    assert column.type == schema.arrow_type()
    assert column.type.field("price").type == pa.decimal128(9, 2)
    first, second = column.to_pylist()
    assert first == {**value, "counts": [("a", 1)], "either": '"x"'}
    assert second is None


def test_a_record_inside_itself_is_a_column_of_json():
    schema = schema_of(
        {
            "fields": [
                {"name": "v", "type": "int"},
                {"name": "next", "type": ["null", "R"], "default": None},
            ]
        }
    )
    value = {"v": 1, "next": {"v": 2, "next": None}}
    column = schema.column_decoder()(pa.array(schema.encoder()([value])))
    [decoded] = column.to_pylist()
    assert json.loads(decoded["next"]) == {"v": 2, "next": None}


def test_endlessly_expanding_names_are_a_column_of_json():
    inner = {"type": "record", "name": "R0", "fields": [{"name": "v", "type": "int"}]}
    for level in range(1, 12):
        first = {"name": "f0", "type": inner}
        others = [{"name": f"f{n}", "type": f"R{level - 1}"} for n in range(1, 9)]
        inner = _record(f"R{level}", [first, *others])
    assert AvroSchema(json.dumps(inner)).arrow_type() == pa.string()


_NOTHING = object()


def _record(name, fields):
    return {"type": "record", "name": name, "fields": fields}


def _enum(name, symbols):
    return {"type": "enum", "name": name, "symbols": symbols}


def _some_value(avro_type):  # noqa: PLR0911  # One case for each type.
    """A value of the type, the last branch of a union; _NOTHING if there is none."""
    from pydanube.schemas.avro import types

    match avro_type:
        case types.Union(()):
            return _NOTHING
        case types.Union(branches):
            return (
                None
                if len(branches) > 1 and branches[0] == types.Primitive("null")
                else _some_value(branches[-1])
            )
        case types.Array(items):
            return [_some_value(items)]
        case types.Map(values):
            return {"k": _some_value(values)}
        case types.Record(fields=fields):
            return {each.name: _some_value(each.type) for each in fields}
        case types.Enum(symbols=symbols):
            return symbols[-1]
        case types.Fixed(size=size):
            return bytes(size)
        case types.Primitive(name, logical):
            if logical is not None:
                return _LOGICAL_VALUES[logical.name]
            return _VALUES[name]


_VALUES = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 0.25,
    "bytes": b"b",
    "string": "s",
}
_LOGICAL_VALUES = {
    "date": date(2026, 1, 1),
    "timestamp-millis": datetime(2026, 1, 1, tzinfo=UTC),
    "timestamp-micros": datetime(2026, 1, 1, tzinfo=UTC),
    "decimal": Decimal("1.25"),
}


def test_reason_found_through_many_fields_is_reported_once():
    """Each record refers to the one before it twice, so there are 2 ** 40 paths."""

    def doubled(**leaf):
        inner = record_of("R0", x="int", **leaf)
        for number in range(1, 41):
            inner = record_of(f"R{number}", a=inner, b=f"R{number - 1}")
        return schema_of(inner)

    [reason] = doubled(y="int").incompatibilities(doubled())
    assert reason.rule == "reader_field_missing_default"


def test_names_without_a_namespace_may_stand_inside_one():
    def record(field, **names):
        return {"type": "record", "fields": [{"name": "i", "type": field}], **names}

    schema = AvroSchema(
        json.dumps(
            {
                "type": "record",
                "name": "a.R",
                "fields": [
                    {"name": "one", "type": record("int", name="X", namespace="")},
                    {"name": "two", "type": record("string", name="X")},
                    {"name": "three", "type": "X"},
                ],
            }
        )
    )
    value = {"one": {"i": 1}, "two": {"i": "q"}, "three": {"i": "r"}}
    payload = schema.encoder()([value])[0]
    assert payload == b"\x02\x02q\x02r"
    assert schema.decoder()([payload]) == [value]

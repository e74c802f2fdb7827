"""Records of the input become messages, or are refused with their line."""

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidPayload
from pydanube.model.field_paths import ABSENT, parse_path
from pydanube.model.schemas import SchemaType
from pydanube.schemas.language import invalid_payload
from pydanube_cli.messages.message_formats import json_line
from pydanube_cli.messages.pure.message_records import (
    CsvParser,
    FieldOptions,
    JsonParser,
    RawParser,
    RefusedRecord,
    batch_of_records,
    encode_records,
    values_of,
)
from support.fakes.batches import A_TIME, messages_of

NO_FIELDS = FieldOptions()


def records_in(parser, *lines):
    records = list(parser.feed(lines))
    parser.finish()
    return records


def record_of(fields, options=NO_FIELDS):
    [record] = records_in(JsonParser(options), json.dumps(fields).encode())
    return record


TIMES = st.integers(0, 4_000_000_000_000_000)


@given(
    payload=st.binary(max_size=20),
    key=st.none() | st.binary(max_size=5),
    attributes=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    times=st.tuples(TIMES, TIMES, st.integers(1, 1000)) | st.tuples(TIMES),
)
def test_messages_survive_json_without_loss(payload, key, attributes, times):
    options = {"keys": [key], "attributes": [attributes], "publish_times": times[:1]}
    if len(times) > 1:
        options["deliver_at"] = [times[1]]
        options["expires_at"] = [times[1] + times[2]]
    [message] = messages_of([payload], base=7, **options)
    [record] = records_in(JsonParser(NO_FIELDS), json_line(message)[:-1])
    assert (record.payload, record.key) == (payload, key)
    assert record.attributes == attributes
    found = [record.publish_time, record.deliver_at, record.expires_at]
    expected = [times[0], *options.get("deliver_at", [None])]
    assert found == [*expected, *options.get("expires_at", [None])]


@pytest.mark.parametrize(
    ("fields", "payload"),
    [
        ({"payload": "\u00fc"}, "\u00fc".encode()),
        ({"payload_base64": "/wA="}, b"\xff\x00"),
        ({"value": {"n": 1}}, b'{"n":1}'),
        ({"payload": "x", "value": 1}, b"x"),
        ({"payload": "", "key": None, "attributes": None, "deliver_at": None}, b""),
    ],
)
def test_payload_comes_from_the_first_form_that_is_there(fields, payload):
    assert record_of(fields).payload == payload


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", r"a record is a JSON object, not \[1\]"),
        ('{"id": 1}', 'no field "id".*--input raw publishes whole lines'),
        ('{"payloda": "x"}', "did you mean 'payload'"),
        ('{"key": "k"}', "none of payload, payload_base64 and value"),
        ('{"payload": 5}', "payload is 5: it should be a text"),
        ('{"payload": "a", "payload_base64": "YQ=="}', "has both"),
        ('{"payload_base64": "a!"}', "should be base64"),
        ('{"payload_base64": 5}', "should be base64"),
        ('{"payload": "", "attributes": ["a"]}', "should be an object"),
        ('{"payload": "", "attributes": {"a": 1}}', "the attribute a is 1"),
        ('{"payload": "", "publish_time": "2025-03-01T09:30:00"}', "time zone"),
        ('{"payload": "", "publish_time": 5}', "time zone"),
        ('{"payload": "", "expires_at": "0001-01-01T00:00:00+01:00"}', "time zone"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_malformed_record_is_refused_with_its_line(line, said):
    parser = JsonParser(NO_FIELDS)
    assert len(records_in(parser, b'{"payload": ""}', b" ")) == 1
    with pytest.raises(RefusedRecord, match=f"^line 3: .*{said}"):
        list(parser.feed([line.encode()]))


FIELDS = FieldOptions(
    key=parse_path("user.id"), attributes={"tags[0]": parse_path("tags[0]")}
)


@pytest.mark.parametrize(("given_id", "key"), [("u7", b"u7"), (7, b"7"), (1.5, b"1.5")])
def test_key_and_attributes_come_from_fields_of_the_value(given_id, key):
    value = {"user": {"id": given_id}, "tags": ["a"]}
    [raw] = records_in(RawParser(FIELDS), json.dumps(value).encode())
    assert json.loads(raw.payload) == value
    for record in (raw, record_of({"value": value, "key": "other"}, FIELDS)):
        assert (record.key, record.attributes) == (key, {"tags[0]": "a"})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"text", "not JSON"),
        (b'{"user": 1}', "no field user.id"),
        (b'{"user": {"id": null}}', "user.id is null: it should be a text or a number"),
        (b'{"user": {"id": true}}', "user.id is true"),
        (b'{"user": {"id": "a"}, "tags": []}', "no field tags.0"),
    ],
)
def test_missing_key_field_is_refused(line, said):
    with pytest.raises(RefusedRecord, match=f"line 1: .*{said}"):
        records_in(RawParser(FIELDS), line)


def test_lines_are_unchanged_without_fields():
    records = records_in(RawParser(NO_FIELDS), b"\xff", b"")
    assert [(each.line, each.payload) for each in records] == [(1, b"\xff"), (2, b"")]
    assert records[0].value is ABSENT


CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.lists(st.tuples(CELL, CELL), max_size=4), st.sampled_from(["\n", "\r\n"]))
def test_rows_of_csv_become_objects(rows, newline):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=newline, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *rows])
    records = records_in(CsvParser(NO_FIELDS), *text.getvalue().encode().split(b"\n"))
    assert [json.loads(each.payload) for each in records] == [
        {"a": first, "b": second} for first, second in rows
    ]


def test_row_of_csv_may_have_several_lines():
    parser = CsvParser(FieldOptions(key=("id",)))
    lines = [b"\xef\xbb\xbfid,text", b'1,"two', b'lines"', b"", b"2,x"]
    records = records_in(parser, *lines)
    assert [(each.line, each.key) for each in records] == [(2, b"1"), (5, b"2")]
    assert records[0].value == {"id": "1", "text": "two\nlines"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["a,a"], "line 1: .*repeated: a, a"),
        (["a,", "1,2"], "line 1: .*a name is missing"),
        (["a,b", "1,2", "1"], "line 3: the row has 1 cells, and the first row has 2"),
        (["a", '"x'], "line 2: a quotation mark is not closed"),
        (["a", '"x"y"z"'], "line 2: the row is not CSV"),
        (["a", "\udcff"], "line 2: the row is not CSV in UTF-8"),
    ],
)
def test_malformed_row_is_refused(lines, said):
    encoded = [line.encode(errors="surrogateescape") for line in lines]
    with pytest.raises(RefusedRecord, match=said):
        records_in(CsvParser(NO_FIELDS), *encoded)


def test_batch_has_only_the_columns_that_records_have():
    options = {"now": A_TIME, "key": None, "attributes": {}}
    [record] = records_in(RawParser(NO_FIELDS), b"x")
    batch = batch_of_records([record], **options, has_delay=False, has_ttl=False)
    assert batch.schema.names == ["payload"]


def lengths(values):
    """Encode texts as their lengths."""
    payloads = []
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise invalid_payload(index, "no text")
        payloads.append(b"%d" % len(value))
    return payloads


@pytest.mark.parametrize(
    ("lines", "payloads", "said"),
    [
        ([b'"ab"', b'"c"'], [b"2", b"1"], "None"),
        ([b'"ab"', b"5", b'"c"'], [b"2"], "line 2: no text"),
        ([b'"ab"', b"{", b'"c"'], [b"2"], "line 2: .*takes messages in JSON"),
        ([b"5", b"{"], [], "line 1: no text"),
    ],
)
def test_value_that_does_not_conform_is_refused_after_those_before(
    lines, payloads, said
):
    records = records_in(RawParser(NO_FIELDS), *lines)
    good, refused = encode_records(SchemaType.AVRO, lengths, records)
    assert [each.payload for each in good] == payloads
    assert re.fullmatch(said, str(refused).partition(", not")[0])


@pytest.mark.parametrize(
    ("type_", "payloads", "values"),
    [
        (SchemaType.BYTES, [b"\xff"], [b"\xff"]),
        (SchemaType.STRING, ["ü".encode()], ["ü"]),
        (SchemaType.NUMBER, [b"7", b"1.5"], [7, 1.5]),
        (SchemaType.AVRO, [b'{"a": [1]}'], [{"a": [1]}]),
    ],
)
def test_input_is_converted_to_the_type_of_the_schema(type_, payloads, values):
    assert values_of(type_, payloads) == values


@pytest.mark.parametrize(
    ("type_", "payload", "said"),
    [
        (SchemaType.STRING, b"\xff", "takes messages in UTF-8"),
        (SchemaType.AVRO, b"{", "takes messages in JSON"),
    ],
)
def test_input_that_does_not_fit_the_schema_is_shown(type_, payload, said):
    with pytest.raises(InvalidPayload, match=said):
        values_of(type_, [payload])

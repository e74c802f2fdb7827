"""The envelope: batches from Python values and users' tables."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from pydanube.model.batch import (
    Column,
    attributes_of,
    batch_of,
    columns_of,
    conform,
    schema_of,
)
from pydanube.model.envelope import FIELDS
from pydanube.model.errors import InvalidRequest

PAYLOADS = pa.array([b"a", b"b"])


def test_batch_has_only_the_given_columns():
    batch = batch_of([b"a", b"b"])
    assert batch.schema == schema_of(Column.PAYLOAD)
    batch = batch_of(
        [b"a", b"b"],
        keys=[b"k", None],
        attributes=[{"x": "1", "y": "2"}, None],
        publish_times=[1, 2],
        deliver_at=[None, 5],
        expires_at=[6, None],
    )
    assert columns_of(batch) == sum(FIELDS) & ~(Column.OFFSET | Column.PRODUCER)
    times = [
        batch.column(name).cast(pa.int64()) for name in ("deliver_at", "expires_at")
    ]
    assert [column.to_pylist() for column in times] == [[None, 5], [6, None]]
    assert batch.column("key").to_pylist() == [b"k", None]
    assert [attributes_of(each) for each in batch.column("attributes").to_pylist()] == [
        {"x": "1", "y": "2"},
        {},
    ]


def test_attribute_that_is_null_is_none():
    assert attributes_of([("a", None), ("b", ""), ("c", "x")]) == {"b": "", "c": "x"}


def test_attributes_may_be_empty_or_absent():
    for given in ([None, {}, {"x": "1"}, None, {"y": "2"}], [None], [{}, None]):
        batch = batch_of([b""] * len(given), attributes=given)
        batch.validate(full=True)
        found = batch.column("attributes").to_pylist()
        assert [None if each is None else dict(each) for each in found] == given
    with pytest.raises(pa.ArrowTypeError):
        batch_of([b""], attributes=[{"x": 1}])


def test_every_column_has_a_bit_and_a_position():
    assert list(FIELDS) == list(Column)
    assert schema_of(sum(FIELDS)).names == [
        "publish_time", "key", "payload", "attributes", "offset", "producer",
        "deliver_at", "expires_at",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "payload",
    [
        PAYLOADS,
        PAYLOADS.cast(pa.large_binary()),
        pa.array(["a", "b"]),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.chunked_array([[b"a"], [b"b"]]),
    ],
    ids=lambda payload: str(payload.type),
)
def test_payloads_may_have_any_binary_or_text_type(payload):
    found = conform(pa.table({"payload": payload}))
    assert all(batch.schema == schema_of(Column.PAYLOAD) for batch in found)
    assert [row for batch in found for row in batch.column("payload").to_pylist()] == [
        b"a",
        b"b",
    ]


def test_columns_may_be_in_any_order_and_null_ones_are_dropped():
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    (batch,) = conform(
        pa.record_batch(
            {
                "payload": PAYLOADS,
                "key": pa.array([None, None]),
                "attributes": pa.array([[("a", "b")], None], pa.map_("str", "str")),
                "publish_time": pa.array([moment, moment], pa.timestamp("ms", "UTC")),
                "expires_at": pa.array([None, moment], pa.timestamp("ms", "UTC")),
                "deliver_at": pa.array([None, None], pa.timestamp("ms", "UTC")),
            }
        )
    )
    columns = (
        Column.PUBLISH_TIME | Column.PAYLOAD | Column.ATTRIBUTES | Column.EXPIRES_AT
    )
    assert batch.schema == schema_of(columns)


def test_empty_table_becomes_no_batches():
    assert conform(schema_of(Column.PAYLOAD).empty_table()) == []


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"key": PAYLOADS}, "only payload"),
        ({"payload": PAYLOADS, "offset": pa.array([1, 2])}, "offset"),
        ({"payload": pa.array([1, 2])}, "must be binary"),
        ({"payload": pa.array([b"a", None])}, "nulls"),
        ({"payload": PAYLOADS, "publish_time": pa.array(["x", "y"])}, "publish_time"),
        ({"payload": PAYLOADS, "attributes": pa.array(["x", "y"])}, "attributes"),
        ({"payload": PAYLOADS, "deliver_at": pa.array(["x", "y"])}, "deliver_at"),
    ],
)
def test_table_that_does_not_conform_is_refused(columns, words):
    with pytest.raises(InvalidRequest, match=words):
        conform(pa.table(columns))


def test_duplicate_column_is_refused():
    table = pa.Table.from_arrays([PAYLOADS, PAYLOADS], names=["payload", "payload"])
    with pytest.raises(InvalidRequest, match="same name"):
        conform(table)


@pytest.mark.parametrize("name", ["publish_time", "deliver_at", "expires_at"])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array([1], pa.int64()), "timestamps with a time zone, not int64"),
        (pa.array([1.5]), "timestamps with a time zone, not double"),
        (pa.array(["2030-01-01T00:00:00Z"]), "timestamps with a time zone, not string"),
        (pa.array([1], pa.date32()), "timestamps with a time zone, not date32"),
        (pa.array([1], pa.timestamp("us")), "without a time zone"),
        (pa.array([1], pa.timestamp("ns", "UTC")), "would lose data"),
        (pa.array([1], pa.timestamp("s")).dictionary_encode(), "without a time zone"),
    ],
)
def test_times_that_are_no_instants_are_refused(name, values, words):
    table = pa.table({"payload": ["a"], name: values})
    with pytest.raises(InvalidRequest, match=words):
        conform(table)


def test_times_of_any_unit_and_time_zone_are_instants():
    moment = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC)
    for unit in ("s", "ms", "us", "ns"):
        for zone in ("UTC", "America/New_York", "+02:00"):
            times = pa.array([moment], pa.timestamp(unit, zone))
            for each in (times, times.dictionary_encode()):
                [batch] = conform(pa.table({"payload": ["a"], "deliver_at": each}))
                assert batch.column("deliver_at").to_pylist() == [moment]


ATTRIBUTES = FIELDS[Column.ATTRIBUTES].type


def test_null_attribute_values_are_refused_with_the_message_and_the_name():
    attributes = pa.array([None, [("a", "1")], [("a", "1"), ("b", None)]], ATTRIBUTES)
    table = pa.table({"payload": ["x", "y", "z"], "attributes": attributes})
    with pytest.raises(InvalidRequest, match="'b' of message 2 of the batch is null"):
        conform(table)
    chunked = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    with pytest.raises(InvalidRequest, match="'b' of message 2 of the batch is null"):
        conform(chunked)
    # A slice does not have the messages before and after it.
    assert conform(table.slice(0, 2))[0].num_rows == 2


@pytest.mark.parametrize("id_", ["", "x" * 257])
def test_empty_and_long_ids_are_refused(id_):
    attributes = pa.array([[("x-deduplication-id", id_)]], ATTRIBUTES)
    with pytest.raises(InvalidRequest, match="it must have 1 to 256"):
        conform(pa.table({"payload": ["x"], "attributes": attributes}))

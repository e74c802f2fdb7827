"""Rows become messages of the right topics, in their order; what is wrong is named."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import InvalidName, InvalidRequest
from pydanube_spark.pure.message_rows import check_columns, split_by_topic
from pydanube_spark.pure.write_options import Encode, WriteOptions

TO_ONE = WriteOptions(topic="/default/a")
BY_ROW = WriteOptions()
TIME = pa.timestamp("us", tz="UTC")


def wrong(columns, options=TO_ONE):
    return "; ".join(check_columns(pa.schema(columns), options))


def test_all_columns_of_a_message_are_taken_in_the_types_that_spark_has():
    columns = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "key": pa.string(),
        "payload": pa.string(),
        "attributes": pa.map_(pa.string(), pa.string()),
        "deliver_at": TIME,
        "expires_at": TIME,
    }
    assert wrong(columns, BY_ROW) == ""
    assert wrong({"value": pa.struct([pa.field("a", pa.int8())])}) == ""


def test_columns_of_rows_read_from_a_topic_are_accepted():
    columns = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "publish_time": TIME,
        "payload": pa.binary(),
        "producer": pa.string(),
        "schema_id": pa.int64(),
        "schema_version": pa.int32(),
    }
    assert wrong(columns) == ""
    # The column topic is not used as the target.
    assert "set the option 'topic'" in wrong(columns, BY_ROW)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"paylod": pa.binary()}, "did you mean 'payload'"),
        ({"amount": pa.int64(), "payload": pa.binary()}, "no column 'amount'"),
        ({"key": pa.binary()}, "neither a column payload"),
        ({"payload": pa.binary(), "value": pa.int64()}, "drop one of them"),
        ({"payload": pa.int64()}, "payload must be binary or string.*not int64"),
        ({"payload": pa.binary(), "key": pa.int64()}, "key must be binary or string"),
        ({"payload": pa.binary(), "partition": pa.string()}, "a whole number"),
        (
            {"payload": pa.binary(), "attributes": pa.map_(pa.string(), pa.int8())},
            "attributes must be map<string, string>",
        ),
        (
            {"payload": pa.binary(), "deliver_at": pa.timestamp("us")},
            "deliver_at must be timestamp",
        ),
    ],
)
def test_wrong_column_is_named(columns, said):
    import re

    assert re.search(said, wrong(columns))


def test_rows_need_a_topic_column_or_the_option():
    assert "set the option 'topic'" in wrong({"payload": pa.binary()}, BY_ROW)
    columns = {"payload": pa.binary(), "topic": pa.int64()}
    assert "topic must be string" in wrong(columns, BY_ROW)
    assert wrong(columns, TO_ONE) == ""


def test_value_is_refused_with_encode_payload():
    options = WriteOptions(topic="/default/a", encode=Encode.PAYLOAD)
    assert "call it payload" in wrong({"value": pa.int64()}, options)


def split(batch, topic=None):
    return [
        (name, rows.to_pydict())
        for name, rows in split_by_topic(pa.record_batch(batch), topic)
    ]


def test_option_topic_applies_to_all_rows():
    rows = {"topic": ["/default/x", None], "payload": ["a", "b"], "offset": [7, 8]}
    assert split(rows, "/default/a") == [("/default/a", {"payload": [b"a", b"b"]})]


def test_rows_are_split_by_topic_in_order():
    rows = {
        "topic": ["/default/b", "/default/a", "/default/b", "/default/b"],
        "payload": [b"1", b"2", b"3", b"4"],
        "key": [None, "k", None, "l"],
    }
    assert split(rows) == [
        ("/default/b", {"payload": [b"1", b"3", b"4"], "key": [None, None, b"l"]}),
        ("/default/a", {"payload": [b"2"], "key": [b"k"]}),
    ]


def test_a_partition_is_named_by_number_and_without_one_the_client_chooses():
    rows = {"payload": [b"1", b"2", b"3"], "partition": [1, None, 0]}
    assert split(rows, "/default/a") == [
        ("/default/a-part-1", {"payload": [b"1"]}),
        ("/default/a", {"payload": [b"2"]}),
        ("/default/a-part-0", {"payload": [b"3"]}),
    ]
    read = rows | {"offset": [7, 8, 9]}
    assert split(read, "/default/a") == [("/default/a", {"payload": rows["payload"]})]
    none = {"payload": [b"1"], "partition": pa.array([None], pa.int32())}
    assert split(none, "/default/a") == [("/default/a", {"payload": [b"1"]})]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 3))))
def test_no_row_is_lost_and_no_order_changed(places):
    rows = pa.record_batch(
        {
            "topic": pa.array([f"/default/{name}" for name, _ in places], pa.string()),
            "partition": pa.array([number for _, number in places], pa.int32()),
            "payload": pa.array([b"%d" % n for n in range(len(places))], pa.binary()),
        }
    )
    found = {}
    for name, messages in split_by_topic(rows, None):
        assert name not in found
        found[name] = [int(each) for each in messages.column("payload").to_pylist()]
    expected = {}
    for index, (name, number) in enumerate(places):
        suffix = "" if number is None else f"-part-{number}"
        expected.setdefault(f"/default/{name}{suffix}", []).append(index)
    assert found == expected


def test_times_and_attributes_go_with_their_messages():
    at = datetime(2030, 1, 1, tzinfo=UTC)
    rows = {
        "payload": [b"1"],
        "attributes": pa.array([[("n", "1")]], pa.map_(pa.string(), pa.string())),
        "deliver_at": pa.array([at], TIME),
        "publish_time": pa.array([at], TIME),
    }
    [(_, messages)] = split(rows, "/default/a")
    assert messages == {
        "payload": [b"1"],
        "attributes": [[("n", "1")]],
        "deliver_at": [at],
    }


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"payload": [b"", None]}, "payload is null in 1 of 2 rows"),
        ({"value": pa.array([None, 2])}, "value is null in 1 of 2 rows"),
        (
            {"payload": [b"1"], "partition": pa.array([-1], pa.int32())},
            "negative number in the column partition",
        ),
        (
            {
                "payload": [b"1"],
                "attributes": pa.array(
                    [[("n", None)]], pa.map_(pa.string(), pa.string())
                ),
            },
            "an attribute that is null",
        ),
    ],
)
def test_incomplete_row_is_refused(rows, said):
    with pytest.raises(InvalidRequest, match=said):
        split(rows, "/default/a")


def test_row_with_null_or_malformed_topic_is_refused():
    with pytest.raises(InvalidRequest, match="topic is null in 1 of 1"):
        split({"topic": pa.array([None], pa.string()), "payload": [b""]})
    with pytest.raises(InvalidName, match="orders"):
        split({"topic": ["/default/a", "orders"], "payload": [b"", b""]})

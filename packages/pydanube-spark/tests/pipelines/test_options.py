"""Tests of the options for Spark's readers and writers."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pipelines.options import (
    resolve,
    sink_options,
    source_options,
    with_starting_offsets,
)
from pydanube_spark.pipelines.pure.spec import (
    ChangeFeed,
    Decode,
    Read,
    Sink,
    Source,
    TableKey,
)

BROKER = "danube://b:1"
HERE = Path("/here")


def test_topic_source_has_danube_options():
    source = Source(topics=["/default/a", "/default/b"], options={"minPartitions": 2})
    assert source.format_name == "danube"
    assert source.is_stream
    assert source_options(source, BROKER) == {
        "url": BROKER,
        "subscribe": "/default/a,/default/b",
        "startingOffsets": "earliest",
        "minPartitions": "2",
    }


def test_pattern_offsets_and_dead_letters_become_options():
    source = Source(
        pattern="/default/.*",
        broker="danube://c:2",
        start={"/default/a": 5},
        decode=True,
        dead_letters=Sink(format="noop"),
    )
    assert source_options(source, BROKER) == {
        "url": "danube://c:2",
        "subscribePattern": "/default/.*",
        "startingOffsets": '{"/default/a":5}',
        "decode": "true",
        "onUndecodable": "null",
        "includeAttributes": "true",
    }


def test_own_options_take_precedence_in_any_case():
    source = Source(topic="/default/a", options={"URL": "danube://d:3"})
    assert source_options(source, BROKER)["URL"] == "danube://d:3"
    assert "url" not in source_options(source, BROKER)


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def starting(**fields):
    source = Source(**{"topic": "/default/a"} | fields)
    found = source_options(source, BROKER, NOW)
    return {name: value for name, value in found.items() if "starting" in name.lower()}


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (None, "earliest"),
        ("earliest", "earliest"),
        ("latest", "latest"),
        (5, '{"/default/a":5}'),
        ("5", '{"/default/a":5}'),
        ({"/default/a": {"0": 5}}, '{"/default/a":{"0":5}}'),
        ('{"/default/a": 5}', '{"/default/a": 5}'),
    ],
)
def test_start_is_an_end_of_the_topic_or_offsets(start, offsets):
    assert starting(start=start) == {"startingOffsets": offsets}


@pytest.mark.parametrize(
    ("start", "time"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00+00:00"),
        ("2026-01-01T02:00+02:00", "2026-01-01T02:00:00+02:00"),
        ("24h", "2026-02-28T12:00:00+00:00"),
        ("7d", "2026-02-22T12:00:00+00:00"),
    ],
)
def test_start_is_a_time_or_how_long_ago(start, time):
    assert starting(start=start) == {
        "startingTimestamp": time,
        "startingOffsetsByTimestampStrategy": "latest",
    }


def test_option_for_the_start_replaces_the_default():
    options = {"StartingTimestamp": 1_700_000_000_000}
    assert starting(options=options) == {"StartingTimestamp": "1700000000000"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"start": "yesterday"}, "start: 'yesterday' is not a position .* 15m; or"),
        ({"start": "-1"}, "start: '-1' is not a position"),
        ({"start": 5, "topic": None, "pattern": "/default/.*"}, "offset in one topic"),
        (
            {"start": "latest", "options": {"startingTimestamp": 1}},
            "either start or options.startingTimestamp",
        ),
    ],
)
def test_start_that_is_not_clear_is_refused(fields, words):
    with pytest.raises(InvalidConfig, match=words):
        starting(**fields)


def test_fixed_offsets_replace_every_other_start():
    options = {
        "url": BROKER,
        "startingtimestamp": "1",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert with_starting_offsets(options, "{}") == {
        "url": BROKER,
        "startingOffsets": "{}",
    }


def test_database_and_file_sources_have_their_options():
    table = Source(jdbc="jdbc:x", table="t", options={"user": "u"})
    assert (table.format_name, table.is_stream) == ("jdbc", False)
    assert source_options(table, BROKER) == {
        "url": "jdbc:x",
        "dbtable": "t",
        "user": "u",
    }
    query = Source(jdbc="jdbc:x", query="SELECT 1")
    assert source_options(query, BROKER) == {"url": "jdbc:x", "query": "SELECT 1"}
    assert Source(files="x", format="csv").is_stream
    assert not Source(files="x", format="csv", read=Read.TABLE).is_stream
    assert not Source(format="rate").is_stream


def test_sinks():
    assert sink_options(Sink(topic="/default/a"), BROKER, HERE) == {
        "url": BROKER,
        "topic": "/default/a",
    }
    files = Sink(format="parquet", path="out", options={"compression": "zstd"})
    assert sink_options(files, BROKER, HERE) == {
        "path": "/here/out",
        "compression": "zstd",
    }


def test_relative_paths_refer_to_the_file():
    assert resolve(HERE, "a/b") == "/here/a/b"
    assert resolve(HERE, "/a") == "/a"
    assert resolve(HERE, "s3://bucket/a") == "s3://bucket/a"


def test_table_of_a_sink_becomes_its_options():
    def given(**fields):
        sink = Sink(format="danube-iceberg", table=TableKey(**fields))
        return sink_options(sink, BROKER, HERE)

    assert given(key="id") == {"keyColumns": "id"}
    assert given(key=["a", "b"], order=["at", "n"], delete="op = 'd'") == {
        "keyColumns": "a,b",
        "orderColumns": "at,n",
        "deleteColumn": "_deleted",
    }


def test_tombstones_of_a_decoded_change_feed_are_read():
    source = Source(topic="/default/a", cdc=ChangeFeed.DEBEZIUM, decode=True)
    assert source_options(source, BROKER)["onUndecodable"] == "null"


def test_decoding_is_an_option_of_the_source():
    found = {
        decode: source_options(Source(topic="/default/a", decode=decode), BROKER).get(
            "decode"
        )
        for decode in (False, True, Decode.JSON)
    }
    assert found == {False: None, True: "true", Decode.JSON: "json"}

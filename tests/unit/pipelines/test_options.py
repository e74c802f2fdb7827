"""Words of a file become options of Spark's."""

from pathlib import Path

from pydanube.pipelines.options import (
    format_of,
    read_of,
    resolve,
    sink_options,
    source_options,
)
from pydanube.pipelines.spec import Read, Sink, Source

BROKER = "danube://b:1"
HERE = Path("/here")


def test_topics():
    source = Source(topics=["/default/a", "/default/b"], options={"minPartitions": 2})
    assert format_of(source) == "danube"
    assert read_of(source) is Read.STREAM
    assert source_options(source, BROKER) == {
        "url": BROKER,
        "subscribe": "/default/a,/default/b",
        "startingOffsets": "earliest",
        "minPartitions": "2",
    }


def test_a_pattern_with_offsets_and_dead_letters():
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
    }


def test_own_options_win_whatever_their_case():
    source = Source(topic="/default/a", options={"URL": "danube://d:3"})
    assert source_options(source, BROKER)["URL"] == "danube://d:3"
    assert "url" not in source_options(source, BROKER)


def test_databases_and_files():
    table = Source(jdbc="jdbc:x", table="t", options={"user": "u"})
    assert (format_of(table), read_of(table)) == ("jdbc", Read.TABLE)
    assert source_options(table, BROKER) == {
        "url": "jdbc:x",
        "dbtable": "t",
        "user": "u",
    }
    query = Source(jdbc="jdbc:x", query="SELECT 1")
    assert source_options(query, BROKER) == {"url": "jdbc:x", "query": "SELECT 1"}
    assert read_of(Source(files="x", format="csv")) is Read.STREAM
    assert read_of(Source(files="x", format="csv", read=Read.TABLE)) is Read.TABLE
    assert read_of(Source(format="rate")) is Read.TABLE


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


def test_relative_paths_begin_at_the_file():
    assert resolve(HERE, "a/b") == "/here/a/b"
    assert resolve(HERE, "/a") == "/a"
    assert resolve(HERE, "s3://bucket/a") == "s3://bucket/a"

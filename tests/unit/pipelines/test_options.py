"""Tests of the options for Spark's readers and writers."""

from pathlib import Path

from pydanube.pipelines.options import (
    resolve,
    sink_options,
    source_options,
)
from pydanube.pipelines.spec import Read, Sink, Source

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
    }


def test_own_options_take_precedence_in_any_case():
    source = Source(topic="/default/a", options={"URL": "danube://d:3"})
    assert source_options(source, BROKER)["URL"] == "danube://d:3"
    assert "url" not in source_options(source, BROKER)


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

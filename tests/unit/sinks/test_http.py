"""Tests of the sink danube-http without a server."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pydanube.model.errors import InvalidConfig
from pydanube.sinks.http import HttpSink

SCHEMA = pa.schema({"id": pa.int64()})


def sink(**given):
    return HttpSink.parse({"url": "https://host/x"} | given, SCHEMA)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "ftp://host"}, "must begin with http"),
        ({"method": "GET"}, "must be POST or PUT or PATCH"),
        ({"format": "jsonl"}, "did you mean 'json'"),
        ({"header.X": "a\r\nY: b"}, "header.x: must be printable ASCII"),
        ({"deadLetterUrl": "danube://host:1"}, "only with deadLetterTopic"),
    ],
)
def test_invalid_options_are_refused(given, message):
    with pytest.raises(InvalidConfig, match=message):
        sink(**given)


def test_headers_and_url_are_not_shown():
    found = sink(url="https://h/hooks/sesame", **{"header.Authorization": "sesame"})
    assert "sesame" not in repr(found)
    assert found.headers == {"authorization": "sesame"}

"""Tests of reading the offsets of a checkpoint."""

import json

import pytest

from pydanube.model.errors import NotFound
from pydanube_spark.pipelines.committed_offsets import (
    committed_offsets,
    committed_watermark,
)
from pydanube_spark.reader.pure.query_positions import Position, to_json


def write(path, number, *sources, metadata="{}"):
    lines = ["v1", metadata, *sources]
    (path / "offsets").mkdir(exist_ok=True)
    (path / "offsets" / str(number)).write_text("\n".join(lines))


def topics(**offsets):
    found = {f"/default/{name}": Position(1, at) for name, at in offsets.items()}
    return json.dumps(to_json(found))


def test_offsets_are_those_of_the_last_committed_batch(tmp_path):
    (tmp_path / "commits").mkdir()
    for number in (8, 9, 10):
        write(tmp_path, number, topics(a=number, b=1), '{"logOffset": 3}', "-")
    for number in (8, 9):
        (tmp_path / "commits" / str(number)).touch()
        (tmp_path / "commits" / f".{number}.crc").touch()
    assert committed_offsets(tmp_path) == {"/default/a": 9, "/default/b": 1}


def test_query_without_a_commit_has_no_offsets(tmp_path):
    with pytest.raises(NotFound, match="no committed micro-batch"):
        committed_offsets(tmp_path)
    (tmp_path / "commits").mkdir()
    with pytest.raises(NotFound):
        committed_offsets(tmp_path)


def test_watermark_is_that_of_the_last_committed_batch(tmp_path):
    with pytest.raises(NotFound):
        committed_offsets(tmp_path)
    assert committed_watermark(tmp_path) is None
    (tmp_path / "state").mkdir()
    with pytest.raises(NotFound):
        committed_watermark(tmp_path)
    (tmp_path / "commits").mkdir()
    for number in (0, 1, 2):
        write(tmp_path, number, metadata=json.dumps({"batchWatermarkMs": 5 * number}))
    (tmp_path / "commits" / "0").touch()
    (tmp_path / "commits" / "1").touch()
    assert committed_watermark(tmp_path) == 5
    write(tmp_path, 1)
    assert committed_watermark(tmp_path) == 0

"""Tests of the known formats."""

import pytest

from pydanube_spark.formats import SINKS
from pydanube_spark.pipelines.pure import formats


def test_all_own_formats_are_known():
    assert SINKS.keys() == formats.OURS


@pytest.mark.parametrize(
    ("name", "mode", "is_plain"),
    [
        ("parquet", "append", True),
        ("jdbc", "append", False),
        ("danube-postgres", "append", True),
        ("danube-postgres", "update", False),
        ("console", "update", True),
    ],
)
def test_streams_that_spark_cannot_write_are_written_batch_by_batch(
    name, mode, is_plain
):
    assert formats.is_plain_stream(name, mode) is is_plain

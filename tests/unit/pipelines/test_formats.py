"""What is known of formats agrees with who writes them."""

import pytest

from pydanube.pipelines import formats
from pydanube.spark.formats import SINKS


def test_all_of_our_formats_are_known():
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
def test_some_streams_are_written_batch_by_batch(name, mode, is_plain):
    assert formats.is_plain_stream(name, mode) is is_plain

"""Tests of writes of micro-batches in Spark's cache."""

import pytest

pytest.importorskip("pyspark")

from pydanube_spark.pipelines.batch_caching import cached, checked_first


class Batch:
    """A micro-batch that records what happens to it."""

    def __init__(self, *, is_broken=False):
        self.calls = []
        self._is_broken = is_broken

    def persist(self):
        self.calls.append("persist")

    def unpersist(self):
        self.calls.append("unpersist")

    def count(self):
        self.calls.append("count")
        if self._is_broken:
            raise ValueError("a row must not occur")


def write(batch, number):
    batch.calls.append(number)


def test_rows_are_in_the_cache_while_they_are_written():
    batch = Batch()
    cached(write)(batch, 7)
    assert batch.calls == ["persist", 7, "unpersist"]


def test_rows_are_computed_before_they_are_written():
    batch = Batch()
    checked_first(write)(batch, 7)
    assert batch.calls == ["persist", "count", 7, "unpersist"]


def test_nothing_is_written_if_a_row_must_not_occur():
    batch = Batch(is_broken=True)
    with pytest.raises(ValueError, match="must not occur"):
        checked_first(write)(batch, 7)
    assert batch.calls == ["persist", "count", "unpersist"]

"""Writes of micro-batches that Spark keeps in its cache meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

Write = Callable[[DataFrame, int], None]
"""A function that writes a micro-batch with its number."""


def cached(write: Write) -> Write:
    """Return a function that calls *write* with a micro-batch in Spark's cache."""

    def cache_and_write(batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            write(batch, number)
        finally:
            batch.unpersist()

    return cache_and_write


def checked_first(write: Write) -> Write:
    """
    Return a function that computes all rows of a micro-batch before it writes any.

    A row that must not occur fails the query while Spark computes it.  If tasks wrote
    their rows at the same time, some would be written before.  Rows are computed once,
    so broken expectations are counted once, however often *write* reads the rows.
    """

    def check_and_write(batch: DataFrame, number: int) -> None:
        batch.count()
        write(batch, number)

    return cached(check_and_write)

"""Starts of Spark's Python processes on a busy machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from pydanube_spark.pipelines.spark_errors import is_slow_start

if TYPE_CHECKING:
    from collections.abc import Callable

STARTS_MAX = 20


def until_started(run: Callable[[], None]) -> None:
    """Call *run* again if Spark's ten seconds for a Python process were too few."""
    for number in range(1, STARTS_MAX + 1):
        try:
            run()
        except PySparkException as error:
            # Nothing of the write is visible, or a stream goes on where it was.
            if number == STARTS_MAX or not is_slow_start(error):
                raise
        else:
            return

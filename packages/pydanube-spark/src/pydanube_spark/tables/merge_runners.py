"""
Runners for the jobs of a merge: as Spark tasks if there is much to do.

A sink commits in a Python process of the driver that Spark starts, and which has no
session.  It reaches the application through the JVM of the driver (``driver_jvm``).
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from types import TracebackType

from pydanube_spark.driver_jvm import application
from pydanube_spark.jobs import Runner, SparkRunner, ThreadRunner

log = logging.getLogger(__name__)

LOCAL_BYTES_MAX = 256 * 1024 * 1024
"""The size of files up to which jobs run in this process.

Spark tasks cost one to two seconds more of processor time than threads do, and the
first ones twelve more, for the start of their Python processes.  Comparing this much
takes about three seconds.
"""
THREADS_MAX = 8


class MergeRunners:
    """The runners of one merge; a context manager if Spark tasks are wanted."""

    def __init__(self, local_bytes_max: int = LOCAL_BYTES_MAX) -> None:
        self._local_bytes_max = local_bytes_max
        self._threads = ThreadRunner(min(THREADS_MAX, os.cpu_count() or 1))
        self._open: ExitStack | None = None
        self._spark: Runner | None = None
        self._is_tried = False

    def __enter__(self) -> MergeRunners:
        self._open = ExitStack()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._open is not None
        self._open.close()
        self._open = None

    def of(self, byte_count: int) -> Runner:
        """Return the runner of jobs that read *byte_count* in all."""
        if byte_count <= self._local_bytes_max or self._open is None:
            return self._threads
        if not self._is_tried:
            self._is_tried = True
            spark = self._open.enter_context(application())
            if spark is not None:
                self._spark = SparkRunner(spark)
        return self._spark or self._threads

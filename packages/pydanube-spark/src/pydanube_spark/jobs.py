"""
Runners of Python jobs: as Spark tasks, or in threads of this process.

A job is a small picklable value.  The picklable function that runs it reads and writes
files itself, so no data passes through the JVM.  Threads run jobs in parallel because
Arrow releases the interpreter lock while it reads, computes and writes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from pydanube.model.errors import BrokerError

T = TypeVar("T")
R = TypeVar("R")


class Runner:
    """Runs jobs in parallel."""

    width: int
    """The number of jobs that run at the same time."""

    def outcomes(
        self, jobs: Sequence[T], work: Callable[[T], R]
    ) -> Sequence[R | BrokerError]:
        """Run *work* on each of *jobs*; return results or errors, in order."""
        if not jobs:
            return []
        return self._map(jobs, partial(_return_broker_error, work))

    def run(self, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
        """
        Run *work* on each of *jobs*, and return the results in order.

        Raises:
            BrokerError: The first that *work* raised, in the order of the jobs.
        """
        return raise_first(self.outcomes(jobs, work))

    def _map(self, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
        raise NotImplementedError


class ThreadRunner(Runner):
    """
    Runs jobs in threads of this process.

    Cancellation: Jobs that have begun are finished first.
    """

    def __init__(self, width: int) -> None:
        self.width = width

    def _map(self, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
        with ThreadPoolExecutor(self.width, thread_name_prefix="job") as threads:
            return list(threads.map(work, jobs))


class SparkRunner(Runner):
    """
    Runs each job as a Spark task, with a classic or a Spark Connect session.

    Jobs, functions and results are pickled.  All results are collected in this process
    and must be small.  Spark does not retry a task that raised a BrokerError; it
    retries other failures.

    Cancellation: Interrupting a call cancels Spark's job.  Running tasks may still
        finish.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._context = _context_of(spark)
        # Spark Connect does not say how many tasks run at the same time.
        self.width = max(1, self._context.defaultParallelism) if self._context else 8

    def _map(self, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
        if self._context is None:
            return _run_by_frames(self._spark, jobs, work)
        found: list[R] = self._context.parallelize(jobs, len(jobs)).map(work).collect()
        return found


def raise_first(outcomes: Sequence[R | BrokerError]) -> list[R]:
    """Return the results in *outcomes*, or raise the first error in it."""
    results: list[R] = []
    for outcome in outcomes:
        if isinstance(outcome, BrokerError):
            raise outcome
        results.append(outcome)
    return results


def _return_broker_error(work: Callable[[T], R], job: T) -> R | BrokerError:
    # If it were raised, Spark would wrap it in an error of its own.
    try:
        return work(job)
    except BrokerError as error:
        return error


def _context_of(spark: Any) -> Any:
    """Return the session's SparkContext, or None with Spark Connect."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  # It is optional.

    try:
        return spark.sparkContext
    except (AttributeError, PySparkException):
        return None


def _run_by_frames(spark: Any, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Run *jobs* by a DataFrame with one job number in each partition."""
    pickled = [pickle.dumps(job) for job in jobs]

    def do(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415  # The task's process imports it.

        for batch in batches:
            numbers = batch.column(0).to_pylist()
            answers = [pickle.dumps(work(pickle.loads(pickled[n]))) for n in numbers]  # noqa: S301
            yield pa.RecordBatch.from_pydict(
                {"number": numbers, "answer": pa.array(answers, pa.binary())}
            )

    rows = (
        spark.range(0, len(jobs), 1, len(jobs))
        .mapInArrow(do, "number bigint, answer binary")
        .collect()
    )
    found = {row.number: bytes(row.answer) for row in rows}
    return [pickle.loads(found[number]) for number in range(len(jobs))]  # noqa: S301

"""
Python jobs that run as Spark tasks or in threads.

A job is a small picklable value.  The picklable function that runs it reads and writes
files itself, so no data passes through the JVM.  Threads run jobs in parallel because
Arrow releases the interpreter lock while it reads, computes and writes.
"""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydanube.model.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
R = TypeVar("R")


def run_jobs(spark: Any, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """
    Run *work* on each of *jobs* in a Spark task, and return the results in order.

    *spark* is a classic or a Spark Connect session.  *jobs*, *work* and the results
    are pickled.  All results are collected in this process and must be small.

    Cancellation: Interrupting the call cancels Spark's job.  Running tasks may still
        finish.

    Raises:
        BrokerError: The first that *work* raised, in the order of the jobs.  Spark
            does not retry a task that raised one; it retries other failures.
    """
    if not jobs:
        return []
    guarded: Callable[[T], R | BrokerError] = partial(_return_broker_error, work)
    context = _context_of(spark)
    if context is not None:
        answers = context.parallelize(jobs, len(jobs)).map(guarded).collect()
    else:
        answers = _run_by_frames(spark, jobs, guarded)
    return _raise_first(answers)


def run_in_threads(count: int, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """
    Run *work* on each of *jobs* in *count* threads, and return the results in order.

    Cancellation: Jobs that have begun are finished first.

    Raises:
        BrokerError: The first that *work* raised, in the order of the jobs.
    """
    with ThreadPoolExecutor(count, thread_name_prefix="job") as threads:
        answers = list(threads.map(partial(_return_broker_error, work), jobs))
    return _raise_first(answers)


def _return_broker_error(work: Callable[[T], R], job: T) -> R | BrokerError:
    # If it were raised, Spark would wrap it in an error of its own.
    try:
        return work(job)
    except BrokerError as error:
        return error


def _raise_first(answers: Sequence[R | BrokerError]) -> list[R]:
    results: list[R] = []
    for answer in answers:
        if isinstance(answer, BrokerError):
            raise answer
        results.append(answer)
    return results


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

"""
Python tasks that Spark only schedules: their bytes never pass through the JVM.

A job is a small picklable value, and what does it a picklable function, which reads
and writes files by itself.  Where there is no Spark, threads of this process do the
same; Arrow lets go of the interpreter lock while it reads, computes and writes.
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
    What *work* makes of each of *jobs*, in their order, each done by its own task.

    *spark* is a session, classic or Spark Connect's.  *jobs*, *work* and the results
    are pickled; results come together in this process, so they are small.

    Cancellation: Interrupting the call ends Spark's job; tasks that are at work may
        still finish what they do.

    Raises:
        BrokerError: The first, in the order of jobs, that *work* raised; such a task
            is not tried again, the others are as often as Spark says.
    """
    if not jobs:
        return []
    guarded: Callable[[T], R | BrokerError] = partial(_guarded, work)
    context = _context_of(spark)
    if context is not None:
        answers = context.parallelize(jobs, len(jobs)).map(guarded).collect()
    else:
        answers = _run_by_frames(spark, jobs, guarded)
    return _checked(answers)


def run_in_threads(count: int, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """
    The same in *count* threads of this process, without Spark.

    Cancellation: Jobs that have begun are finished first.
    """
    with ThreadPoolExecutor(count, thread_name_prefix="job") as threads:
        answers = list(threads.map(partial(_guarded, work), jobs))
    return _checked(answers)


def _guarded(work: Callable[[T], R], job: T) -> R | BrokerError:
    # What the caller is to be told in so many words; Spark would wrap it in its own.
    try:
        return work(job)
    except BrokerError as error:
        return error


def _checked(answers: Sequence[R | BrokerError]) -> list[R]:
    results: list[R] = []
    for answer in answers:
        if isinstance(answer, BrokerError):
            raise answer
        results.append(answer)
    return results


def _context_of(spark: Any) -> Any:
    """The session's SparkContext; None where there is none, as with Spark Connect."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  # Not all have it.

    try:
        return spark.sparkContext
    except (AttributeError, PySparkException):
        return None


def _run_by_frames(spark: Any, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """By way of a DataFrame of numbers, one a partition, for want of a context."""
    pickled = [pickle.dumps(job) for job in jobs]

    def do(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415  # In the task's process.

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

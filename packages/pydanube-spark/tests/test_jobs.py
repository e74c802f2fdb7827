"""Jobs come back in order, and what a caller should be told is raised as it is."""

import pickle
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pydanube.model.errors import CorruptSegment, InvalidRequest
from pydanube_spark.jobs import SparkRunner, ThreadRunner


def double(number):
    if number < 0:
        raise CorruptSegment(f"{number} is less than nothing")
    return 2 * number


class ClassicSpark:
    """A session whose context runs jobs where it is asked."""

    def __init__(self):
        self.segments = None
        self.sparkContext = self
        self.defaultParallelism = 3

    def parallelize(self, jobs, segments):
        self.segments = segments
        self._jobs = [pickle.loads(pickle.dumps(job)) for job in jobs]
        return self

    def map(self, work):
        answers = [work(job) for job in self._jobs]
        return SimpleNamespace(collect=lambda: answers)


class ConnectedSpark:
    """A session without a context, as Spark Connect's."""

    def range(self, start, end, step, partitions):
        assert (start, step, end) == (0, 1, partitions)
        self._numbers = list(range(end))
        return self

    def mapInArrow(self, do, schema):  # noqa: N802  # Spark's name.
        assert schema == "number bigint, answer binary"
        # Rows come in any order and in several batches.
        batches = [
            pa.RecordBatch.from_pydict({"id": [number]})
            for number in reversed(self._numbers)
        ]
        rows = [row for batch in do(iter(batches)) for row in batch.to_pylist()]
        return SimpleNamespace(collect=lambda: [SimpleNamespace(**row) for row in rows])


@pytest.mark.parametrize("make", [ClassicSpark, ConnectedSpark])
def test_results_are_in_the_order_of_jobs(make):
    runner = SparkRunner(make())
    assert runner.run([3, 1, 2], double) == [6, 2, 4]
    assert runner.run([], double) == []


def test_each_job_is_a_task_of_its_own():
    spark = ClassicSpark()
    SparkRunner(spark).run([1, 2, 3], double)
    assert spark.segments == 3


def test_width_of_spark_is_its_parallelism():
    assert SparkRunner(ClassicSpark()).width == 3
    assert SparkRunner(ConnectedSpark()).width == 8


def test_other_results_are_returned_beside_errors():
    first, second = ThreadRunner(2).outcomes([-1, 1], double)
    assert isinstance(first, CorruptSegment)
    assert second == 2


def test_threads_run_jobs_without_spark():
    assert ThreadRunner(2).run(list(range(20)), double) == [2 * n for n in range(20)]


@pytest.mark.parametrize("make", [ClassicSpark, ConnectedSpark])
def test_first_broker_error_is_raised_unchanged(make):
    with pytest.raises(CorruptSegment, match="-2 is less"):
        SparkRunner(make()).run([1, -2, -3], double)
    with pytest.raises(CorruptSegment, match="-1 is less"):
        ThreadRunner(2).run([1, -1], double)


def test_other_errors_are_retried_by_spark():
    def fail(job):
        raise OSError(job)

    with pytest.raises(OSError, match="1"):
        SparkRunner(ClassicSpark()).run([1], fail)
    with pytest.raises(OSError, match="1"):
        ThreadRunner(1).run([1], fail)


def test_results_may_be_any_value():
    assert ThreadRunner(1).run([None], lambda job: [job]) == [[None]]
    assert issubclass(InvalidRequest, Exception)

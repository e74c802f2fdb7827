"""Tests of the writes of single micro-batches."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from pydanube.declarations.pure.sections import Retries
from pydanube.model.errors import InvalidConfig
from pydanube_spark.pipelines.pure.progress import QueryState
from pydanube_spark.pipelines.pure.spec import Mode, Sink, SparkSection
from pydanube_spark.pipelines.queries import TableWrite, batch_writer, may_repeat


class WriterSpy:
    """A DataFrame and its writer, which record what would be written."""

    def __init__(self):
        self.saves = []
        self._call = {}

    @property
    def write(self):
        self._call = {}
        return self

    def format(self, name):
        self._call["format"] = name
        return self

    def mode(self, mode):
        self._call["mode"] = mode
        return self

    def options(self, **options):
        self._call["options"] = options
        return self

    def save(self):
        self.saves.append(self._call)


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "metadata").write_text(json.dumps({"id": "the-query"}))
    return tmp_path


@pytest.fixture
def spy():
    return WriterSpy()


def test_whole_aggregate_replaces_the_rows_of_a_jdbc_table(spy, checkpoint):
    write = batch_writer("jdbc", Mode.COMPLETE, {"dbtable": "t"}, checkpoint)
    write(spy, 0)
    write(spy, 1)
    save = {
        "format": "jdbc",
        "mode": "overwrite",
        "options": {"dbtable": "t", "truncate": "true"},
    }
    assert spy.saves == [save, save]


def test_truncation_of_a_jdbc_table_can_be_turned_off(spy, checkpoint):
    batch_writer("jdbc", Mode.COMPLETE, {"Truncate": "false"}, checkpoint)(spy, 0)
    assert spy.saves[0]["options"] == {"Truncate": "false"}


def test_appended_rows_of_jdbc_are_added(spy, checkpoint):
    batch_writer("jdbc", Mode.APPEND, {"dbtable": "t"}, checkpoint)(spy, 0)
    assert spy.saves[0] == {
        "format": "jdbc",
        "mode": "append",
        "options": {"dbtable": "t"},
    }


def test_updates_have_the_number_of_their_batch(spy, checkpoint):
    options = {"table": "t", "keyColumns": "k"}
    batch_writer("danube-postgres", Mode.UPDATE, options, checkpoint)(spy, 7)
    assert spy.saves[0]["mode"] == "append"
    assert spy.saves[0]["options"] == options | {"batchId": "7", "appId": "the-query"}


@pytest.mark.parametrize("name", ["danube-delta", "danube-postgres", "jdbc"])
def test_updates_without_a_key_are_refused_before_the_first_batch(name, checkpoint):
    with pytest.raises(InvalidConfig, match="beside the old ones"):
        batch_writer(name, Mode.UPDATE, {"table": "t"}, checkpoint)


class Frame:
    """A DataFrame without rows, for functions that ignore it."""

    def __init__(self):
        self.sparkSession = self

    def createDataFrame(self, rows, schema):  # noqa: N802
        """A write sets the session of its thread with this."""


def query_of(function):
    """A query that calls *function*."""
    return SimpleNamespace(
        name="out",
        writes_to="it",
        sink=Sink(python="f.py:g"),
        frame=Frame(),
        options={},
        function=function,
        checked_steps=(),
        observations={},
    )


def write_with(function, tmp_path, spark=None, evolve=lambda *_: None):
    """A write that calls *function*, with two retries."""
    pipeline = SimpleNamespace(
        state=SimpleNamespace(checkpoints=tmp_path),
        spec=SimpleNamespace(
            retries=Retries(count=2, backoff="1s"), spark=spark or SparkSection()
        ),
        redact=str,
    )
    return TableWrite(query_of(function), pipeline, evolve)


def state_after(write, now):
    """The state of *write* as soon as it does not run any more."""
    write.poll(now)
    while write.progress.state is QueryState.RUNNING:
        write.poll(now)
    return write.progress.state


def broken(frame, number):
    raise ValueError("broken")


def test_failed_table_write_is_repeated_after_its_delay(tmp_path):
    calls = []

    def fail_once(frame, number):
        calls.append(number)
        if len(calls) == 1:
            broken(frame, number)

    write = write_with(fail_once, tmp_path)
    write.start()
    assert state_after(write, 10.0) is QueryState.RETRYING
    assert write.progress.error == "broken"
    assert state_after(write, 10.9) is QueryState.RETRYING
    assert state_after(write, 11.0) is QueryState.DONE
    assert calls == [0, 0]


def test_table_write_fails_without_retries_left_and_after_a_stop_request(tmp_path):
    write = write_with(broken, tmp_path)
    write.start()
    states = [state_after(write, now) for now in (0.0, 1.0, 3.0)]
    assert states == [QueryState.RETRYING, QueryState.RETRYING, QueryState.FAILED]
    stopped = write_with(broken, tmp_path)
    stopped.start()
    stopped.request_stop()
    assert state_after(stopped, 0.0) is QueryState.FAILED


def test_slow_starts_of_workers_use_up_no_retries(tmp_path):
    errors = [RuntimeError("Python worker failed to connect back.")] * 5
    errors += [ValueError("broken")] * 2

    def fail(frame, number):
        if errors:
            raise errors.pop(0)

    write, now = write_with(fail, tmp_path), 0.0
    write.start()
    for delay in (5, 10, 20, 40, 80, 1, 2):
        assert state_after(write, now) is QueryState.RETRYING
        left = len(errors)
        assert state_after(write, now + delay - 0.5) is QueryState.RETRYING
        assert len(errors) == left, "it was retried early"
        now += delay
    assert state_after(write, now) is QueryState.DONE


def test_a_file_says_how_often_slow_starts_are_retried(tmp_path):
    def fail(frame, number):
        raise RuntimeError("Python worker failed to connect back.")

    slow_starts = Retries(count=1, backoff="3s")
    write = write_with(fail, tmp_path, spark=SparkSection(slow_starts=slow_starts))
    write.start()
    assert state_after(write, 0.0) is QueryState.RETRYING
    assert state_after(write, 2.5) is QueryState.RETRYING
    assert state_after(write, 3.0) is QueryState.FAILED


@pytest.mark.parametrize(
    ("sink", "may"),
    [
        (Sink(format="danube-delta"), True),
        (Sink(topic="/default/a"), True),
        (Sink(python="f.py:g"), True),
        (Sink(format="parquet", mode=Mode.OVERWRITE), True),
        (Sink(format="parquet"), False),
        (Sink(format="jdbc"), False),
    ],
)
def test_write_that_could_leave_a_part_is_not_repeated(sink, may):
    assert may_repeat(sink) is may


def test_new_columns_that_do_not_help_are_an_error_like_others(tmp_path):
    evolved = []

    def evolve(name, error):
        evolved.append(str(error))
        return query_of(broken)

    write, now = write_with(broken, tmp_path, evolve=evolve), 0.0
    write.start()
    # The first start with the columns comes at once and is no retry.
    assert state_after(write, now) is QueryState.RETRYING
    assert write.progress.failures == 0
    states = [state_after(write, now) for now in (0.0, 1.0, 3.0)]
    assert states == [QueryState.RETRYING, QueryState.RETRYING, QueryState.FAILED]
    assert evolved == ["broken"]

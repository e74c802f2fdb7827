"""Tests of starts, and of leftovers of earlier runs."""

import os
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError

from pydanube.model.errors import Conflict
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.pure.progress import RunState
from pydanube_spark.pipelines.running import (
    LEFTOVER_WAIT_S,
    START_WAIT_MAX_S,
    PipelineRun,
    StaggeredStart,
    new_status,
    wait_for_leftover,
)
from pydanube_spark.pipelines.state import StateDirectory, process_start_time


@pytest.fixture
def state(tmp_path):
    return StateDirectory(tmp_path)


@pytest.fixture
def pipeline(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: p\nsources: {a: {topic: /default/a}}\n"
        "sinks: {o: {input: a, format: noop}}\n"
    )
    return load(path)


@pytest.fixture
def status(pipeline):
    return new_status(pipeline)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


def wait(state):
    clock = Clock()
    wait_for_leftover(state, clock=clock, wait=clock.wait)
    return clock.now


def test_no_wait_without_earlier_run(state):
    assert wait(state) == 0


def test_run_waits_for_spark_of_killed_run(state, status):
    mark = process_start_time(os.getpid())
    if mark is None:
        pytest.skip("this system does not tell")
    status.jvm = (os.getpid(), "another process of this number")
    state.write_status(status)
    assert wait(state) == 0
    status.jvm = (os.getpid(), mark)
    status.state = RunState.STOPPED
    state.write_status(status)
    assert wait(state) == 0
    status.state = RunState.RUNNING
    state.write_status(status)
    with pytest.raises(Conflict, match=f"still running after {LEFTOVER_WAIT_S:.0f} s"):
        wait(state)


class LostJava:
    """The Java side of a session that has ended."""

    def sc(self):
        raise Py4JError("Answer from Java side is empty")


def test_a_run_does_not_fail_because_its_cost_is_not_known(pipeline):
    session = SimpleNamespace(_sc=SimpleNamespace(_jsc=LostJava()))
    assert PipelineRun(session, pipeline, None).cost is None


def test_status_names_tables_that_are_not_mirrored_any_more(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(
        "name: m\nmirrors:\n  shop:\n    topic: /shop/{table}\n"
        "    tables: {'*': {key: id}}\n    format: danube-delta\n"
        "    path: '{table}'\n"
    )
    pipeline = load(path, tables={"shop": ["a"]})
    assert new_status(pipeline).not_mirrored == []
    for name in ("shop_a", "shop_b", "shop_b.dead_letters", "others"):
        (pipeline.state.checkpoints / name).mkdir(parents=True)
    assert new_status(pipeline).not_mirrored == ["shop_b"]
    path.write_text(path.read_text() + "    exclude: [b]\n")
    excluding = load(path, tables={"shop": ["a"]})
    assert new_status(excluding).not_mirrored == []


class SlowQuery:
    """A query that starts until it is told that it has."""

    def __init__(self):
        self.state = "waiting"

    @property
    def is_starting(self):
        return self.state == "starting"

    def start(self):
        self.state = "starting"

    def stop(self):
        self.state = "stopped"


def test_query_starts_when_the_one_before_has_started_or_takes_too_long():
    queries = [SlowQuery() for _ in range(4)]
    start = StaggeredStart(queries)

    def states(now):
        start.poll(now)
        return [each.state for each in queries]

    assert states(0.0) == ["starting", "waiting", "waiting", "waiting"]
    assert states(1.0) == ["starting", "waiting", "waiting", "waiting"]
    queries[0].state = "running"
    assert states(2.0) == ["running", "starting", "waiting", "waiting"]
    late = 2.0 + START_WAIT_MAX_S
    assert states(late - 0.1) == ["running", "starting", "waiting", "waiting"]
    assert states(late) == ["running", "starting", "starting", "waiting"]
    start.cancel()
    assert states(100.0) == ["running", "starting", "starting", "stopped"]


def test_a_query_is_retried_when_no_other_one_is_starting():
    first, second = SlowQuery(), SlowQuery()
    start = StaggeredStart([first])
    assert not start.admits(second, 0.0)
    start.poll(0.0)
    assert not start.admits(second, 1.0)
    first.state = "running"
    assert start.admits(second, 2.0)
    second.start()
    assert not start.admits(first, 3.0)
    assert start.admits(first, 2.0 + START_WAIT_MAX_S)

"""Tests of signals and of leftovers of earlier runs."""

import os
import signal

import pytest

pytest.importorskip("pyspark")

from pydanube.model.errors import Conflict
from pydanube.pipelines.loading import load
from pydanube.pipelines.progress import RunState
from pydanube.pipelines.running import (
    LEFTOVER_WAIT_S,
    StopRequest,
    new_status,
    signals_to,
    wait_for_leftover,
)
from pydanube.pipelines.state import StateDirectory, process_start_time


@pytest.fixture
def state(tmp_path):
    return StateDirectory(tmp_path)


@pytest.fixture
def status(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: p\nsources: {a: {topic: /default/a}}\n"
        "sinks: {o: {input: a, format: noop}}\n"
    )
    return new_status(load(path))


def test_second_signal_stops_immediately():
    stop_request = StopRequest()
    before = signal.getsignal(signal.SIGTERM)
    with signals_to(stop_request):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop_request.number == signal.SIGTERM
        assert not stop_request.is_immediate
        os.kill(os.getpid(), signal.SIGINT)
        assert stop_request.number == signal.SIGTERM
        assert stop_request.is_immediate
    assert signal.getsignal(signal.SIGTERM) is before


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

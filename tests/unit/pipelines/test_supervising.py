"""Tests of runs that start processes again, with processes that end when told."""

import signal
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cronsim")

from pydanube.model.retry import RetryPolicy
from pydanube.pipelines.restarts import RestartRules
from pydanube.pipelines.run_records import Phase, RunRecord
from pydanube.pipelines.schedules import parse_schedule
from pydanube.pipelines.state import StateDirectory
from pydanube.pipelines.stop_requests import StopRequest
from pydanube.pipelines.supervising import Supervisor


class Process:
    """A process that runs for some seconds of the clock of the test."""

    pid = 77

    def __init__(self, world, code, seconds):
        self._world = world
        self._code = code
        self._ends_at = world.now + timedelta(seconds=seconds)
        self._is_killed = False

    def poll(self):
        if self._is_killed:
            return -signal.SIGKILL
        is_asked = self._code is None and self._world.state.is_stop_requested()
        is_over = self._world.now >= self._ends_at
        return (self._code or 0) if is_asked or is_over else None

    def kill(self):
        self._is_killed = True


class World:
    """The time, and the processes of a run."""

    def __init__(self, path, rules, *processes):
        self.now = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
        self.state = StateDirectory(path)
        self.path = path
        self.signals = StopRequest()
        self.said = []
        self.events = {}
        self.starts = []
        self._processes = iter(processes)
        self.record = RunRecord(
            pipeline="p", file="f", pid=1, mark="m", host="h", since="s", log_file="l"
        )
        self._supervisor = Supervisor(
            self.state,
            self.record,
            rules,
            self.start,
            stop_request=self.signals,
            say=self.said.append,
            clock=lambda: self.now,
            wait=self.wait,
        )

    def start(self):
        self.starts.append(f"{self.now:%H:%M:%S}")
        return Process(self, *next(self._processes))

    def wait(self, _):
        self.now += timedelta(seconds=1)
        for at in [each for each in self.events if self.now >= each]:
            self.events.pop(at)()

    def at(self, seconds, event):
        self.events[self.now + timedelta(seconds=seconds)] = event

    def run(self):
        self.path.mkdir(parents=True, exist_ok=True)
        return self._supervisor.run()


POLICY = RetryPolicy(10.0, 60.0, 2)
RESTARTED = RestartRules(policy=POLICY, reset_after_s=600.0)
HOURLY = RestartRules(policy=POLICY, schedule=parse_schedule("0 * * * *", "UTC"))


def test_a_failed_process_is_restarted_until_it_succeeds(tmp_path):
    world = World(tmp_path, RESTARTED, (1, 5), (-9, 5), (0, 5))
    assert world.run() == 0
    assert world.starts == ["00:30:00", "00:30:15", "00:30:40"]
    stored = world.state.read_record()
    assert (stored.starts, stored.restarts, stored.failures_in_a_row) == (3, 2, 0)
    assert stored.last_success == "2026-01-01T00:30:45+00:00"
    assert "p: process 77 was killed by SIGKILL" in world.said


def test_restarts_end_after_the_last_one_allowed(tmp_path):
    world = World(tmp_path, RESTARTED, (1, 5), (1, 5), (1, 5))
    assert world.run() == 1
    assert len(world.starts) == 3
    assert world.record.exit_code == 1


def test_an_invalid_file_is_not_run_again(tmp_path):
    world = World(tmp_path, RESTARTED, (2, 5))
    assert world.run() == 2
    assert world.record.restarts == 0


def test_scheduled_times_during_a_run_are_skipped_and_counted(tmp_path):
    world = World(tmp_path, HOURLY, (0, 2 * 3600 + 60), (None, 10_000_000))
    world.at(4 * 3600, world.state.request_stop)
    tmp_path.mkdir(exist_ok=True)
    assert world.run() == 0
    assert world.starts == ["01:00:00", "04:00:00"]
    assert world.record.skipped == 2
    assert any("skipped 2 times" in each for each in world.said)


@pytest.mark.parametrize("is_signal", [True, False])
def test_a_stop_ends_a_wait(tmp_path, is_signal):
    world = World(tmp_path, HOURLY)

    def stop():
        assert world.state.read_record().phase is Phase.SCHEDULED
        assert world.state.read_record().next_start == "2026-01-01T01:00:00+00:00"
        if is_signal:
            world.signals.on_signal(signal.SIGTERM)
        else:
            world.state.request_stop()

    world.at(60, stop)
    assert world.run() == (143 if is_signal else 0)
    assert world.starts == []


def test_the_first_signal_asks_the_process_to_stop(tmp_path):
    world = World(tmp_path, RESTARTED, (None, 10_000_000))
    world.at(60, lambda: world.signals.on_signal(signal.SIGINT))
    assert world.run() == 130
    assert world.record.exit_code == 0


def test_the_second_signal_kills_the_process(tmp_path):
    world = World(tmp_path, RESTARTED, (1, 10_000_000))
    world.at(60, lambda: world.signals.on_signal(signal.SIGINT))
    world.at(70, lambda: world.signals.on_signal(signal.SIGINT))
    assert world.run() == 130
    assert world.record.exit_code == -signal.SIGKILL
    assert len(world.starts) == 1

"""Processes with connectors are asked, and found again."""

from copy import copy

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import Unavailable
from pydanube_connect.status import ConnectorStatus, State
from pydanube_console.connector_monitor import ConnectorMonitor, ProcessMonitor


class Process:
    """A process with one connector."""

    def __init__(self, url="http://a", token="sesame"):
        self.url, self.token = url, token
        self.status = ConnectorStatus(
            connector="orders", kind="kafka-source", topic="/d/t"
        )
        self.is_silent = False

    def statuses(self):
        if self.is_silent:
            raise Unavailable(f"{self.url} does not answer")
        return [copy(self.status)]

    def act(self, action, name):
        assert (action, name) == ("pause", "orders")
        self.status.state = State.PAUSED
        return self.status


async def test_rates_are_those_between_two_answers():
    now = 0.0
    process = Process()
    monitor = ProcessMonitor(process, clock=lambda: now)
    await monitor.attempt()
    now, process.status.messages = 2.0, 100
    await monitor.attempt()
    # The process was started again.
    now, process.status.messages = 4.0, 7
    await monitor.attempt()
    watched = monitor.connectors["orders"]
    assert (list(watched.rates), watched.status.messages) == ([50.0, 0.0], 7)


async def test_last_status_of_a_silent_process_is_kept():
    process = Process()
    monitor = ProcessMonitor(process)
    await monitor.attempt()
    process.is_silent = True
    await monitor.attempt()
    assert monitor.error == "http://a does not answer"
    assert list(monitor.connectors) == ["orders"]


async def test_change_is_shown_at_once():
    monitor = ProcessMonitor(Process())
    await monitor.act("pause", "orders")
    assert monitor.connectors["orders"].status.state is State.PAUSED


async def test_processes_begin_and_end():
    first, second = Process("http://a"), Process("http://b")
    first.is_silent = True
    found = [first, second]
    async with task_scope() as tasks:
        monitor = ConnectorMonitor(lambda: list(found), tasks)
        tasks.run(monitor.run())
        silent, other = await monitor.answers()
        assert (silent.error, list(other.connectors)) == (
            "http://a does not answer",
            ["orders"],
        )
        found[:] = [Process("http://b", "another token")]
        await monitor.attempt()
        [kept] = await monitor.answers()
        assert kept is other
        assert kept.process.token == "another token"
        found.clear()
        await monitor.attempt()
        assert await monitor.answers() == []
        assert monitor.is_given


async def test_console_may_be_given_no_processes():
    async with task_scope() as tasks:
        monitor = ConnectorMonitor(None, tasks)
        await monitor.attempt()
        assert not monitor.is_given
        assert monitor.processes == {}

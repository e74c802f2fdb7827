"""Connectors can be paused, resumed and restarted while others run."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import pydanube
from pydanube.aio.tasks import task_scope
from pydanube.otel import OpenTelemetry
from pydanube_connect.running import ConnectorRuns
from pydanube_connect.status import State
from support.drivers.connectors import declared
from support.worlds.current import memory_broker

FILE = """
connectors:
  numbers: {kind: generator-source, topic: /default/numbers, options: {rate: 2000}}
  few: {kind: generator-source, topic: /default/few, options: {count: 3}}
"""
TIMEOUT_S = 30


class Steered:
    """The connectors, and what they have reported."""

    def __init__(self, connectors):
        self.runs = ConnectorRuns(connectors, self._report, interval_s=0.01)
        self.stop = asyncio.Event()
        self.states = {each.name: [] for each in connectors}
        self._changed = asyncio.Event()

    def _report(self, status):
        if self.states[status.connector][-1:] != [status.state]:
            self.states[status.connector].append(status.state)
        self._changed.set()

    def status(self, name="numbers"):
        return next(each for each in self.runs.statuses if each.connector == name)

    async def until(self, condition):
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def steered():
    async with memory_broker() as broker:
        steering = Steered(declared(FILE, broker.url))
        async with task_scope() as tasks:
            running = tasks.start(steering.runs.run(steering.stop))
            yield steering, broker
            steering.stop.set()
            await running


async def test_a_paused_connector_continues_where_it_stopped():
    async with steered() as (steering, broker):
        await steering.until(lambda: steering.status().messages > 0)
        steering.runs.pause("numbers")
        await steering.until(lambda: steering.status().state is State.PAUSED)
        paused_at = steering.status().messages
        steering.runs.resume("numbers")
        await steering.until(lambda: steering.status().messages > paused_at)
        steering.runs.restart("numbers")
        restarted_at = steering.status().messages
        await steering.until(lambda: steering.status().messages > restarted_at)
        steering.stop.set()
        await steering.until(lambda: steering.status().state is State.STOPPED)
        async with pydanube.connect(broker.url) as client:
            numbers = [
                json.loads(each)["number"]
                async for batch in client.read("/default/numbers")
                for each in batch.payloads
            ]
    assert numbers == list(range(steering.status().messages))
    assert State.PAUSED in steering.states["numbers"]


async def test_a_connector_that_has_ended_can_be_restarted_only():
    async with steered() as (steering, _):
        few = steering.states["few"]
        await steering.until(lambda: few[-1:] == [State.FINISHED])
        for action in (steering.runs.pause, steering.runs.resume):
            with pytest.raises(pydanube.Conflict, match="danube connect restart few"):
                action("few")
        steering.runs.restart("few")
        await steering.until(lambda: few.count(State.FINISHED) == 2)
    assert steering.status("few").messages == 3


async def test_a_paused_connector_can_be_stopped():
    async with steered() as (steering, _):
        steering.runs.pause("numbers")
        await steering.until(lambda: steering.status().state is State.PAUSED)
    assert steering.status().state is State.STOPPED


async def test_an_unknown_name_is_reported_with_a_similar_one():
    async with steered() as (steering, _):
        with pytest.raises(pydanube.NotFound, match="did you mean 'numbers'"):
            steering.runs.pause("number")


OWN = '''
from pydanube_connect import Sink


class Discard(Sink):
    """Accepts everything."""

    async def write(self, messages):
        pass
'''
TRACED = """
connectors:
  few: {kind: generator-source, topic: /default/few, options: {count: 3}}
  out: {kind: "own.py:Discard", topic: /default/few, start: earliest}
"""


async def test_batches_are_traced_from_the_source_to_the_sink(tmp_path):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    (tmp_path / "own.py").write_text(OWN)
    stop = asyncio.Event()

    def report(status):
        if status.connector == "out" and status.messages == 3:
            stop.set()

    async with memory_broker() as broker, asyncio.timeout(TIMEOUT_S):
        runs = ConnectorRuns(
            declared(TRACED, broker.url, tmp_path),
            report,
            interval_s=0.01,
            telemetry=OpenTelemetry(tracer_provider=provider),
        )
        await runs.run(stop)
    sent, written = [], []
    for span in exporter.get_finished_spans():
        (sent if span.name == "send /default/few" else written).append(span)
    assert {each.name for each in written} == {"process /default/few"}
    links = {link.context.span_id for each in written for link in each.links}
    assert links == {each.context.span_id for each in sent}
    assert sum(each.attributes["messaging.batch.message_count"] for each in sent) == 3

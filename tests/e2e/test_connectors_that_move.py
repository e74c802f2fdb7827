"""Connectors lose and repeat nothing while their topics move in a cluster."""

from __future__ import annotations

import sys
from itertools import count

import pytest

import pydanube
from pydanube.model.names import TopicName
from pydanube_broker.cluster.pure.shard_topics import shard_of
from support.drivers.connectors import declared, running
from support.fakes.broker_clusters import SHARDS
from support.fakes.guarded_clusters import eventually
from support.fakes.served_clusters import ServedCluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

QUARTER = 30
OWN = f'''
import asyncio
from pydanube_connect import Batch, Record, Sink, Source

WRITTEN = []
HAS_MOVED = [asyncio.Event() for _ in range(3)]


class Numbers(Source):
    """Counts; after each quarter it waits until its topic has moved."""

    async def batches(self, position):
        for number in range(position or 0, {4 * QUARTER}):
            if number and number % {QUARTER} == 0:
                await HAS_MOVED[number // {QUARTER} - 1].wait()
            yield Batch([Record(value=str(number))], position=number + 1)


class Collect(Sink):
    """Keeps what it is given."""

    async def write(self, messages):
        WRITTEN.extend(int(each.payload) for each in messages)
'''


async def test_source_and_sink_follow_their_topic(tmp_path):
    (tmp_path / "moving.py").write_text(OWN)
    async with (
        ServedCluster().running("a", "b") as cluster,
        pydanube.connect("danube://a,b") as client,
    ):
        topic = next(
            name
            for number in count()
            if cluster.owner_of(
                shard_of(TopicName.parse(name := f"/default/t{number}"), SHARDS)
            )
            == "a"
        )
        text = f"""
connectors:
  numbers: {{kind: "moving.py:Numbers", topic: {topic}, retries: {{backoff: 1ms}}}}
  out: {{kind: "moving.py:Collect", topic: {topic}, retries: {{backoff: 1ms}}}}
"""
        connectors = declared(text, "danube://a,b", tmp_path)
        module = sys.modules[connectors[0].kind.__module__]

        async def is_acknowledged():
            facts = await client.subscriptions.describe(topic, "out")
            return facts.backlog == 0

        async with running(connectors) as until:
            for at, broker in enumerate(("a", "b", "a")):
                published = QUARTER * (at + 1)
                await until(lambda all_, n=published: all_["out"].messages >= n)
                await cluster.drain(broker)
                await cluster.activate(broker)
                module.HAS_MOVED[at].set()
            await until(lambda all_: all_["numbers"].state.is_over)
            found = [int(m.payload) async for b in client.read(topic) for m in b]
            assert found == list(range(4 * QUARTER))
            await until(lambda _: set(module.WRITTEN) == set(found))
            await eventually(is_acknowledged)
        assert list(dict.fromkeys(module.WRITTEN)) == found
        assert cluster.connects.count("b") > 0

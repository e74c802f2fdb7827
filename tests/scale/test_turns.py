"""
Work on many topics and subscriptions lets other tasks run.

Each test counts the lines that are executed in one turn of the event loop, with many
things and with four times as many.  Work that holds the loop until it is done would
make the longest turn four times as long.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.names import NamespaceName, SubscriptionName, TopicName
from pydanube.model.policy import Start, SubscriptionType
from pydanube.wire.pb import danube_admin_pb2 as admin_pb
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.topic_lists import visible_findings
from pydanube_broker.servers.grpc.admin import NamespaceAdmin, TopicAdmin
from pydanube_broker.servers.http.app import BrokerState, make_app
from pydanube_broker.servers.http.iceberg import _table_names
from pydanube_broker.testing import memory_broker
from pydanube_kafka.calls import Call
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.connection import KafkaConnection
from pydanube_kafka.naming import metadata
from pydanube_kafka.server import open_kafka_server
from pydanube_kafka.wire.apis import Api, is_long, parse_request
from support.drivers.kafka_requests import request_bytes
from support.fakes.brokers import A_TOPIC, RELIABLE
from support.fakes.listener_parts import listener_parts
from support.fakes.steps import assert_constant, counting_steps

SMALL, LARGE = 400, 1600


async def longest_turn(work):
    """Return the most lines that one turn of the loop executes while *work* runs."""
    longest = 0
    with counting_steps() as steps:

        async def watch():
            nonlocal longest
            before = steps.count
            while True:
                await asyncio.sleep(0)
                longest = max(longest, steps.count - before)
                before = steps.count

        async with task_scope() as tasks:
            tasks.run(watch())
            await asyncio.sleep(0)
            await work
            # The turn in which it ended is over.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            tasks.cancel()
    return longest


async def list_natively(memory):
    async with memory.connect() as client:
        asked = pb.ListTopics(has_places=True)
        assert len((await client.requester.send_request(asked)).topics) >= SMALL


async def list_topics_over_grpc(memory):
    admin = TopicAdmin(memory.broker, "7")
    request = admin_pb.NamespaceRequest(name="default")
    answer = await admin.list_namespace_topics(request)
    assert len(admin_pb.TopicInfoListResponse.FromString(answer).topics) >= SMALL


async def list_names_over_grpc(memory):
    admin = NamespaceAdmin(memory.broker)
    request = admin_pb.NamespaceRequest(name="default")
    answer = await admin.get_namespace_topics(request)
    assert len(admin_pb.TopicListResponse.FromString(answer).topics) >= SMALL


async def list_tables(memory):
    assert len(await _table_names(memory.broker, NamespaceName("default"))) >= SMALL


async def get(memory, path):
    state = BrokerState(series_max=SMALL // 4)
    state.on_serving(memory.broker, memory.server, ())
    transport = httpx.ASGITransport(make_app(state))
    async with httpx.AsyncClient(transport=transport, base_url="http://a") as http:
        found = await http.get(path)
    assert found.status_code == 200
    return found


async def list_over_http(memory):
    assert len((await get(memory, "/api/v1/list_topics")).json()["topics"]) >= SMALL


async def list_for_kafka(memory):
    parts = listener_parts(memory.broker, "kafka")
    async with open_kafka_server(KafkaConfig(port=0), parts) as server:
        data = request_bytes(Api.METADATA, 4, topics=None)
        request = parse_request(data)
        call = Call(server, KafkaConnection(server), request, 0.0)
        answer = await (await metadata(call))
        assert len(answer.topics) >= SMALL
        # It is encoded in a thread.
        assert is_long(answer)
        assert not is_long(replace(answer, topics=answer.topics[:9]))


async def find_problems(memory):
    assert (await visible_findings(memory.broker, 10)).topic_count >= SMALL


async def apply_retention(memory):
    assert await memory.broker.topics.find_idle_drops() == set()


async def scrape(memory):
    found = await get(memory, "/metrics")
    assert f"danube_topics {len(memory.broker.topics.opened)}" in found.text


async def with_topics(memory, count):
    for number in range(count):
        await memory.broker.topics.create(
            TopicName.parse(f"/default/t-{number}"), RELIABLE
        )


async def with_subscriptions(memory, count):
    await memory.broker.topics.create(A_TOPIC, RELIABLE)
    for number in range(count):
        await memory.broker.subscriptions.open(
            *(A_TOPIC, SubscriptionName(f"s-{number}")),
            *(SubscriptionType.SHARED, Start.LATEST),
        )


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("make", "work"),
    [
        (with_topics, scrape),
        (with_subscriptions, scrape),
        (with_topics, list_natively),
        (with_topics, list_topics_over_grpc),
        (with_topics, list_names_over_grpc),
        (with_topics, list_over_http),
        (with_topics, list_tables),
        (with_topics, list_for_kafka),
        (with_topics, find_problems),
        (with_topics, apply_retention),
    ],
)
async def test_turn_of_the_loop_is_not_longer_with_more_things(make, work):
    longest = []
    for count in (SMALL, LARGE):
        async with memory_broker() as memory:
            await make(memory, count)
            # Modules are imported by the first request.
            await work(memory)
            longest.append(await longest_turn(work(memory)))
    assert_constant(*longest, what="a turn")

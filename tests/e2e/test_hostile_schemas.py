"""Schemas and payloads that try to stop a broker or a client."""

from __future__ import annotations

import asyncio

import psutil
import pytest

import pydanube
from pydanube import Schema
from pydanube.client.producers.typed_producer import TypedProducer
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube.wire.pb import schema_registry_pb2 as registry_pb
from support.drivers.danube_calls import DanubeCalls
from support.fakes.grpc_calls import connected
from support.fakes.hostile_schemas import hostile_schemas
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SEND = "danube.ProducerService/SendMessage"
GROWTH_BYTES_MAX = 300 * 1024 * 1024
"""The maximum growth of the broker's memory in a test."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        before = psutil.Process(process.pid).memory_info().rss
        pid = process.pid
        yield process
        assert process.pid == pid
        after = psutil.Process(pid).memory_info().rss
        assert after - before < GROWTH_BYTES_MAX
        assert process.stop() == 0


def names_of(index, prefix):
    return f"{prefix}-{index}", f"/default/{prefix}-{index}"


def test_the_native_client_registers_publishes_and_decodes(broker):
    async def use(client, index, hostile):
        subject, topic = names_of(index, "native")
        schema = Schema(hostile.type, hostile.definition)
        if hostile.is_refused:
            with pytest.raises(pydanube.InvalidSchema):
                await client.schemas.register(subject, schema)
            return
        await client.schemas.register(subject, schema)
        await client.topics.create(topic)
        await client.topics.configure(
            topic,
            schema=pydanube.TopicSchema(
                subject=subject,
                policy=pydanube.SchemaPolicy.ENFORCE,
                validates_payload=True,
            ),
        )
        assert await are_taken(client, topic, subject, hostile) is not hostile.is_bad
        # Without validation the payloads reach consumers.
        await client.topics.configure(
            topic,
            schema=pydanube.TopicSchema(
                subject=subject, policy=pydanube.SchemaPolicy.NONE
            ),
        )
        assert await are_taken(client, topic, subject, hostile)
        async with client.consumer(
            topic, subscription="s", start="earliest"
        ) as consumer:
            for _ in hostile.payloads:
                message = await consumer.receive(timeout_s=60)
                assert message.payload in hostile.payloads
                decodes(message)
                await consumer.ack(message)

    async def are_taken(client, topic, subject, hostile):
        """Return whether all payloads were accepted, or none."""
        taken = []
        for payload in hostile.payloads:
            async with client.producer(topic, subject=subject) as typed:
                raw = TypedProducer(typed._producer, list, typed.schema)
                try:
                    await raw.send(payload)
                    taken.append(True)
                except pydanube.InvalidPayload:
                    taken.append(False)
        assert len(set(taken)) == 1, (hostile.name, taken)
        return taken[0]

    def decodes(message):
        try:
            repr(message.value)
        except (pydanube.InvalidPayload, RecursionError):
            # A value may be nested too deeply for Python to show it.
            return

    async def run():
        async with pydanube.connect(broker.url) as client:
            for index, hostile in enumerate(hostile_schemas()):
                await use(client, index, hostile)

    asyncio.run(run())


def test_grpc_clients_register_and_publish(broker):
    async def use(calls, index, hostile):
        subject, topic = names_of(index, "grpc")
        call = calls.call
        request = registry_pb.RegisterSchemaRequest(
            subject=subject,
            schema_type=hostile.type.value,
            schema_definition=hostile.definition.encode(),
        )
        method = "danube_schema.SchemaRegistry/RegisterSchema"
        if hostile.is_refused:
            status, _ = await call.refusal(method, request)
            assert status == "INVALID_ARGUMENT"
            return
        await call(method, request)
        await calls.create_producer(
            "p", topic, schema_ref=pb.SchemaReference(subject=subject, use_latest=True)
        )
        async with connected(broker.admin_port) as admin:
            await admin(
                "danube_schema.SchemaRegistry/ConfigureTopicSchema",
                registry_pb.ConfigureTopicSchemaRequest(
                    topic_name=topic,
                    schema_subject=subject,
                    validation_policy="enforce",
                    enable_payload_validation=True,
                ),
            )
        found = await call(
            "danube_schema.SchemaRegistry/GetLatestSchema",
            registry_pb.GetLatestSchemaRequest(subject=subject),
        )
        for payload in hostile.payloads:
            message = calls.message(
                payload,
                name="p",
                topic=topic,
                schema_id=found.schema_id,
                schema_version=found.version,
            )
            if hostile.is_bad:
                status, _ = await call.refusal(SEND, message)
                assert status == "INVALID_ARGUMENT", hostile.name
            else:
                await call(SEND, message)

    async def run():
        async with connected(broker.grpc_port) as call:
            calls = DanubeCalls(call)
            for index, hostile in enumerate(hostile_schemas()):
                await use(calls, index, hostile)

    asyncio.run(run())

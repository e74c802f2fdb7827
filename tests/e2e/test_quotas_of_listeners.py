"""A quota that clients of one protocol use up holds for all protocols."""

from __future__ import annotations

import aiokafka
import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import PolicyViolationError

import pydanube
from pydanube import Quota, QuotaExceeded
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import ListenConfig, config_type
from pydanube_kafka.config import KafkaConfig
from pydanube_mqtt.config import MqttConfig
from pydanube_mqtt.wire.packets import Reason
from support.drivers.danube_calls import DanubeCalls
from support.drivers.mqtt_clients import V5, mqtt_client, rule
from support.fakes.grpc_calls import connected

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/orders"
NAMESPACE = "/default"
SEND = "danube.ProducerService/SendMessage"


def served(directory):
    return serve(
        config_type()(
            data_dir=directory / "data",
            listen=ListenConfig(stream_port=0, grpc_port=0, admin_port=0, http_port=0),
            kafka=KafkaConfig(port=0, namespaces=True),
            mqtt=MqttConfig(port=0, rules=[rule("orders/#", TOPIC)]),
        )
    )


async def test_storage_that_one_protocol_fills_is_refused_and_freed_for_all(tmp_path):
    async with (
        served(tmp_path) as broker,
        pydanube.connect(broker.stream_url) as client,
    ):
        kafka_url = broker.listener_urls["kafka"].partition("://")[2]
        async with (
            client.producer(TOPIC) as producer,
            connected(int(broker.grpc_url.rpartition(":")[2])) as call,
            mqtt_client(broker, "device", version=V5) as device,
            aiokafka.AIOKafkaProducer(bootstrap_servers=kafka_url) as kafka,
        ):
            calls = DanubeCalls(call)
            await calls.create_producer()

            async def publish_with_the_others():
                await calls.send("grpc")
                assert await device.publish("orders/k", b"mqtt") == 0
                await kafka.send_and_wait("orders", b"kafka")

            await publish_with_the_others()
            await client.security.set_quota(NAMESPACE, Quota(storage_bytes=4096))
            await producer.send(b"n" * 4096)
            for _ in range(2):
                sent = [producer.send_nowait(b"native") for _ in range(3)]
                for each in sent:
                    with pytest.raises(QuotaExceeded, match="storage_bytes of /def"):
                        await each
            status, text = await call.refusal(SEND, calls.message("grpc"))
            assert status == "RESOURCE_EXHAUSTED"
            assert "storage_bytes of /default" in text
            answer = await device.publish("orders/k", b"mqtt")
            assert answer == Reason.QUOTA_EXCEEDED
            with pytest.raises(PolicyViolationError):
                await kafka.send_and_wait("orders", b"kafka")
            await client.security.remove_quota(NAMESPACE)
            await producer.send(b"native")
            await publish_with_the_others()
        found = [
            message.payload.decode()
            async for batch in client.read(TOPIC)
            for message in batch
        ]
        others = ["grpc", "mqtt", "kafka"]
        assert found == [*others, "n" * 4096, "native", *others]


async def test_topics_that_one_protocol_creates_count_for_all(tmp_path):
    async with (
        served(tmp_path) as broker,
        pydanube.connect(broker.stream_url) as client,
        connected(int(broker.grpc_url.rpartition(":")[2])) as call,
        httpx.AsyncClient(base_url=broker.http_url) as http,
    ):
        kafka_url = broker.listener_urls["kafka"].partition("://")[2]
        new = "/shop/new"
        await client.namespaces.create("shop")
        await client.topics.create("/shop/orders")
        await client.security.set_quota("/shop", Quota(topics=1))

        async def create_over_http():
            fields = {"topic": new}
            return await http.post("/api/v1/create_topic", json=fields)

        answer = await create_over_http()
        assert answer.status_code == 429, answer.text
        assert "topics of /shop" in answer.text
        with pytest.raises(QuotaExceeded, match="topics of /shop"):
            await client.topics.create(new)
        status, text = await call.refusal(
            "danube.ProducerService/CreateProducer",
            pb.ProducerRequest(
                producer_name="p",
                topic_name=new,
                dispatch_strategy=pb.Reliable,
            ),
        )
        assert "topics of /shop" in text, status
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka_url)
        await admin.start()
        try:
            created = await admin.create_topics([NewTopic("shop.new", 1, 1)])
            [(name, code, *_)] = created.topic_errors
            assert (name, code) == ("shop.new", PolicyViolationError.errno)
            await client.security.set_quota("/shop", Quota(topics=2))
            assert (await create_over_http()).status_code == 200
        finally:
            await admin.close()
        assert sorted(await client.topics.list("shop")) == [new, "/shop/orders"]

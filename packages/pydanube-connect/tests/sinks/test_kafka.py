"""The sink publishes messages to Kafka with keys and headers."""

import pytest

pytest.importorskip("confluent_kafka")

from pydanube_connect.pure.failures import Rejected
from pydanube_connect.sinks.kafka import KafkaSink, KafkaSinkOptions
from support.servers.kafka import consume, kafka_in_memory
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers():
    with kafka_in_memory() as servers:
        yield servers


@pytest.fixture
async def messages():
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer("/default/orders") as producer:
            await producer.send(b"one", key="k", attributes={"source": "web"})
            await producer.send(b"x" * 3_000_000)
        yield [each async for batch in client.read("/default/orders") for each in batch]


async def test_messages_are_stored_with_key_and_headers(servers, messages):
    options = KafkaSinkOptions(servers=servers, topic="from-{topic}")
    async with KafkaSink(options) as sink:
        await sink.write(messages[:1])
    [found] = consume(servers, "from-orders", 1)
    assert (found.key(), found.value()) == (b"k", b"one")
    assert found.headers() == [("source", b"web")]
    published_ms = int(messages[0].publish_time.timestamp() * 1000)
    assert found.timestamp()[1] == published_ms


async def test_message_that_is_too_large_is_rejected(servers, messages):
    async with KafkaSink(KafkaSinkOptions(servers=servers, topic="small")) as sink:
        with pytest.raises(Rejected) as caught:
            await sink.write(messages)
    assert list(caught.value.reasons) == [1]
    assert [each.value() for each in consume(servers, "small", 1)] == [b"one"]

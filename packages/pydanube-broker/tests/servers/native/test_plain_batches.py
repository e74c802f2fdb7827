"""A batch is decompressed once for all clients that do not know its codec."""

from pydanube.model import arrow
from pydanube.model.names import TopicName
from pydanube_broker.servers.native.plain_batches import PlainBatches
from pydanube_broker.testing import memory_broker

TOPIC = "/default/t"


async def test_clients_without_codecs_share_the_work(monkeypatch):
    async with memory_broker() as broker:
        async with (
            broker.connect() as client,
            client.producer(TOPIC, compression="zstd") as producer,
        ):
            for number in range(3):
                await producer.send_batch([b"%d" % number * 1000] * 50)
        monkeypatch.setattr(arrow, "is_installed", lambda: False)
        for name in ("a", "b"):
            async with (
                broker.connect() as client,
                client.consumer(TOPIC, subscription=name, start="earliest") as consumer,
            ):
                for number in range(150):
                    message = await consumer.receive(timeout_s=30)
                    assert message.payload == b"%d" % (number // 50) * 1000
        plain = broker.server.plain_batches
    assert plain.decompressed_total == 3
    assert plain.decompressed_bytes_total > 150_000


async def test_memory_of_batches_is_bounded():
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(TOPIC, compression="zstd") as producer:
            for _ in range(3):
                await producer.send_batch([b"x" * 1000] * 10)
        topic = broker.broker.topics.opened[TopicName.parse(TOPIC)]
        frames = topic.log.read_tail(0, bytes_max=1_000_000)
        plain = PlainBatches(bytes_max=25_000)
        for frame in [*frames, *frames]:
            assert plain.of(frame).byte_count > 10_000
        # The first one was forgotten for the third, and so on.
        assert plain.decompressed_total == 6
        assert plain.of(frames[2]) is plain.of(frames[2])
        assert plain.decompressed_total == 6
        # What is not compressed stays what it is.
        assert plain.of(plain.of(frames[0])).header.codec == 0

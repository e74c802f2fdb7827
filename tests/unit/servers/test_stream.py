"""The native door, spoken to by hand."""

import asyncio

import pytest

import pydanube
from pydanube.model.policy import NamespacePolicy
from pydanube.servers import stream
from pydanube.servers.in_process import PipeEnd
from pydanube.wire.connection import StreamConnection
from pydanube.wire.frames import Kind, Side, header
from pydanube.wire.pb import stream_pb2 as pb
from support.running import TOPIC, published, with_broker
from support.streams import batch_frame, hello


class Peer(asyncio.BufferedProtocol):
    """A client that sends what it is told and notes what comes."""

    def __init__(self):
        self.machine = StreamConnection(Side.CLIENT)
        self.received = asyncio.Queue()
        self.is_closed = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.machine.reader.get_buffer()

    def buffer_updated(self, nbytes):
        for frame in self.machine.received(nbytes):
            self.received.put_nowait(frame)

    def connection_lost(self, exc):
        self.is_closed.set()

    async def ask(self, kind, message, channel=0):
        self.transport.write(self.machine.request(kind, message, channel)[1])
        return await self.received.get()


async def connected(broker, *, greet=True):
    peer = Peer()
    PipeEnd.connect(peer, broker.server.new_door())
    if greet:
        await peer.ask(Kind.HELLO, hello())
    return peer


def test_a_version_that_the_broker_does_not_speak_is_refused():
    async def test(broker):
        peer = await connected(broker, greet=False)
        answer = await peer.ask(Kind.HELLO, pb.Hello(version_min=7, version_max=9))
        assert answer.message.code == "protocol_violation"
        assert "version 1" in answer.message.message
        await peer.is_closed.wait()

    with_broker(test)


def test_a_violation_is_answered_and_the_connection_closed():
    async def test(broker):
        peer = await connected(broker)
        peer.transport.write(header(Kind.RECEIPT, 1, 0, 0))
        answer = await peer.received.get()
        assert answer.message.code == "protocol_violation"
        await peer.is_closed.wait()
        assert not broker.server.doors

    with_broker(test)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"producer": "somebody-else"}, "invalid_request"),
        ({"base_sequence": 5}, "out_of_sequence"),
        ({"producer_epoch": 9}, "producer_fenced"),
    ],
)
def test_a_batch_that_does_not_fit_closes_its_channel_and_stores_nothing(change, code):
    async def test(broker):
        peer = await connected(broker)
        opened = await peer.ask(
            Kind.OPEN_PRODUCER,
            pb.OpenProducer(
                topic=TOPIC, name="p", policy=pb.TopicPolicy(reliable=True)
            ),
            1,
        )
        right = {
            "producer": "p",
            "producer_id": opened.message.producer_id,
            "producer_epoch": opened.message.producer_epoch,
        }
        batch = batch_frame(b"m", **(right | change))
        peer.transport.writelines(peer.machine.send_batch(Kind.PUBLISH, batch, 1))
        answer = await peer.received.get()
        assert (answer.kind, answer.channel) == (Kind.ERROR, 1)
        assert answer.message.code == code
        described = await peer.ask(Kind.DESCRIBE_TOPIC, pb.DescribeTopic(topic=TOPIC))
        assert described.message.end_offset == 0

    with_broker(test)


def test_a_damaged_batch_is_refused():
    async def test(broker):
        peer = await connected(broker)
        opened = await peer.ask(
            Kind.OPEN_PRODUCER,
            pb.OpenProducer(
                topic=TOPIC, name="p", policy=pb.TopicPolicy(reliable=True)
            ),
            1,
        )
        batch = batch_frame(
            b"message", producer="p", producer_id=opened.message.producer_id
        )
        batch.buffer[-3] ^= 1
        peer.transport.writelines(peer.machine.send_batch(Kind.PUBLISH, batch, 1))
        answer = await peer.received.get()
        assert answer.message.code == "invalid_request"
        assert "checksum" in answer.message.message

    with_broker(test)


def test_several_batches_get_one_receipt():
    async def test(broker):
        peer = await connected(broker)
        opened = await peer.ask(
            Kind.OPEN_PRODUCER,
            pb.OpenProducer(
                topic=TOPIC, name="p", policy=pb.TopicPolicy(reliable=True)
            ),
            1,
        )
        for sequence in (0, 1, 2):
            batch = batch_frame(
                b"m",
                producer="p",
                producer_id=opened.message.producer_id,
                producer_epoch=opened.message.producer_epoch,
                base_sequence=sequence,
            )
            peer.transport.writelines(peer.machine.send_batch(Kind.PUBLISH, batch, 1))
        receipt = await peer.received.get()
        assert list(receipt.message.base_sequence) == [0, 1, 2]
        assert list(receipt.message.base_offset) == [0, 1, 2]

    with_broker(test)


def test_a_draining_broker_refuses_messages_and_says_so():
    async def test(broker):
        async with broker.connect() as client, client.producer(TOPIC) as producer:
            await producer.send(b"before")
            peer = await connected(broker)
            await broker.broker.drain()
            answer = await peer.ask(
                Kind.OPEN_PRODUCER, pb.OpenProducer(topic=TOPIC, name="p"), 1
            )
            assert answer.message.code == "draining"
            # The client would wait for another broker.
            pending = producer.send_nowait(b"after")
            producer.abandon()
            with pytest.raises(pydanube.Closed):
                await pending

    with_broker(test)


def test_an_unknown_failure_is_one_requests_alone():
    async def test(broker):
        async with broker.connect() as client:
            broker.broker.topic_names = None
            with pytest.raises(pydanube.BrokerError, match="log says why"):
                await client.topics()
            await client.create_topic(TOPIC)

    with_broker(test)


async def opened_consumer(peer):
    await peer.ask(
        Kind.OPEN_CONSUMER,
        pb.OpenConsumer(topic=TOPIC, subscription="s", name="c", start=pb.EARLIEST),
        1,
    )


def give_credit(peer, messages, byte_count):
    credit = pb.Credit(messages=messages, bytes=byte_count)
    peer.transport.write(peer.machine.send(Kind.CREDIT, credit, 1))


async def kinds_that_come(peer):
    """What is there after some turns of the loop."""
    for _ in range(50):
        await asyncio.sleep(0)
    return [peer.received.get_nowait().kind for _ in range(peer.received.qsize())]


def test_a_client_that_does_not_read_is_sent_nothing_more():
    async def test(broker):
        async with broker.connect() as client:
            await published(client, b"a", b"b")
        peer = await connected(broker)
        await opened_consumer(peer)
        [door] = broker.server.doors
        door.pause_writing()
        give_credit(peer, 10, 1000)
        assert await kinds_that_come(peer) == []
        door.resume_writing()
        assert await kinds_that_come(peer) == [Kind.DELIVERY]

    with_broker(test)


def test_of_a_boundless_credit_only_a_part_is_passed_on_at_a_time(monkeypatch):
    monkeypatch.setattr(stream, "CREDIT_BYTES_MAX", 1000)

    async def test(broker):
        async with broker.connect() as client, client.producer(TOPIC) as producer:
            for _ in range(20):
                await producer.send(bytes(100))
        peer = await connected(broker)
        await opened_consumer(peer)
        [door] = broker.server.doors
        sent = []
        deliver = door.deliver

        def note(channel, frame, attempt):
            deliver(channel, frame, attempt)
            sent.append(frame.count)
            if len(sent) == 2:
                door.pause_writing()

        monkeypatch.setattr(door, "deliver", note)
        give_credit(peer, 2**32 - 1, 2**63)
        await kinds_that_come(peer)
        # What had been passed on, and no more.
        assert 2 <= len(sent) <= 4
        door.resume_writing()
        await kinds_that_come(peer)
        assert len(sent) == 20

    with_broker(test)


async def opened_producer(peer, channel=1, **options):
    answer = await peer.ask(
        Kind.OPEN_PRODUCER,
        pb.OpenProducer(
            topic=TOPIC,
            name=f"p{channel}",
            policy=pb.TopicPolicy(reliable=True),
            **options,
        ),
        channel,
    )
    assert answer.kind is Kind.PRODUCER_OPENED
    return answer.message


def publish(peer, opened, sequence, *payloads, channel=1):
    batch = batch_frame(
        *payloads,
        producer=f"p{channel}",
        producer_id=opened.producer_id,
        producer_epoch=opened.producer_epoch,
        base_sequence=sequence,
    )
    peer.transport.writelines(peer.machine.send_batch(Kind.PUBLISH, batch, channel))


def test_who_is_faster_than_the_topics_rate_is_slowed_down_and_loses_nothing():
    async def test(broker):
        async with broker.connect() as client, client.producer(TOPIC) as producer:
            await client.set_topic_limits(TOPIC, NamespacePolicy(max_publish_rate=200))
            async with asyncio.timeout(10):
                for n in range(50):
                    await producer.send_batch([str(n)])
            payloads = [p async for b in client.read(TOPIC) for p in b.payloads]
            assert payloads == [str(n).encode() for n in range(50)]

    with_broker(test)


def test_what_has_to_wait_holds_up_nobody_else_on_its_connection(monkeypatch):
    monkeypatch.setattr(stream, "SIGN_INTERVAL_S", 0.01)

    async def test(broker):
        async with broker.connect() as client:
            await client.create_topic(TOPIC)
            await client.set_topic_limits(TOPIC, NamespacePolicy(max_publish_rate=1))
        peer = await connected(broker)
        opened = await opened_producer(peer)
        # The first may be as long as it likes; those behind it wait long.
        publish(peer, opened, 0, *[b"x"] * 1000)
        for sequence in range(1000, 1003):
            publish(peer, opened, sequence, b"y")
        receipt = await peer.received.get()
        assert list(receipt.message.base_sequence) == [0]
        # Signs of life, in which nothing is acknowledged.
        for _ in range(3):
            sign = await peer.received.get()
            assert (sign.kind, len(sign.message.base_sequence)) == (Kind.RECEIPT, 0)
        peer.transport.write(peer.machine.request(Kind.PING, pb.Ping())[1])
        while (await peer.received.get()).kind is not Kind.PONG:
            pass
        # Closing drops what waits.
        peer.transport.write(
            peer.machine.request(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 1)[1]
        )
        while (await peer.received.get()).kind is not Kind.OK:
            pass
        described = await peer.ask(Kind.DESCRIBE_TOPIC, pb.DescribeTopic(topic=TOPIC))
        assert described.message.end_offset == 1000

    with_broker(test)


def test_a_connection_with_too_much_that_waits_is_not_read_from(monkeypatch):
    monkeypatch.setattr(stream, "HELD_BYTES_MAX", 1000)

    async def test(broker):
        async with broker.connect() as client:
            await client.create_topic(TOPIC)
            await client.set_topic_limits(TOPIC, NamespacePolicy(max_publish_rate=20))
        peer = await connected(broker)
        opened = await opened_producer(peer)
        [door] = broker.server.doors
        for sequence in range(10):
            publish(peer, opened, sequence, bytes(200))
        acknowledged = []
        while len(acknowledged) < 10:
            assert door.held_bytes < 1000 + 10 * 600
            receipt = await peer.received.get()
            acknowledged += receipt.message.base_sequence
        assert acknowledged == list(range(10))
        assert door.held_bytes == 0

    with_broker(test)


def test_an_opening_that_waits_can_be_given_up():
    async def test(broker):
        peer = await connected(broker)
        first = await opened_producer(peer)
        open_second = pb.OpenProducer(
            topic=TOPIC, name="second", access=pb.ACCESS_EXCLUSIVE_WAIT
        )
        peer.transport.write(
            peer.machine.request(Kind.OPEN_PRODUCER, open_second, 2)[1]
        )
        assert await kinds_that_come(peer) == []
        refused = await peer.ask(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 2)
        assert (refused.kind, refused.message.code) == (Kind.ERROR, "closed")
        assert (await peer.received.get()).kind is Kind.OK
        # The channel is free, and the first producer has not noticed anything.
        publish(peer, first, 0, b"m")
        assert (await peer.received.get()).kind is Kind.RECEIPT
        await peer.ask(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 1)
        opened = await peer.ask(Kind.OPEN_PRODUCER, open_second, 2)
        assert opened.kind is Kind.PRODUCER_OPENED

    with_broker(test)


def test_a_consumer_that_is_closed_while_it_opens_is_gone():
    async def test(broker):
        async with broker.connect() as client:
            await published(client, b"m")
            peer = await connected(broker)
            opening = pb.OpenConsumer(topic=TOPIC, subscription="s", name="c")
            asked = peer.machine.request(Kind.OPEN_CONSUMER, opening, 1)[1]
            closed = peer.machine.request(Kind.CLOSE_CONSUMER, pb.CloseConsumer(), 1)[1]
            peer.transport.write(asked + closed)
            assert (await peer.received.get()).kind is Kind.CONSUMER_OPENED
            assert (await peer.received.get()).kind is Kind.OK
            facts = await client.describe_subscription(TOPIC, "s")
            assert facts.consumers == ()

    with_broker(test)


@pytest.mark.parametrize(
    ("kind", "message", "channel"),
    [
        (Kind.OPEN_CONSUMER, pb.OpenConsumer(type=9), 1),
        (Kind.OPEN_CONSUMER, pb.OpenConsumer(start=9), 1),
        (Kind.OPEN_CONSUMER, pb.OpenConsumer(ack_timeout_s=float("nan")), 1),
        (Kind.OPEN_PRODUCER, pb.OpenProducer(access=9), 1),
        (Kind.CREATE_SUBSCRIPTION, pb.CreateSubscription(type=9), 0),
        (
            Kind.SET_FAILURE_POLICY,
            pb.SetFailurePolicy(policy=pb.FailurePolicy(poison=9)),
            0,
        ),
    ],
)
def test_a_number_that_the_broker_does_not_know_is_refused(kind, message, channel):
    async def test(broker):
        async with broker.connect() as client:
            await client.create_topic(TOPIC)
        peer = await connected(broker)
        sent = type(message)()
        sent.CopyFrom(message)
        sent.topic = TOPIC
        for field in ("subscription", "name"):
            if field in sent.DESCRIPTOR.fields_by_name:
                setattr(sent, field, "n")
        answer = await peer.ask(kind, sent, channel)
        assert answer.kind is Kind.ERROR
        assert answer.message.code == "invalid_request"

    with_broker(test)


def test_an_older_client_gets_batches_that_it_can_read():
    async def test(broker):
        async with broker.connect() as client, client.producer(TOPIC) as producer:
            await producer.send(b"m", ttl_s=3600, key="k")
        for revision, names in ((0, ["key", "payload"]), (1, None)):
            peer = Peer()
            PipeEnd.connect(peer, broker.server.new_door())
            greeting = hello()
            greeting.revision = revision
            await peer.ask(Kind.HELLO, greeting)
            name = f"s{revision}"
            opening = pb.OpenConsumer(
                topic=TOPIC, subscription=name, name="c", start=pb.EARLIEST
            )
            await peer.ask(Kind.OPEN_CONSUMER, opening, 1)
            give_credit(peer, 1, 1000)
            delivered = (await peer.received.get()).batch
            fetched = (await peer.ask(Kind.FETCH, pb.Fetch(topic=TOPIC))).batch
            expected = names or ["key", "payload", "expires_at"]
            assert delivered.check().schema.names == expected
            assert fetched.check().schema.names == expected

    with_broker(test)


def test_a_producer_that_loses_its_place_is_told_at_once():
    async def test(broker):
        peer = await connected(broker)
        opened = await opened_producer(peer)
        publish(peer, opened, 0, b"m")
        assert (await peer.received.get()).kind is Kind.RECEIPT
        other = pb.OpenProducer(
            topic=TOPIC, name="other", access=pb.ACCESS_EXCLUSIVE_FENCE
        )
        told = await peer.ask(Kind.OPEN_PRODUCER, other, 2)
        assert (told.kind, told.channel) == (Kind.ERROR, 1)
        assert told.message.code == "producer_fenced"
        assert (await peer.received.get()).kind is Kind.PRODUCER_OPENED

    with_broker(test)

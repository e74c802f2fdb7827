"""The native server, with hand-written frames."""

import asyncio
import struct

import pytest
from crc32c import crc32c

import pydanube
from pydanube.model.errors import CorruptBatch, ProtocolViolation
from pydanube.model.names import TopicName
from pydanube.model.policy import NamespacePolicy
from pydanube.wire.batches import BATCH_MESSAGES_MAX, Codec, decode
from pydanube.wire.native.frames import header
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import BIT_MAP_BYTES_MAX, RANGES_MAX
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.servers.native import consumers, producers
from pydanube_broker.servers.native.producers import INLINE_CHECK_BYTES_MAX
from support.drivers.running import TOPIC, published
from support.fakes.batches import empty_messages, frame_of
from support.fakes.brokers import Outcome
from support.fakes.stream_peer import connected
from support.fakes.streams import batch_frame


async def test_client_of_newer_revisions_is_refused(broker):
    peer = await connected(broker, greet=False)
    answer = await peer.ask(Kind.HELLO, pb.Hello(revision_min=7, revision_max=9))
    assert answer.message.code == "protocol_violation"
    assert "revision 1 of the protocol" in answer.message.message
    assert "client 7 to 9" in answer.message.message
    await peer.is_closed.wait()


async def test_connection_that_was_accepted_before_the_end_is_closed(broker):
    await broker.server.close()
    peer = await connected(broker, greet=False)
    await peer.is_closed.wait()
    assert not broker.server.connections


async def test_client_that_also_knows_newer_revisions_is_served(broker):
    peer = await connected(broker, greet=False)
    answer = await peer.ask(Kind.HELLO, pb.Hello(revision_min=1, revision_max=9))
    assert answer.message.revision == 1


async def test_violation_is_answered_and_closes_the_connection(broker):
    peer = await connected(broker)
    peer.transport.write(header(Kind.RECEIPT, 1, 0, 0))
    answer = await peer.received.get()
    assert answer.message.code == "protocol_violation"
    await peer.is_closed.wait()
    assert not broker.server.connections


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"producer": "somebody-else"}, "invalid_request"),
        ({"base_sequence": 5}, "out_of_sequence"),
        ({"producer_epoch": 9}, "producer_fenced"),
    ],
)
async def test_invalid_batch_closes_its_channel_and_stores_nothing(
    broker, change, code
):
    peer = await connected(broker)
    opened = await peer.ask(
        Kind.OPEN_PRODUCER,
        pb.OpenProducer(topic=TOPIC, name="p", policy=pb.TopicPolicy()),
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


async def test_damaged_batch_is_refused(broker):
    peer = await connected(broker)
    opened = await peer.ask(
        Kind.OPEN_PRODUCER,
        pb.OpenProducer(topic=TOPIC, name="p", policy=pb.TopicPolicy()),
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


async def test_several_batches_get_one_receipt(broker):
    peer = await connected(broker)
    opened = await peer.ask(
        Kind.OPEN_PRODUCER,
        pb.OpenProducer(topic=TOPIC, name="p", policy=pb.TopicPolicy()),
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


async def test_draining_broker_refuses_messages(broker, client):
    async with client.producer(TOPIC) as producer:
        await producer.send(b"before")
        peer = await connected(broker)
        await broker.broker.drain()
        answer = await peer.ask(
            Kind.OPEN_PRODUCER, pb.OpenProducer(topic=TOPIC, name="p"), 1
        )
        assert answer.message.code == "draining"
        # The client would wait for another broker.
        pending = producer.send_nowait(b"after")
        producer._abandon()
        with pytest.raises(pydanube.Closed):
            await pending


async def test_unexpected_exception_fails_only_one_request(broker, client):
    broker.broker.catalog.records = None
    with pytest.raises(pydanube.BrokerError, match="log says why"):
        await client.topics.list()
    await client.topics.create(TOPIC)


async def opened_consumer(peer):
    await peer.ask(
        Kind.OPEN_CONSUMER,
        pb.OpenConsumer(
            topic=TOPIC,
            subscription="s",
            name="c",
            position=pb.Position(start=pb.EARLIEST),
        ),
        1,
    )


def give_credit(peer, messages, byte_count):
    credit = pb.Credit(messages=messages, bytes=byte_count)
    peer.transport.write(peer.machine.send(Kind.CREDIT, credit, 1))


async def kinds_that_come(peer):
    """Return the frames received after some turns of the loop."""
    for _ in range(50):
        await asyncio.sleep(0)
    return [peer.received.get_nowait().kind for _ in range(peer.received.qsize())]


async def test_acks_on_a_closed_channel_are_not_confirmed(broker, client):
    async with client.producer(TOPIC) as producer:
        await producer.send("a")
    peer = await connected(broker)
    await opened_consumer(peer)
    ranges = pb.OffsetRanges(base=[0], end=[1])
    ack = peer.machine.request(Kind.ACK, pb.Ack(ranges=ranges), 1)[1]
    # A consumer of the same name replaces it, before the client knows.
    await opened_consumer(await connected(broker))
    peer.transport.write(ack)
    closed, answer = await peer.received.get(), await peer.received.get()
    assert closed.message.code == "consumer_replaced"
    assert answer.message.code == "unavailable"
    assert (await client.subscriptions.describe(TOPIC, "s")).backlog == 1


INVALID_RANGES = [
    pb.OffsetRanges(base=[0, 1], end=[1]),
    pb.OffsetRanges(base=[1], end=[0]),
    pb.OffsetRanges(base=[0] * (RANGES_MAX + 1), end=[1] * (RANGES_MAX + 1)),
    pb.OffsetRanges(origin=5, bits=bytes(BIT_MAP_BYTES_MAX + 1)),
    pb.OffsetRanges(origin=2**64 - 4, bits=b"\xff"),
]


@pytest.mark.parametrize("ranges", INVALID_RANGES)
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Kind.ACK, pb.Ack),
        (Kind.NACK, pb.Nack),
        (Kind.EXTEND, pb.Extend),
        (Kind.RELEASE, pb.Release),
    ],
)
async def test_frame_with_invalid_ranges_closes_its_channel(
    broker, kind, message, ranges
):
    async with broker.connect() as client:
        await published(client, b"a", b"b")
    peer = await connected(broker)
    await opened_consumer(peer)
    peer.transport.write(peer.machine.send(kind, message(ranges=ranges), 1))
    answer = await peer.received.get()
    assert (answer.kind, answer.channel) == (Kind.ERROR, 1)
    assert answer.message.code == "invalid_request"
    async with broker.connect() as client:
        assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 0


@pytest.mark.parametrize("ranges", INVALID_RANGES)
async def test_request_with_invalid_ranges_is_refused(broker, ranges):
    async with broker.connect() as client:
        await published(client, b"a", b"b")
    peer = await connected(broker)
    await opened_consumer(peer)
    for request, channel in (
        ((Kind.ACK, pb.Ack(ranges=ranges)), 1),
        (
            (
                Kind.MARK_DONE,
                pb.MarkDone(topic=TOPIC, subscription="s", ranges=ranges),
            ),
            0,
        ),
    ):
        answer = await peer.ask(*request, channel)
        assert answer.kind is Kind.ERROR
        assert answer.message.code == "invalid_request"
    assert await kinds_that_come(peer) == []


async def test_client_that_does_not_read_is_sent_nothing(broker):
    async with broker.connect() as client:
        await published(client, b"a", b"b")
    peer = await connected(broker)
    await opened_consumer(peer)
    [connection] = broker.server.connections
    connection.pause_writing()
    give_credit(peer, 10, 1000)
    assert await kinds_that_come(peer) == []
    connection.resume_writing()
    assert await kinds_that_come(peer) == [Kind.DELIVERY]


async def test_unlimited_credit_is_granted_in_parts(broker, monkeypatch):
    monkeypatch.setattr(consumers, "CREDIT_BYTES_MAX", 1000)
    async with broker.connect() as client, client.producer(TOPIC) as producer:
        for _ in range(20):
            await producer.send(bytes(100))
    peer = await connected(broker)
    await opened_consumer(peer)
    [connection] = broker.server.connections
    sent = []
    deliver = connection.deliver

    def note(channel, frame, attempt):
        deliver(channel, frame, attempt)
        sent.append(frame.count)
        if len(sent) == 2:
            connection.pause_writing()

    monkeypatch.setattr(connection, "deliver", note)
    give_credit(peer, 2**32 - 1, 2**63)
    await kinds_that_come(peer)
    # Only the credit that was passed on.
    assert 2 <= len(sent) <= 4
    connection.resume_writing()
    await kinds_that_come(peer)
    assert len(sent) == 20


async def opened_producer(peer, channel=1, **options):
    answer = await peer.ask(
        Kind.OPEN_PRODUCER,
        pb.OpenProducer(
            topic=TOPIC,
            name=f"p{channel}",
            policy=pb.TopicPolicy(),
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


async def test_publish_rate_limit_delays_and_loses_nothing(client):
    async with client.producer(TOPIC) as producer:
        await client.topics.configure(
            TOPIC, limits=NamespacePolicy(max_publish_rate=200)
        )
        async with asyncio.timeout(60):
            for n in range(50):
                await producer.send_batch([str(n)])
        payloads = [p async for b in client.read(TOPIC) for p in b.payloads]
        assert payloads == [str(n).encode() for n in range(50)]


async def test_delayed_producer_does_not_block_its_connection(broker, monkeypatch):
    monkeypatch.setattr(producers, "KEEPALIVE_INTERVAL_S", 0.01)
    async with broker.connect() as client:
        await client.topics.create(TOPIC)
        await client.topics.configure(TOPIC, limits=NamespacePolicy(max_publish_rate=1))
    peer = await connected(broker)
    opened = await opened_producer(peer)
    # The first batch may have any size; later ones wait long.
    publish(peer, opened, 0, *[b"x"] * 1000)
    for sequence in range(1000, 1003):
        publish(peer, opened, sequence, b"y")
    receipt = await peer.received.get()
    assert list(receipt.message.base_sequence) == [0]
    # Empty receipts keep the connection alive.
    for _ in range(3):
        sign = await peer.received.get()
        assert (sign.kind, len(sign.message.base_sequence)) == (Kind.RECEIPT, 0)
    peer.transport.write(peer.machine.request(Kind.PING, pb.Ping())[1])
    while (await peer.received.get()).kind is not Kind.PONG:
        pass
    # Closing drops held batches.
    peer.transport.write(
        peer.machine.request(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 1)[1]
    )
    while (await peer.received.get()).kind is not Kind.OK:
        pass
    described = await peer.ask(Kind.DESCRIBE_TOPIC, pb.DescribeTopic(topic=TOPIC))
    assert described.message.end_offset == 1000


async def test_connection_with_many_held_bytes_is_not_read(broker, monkeypatch):
    monkeypatch.setattr(producers, "HELD_BYTES_MAX", 1000)
    async with broker.connect() as client:
        await client.topics.create(TOPIC)
        await client.topics.configure(
            TOPIC, limits=NamespacePolicy(max_publish_rate=20)
        )
    peer = await connected(broker)
    opened = await opened_producer(peer)
    [connection] = broker.server.connections
    for sequence in range(10):
        publish(peer, opened, sequence, bytes(200))
    acknowledged = []
    while len(acknowledged) < 10:
        assert connection.held_bytes < 1000 + 10 * 600
        receipt = await peer.received.get()
        acknowledged += receipt.message.base_sequence
    assert acknowledged == list(range(10))
    assert connection.held_bytes == 0


async def test_waiting_opening_can_be_cancelled(broker):
    peer = await connected(broker)
    first = await opened_producer(peer)
    open_second = pb.OpenProducer(
        topic=TOPIC, name="second", access=pb.ACCESS_EXCLUSIVE_WAIT
    )
    peer.transport.write(peer.machine.request(Kind.OPEN_PRODUCER, open_second, 2)[1])
    assert await kinds_that_come(peer) == []
    refused = await peer.ask(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 2)
    assert (refused.kind, refused.message.code) == (Kind.ERROR, "closed")
    assert (await peer.received.get()).kind is Kind.OK
    # The channel is free, and the first producer is not affected.
    publish(peer, first, 0, b"m")
    assert (await peer.received.get()).kind is Kind.RECEIPT
    await peer.ask(Kind.CLOSE_PRODUCER, pb.CloseProducer(), 1)
    opened = await peer.ask(Kind.OPEN_PRODUCER, open_second, 2)
    assert opened.kind is Kind.PRODUCER_OPENED


async def test_consumer_closed_while_opening_is_detached(broker, client):
    await published(client, b"m")
    peer = await connected(broker)
    opening = pb.OpenConsumer(topic=TOPIC, subscription="s", name="c")
    asked = peer.machine.request(Kind.OPEN_CONSUMER, opening, 1)[1]
    closed = peer.machine.request(Kind.CLOSE_CONSUMER, pb.CloseConsumer(), 1)[1]
    peer.transport.write(asked + closed)
    assert (await peer.received.get()).kind is Kind.CONSUMER_OPENED
    assert (await peer.received.get()).kind is Kind.OK
    facts = await client.subscriptions.describe(TOPIC, "s")
    assert facts.consumers == ()


@pytest.mark.parametrize(
    ("kind", "message", "channel"),
    [
        (Kind.OPEN_CONSUMER, pb.OpenConsumer(type=9), 1),
        (Kind.OPEN_CONSUMER, pb.OpenConsumer(position=pb.Position(start=9)), 1),
        (Kind.OPEN_CONSUMER, pb.OpenConsumer(ack_timeout_s=float("nan")), 1),
        (Kind.OPEN_PRODUCER, pb.OpenProducer(access=9), 1),
        (Kind.CREATE_SUBSCRIPTION, pb.CreateSubscription(type=9), 0),
        (
            Kind.CONFIGURE_SUBSCRIPTION,
            pb.ConfigureSubscription(
                settings=pb.Settings(failure_policy=pb.FailurePolicy(poison=9)),
                changes=["failure_policy"],
            ),
            0,
        ),
    ],
)
async def test_unknown_enum_number_is_refused(broker, kind, message, channel):
    async with broker.connect() as client:
        await client.topics.create(TOPIC)
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


async def test_fenced_producer_is_closed_at_once(broker):
    peer = await connected(broker)
    opened = await opened_producer(peer)
    publish(peer, opened, 0, b"m")
    assert (await peer.received.get()).kind is Kind.RECEIPT
    other = pb.OpenProducer(topic=TOPIC, name="other", access=pb.ACCESS_EXCLUSIVE_FENCE)
    told = await peer.ask(Kind.OPEN_PRODUCER, other, 2)
    assert (told.kind, told.channel) == (Kind.ERROR, 1)
    assert told.message.code == "producer_fenced"
    assert (await peer.received.get()).kind is Kind.PRODUCER_OPENED


# Batches that are much larger than their frames.

LARGE = bytes(INLINE_CHECK_BYTES_MAX)


async def fields_of_producer(peer, channel=1, name="p"):
    opening = pb.OpenProducer(topic=TOPIC, name=name, policy=pb.TopicPolicy())
    opened = (await peer.ask(Kind.OPEN_PRODUCER, opening, channel)).message
    return {
        "producer": name,
        "producer_id": opened.producer_id,
        "producer_epoch": opened.producer_epoch,
    }


def publish_frame(peer, frame, channel=1):
    peer.transport.writelines(peer.machine.send_batch(Kind.PUBLISH, frame, channel))


def compressed(payload, **fields):
    return frame_of([payload], codec=Codec.ZSTD, **fields)


async def stored(broker, *frames):
    topic = await broker.broker.topics.get(TopicName.parse(TOPIC))
    for frame in frames:
        topic.publish_unchecked(frame, outcome := Outcome())
        await outcome.offset()


async def created(broker):
    async with broker.connect() as client:
        await client.topics.create(TOPIC)


async def test_batch_of_too_many_messages_closes_its_channel(broker):
    peer = await connected(broker)
    fields = await fields_of_producer(peer)
    publish_frame(peer, empty_messages(BATCH_MESSAGES_MAX + 1, Codec.ZSTD, **fields))
    error = (await peer.received.get()).message
    assert error.code == "invalid_request"
    assert "65537 messages" in error.message
    assert "at most 65536" in error.message


async def test_large_batch_delays_only_its_producer(broker):
    peer = await connected(broker)
    fields = await fields_of_producer(peer)
    others = await fields_of_producer(peer, channel=2, name="q")
    publish_frame(peer, compressed(LARGE, **fields))
    publish_frame(peer, compressed(b"behind", **fields, base_sequence=1))
    publish_frame(peer, compressed(b"beside", **others), channel=2)
    told = []
    while sum(told_of(receipt) for receipt in told) < 3:
        told.append(await peer.received.get())
    # The other producer's batch was not behind the large one.
    assert told[0].channel == 2
    assert list(told[0].message.base_offset) == [0]
    behind = [
        offset
        for each in told
        if each.channel == 1
        for offset in each.message.base_offset
    ]
    assert behind == [1, 2]


def told_of(receipt):
    assert receipt.kind is Kind.RECEIPT, receipt.message
    return len(receipt.message.base_offset)


async def test_large_batch_that_is_damaged_is_refused(broker):
    peer = await connected(broker)
    fields = await fields_of_producer(peer)
    frame = compressed(LARGE, **fields)
    frame.buffer[-3] ^= 1
    publish_frame(peer, frame)
    publish_frame(peer, compressed(b"behind", **fields, base_sequence=1))
    error = (await peer.received.get()).message
    assert (error.code, "checksum" in error.message) == ("invalid_request", True)
    described = await peer.ask(Kind.DESCRIBE_TOPIC, pb.DescribeTopic(topic=TOPIC))
    assert described.message.end_offset == 0


async def batches_that_come(peer):
    """Return the batches that are there after some turns of the loop."""
    for _ in range(50):
        await asyncio.sleep(0)
    return [peer.received.get_nowait().batch for _ in range(peer.received.qsize())]


async def delivered_of(peer, byte_count):
    """Return the number of 20 messages delivered for a credit in bytes."""
    opening = pb.OpenConsumer(
        topic=TOPIC, subscription="s", name="c", position=pb.Position(start=pb.EARLIEST)
    )
    await peer.ask(Kind.OPEN_CONSUMER, opening, 1)
    credit = pb.Credit(messages=1000, bytes=byte_count)
    peer.transport.write(peer.machine.send(Kind.CREDIT, credit, 1))
    return await batches_that_come(peer)


@pytest.mark.parametrize("codec", list(Codec))
async def test_credit_bounds_what_a_consumer_decodes(broker, codec):
    await created(broker)
    payload = bytes(100_000)
    frames = [frame_of([payload], codec=codec) for _ in range(20)]
    await stored(broker, *frames)
    peer = await connected(broker)
    came = await delivered_of(peer, 300_000)
    assert sum(frame.plain_bytes for frame in came) <= 300_000 + 101_000
    assert len(came) in (3, 4)


@pytest.mark.parametrize("known", [[], [Codec.LZ4], [Codec.LZ4, Codec.ZSTD]])
async def test_client_gets_batches_of_codecs_that_it_does_not_know_plain(broker, known):
    await created(broker)
    frames = [frame_of([LARGE], codec=codec) for codec in Codec]
    await stored(broker, *frames)
    peer = await connected(broker, greet=False)
    hello = pb.Hello(revision_min=1, revision_max=1, codecs=known)
    await peer.ask(Kind.HELLO, hello)
    delivered = await delivered_of(peer, 4 * len(LARGE))
    fetched = [
        (await peer.ask(Kind.FETCH, pb.Fetch(topic=TOPIC, bytes_max=2**24))).batch
    ]
    fetched += await batches_that_come(peer)
    for came in (delivered, fetched[:3]):
        codecs = [codec if codec in known else Codec.NONE for codec in Codec]
        assert [frame.header.codec for frame in came] == codecs
        for offset, frame in enumerate(came):
            assert frame.base == offset
            assert frame.check().column("payload").to_pylist() == [LARGE]


async def failing_consumer(broker, send, *, count=1, prefetch_messages=10):
    """Return the last of *count* messages received; *send* is a hostile broker."""
    await created(broker)
    async with broker.connect() as client:
        consumer = client.consumer(
            TOPIC, subscription="s", prefetch_messages=prefetch_messages
        )
        async with consumer as messages:
            connection = list(broker.server.connections)[-1]
            send(connection, messages._channel)
            for _ in range(count - 1):
                await messages.receive(timeout_s=60)
            return await messages.receive(timeout_s=60)


async def test_client_refuses_messages_beyond_its_credit(broker):
    def send(connection, channel):
        for offset in range(11):
            frame = compressed(b"x")
            frame.stamp(offset, 1)
            connection.deliver(channel, frame, 1)

    with pytest.raises(ProtocolViolation, match=r"1 messages .* more than"):
        await failing_consumer(broker, send, count=12)


async def test_client_refuses_a_batch_of_too_many_messages(broker):
    def send(connection, channel):
        frame = empty_messages(BATCH_MESSAGES_MAX + 1, Codec.ZSTD)
        data = connection._protocol.send_batch(Kind.DELIVERY, frame, channel)
        connection._write_buffer.writelines(data)

    with pytest.raises(ProtocolViolation, match="65537 messages"):
        await failing_consumer(broker, send)


async def test_client_refuses_wrong_offsets(broker):
    frame = frame_of([b"abc"] * 300)
    body = bytearray(frame.buffer)
    # The end of the first payload lies far behind all of them.
    at = body.index(struct.pack("<4I", 0, 3, 6, 9))
    struct.pack_into("<I", body, at + 4, 2**30)
    struct.pack_into("<I", body, 16, crc32c(memoryview(body)[20:]))

    def send(connection, channel):
        connection.deliver(channel, decode(body), 1)

    with pytest.raises(CorruptBatch):
        await failing_consumer(broker, send, prefetch_messages=1000)

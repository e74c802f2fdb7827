"""Consumers of the gRPC server: sessions, windows and streams."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from pydanube import FailurePolicy
from pydanube.model.errors import BrokerError, CorruptSegment, Draining, Unavailable
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.wire.batches import BATCH_MESSAGES_MAX, Codec
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.servers.grpc.calls import (
    WRITE_BYTES,
    WRITES_AT_ONCE,
    written_together,
)
from pydanube_broker.servers.grpc.consumers import (
    DIRECT_WINDOW,
    FORGOTTEN_AFTER_S,
    SILENT_AFTER_S,
    WINDOW_BYTES,
    Consumers,
)
from pydanube_broker.servers.grpc.pure.window import WINDOW_FIRST
from support.drivers.running import published, using
from support.fakes.batches import empty_messages, frame_of
from support.fakes.corrupt_objects import seal_and_damage
from support.fakes.grpc_contexts import CallContext, Clock
from support.fakes.storages import until

TOPIC = "/default/orders"
NAME = TopicName.parse(TOPIC)
SUBSCRIPTION = SubscriptionName("s")


class World:
    """The service over a broker, with its own clock."""

    def __init__(self, memory, client, tasks) -> None:
        self.memory = memory
        self.broker = memory.broker
        self.client = client
        self.clock = Clock()
        self.consumers = self.new_consumers()
        self._tasks = tasks

    def new_consumers(self, pause_s=0.0) -> Consumers:
        """Return the service as after a start."""
        return Consumers(
            self.broker,
            self.clock,
            broker_url="http://broker:6650",
            window_messages_max=1000,
            refusal_pause_s=pause_s,
        )

    async def subscribe(self, name="c", type_=pb.ConsumerRequest.Shared) -> int:
        request = pb.ConsumerRequest(
            topic_name=TOPIC,
            consumer_name=name,
            subscription="s",
            subscription_type=type_,
        )
        answer = await self.consumers.subscribe(request, CallContext())
        return answer.consumer_id

    def stream(self, number, context) -> asyncio.Task[BaseException | None]:
        """Return the task of a stream, whose result is the stream's error."""

        async def run():
            request = pb.ReceiveRequest(consumer_id=number)
            try:
                await self.consumers.receive_messages(request, context)
            except BrokerError as error:
                return error

        return self._tasks.create_task(run())

    @staticmethod
    def ack_request(offset, topic=TOPIC, subscription="s") -> pb.AckRequest:
        return pb.AckRequest(
            msg_id=pb.MsgID(topic_name=topic, topic_offset=offset),
            subscription_name=subscription,
        )

    async def ack(self, offset) -> None:
        await self.consumers.ack(self.ack_request(offset))

    def wait(self, seconds) -> None:
        self.clock.now += seconds
        self.consumers.sweep()

    @property
    def subscription(self):
        return self.broker.topics.opened[NAME].subscriptions[SUBSCRIPTION]


@pytest.fixture
def reliable():
    return True


@pytest.fixture
async def world(broker, client, reliable):
    async with asyncio.TaskGroup() as tasks:
        await client.topics.create(TOPIC, reliable=reliable)
        world = World(broker, client, tasks)
        yield world
        world.consumers.close()


async def test_health_checks_keep_a_session_without_a_stream(world):
    number = await world.subscribe()
    world.wait(SILENT_AFTER_S - 1)
    assert world.consumers.is_healthy(number)
    world.wait(SILENT_AFTER_S - 1)
    assert world.subscription.consumer_count == 1
    world.wait(1)
    assert world.subscription.consumer_count == 0
    assert not world.consumers.is_healthy(number)


async def test_session_with_a_stream_needs_no_health_checks(world):
    number = await world.subscribe()
    context = CallContext()
    stream = world.stream(number, context)
    await context.has_metadata.wait()
    world.wait(10 * SILENT_AFTER_S)
    assert world.subscription.consumer_count == 1
    stream.cancel()
    with suppress(asyncio.CancelledError):
        await stream
    assert world.subscription.consumer_count == 0


async def test_consumer_absent_for_long_has_to_subscribe_again(world):
    number = await world.subscribe()
    world.wait(SILENT_AFTER_S)
    world.wait(FORGOTTEN_AFTER_S)
    refusal = await world.stream(number, CallContext())
    assert isinstance(refusal, Unavailable)
    assert "subscribe again" in str(refusal)
    # Later it is forgotten.
    await world.subscribe("other")
    known = await world.broker.consumer_registry.load()
    assert [record.consumer for record in known.values()] == ["other"]


async def test_consumer_keeps_its_number_after_a_restart(world):
    number = await world.subscribe("c")
    world.consumers.close()
    world.consumers = world.new_consumers()
    await world.consumers.load()
    assert not world.consumers.is_healthy(number)
    context = CallContext()
    world.stream(number, context)
    await context.has_metadata.wait()
    assert world.consumers.is_healthy(number)
    await published(world.client, b"hello")
    await context.until_written(1)
    assert context.written[0].payload == b"hello"


async def test_window_limits_unacknowledged_messages(world):
    number = await world.subscribe()
    await published(world.client, *[b"x"] * 100)
    context = CallContext()
    world.stream(number, context)
    await context.until_written(WINDOW_FIRST)
    assert world.subscription.describe(100).in_flight == WINDOW_FIRST
    # A quarter of the window is free then.
    for offset in (0, 5, 7, 9):
        await world.ack(offset)
    await context.until_written(WINDOW_FIRST + 4)
    assert world.subscription.describe(100).in_flight == WINDOW_FIRST
    offsets = [each.msg_id.topic_offset for each in context.written]
    assert offsets == list(range(WINDOW_FIRST + 4))


async def test_messages_of_a_batch_are_written_together(world):
    count = 3 * WRITES_AT_ONCE
    number = await world.subscribe()
    context = CallContext()
    stream = world.stream(number, context)
    await context.has_metadata.wait()
    await published(world.client, *[b"x"] * WINDOW_FIRST)
    await context.until_written(WINDOW_FIRST)
    assert context.write_counts == [WINDOW_FIRST]
    assert list(map(len, written_together([b"x"] * count))) == [WRITES_AT_ONCE] * 3
    large = bytes(WRITE_BYTES // 2)
    assert list(map(len, written_together([large] * 5))) == [2, 2, 1]
    stream.cancel()


async def test_acks_of_one_turn_are_one_journal_entry(world):
    await world.subscribe()
    await published(world.client, *[b"x"] * 64)
    journal = world.broker.storage.journal
    answers = []
    before = journal.commit_count
    for offset in reversed(range(64)):
        assert world.consumers.ack_nowait(world.ack_request(offset), answers.append)
    assert not answers
    # Its answer comes with theirs.
    await world.ack(63)
    assert answers == [pb.AckResponse()] * 64
    assert world.subscription.cursor_offset == 64
    assert journal.commit_count == before + 1


async def test_ack_that_must_wait_is_left_to_a_task(world):
    await world.subscribe()
    await published(world.client, b"x")
    requests = [
        world.ack_request(0, topic="/default/absent"),
        world.ack_request(0, subscription="absent"),
        world.ack_request(1),
    ]
    for request in requests:
        assert not world.consumers.ack_nowait(request, pytest.fail)


@pytest.mark.slow
async def test_window_of_a_quick_consumer_grows(world):
    number = await world.subscribe()
    await published(world.client, *[b"x"] * 3000)
    context = CallContext()
    world.stream(number, context)
    done = most = 0
    while done < 2000:
        await context.until_written(done + 1)
        most = max(most, len(context.written) - done)
        world.clock.now += 0.0001
        await world.ack(done)
        done += 1
    assert most > 100


async def test_acks_over_another_protocol_make_room(world):
    number = await world.subscribe()
    await published(world.client, *[b"x"] * 100)
    context = CallContext()
    world.stream(number, context)
    await context.until_written(WINDOW_FIRST)
    world.subscription.ack([(0, 10)], 0)
    await context.until_written(WINDOW_FIRST + 10)


async def test_full_window_gets_messages_again_whatever_frees_it(world):
    number = await world.subscribe()
    await published(world.client, *[b"x"] * 3 * WINDOW_FIRST)

    async def configure(**policy):
        await world.client.subscriptions.configure(
            TOPIC,
            "s",
            failure_policy=FailurePolicy(
                redelivery_delay_s=0.0, redeliveries_max=1000, **policy
            ),
        )

    await configure()
    context = CallContext()
    world.stream(number, context)
    await context.until_written(WINDOW_FIRST)
    for offset in range(WINDOW_FIRST):
        msg_id = pb.MsgID(topic_name=TOPIC, topic_offset=offset)
        request = pb.NackRequest(msg_id=msg_id, subscription_name="s")
        await world.consumers.nack(request)
    await context.until_written(2 * WINDOW_FIRST)
    world.subscription.seek(0)
    world.wait(1)
    await context.until_written(3 * WINDOW_FIRST)
    # All time out.
    await configure(ack_timeout_s=0.01)

    def is_delivered_again():
        world.wait(1)
        return len(context.written) >= 4 * WINDOW_FIRST

    await until(is_delivered_again)
    await configure(ack_timeout_s=3600.0)
    again = CallContext("another")
    world.stream(await world.subscribe(), again)
    await again.until_written(WINDOW_FIRST)
    for message in list(again.written):
        await world.ack(message.msg_id.topic_offset)
    await again.until_written(2 * WINDOW_FIRST)


async def test_seek_makes_room(world):
    number = await world.subscribe()
    await published(world.client, *[b"x"] * 100)
    context = CallContext()
    world.stream(number, context)
    await context.until_written(WINDOW_FIRST)
    await world.client.subscriptions.seek(TOPIC, "s", 50)
    await context.until_written(2 * WINDOW_FIRST)
    assert context.written[WINDOW_FIRST].msg_id.topic_offset == 50


async def test_compressed_batches_count_uncompressed(world):
    slow = CallContext("slow", reads=False)
    number = await world.subscribe("slow")
    world.stream(number, slow)
    await slow.has_metadata.wait()
    topic = world.broker.topics.opened[NAME]
    size = WINDOW_BYTES // 4
    for _ in range(40):
        # Published natively, a few hundred bytes each.
        topic.publish_unchecked(
            frame_of([bytes(size)], codec=Codec.ZSTD), lambda *_: None
        )
    await slow.until_written(1)
    in_flight = world.subscription.describe(topic.end_offset).in_flight
    assert 1 <= in_flight <= 5
    slow.read()
    for count in range(1, 41):
        await slow.until_written(count)
        await world.ack(slow.written[count - 1].msg_id.topic_offset)
    assert all(message.payload == bytes(size) for message in slow.written)


async def test_batch_larger_than_the_window_is_sent_in_parts(world):
    context = CallContext()
    world.stream(await world.subscribe(), context)
    await context.has_metadata.wait()
    topic = world.broker.topics.opened[NAME]
    topic.publish_unchecked(
        empty_messages(BATCH_MESSAGES_MAX, Codec.ZSTD), lambda *_: None
    )
    await context.until_written(WINDOW_FIRST)
    in_flight = world.subscription.describe(topic.end_offset).in_flight
    assert in_flight == WINDOW_FIRST


async def test_slow_reader_holds_little_memory_and_blocks_no_other(world):
    size = WINDOW_BYTES // 4
    slow, quick = CallContext("slow", reads=False), CallContext("quick")
    world.stream(await world.subscribe("slow"), slow)
    await slow.has_metadata.wait()
    world.stream(await world.subscribe("quick"), quick)
    for _ in range(40):
        await published(world.client, bytes(size))
    # The slow consumer gets messages up to its window, and one more.
    for count in range(1, 40 - 5 + 1):
        await quick.until_written(count)
        await world.ack(quick.written[count - 1].msg_id.topic_offset)
    assert len(slow.written) == 1
    slow.read()


@using(reliable=False)
async def test_non_reliable_messages_have_no_offset_and_need_no_ack(world):
    number = await world.subscribe()
    context = CallContext()
    world.stream(number, context)
    await context.has_metadata.wait()
    async with world.client.producer(TOPIC, reliable=False) as producer:
        await producer.send_batch([b"one", b"two", b"three"])
    await context.until_written(3)
    assert [each.msg_id.topic_offset for each in context.written] == [0, 0, 0]
    for _ in context.written:
        await world.ack(0)
    nack = pb.NackRequest(msg_id=pb.MsgID(topic_name=TOPIC), subscription_name="s")
    await world.consumers.nack(nack)
    await asyncio.sleep(0)
    assert len(context.written) == 3


@using(reliable=False)
async def test_non_reliable_messages_for_a_stream_are_bounded(world):
    context = CallContext(reads=False)
    world.stream(await world.subscribe(), context)
    await context.has_metadata.wait()
    async with world.client.producer(TOPIC, reliable=False) as producer:
        for _ in range(3):
            await producer.send_batch([b"x"] * DIRECT_WINDOW)
    assert world.broker.counts.dropped == 2 * DIRECT_WINDOW
    context.read()
    await context.until_written(DIRECT_WINDOW)


async def test_refusal_of_a_stream_is_delayed(world):
    consumers = world.new_consumers(pause_s=3600.0)
    request = pb.ReceiveRequest(consumer_id=4711)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await consumers.receive_messages(request, CallContext())


async def test_closed_server_refuses_streams(world):
    number = await world.subscribe()
    world.consumers.close()
    with pytest.raises(Draining):
        await world.consumers.receive_messages(
            pb.ReceiveRequest(consumer_id=number), CallContext()
        )
    with pytest.raises(Draining):
        await world.subscribe("other")


async def test_stream_ends_with_the_error_of_a_corrupt_segment(world):
    number = await world.subscribe()
    await published(world.client, b"a", b"b")
    name = await seal_and_damage(world.memory, TOPIC)
    for _ in range(2):
        told = await world.stream(number, CallContext())
        assert isinstance(told, CorruptSegment)
        assert name in str(told)
        number = await world.subscribe()

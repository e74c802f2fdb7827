"""Batches that are much larger than their frames, or contradict their headers."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from crc32c import crc32c

import pydanube
from pydanube.wire.batches import BATCH_MESSAGES_MAX, Codec, decode
from pydanube.wire.native.connection import StreamConnection
from pydanube.wire.native.frames import FRAME_BYTES_MAX, batch_bytes_max
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb
from support.fakes.batches import empty_messages, frame_of
from support.fakes.streams import feed, hello

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from attack.target import Target
    from pydanube.wire.batches import BatchFrame

TEST_ROUNDS = 3
BATCHES = 12
WELL_BEHAVED_MESSAGES = 50
TIMEOUT_S = 60.0
SAMPLE_S = 0.02

MIB = 1024 * 1024
CHECKED_BYTES = 2 * 2 * FRAME_BYTES_MAX
"""Two batches are checked at a time, each in its compressed and decompressed form."""
SEALED_BYTES = 3 * (8 * MIB + 131_072 * 200)
"""Three row groups: storage.row_group_bytes, and the columns of their messages."""
KEPT_BYTES = 128 * MIB
"""storage.cache_bytes_max."""
SLACK_BYTES = 64 * MIB
"""Memory that allocators do not return."""
GROWTH_BYTES_MAX = CHECKED_BYTES + SEALED_BYTES + KEPT_BYTES + SLACK_BYTES


async def attack(target: Target, rng: Random) -> None:
    """Publish hostile and valid batches beside a well-behaved client."""
    topic = f"/default/frames-{rng.getrandbits(48):x}"
    before = target.memory_bytes()
    async with asyncio.timeout(TIMEOUT_S):
        watching = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            peak = tasks.create_task(_peak_memory(target, watching))
            hostile = tasks.create_task(_publish(target, topic, rng))
            tasks.create_task(_publish_and_receive(target))
            await hostile
            acknowledged = hostile.result()
            await _read_back(target, topic, acknowledged)
            watching.set()
    growth = peak.result() - before
    assert growth <= GROWTH_BYTES_MAX, (
        f"the broker took {growth} bytes more, allowed are {GROWTH_BYTES_MAX}"
    )
    if rng.random() < 0.3:
        target.broker.kill()
        target.broker.start()
        await _read_back(target, topic, acknowledged)
    async with pydanube.connect(target.broker.url) as client:
        await client.topics.delete(topic, force=True)


async def _peak_memory(target: Target, is_over: asyncio.Event) -> int:
    peak = 0
    while not is_over.is_set():
        peak = max(peak, target.memory_bytes())
        with suppress(TimeoutError):
            async with asyncio.timeout(SAMPLE_S):
                await is_over.wait()
    return peak


async def _publish_and_receive(target: Target) -> None:
    """Publish and receive like a well-behaved client."""
    topic = "/default/frames-beside"
    async with (
        pydanube.connect(target.broker.url) as client,
        client.producer(topic) as producer,
        client.consumer(topic, subscription="s", start="latest") as consumer,
    ):
        for number in range(WELL_BEHAVED_MESSAGES):
            await producer.send(b"%d" % number)
            message = await consumer.receive(timeout_s=TIMEOUT_S)
            await consumer.ack(message)


async def _read_back(target: Target, topic: str, count: int) -> None:
    """Check that *count* messages can be read, with and without a subscription."""
    async with pydanube.connect(target.broker.url) as client:
        found = 0
        async for batch in client.read(topic):
            found += len(batch)
        assert found == count, f"{found} of {count} acknowledged messages were read"
        async with client.consumer(
            topic,
            subscription="again",
            type="shared",
            start="earliest",
            prefetch_messages=100_000,
        ) as consumer:
            left = min(count, 100_000)
            while left > 0:
                batch = await consumer.receive_batch(max_messages=left, timeout_s=30)
                assert batch, f"{left} messages were not delivered"
                left -= len(batch)


class _Producer:
    """A producer that can send any bytes, each batch on a new connection."""

    def __init__(self, target: Target, topic: str) -> None:
        self._target = target
        self._topic = topic
        self.acknowledged = 0

    async def publish(self, make: Callable[..., BatchFrame]) -> None:
        """Publish the frame that *make* returns, and count it if it is acknowledged."""
        port = self._target.broker.stream_port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        machine = StreamConnection(Side.CLIENT)
        received = []

        async def next_frame():
            while not received:
                data = await reader.read(65_536)
                if not data:
                    return None
                received.extend(feed(machine, data))
            return received.pop(0)

        try:
            writer.write(machine.request(Kind.HELLO, hello())[1])
            await next_frame()
            opening = pb.OpenProducer(
                topic=self._topic, name="p", policy=pb.TopicPolicy()
            )
            writer.write(machine.request(Kind.OPEN_PRODUCER, opening, 1)[1])
            opened = (await next_frame()).message
            frame = make(
                producer="p",
                producer_id=opened.producer_id,
                producer_epoch=opened.producer_epoch,
                base_sequence=opened.next_sequence,
            )
            writer.writelines(machine.send_batch(Kind.PUBLISH, frame, 1))
            answer = await next_frame()
            while answer is not None and answer.kind is Kind.RECEIPT:
                if answer.message.base_sequence:
                    self.acknowledged += frame.count
                    return
                answer = await next_frame()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()


async def _publish(target: Target, topic: str, rng: Random) -> int:
    """Publish batches; return the number of acknowledged messages."""
    producer = _Producer(target, topic)
    await producer.publish(lambda **fields: frame_of([b"first"], **fields))
    assert producer.acknowledged == 1
    for _ in range(BATCHES):
        kind = rng.choice([_valid, _empty, _too_many, _contradictory, _mutated])
        await producer.publish(kind(rng))
    return producer.acknowledged


def _valid(rng: Random) -> Callable[..., BatchFrame]:
    codec = rng.choice([Codec.LZ4, Codec.ZSTD])
    size = rng.choice([100, 10_000, batch_bytes_max(FRAME_BYTES_MAX) - 2000])
    count = max(1, min(1000, batch_bytes_max(FRAME_BYTES_MAX) // (size + 64)))
    return lambda **fields: frame_of([bytes(size)] * count, codec=codec, **fields)


def _empty(rng: Random) -> Callable[..., BatchFrame]:
    codec = rng.choice(list(Codec))
    return lambda **fields: empty_messages(BATCH_MESSAGES_MAX, codec, **fields)


def _too_many(rng: Random) -> Callable[..., BatchFrame]:
    codec = rng.choice([Codec.LZ4, Codec.ZSTD])
    count = rng.choice([BATCH_MESSAGES_MAX + 1, 2_000_000])
    return lambda **fields: empty_messages(count, codec, **fields)


def _contradictory(rng: Random) -> Callable[..., BatchFrame]:
    """Return a frame whose header contradicts its body."""
    at, layout = rng.choice([(20, "<B"), (21, "<B"), (24, "<I"), (80, "<I")])
    value = rng.choice([0, 1, 2, 7, 255])
    if layout == "<I":
        value = rng.choice([0, 1, 65_536, 8 * MIB, 64 * MIB, 2**32 - 1])
    valid = _valid(rng)
    return lambda **fields: _patched(valid(**fields), at, layout, value)


def _mutated(rng: Random) -> Callable[..., BatchFrame]:
    """Return a frame with changes to its Arrow metadata or buffers."""
    attributes = [{"": ""}, None, {"a": "b", "": "c"}] * 10
    places = [(rng.random(), rng.getrandbits(64)) for _ in range(3)]

    def make(**fields) -> BatchFrame:
        frame = frame_of(
            [b"x", b"", b"yy"] * 10,
            keys=[None, b"k", b""] * 10,
            attributes=attributes,
            **fields,
        )
        for place, number in places:
            at = frame.body_at + 8 * int(
                place * (frame.byte_count - frame.body_at - 8) / 8
            )
            frame = _patched(frame, at, "<Q", number)
        return frame

    return make


def _patched(frame: BatchFrame, at: int, layout: str, value: int) -> BatchFrame:
    struct.pack_into(layout, frame.buffer, at, value)
    checksum = crc32c(memoryview(frame.buffer)[20:])
    struct.pack_into("<I", frame.buffer, 16, checksum)
    # Bytes that cannot be decoded are sent too.
    with suppress(pydanube.BrokerError):
        return decode(frame.buffer)
    return frame

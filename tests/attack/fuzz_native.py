"""
Damaged conversations of the native protocol, in both directions.

The campaign records the frames between real clients and the broker.  It replays these
conversations with a few mutations: the frames of clients to the broker, and the frames
of the broker to a client.  The broker must go on serving other clients; a client must
fail with an error of pydanube, in bounded time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from crc32c import crc32c
from google.protobuf.message import DecodeError

import pydanube
from pydanube.model.errors import CorruptBatch
from pydanube.model.policy import FailurePolicy, NamespacePolicy
from pydanube.wire.batches import decode as decode_batch
from pydanube.wire.batches import restamp_producer
from pydanube.wire.native.frames import FrameReader, RawFrame, header
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb
from support.fakes.streams import cut
from support.servers.stream_server import stream_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from random import Random

    from google.protobuf.message import Message

    from attack.target import Target

NAMESPACE = "fuzz"
TOPIC = f"/{NAMESPACE}/topic"
CONVERSATIONS_PER_ROUND = 12
HOSTILE_BROKERS_PER_ROUND = 2
MUTATIONS_MAX = 4
ANSWER_TIMEOUT_S = 0.1
"""The time that a replayed conversation waits for an answer."""
CLIENT_TIMEOUT_S = 60.0
"""The time in which a client must fail when the broker's answers are wrong."""
TEST_ROUNDS = 2
FRAME_BYTES_MAX = 1 << 26
MUTATIONS = (
    *("flip", "length", "cut", "splice", "double", "swap", "drop", "flood"),
    *("channel", "correlation", "kind", "body", "body", "body", "body"),
)
CHECKSUM_AT = 16
CHECKED_FROM = 20
"""The layout of a batch, see docs/format/batch.md."""
NUMBERS = (0, 1, 2, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1)
TEXTS = ("", "/", TOPIC, f"/{NAMESPACE}/x", "\0", "a" * 5000, "\U0001f4a3", "-part-0")


@dataclass(slots=True)
class Frame:
    """One recorded frame."""

    kind: int
    channel: int
    correlation: int
    body: bytes

    @property
    def data(self) -> bytes:
        """The encoded frame."""
        head = header(
            self.kind,  # type: ignore[arg-type]
            self.channel & 0xFFFF,
            self.correlation & 0xFFFF_FFFF,
            len(self.body),
        )
        return head + self.body


@dataclass(slots=True)
class Conversation:
    """The frames of one connection."""

    from_client: list[Frame] = field(default_factory=list)
    from_broker: list[Frame] = field(default_factory=list)


_recorded: dict[str, list[Conversation]] = {}
"""By the URL of the broker, because conversations contain its ids."""


async def attack(target: Target, rng: Random) -> None:
    """Replay damaged conversations to the broker and to clients."""
    url = target.broker.url
    if url not in _recorded:
        _recorded[url] = await record(target.broker.stream_port)
    conversations = _recorded[url]
    for _ in range(CONVERSATIONS_PER_ROUND):
        frames = list(rng.choice(conversations).from_client)
        others = rng.choice(conversations).from_client
        pieces = damaged(frames, others, rng)
        await replay_to_broker(target.broker.stream_port, pieces, rng)
    for _ in range(HOSTILE_BROKERS_PER_ROUND):
        conversation = rng.choice(conversations)
        await replay_to_client(conversation, rng)
    await clean_up(url)


async def clean_up(url: str) -> None:
    """Delete the topics that damaged requests created."""
    async with pydanube.connect(url) as client:
        for topic in await client.topics.list():
            if topic.startswith(f"/{NAMESPACE}/"):
                with suppress(pydanube.BrokerError):
                    await client.topics.delete(topic, force=True)


# Recording.


async def record(port: int) -> list[Conversation]:
    """Record conversations that contain every kind of frame."""
    conversations: list[Conversation] = []
    async with pydanube.connect(f"danube://127.0.0.1:{port}") as client:
        with suppress(pydanube.BrokerError):
            await client.namespaces.create(NAMESPACE)
    for use in (publish, consume, fetch, administrate, register_schemas, stage):
        async with recording_proxy(port) as (proxy_port, recorded):
            url = f"danube://127.0.0.1:{proxy_port}"
            async with pydanube.connect(url) as client:
                await use(client)
        conversations += recorded
    conversations += [Conversation(_requests_of_every_kind(conversations))]
    kinds = {f.kind for c in conversations for f in c.from_client}
    missing = {k for k in Kind if k.sender is not Side.BROKER} - kinds
    assert not missing, f"no conversation has {missing}"
    return conversations


def _requests_of_every_kind(conversations: list[Conversation]) -> list[Frame]:
    """Return a request of each kind that *conversations* do not contain."""
    seen = {f.kind for c in conversations for f in c.from_client}
    frames = conversations[0].from_client[:1]
    for number, kind in enumerate(Kind):
        if kind.sender is Side.BROKER or kind.body is None or kind in seen:
            continue
        message: Any = kind.body()
        for name, value in (("topic", TOPIC), ("subscription", "s"), ("query", "q")):
            if name in message.DESCRIPTOR.fields_by_name:
                setattr(message, name, value)
        correlation = 1000 + number if kind.answer else 0
        body = message.SerializeToString()
        frames.append(Frame(kind, int(kind.on_channel), correlation, body))
    return frames


@asynccontextmanager
async def recording_proxy(port: int) -> AsyncIterator[tuple[int, list[Conversation]]]:
    """Forward bytes between clients and the broker, and record the frames."""
    conversations: list[Conversation] = []
    running: set[asyncio.Task[None] | None] = set()

    async def pass_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        running.add(asyncio.current_task())
        conversation = Conversation()
        conversations.append(conversation)
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_copy(reader, to_broker, conversation.from_client))
                tasks.create_task(_copy(from_broker, writer, conversation.from_broker))
        finally:
            to_broker.close()

    async with stream_server(pass_on) as proxy_port:
        yield proxy_port, conversations
        for each in running:
            # Until its last frame is recorded.
            await each


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: list[Frame]
) -> None:
    cutter = FrameReader(FRAME_BYTES_MAX)
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            if not writer.transport.is_closing():
                writer.write(data)
            frames += map(_frame_of, cut(cutter, data))
    writer.close()


def _frame_of(raw: RawFrame) -> Frame:
    return Frame(raw.kind, raw.channel, raw.correlation, bytes(raw.body))


# The recorded clients.


async def publish(client: pydanube.Client) -> None:
    """Publish in every way that the client offers."""
    for compression in (None, "lz4", "zstd"):
        async with client.producer(
            TOPIC, name=f"recorded-{compression}", compression=compression
        ) as producer:
            await producer.send(b"one", key="k", attributes={"a": "b"})
            await producer.send_batch([b"m" * 100] * 50)
    async with client.producer(f"{TOPIC}-fast", reliable=False) as producer:
        await producer.send(b"m")
    async with client.producer(f"{TOPIC}-parts", partitions=2) as producer:
        await producer.send(b"m", key="k")


async def consume(client: pydanube.Client) -> None:
    """Receive, acknowledge, refuse and seek."""
    await publish(client)
    for type_ in ("exclusive", "failover", "shared", "key_shared"):
        async with client.consumer(
            TOPIC, subscription=type_, type=type_, start="earliest"
        ) as consumer:
            batch = await consumer.receive_batch(max_messages=20)
            await consumer.ack(batch)
            await consumer.flush()
            message = await consumer.receive()
            await consumer.nack(message, reason="because", delay_s=0.01)
            if type_ == "exclusive":
                await consumer.seek("earliest")


async def fetch(client: pydanube.Client) -> None:
    """Read without a subscription."""
    await publish(client)
    async for _ in client.read(TOPIC):
        pass
    await client.topics.find_offsets(TOPIC, [0, 1_000_000])
    await client.topics.list_offsets([TOPIC, f"{TOPIC}-none"])


async def administrate(client: pydanube.Client) -> None:
    """Send administrative requests."""
    await publish(client)
    await client.topics.list()
    await client.topics.describe(TOPIC)
    await client.storage.segments(TOPIC)
    await client.topics.configure(
        TOPIC, limits=NamespacePolicy(max_consumers_per_topic=9)
    )
    await client.topics.configure(TOPIC, limits=None)
    await client.topics.add_partitions(f"{TOPIC}-parts", 3)
    await client.subscriptions.create(TOPIC, "admin")
    await client.subscriptions.describe(TOPIC, "admin")
    await client.subscriptions.configure(TOPIC, "admin", failure_policy=FailurePolicy())
    await client.subscriptions.configure(TOPIC, "admin", is_paused=True)
    await client.subscriptions.configure(TOPIC, "admin", is_paused=False)
    await client.subscriptions.seek(TOPIC, "admin", "earliest")
    await client.subscriptions.skip(TOPIC, "admin", 3)
    await client.subscriptions.delete(TOPIC, "admin")
    await client.topics.hold(TOPIC, "holder", "why")
    await client.topics.release(TOPIC, "holder")
    await client.namespaces.list()
    await client.namespaces.describe(NAMESPACE)


async def register_schemas(client: pydanube.Client) -> None:
    """Register, check and use schemas."""
    subject = f"{NAMESPACE}-subject"
    await client.schemas.register(subject, pydanube.Schema.of(int))
    await client.schemas.subjects()
    await client.schemas.versions(subject)
    await client.schemas.describe(subject)
    async with client.producer(f"{TOPIC}-typed", schema=str) as producer:
        await producer.send("value")
    async with client.consumer(
        f"{TOPIC}-typed", subscription="s", start="earliest"
    ) as consumer:
        await consumer.receive()


async def stage(client: pydanube.Client) -> None:
    """Stage a version and commit it."""
    await publish(client)
    staging = client.staging(f"{NAMESPACE}-query", 1)
    part = staging.part("0")
    await part.write(TOPIC, pa.table({"payload": [b"m"] * 10}))
    await staging.commit([await part.finish()])


# Damage.


def damaged(frames: list[Frame], others: list[Frame], rng: Random) -> list[Any]:
    """Frames, or bytes in the place of frames, of a damaged conversation."""
    pieces: list[Any] = list(frames)
    for _ in range(rng.randint(1, MUTATIONS_MAX)):
        if not pieces:
            break
        at = rng.randrange(len(pieces))
        piece = pieces[at]
        match rng.choice(MUTATIONS):
            case "flip":
                pieces[at] = _flipped(_data_of(piece), rng)
            case "length":
                length = rng.choice(NUMBERS) & 0xFFFF_FFFF
                pieces[at] = length.to_bytes(4, "little") + _data_of(piece)[4:]
            case "cut":
                data = _data_of(piece)
                pieces[at] = data[: rng.randrange(len(data) + 1)]
            case "splice":
                begin = rng.randrange(len(others))
                pieces[at:at] = others[begin : begin + rng.randint(1, 5)]
            case "double":
                pieces.insert(rng.randrange(len(pieces)), piece)
            case "swap":
                other = rng.randrange(len(pieces))
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case "drop":
                del pieces[at]
            case "flood":
                pieces[at:at] = [piece] * rng.choice((10, 1000))
            case part if isinstance(piece, Frame):
                pieces[at] = _changed(piece, part, rng)
    return pieces


def _data_of(piece: Any) -> bytes:
    return piece.data if isinstance(piece, Frame) else piece


def _flipped(data: bytes, rng: Random) -> bytes:
    flipped = bytearray(data)
    for _ in range(rng.randint(1, 8) if data else 0):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _changed(frame: Frame, part: str, rng: Random) -> Frame:
    kind, channel = frame.kind, frame.channel
    correlation, body = frame.correlation, frame.body
    match part:
        case "channel":
            channel = rng.choice((0, 1, 2, 3, 0xFFFF, rng.randrange(65536)))
        case "correlation":
            correlation = rng.choice((0, 1, 2, 3, 0xFFFF_FFFF))
        case "kind":
            kind = rng.choice(list(Kind))
        case "body":
            body = _changed_body(frame, rng)
    return Frame(kind, channel, correlation, body)


def _changed_body(frame: Frame, rng: Random) -> bytes:
    body = frame.kind.body if isinstance(frame.kind, Kind) else None
    if body is None:
        return _changed_batch(frame.body, rng)
    message = body()
    try:
        message.ParseFromString(frame.body)
        _change_message(message, rng)
        return bytes(message.SerializeToString())
    except (DecodeError, ValueError, TypeError, OverflowError):
        # An earlier change may have left no message, or a field refuses the value.
        return _flipped(frame.body, rng)


def _change_message(message: Message, rng: Random) -> None:
    """Set one field to something extreme."""
    fields = list(message.DESCRIPTOR.fields)
    if not fields:
        return
    changed = rng.choice(fields)
    if changed.message_type is not None:
        if changed.is_repeated:
            entries = getattr(message, changed.name)
            if changed.message_type.GetOptions().map_entry:
                for _ in range(rng.choice((1, 2, 500))):
                    entries[str(rng.getrandbits(64))] = "x" * rng.choice((0, 1, 100))
                return
            for _ in range(rng.choice((1, 2, 500))):
                _change_message(entries.add(), rng)
        else:
            inner = getattr(message, changed.name)
            inner.SetInParent()
            _change_message(inner, rng)
        return
    if changed.is_repeated:
        many = getattr(message, changed.name)
        many.extend([_value_for(changed, rng)] * rng.choice((1, 7, 50_000)))
        return
    setattr(message, changed.name, _value_for(changed, rng))


def _value_for(described: Any, rng: Random) -> Any:
    kind = described.cpp_type
    if kind == described.CPPTYPE_STRING:
        if described.type == described.TYPE_BYTES:
            return rng.randbytes(rng.choice((0, 1, 100, 5000)))
        return rng.choice(TEXTS)
    values: tuple[Any, ...] = NUMBERS
    if kind in (described.CPPTYPE_DOUBLE, described.CPPTYPE_FLOAT):
        values = (0.0, -1.0, 1e308, float("inf"), float("nan"), 1e-300)
    elif kind == described.CPPTYPE_BOOL:
        values = (False, True)
    elif kind == described.CPPTYPE_UINT32:
        values = tuple(number & 0xFFFF_FFFF for number in NUMBERS)
    elif kind != described.CPPTYPE_UINT64:
        # Signed numbers and enumerations.
        values = (0, 1, 2, 3, 99, -1, 2**31 - 1, -(2**31))
    return rng.choice(values)


def _changed_batch(body: bytes, rng: Random) -> bytes:
    """Return a changed batch, in most cases with a matching checksum."""
    try:
        batch = decode_batch(bytearray(body))
    except CorruptBatch:
        return _flipped(body, rng)
    changed = bytearray(batch.buffer)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed))
        if rng.random() < 0.5:
            # Most fields of the header are at multiples of four.
            at = 4 * rng.randrange(24)
            value = rng.choice(NUMBERS) & 0xFFFF_FFFF
            changed[at : at + 4] = value.to_bytes(4, "little")
        else:
            changed[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.9:
        _restore_checksum(changed)
    return bytes(changed)


def _restore_checksum(batch: bytearray) -> None:
    checksum = crc32c(memoryview(batch)[CHECKED_FROM:])
    batch[CHECKSUM_AT : CHECKSUM_AT + 4] = checksum.to_bytes(4, "little")


# Replaying to the broker.


async def replay_to_broker(port: int, pieces: list[Any], rng: Random) -> None:
    """Send *pieces* with the ids that the broker assigns this time, and disconnect."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        raise AssertionError("the broker accepts no connections") from None
    opened: dict[int, Any] = {}
    cutter = FrameReader(FRAME_BYTES_MAX)
    try:
        for piece in pieces:
            if writer.transport.is_closing():
                break
            if isinstance(piece, Frame):
                writer.write(_with_ids(piece, opened).data)
                if piece.kind in _AWAITED:
                    await _read_answer(reader, cutter, opened, piece.correlation)
            else:
                writer.write(piece)
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await writer.drain()
        await _read_answer(reader, cutter, opened, correlation=0)
    except (ConnectionError, pydanube.BrokerError):
        pass
    finally:
        if rng.random() < 0.5:
            writer.transport.abort()
        writer.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()


_AWAITED = (Kind.HELLO, Kind.OPEN_PRODUCER, Kind.OPEN_CONSUMER, Kind.OPEN_STAGE)


async def _read_answer(
    reader: asyncio.StreamReader,
    cutter: FrameReader,
    opened: dict[int, Any],
    correlation: int,
) -> None:
    """Read until the answer or the timeout; add the opened producers to *opened*."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while data := await reader.read(1 << 20):
                frames = cut(cutter, data)
                for raw in frames:
                    if raw.kind is Kind.PRODUCER_OPENED:
                        message = pb.ProducerOpened()
                        message.ParseFromString(bytes(raw.body))
                        opened[raw.channel] = message
                if correlation in [raw.correlation for raw in frames]:
                    return


def _with_ids(frame: Frame, opened: dict[int, Any]) -> Frame:
    """Return a PUBLISH frame with the ids of the open producer."""
    ids = opened.get(frame.channel)
    if frame.kind != Kind.PUBLISH or ids is None:
        return frame
    try:
        batch = decode_batch(bytearray(frame.body))
    except CorruptBatch:
        return frame
    restamp_producer(
        batch, ids.producer_id, ids.producer_epoch, batch.header.base_sequence
    )
    return Frame(frame.kind, frame.channel, frame.correlation, bytes(batch.buffer))


# Replaying to a client.


async def replay_to_client(conversation: Conversation, rng: Random) -> None:
    """Check that a client fails properly when it gets damaged answers."""
    pieces = damaged(conversation.from_broker, conversation.from_broker, rng)
    if rng.random() < 0.7 and conversation.from_broker:
        # Keep the handshake intact, so that the client reads the rest.
        pieces = [conversation.from_broker[0], *pieces[1:]]

    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            for piece in pieces:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await reader.read(65536)
                if writer.transport.is_closing():
                    break
                writer.write(_data_of(piece))
            await writer.drain()

    uses: list[Callable[[pydanube.Client], Awaitable[None]]] = [publish, consume, fetch]
    async with stream_server(answer) as port:
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_S):
                await _use_until_failure(port, rng.choice(uses), rng)
        except TimeoutError:
            raise AssertionError("a client hangs after damaged answers") from None


async def _use_until_failure(
    port: int, use: Callable[[pydanube.Client], Awaitable[None]], rng: Random
) -> None:
    try:
        url = f"danube://127.0.0.1:{port}"
        async with pydanube.connect(url, connect_timeout_s=1.0) as client:
            # Retries are correct, but they may take longer than a round.
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3 + rng.random() / 2):
                    await use(client)
    except pydanube.BrokerError:
        pass

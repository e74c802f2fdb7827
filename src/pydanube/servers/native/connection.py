"""
A connection of the native protocol.

One ``NativeConnection`` stands for one connection.  What is on the data path, batches
in, batches and receipts out, is handled at once when bytes arrive, without a
task; requests that have to wait for something are tasks of the server.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from pydanube.aio.write_buffer import WriteBuffer
from pydanube.model.batch import Column
from pydanube.model.errors import (
    BrokerError,
    Closed,
    Draining,
    InvalidConfig,
    InvalidRequest,
    ProtocolViolation,
    QuotaExceeded,
    TimedOut,
)
from pydanube.model.names import TopicName, parse_client_name, parse_subscription
from pydanube.model.version import __version__
from pydanube.servers.config import ListenConfig
from pydanube.servers.native.requests import REQUESTS, start_of
from pydanube.servers.native.schemas import SCHEMA_REQUESTS
from pydanube.servers.native.staging import STAGING_REQUESTS, Stages, too_long
from pydanube.servers.receive_memory import ReceiveMemory
from pydanube.wire.batches import BATCH_MESSAGES_MAX
from pydanube.wire.native.connection import (
    CREDIT_REVISION,
    PROTOCOL_VERSION,
    REVISION,
    ReceivedFrame,
    StreamConnection,
)
from pydanube.wire.native.frames import batch_bytes_max
from pydanube.wire.native.kinds import KIND_OF, OPERATIONS, Kind, Side
from pydanube.wire.native.messages import (
    RANGES_MAX,
    access_from_wire,
    error_to_wire,
    policy_from_wire,
    position_from_wire,
    ranges_from_wire,
    seconds_from_wire,
    type_from_wire,
)
from pydanube.wire.native.schema_messages import reference_from_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube.wire.turn_budget import BYTES_PER_UNIT, TurnBudget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from pydanube.broker.broker import Broker
    from pydanube.broker.consumers import Consumer
    from pydanube.broker.producer_session import ProducerSession
    from pydanube.broker.subscription import Subscription
    from pydanube.broker.topic import Topic
    from pydanube.model.ranges import Range
    from pydanube.storage.topic_log import TopicLog
    from pydanube.wire.batches import BatchFrame

log = logging.getLogger(__name__)

GREETING_TIMEOUT_S = 10.0
UNGREETED_MAX = 1024
"""Connections that have not sent HELLO; beyond that the oldest one is closed."""
REVISION_WITH_IDLE_TIMEOUT = 4
"""Clients of this revision know that they must not be silent."""
SWEEP_INTERVAL_S_MAX = 1.0
SWEEPS_PER_TIMEOUT_MIN = 4
"""How often, at least, a connection is looked at within the idle timeout."""
PROGRESS_BYTES_MIN = 16 * 1024
"""Within the idle timeout, a frame is completed or so much more of it arrives."""
REQUESTS_MAX = 256
"""Of one connection at a time; a client that asks faster is not read from."""
REQUEST_BYTES_MAX = 16 * 1024 * 1024
"""The same in bytes of requests."""
OPENINGS_MAX = 8
"""How many openings of one connection are carried out at the same time."""
RANGES_PER_TURN = 1000
"""How many ranges of an acknowledgement are applied in one turn of the event loop."""
FETCH_BYTES_MAX = 16 * 1024 * 1024
FETCH_WAIT_S_MAX = 30.0
WRITE_BUFFER_BYTES = 4 * 1024 * 1024
"""When so much waits for a slow client, it is sent nothing new."""
CREDIT_BYTES_MAX = 16 * 1024 * 1024
"""Of a consumer's credit, so much is passed on at a time."""
CLOSE_TIMEOUT_S = 5.0
REVISION_1_COLUMNS = Column.DELIVER_AT | Column.EXPIRES_AT
"""What an older client would take for damage."""
REASON_CHARACTERS_MAX = 1024
"""Of a nack; what is longer is cut off."""
HELD_BYTES_MAX = 16 * 1024 * 1024
"""
Of batches that came faster than their topic takes them; a connection that has more is
not read from.
"""
CHECKED_AT_ONCE_BYTES_MAX = 1024 * 1024
"""A batch that is longer before compression is checked in a thread."""
CHECKS_MAX = 2
"""The most batches of all connections checked in threads at a time."""
SIGN_INTERVAL_S = 5.0
"""A producer whose batches have to wait gets a sign of life so often."""


_OPENINGS = frozenset(
    {
        Kind.OPEN_PRODUCER,
        Kind.OPEN_CONSUMER,
        Kind.OPEN_STAGE,
        Kind.CREATE_TOPIC,
        Kind.CREATE_SUBSCRIPTION,
        Kind.CREATE_NAMESPACE,
    }
)
"""Requests that write metadata, which all connections share."""

# What a frame costs of its connection's share of a turn.
_REQUEST_UNITS = 16
_UNITS = {
    Kind.PUBLISH: 4,
    Kind.STAGE: 4,
    Kind.CREDIT: 2,
    Kind.ACK: 2,
    Kind.NACK: 2,
    Kind.PING: 1,
}
_CONTROL_BYTES_PER_UNIT = 512


class NativeServer:
    """All connections of the native protocol."""

    def __init__(
        self, broker: Broker, tasks: asyncio.TaskGroup, limits: ListenConfig
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.connections: dict[NativeConnection, None] = {}
        """In the order in which they came; so is what runs."""
        self.ungreeted: dict[NativeConnection, None] = {}
        """Those that have not sent HELLO."""
        self.connections_total = 0
        self.refused_total = 0
        """Connections that were closed because there were too many."""
        self.timed_out_total = 0
        """Connections that were closed because the client was silent."""
        self.receive_memory = ReceiveMemory(limits.receive_bytes_max)
        self.fetched = 0
        self.fetched_bytes = 0
        self.errors: Counter[str] = Counter()
        """How many errors of each code were sent."""
        self._checks = asyncio.Semaphore(CHECKS_MAX)
        self._tasks = tasks
        self._running: dict[asyncio.Task[None], None] = {}

    def new_connection(self) -> NativeConnection:
        """The protocol of a new connection."""
        self.connections_total += 1
        return NativeConnection(self)

    def on_connected(self, connection: NativeConnection) -> None:
        """A connection was made."""
        self.connections[connection] = None
        self.ungreeted[connection] = None
        if len(self.ungreeted) > UNGREETED_MAX:
            self.refused_total += 1
            oldest = next(iter(self.ungreeted))
            del self.ungreeted[oldest]
            oldest.abort()

    def on_greeted(self, connection: NativeConnection) -> None:
        """
        A client has sent HELLO.

        Raises:
            QuotaExceeded: There are as many connections as there may be.
        """
        self.ungreeted.pop(connection, None)
        if len(self.connections) - len(self.ungreeted) > self.limits.connections_max:
            self.refused_total += 1
            raise QuotaExceeded(
                f"the broker has {self.limits.connections_max} connections of the "
                "native protocol, as many as listen.connections_max allows; close "
                "some or raise the setting"
            )

    def on_lost(self, connection: NativeConnection) -> None:
        """A connection is gone."""
        self.connections.pop(connection, None)
        self.ungreeted.pop(connection, None)
        self.receive_memory.release(connection)

    def error(self, error: BrokerError) -> pb.Error:
        """What a client is told of *error*, which is counted."""
        self.errors[error.code] += 1
        return error_to_wire(error)

    async def verify(self, topic: Topic, batch: BatchFrame) -> None:
        """
        Check a large batch in a thread; see ``Topic.verify``.

        Bounds: ``CHECKS_MAX`` batches are decoded at a time.
        """
        async with self._checks:
            await asyncio.to_thread(topic.verify, batch)

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run *work* until it ends or the server does."""
        task = self._tasks.create_task(work)
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return task

    async def sweep_again_and_again(self) -> None:
        """Close connections of silent clients, until the server is closed."""
        timeout_s = self.limits.idle_timeout_s
        interval_s = min(SWEEP_INTERVAL_S_MAX, timeout_s / SWEEPS_PER_TIMEOUT_MIN)
        sweeps_max = math.ceil(timeout_s / interval_s)
        while True:
            await asyncio.sleep(interval_s)
            self.sweep(sweeps_max)

    def sweep(self, sweeps_max: int) -> None:
        """Close connections that were silent for more than *sweeps_max* sweeps."""
        for connection in list(self.connections):
            connection.sweep(sweeps_max)

    async def close(self) -> None:
        """Close every connection in good order."""
        async with asyncio.TaskGroup() as goodbyes:
            for connection in list(self.connections):
                goodbyes.create_task(connection.say_goodbye("the broker is stopping"))
        for task in list(self._running):
            task.cancel()


@asynccontextmanager
async def open_native_server(
    broker: Broker, limits: ListenConfig | None = None
) -> AsyncIterator[NativeServer]:
    """The server of the native protocol over *broker*, without a socket of its own."""
    async with asyncio.TaskGroup() as tasks:
        server = NativeServer(broker, tasks, limits or ListenConfig())
        server.run(server.sweep_again_and_again())
        try:
            yield server
        finally:
            await server.close()


@asynccontextmanager
async def listen(server: NativeServer, host: str, port: int) -> AsyncIterator[int]:
    """
    Take connections on *host* and *port* (0: any free one); yields the port.

    Raises:
        InvalidConfig: The address is not ours, or taken.
    """
    loop = asyncio.get_running_loop()
    try:
        listener = await loop.create_server(
            server.new_connection, host, port, backlog=1024
        )
    except OSError as error:
        raise InvalidConfig(
            f"cannot listen on {host}:{port} for the native protocol: "
            f"{error.strerror or error}; choose another with --stream-port"
        ) from error
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


class ProducerChannel:
    """One producer of one connection."""

    __slots__ = ("held", "is_anonymous", "offsets", "sequences", "session", "topic")

    def __init__(
        self, topic: Topic, session: ProducerSession, *, is_anonymous: bool
    ) -> None:
        self.topic = topic
        self.session = session
        self.is_anonymous = is_anonymous
        # The receipts that the next frame will carry.
        self.sequences: list[int] = []
        self.offsets: list[int] = []
        # Batches that came faster than the topic takes them.
        self.held: deque[BatchFrame] = deque()


class ConsumerChannel:
    """One consumer of one connection; what the subscription sees of it."""

    __slots__ = (
        "_connection",
        "_granted_bytes",
        "_owed_bytes",
        "_owed_messages",
        "channel",
        "consumer",
        "subscription",
        "topic",
    )

    def __init__(self, connection: NativeConnection, channel: int) -> None:
        self._connection = connection
        self.channel = channel
        # Credit that the client gave and the subscription does not have yet; and
        # the bytes that the subscription may still deliver.
        self._owed_messages = 0
        self._owed_bytes = 0
        self._granted_bytes = 0
        self.topic: Topic
        self.subscription: Subscription
        self.consumer: Consumer | None = None

    def credit(self, messages: int, byte_count: int) -> None:
        """The client takes so much more."""
        self._owed_messages += messages
        self._owed_bytes += byte_count
        self.grant()

    def grant(self) -> None:
        """
        Pass credit on, as far as the client reads what it asked for.

        A client may ask for anything.  What waits for it in the transport is
        bounded all the same: by the transport's limit and one grant.
        """
        byte_count = min(self._owed_bytes, CREDIT_BYTES_MAX - self._granted_bytes)
        if (
            self.consumer is None
            or not self._connection.can_write
            or (byte_count <= 0 and not self._owed_messages)
        ):
            return
        messages, self._owed_messages = self._owed_messages, 0
        byte_count = max(0, byte_count)
        self._owed_bytes -= byte_count
        self._granted_bytes += byte_count
        self.subscription.credit(self.consumer, messages, byte_count)

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        """See ConsumerPort."""
        self._granted_bytes -= frame.plain_bytes
        if not self._connection.counts_plain_bytes:
            # The client will give back only what it was sent.
            self._owed_bytes += frame.plain_bytes - frame.byte_count
        self._connection.deliver(self.channel, frame, attempt)
        if self._owed_bytes and self._granted_bytes * 2 < CREDIT_BYTES_MAX:
            self.grant()

    def detach(self) -> None:
        """The client, or its connection, is gone; also before it was attached."""
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            self.subscription.detach(consumer)

    def set_active(self, *, is_active: bool) -> None:
        """See ConsumerPort."""
        self._connection.tell_state(self.channel, is_active=is_active)

    def close(self, reason: BrokerError) -> None:
        """See ConsumerPort."""
        self._connection.close_channel(self.channel, reason)


class NativeConnection(asyncio.BufferedProtocol):
    """One connection of the native protocol; see the module."""

    def __init__(self, server: NativeServer) -> None:
        self._server = server
        self._broker = server.broker
        frame_bytes_max = server.limits.frame_bytes_max
        self._protocol = StreamConnection(Side.BROKER, frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._write_buffer: WriteBuffer
        self._producers: dict[int, ProducerChannel] = {}
        self._consumers: dict[int, ConsumerChannel] = {}
        self._batch_bytes_max = batch_bytes_max(frame_bytes_max)
        self._stages = Stages(server.broker, self._batch_bytes_max)
        # Openings that are under way, by channel; and those of them that may take
        # for ever.
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._patient: dict[int, asyncio.Task[None]] = {}
        self._requests = 0
        self._request_bytes = 0
        self._fetching: dict[asyncio.Task[None], None] = {}
        # Openings that are not begun, because as many as may are carried out.
        self._openings_due: deque[ReceivedFrame] = deque()
        self._openings_running = 0
        self.held_bytes = 0
        self._pauses: set[str] = set()
        self._is_reading = True
        # What is done of this turn's share, and whether the next turn is scheduled.
        self._budget = TurnBudget()
        self._is_turn_due = False
        # Since the last sweep: whether a whole frame came, and bytes of a longer one.
        self._is_heard = False
        self._partial_bytes = 0
        self._silent_sweeps = 0
        self._unsent_bytes = 0
        self._greeting_timer: asyncio.TimerHandle | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._gone = asyncio.Event()
        self._peer = "?"

    # What asyncio tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._write_buffer = WriteBuffer(self._transport, self._loop)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._peer = str(transport.get_extra_info("peername", "in process"))
        connection = transport.get_extra_info("socket")
        if connection is not None:
            _watch_for_vanished_peer(connection, self._server.limits.idle_timeout_s)
        self._greeting_timer = self._loop.call_later(
            GREETING_TIMEOUT_S, self._expect_greeting
        )
        self._server.on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._protocol.reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self._protocol.reader.add(nbytes)
        self._partial_bytes += nbytes
        self._act_on_frames()

    def eof_received(self) -> bool:
        """See asyncio.BufferedProtocol."""
        return False

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write.clear()
        self._unsent_bytes = self._transport.get_write_buffer_size()
        # Answers would pile up for a client that asks and does not read.
        self._pause("writing")

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write.set()
        self._unpause("writing")
        for consumer in list(self._consumers.values()):
            consumer.grant()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._server.on_lost(self)
        self._protocol.close()
        self._gone.set()
        self._can_write.set()
        self._stop_greeting_timer()
        self._openings_due.clear()
        patient, self._patient = self._patient, {}
        for waiting in (*patient.values(), *self._fetching):
            waiting.cancel()
        for producer in list(self._producers.values()):
            self._broker.producers.close(producer.topic, producer.session, forget=False)
        for consumer in list(self._consumers.values()):
            consumer.detach()
        for producer in self._producers.values():
            producer.held.clear()
        self._producers.clear()
        self._consumers.clear()
        self._stages.close_all()

    # What the broker tells us.

    @property
    def can_write(self) -> bool:
        """Whether the client reads fast enough for what it is sent."""
        return self._can_write.is_set()

    @property
    def counts_plain_bytes(self) -> bool:
        """Whether the client counts credit before compression, as the broker does."""
        return self._protocol.peer_revision >= CREDIT_REVISION

    def deliver(self, channel: int, frame: BatchFrame, attempt: int) -> None:
        """Send messages to a consumer."""
        if self._protocol.peer_revision < 1:
            frame = frame.without(REVISION_1_COLUMNS)
        for part in frame.split(BATCH_MESSAGES_MAX):
            self._write_buffer.writelines(
                self._protocol.send_batch(Kind.DELIVERY, part, channel, attempt=attempt)
            )

    def tell_state(self, channel: int, *, is_active: bool) -> None:
        """Tell a consumer whether it gets messages."""
        self._write(
            self._protocol.send(
                Kind.CONSUMER_STATE, pb.ConsumerState(is_active=is_active), channel
            )
        )

    def send_on(self, channel: int, kind: Kind, message: Message) -> None:
        """Send a control frame on a channel."""
        self._write(self._protocol.send(kind, message, channel))

    def close_channel(self, channel: int, reason: BrokerError) -> None:
        """End a producer, a consumer or a stage, and say why."""
        self._stages.close(channel)
        producer = self._producers.pop(channel, None)
        if producer is not None:
            self._drop_held(producer)
            self._broker.producers.close(producer.topic, producer.session, forget=False)
        consumer = self._consumers.pop(channel, None)
        if consumer is not None:
            consumer.detach()
        self._write(
            self._protocol.close_channel(
                channel, Kind.ERROR, self._server.error(reason)
            )
        )

    async def say_goodbye(self, reason: str) -> None:
        """Tell the client that we close, let what is written out, and close."""
        if self._gone.is_set():
            return
        for channel in [*self._producers, *self._consumers, *self._stages]:
            self.close_channel(channel, Draining(reason))
        self._write(self._protocol.send(Kind.GOODBYE, pb.Goodbye(reason=reason)))
        self._write_buffer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()

    # Which share of the event loop the connection gets.

    def _act_on_frames(self) -> None:
        """Act on frames that came, as far as this turn's share goes."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._begin_turn)
        budget = self._budget
        try:
            for frame in self._protocol.frames():
                self._is_heard = True
                self._partial_bytes = 0
                if frame is None:
                    budget.spend(1)
                else:
                    budget.spend(_units_of(frame))
                    self._take(frame)
                if budget.is_spent:
                    self._pauses.add("turn")
                if self._pauses:
                    break
        except ProtocolViolation as error:
            self._refuse(error)
            return
        except Exception:
            # One connection may fail alone.
            log.exception("closing the connection of %s after a failure", self._peer)
            self._transport.abort()
            return
        self._reserve_memory()
        self._pause_or_resume_reading()

    def _begin_turn(self) -> None:
        self._budget.refill()
        if self._budget.is_spent:
            self._loop.call_soon(self._begin_turn)
            return
        self._is_turn_due = False
        self._pauses.discard("turn")
        if self._pauses or self._is_reading or self._transport.is_closing():
            return
        self._act_on_frames()

    def _reserve_memory(self) -> None:
        """Take part in the limit of all connections with a long frame that began."""
        memory = self._server.receive_memory
        byte_count = self._protocol.reader.long_frame_bytes
        if byte_count and not memory.holds(self) and "memory" not in self._pauses:
            if not memory.reserve(self, byte_count):
                self._pauses.add("memory")
        elif not byte_count and memory.holds(self):
            memory.release(self)

    def on_receive_room(self) -> None:
        """See receive_memory.Receiver."""
        self._unpause("memory")

    def _pause(self, why: str) -> None:
        self._pauses.add(why)
        self._pause_or_resume_reading()

    def _unpause(self, why: str) -> None:
        if why not in self._pauses:
            return
        self._pauses.discard(why)
        # Frames that have arrived come first, and not in the middle of something else.
        if not self._pauses and not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._begin_turn)

    def _pause_or_resume_reading(self) -> None:
        if self._is_reading == (not self._pauses) or self._transport.is_closing():
            return
        self._is_reading = not self._pauses
        if self._is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Whether the client is alive.

    def sweep(self, sweeps_max: int) -> None:
        """
        Close the connection if the client was silent for more than *sweeps_max* sweeps.

        A client is not silent while it is the broker that does not read from it, nor
        while it still takes what it was sent.
        """
        if self._is_heard or self._partial_bytes >= PROGRESS_BYTES_MIN:
            self._is_heard = False
            self._partial_bytes = 0
            self._silent_sweeps = 0
            return
        if self._pauses - {"turn", "writing"}:
            self._silent_sweeps = 0
            if self._can_write.is_set() and self._knows_idle_timeout:
                # The client's PING may be among what is not read.
                self._write(self._protocol.send(Kind.PONG, pb.Pong()))
            return
        if not self._can_write.is_set():
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes < self._unsent_bytes:
                self._silent_sweeps = 0
            self._unsent_bytes = unsent_bytes
        self._silent_sweeps += 1
        has_partial_frame = self._protocol.reader.has_partial_frame
        if has_partial_frame and self._server.receive_memory.is_exhausted:
            # Others wait for the memory of a frame that makes no progress.
            self._end_silent("no more of a frame came, and others wait for memory")
        elif self._silent_sweeps > sweeps_max and (
            has_partial_frame or not self._protocol.is_open or self._knows_idle_timeout
        ):
            timeout_s = self._server.limits.idle_timeout_s
            self._end_silent(f"no complete frame came for {timeout_s:g} s")

    @property
    def _knows_idle_timeout(self) -> bool:
        """Whether the client knows that it must not be silent."""
        return self._protocol.peer_revision >= REVISION_WITH_IDLE_TIMEOUT

    def _end_silent(self, reason: str) -> None:
        log.info("closing the connection of %s: %s", self._peer, reason)
        self._server.timed_out_total += 1
        if self._protocol.is_open:
            self._write(
                self._protocol.send(Kind.ERROR, self._server.error(TimedOut(reason)))
            )
        # A client that does not read would keep the connection open.
        self._write_buffer.flush()
        self._transport.abort()

    # The data path.

    def _take(self, frame: ReceivedFrame) -> None:
        channel = frame.channel
        message: Any = frame.message
        match frame.kind:
            case Kind.PUBLISH:
                self._publish(channel, frame)
            case Kind.STAGE:
                self._stage(channel, frame)
            case Kind.CREDIT:
                if consumer := self._consumers.get(channel):
                    consumer.credit(message.messages, message.bytes)
            case Kind.ACK | Kind.NACK:
                self._settle(frame, message)
            case Kind.HELLO:
                self._greet(frame, message)
            case Kind.PING:
                self._answer(frame, pb.Pong())
            case Kind.GOODBYE:
                self._write_buffer.close()
            case _:
                self._start(frame)

    def _publish(self, channel: int, frame: ReceivedFrame) -> None:
        producer = self._producers.get(channel)
        batch = frame.batch
        if producer is None or batch is None:
            return
        if batch.plain_bytes > self._batch_bytes_max:
            self.close_channel(channel, too_long(batch, self._batch_bytes_max))
            return
        if producer.held:
            self._hold(producer, batch)
            return
        delay_s = producer.topic.publish_delay_s(self._loop.time())
        if (
            delay_s > 0
            or batch.plain_bytes > CHECKED_AT_ONCE_BYTES_MAX
            or not self._broker.topics.has_room
        ):
            self._hold(producer, batch)
            self._server.run(self._publish_held(channel, producer, delay_s))
            return
        self._publish_batch(channel, producer, batch)

    def _publish_batch(
        self, channel: int, producer: ProducerChannel, batch: BatchFrame
    ) -> None:
        try:
            producer.topic.publish(
                producer.session,
                batch,
                partial(self._published, channel, producer, batch.header.base_sequence),
            )
        except BrokerError as error:
            self.close_channel(channel, error)
        if not self._broker.topics.has_room and "room" not in self._pauses:
            self._pause("room")
            self._server.run(self._resume_when_there_is_room())

    def _stage(self, channel: int, frame: ReceivedFrame) -> None:
        assert frame.batch is not None
        self._stages.take(channel, frame.batch)
        if not self._broker.staging.has_room and "staging" not in self._pauses:
            self._pause("staging")
            self._server.run(self._resume_when_more_can_be_staged())

    # Publishing what cannot be published at once.

    def _hold(self, producer: ProducerChannel, batch: BatchFrame) -> None:
        producer.held.append(batch)
        self.held_bytes += batch.byte_count
        if self.held_bytes >= HELD_BYTES_MAX:
            self._pause("rate")

    async def _publish_held(
        self, channel: int, producer: ProducerChannel, delay_s: float
    ) -> None:
        """Publish what *producer* holds, as fast as topic and memory take it."""
        while producer.held and not self._gone.is_set():
            if delay_s > 0:
                await asyncio.sleep(min(delay_s, SIGN_INTERVAL_S))
                if producer.held and delay_s > SIGN_INTERVAL_S:
                    # Without a word, the client would take us for dead.
                    self._write(
                        self._protocol.send(Kind.RECEIPT, pb.Receipt(), channel)
                    )
            else:
                batch = producer.held[0]
                try:
                    await self._prepare(producer.topic, batch)
                except BrokerError as error:
                    if self._producers.get(channel) is producer:
                        self.close_channel(channel, error)
                    return
                # Meanwhile the producer may have been closed.
                if not producer.held:
                    return
                self._publish_batch(channel, producer, batch)
                self._release(producer)
            delay_s = producer.topic.publish_delay_s(self._loop.time())

    async def _prepare(self, topic: Topic, batch: BatchFrame) -> None:
        """Wait until *batch* can be published without waiting."""
        if not self._broker.topics.has_room:
            await self._broker.topics.room()
        if batch.plain_bytes <= CHECKED_AT_ONCE_BYTES_MAX:
            return
        # One batch may fail alone: this is the place that decides so.
        try:
            await self._server.verify(topic, batch)
        except BrokerError:
            raise
        except Exception as error:
            log.exception("%s: a batch cannot be checked", topic.name)
            raise BrokerError(f"the broker failed: {error!r}") from error

    def _release(self, producer: ProducerChannel) -> None:
        if producer.held:
            self.held_bytes -= producer.held.popleft().byte_count
            if self.held_bytes < HELD_BYTES_MAX:
                self._unpause("rate")

    def _drop_held(self, producer: ProducerChannel) -> None:
        while producer.held:
            self._release(producer)

    def _published(
        self,
        channel: int,
        producer: ProducerChannel,
        base_sequence: int,
        base_offset: int,
        error: BrokerError | None,
    ) -> None:
        if self._producers.get(channel) is not producer:
            return
        if error is not None:
            self._send_receipts(channel, producer)
            self.close_channel(channel, error)
            return
        if not producer.sequences:
            # All batches of one commit are acknowledged in one frame.
            self._loop.call_soon(self._send_receipts, channel, producer)
        producer.sequences.append(base_sequence)
        producer.offsets.append(base_offset)

    def _send_receipts(self, channel: int, producer: ProducerChannel) -> None:
        if self._producers.get(channel) is not producer or not producer.sequences:
            return
        receipt = pb.Receipt(
            base_sequence=producer.sequences, base_offset=producer.offsets
        )
        producer.sequences, producer.offsets = [], []
        self._write(self._protocol.send(Kind.RECEIPT, receipt, channel))

    def _settle(self, frame: ReceivedFrame, message: Any) -> None:
        """Take an ACK or NACK."""
        consumer = self._consumers.get(frame.channel)
        if consumer is None:
            if frame.correlation:
                self._answer(frame, pb.Ok())
            return
        try:
            ranges = ranges_from_wire(message.ranges, RANGES_MAX)
        except InvalidRequest as error:
            if frame.correlation:
                self._answer(frame, self._server.error(error))
            else:
                self.close_channel(frame.channel, error)
            return
        subscription = consumer.subscription
        if frame.kind is Kind.NACK:
            # A delay that is no number is none.
            delay_s = message.delay_s if 0 < message.delay_s < float("inf") else 0.0
            reason = message.reason[:REASON_CHARACTERS_MAX]
            nack = partial(subscription.nack, delay_s=delay_s, reason=reason)
            self._apply_ranges(ranges, nack)
            return

        def finish() -> None:
            subscription.ack((), message.through)
            if frame.correlation:
                subscription.save_cursor_now(partial(self._acked, frame))

        self._apply_ranges(ranges, partial(subscription.ack, through=0), finish)

    def _apply_ranges(
        self,
        ranges: Sequence[Range],
        apply: Callable[[Sequence[Range]], None],
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """Call *apply* with all ranges; with many, in the course of several turns."""
        if len(ranges) <= RANGES_PER_TURN:
            apply(ranges)
            finish()
            return
        self._pause("ranges")
        self._server.run(self._apply_many_ranges(ranges, apply, finish))

    async def _apply_many_ranges(
        self,
        ranges: Sequence[Range],
        apply: Callable[[Sequence[Range]], None],
        finish: Callable[[], None],
    ) -> None:
        try:
            for at in range(0, len(ranges), RANGES_PER_TURN):
                apply(ranges[at : at + RANGES_PER_TURN])
                await asyncio.sleep(0)
            finish()
        except Exception:
            log.exception("closing the connection of %s after a failure", self._peer)
            self._transport.abort()
        self._unpause("ranges")

    def _acked(self, frame: ReceivedFrame, error: BrokerError | None) -> None:
        if error is None:
            self._answer(frame, pb.Ok())
        else:
            self._answer(frame, self._server.error(error))

    # Requests.

    def _greet(self, frame: ReceivedFrame, hello: Any) -> None:
        if not hello.version_min <= PROTOCOL_VERSION <= hello.version_max:
            self._refuse(
                ProtocolViolation(
                    f"this broker speaks version {PROTOCOL_VERSION} of the protocol, "
                    f"the client {hello.version_min} to {hello.version_max}"
                )
            )
            return
        try:
            self._server.on_greeted(self)
        except QuotaExceeded as error:
            self._refuse(error, frame)
            return
        self._stop_greeting_timer()
        self._protocol.welcome(hello.frame_bytes_max, hello.revision)
        log.debug("%s is %s", self._peer, hello.client)
        welcome = pb.Welcome(
            version=PROTOCOL_VERSION,
            broker=f"pydanube {__version__}",
            broker_id=self._broker.broker_id,
            frame_bytes_max=self._protocol.frame_bytes_max,
            revision=REVISION,
            idle_timeout_s=self._server.limits.idle_timeout_s,
        )
        self._answer(frame, welcome)

    def _start(self, frame: ReceivedFrame) -> None:
        message: Any = frame.message
        if (
            frame.kind is Kind.OPEN_PRODUCER
            and message.access == pb.ACCESS_EXCLUSIVE_WAIT
        ):
            # What it waits for may come on this very connection.
            task = self._server.run(self._carry_out_patiently(frame))
            self._patient[frame.channel] = task
            self._remember_opening(frame, task)
            return
        self._requests += 1
        self._request_bytes += frame.byte_count
        if self._requests >= REQUESTS_MAX or self._request_bytes >= REQUEST_BYTES_MAX:
            self._pause("requests")
        if frame.kind is Kind.FETCH:
            task = self._server.run(self._carry_out_counted(frame))
            self._fetching[task] = None
            task.add_done_callback(lambda task: self._fetching.pop(task, None))
        elif frame.kind not in _OPENINGS:
            self._server.run(self._carry_out_counted(frame))
        elif self._openings_running < OPENINGS_MAX:
            self._begin_opening(frame)
        else:
            self._openings_due.append(frame)

    def _begin_opening(self, frame: ReceivedFrame) -> None:
        self._openings_running += 1
        task = self._server.run(self._carry_out_opening(frame))
        if frame.channel:
            self._remember_opening(frame, task)

    def _remember_opening(self, frame: ReceivedFrame, task: asyncio.Task[None]) -> None:
        channel = frame.channel
        self._opening[channel] = task

        def forget(_: object) -> None:
            # The client may have opened the channel again in the meantime.
            if self._opening.get(channel) is task:
                del self._opening[channel]

        task.add_done_callback(forget)

    async def _carry_out_opening(self, frame: ReceivedFrame) -> None:
        try:
            await self._carry_out_counted(frame)
        finally:
            self._openings_running -= 1
            if self._openings_due:
                self._begin_opening(self._openings_due.popleft())

    async def _carry_out_patiently(self, frame: ReceivedFrame) -> None:
        try:
            await self._carry_out(frame)
        except asyncio.CancelledError:
            if frame.channel in self._patient:
                raise
            self._answer(frame, self._server.error(_given_up()))
        finally:
            self._patient.pop(frame.channel, None)

    async def _carry_out_counted(self, frame: ReceivedFrame) -> None:
        try:
            await self._carry_out(frame)
        finally:
            self._on_carried_out(frame)

    def _on_carried_out(self, frame: ReceivedFrame) -> None:
        self._requests -= 1
        self._request_bytes -= frame.byte_count
        if self._requests < REQUESTS_MAX and self._request_bytes < REQUEST_BYTES_MAX:
            self._unpause("requests")

    async def _opened(self, channel: int) -> None:
        """Wait until no opening of *channel* is under way; a patient one is ended."""
        patient = self._patient.pop(channel, None)
        if patient is not None:
            patient.cancel()
        for due in self._openings_due:
            if due.channel == channel:
                self._openings_due.remove(due)
                self._on_carried_out(due)
                self._answer(due, self._server.error(_given_up()))
                break
        opening = self._opening.get(channel)
        if opening is not None:
            await asyncio.wait([opening])

    async def _carry_out(self, frame: ReceivedFrame) -> None:
        # One request may fail alone: this is the place that decides so.
        try:
            message = await self._handle(frame)
        except BrokerError as error:
            message = self._server.error(error)
        except Exception:
            log.exception("%s of %s failed", frame.kind.name, self._peer)
            text = "the broker failed to carry this out; its log says why"
            message = self._server.error(BrokerError(text))
        if not self._gone.is_set():
            self._answer(frame, message)

    async def _handle(self, frame: ReceivedFrame) -> Message:
        handle = _HANDLERS.get(frame.kind)
        answer = (
            await _REQUESTS[frame.kind](self._broker, frame.message)
            if handle is None
            else await handle(self, frame, frame.message)
        )
        return pb.Ok() if answer is None else answer

    async def _open_producer(
        self, frame: ReceivedFrame, m: pb.OpenProducer
    ) -> pb.ProducerOpened:
        channel = frame.channel
        topic, session = await self._broker.producers.open(
            TopicName.parse(m.topic),
            parse_client_name("producer", m.name),
            policy=policy_from_wire(m.policy) if m.HasField("policy") else None,
            takes_any_kind=m.takes_any_kind,
            resume=(m.producer_id, m.producer_epoch),
            access=access_from_wire(m.access),
            on_fenced=partial(self._on_fenced, channel),
            schema=reference_from_wire(m.schema) if m.HasField("schema") else None,
        )
        if self._gone.is_set():
            self._broker.producers.close(topic, session, forget=m.is_anonymous)
        else:
            self._producers[channel] = ProducerChannel(
                topic, session, is_anonymous=m.is_anonymous
            )
        written = None if session.registration is None else session.registration.schema
        return pb.ProducerOpened(
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            next_sequence=session.next_sequence,
            reliable=topic.policy.is_reliable,
            batch_bytes_max=self._batch_bytes_max,
            schema_id=0 if written is None else written.schema_id,
            schema_version=0 if written is None else written.version,
        )

    def _on_fenced(self, channel: int, reason: BrokerError) -> None:
        # Before the opening is answered, the first batch will tell.
        if channel in self._producers:
            self._send_receipts(channel, self._producers[channel])
            self.close_channel(channel, reason)

    async def _close_producer(self, frame: ReceivedFrame, _: object) -> None:
        await self._opened(frame.channel)
        producer = self._producers.get(frame.channel)
        if producer is not None:
            self._send_receipts(frame.channel, producer)
            self._drop_held(producer)
            del self._producers[frame.channel]
            self._broker.producers.close(
                producer.topic, producer.session, forget=producer.is_anonymous
            )

    async def _open_consumer(
        self, frame: ReceivedFrame, m: pb.OpenConsumer
    ) -> pb.ConsumerOpened:
        channel = frame.channel
        port = ConsumerChannel(self, channel)
        topic, subscription = await self._broker.subscriptions.open(
            TopicName.parse(m.topic),
            parse_subscription(m.subscription),
            type_from_wire(m.type),
            start_of(m),
            ack_timeout_s=seconds_from_wire("ack timeout", m.ack_timeout_s),
        )
        port.topic = topic
        port.subscription = subscription
        if not self._gone.is_set():
            name = parse_client_name("consumer", m.name)
            # Registered first: attaching may already say who is active.
            self._consumers[channel] = port
            try:
                port.consumer = subscription.attach(
                    name, port, key_filters=m.key_filters, priority=m.priority
                )
            except BrokerError:
                del self._consumers[channel]
                raise
        return pb.ConsumerOpened(
            reliable=topic.policy.is_reliable, cursor=subscription.cursor_offset
        )

    async def _close_consumer(self, frame: ReceivedFrame, _: object) -> None:
        await self._opened(frame.channel)
        port = self._consumers.pop(frame.channel, None)
        if port is not None:
            port.detach()

    async def _open_stage(
        self, frame: ReceivedFrame, m: pb.OpenStage
    ) -> pb.StageOpened:
        answer = await self._stages.open(self, frame.channel, m)
        if self._gone.is_set():
            self._stages.close(frame.channel)
        return answer

    async def _close_stage(self, frame: ReceivedFrame, _: object) -> None:
        await self._opened(frame.channel)
        self._stages.close(frame.channel)

    async def _seek(self, frame: ReceivedFrame, m: pb.Seek) -> None:
        port = self._consumers.get(frame.channel)
        if port is None:
            raise InvalidRequest(f"there is no consumer on channel {frame.channel}")
        await self._broker.subscriptions.seek(
            port.topic, port.subscription, position_from_wire(m)
        )

    async def _fetch(self, frame: ReceivedFrame, m: pb.Fetch) -> pb.FetchEnd:
        topic_log = (
            await self._broker.topics.get_reliable(TopicName.parse(m.topic))
        ).log
        offset, left = m.base_offset, min(m.bytes_max or 1, FETCH_BYTES_MAX)
        if m.HasField("publish_time"):
            offset = await topic_log.find_time(m.publish_time)
        if offset >= topic_log.end_offset and m.wait_s:
            await self._wait_for(offset, topic_log, min(m.wait_s, FETCH_WAIT_S_MAX))
        end = min(m.end_offset or topic_log.end_offset, topic_log.end_offset)
        while offset < end and left > 0 and not self._gone.is_set():
            batch = topic_log.read_tail(offset, bytes_max=left)
            if batch is None:
                batch = await topic_log.read(offset, bytes_max=left)
            if not batch:
                # What is left was compacted away.
                offset = end
            for held in batch:
                if left <= 0:
                    break
                part = held.within(offset, end)
                if part is None:
                    # There is no message before the end.
                    offset = end
                    break
                offset = part.end
                left -= part.plain_bytes
                self._server.fetched += part.count
                self._server.fetched_bytes += part.byte_count
                if self._protocol.peer_revision < 1:
                    part = part.without(REVISION_1_COLUMNS)
                for piece in part.split(BATCH_MESSAGES_MAX):
                    self._write_buffer.writelines(
                        self._protocol.send_batch(
                            Kind.FETCHED, piece, 0, frame.correlation
                        )
                    )
            await self._can_write.wait()
        return pb.FetchEnd(
            next_offset=offset,
            base_offset=topic_log.base_offset,
            end_offset=topic_log.end_offset,
        )

    async def _wait_for(self, offset: int, topic_log: TopicLog, wait_s: float) -> None:
        """Wait until the log has a message at *offset*, or *wait_s* are over."""
        changed = asyncio.Event()
        unwatch = topic_log.watch(changed.set)
        try:
            async with asyncio.timeout(wait_s):
                while topic_log.end_offset <= offset and not self._gone.is_set():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass
        finally:
            unwatch()

    # Small things.

    def _write(self, data: bytes) -> None:
        if data and not self._gone.is_set():
            self._write_buffer.write(data)

    def _answer(self, frame: ReceivedFrame, message: Message) -> None:
        self._write(self._protocol.answer(frame, KIND_OF[type(message)], message))

    def abort(self) -> None:
        """Break the connection without a word."""
        self._transport.abort()

    def _refuse(self, error: BrokerError, request: ReceivedFrame | None = None) -> None:
        """Close the connection, and say why; in the answer to *request*, if any."""
        log.info("closing the connection of %s: %s", self._peer, error)
        reason = self._server.error(error)
        if request is None:
            self._write(self._protocol.send(Kind.ERROR, reason))
        else:
            self._answer(request, reason)
        self._protocol.close()
        self._write_buffer.close()

    def _stop_greeting_timer(self) -> None:
        if self._greeting_timer is not None:
            self._greeting_timer.cancel()
            self._greeting_timer = None

    def _expect_greeting(self) -> None:
        self._greeting_timer = None
        if not self._protocol.is_open and not self._gone.is_set():
            self._refuse(ProtocolViolation("no HELLO came"))

    async def _resume_when_there_is_room(self) -> None:
        await self._broker.topics.room()
        self._unpause("room")

    async def _resume_when_more_can_be_staged(self) -> None:
        await self._broker.staging.room()
        self._unpause("staging")


def _given_up() -> Closed:
    return Closed("the client did not wait for the opening")


def _units_of(frame: ReceivedFrame) -> int:
    """What a frame costs of its connection's share of a turn."""
    bytes_per_unit = BYTES_PER_UNIT if frame.batch else _CONTROL_BYTES_PER_UNIT
    units = _UNITS.get(frame.kind, _REQUEST_UNITS)
    return units + frame.byte_count // bytes_per_unit


def _watch_for_vanished_peer(connection: socket.socket, timeout_s: float) -> None:
    """Let the kernel give up on a peer that answers nothing, as far as it can."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", max(1, round(timeout_s))),
        ("TCP_KEEPINTVL", max(1, round(timeout_s / 3))),
        ("TCP_USER_TIMEOUT", max(1000, round(timeout_s * 1000))),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


_REQUESTS = {**REQUESTS, **SCHEMA_REQUESTS, **STAGING_REQUESTS}
_HANDLERS: dict[
    Kind,
    Callable[[NativeConnection, ReceivedFrame, Any], Awaitable[Message | None]],
] = {
    Kind.OPEN_PRODUCER: NativeConnection._open_producer,  # noqa: SLF001  # Its own table.
    Kind.CLOSE_PRODUCER: NativeConnection._close_producer,  # noqa: SLF001
    Kind.OPEN_CONSUMER: NativeConnection._open_consumer,  # noqa: SLF001
    Kind.CLOSE_CONSUMER: NativeConnection._close_consumer,  # noqa: SLF001
    Kind.OPEN_STAGE: NativeConnection._open_stage,  # noqa: SLF001
    Kind.CLOSE_STAGE: NativeConnection._close_stage,  # noqa: SLF001
    Kind.SEEK: NativeConnection._seek,  # noqa: SLF001
    Kind.FETCH: NativeConnection._fetch,  # noqa: SLF001
}
assert _REQUESTS.keys() | _HANDLERS.keys() == OPERATIONS

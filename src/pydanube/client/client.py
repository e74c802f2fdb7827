"""
A client of a broker: where everything begins.

It keeps one connection, makes it anew when it breaks, and asks what has no
channel of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar, overload
from urllib.parse import urlsplit

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.client.connection import BrokerConnection
from pydanube.client.consumer import Consumer, ConsumerOptions
from pydanube.client.dead_letters import DeadLetters
from pydanube.client.namespaces import NamespaceRequests
from pydanube.client.partitioned_consumer import PartitionedConsumer, open_consumer
from pydanube.client.partitioned_producer import PartitionedProducer, open_producer
from pydanube.client.producer import Producer, ProducerOptions, parse_codec
from pydanube.client.reader import read
from pydanube.client.retrying import retry
from pydanube.client.schema import Schema
from pydanube.client.schemas import Schemas, schema_of
from pydanube.client.staging import Staging
from pydanube.client.subscriptions import SubscriptionRequests
from pydanube.client.typed_producer import SchemaOptions, open_typed_producer
from pydanube.client.writer_schemas import ValueDecoding, WriterSchemas
from pydanube.model.descriptions import BrokerDescription
from pydanube.model.errors import (
    Closed,
    ConnectionLost,
    InvalidRequest,
    TimedOut,
)
from pydanube.model.names import (
    TopicName,
    parse_client_name,
    parse_subject,
    parse_subscription,
)
from pydanube.model.policy import (
    DispatchMode,
    ProducerAccess,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.positions import (
    PositionLike,
    parse_choice,
    to_position,
)
from pydanube.wire.native.kinds import KIND_OF, is_repeatable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from google.protobuf.message import Message as ControlMessage

    from pydanube.client.messages import MessageBatch
    from pydanube.client.typed_producer import TypedProducer
    from pydanube.wire.batches import BatchFrame

DEFAULT_URL = "danube://127.0.0.1:6651"
DEFAULT_PORT = 6651
CONNECT_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 10.0
REQUEST_RETRY_S = 30.0
"""A request that may be repeated is repeated for so long."""

LATEST = "latest"
"""The version of a subject that whoever names none means."""

T = TypeVar("T")
Dial = Callable[[Callable[[], BrokerConnection]], Awaitable[BrokerConnection]]
"""Makes a transport for a new connection."""


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    *,
    token: str = "",
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
) -> AsyncIterator[Client]:
    """
    A client of the broker at *url*, ``danube://host[:port]``.

    The connection is made before the body begins; when it breaks later, it is
    made again, producers and consumers open again, and what was not
    acknowledged is sent again.  Leaving closes whatever is still open.

    Args:
        url: Where the broker is.
        token: What the client says who it is with.
        connect_timeout_s: How long a connection may take.
        close_timeout_s: How long closing a producer, a consumer or the client waits
            without a word from the broker.  Then the connection is dropped, and a
            producer with unacknowledged messages raises ``TimedOut``.

    Raises:
        ConnectionLost: Nobody answers there.
        InvalidRequest: *url* is not one of ours.
    """
    host, port = parse_url(url)

    async def dial(factory: Callable[[], BrokerConnection]) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(factory, host, port)
        peer: socket.socket = transport.get_extra_info("socket")
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    async with open_client(
        dial,
        url=url,
        token=token,
        connect_timeout_s=connect_timeout_s,
        close_timeout_s=close_timeout_s,
    ) as client:
        yield client


@asynccontextmanager
async def open_client(
    dial: Dial,
    *,
    url: str,
    token: str = "",
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    wall_clock_ns: Callable[[], int] = time_ns,
) -> AsyncIterator[Client]:
    """A client whose transport *dial* makes; see ``connect``."""
    if not 0 <= close_timeout_s < float("inf"):
        raise InvalidRequest(
            f"close_timeout_s must be a number of seconds from 0 on, not "
            f"{close_timeout_s}"
        )
    async with task_scope() as tasks:
        client = Client(
            dial,
            tasks,
            url,
            token,
            connect_timeout_s=connect_timeout_s,
            close_timeout_s=close_timeout_s,
            wall_clock_ns=wall_clock_ns,
        )
        await client.connection()
        try:
            yield client
        finally:
            await client.aclose()


def parse_url(url: str) -> tuple[str, int]:
    """
    Host and port of a broker's URL.

    Raises:
        InvalidRequest: It is not of the form ``danube://host[:port]``.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if parts.scheme != "danube" or not parts.hostname or not port:
        raise InvalidRequest(f"{url!r} is not a URL like danube://127.0.0.1:6651")
    return parts.hostname, port


class Client(NamespaceRequests, SubscriptionRequests):
    """
    A client of one broker; made by ``connect``.

    It belongs to one event loop; ``pydanube.sync`` is for threads.
    """

    def __init__(
        self,
        dial: Dial,
        tasks: TaskScope,
        url: str,
        token: str,
        *,
        connect_timeout_s: float,
        close_timeout_s: float,
        wall_clock_ns: Callable[[], int],
    ) -> None:
        self.url = url
        self.close_timeout_s = close_timeout_s
        """How long closing something waits without a word from the broker."""
        self.wall_clock_ns = wall_clock_ns
        """Where publish times come from, and what is counted from them."""
        self._dial = dial
        self._tasks = tasks
        self._token = token
        self._connect_timeout_s = connect_timeout_s
        self._connection: BrokerConnection | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False
        # Closing something has taken too long since the connection was made.
        self._is_given_up = False
        self._writer_schemas = WriterSchemas(self._fetch_schema, tasks)

    @property
    def schemas(self) -> Schemas:
        """The schema registry."""
        return Schemas(self)

    # Producing and consuming.

    @overload
    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        reliable: bool | None = None,
        compression: str | None = None,
        access: str = "shared",
        partitions: int | None = None,
        schema: Schema[T] | type[T],
        subject: str | None = None,
        schema_version: int | str = LATEST,
        schema_version_min: int | None = None,
    ) -> AbstractAsyncContextManager[TypedProducer[T]]: ...
    @overload
    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        reliable: bool | None = None,
        compression: str | None = None,
        access: str = "shared",
        partitions: int | None = None,
        schema: None = None,
        subject: str,
        schema_version: int | str = LATEST,
        schema_version_min: int | None = None,
    ) -> AbstractAsyncContextManager[TypedProducer[Any]]: ...
    @overload
    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        reliable: bool | None = None,
        compression: str | None = None,
        access: str = "shared",
        partitions: int | None = None,
    ) -> AbstractAsyncContextManager[Producer | PartitionedProducer]: ...
    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        reliable: bool | None = None,
        compression: str | None = None,
        access: str = "shared",
        partitions: int | None = None,
        schema: Schema[Any] | type | None = None,
        subject: str | None = None,
        schema_version: int | str = LATEST,
        schema_version_min: int | None = None,
    ) -> AbstractAsyncContextManager[Any]:
        """
        A producer for *topic*; for all partitions, if it has some.

        With a *schema* or a *subject* it is a ``TypedProducer``, which publishes
        values and registers what they are if need be.

        Args:
            topic: ``/{namespace}/{topic}``.
            name: Who publishes, over restarts too: a newer producer of the same
                name fences an older one.  Without one, it is made up.
            reliable: Create the topic, if it does not exist, with this kind; and
                insist on it if it does.  None: a reliable one is created, any
                is taken.
            compression: ``"lz4"``, ``"zstd"`` or None.
            access: ``"shared"`` with any others; or the only one of the topic:
                ``"exclusive"`` is refused while there is another,
                ``"exclusive_wait"`` waits until the others are gone,
                ``"exclusive_fence"`` ends the others.
            partitions: Create the topic, if it does not exist, with so many
                partitions; None: without.
            schema: What the values are: a ``Schema``, or a class that one can be made
                of.  None with a subject: what the subject says they are.
            subject: Of the schema registry; None: the one that the topic is bound to,
                or one that is named like the topic, ``default-orders``.
            schema_version: Which version of the subject is written; ``"latest"``: the
                one that *schema* is, or without one the latest.
            schema_version_min: Refuse to write an older version than this.

        Raises, when it is entered:
            TopicNotFound: It does not exist and the broker does not create it.
            AlreadyExists: It is not of the kind that *reliable* asks for.
            ProducerBusy: There is another, and one of both must be the only one.
            SchemaNotFound: There is no such subject, or not in such a version.
            IncompatibleSchema: *schema* may not become a version of the subject.
            OtherSchema: The topic is bound to another subject or version.
        """
        if partitions is not None and partitions < 1:
            raise InvalidRequest("a topic has at least one partition")
        options = ProducerOptions(
            name=(
                f"producer-{uuid.uuid4().hex[:12]}"
                if name is None
                else parse_client_name("producer", name)
            ),
            is_anonymous=name is None,
            policy=TopicPolicy(
                dispatch=DispatchMode.NON_RELIABLE
                if reliable is False
                else DispatchMode.RELIABLE
            ),
            takes_any_kind=reliable is None,
            codec=parse_codec(compression),
            access=parse_choice("access", access, ProducerAccess),
        )
        name_of_topic = str(TopicName.parse(topic))
        if schema is None and subject is None:
            if schema_version != LATEST or schema_version_min is not None:
                raise InvalidRequest("a schema_version is of a subject: name it")
            return open_producer(self, self._tasks, name_of_topic, options, partitions)
        schema_options = SchemaOptions(
            schema=None if schema is None else Schema.of(schema),
            subject=None if subject is None else parse_subject(subject),
            version=_version_of(schema_version),
            version_min=schema_version_min,
        )
        return open_typed_producer(
            self,
            self._tasks,
            name_of_topic,
            options,
            partitions=partitions,
            schema_options=schema_options,
        )

    def dead_letters(
        self, topic: str, subscription: str, *, dead_letter_topic: str | None = None
    ) -> DeadLetters:
        """
        What *subscription* has given up on, to be looked at, replayed or dropped.

        Args:
            topic: ``/{namespace}/{topic}``; all its partitions, if it has some.
            subscription: Whose dead letters.
            dead_letter_topic: Where they are; None: where its failure policy says.
        """
        return DeadLetters(self, topic, subscription, dead_letter_topic)

    def staging(self, query: str, version: int) -> Staging:
        """
        One version of what *query* writes, to be staged in parts and committed once.

        Nothing is asked of the broker yet.

        Args:
            query: Who writes, over restarts too.
            version: Which of its batches this is; the numbers of a query only rise.

        Raises:
            InvalidName: *query* is not printable text without a slash.
        """
        return Staging(self, query, version)

    def consumer(
        self,
        topic: str,
        *,
        subscription: str,
        type: str = "exclusive",  # noqa: A002  # It is what users call it.
        start: PositionLike = "latest",
        name: str | None = None,
        ack_timeout_s: float | None = None,
        prefetch_messages: int | None = None,
        prefetch_bytes: int = 16 * 1024 * 1024,
        key_filters: Iterable[str] = (),
        priority: int = 0,
        schema: Schema[Any] | type | None = None,
    ) -> AbstractAsyncContextManager[Consumer | PartitionedConsumer]:
        """
        A consumer of *topic* under *subscription*, which is created if needed.

        Of a topic with partitions, it gets the messages of all.

        Args:
            topic: ``/{namespace}/{topic}``; it must exist.
            subscription: Which messages are done is remembered under this name.
            type: ``"exclusive"``, ``"failover"``, ``"shared"`` or ``"key_shared"``.
            start: Where a new subscription begins: ``"latest"`` or ``"earliest"``,
                an offset, or a datetime for what was published since then.
            name: A consumer that comes again under its name takes its place.
            ack_timeout_s: What is not acknowledged so long after its delivery is
                delivered again; None leaves it as it was, by default 30 s.
            prefetch_messages: How many messages the broker may send ahead; by
                default 10,000, or 1,000 where consumers share.
            prefetch_bytes: The same in bytes before compression.
            key_filters: Where keys are shared: only keys that match one of these,
                in which ``*`` stands for any text and ``?`` for one character.
            priority: Where consumers share: those with a lower number are served
                first, the others with what these cannot take.
            schema: What ``message.value`` is built as, a class or a ``Schema`` with
                one; and what messages without a schema are taken to be.  None: plain
                values, by the schema that each message was written with.

        Raises, when it is entered:
            TopicNotFound: There is no such topic.
            ConsumerBusy: The subscription is exclusive and has a consumer.
        """
        type_ = parse_choice("type", type, SubscriptionType)
        if prefetch_messages is None:
            is_shared = type_ in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
            prefetch_messages = 1_000 if is_shared else 10_000
        if prefetch_messages < 1 or prefetch_bytes < 1:
            raise InvalidRequest("a consumer must prefetch at least one message")
        if isinstance(key_filters, str):
            raise InvalidRequest("key_filters are several, for example ['user-*']")
        filters = tuple(key_filters)
        if filters and type_ is not SubscriptionType.KEY_SHARED:
            raise InvalidRequest("only key-shared subscriptions have key filters")
        options = ConsumerOptions(
            subscription=parse_subscription(subscription),
            type=type_,
            start=to_position(start),
            name=(
                f"consumer-{uuid.uuid4().hex[:12]}"
                if name is None
                else parse_client_name("consumer", name)
            ),
            ack_timeout_s=ack_timeout_s,
            prefetch_messages=prefetch_messages,
            prefetch_bytes=prefetch_bytes,
            key_filters=filters,
            priority=priority,
            decoding=self._value_decoding(schema),
        )
        return open_consumer(self, self._tasks, str(TopicName.parse(topic)), options)

    def read(
        self,
        topic: str,
        *,
        start: PositionLike = "earliest",
        end: int | None = None,
        follow: bool = False,
        schema: Schema[Any] | type | None = None,
    ) -> AsyncIterator[MessageBatch]:
        """
        The messages ``start … end`` of a reliable topic, without a subscription.

        Of a topic with partitions, all of one, then all of the next.

        Args:
            topic: ``/{namespace}/{topic}``.
            start: An offset, ``"earliest"`` or ``"latest"``; or a datetime, for
                what was published since then.
            end: The first offset that is not schema_options; None: what is there now.
            follow: Go on with what is published from now on, until *end* or for ever.
            schema: As for ``consumer``.

        Raises, while it is iterated:
            OffsetDropped: Retention has dropped *start*; the error names the
                first offset that still exists.
            TopicNotFound: There is no such topic.
            InvalidRequest: It has partitions, and an offset or *follow* is of one.
        """
        return read(
            self,
            str(TopicName.parse(topic)),
            start=start,
            end=end,
            follow=follow,
            decoding=self._value_decoding(schema),
        )

    async def describe_broker(self) -> BrokerDescription:
        """Which broker this client is connected to."""
        welcome = (await self.connection()).welcome
        return BrokerDescription(
            broker_id=welcome.broker_id, version=welcome.broker, url=self.url
        )

    # Requests and connections; for the parts of the client.

    async def request(
        self,
        message: ControlMessage,
        *,
        on_batch: Callable[[BatchFrame], None] | None = None,
    ) -> Any:
        """See ``Requests``."""

        async def attempt() -> Any:
            connection = await self.connection()
            kind = KIND_OF[type(message)]
            return await connection.request(kind, message, on_batch=on_batch)

        if is_repeatable(message):
            return await retry(attempt, REQUEST_RETRY_S)
        return await attempt()

    @property
    def peer_revision(self) -> int:
        """See ``Requests``; as the broker was when it was last connected."""
        return 0 if self._connection is None else self._connection.peer_revision

    async def connection(self) -> BrokerConnection:
        """
        The connection to the broker, made anew if it broke.

        Raises:
            ConnectionLost: It cannot be made at the moment.
            Closed: The client was closed.
        """
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        async with self._connecting:
            if self._is_closed:
                raise Closed("the client is closed")
            if self._connection is None or self._connection.is_lost:
                self._connection = await self._connect()
                self._is_given_up = False
            return self._connection

    @asynccontextmanager
    async def closing(self) -> AsyncIterator[asyncio.Timeout]:
        """
        Run the body, which closes something, for ``close_timeout_s`` at most.

        When that is over, the connection is dropped.  What is closed after that does
        not wait, unless there is a new connection.

        Raises:
            TimeoutError: The time was over before the body.
        """
        timeout_s = 0.0 if self._is_given_up else self.close_timeout_s
        async with asyncio.timeout(timeout_s) as timeout:
            try:
                yield timeout
            except asyncio.CancelledError:
                if timeout.expired():
                    self._is_given_up = True
                    self._drop_connection()
                raise

    async def aclose(self) -> None:
        """Close the connection; what was written is still sent, if that is possible."""
        self._is_closed = True
        self._writer_schemas.close()
        if self._connection is None:
            return
        self._connection.close()
        with suppress(TimeoutError):
            async with self.closing():
                await self._connection.wait_closed()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.abort(
                ConnectionLost(
                    f"the broker at {self.url} did not answer within "
                    f"{self.close_timeout_s:g} s of closing"
                )
            )

    def _value_decoding(self, schema: Schema[Any] | type | None) -> ValueDecoding:
        return ValueDecoding(
            self._writer_schemas, None if schema is None else Schema.of(schema)
        )

    async def _fetch_schema(self, schema_id: int, version: int) -> Schema[Any]:
        return schema_of(await self.schemas.by_id(schema_id, version))

    async def _connect(self) -> BrokerConnection:
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await self._dial(BrokerConnection)
        except (OSError, TimeoutError) as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConnectionLost(
                f"no broker answers at {self.url} ({reason or 'timed out'}); "
                "`danube broker` starts one"
            ) from error
        try:
            await connection.handshake(
                f"pydanube pid {os.getpid()}", self._token, self._connect_timeout_s
            )
        except TimedOut as error:
            raise ConnectionLost(f"no broker answers at {self.url}") from error
        except BaseException:
            connection.close()
            raise
        return connection


def _version_of(version: int | str) -> int | None:
    """
    A version as users say it; None: the latest.

    Raises:
        InvalidRequest: It is none.
    """
    if version == LATEST:
        return None
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidRequest(
            f"schema_version is a number from 1 on, or 'latest', not {version!r}"
        )
    return version

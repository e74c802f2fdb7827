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
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydanube.client.backoff import retried
from pydanube.client.connection import BrokerConnection
from pydanube.client.consumer import Consumer, open_consumer
from pydanube.client.producer import Producer, open_producer
from pydanube.client.reader import read
from pydanube.client.tasks import TaskScope, task_scope
from pydanube.model.errors import (
    Closed,
    ConnectionLost,
    InvalidRequest,
    TimedOut,
)
from pydanube.model.names import (
    TopicName,
    parse_client_name,
    parse_namespace,
    parse_subscription,
)
from pydanube.model.policy import (
    DispatchMode,
    Durability,
    Retention,
    Start,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.wire.frames import Kind
from pydanube.wire.messages import (
    policy_to_wire,
    segments_from_wire,
    start_to_wire,
    subscription_from_wire,
    topic_from_wire,
    type_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from google.protobuf.message import Message as ControlMessage

    from pydanube.client.messages import MessageBatch
    from pydanube.model.descriptions import (
        Segments,
        SubscriptionDescription,
        TopicDescription,
    )
    from pydanube.wire.batches import BatchFrame

DEFAULT_URL = "danube://127.0.0.1:6651"
DEFAULT_PORT = 6651
CONNECT_TIMEOUT_S = 5.0
REQUEST_RETRY_S = 30.0
"""A request that may be repeated is repeated for so long."""

Dial = Callable[[Callable[[], BrokerConnection]], Awaitable[BrokerConnection]]
"""Makes a transport for a new connection."""


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    *,
    token: str = "",
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> AsyncIterator[Client]:
    """
    A client of the broker at *url*, ``danube://host[:port]``.

    The connection is made before the body begins; when it breaks later, it is
    made again, producers and consumers open again, and what was not
    acknowledged is sent again.  Leaving closes whatever is still open.

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
        dial, url=url, token=token, connect_timeout_s=connect_timeout_s
    ) as client:
        yield client


@asynccontextmanager
async def open_client(
    dial: Dial,
    *,
    url: str,
    token: str = "",
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> AsyncIterator[Client]:
    """A client whose transport *dial* makes; see ``connect``."""
    async with task_scope() as tasks:
        client = Client(dial, tasks, url, token, connect_timeout_s)
        await client.connection()
        try:
            yield client
        finally:
            client.close()


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


class Client:
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
        connect_timeout_s: float,
    ) -> None:
        self.url = url
        self._dial = dial
        self._tasks = tasks
        self._token = token
        self._connect_timeout_s = connect_timeout_s
        self._connection: BrokerConnection | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False

    # Producing and consuming.

    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        reliable: bool | None = None,
        compression: str | None = None,
    ) -> AbstractAsyncContextManager[Producer]:
        """
        A producer for *topic*.

        Args:
            topic: ``/{namespace}/{topic}``.
            name: Who publishes, over restarts too: a newer producer of the same
                name fences an older one.  Without one, it is made up.
            reliable: Create the topic, if it does not exist, with this kind; and
                insist on it if it does.  None: a reliable one is created, any
                is taken.
            compression: ``"lz4"``, ``"zstd"`` or None.

        Raises, when it is entered:
            TopicNotFound: It does not exist and the broker does not create it.
            AlreadyExists: It is not of the kind that *reliable* asks for.
        """
        return open_producer(
            self,
            self._tasks,
            str(TopicName.parse(topic)),
            name=None if name is None else parse_client_name("producer", name),
            reliable=reliable,
            compression=compression,
        )

    def consumer(
        self,
        topic: str,
        *,
        subscription: str,
        type: str = "exclusive",  # noqa: A002  # It is what users call it.
        start: str = "latest",
        name: str | None = None,
        ack_timeout_s: float | None = None,
        prefetch_messages: int | None = None,
        prefetch_bytes: int = 16 * 1024 * 1024,
    ) -> AbstractAsyncContextManager[Consumer]:
        """
        A consumer of *topic* under *subscription*, which is created if needed.

        Args:
            topic: ``/{namespace}/{topic}``; it must exist.
            subscription: Which messages are done is remembered under this name.
            type: ``"exclusive"``, ``"failover"`` or ``"shared"``.
            start: Where a new subscription begins: ``"latest"`` or ``"earliest"``.
            name: A consumer that comes again under its name takes its place.
            ack_timeout_s: What is not acknowledged so long after its delivery is
                delivered again; None leaves it as it was, by default never.
            prefetch_messages: How many messages the broker may send ahead; by
                default 10,000, or 1,000 where consumers share.
            prefetch_bytes: The same in bytes.

        Raises, when it is entered:
            TopicNotFound: There is no such topic.
            ConsumerBusy: The subscription is exclusive and has a consumer.
        """
        type_ = _parse_choice("type", type, SubscriptionType)
        if prefetch_messages is None:
            is_shared = type_ is SubscriptionType.SHARED
            prefetch_messages = 1_000 if is_shared else 10_000
        if prefetch_messages < 1 or prefetch_bytes < 1:
            raise InvalidRequest("a consumer must prefetch at least one message")
        return open_consumer(
            self,
            self._tasks,
            str(TopicName.parse(topic)),
            subscription=parse_subscription(subscription),
            type_=type_,
            start=_parse_choice("start", start, Start),
            name=(
                f"consumer-{uuid.uuid4().hex[:12]}"
                if name is None
                else parse_client_name("consumer", name)
            ),
            ack_timeout_s=ack_timeout_s,
            prefetch_messages=prefetch_messages,
            prefetch_bytes=prefetch_bytes,
        )

    def read(
        self,
        topic: str,
        *,
        start: int | str = "earliest",
        end: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[MessageBatch]:
        """
        The messages ``start … end`` of a reliable topic, without a subscription.

        Args:
            topic: ``/{namespace}/{topic}``.
            start: An offset, ``"earliest"`` or ``"latest"``.
            end: The first offset that is not wanted; None: what is there now.
            follow: Go on with what is published from now on, until *end* or for ever.

        Raises, while it is iterated:
            OffsetDropped: Retention has dropped *start*; the error names the
                first offset that still exists.
            TopicNotFound: There is no such topic.
        """
        return read(
            self, str(TopicName.parse(topic)), start=start, end=end, follow=follow
        )

    # Topics.

    async def create_topic(
        self,
        topic: str,
        *,
        reliable: bool = True,
        durability: str = "durable",
        retention_age_s: float | None = None,
        retention_bytes_max: int | None = None,
        exist_ok: bool = False,
    ) -> None:
        """
        Create *topic*.

        Args:
            topic: ``/{namespace}/{topic}``.
            reliable: On disk and replayable, or in memory only.
            durability: What an acknowledgement means: ``"durable"`` (on disk) or
                ``"written"`` (with the operating system).
            retention_age_s: Drop history that is older; None: never.
            retention_bytes_max: Drop the oldest history beyond this; None: never.
            exist_ok: Whether it may exist already, with the same settings.

        Raises:
            AlreadyExists: It exists.
            NamespaceNotFound: Its namespace does not exist.
        """
        policy = TopicPolicy(
            dispatch=DispatchMode.RELIABLE if reliable else DispatchMode.NON_RELIABLE,
            durability=_parse_choice("durability", durability, Durability),
            retention=Retention(age_s=retention_age_s, bytes_max=retention_bytes_max),
        )
        await self.request(
            Kind.CREATE_TOPIC,
            pb.CreateTopic(
                topic=str(TopicName.parse(topic)),
                policy=policy_to_wire(policy),
                exist_ok=exist_ok,
            ),
            is_repeatable=exist_ok,
        )

    async def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """
        Remove *topic* with all its messages and subscriptions.

        Raises:
            TopicNotFound: There is no such topic.
            SubscriptionInUse: Somebody produces or consumes, and *force* is false.
        """
        await self.request(
            Kind.DELETE_TOPIC,
            pb.DeleteTopic(topic=str(TopicName.parse(topic)), force=force),
        )

    async def topics(self, namespace: str | None = None) -> list[str]:
        """The names of all topics, or of those of *namespace*."""
        message = pb.ListTopics(
            namespace=parse_namespace(namespace) if namespace else ""
        )
        answer = await self.request(Kind.LIST_TOPICS, message, is_repeatable=True)
        return list(answer.topics)

    async def describe_topic(self, topic: str) -> TopicDescription:
        """
        What is known of *topic* at the moment.

        Raises:
            TopicNotFound: There is no such topic.
        """
        message = pb.DescribeTopic(topic=str(TopicName.parse(topic)))
        return topic_from_wire(
            await self.request(Kind.DESCRIBE_TOPIC, message, is_repeatable=True)
        )

    async def segments(self, topic: str, base: int = 0, end: int = 0) -> Segments:
        """
        The immutable files that hold messages ``base … end`` (0: all) of *topic*.

        Raises:
            TopicNotFound: There is no such topic.
        """
        message = pb.ListSegments(
            topic=str(TopicName.parse(topic)), base_offset=base, end_offset=end
        )
        return segments_from_wire(
            await self.request(Kind.LIST_SEGMENTS, message, is_repeatable=True)
        )

    # Subscriptions.

    async def create_subscription(
        self,
        topic: str,
        subscription: str,
        *,
        type: str = "exclusive",  # noqa: A002
        start: str = "latest",
    ) -> None:
        """
        Create a subscription that has no consumer yet.

        Raises:
            AlreadyExists: There is one of this name.
            TopicNotFound: There is no such topic.
        """
        await self.request(
            Kind.CREATE_SUBSCRIPTION,
            pb.CreateSubscription(
                topic=str(TopicName.parse(topic)),
                subscription=parse_subscription(subscription),
                type=type_to_wire(_parse_choice("type", type, SubscriptionType)),
                start=start_to_wire(_parse_choice("start", start, Start)),
            ),
        )

    async def delete_subscription(
        self, topic: str, subscription: str, *, force: bool = False
    ) -> None:
        """
        Forget a subscription and what it has done.

        Raises:
            SubscriptionNotFound: There is none.
            SubscriptionInUse: It has consumers, and *force* is false.
        """
        await self.request(
            Kind.DELETE_SUBSCRIPTION,
            pb.DeleteSubscription(
                topic=str(TopicName.parse(topic)),
                subscription=parse_subscription(subscription),
                force=force,
            ),
        )

    async def describe_subscription(
        self, topic: str, subscription: str
    ) -> SubscriptionDescription:
        """
        What is known of a subscription at the moment.

        Raises:
            SubscriptionNotFound: There is none.
        """
        message = pb.DescribeSubscription(
            topic=str(TopicName.parse(topic)),
            subscription=parse_subscription(subscription),
        )
        return subscription_from_wire(
            await self.request(Kind.DESCRIBE_SUBSCRIPTION, message, is_repeatable=True)
        )

    async def report_progress(self, topic: str, subscription: str, offset: int) -> None:
        """
        Say that a reader with positions of its own has come to *offset*.

        The subscription, created if needed, then shows how far behind it is; its
        position only rises.
        """
        await self.request(
            Kind.REPORT_PROGRESS,
            pb.ReportProgress(
                topic=str(TopicName.parse(topic)),
                subscription=parse_subscription(subscription),
                offset=offset,
            ),
            is_repeatable=True,
        )

    # Requests and connections; for the parts of the client.

    async def request(
        self,
        kind: Kind,
        message: ControlMessage,
        *,
        is_repeatable: bool = False,
        on_batch: Callable[[BatchFrame], None] | None = None,
    ) -> Any:
        """
        The answer to a request that belongs to no channel.

        One that *is_repeatable* is sent again for a while if the broker cannot
        be reached or asks for patience.
        """

        async def attempt() -> Any:
            connection = await self.connection()
            return await connection.request(kind, message, on_batch=on_batch)

        return await (retried(attempt, REQUEST_RETRY_S) if is_repeatable else attempt())

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
            return self._connection

    def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()

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
            await connection.greet(
                f"pydanube pid {os.getpid()}", self._token, self._connect_timeout_s
            )
        except TimedOut as error:
            raise ConnectionLost(f"no broker answers at {self.url}") from error
        except BaseException:
            connection.close()
            raise
        return connection


def _parse_choice(what: str, text: str, choices: type[Any]) -> Any:
    try:
        return choices(text)
    except ValueError:
        known = ", ".join(repr(choice.value) for choice in choices)
        raise InvalidRequest(f"{what} must be one of {known}, not {text!r}") from None

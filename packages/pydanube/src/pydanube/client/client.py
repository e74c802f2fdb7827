"""The client of a broker: opens producers, consumers and readers."""

# ruff: noqa: PLC0415  # Programs start faster without what they do not use.

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from pydanube.aio.async_scopes import async_scope
from pydanube.client.connections.credentials import TokenSource, credentials_of
from pydanube.client.connections.partitions import check_partitions
from pydanube.client.connections.redirects import find_redirect
from pydanube.client.connections.requester import (
    CLOSE_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    REQUEST_RETRY_S,
    Requester,
    check_seconds,
)
from pydanube.client.connections.scopes import AsyncScope, call_of
from pydanube.client.connections.telemetry import Telemetry
from pydanube.client.connections.urls import (
    dial_of,
    options_of,
    parse_url,
    split_url,
    tls_of,
)
from pydanube.client.consumers.consumer import Consumer
from pydanube.client.consumers.partitioned_consumer import open_consumer
from pydanube.client.consumers.reader import PREFETCH_BYTES, read
from pydanube.client.counters import ClientCounters
from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.client.messages.options import (
    LATEST,
    ConsumerKeywords,
    ConsumerOptions,
    ProducerKeywords,
    ProducerOptions,
    ReadKeywords,
    TypedProducerKeywords,
    parse_codec,
    parse_or_choose_name,
    parse_version,
)
from pydanube.client.messages.schema import Schema, schema_of
from pydanube.client.messages.writer_schemas import ValueDecoding, WriterSchemas
from pydanube.client.producers.partitioned_producer import (
    PartitionedProducer,
    open_producer,
)
from pydanube.client.producers.producer import Producer
from pydanube.client.pure.topic_selection import TopicSelection
from pydanube.client.workers.client_parts import STOP_TIMEOUT_S, F, given_to_workers
from pydanube.model.arguments import checked, checks_arguments
from pydanube.model.choices import AccessName, CompressionName, SubscriptionTypeName
from pydanube.model.errors import BrokerError, InvalidRequest
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
from pydanube.model.positions import PositionLike, parse_choice, to_position
from pydanube.model.redaction import without_password
from pydanube.model.url_options import UrlOptions

if TYPE_CHECKING:
    from pydanube.client.consumers.dead_letters import DeadLetters
    from pydanube.client.operations.cluster import Cluster
    from pydanube.client.operations.connectors import Connectors
    from pydanube.client.operations.namespaces import Namespaces
    from pydanube.client.operations.schemas import Schemas
    from pydanube.client.operations.security import Security
    from pydanube.client.operations.storage import Storage
    from pydanube.client.operations.subscriptions import Subscriptions
    from pydanube.client.operations.topics import Topics
    from pydanube.client.producers.typed_producer import TypedProducer
    from pydanube.client.workers.request_reply import RequestReply
    from pydanube.client.workers.staging import Staging
    from pydanube.client.workers.transactions import Transaction
    from pydanube.client.workers.workers import (
        RunningWorkers,
        WorkerKeywords,
        Workers,
    )

DEFAULT_URL = "danube://127.0.0.1:6651"
URL_VARIABLE = "DANUBE_URL"
"""The environment variable with the broker's URL."""

T = TypeVar("T")


@checked
def connect(
    url: str | None = None,
    *,
    token: str | TokenSource = "",
    api_key: str = "",
    allow_plaintext_credentials: bool = False,
    ca_file: str | Path | None = None,
    certificate_file: str | Path | None = None,
    key_file: str | Path | None = None,
    server_name: str | None = None,
    wait_s: float = 0.0,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    close_timeout_s: float = CLOSE_TIMEOUT_S,
    retry_s: float = REQUEST_RETRY_S,
    on_connected: Callable[[], None] | None = None,
    on_disconnected: Callable[[BrokerError], None] | None = None,
    telemetry: Telemetry | None = None,
) -> AbstractAsyncContextManager[Client]:
    """
    Connect to the broker at *url*, ``danube://host[:port]``, or to its cluster.

    The client connects before the body begins.  When a connection breaks later, the
    client connects again, opens its producers and consumers again, and sends again
    what was not acknowledged.  Leaving the body closes all of them.  In a cluster, the
    client also connects to the brokers that serve its topics, and follows the topics
    when other brokers take them over.

    Args:
        url: The broker's address, or several of a cluster,
            ``danube://host[:port],host[:port]``, of which one has to answer; by default
            ``DANUBE_URL``, or ``danube://127.0.0.1:6651``.  ``danubes://`` is with TLS,
            whose options may be in the URL, too: ``danubes://host?ca_file=ca.pem``.
        token: The client's token, or a function, also an async one, that returns it
            for each connection and before it expires; by default ``DANUBE_TOKEN``.
        api_key: The client's API key; by default ``DANUBE_API_KEY``.
        allow_plaintext_credentials: Send the token or the API key to other machines
            without TLS, too.
        ca_file: The PEM file of the authorities to trust; None: the system's.
        certificate_file: The client's own certificate, with its *key_file*.
        server_name: The name in the broker's certificate, if not the URL's host.
        wait_s: How long the client tries again while no broker answers, for example
            because the broker is being started at the same time; 0: it tries once.
        connect_timeout_s: How long one attempt to connect may take.
        close_timeout_s: How long closing a producer, a consumer or the client waits
            without an answer from the broker.  Then the client aborts the connection,
            and a producer with unacknowledged messages raises ``TimedOut``.
        retry_s: How long repeatable requests are tried while no broker answers.
        on_connected: Called whenever the client has connected to a broker, on its
            event loop.
        on_disconnected: Called with the reason when a connection is lost or closed.
        telemetry: Traces and measures the client, such as
            ``pydanube.otel.OpenTelemetry()``.

    Raises:
        ConnectionLost: No broker answers at *url*, also after *wait_s*.
        ProtocolViolation: The server at *url* speaks another protocol, or only one of
            the two sides uses TLS.
        Unauthenticated: One side does not trust the certificate of the other, or the
            broker does not accept the credentials.
        InvalidRequest: *url* is not of this form, a file cannot be used, or the
            credentials would be sent to another machine without TLS.
    """
    is_given = url is not None
    if url is None:
        url = os.environ.get(URL_VARIABLE) or DEFAULT_URL
    first, *others = split_url(url)
    # Warnings show the call.
    shown = without_password(url)
    call = f"pydanube.connect({shown!r})" if is_given else "pydanube.connect()"
    check_seconds("wait_s", wait_s)
    check_seconds("retry_s", retry_s)
    options = UrlOptions.of(ca_file, certificate_file, key_file, server_name)
    tls = tls_of(url, options)
    dial, *other_dials = (dial_of(each, tls) for each in (first, *others))
    redirect = find_redirect(parse_url(first))
    credentials = credentials_of(
        token,
        api_key,
        options_of(url),
        os.environ,
        # A redirect stays within this process.
        may_be_plain=allow_plaintext_credentials or redirect is not None,
    )
    for each in (first, *others):
        credentials.check_recipient(each)

    @async_scope
    async def connected() -> AsyncIterator[Client]:
        requester = Requester(
            dial,
            url=first,
            others=dict(zip(others, other_dials, strict=True)),
            tls=tls,
            credentials=credentials,
            connect_timeout_s=connect_timeout_s,
            close_timeout_s=close_timeout_s,
            retry_s=retry_s,
            wall_clock_ns=time_ns if redirect is None else redirect.wall_clock_ns,
            on_connected=on_connected,
            on_disconnected=on_disconnected,
            telemetry=telemetry,
        )
        async with Client(requester).opened(wait_s) as client:
            yield client

    return AsyncScope(connected(), call, "client")


@given_to_workers
@checks_arguments
class Client:
    """
    A client of a broker or a cluster; made by ``connect``.

    It belongs to one event loop; ``pydanube.sync`` is for threads.  Operations of
    administrators are methods of its attributes, such as ``client.topics.create``.
    """

    def __init__(self, requester: Requester) -> None:
        self.requester = requester
        """The connections, and the requests on them; for other modules of pydanube."""
        self.telemetry = requester.telemetry

    @cached_property
    def workers(self) -> Workers:
        """The workers that ``worker`` has added."""
        from pydanube.client.workers.workers import Workers

        return Workers()

    @property
    def topics(self) -> Topics:
        """The topics of the broker or of its cluster, and their partitions."""
        from pydanube.client.operations.topics import Topics

        return Topics(self.requester)

    @property
    def subscriptions(self) -> Subscriptions:
        """The subscriptions of all topics."""
        from pydanube.client.operations.subscriptions import Subscriptions

        return Subscriptions(self.requester)

    @property
    def namespaces(self) -> Namespaces:
        """The namespaces of the broker or of its cluster."""
        from pydanube.client.operations.namespaces import Namespaces

        return Namespaces(self.requester)

    @property
    def schemas(self) -> Schemas:
        """The schema registry."""
        from pydanube.client.operations.schemas import Schemas

        return Schemas(self.requester)

    @property
    def storage(self) -> Storage:
        """The segments of topics, and backups."""
        from pydanube.client.operations.storage import Storage

        return Storage(self.requester)

    @property
    def security(self) -> Security:
        """Identities, roles, bindings, API keys and quotas."""
        from pydanube.client.operations.security import Security

        return Security(self.requester)

    @property
    def connectors(self) -> Connectors:
        """The connectors that the broker stores for workers."""
        from pydanube.client.operations.connectors import Connectors

        return Connectors(self.requester)

    @property
    def cluster(self) -> Cluster:
        """The brokers that this client can reach."""
        from pydanube.client.operations.cluster import Cluster

        return Cluster(self.requester)

    @cached_property
    def _writer_schemas(self) -> WriterSchemas:
        return WriterSchemas(self._fetch_schema, self.requester.tasks)

    @cached_property
    def _request_reply(self) -> RequestReply:
        from pydanube.client.workers.request_reply import RequestReply

        return RequestReply(self.requester, self._value_decoding(None))

    # Producing and consuming.

    @overload
    def producer(
        self,
        topic: str,
        *,
        schema: Schema[T] | type[T],
        subject: str | None = None,
        **options: Unpack[TypedProducerKeywords],
    ) -> AbstractAsyncContextManager[TypedProducer[T]]: ...
    @overload
    def producer(
        self,
        topic: str,
        *,
        schema: None = None,
        subject: str,
        **options: Unpack[TypedProducerKeywords],
    ) -> AbstractAsyncContextManager[TypedProducer[Any]]: ...
    @overload
    def producer(
        self, topic: str, **options: Unpack[ProducerKeywords]
    ) -> AbstractAsyncContextManager[Producer | PartitionedProducer]: ...
    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        reliable: bool | None = None,
        compression: CompressionName | None = None,
        access: AccessName = "shared",
        partitions: int | None = None,
        schema: Schema[Any] | type | None = None,
        subject: str | None = None,
        schema_version: int | str = LATEST,
        schema_version_min: int | None = None,
    ) -> AbstractAsyncContextManager[Any]:
        """
        Open a producer for *topic*, for all partitions if it has any.

        With a *schema* or a *subject*, it is a ``TypedProducer``: it publishes values.
        ``ProducerKeywords`` and ``TypedProducerKeywords`` describe options and errors.
        """
        check_partitions(partitions)
        mode = DispatchMode.NON_RELIABLE if reliable is False else DispatchMode.RELIABLE
        options = ProducerOptions(
            name=parse_or_choose_name("producer", name),
            is_anonymous=name is None,
            policy=TopicPolicy(dispatch=mode),
            takes_any_kind=reliable is None,
            codec=parse_codec(compression),
            access=parse_choice("access", access, ProducerAccess),
        )
        topic_name = str(TopicName.parse(topic))
        if schema is None and subject is None:
            if schema_version != LATEST or schema_version_min is not None:
                raise InvalidRequest(
                    "schema_version and schema_version_min need a schema or a subject"
                )
            opening: AbstractAsyncContextManager[Any]
            opening = open_producer(self.requester, topic_name, options, partitions)
        else:
            from pydanube.client.producers.typed_producer import open_typed_producer

            opening = open_typed_producer(
                self.requester,
                topic_name,
                options,
                partitions,
                schema=None if schema is None else Schema.of(schema),
                subject=None if subject is None else parse_subject(subject),
                version=parse_version(schema_version),
                version_min=schema_version_min,
            )
        # It explains itself to programs that forget ``async with``.
        return AsyncScope(opening, call_of("producer", topic_name), "producer")

    def dead_letters(
        self, topic: str, subscription: str, *, dead_letter_topic: str | None = None
    ) -> DeadLetters:
        """Return the dead letters of *subscription*, to inspect, replay or drop."""
        from pydanube.client.consumers.dead_letters import DeadLetters

        return DeadLetters(
            self.requester,
            topic,
            subscription,
            dead_letter_topic,
            decoding=self._value_decoding(None),
        )

    def transaction(self, name: str) -> AbstractAsyncContextManager[Transaction]:
        """
        Open a transaction: it publishes and acknowledges at its end, all or nothing.

        *name* identifies the program across restarts; see ``Transaction``.
        """
        from pydanube.client.workers.transactions import open_transaction

        name = parse_client_name("transaction", name)
        opening = open_transaction(self.requester, name)
        return AsyncScope(opening, call_of("transaction", name), "transaction")

    def _unattended_transaction(
        self, name: str
    ) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction whose messages the caller gives back if it fails."""
        from pydanube.client.workers.transactions import open_transaction

        return open_transaction(self.requester, name, gives_back=False)

    def staging(self, query: str, version: int) -> Staging:
        """Return one version of *query*'s output, to stage in parts and commit once."""
        from pydanube.client.workers.staging import Staging

        return Staging(self.requester, query, version)

    @overload
    def consumer(
        self,
        topic: str | Iterable[str],
        *,
        schema: Schema[T] | type[T],
        **options: Unpack[ConsumerKeywords],
    ) -> AbstractAsyncContextManager[Consumer[T]]: ...
    @overload
    def consumer(
        self,
        topic: str | Iterable[str],
        *,
        schema: None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> AbstractAsyncContextManager[Consumer]: ...
    def consumer(
        self,
        topic: str | Iterable[str],
        *,
        subscription: str,
        type: SubscriptionTypeName = "exclusive",  # noqa: A002  # As users call it.
        start: PositionLike = "latest",
        name: str | None = None,
        ack_timeout_s: float | None = None,
        prefetch_messages: int | None = None,
        prefetch_bytes: int = 16 * 1024 * 1024,
        key_filters: Iterable[str] = (),
        priority: int = 0,
        schema: Schema[Any] | type | None = None,
    ) -> AbstractAsyncContextManager[Consumer[Any]]:
        """
        Open a consumer of *subscription*, which is created if it does not exist.

        *topic* is one name, a pattern such as ``/default/*``, or a list of these.
        ``ConsumerKeywords`` describes options and errors.
        """
        type_ = parse_choice("type", type, SubscriptionType)
        if prefetch_messages is None:
            is_shared = type_ in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
            prefetch_messages = 1_000 if is_shared else 10_000
        if isinstance(key_filters, str):
            raise InvalidRequest(
                f"key_filters is {key_filters!r}: pass a list, for example ['user-*']"
            )
        options = ConsumerOptions(
            subscription=parse_subscription(subscription),
            type=type_,
            start=to_position(start),
            name=parse_or_choose_name("consumer", name),
            ack_timeout_s=ack_timeout_s,
            prefetch_messages=prefetch_messages,
            prefetch_bytes=prefetch_bytes,
            key_filters=tuple(key_filters),
            priority=priority,
            decoding=self._value_decoding(schema),
            send_reply=self._send_reply,
        )
        selection = TopicSelection(topic)
        opening: AbstractAsyncContextManager[Consumer]
        if selection.is_single:
            opening = open_consumer(self.requester, selection.names[0], options)
        else:
            from pydanube.client.consumers.multi_topic_consumer import (
                open_multi_topic_consumer,
            )

            opening = open_multi_topic_consumer(self.requester, selection, options)
        return AsyncScope(opening, call_of("consumer", topic), "consumer")

    @overload
    def read(
        self,
        topic: str,
        *,
        schema: Schema[T] | type[T],
        **options: Unpack[ReadKeywords],
    ) -> AsyncIterator[MessageBatch[T]]: ...
    @overload
    def read(
        self,
        topic: str,
        *,
        schema: None = None,
        **options: Unpack[ReadKeywords],
    ) -> AsyncIterator[MessageBatch]: ...
    def read(
        self,
        topic: str,
        *,
        start: PositionLike = "earliest",
        end: int | None = None,
        follow: bool = False,
        prefetch_bytes: int = PREFETCH_BYTES,
        schema: Schema[Any] | type | None = None,
    ) -> AsyncIterator[MessageBatch]:
        """
        Read the messages ``start … end`` of a reliable topic without a subscription.

        ``ReadKeywords`` describes options and errors.
        """
        return read(
            self.requester,
            str(TopicName.parse(topic)),
            start=start,
            end=end,
            follow=follow,
            prefetch_bytes=prefetch_bytes,
            decoding=self._value_decoding(schema),
        )

    # Workers.

    def worker(
        self,
        topic: str | Iterable[str],
        *,
        subscription: str,
        **options: Unpack[WorkerKeywords],
    ) -> Callable[[F], F]:
        """
        Return a decorator for a function that processes messages; see ``Workers``.

        ``WorkerKeywords`` describes options and errors.
        """
        return self.workers.worker(topic, subscription=subscription, **options)

    async def run_workers(
        self,
        workers: Workers | None = None,
        *,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        handle_signals: bool = True,
    ) -> None:
        """Run the workers, by default those of this client, until SIGINT or SIGTERM."""
        from pydanube.client.workers.workers import run_workers

        await run_workers(
            self,
            self.workers if workers is None else workers,
            stop_timeout_s=stop_timeout_s,
            handle_signals=handle_signals,
        )

    def running_workers(
        self,
        workers: Workers | None = None,
        *,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> AbstractAsyncContextManager[RunningWorkers]:
        """Run workers while the body runs, and stop them as ``run_workers`` does."""
        from pydanube.client.workers.workers import running_workers

        return running_workers(
            self,
            self.workers if workers is None else workers,
            stop_timeout_s=stop_timeout_s,
        )

    # Requests.

    async def request(
        self,
        topic: str,
        payload: bytes | str,
        *,
        timeout_s: float = 10.0,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Message:
        """
        Publish a request on *topic*, and return the reply of one of its consumers.

        The request expires half a minute after *timeout_s*.  The first reply counts;
        no reply is stored, so a broken connection may lose it.  If the call is
        cancelled, the request may still be handled.  Up to 1,000 requests of a client
        wait for replies; further ones wait for these.

        Raises:
            TimedOut: No reply arrived in *timeout_s*.
            RequestFailed: The consumer replied with an error.
            TopicNotFound: There is no such topic.
        """
        check_seconds("timeout_s", timeout_s)
        return await self._request_reply.request(
            str(TopicName.parse(topic)),
            payload,
            timeout_s,
            key=key,
            attributes=attributes,
        )

    def counters(self) -> ClientCounters:
        """Return what the client has done since it was opened."""
        return self.requester.counters()

    @async_scope
    async def opened(self, wait_s: float = 0.0) -> AsyncIterator[Self]:
        """Connect, and stay connected while the body runs; ``connect`` does this."""
        async with self.requester.opened(wait_s):
            try:
                yield self
            finally:
                await self.aclose()

    async def aclose(self) -> None:
        """Close the client before the end of its scope; ``connect`` does it there."""
        if "_request_reply" in vars(self):
            await self._request_reply.aclose()
            # It refers to this client: break the cycle.
            del self._request_reply
        self._writer_schemas.close()
        await self.requester.aclose()

    async def _send_reply(
        self,
        request: Message,
        payload: bytes | str,
        *,
        attributes: Mapping[str, str] | None,
        error: str | None,
    ) -> None:
        await self._request_reply.reply(
            request, payload, attributes=attributes, error=error
        )

    def _value_decoding(self, schema: Schema[Any] | type | None) -> ValueDecoding:
        return ValueDecoding(
            self._writer_schemas, None if schema is None else Schema.of(schema)
        )

    async def _fetch_schema(self, schema_id: int, version: int) -> Schema[Any]:
        return schema_of(await self.schemas.by_id(schema_id, version))

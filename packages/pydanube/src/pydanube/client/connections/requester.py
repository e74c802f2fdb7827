"""A client's connections to its brokers, the requests on them, and their retries."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from time import time_ns
from types import AsyncGeneratorType
from typing import Any, Self, TypeVar, cast
from urllib.parse import urlsplit

from google.protobuf.message import Message as ControlMessage

from pydanube.aio.async_scopes import async_scope
from pydanube.aio.chance import draw
from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.client.connections.broker_pool import BrokerPool
from pydanube.client.connections.connection import BrokerConnection, Dial
from pydanube.client.connections.credentials import NO_CREDENTIALS, Credentials
from pydanube.client.connections.telemetry import Telemetry
from pydanube.client.connections.tls import ClientTls
from pydanube.client.counters import ClientCounters
from pydanube.client.pure.owners import TopicOwners, owned_topic_of
from pydanube.model.errors import (
    BrokerError,
    Closed,
    ConnectionLost,
    Draining,
    InvalidRequest,
    JournalFailed,
    MetadataUnavailable,
    NotOwner,
    Remedy,
    SessionLost,
    TopicNotFound,
    Unavailable,
)
from pydanube.model.names import TopicName
from pydanube.model.redaction import mask
from pydanube.model.retry import RetryPolicy
from pydanube.wire.batches import BatchFrame
from pydanube.wire.native.kinds import is_repeatable
from pydanube.wire.pb import stream_pb2 as pb

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 10.0
REQUEST_RETRY_S = 30.0
"""The default time for which a client repeats a repeatable request."""
READ_RETRY_S = 120.0
"""The time for which commands that read repeat one: as long as producers do."""
OF_ONE_BROKER = (SessionLost, Draining, NotOwner, MetadataUnavailable, JournalFailed)
"""Errors of one broker of a cluster that another one may not have."""
EXAMINED_TOPICS_MAX = 8
"""The most topics of a silent broker that are looked up at another broker."""
_POLICY = RetryPolicy(first_s=0.05, max_s=2.0)
_CLUSTER_POLICY = RetryPolicy(first_s=0.05, max_s=0.5)
"""The brokers of a cluster let clients wait for the next owner of a topic, so a client
should soon ask again after it has found the present one dead."""

_OTHER_LOOP = (
    "a client belongs to the event loop in which it was opened: open another one in "
    "this loop, or use pydanube.sync, which is for threads"
)

T = TypeVar("T")


class Requester:
    """
    A connection to a broker, or to several of a cluster; opened again when they break.

    ``Client.requester``: the operations of a client and its channels send requests
    with it.
    """

    def __init__(
        self,
        dial: Dial,
        *,
        url: str,
        others: Mapping[str, Dial] | None = None,
        tls: ClientTls | None = None,
        credentials: Credentials = NO_CREDENTIALS,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
        retry_s: float = REQUEST_RETRY_S,
        wall_clock_ns: Callable[[], int] = time_ns,
        on_connected: Callable[[], None] | None = None,
        on_disconnected: Callable[[BrokerError], None] | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """
        *dial* connects to the broker at *url*.

        *others* has other brokers of its cluster by URL, and how to connect to them.
        *tls* is for connections to further ones.
        """
        check_seconds("close_timeout_s", close_timeout_s)
        check_seconds("retry_s", retry_s)
        self.url = url
        self.tasks: TaskScope
        """The background tasks of the client, its producers and its consumers."""
        self.close_timeout_s = close_timeout_s
        """The time for which closing waits without an answer from the broker."""
        self.retry_s = retry_s
        """The time for which requests are repeated, and channels are opened again."""
        self.wall_clock_ns = wall_clock_ns
        """The clock of publish times and delivery windows."""
        self.live_counters = ClientCounters()
        """The counters that producers and consumers change; ``counters()`` copies."""
        self.telemetry = telemetry
        """Traces and measures the client; None: nothing does."""
        dials = {url: dial, **(others or {})}
        passwords = [urlsplit(each).password or "" for each in dials]
        # Without the client, which would be part of a cycle.
        self._mask = partial(_masked, credentials, passwords)
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._pool = BrokerPool(
            dials,
            credentials,
            connect_timeout_s,
            tls=tls,
            shown=self._mask,
            on_connected=self._on_open,
            on_lost=self._on_lost,
            on_silent=self._on_silent,
        )
        self.owners = TopicOwners()
        """The brokers that serve topics of a cluster, as far as they are known."""
        # The silent brokers whose topics are being looked up.
        self._examined: set[str] = set()
        # Closing something has timed out since the last connection was opened.
        self._has_close_timed_out = False

    @async_scope
    async def opened(self, wait_s: float = 0.0) -> AsyncIterator[Self]:
        """
        Connect, and stay connected while the body runs.

        While no broker answers, the client tries again, for *wait_s*.
        """
        self._loop = asyncio.get_running_loop()
        self.follow_end: asyncio.Future[None] = self._loop.create_future()
        """Done when readers that follow topics shall end."""
        self._end_of_loop = _call_at_end_of_loop(
            self._on_end_of_loop, lambda: self._pool.is_closed
        )
        await anext(self._end_of_loop)
        async with task_scope() as self.tasks, AsyncExitStack() as stack:
            if self.telemetry is not None:
                stack.enter_context(self.telemetry.watching(self))
            try:
                if wait_s:
                    await retry(self.connection, wait_s)
                else:
                    await self.connection()
                yield self
            finally:
                await self.aclose()

    def stop_following(self) -> None:
        """
        End all ``read`` with *follow*, those that begin later, too.

        They end after the messages of the answer that they have.  A server calls it
        when it shuts down, so that responses without end do not keep it up.
        """
        if not self.follow_end.done():
            self.follow_end.set_result(None)

    def counters(self) -> ClientCounters:
        """Return what the client has done since it was opened."""
        return replace(self.live_counters)

    def backoff(self) -> Backoff:
        """Return new waits between attempts to open a channel again."""
        return Backoff(_CLUSTER_POLICY if self._pool.is_clustered else _POLICY)

    def shown(self, text: object) -> str:
        """Return *text* as one line for logs, without the client's credentials."""
        return self._mask(text)

    async def send_request(
        self,
        message: ControlMessage,
        *,
        on_batch: Callable[[BatchFrame], None] | None = None,
    ) -> Any:
        """
        Send the request *message* and return the answer.

        A repeatable request is sent again, for ``retry_s``, if the broker cannot be
        reached or is busy; any request, if a broker has refused it because it stops or
        serves something else.  The request goes to the broker that serves its topic,
        and waits as long for one.  In a cluster, a repeatable request without an owner
        goes to another broker if one is silent for ``connect_timeout_s``.  FETCHED
        batches go to *on_batch*.
        """
        is_other = asyncio.get_running_loop() is not self._loop
        if is_other and not self._pool.is_closed:
            raise InvalidRequest(_OTHER_LOOP)
        topic = owned_topic_of(message)

        async def ask(connection: BrokerConnection) -> Any:
            try:
                return await self.request_at(connection, message, on_batch=on_batch)
            except BrokerError as error:
                self.on_error(topic, connection.url, error)
                raise

        async def attempt() -> Any:
            return await ask(await self.connection(topic))

        if is_repeatable(message):
            return await retry(attempt, self.retry_s)
        if not topic:
            return await retry(attempt, self.retry_s, Remedy.LOOK_UP_AGAIN)
        # A topic that moves during the request leaves the outcome unknown.
        self.owners.forget(topic)
        return await ask(await retry(partial(self.connection, topic), self.retry_s))

    def on_error(self, topic: str, url: str, error: BrokerError) -> None:
        """
        Take that the broker at *url* has refused something of *topic*, if not empty.

        If it is about the broker, other brokers get the next requests, if there are.
        """
        self.owners.on_error(topic, url, error)
        if isinstance(error, OF_ONE_BROKER):
            self._pool.doubt(url)

    async def request_at(
        self,
        connection: BrokerConnection,
        message: ControlMessage,
        *,
        on_batch: Callable[[BatchFrame], None] | None = None,
    ) -> Any:
        """
        Send *message* on *connection*, and return the answer.

        Raises:
            BrokerError: The error that the broker answers.
            ConnectionLost: The connection is lost, or the broker is one of a cluster
                and was silent for ``connect_timeout_s``.
        """
        if not connection.welcome.is_clustered:
            return await connection.request(message, on_batch=on_batch)
        try:
            return await connection.request_unless_silent(
                message, self._pool.connect_timeout_s, on_batch=on_batch
            )
        except ConnectionLost:
            self._pool.doubt(connection.url)
            raise

    async def request_of(self, url: str, message: ControlMessage) -> Any:
        """
        Send *message* to the broker of the cluster at *url*, and return the answer.

        A repeatable request is sent again as ``send_request`` does it.
        """

        async def attempt() -> Any:
            connection = await self._pool.connection(self._pool.same_url(url))
            return await self.request_at(connection, message)

        if is_repeatable(message):
            return await retry(attempt, self.retry_s)
        return await attempt()

    def same_url(self, url: str) -> str:
        """Return the URL by which the client knows the broker at *url*."""
        return self._pool.same_url(url)

    async def request_topic(self, topic: str, message: Any) -> Any:
        """Send the request *message* about *topic*, as ``send_request`` does."""
        message.topic = str(TopicName.parse(topic))
        return await self.send_request(message)

    async def connection(self, topic: str = "") -> BrokerConnection:
        """
        Return the connection to the broker that serves *topic*; empty: to any broker.

        Raises:
            ConnectionLost: The broker cannot be reached at the moment.
            NotOwner: No broker serves the topic at the moment.
            Closed: The client was closed.
        """
        url = self.owners.find(topic)
        if url is None:
            connection = await self._pool.any_connection()
            if not topic or not connection.welcome.is_clustered:
                return connection
            url = await self._look_up(topic, connection)
        try:
            return await self._pool.connection(url)
        except Unavailable:
            self.owners.on_broker_lost(url)
            raise

    async def _look_up(self, topic: str, connection: BrokerConnection) -> str:
        """Return the URL of the broker that serves *topic*, as another one knows it."""
        try:
            async with asyncio.timeout(self._pool.connect_timeout_s):
                location = await connection.request(pb.Lookup(topic=topic))
        except TimeoutError:
            self._pool.doubt(connection.url)
            raise ConnectionLost(
                f"the broker at {connection.url} does not tell who serves {topic}"
            ) from None
        except TopicNotFound:
            # Any broker may create it, or refuse the request.
            return connection.url
        except Unavailable:
            self._pool.doubt(connection.url)
            raise
        url = self._pool.same_url(location.url or connection.url)
        self.owners.on_location(topic, url)
        return url

    @async_scope
    async def closing(
        self, connections: Sequence[BrokerConnection] | None = None
    ) -> AsyncIterator[asyncio.Timeout]:
        """
        Run the body, which closes something, for ``close_timeout_s`` at most.

        A timeout aborts *connections*; None: all of the client.  After that, closing
        what has no open connection does not wait, unless there is a new connection.

        Raises:
            TimeoutError: The body took longer.
        """
        is_open = any(not each.is_lost for each in connections or ())
        is_late = self._has_close_timed_out and not is_open
        async with asyncio.timeout(0.0 if is_late else self.close_timeout_s) as timeout:
            try:
                yield timeout
            except asyncio.CancelledError:
                if timeout.expired():
                    self._has_close_timed_out = True
                    if connections is None:
                        connections = self._pool.connections
                    self._abort(connections)
                raise

    async def aclose(self) -> None:
        """Close the connections, after what was written is sent if possible."""
        connections = self._pool.close()
        # The loop itself may be closing it.
        closing = cast("AsyncGeneratorType[None, None]", self._end_of_loop)
        if not closing.ag_running:
            await closing.aclose()
        with suppress(TimeoutError):
            async with self.closing():
                for each in connections:
                    await each.wait_closed()
        self._pool.clear()

    def _on_end_of_loop(self) -> None:
        """Note that the event loop ends while the client is open."""
        if self._pool.is_closed:
            return
        warnings.warn(
            f"the client of {self.shown(self.url)} was open when its event loop "
            "ended; messages that were not acknowledged by then may be lost: write "
            "`async with pydanube.connect(…) as client:`",
            RuntimeWarning,
            stacklevel=2,
        )
        for each in self._pool.close():
            each.abort(Closed("the event loop of the client has ended"))
        self._pool.clear()

    def _on_silent(self, connection: BrokerConnection) -> None:
        if connection.url not in self._examined and not self._pool.is_closed:
            self._examined.add(connection.url)
            self.tasks.run(self._examine(connection), "owner of a silent broker")

    async def _examine(self, connection: BrokerConnection) -> None:
        """
        Abort the *connection* to a silent broker if another one serves its topics.

        A broker that is merely slow is still the owner, and keeps its connection.
        """
        url = connection.url
        try:
            self._pool.doubt(url)
            for topic in connection.topics[:EXAMINED_TOPICS_MAX]:
                other = await self._pool.any_connection()
                if other is connection:
                    return
                with suppress(NotOwner):
                    owner = await self._look_up(topic, other)
                    if owner != url:
                        connection.abort(
                            ConnectionLost(
                                f"the broker at {url} is silent, and the one at "
                                f"{owner} serves {topic} now"
                            )
                        )
                        return
        except BrokerError as error:
            # The next check asks again.
            log.debug("cannot look up the topics of %s: %s", url, self.shown(error))
        finally:
            self._examined.discard(url)

    def _abort(self, connections: Iterable[BrokerConnection]) -> None:
        for each in connections:
            each.abort(
                ConnectionLost(
                    f"the broker at {each.url} did not answer within "
                    f"{self.close_timeout_s:g} s of closing"
                )
            )

    def _on_open(self, connection: BrokerConnection, was_connected: bool) -> None:
        self._has_close_timed_out = False
        self.live_counters.reconnects += was_connected
        renewal = self._pool.renewal_of(connection)
        if renewal is not None:
            self.tasks.run(renewal, "renewal of the token")
        self._call_back(self._on_connected)

    def _on_lost(self, connection: BrokerConnection, reason: BrokerError) -> None:
        self.owners.on_broker_lost(connection.url)
        self._call_back(self._on_disconnected, reason)

    def _call_back(self, callback: Callable[..., None] | None, *arguments: Any) -> None:
        if callback is not None:
            try:
                callback(*arguments)
            except Exception:
                log.exception("a callback of the client has failed")


async def _call_at_end_of_loop(
    callback: Callable[[], None], is_over: Callable[[], bool]
) -> AsyncGenerator[None]:
    """Call *callback* when this is closed, which the loop does after its tasks."""
    try:
        yield
    finally:
        if not is_over():
            # The loop closes its generators together, in any order: one of the program
            # that has the client open closes it now.
            await asyncio.sleep(0)
        callback()


def _masked(credentials: Credentials, passwords: list[str], text: object) -> str:
    secrets = [*credentials.secrets, *passwords]
    return " ".join(mask(str(text), secrets).split())


def check_seconds(name: str, value: float) -> None:
    """Raise unless *value*, the argument *name*, is finite and not negative."""
    if not 0 <= value < float("inf"):
        raise InvalidRequest(
            f"{name} is {value}: it must be a finite number of seconds, at least 0"
        )


class Backoff:
    """Waits between attempts, shortened at random."""

    def __init__(self, policy: RetryPolicy = _POLICY) -> None:
        self._policy = policy
        self._failures = 0

    async def wait(self) -> None:
        """Wait after a failed attempt."""
        self._failures += 1
        await asyncio.sleep(self._policy.delay_s(self._failures, draw))

    def reset(self) -> None:
        """Note that an attempt succeeded: the next wait is short again."""
        self._failures = 0


async def retry(
    attempt: Callable[[], Awaitable[T]],
    timeout_s: float,
    remedy: Remedy | None = None,
) -> T:
    """
    Return the result of *attempt*, which is repeated while its errors allow that.

    With *remedy*, only errors that suggest this are a reason.

    Raises: The error of the last attempt, if it is final or *timeout_s* has passed.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff()
    give_up_at = loop.time() + timeout_s
    while True:
        try:
            return await attempt()
        except BrokerError as error:
            is_final = error.remedy is Remedy.GIVE_UP
            is_other = remedy is not None and error.remedy is not remedy
            if is_final or is_other or loop.time() > give_up_at:
                raise
        await backoff.wait()

"""The channels of producers and consumers, which are opened again when they break."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from google.protobuf.message import Message as ControlMessage

from pydanube.aio.async_scopes import async_scope
from pydanube.aio.tasks import gather
from pydanube.client.connections.connection import BrokerConnection
from pydanube.client.connections.partitions import find_partitions
from pydanube.client.connections.requester import Backoff, Requester, retry
from pydanube.model import arrow
from pydanube.model.errors import BrokerError, Closed, Unavailable
from pydanube.wire.native.connection import ReceivedFrame

PARTITIONS_LOOKUP_INTERVAL_S = 5.0
"""The interval at which a producer or consumer looks for new partitions."""

C = TypeVar("C", bound="KeptChannel")


class Openable(ABC):
    """A producer or consumer of a topic, which may be partitioned."""

    topic: str
    name: str
    _client: Requester

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """True if the channel, or that of each partition, is open at the moment."""

    @abstractmethod
    async def _open(self) -> None:
        """Open for the first time; raise why it cannot be opened."""

    @abstractmethod
    async def _keep_open(self) -> None:
        """Keep it open, until there is a failure or the task is cancelled."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close after everything is sent and acknowledged."""

    async def _aclose_failed(self) -> None:
        """Close after an error of the user's program; by default, abandon."""
        self._abandon()

    @abstractmethod
    def _abandon(self) -> None:
        """Close without waiting, if it is not closed yet."""

    @async_scope
    async def _opened(self) -> AsyncIterator[Self]:
        """Open, and keep it open while the body runs."""
        # Its first batch need not wait for this.
        arrow.load()
        await self._open()
        name = f"{type(self).__name__} {self.name} of {self.topic}"
        running = self._client.tasks.run(self._keep_open(), name)
        try:
            yield self
        except BaseException:
            await self._aclose_failed()
            raise
        else:
            await self.aclose()
        finally:
            self._abandon()
            running.cancel()


class Channel(ABC):
    """One producer, consumer or stage on the connection of a client."""

    _CLOSE_REQUEST: ClassVar[ControlMessage]

    def __init__(self, client: Requester, topic: str) -> None:
        self.topic = topic
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._connection: BrokerConnection | None = None
        self._channel = 0
        self._channel_end: asyncio.Future[BrokerError]
        self._has_asked = False
        """Whether a broker was asked to open the channel since this was reset."""
        self._is_patient = False
        """Whether brokers may take any time to open the channel."""

    # The subclass.

    @abstractmethod
    def _open_request(self) -> ControlMessage:
        """Return the request that opens the channel."""

    @abstractmethod
    def _on_opened(self, connection: BrokerConnection, answer: Any) -> None:
        """Continue on a channel that has just been opened."""

    # The connection; see ``connection.ChannelOwner``.

    @abstractmethod
    def _on_frame(self, frame: ReceivedFrame) -> None: ...

    def _on_closed(self, reason: BrokerError) -> None:
        if self._connection is not None:
            self._client.on_error(self.topic, self._connection.url, reason)
        self._connection = None
        if not self._channel_end.done():
            self._channel_end.set_result(reason)

    # The life of the channel.

    @property
    def is_connected(self) -> bool:
        """True if the channel is open at the moment."""
        return self._connection is not None

    @property
    def _connections(self) -> list[BrokerConnection]:
        """The connection of the channel, if it is open."""
        return [] if self._connection is None else [self._connection]

    async def _open(self) -> None:
        """
        Open for the first time.

        A patient channel goes on to wait at the next broker when one fails, stops or
        gives the topic away.  It gives up if none was asked for ``retry_s``.
        """
        while True:
            self._has_asked = False
            try:
                return await retry(self._open_channel, self._client.retry_s)
            except Unavailable:
                if not (self._is_patient and self._has_asked):
                    raise

    async def _open_channel(self) -> None:
        connection = await self._client.connection(self.topic)
        request = self._open_request()
        channel = connection.new_channel(self)
        self._channel_end = self._loop.create_future()
        self._has_asked = True
        try:
            answer = await connection.request(request, channel)
        except asyncio.CancelledError:
            connection.abandon_channel(self._CLOSE_REQUEST, channel)
            raise
        except BaseException as error:
            connection.release_channel(channel)
            if isinstance(error, BrokerError):
                self._client.on_error(self.topic, connection.url, error)
            raise
        if self._channel_end.done():
            # It was closed after the answer, before this task ran.
            reason = self._channel_end.result()
            self._client.on_error(self.topic, connection.url, reason)
            raise reason
        self._connection, self._channel = connection, channel
        self._on_opened(connection, answer)


class KeptChannel(Channel, Openable):
    """A channel that is opened again whenever it breaks, until there is a failure."""

    def __init__(self, client: Requester, topic: str, name: str) -> None:
        super().__init__(client, topic)
        self.name = name
        self.log = logging.getLogger(type(self).__module__)
        self.failure: BrokerError | None = None
        """Why the channel is not opened any more; None while it is."""

    @property
    def _log_name(self) -> str:
        """The name of the channel in log messages."""
        return f"{type(self).__name__} {self.name} of {self.topic}"

    @abstractmethod
    def _on_broken(self, reason: BrokerError, backoff: Backoff | None) -> bool:
        """
        Handle the end of the channel, or why it could not be opened.

        *backoff* is the one to reset if the channel was open and worked; None if it
        could not be opened.  Returns whether to open it again without waiting.
        """

    async def _keep_open(self) -> None:
        backoff = self._client.backoff()
        while self.failure is None:
            if self._connection is not None:
                reason = await self._channel_end
                may_reopen_now = self._on_broken(reason, backoff)
                if self.failure is None:
                    shown = self._client.shown(reason)
                    self.log.info("%s lost its channel: %s", self._log_name, shown)
                if may_reopen_now:
                    continue
            else:
                try:
                    await self._open_channel()
                except BrokerError as error:
                    self._on_broken(error, None)
                else:
                    self.log.info("%s is open again", self._log_name)
                    continue
            if self.failure is None:
                await backoff.wait()
        if not isinstance(self.failure, Closed):
            self.log.warning(
                "%s failed: %s", self._log_name, self._client.shown(self.failure)
            )

    async def _close_channel(self) -> None:
        """Close the channel, if it is open, and wait for the broker's answer."""
        connection = self._connection
        if connection is None:
            return
        try:
            await connection.request(self._CLOSE_REQUEST, self._channel)
        except Unavailable:
            # The connection is lost, and the channel with it.
            return
        connection.release_channel(self._channel)


class PartitionChannels(Openable, Generic[C]):
    """A producer or consumer with a channel for each partition of a topic."""

    _client: Requester

    def __init__(
        self, client: Requester, topic: str, name: str, partitions: Sequence[str]
    ) -> None:
        self.topic = topic
        self.name = name
        self._client = client
        self._channels = {each: self._new_channel(each) for each in partitions}
        self._running: set[asyncio.Task[None]] = set()

    @abstractmethod
    def _new_channel(self, partition: str) -> C:
        """Return the channel to *partition*, which is not open yet."""

    @property
    def partitions(self) -> list[str]:
        """The partitions, by number."""
        return list(self._channels)

    @property
    def is_connected(self) -> bool:
        """True if the channels of all partitions are open at the moment."""
        return all(each.is_connected for each in self._channels.values())

    async def _open(self) -> None:
        try:
            await self._open_channels()
        except BaseException:
            self._abandon()
            raise
        for each in self._channels.values():
            self._run(each)

    async def _open_channels(self) -> None:
        await gather(each._open() for each in self._channels.values())

    async def _keep_open(self) -> None:
        while True:
            await asyncio.sleep(PARTITIONS_LOOKUP_INTERVAL_S)
            try:
                await self._discover_partitions()
            except Closed:
                return
            except BrokerError:
                # Try again at the next interval.
                continue

    async def _discover_partitions(self) -> None:
        """Look up the partitions, and open channels to the new ones."""
        for name in self._missing(await self._find_topics()):
            await self._join(name)

    async def _find_topics(self) -> Iterable[str]:
        """Return the topics and partitions that should have a channel."""
        found = await find_partitions(self._client, self.topic)
        return found.topics  # type: ignore[no-any-return]

    def _missing(self, found: Iterable[str]) -> list[str]:
        """Return the topics of *found* that have no channel yet, to open them all."""
        return [name for name in found if name not in self._channels]

    async def _join(self, name: str) -> None:
        """Open a channel to the topic *name*."""
        channel = self._channels[name] = self._new_channel(name)
        try:
            await channel._open()
        except BaseException:
            self._remove(channel)
            raise
        self._run(channel)

    def _remove(self, channel: C) -> None:
        """Forget a channel that is not open."""
        self._channels.pop(channel.topic, None)

    def _abandon(self) -> None:
        for each in self._channels.values():
            each._abandon()
        for task in list(self._running):
            task.cancel()

    def _run(self, channel: C) -> None:
        task = self._client.tasks.run(channel._keep_open(), channel._log_name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

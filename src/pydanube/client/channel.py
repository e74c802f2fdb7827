"""The channel of a producer or consumer, which is opened again when it breaks."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pydanube.client.retrying import Backoff, retry
from pydanube.model.errors import BrokerError, Unavailable
from pydanube.wire.native.kinds import KIND_OF

if TYPE_CHECKING:
    from google.protobuf.message import Message as ControlMessage

    from pydanube.client.connection import BrokerConnection
    from pydanube.client.requester import Requester
    from pydanube.wire.native.connection import ReceivedFrame

OPEN_TIMEOUT_S = 30.0
"""The time for which the first opening is retried."""


class Channel(ABC):
    """
    One producer, consumer or stage on the connection of a client.

    ``run`` opens the channel again whenever it breaks, until there is a failure.
    """

    __slots__ = (
        "_channel",
        "_channel_end",
        "_client",
        "_connection",
        "_failure",
        "_loop",
    )

    CLOSE_REQUEST: ClassVar[ControlMessage]

    def __init__(self, client: Requester) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._connection: BrokerConnection | None = None
        self._channel = 0
        self._channel_end: asyncio.Future[BrokerError]
        self._failure: BrokerError | None = None

    # The subclass.

    @abstractmethod
    def _open_request(self) -> ControlMessage:
        """
        Return the request that opens the channel.

        Raises:
            InvalidRequest: The broker is too old for it.
        """

    @abstractmethod
    def _on_opened(self, connection: BrokerConnection, answer: Any) -> None:
        """Continue on a channel that has just been opened."""

    @abstractmethod
    def _on_broken(self, reason: BrokerError, backoff: Backoff | None) -> bool:
        """
        Handle the end of the channel, or why it could not be opened.

        *backoff* is the one to reset if the channel was open and worked; None if it
        could not be opened.  Returns whether to open it again without waiting.
        """

    # The connection.

    @abstractmethod
    def on_frame(self, frame: ReceivedFrame) -> None:
        """See ``connection.ChannelOwner``."""

    def on_closed(self, reason: BrokerError) -> None:
        """See ``connection.ChannelOwner``."""
        self._connection = None
        if not self._channel_end.done():
            self._channel_end.set_result(reason)

    # The life of the channel.

    @property
    def failure(self) -> BrokerError | None:
        """Why the channel is not opened any more; None while it is."""
        return self._failure

    @property
    def is_connected(self) -> bool:
        """True if the channel is open at the moment."""
        return self._connection is not None

    async def open(self) -> None:
        """
        Open the channel for the first time.

        Raises: Why it cannot be opened.
        """
        await retry(self._open_channel, OPEN_TIMEOUT_S)

    async def run(self) -> None:
        """Open the channel again whenever it breaks, until there is a failure."""
        backoff = Backoff()
        while self._failure is None:
            if self._connection is not None:
                reason = await self._channel_end
                if self._on_broken(reason, backoff):
                    continue
            else:
                try:
                    await self._open_channel()
                    continue
                except BrokerError as error:
                    self._on_broken(error, None)
            if self._failure is None:
                await backoff.wait()

    async def _open_channel(self) -> None:
        connection = await self._client.connection()
        request = self._open_request()
        channel = connection.new_channel(self)
        self._channel_end = self._loop.create_future()
        try:
            answer = await connection.request(KIND_OF[type(request)], request, channel)
        except asyncio.CancelledError:
            connection.abandon_channel(
                KIND_OF[type(self.CLOSE_REQUEST)], self.CLOSE_REQUEST, channel
            )
            raise
        except BaseException:
            connection.release_channel(channel)
            raise
        if self._channel_end.done():
            # The connection broke after the answer, before this task ran.
            raise self._channel_end.result()
        self._connection, self._channel = connection, channel
        self._on_opened(connection, answer)

    async def _close_channel(self) -> None:
        """Close the channel, if it is open, and wait for the broker's answer."""
        connection = self._connection
        if connection is None:
            return
        try:
            await connection.request(
                KIND_OF[type(self.CLOSE_REQUEST)], self.CLOSE_REQUEST, self._channel
            )
        except Unavailable:
            # The connection is lost, and the channel with it.
            return
        connection.release_channel(self._channel)

    def _abandon_channel(self) -> None:
        """Close the channel without waiting for the broker's answer."""
        if self._connection is not None:
            answer = self._connection.request_nowait(
                KIND_OF[type(self.CLOSE_REQUEST)], self.CLOSE_REQUEST, self._channel
            )
            answer.add_done_callback(retrieve)
            self._connection.release_channel(self._channel)


def retrieve(future: asyncio.Future[Any]) -> None:
    """Mark the exception of *future*, for which nobody waits, as retrieved."""
    if not future.cancelled():
        future.exception()

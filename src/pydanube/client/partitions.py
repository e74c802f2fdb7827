"""The producers or consumers of all partitions of one topic."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from pydanube.aio.tasks import gather
from pydanube.client.channel import KeptChannel, Openable
from pydanube.model.errors import BrokerError, Closed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.client.topics import TopicRequests

PARTITIONS_LOOKUP_INTERVAL_S = 5.0
"""The interval at which a producer or consumer looks for new partitions."""

C = TypeVar("C", bound=KeptChannel)


class PartitionChannels(Openable, Generic[C]):
    """A producer or consumer of a partitioned topic, with a channel for each."""

    _client: TopicRequests

    def __init__(
        self, client: TopicRequests, topic: str, name: str, partitions: Sequence[str]
    ) -> None:
        self.topic = topic
        self.name = name
        self._client = client
        self._channels = {each: self._new_channel(each) for each in partitions}
        self._running: list[asyncio.Task[None]] = []

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

    async def open(self) -> None:
        try:
            await self._open_channels()
        except BaseException:
            self.abandon()
            raise
        for each in self._channels.values():
            self._run(each)

    async def _open_channels(self) -> None:
        await gather(each.open() for each in self._channels.values())

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PARTITIONS_LOOKUP_INTERVAL_S)
            try:
                await self.discover_partitions()
            except Closed:
                return
            except BrokerError:
                # Try again at the next interval.
                continue

    async def discover_partitions(self) -> None:
        """Look up the partitions, and open channels to the new ones."""
        for name in (await self._client.find_partitions(self.topic)).topics:
            if name not in self._channels:
                channel = self._channels[name] = self._new_channel(name)
                try:
                    await channel.open()
                except BaseException:
                    del self._channels[name]
                    raise
                self._run(channel)

    def abandon(self) -> None:
        for each in self._channels.values():
            each.abandon()
        for task in self._running:
            task.cancel()

    def _run(self, channel: C) -> None:
        name = f"{type(channel).__name__} {channel.name} of {channel.topic}"
        self._running.append(self._client.tasks.run(channel.run(), name))

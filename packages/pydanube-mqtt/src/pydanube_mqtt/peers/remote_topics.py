"""Topics that other processes of the broker serve, as feeds use them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from pydanube.aio.futures import Done, watch
from pydanube.aio.tasks import TaskScope
from pydanube.model.errors import BrokerError, NotOwner, TopicNotFound, Unavailable
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.publishing.message_batcher import SingleMessage
from pydanube_mqtt.peers.peer_links import Dropped, PeerLink

log = logging.getLogger(__name__)

PULL_BYTES = 256 * 1024
"""How much is read from another process at a time."""
TAIL_BYTES_MAX = 1024 * 1024
"""How much is read and not given to clients yet."""
RETRY_S = 0.5


class RemoteTopic:
    """
    A topic that another process serves.

    It has what feeds need of an open topic.  When it moves, a feed gets another one.
    """

    def __init__(
        self,
        name: TopicName,
        policy: TopicPolicy,
        shard: int | None,
        link: PeerLink,
        tasks: TaskScope,
    ) -> None:
        self.name = name
        self.policy = policy
        self.shard = shard
        self.link = link
        self.refusal: BrokerError | None = None
        """Why it cannot be used any more."""
        self.subscriptions: dict[SubscriptionName, object] = {}
        """Always empty: the process that serves it knows them."""
        self.log = RemoteLog(self, tasks)

    @property
    def has_moved(self) -> bool:
        """Whether its process does not serve it any more, or has gone."""
        return self.link.is_lost or isinstance(self.refusal, NotOwner)

    def note(self, error: BrokerError | None) -> None:
        """Take from the outcome of a request whether the topic can still be used."""
        if isinstance(error, NotOwner | TopicNotFound):
            self.refusal = error

    def publish(self, message: SingleMessage, done: Done) -> None:
        """Publish a message; *done* is called when it is stored."""
        self.link.publish(self.name, message, done)


class RemoteLog:
    """
    The messages of a topic that another process serves.

    While a feed has followers, this reads ahead of it.

    Bounds: ``TAIL_BYTES_MAX`` and one answer of the other process.
    """

    def __init__(self, topic: RemoteTopic, tasks: TaskScope) -> None:
        self.end_offset = 0
        """The offset of the next message, as far as this knows."""
        self._topic = topic
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._tail: deque[BatchFrame] = deque()
        self._tail_base = 0
        self._tail_bytes = 0
        self._kept = 0
        self._watchers: dict[object, Callable[[], None]] = {}
        self._was_read = asyncio.Event()

    async def find_end(self) -> int:
        """
        Return the offset of the next message.

        Raises:
            BrokerError: The other process does not tell.
        """
        self.end_offset = await self._topic.link.find_end(self._topic.name)
        return self.end_offset

    def follow(self, offset: int) -> None:
        """Read the messages from *offset* on, as they come."""
        self.rest()
        self._tail_base = self.end_offset = offset
        self._task = self._tasks.run(self._pull())

    def rest(self) -> None:
        """Read nothing ahead any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._tail.clear()
        self._tail_bytes = 0

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback* when end_offset rises; return a function that ends this."""
        return watch(self._watchers, callback)

    def read_tail(self, offset: int, *, bytes_max: int) -> list[BatchFrame] | None:
        """See ``TopicLog``; frames before *offset* are forgotten."""
        if offset >= self.end_offset:
            return []
        if offset < self._tail_base:
            return None
        while self._tail and self._tail[0].end <= offset:
            frame = self._tail.popleft()
            self._tail_base = frame.end
            self._tail_bytes -= frame.byte_count
            self._was_read.set()
        # Messages that are missing are at the end.
        return [self._tail[0]] if self._tail else None

    async def read(self, offset: int, *, bytes_max: int) -> list[BatchFrame]:
        """
        Return frames from *offset* on.

        Raises:
            OffsetDropped, BrokerError: They cannot be read.
        """
        try:
            _, frames = await self._topic.link.read(
                self._topic.name, offset, bytes_max=bytes_max
            )
        except Dropped as answer:
            self._kept = answer.kept
            raise answer.error from None
        return frames

    def next_kept(self, offset: int) -> int:
        """Return the first readable offset, as the last failed read has told it."""
        return max(offset, self._kept)

    async def _pull(self) -> None:
        topic = self._topic
        while True:
            while self._tail_bytes >= TAIL_BYTES_MAX:
                self._was_read.clear()
                await self._was_read.wait()
            try:
                _, frames = await topic.link.read(
                    topic.name, self.end_offset, bytes_max=PULL_BYTES, waits=True
                )
            except Dropped as answer:
                self.end_offset = max(answer.kept, self.end_offset)
                continue
            except (NotOwner, TopicNotFound) as error:
                topic.note(error)
                return
            except Unavailable as error:
                if topic.link.is_lost:
                    return
                log.warning("%s cannot be read at the moment: %s", topic.name, error)
                await asyncio.sleep(RETRY_S)
                continue
            except BrokerError as error:
                log.warning("%s cannot be read: %s", topic.name, error)
                await asyncio.sleep(RETRY_S)
                continue
            for frame in frames:
                self._tail.append(frame)
                self._tail_bytes += frame.byte_count
            if frames:
                self.end_offset = frames[-1].end
                for callback in list(self._watchers.values()):
                    callback()

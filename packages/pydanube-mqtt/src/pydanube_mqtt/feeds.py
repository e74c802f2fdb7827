"""
The way of messages from the topics of the broker to the clients of MQTT.

A feed reads each message of its topic once, whatever the number of clients, and gives
it to the sessions that subscribe to it.  It never waits for a client: a session without
room falls *behind*, and continues from the log of the topic when it has room.  A
session whose client comes back also continues from there.  The log is the queue, and
its messages take no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from pydanube.aio.locks import NamedLocks
from pydanube.aio.tasks import gather
from pydanube.model.errors import (
    BrokerError,
    Conflict,
    InvalidConfig,
    InvalidRequest,
    NotOwner,
    OffsetDropped,
    TopicNotFound,
)
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import DispatchMode, SubscriptionType, TopicPolicy
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_mqtt.counts import MqttCounts
from pydanube_mqtt.peers.elsewhere import Elsewhere
from pydanube_mqtt.peers.remote_topics import RemoteTopic
from pydanube_mqtt.pure.messages import Row, rows_of
from pydanube_mqtt.pure.rules import Rules
from pydanube_mqtt.pure.session import Delivery, Session
from pydanube_mqtt.pure.subscribers import Match, Subscriber, Subscribers, combine
from pydanube_mqtt.topic_consumers import TopicConsumer, consume

log = logging.getLogger(__name__)

ROWS_PER_TURN = 500
"""The most messages that a feed or a session reads in one turn of the event loop."""
READ_BYTES = 256 * 1024
"""How much is read at a time for a session that is behind."""
LISTENER_SUBSCRIPTION = SubscriptionName("mqtt-listener")
"""The subscription of the listener to a topic that is not reliable."""

FOLLOW_S = 0.25
"""How often feeds look whether their topics have moved, if nothing tells them."""

AnyTopic: TypeAlias = "Topic | RemoteTopic"

_CREDIT_MESSAGES = 1_000_000
_CREDIT_BYTES = 1 << 40


class Feed:
    """The messages of one topic of the broker for the connected clients."""

    def __init__(
        self,
        topic: AnyTopic,
        rules: Rules,
        subscribers: Subscribers,
        counts: MqttCounts,
    ) -> None:
        self.topic = topic
        self.target = topic.name
        self.is_reliable = topic.policy.is_reliable
        self.followers: dict[Subscriber, None] = {}
        """The clients that have subscriptions to the topic."""
        self._rules = rules
        self._subscribers = subscribers
        self._counts = counts
        self._woken: dict[Subscriber, None] = {}
        self._call_soon = asyncio.get_running_loop().call_soon

    @property
    def position(self) -> int:
        """The offset of the next message."""
        return 0

    async def bind(self, broker: Broker, topic: AnyTopic) -> None:
        """
        Take the messages from *topic*, the same one where it is served now.

        Raises:
            BrokerError: That is not possible at the moment.
        """
        self.topic = topic

    async def prepare(self) -> None:
        """
        Let followers get the messages that are published from now on.

        Raises:
            BrokerError: That is not possible at the moment.
        """

    def follow(self, subscriber: Subscriber) -> None:
        """Give a client the messages that match its subscriptions."""
        self.followers[subscriber] = None

    def unfollow(self, subscriber: Subscriber) -> None:
        """Give a client no messages any more."""
        self.followers.pop(subscriber, None)

    @property
    def is_closed(self) -> bool:
        """Whether the topic was deleted."""
        return isinstance(self.topic.refusal, TopicNotFound)

    def close(self, reason: BrokerError | None = None) -> None:
        """End the feed."""

    def topic_of(self, row: Row) -> str | None:
        """Return the topic of MQTT of a message; None if it has none."""
        return self._rules.topic_of(row, self.target)

    def _give(self, row: Row) -> None:
        """Give a message to the sessions that subscribe to it."""
        topic = self.topic_of(row)
        if topic is None:
            self._counts.unmapped += 1
            return
        matches = self._subscribers.match(topic)
        if not matches:
            return
        message = None
        for match in matches:
            subscriber = match.subscriber
            session = subscriber.session
            if self in session.behind:
                continue
            if message is None:
                message = row.message(topic)
            delivery = match.delivery(message, self)
            if delivery is None:
                continue
            if session.offer(delivery):
                self._woken[subscriber] = None
            else:
                self._on_full(subscriber, delivery)

    def _on_full(self, subscriber: Subscriber, delivery: Delivery) -> None:
        self._counts.dropped += 1

    def _wake(self) -> None:
        woken, self._woken = self._woken, {}
        for subscriber in woken:
            subscriber.wake()


class StoredFeed(Feed):
    """The feed of a reliable topic."""

    topic: ReliableTopic | RemoteTopic

    def __init__(
        self,
        topic: ReliableTopic | RemoteTopic,
        rules: Rules,
        subscribers: Subscribers,
        counts: MqttCounts,
    ) -> None:
        super().__init__(topic, rules, subscribers, counts)
        self._position = int(topic.log.end_offset)
        self._rows: Iterator[Row] | None = None
        self._rows_end = 0
        self._is_due = False
        self._unwatch = topic.log.watch(self._on_new)

    @property
    def position(self) -> int:
        return self._position

    async def bind(self, broker: Broker, topic: AnyTopic) -> None:
        """See ``Feed``; the offsets of the messages are the same."""
        assert isinstance(topic, ReliableTopic | RemoteTopic)
        self.close()
        self.topic, self._rows = topic, None
        self._unwatch = topic.log.watch(self._on_new)
        if self.followers:
            self._read_ahead()
        self._on_new()

    async def prepare(self) -> None:
        """See ``Feed``."""
        if not self.followers and isinstance(self.topic, RemoteTopic):
            # Without followers, it is not read.
            self._position = await self.topic.log.find_end()

    def follow(self, subscriber: Subscriber) -> None:
        """See ``Feed``."""
        if not self.followers:
            self._read_ahead()
        super().follow(subscriber)

    def unfollow(self, subscriber: Subscriber) -> None:
        """See ``Feed``."""
        super().unfollow(subscriber)
        if not self.followers and isinstance(self.topic, RemoteTopic):
            self.topic.log.rest()

    def close(self, reason: BrokerError | None = None) -> None:
        self._unwatch()
        if isinstance(self.topic, RemoteTopic):
            self.topic.log.rest()

    def _read_ahead(self) -> None:
        if isinstance(self.topic, RemoteTopic):
            self.topic.log.follow(self._position)

    def _on_new(self) -> None:
        if not self.followers:
            self._rows = None
            self._position = max(self._position, int(self.topic.log.end_offset))
        elif not self._is_due:
            self._is_due = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        for _ in range(ROWS_PER_TURN):
            row = self._next_row()
            if row is None:
                break
            self._position = row.offset + 1
            self._give(row)
        else:
            self._on_new()
        self._wake()

    def _next_row(self) -> Row | None:
        """Return the next message, or None if there is none at the moment."""
        topic_log = self.topic.log
        while True:
            if self._rows is not None:
                for row in self._rows:
                    if row.offset >= self._position:
                        return row
                self._rows = None
                self._position = max(self._position, self._rows_end)
            frames = topic_log.read_tail(self._position, bytes_max=1)
            if frames is None:
                # The messages were sealed before they could be given to anybody.
                for subscriber in self.followers:
                    subscriber.session.behind.setdefault(self, self._position)
                    subscriber.read_missed()
                self._position = int(topic_log.end_offset)
                return None
            if not frames:
                return None
            self._rows, self._rows_end = rows_of(frames[0]), frames[0].end

    def _on_full(self, subscriber: Subscriber, delivery: Delivery) -> None:
        if not delivery.qos:
            self._counts.dropped += 1
            return
        subscriber.session.behind[self] = delivery.message.offset
        subscriber.read_missed()

    async def read_for(
        self, subscriber: Subscriber, room: Callable[[], object]
    ) -> None:
        """
        Give the session of *subscriber* what it has missed, until it has caught up.

        *room* returns an awaitable that ends when the session may have room.  Messages
        of QoS 0 are left out.
        """
        session = subscriber.session
        matches: dict[str, Match | None] = {}
        while (offset := session.behind.get(self)) is not None:
            if offset >= self._position:
                del session.behind[self]
                return
            try:
                frames = await self.topic.log.read(offset, bytes_max=READ_BYTES)
            except OffsetDropped:
                kept = int(self.topic.log.next_kept(offset))
                self._counts.lost += kept - offset
                log.warning(
                    "the session %r has missed %d messages of %s, which retention has "
                    "dropped",
                    session.client_id,
                    kept - offset,
                    self.target,
                )
                session.behind[self] = kept
                continue
            if not frames:
                session.behind[self] = self._position
                continue
            for number, row in enumerate(_rows_from(frames, offset), 1):
                if number % ROWS_PER_TURN == 0:
                    # Reading from memory does not let others have their turn.
                    session.behind[self] = row.offset
                    await asyncio.sleep(0)
                while not session.has_room:
                    session.behind[self] = row.offset
                    await room()  # type: ignore[misc]
                if row.offset >= self._position:
                    break
                self._give_missed(subscriber, row, matches)
            session.behind[self] = min(frames[-1].end, self._position)
            subscriber.wake()
            await asyncio.sleep(0)

    async def read_offsets(self, offsets: set[int]) -> dict[int, Row]:
        """Return the messages at *offsets*, as far as they still exist."""
        found: dict[int, Row] = {}
        offset = min(offsets)
        while offset <= max(offsets):
            try:
                frames = await self.topic.log.read(offset, bytes_max=READ_BYTES)
            except OffsetDropped:
                offset = int(self.topic.log.next_kept(offset))
                continue
            if not frames:
                break
            for row in _rows_from(frames, offset):
                if row.offset in offsets:
                    found[row.offset] = row
            offset = frames[-1].end
            await asyncio.sleep(0)
        return found

    def _give_missed(
        self, subscriber: Subscriber, row: Row, matches: dict[str, Match | None]
    ) -> None:
        session = subscriber.session
        topic = self.topic_of(row)
        if topic is None:
            return
        if topic not in matches:
            matches[topic] = combine(
                subscriber,
                [
                    each
                    for each in session.subscriptions.values()
                    if not each.filter.group and each.filter.matches(topic)
                ],
            )
        match = matches[topic]
        if match is None or not match.qos:
            return
        delivery = match.delivery(row.message(topic), self)
        if delivery is not None and delivery.qos:
            session.offer(delivery)


def _rows_from(frames: Sequence[BatchFrame], offset: int) -> Iterator[Row]:
    for frame in frames:
        for row in rows_of(frame):
            if row.offset >= offset:
                yield row


class DirectFeed(Feed):
    """The feed of a topic that is not reliable; implements ``ConsumerPort``."""

    def __init__(  # As of the other feeds, and one more.
        self,
        topic: AnyTopic,
        rules: Rules,
        subscribers: Subscribers,
        counts: MqttCounts,
        subscription: SubscriptionName,
    ) -> None:
        super().__init__(topic, rules, subscribers, counts)
        self._name = subscription
        self._consumer: TopicConsumer | None = None

    async def bind(self, broker: Broker, topic: AnyTopic) -> None:
        """See ``Feed``: subscribe to the topic."""
        self._leave()
        self._consumer = await consume(
            broker, topic, self._name, SubscriptionType.EXCLUSIVE, "mqtt", self
        )
        self.topic = topic
        self._consumer.settle([], _CREDIT_MESSAGES, _CREDIT_BYTES)

    def close(self, reason: BrokerError | None = None) -> None:
        self._leave()
        if isinstance(self.topic, RemoteTopic):
            self.topic.note(reason)

    def _leave(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.leave()

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        """See ``ConsumerPort``."""
        if self._consumer is not None:
            self._call_soon(
                self._consumer.settle,
                [],
                frame.count,
                frame.plain_bytes,
            )
        if self.followers:
            for row in rows_of(frame):
                self._give(row)
            self._wake()

    def set_state(self, *, is_active: bool, ack_timeout_s: float | None) -> None:
        """See ``ConsumerPort``."""


class Feeds:
    """
    The feeds of all topics that the rules name.

    With several processes, another one may serve a topic, and the topic may move.
    """

    def __init__(
        self,
        broker: Broker,
        rules: Rules,
        subscribers: Subscribers,
        counts: MqttCounts,
        *,
        reliable: dict[TopicName, bool],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """*elsewhere* is given if the broker has several processes."""
        self._broker = broker
        self._rules = rules
        self._subscribers = subscribers
        self._counts = counts
        self._reliable = reliable
        self._elsewhere = elsewhere
        self._feeds: dict[TopicName, Feed] = {}
        self._locks: NamedLocks[TopicName] = NamedLocks()

    async def open(self) -> None:
        """
        Open the feeds of all topics; create what does not exist.

        With several processes, feeds are opened later, because no process serves a
        topic yet.

        Raises:
            InvalidConfig: A topic cannot be used, for example because it has
                partitions.
        """
        for target in self._reliable:
            try:
                if self._elsewhere is None:
                    await self.get(target)
                elif await self._broker.catalog.find(target) is None:
                    await self._add_topic(target)
            except (Conflict, InvalidRequest) as error:
                raise InvalidConfig(
                    f"mqtt.rules: the topic {target} cannot be used: {error}"
                ) from error

    def close(self) -> None:
        """End all feeds."""
        for feed in self._feeds.values():
            feed.close()
        self._feeds.clear()

    def __iter__(self) -> Iterator[Feed]:
        return iter(list(self._feeds.values()))

    @property
    def targets(self) -> Collection[TopicName]:
        """The topics that rules name."""
        return self._reliable.keys()

    def find(self, target: TopicName) -> Feed | None:
        """Return the feed of a topic that is open."""
        feed = self._feeds.get(target)
        return None if feed is None or feed.is_closed else feed

    async def get(self, target: TopicName) -> Feed:
        """
        Return the feed of a topic, and create the topic if it was deleted.

        Raises:
            BrokerError: The topic cannot be created or opened.
        """
        async with self._locks.of(target):
            feed = self._feeds.get(target)
            if feed is None or feed.is_closed:
                feed = await self._replace(feed, await self._open_topic(target))
            elif self._is_misplaced(feed):
                await feed.bind(self._broker, await self._find_topic(target))
            await feed.prepare()
            return feed

    async def reopen(self) -> None:
        """Open the feeds of topics that were deleted and exist again."""
        for target in self.targets:
            # If somebody opens it at the moment, the next sweep tries it again.
            if target not in self._locks:
                await self._reopen(target)

    async def _reopen(self, target: TopicName) -> None:
        async with self._locks.of(target):
            feed = self._feeds.get(target)
            if feed is None or not feed.is_closed:
                return
            try:
                await self._replace(feed, await self._find_topic(target))
            except TopicNotFound:
                pass
            except BrokerError as error:
                log.warning("%s cannot be opened for MQTT: %s", target, error)

    async def follow_owners(self) -> None:
        """Take the messages from where topics are served now, for ever."""
        shards = self._broker.shards
        while shards is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_S):
                    await shards.owners.wait_for_change()
            misplaced = [
                each for each in self if self._is_misplaced(each) and not each.is_closed
            ]
            await gather(self._bind_again(each) for each in misplaced)

    async def _bind_again(self, feed: Feed) -> None:
        async with self._locks.of(feed.target):
            if self._feeds.get(feed.target) is not feed or not self._is_misplaced(feed):
                return
            try:
                await feed.bind(self._broker, await self._find_topic(feed.target))
            except BrokerError as error:
                log.debug("%s has no owner at the moment: %s", feed.target, error)

    def _is_misplaced(self, feed: Feed) -> bool:
        """Return whether a feed has to take its messages from elsewhere."""
        topic, shards = feed.topic, self._broker.shards
        if not isinstance(topic, RemoteTopic):
            return isinstance(topic.refusal, NotOwner)
        return topic.has_moved or (shards is not None and shards.serves(topic.shard))

    async def _find_topic(self, target: TopicName) -> AnyTopic:
        """Return a topic, as this process or another one serves it."""
        try:
            return await self._broker.topics.get(target)
        except NotOwner:
            if self._elsewhere is None:
                raise
        return await self._elsewhere.find(target)

    async def _replace(self, feed: Feed | None, topic: AnyTopic) -> Feed:
        """Return a feed of *topic* in the place of *feed*, whose topic was deleted."""
        if topic.refusal is not None:
            raise topic.refusal.with_traceback(None)
        fresh = await self._new_feed(topic)
        if feed is not None:
            feed.close()
            await fresh.prepare()
            for subscriber in feed.followers:
                fresh.follow(subscriber)
                subscriber.session.behind.pop(feed, None)
                subscriber.following.pop(feed, None)
                subscriber.following[fresh] = None
        self._feeds[topic.name] = fresh
        return fresh

    async def _open_topic(self, target: TopicName) -> AnyTopic:
        try:
            return await self._find_topic(target)
        except TopicNotFound:
            await self._add_topic(target)
            return await self._find_topic(target)

    async def _add_topic(self, target: TopicName) -> None:
        dispatch = (
            DispatchMode.RELIABLE
            if self._reliable[target]
            else DispatchMode.NON_RELIABLE
        )
        await self._broker.namespaces.create(target.namespace, exist_ok=True)
        await self._broker.topics.add(
            target, TopicPolicy(dispatch=dispatch), exist_ok=True
        )

    async def _new_feed(self, topic: AnyTopic) -> Feed:
        options = (self._rules, self._subscribers, self._counts)
        if topic.policy.is_reliable:
            assert isinstance(topic, ReliableTopic | RemoteTopic)
            return StoredFeed(topic, *options)
        name = LISTENER_SUBSCRIPTION
        if self._elsewhere is not None:
            name = SubscriptionName(f"{name}-{self._elsewhere.number}")
        feed = DirectFeed(topic, *options, name)
        await feed.bind(self._broker, topic)
        return feed


async def read_missed(subscriber: Subscriber, room: Callable[[], object]) -> None:
    """
    Give the session of *subscriber* everything that it has missed.

    Raises:
        BrokerError: A topic cannot be read.
    """
    session = subscriber.session
    if not any(
        each.options.qos and not each.filter.group
        for each in session.subscriptions.values()
    ):
        # What was missed with QoS 0 is not sent later.
        session.behind.clear()
    while session.behind:
        feed = next(iter(session.behind))
        if not isinstance(feed, StoredFeed) or feed.is_closed:
            del session.behind[feed]
            continue
        await feed.read_for(subscriber, room)


async def restore_in_flight(session: Session) -> None:
    """
    Read the content of messages in flight again, which a session has evicted.

    Raises:
        BrokerError: A topic cannot be read.
    """
    evicted: dict[StoredFeed, list[Delivery]] = {}
    for delivery in session.evicted():
        feed = delivery.origin
        if isinstance(feed, StoredFeed) and not feed.is_closed:
            evicted.setdefault(feed, []).append(delivery)
        else:
            session.restore(delivery, None)
    for feed, deliveries in evicted.items():
        offsets = {each.message.offset for each in deliveries}
        rows = await feed.read_offsets(offsets)
        for delivery in deliveries:
            row = rows.get(delivery.message.offset)
            topic = None if row is None else feed.topic_of(row)
            message = None
            if row is not None and topic is not None:
                message = row.message(topic)
            session.restore(delivery, message)

"""
Shared subscriptions: ``$share/GROUP/FILTER``.

Each is a shared subscription of the broker to the topics that the filter may match, so
messages wait for the group on disk while no member is connected, and another member
gets those that one has not acknowledged when its connection is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from hashlib import sha256

from pydanube.aio.tasks import TaskScope
from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    NotOwner,
    SubscriptionInUse,
    SubscriptionNotFound,
    TopicNotFound,
)
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import Range
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.broker import Broker
from pydanube_mqtt.feeds import Feed, Feeds
from pydanube_mqtt.peers.elsewhere import Elsewhere
from pydanube_mqtt.pure.messages import rows_of
from pydanube_mqtt.pure.rules import Rules
from pydanube_mqtt.pure.session import Subscription
from pydanube_mqtt.pure.subscribers import Subscriber, combine
from pydanube_mqtt.state import load_groups
from pydanube_mqtt.topic_consumers import TopicConsumer, consume
from pydanube_mqtt.wire.topics import TopicFilter

log = logging.getLogger(__name__)

PREFIX = "mqtt-share."
CREDIT_MESSAGES = 100
"""The most messages of a shared subscription that one client has at a time."""
CREDIT_BYTES = 1024 * 1024
JOIN_RETRY_S = 0.2

Leave = Callable[[], None]


def subscription_name(topic_filter: TopicFilter) -> SubscriptionName:
    """Return the name of the broker's subscription for a shared one."""
    digest = sha256(topic_filter.text.encode()).hexdigest()[:16]
    return SubscriptionName(f"{PREFIX}{topic_filter.group}.{digest}")


class SharedConsumer:
    """A member of a shared subscription of one topic; implements ``ConsumerPort``."""

    def __init__(
        self,
        subscriber: Subscriber,
        feed: Feed,
        subscription: Subscription,
        on_closed: Callable[[SharedConsumer], None],
    ) -> None:
        """*on_closed* is called if the broker ends it."""
        match = combine(subscriber, [subscription])
        assert match is not None
        self.client_id = subscriber.session.client_id
        self.target = feed.target
        self.subscription = subscription
        self.has_left = False
        self._subscriber = subscriber
        self._feed = feed
        self._filter = subscription.filter
        self._match = match
        self._on_closed = on_closed
        self._consumer: TopicConsumer | None = None
        # Messages that are done with, and not yet reported.
        self._done: list[Range] = []
        self._done_bytes = 0
        self._call_soon = asyncio.get_running_loop().call_soon

    def join(self, consumer: TopicConsumer) -> None:
        """Begin to receive messages as *consumer*."""
        if self.has_left:
            consumer.leave()
            return
        self._done.clear()
        self._done_bytes = 0
        self._consumer = consumer
        consumer.settle([], CREDIT_MESSAGES, CREDIT_BYTES)

    def leave(self) -> None:
        """End it; other members get the messages that are not acknowledged."""
        self._report()
        self.has_left = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.leave()

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        """See ``ConsumerPort``."""
        session = self._subscriber.session
        share = frame.plain_bytes // max(1, frame.count)
        for row in rows_of(frame):
            done = partial(self._on_done, row.offset, share)
            topic = self._feed.topic_of(row)
            if topic is None or not self._filter.matches(topic):
                done()
                continue
            delivery = self._match.delivery(row.message(topic), None, done)
            if delivery is None:
                done()
                continue
            delivery.qos = min(delivery.qos, 1)
            # The credit is its bound.
            session.add([delivery])
        self._subscriber.wake()

    def set_state(self, *, is_active: bool, ack_timeout_s: float | None) -> None:
        """See ``ConsumerPort``."""

    def close(self, reason: BrokerError) -> None:
        """See ``ConsumerPort``."""
        self._consumer = None
        if isinstance(reason, NotOwner | ConnectionLost) and not self.has_left:
            self._on_closed(self)

    def _on_done(self, offset: int, byte_count: int) -> None:
        if self._consumer is None:
            return
        if not self._done:
            self._call_soon(self._report)
        self._done.append((offset, offset + 1))
        self._done_bytes += byte_count

    def _report(self) -> None:
        done, self._done = self._done, []
        byte_count, self._done_bytes = self._done_bytes, 0
        if done and self._consumer is not None:
            self._consumer.settle(sorted(done), len(done), byte_count)


class SharedSubscriptions:
    """All shared subscriptions, and the sessions that have them."""

    def __init__(
        self,
        broker: Broker,
        tasks: TaskScope,
        feeds: Feeds,
        rules: Rules,
        elsewhere: Elsewhere | None,
    ) -> None:
        self._broker = broker
        self._tasks = tasks
        self._feeds = feeds
        self._rules = rules
        self._elsewhere = elsewhere
        self._members: dict[TopicFilter, set[str]] = {}

    def add(self, topic_filter: TopicFilter, client_id: str) -> None:
        """Record that a session has a shared subscription."""
        self._members.setdefault(topic_filter, set()).add(client_id)

    async def join(
        self, subscriber: Subscriber, subscription: Subscription, feed: Feed
    ) -> Leave:
        """
        Let a client receive messages of one topic; returns a function that ends this.

        Raises:
            BrokerError: The subscription of the broker cannot be opened.
        """
        consumer = SharedConsumer(subscriber, feed, subscription, self._on_closed)
        await self._join(consumer, feed)
        return consumer.leave

    async def _join(self, consumer: SharedConsumer, feed: Feed) -> None:
        consumer.join(
            await consume(
                self._broker,
                feed.topic,
                subscription_name(consumer.subscription.filter),
                SubscriptionType.SHARED,
                consumer.client_id,
                consumer,
            )
        )

    def _on_closed(self, consumer: SharedConsumer) -> None:
        if self._elsewhere is not None:
            self._tasks.run(self._join_again(consumer))

    async def _join_again(self, consumer: SharedConsumer) -> None:
        """Join a subscription whose topic has moved to another process."""
        while not consumer.has_left:
            try:
                await self._join(consumer, await self._feeds.get(consumer.target))
            except BrokerError as error:
                log.debug("%s is not consumed: %s", consumer.target, error)
                await asyncio.sleep(JOIN_RETRY_S)
            else:
                return

    def remove(self, topic_filter: TopicFilter, client_id: str) -> bool:
        """
        Record that a session has no longer a shared subscription.

        Returns whether no session of this process has it any more.
        """
        members = self._members.get(topic_filter, set())
        members.discard(client_id)
        if members:
            return False
        self._members.pop(topic_filter, None)
        return True

    async def delete(self, topic_filter: TopicFilter) -> None:
        """Delete a subscription that no session of this process has any more."""
        name = subscription_name(topic_filter)
        if topic_filter in self._members:
            # Somebody has subscribed again meanwhile.
            return
        if self._elsewhere is not None and await self._has_elsewhere(topic_filter):
            return
        for target in self._rules.targets_of(topic_filter):
            await self._delete(target, name)

    async def _has_elsewhere(self, topic_filter: TopicFilter) -> bool:
        """Return whether a lasting session of another process has a subscription."""
        return topic_filter.text in await load_groups(self._broker.store)

    async def delete_unused(self) -> None:
        """
        Delete the subscriptions of earlier runs of the broker without a session.

        With several processes, each looks at the topics that it serves, and leaves
        those that have consumers.
        """
        used = {subscription_name(each) for each in self._members}
        if self._elsewhere is not None:
            used |= {
                subscription_name(TopicFilter.parse(each))
                for each in await load_groups(self._broker.store)
            }
        for target in await self._find_served():
            try:
                topic = await self._broker.topics.get(target)
            except (NotOwner, TopicNotFound):
                continue
            for name in list(topic.subscriptions):
                if name.startswith(PREFIX) and name not in used:
                    await self._delete(target, name)

    async def _find_served(self) -> list[TopicName]:
        """Return the topics of the rules that this process serves."""
        targets, shards = list(self._feeds.targets), self._broker.shards
        if shards is None:
            return targets
        found = await self._broker.catalog.find_each(targets)
        return [
            target
            for target, stored in zip(targets, found, strict=True)
            if stored is not None and shards.serves(stored.value.shard)
        ]

    async def _delete(self, target: TopicName, name: SubscriptionName) -> None:
        try:
            if self._elsewhere is None:
                # Not while native consumers use it.
                await self._broker.subscriptions.delete(target, name)
            else:
                await self._elsewhere.delete_subscription(target, name)
        except (SubscriptionInUse, SubscriptionNotFound, TopicNotFound):
            pass
        except BrokerError as error:
            log.warning("the subscription %s of %s stays: %s", name, target, error)

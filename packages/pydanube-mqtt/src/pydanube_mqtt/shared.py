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

from pydanube.model.errors import BrokerError, SubscriptionNotFound, TopicNotFound
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import Start, SubscriptionType
from pydanube.model.ranges import Range
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.delivery.subscription import Consumer
from pydanube_broker.broker.delivery.subscription import (
    Subscription as BrokerSubscription,
)
from pydanube_mqtt.feeds import Feed, Feeds
from pydanube_mqtt.pure.messages import rows_of
from pydanube_mqtt.pure.session import Subscription
from pydanube_mqtt.pure.subscribers import Subscriber, combine
from pydanube_mqtt.wire.topics import TopicFilter

log = logging.getLogger(__name__)

PREFIX = "mqtt-share."
CREDIT_MESSAGES = 100
"""The most messages of a shared subscription that one client has at a time."""
CREDIT_BYTES = 1024 * 1024

Leave = Callable[[], None]


def subscription_name(topic_filter: TopicFilter) -> SubscriptionName:
    """Return the name of the broker's subscription for a shared one."""
    digest = sha256(topic_filter.text.encode()).hexdigest()[:16]
    return SubscriptionName(f"{PREFIX}{topic_filter.group}.{digest}")


class SharedConsumer:
    """A member of a shared subscription of one topic; implements ``ConsumerPort``."""

    def __init__(
        self, subscriber: Subscriber, feed: Feed, subscription: Subscription
    ) -> None:
        match = combine(subscriber, [subscription])
        assert match is not None
        self._subscriber = subscriber
        self._feed = feed
        self._filter = subscription.filter
        self._match = match
        self._subscription: BrokerSubscription | None = None
        self._consumer: Consumer | None = None
        # Messages that are done with, and not yet reported.
        self._done: list[Range] = []
        self._done_bytes = 0
        self._call_soon = asyncio.get_running_loop().call_soon

    def join(self, subscription: BrokerSubscription) -> None:
        """Begin to receive messages of *subscription*."""
        self._subscription = subscription
        client_id = self._subscriber.session.client_id
        self._consumer = subscription.attach(client_id, self)
        subscription.credit(self._consumer, CREDIT_MESSAGES, CREDIT_BYTES)

    def leave(self) -> None:
        """End it; other members get the messages that are not acknowledged."""
        self._report()
        subscription, self._subscription = self._subscription, None
        if subscription is not None and self._consumer is not None:
            subscription.detach(self._consumer)

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
        self._subscription = None

    def _on_done(self, offset: int, byte_count: int) -> None:
        if self._subscription is None:
            return
        if not self._done:
            self._call_soon(self._report)
        self._done.append((offset, offset + 1))
        self._done_bytes += byte_count

    def _report(self) -> None:
        done, self._done = self._done, []
        byte_count, self._done_bytes = self._done_bytes, 0
        if done and self._subscription is not None and self._consumer is not None:
            self._subscription.ack(sorted(done), 0)
            self._subscription.credit(self._consumer, len(done), byte_count)


class SharedSubscriptions:
    """All shared subscriptions, and the sessions that have them."""

    def __init__(self, broker: Broker, feeds: Feeds) -> None:
        self._broker = broker
        self._feeds = feeds
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
        name = subscription_name(subscription.filter)
        _, shared = await self._broker.subscriptions.open(
            feed.target, name, SubscriptionType.SHARED, Start.LATEST
        )
        consumer = SharedConsumer(subscriber, feed, subscription)
        consumer.join(shared)
        return consumer.leave

    def remove(
        self, topic_filter: TopicFilter, client_id: str
    ) -> SubscriptionName | None:
        """
        Record that a session has no longer a shared subscription.

        Returns the name of the broker's subscription if nobody has it any more.
        """
        members = self._members.get(topic_filter, set())
        members.discard(client_id)
        if members:
            return None
        self._members.pop(topic_filter, None)
        return subscription_name(topic_filter)

    async def delete(self, name: SubscriptionName) -> None:
        """Delete the broker's subscription *name* to all topics that have it."""
        if name in {subscription_name(each) for each in self._members}:
            # Somebody has subscribed again meanwhile.
            return
        for feed in self._feeds:
            if name in feed.topic.subscriptions:
                await self._delete(feed.target, name)

    async def delete_unused(self) -> None:
        """Delete the subscriptions of earlier runs of the broker without a session."""
        used = {subscription_name(each) for each in self._members}
        for feed in self._feeds:
            for name in list(feed.topic.subscriptions):
                if name.startswith(PREFIX) and name not in used:
                    await self._delete(feed.target, name)

    async def _delete(self, target: TopicName, name: SubscriptionName) -> None:
        try:
            await self._broker.subscriptions.delete(target, name, force=True)
        except (SubscriptionNotFound, TopicNotFound):
            pass
        except BrokerError as error:
            log.warning("the subscription %s of %s stays: %s", name, target, error)

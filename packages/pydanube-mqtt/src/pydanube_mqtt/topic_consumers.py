"""Consumers of topics of the broker, whichever of its processes serves the topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydanube.model.names import SubscriptionName
from pydanube.model.policy import Start, SubscriptionType
from pydanube.model.ranges import Range
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.delivery.subscription import (
    Consumer,
    ConsumerPort,
    Subscription,
)
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_mqtt.peers.remote_topics import RemoteTopic


class TopicConsumer(Protocol):
    """A consumer of a subscription."""

    def settle(self, ranges: Sequence[Range], messages: int, byte_count: int) -> None:
        """Acknowledge *ranges*, and add to the credit."""

    def leave(self) -> None:
        """End it; others get the messages that are not acknowledged."""


class LocalConsumer:
    """A consumer of a topic that this process serves."""

    def __init__(self, subscription: Subscription, consumer: Consumer) -> None:
        self._subscription = subscription
        self._consumer = consumer

    def settle(self, ranges: Sequence[Range], messages: int, byte_count: int) -> None:
        """See ``TopicConsumer``."""
        if ranges:
            self._subscription.ack(sorted(ranges), 0)
        self._subscription.credit(self._consumer, messages, byte_count)

    def leave(self) -> None:
        """See ``TopicConsumer``."""
        self._subscription.detach(self._consumer)


async def consume(  # noqa: PLR0917  # As of the subscription and its consumer.
    broker: Broker,
    topic: Topic | RemoteTopic,
    name: SubscriptionName,
    type_: SubscriptionType,
    consumer_name: str,
    port: ConsumerPort,
) -> TopicConsumer:
    """
    Return a consumer without credit of a subscription, which is created if need be.

    Raises:
        BrokerError: The subscription cannot be opened.
    """
    if isinstance(topic, RemoteTopic):
        return await topic.link.consume(topic.name, name, type_, consumer_name, port)
    _, subscription = await broker.subscriptions.open(
        topic.name, name, type_, Start.LATEST
    )
    return LocalConsumer(subscription, subscription.attach(consumer_name, port))

"""Subscribing and unsubscribing: what changes the subscriptions of sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pydanube.aio.tasks import TaskScope
from pydanube.model.errors import BrokerError, Refused
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube_broker.broker.broker import Broker
from pydanube_broker.operations.authorization import Caller, Need
from pydanube_mqtt.clients import Client, Connection
from pydanube_mqtt.counts import MqttCounts
from pydanube_mqtt.feeds import Feeds
from pydanube_mqtt.peers.elsewhere import Elsewhere
from pydanube_mqtt.pure.reasons import reason_of
from pydanube_mqtt.pure.retained import RetainedMessages
from pydanube_mqtt.pure.rules import Rules
from pydanube_mqtt.pure.session import Delivery, Session, Subscription
from pydanube_mqtt.pure.subscribers import Subscriber, Subscribers
from pydanube_mqtt.shared import SharedSubscriptions
from pydanube_mqtt.wire.packets import (
    PacketError,
    Property,
    Reason,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
)
from pydanube_mqtt.wire.topics import TopicFilter

log = logging.getLogger(__name__)


class Subscribing:
    """The subscriptions of all sessions."""

    def __init__(
        self,
        broker: Broker,
        tasks: TaskScope,
        *,
        rules: Rules,
        feeds: Feeds,
        subscribers: Subscribers,
        retained: RetainedMessages,
        counts: MqttCounts,
        subscriptions_max: int,
        wall_clock_us: Callable[[], int],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.shared = SharedSubscriptions(broker, tasks, feeds, rules, elsewhere)
        self._broker = broker
        self._tasks = tasks
        self._rules = rules
        self._feeds = feeds
        self._subscribers = subscribers
        self._retained = retained
        self._counts = counts
        self._subscriptions_max = subscriptions_max
        self._wall_clock_us = wall_clock_us

    async def subscribe(
        self, connection: Connection, client: Client, packet: Subscribe
    ) -> tuple[list[Reason], list[Delivery]]:
        """
        Add subscriptions; return the reasons of SUBACK, and the retained messages.

        Raises:
            PacketError: The client violates the protocol.
        """
        reasons: list[Reason] = []
        retained: list[Delivery] = []
        (identifier,) = packet.properties.get(Property.SUBSCRIPTION_IDENTIFIER, (0,))
        for options in packet.subscriptions:
            try:
                reason, found = await self._subscribe(
                    connection, client, options, identifier
                )
            except PacketError as error:
                if error.reason is Reason.PROTOCOL_ERROR:
                    raise
                reason, found = error.reason, []
                log.info("refusing a subscription of %s: %s", connection.peer, error)
            except BrokerError as error:
                reason, found = reason_of(error) or Reason.UNSPECIFIED_ERROR, []
                log.info("refusing a subscription of %s: %s", connection.peer, error)
            if reason >= Reason.UNSPECIFIED_ERROR:
                self._counts.refused[reason.name.lower()] += 1
            reasons.append(reason)
            retained += found
        return reasons, retained

    async def _subscribe(
        self,
        connection: Connection,
        client: Client,
        options: SubscriptionOptions,
        identifier: int,
    ) -> tuple[Reason, list[Delivery]]:
        session, subscriber = client.session, connection.subscriber
        if subscriber is None:
            raise PacketError(Reason.UNSPECIFIED_ERROR, "the client has gone")
        subscription = Subscription(
            TopicFilter.parse(options.filter), options, identifier
        )
        if subscription.filter.group and options.no_local:
            raise PacketError(
                Reason.PROTOCOL_ERROR, "a shared subscription cannot be no local"
            )
        before = session.subscriptions.get(options.filter)
        if before is None and len(session.subscriptions) >= (self._subscriptions_max):
            raise PacketError(
                Reason.QUOTA_EXCEEDED,
                f"the session has {len(session.subscriptions)} subscriptions, as many "
                "as mqtt.subscriptions_max allows",
            )
        self.check_allowed(connection.caller, subscription)
        if before is not None:
            _leave_shared(subscriber, options.filter)
        await self._add(client, subscriber, subscription)
        session.subscriptions[options.filter] = subscription
        if connection.subscriber is None:
            # The connection was lost meanwhile.
            self.suspend(client, subscriber)
        if subscription.filter.group:
            return Reason(min(options.qos, 1)), []
        return Reason(options.qos), self._find_retained(
            subscription, is_new=before is None
        )

    def unsubscribe(
        self, connection: Connection, client: Client, packet: Unsubscribe
    ) -> list[Reason]:
        """Remove subscriptions, and return the reasons of UNSUBACK."""
        reasons: list[Reason] = []
        session, subscriber = client.session, connection.subscriber
        for text in packet.filters:
            subscription = session.subscriptions.pop(text, None)
            if subscription is None:
                reasons.append(Reason.NO_SUBSCRIPTION_EXISTED)
                continue
            reasons.append(Reason.SUCCESS)
            if subscription.filter.group:
                if subscriber is not None:
                    _leave_shared(subscriber, text)
                self._leave_group(client, subscription)
            elif subscriber is not None:
                self._subscribers.remove(subscriber, subscription)
        if subscriber is not None:
            self._stop_following(session, subscriber)
        return reasons

    async def resume(
        self, connection: Connection, client: Client, subscriber: Subscriber
    ) -> None:
        """Let the subscriptions of a session count again, as far as they may."""
        for text, subscription in list(client.session.subscriptions.items()):
            try:
                self.check_allowed(connection.caller, subscription)
                await self._add(client, subscriber, subscription)
            except (Refused, PacketError) as error:
                log.warning(
                    "the session %r loses its subscription %r: %s",
                    client.session.client_id,
                    text,
                    error,
                )
                del client.session.subscriptions[text]
                if subscription.filter.group:
                    self._leave_group(client, subscription)

    def suspend(self, client: Client, subscriber: Subscriber) -> dict[object, int]:
        """
        Let no subscription of a session count, because its connection is lost.

        Returns the positions of the feeds from which it can continue.
        """
        for each in client.session.subscriptions.values():
            if not each.filter.group:
                self._subscribers.remove(subscriber, each)
        positions: dict[object, int] = {}
        for feed in subscriber.following:
            if feed.is_reliable:
                positions[feed] = feed.position
            feed.unfollow(subscriber)
        subscriber.following.clear()
        for leave in subscriber.shared.values():
            leave()
        subscriber.shared.clear()
        return positions

    def end(self, client: Client) -> None:
        """Remove the subscriptions of a session that has ended."""
        for subscription in client.session.subscriptions.values():
            if subscription.filter.group:
                self._leave_group(client, subscription)

    def check_allowed(self, caller: Caller, subscription: Subscription) -> None:
        """
        Raise if a client may not subscribe.

        Raises:
            PacketError: No rule maps a topic that the filter may match.
            PermissionDenied, Unauthenticated: The client may not consume a topic.
        """
        targets = self._rules.targets_of(subscription.filter)
        if not targets or subscription.filter.text.startswith("$"):
            raise PacketError(
                Reason.TOPIC_FILTER_INVALID,
                "no rule of this broker (mqtt.rules) maps a topic that matches "
                f"{subscription.filter.text!r}",
            )
        if self._broker.access.is_enforced:
            caller.check(
                [Need(Permission.CONSUME, Resource.topic(each)) for each in targets],
                "subscribe",
            )

    async def _add(
        self, client: Client, subscriber: Subscriber, subscription: Subscription
    ) -> None:
        """Let a subscription of a connected client count."""
        group = subscription.filter.group
        if group:
            self.shared.add(subscription.filter, client.session.client_id)
        else:
            self._subscribers.add(subscriber, subscription)
        for target in self._rules.targets_of(subscription.filter):
            feed = await self._feeds.get(target)
            if not group:
                feed.follow(subscriber)
                subscriber.following[feed] = None
                continue
            leave = await self.shared.join(subscriber, subscription, feed)
            subscriber.shared[subscription.options.filter, target] = leave

    def _leave_group(self, client: Client, subscription: Subscription) -> None:
        if self.shared.remove(subscription.filter, client.session.client_id):
            self._tasks.run(self._delete_shared(subscription.filter))

    async def _delete_shared(self, topic_filter: TopicFilter) -> None:
        try:
            await self.shared.delete(topic_filter)
        except Exception:
            log.exception("the subscription %s is not deleted", topic_filter.text)

    def _find_retained(
        self, subscription: Subscription, *, is_new: bool
    ) -> list[Delivery]:
        handling = subscription.options.retain_handling
        if handling == 2 or (handling == 1 and not is_new):
            return []
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        return [
            Delivery(
                message,
                min(message.qos, subscription.options.qos),
                retain=True,
                identifiers=identifiers,
            )
            for message in self._retained.match(
                subscription.filter, self._wall_clock_us()
            )
        ]

    def _stop_following(self, session: Session, subscriber: Subscriber) -> None:
        """Leave the feeds that have nothing for a session any more."""
        needed = {
            target
            for each in session.subscriptions.values()
            if not each.filter.group
            for target in self._rules.targets_of(each.filter)
        }
        for feed in list(subscriber.following):
            if feed.target not in needed:
                del subscriber.following[feed]
                feed.unfollow(subscriber)
                session.behind.pop(feed, None)


def _leave_shared(subscriber: Subscriber, text: str) -> None:
    """End the membership in the shared subscription with the filter *text*."""
    for key in [each for each in subscriber.shared if each[0] == text]:
        subscriber.shared.pop(key)()

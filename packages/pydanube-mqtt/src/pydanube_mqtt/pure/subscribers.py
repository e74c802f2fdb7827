"""The connected clients by the topics that they subscribe to.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube_mqtt.pure.messages import Message
from pydanube_mqtt.pure.session import Delivery, Origin, Session, Subscription
from pydanube_mqtt.wire.topics import FilterTree

CACHED_MAX = 10_000
"""The most topics whose subscribers are remembered."""


@dataclass(frozen=True, slots=True, eq=False)
class Subscriber:
    """A connected client."""

    session: Session
    wake: Callable[[], None]
    """Sends what waits in the session, as far as the client reads it."""
    read_missed: Callable[[], None]
    """Begins to read the messages that the session has missed."""
    following: dict[Any, None] = field(default_factory=dict)
    """The feeds that have messages for it."""
    shared: dict[tuple[str, TopicName], Callable[[], None]] = field(
        default_factory=dict
    )
    """Functions that end its membership in shared subscriptions, by their filter."""


@dataclass(frozen=True, slots=True)
class Match:
    """A client whose subscriptions match a topic, with what they ask for together."""

    subscriber: Subscriber
    qos: int
    retain_as_published: bool
    identifiers: tuple[int, ...]
    no_local: bool

    def delivery(
        self,
        message: Message,
        origin: Origin | None,
        on_done: Callable[[], None] | None = None,
    ) -> Delivery | None:
        """Return the delivery of *message*; None if the client does not want it."""
        if self.no_local and message.publisher == self.subscriber.session.client_id:
            return None
        return Delivery(
            message,
            min(self.qos, message.qos),
            self.retain_as_published and message.retain,
            self.identifiers,
            origin,
            on_done,
        )


def combine(
    subscriber: Subscriber, subscriptions: Iterable[Subscription]
) -> Match | None:
    """Return what the *subscriptions* of one client ask for; None if there are none."""
    found = list(subscriptions)
    if not found:
        return None
    return Match(
        subscriber,
        max(each.options.qos for each in found),
        any(each.options.retain_as_published for each in found),
        tuple(each.identifier for each in found if each.identifier),
        all(each.options.no_local for each in found),
    )


class Subscribers:
    """
    The subscriptions of all connected clients, except shared ones.

    Bounds: ``CACHED_MAX`` topics are remembered.
    """

    def __init__(self) -> None:
        self._tree: FilterTree[tuple[Subscriber, Subscription]] = FilterTree()
        self._matches: dict[str, list[Match]] = {}

    def add(self, subscriber: Subscriber, subscription: Subscription) -> None:
        """Add a subscription; it replaces one with the same filter."""
        self._tree.add(
            subscription.filter.levels, subscriber, (subscriber, subscription)
        )
        self._matches.clear()

    def remove(self, subscriber: Subscriber, subscription: Subscription) -> None:
        """Remove a subscription."""
        self._tree.remove(subscription.filter.levels, subscriber)
        self._matches.clear()

    def match(self, topic: str) -> list[Match]:
        """Return the clients that subscribe to *topic*."""
        try:
            return self._matches[topic]
        except KeyError:
            pass
        by_subscriber: dict[Subscriber, list[Subscription]] = {}
        for subscriber, subscription in self._tree.match(topic):
            by_subscriber.setdefault(subscriber, []).append(subscription)
        found = [
            match
            for subscriber, subscriptions in by_subscriber.items()
            if (match := combine(subscriber, subscriptions)) is not None
        ]
        if len(self._matches) >= CACHED_MAX:
            self._matches.clear()
        self._matches[topic] = found
        return found

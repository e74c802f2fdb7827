"""
The session of a client: subscriptions, and messages on their way.  Pure.

A session outlives its connections.  Packet identifiers of messages to the client, and
those of messages of QoS 2 from it, belong to the session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import field

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.principals import Principal
from pydanube_mqtt.pure.messages import Message
from pydanube_mqtt.wire.packets import SubscriptionOptions
from pydanube_mqtt.wire.topics import TopicFilter

PACKET_ID_MAX = 65_535

Origin = Hashable
"""The feed that a message comes from."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of a session."""

    filter: TopicFilter
    options: SubscriptionOptions
    identifier: int = 0
    """The subscription identifier of version 5; 0: none."""


@dataclass(slots=True, eq=False)
class Delivery:
    """A message for one client."""

    message: Message
    qos: int
    retain: bool = False
    identifiers: tuple[int, ...] = ()
    """The identifiers of the subscriptions that it matches."""
    origin: Origin | None = None
    """The feed from whose topic it can be read again; None: it cannot."""
    on_done: Callable[[], None] | None = None
    """Called when the client has acknowledged it, or will not get it."""
    packet_id: int = 0
    is_released: bool = False
    """Whether the client has received it: of QoS 2, until PUBCOMP comes."""
    is_evicted: bool = False
    """Whether its content must be read again from the topic."""

    def finish(self) -> None:
        """Call ``on_done``, once."""
        if self.on_done is not None:
            done, self.on_done = self.on_done, None
            done()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """The bounds of a session."""

    in_flight_max: int = 1000
    queue_messages_max: int = 1000
    queue_bytes_max: int = 1024 * 1024
    """The most bytes in the queue, and the most in flight if it is not one message."""


@dataclass(slots=True, eq=False, kw_only=True)
class Session:
    """
    The session of one client.

    Ordering: Messages are sent in the order of ``offer``.

    Bounds: ``limits``, except for the messages that ``add`` gets.
    """

    client_id: str
    owner: Principal
    """The principal whose session it is."""
    limits: SessionLimits
    expiry_s: int = 0
    """How long it is kept without a connection; 0: not at all."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """The subscriptions by filter, as the client wrote it."""
    received: set[int] = field(default_factory=set)
    """The packet identifiers of messages of QoS 2 that were published, until PUBREL."""
    behind: dict[Origin, int] = field(default_factory=dict)
    """The feeds that are ahead of the session, and the offset to continue at."""
    in_flight: dict[int, Delivery] = field(default_factory=dict)
    """Messages that were sent and not acknowledged, in order."""
    in_flight_bytes: int = 0
    queue: deque[Delivery] = field(default_factory=deque)
    queue_bytes: int = 0
    send_max: int = PACKET_ID_MAX
    """The most messages in flight that the client accepts."""
    _last_id: int = 0

    @property
    def is_persistent(self) -> bool:
        """Whether it outlives its connection."""
        return self.expiry_s > 0

    @property
    def has_room(self) -> bool:
        """Whether it takes one more message."""
        return (
            len(self.queue) < self.limits.queue_messages_max
            and self.queue_bytes < self.limits.queue_bytes_max
        )

    @property
    def is_half_empty(self) -> bool:
        """Whether it is time to read more messages for it."""
        return (
            len(self.queue) * 2 <= self.limits.queue_messages_max
            and self.queue_bytes * 2 <= self.limits.queue_bytes_max
        )

    # Messages to the client.

    def offer(self, delivery: Delivery) -> bool:
        """Queue a message; return False if there is no room for it."""
        if not self.has_room:
            return False
        self._append(delivery)
        return True

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Queue messages even if there is no room; the caller bounds their number."""
        for delivery in deliveries:
            self._append(delivery)

    def take_due(self, now_us: int) -> Iterator[Delivery]:
        """
        Yield the messages to send now; those of QoS 1 and 2 are in flight afterwards.

        The caller may stop, and continue later.
        """
        queue, in_flight = self.queue, self.in_flight
        while queue:
            delivery = queue[0]
            message = delivery.message
            is_expired = message.is_expired(now_us)
            if delivery.qos and not is_expired and not self._may_send(message):
                return
            queue.popleft()
            self.queue_bytes -= message.byte_count
            if is_expired:
                delivery.finish()
                continue
            if delivery.qos:
                delivery.packet_id = self._new_id()
                in_flight[delivery.packet_id] = delivery
                self.in_flight_bytes += message.byte_count
            else:
                delivery.finish()
            yield delivery

    def resume(self) -> list[Delivery]:
        """Return the messages in flight, which a new connection sends again."""
        return list(self.in_flight.values())

    def on_acknowledged(self, packet_id: int, *, qos: int) -> bool:
        """Handle PUBACK or PUBCOMP; return False if no such message is in flight."""
        delivery = self.in_flight.get(packet_id)
        if delivery is None or delivery.qos != qos:
            return False
        self._forget(delivery)
        delivery.finish()
        return True

    def on_received(self, packet_id: int, *, is_error: bool) -> bool:
        """Handle PUBREC; return False if no such message is in flight."""
        delivery = self.in_flight.get(packet_id)
        if delivery is None or delivery.qos != 2:
            return False
        if is_error:
            self._forget(delivery)
        else:
            delivery.is_released = True
            self._drop_content(delivery)
        delivery.finish()
        return True

    def discard(self, delivery: Delivery) -> None:
        """Forget a message in flight, which the client cannot get."""
        if self.in_flight.get(delivery.packet_id) is delivery:
            self._forget(delivery)
            delivery.finish()

    def requeue(self, positions: dict[Origin, int]) -> None:
        """
        Drop what can be read again from the topics, because the connection is lost.

        *positions* are those of all feeds that the session follows.
        """
        for origin, position in positions.items():
            self.behind.setdefault(origin, position)
        kept: deque[Delivery] = deque()
        for delivery in reversed(self.queue):
            if delivery.origin in self.behind:
                self.behind[delivery.origin] = delivery.message.offset
            elif delivery.origin is None and delivery.on_done is None:
                kept.appendleft(delivery)
        self.queue = kept
        self.queue_bytes = sum(each.message.byte_count for each in kept)

    def drop_shared(self) -> None:
        """Forget the messages of shared subscriptions: other clients get them."""
        for delivery in list(self.in_flight.values()):
            if delivery.on_done is not None:
                self._forget(delivery)

    def evict(self) -> None:
        """Drop the content of messages in flight that the topics have."""
        for delivery in self.in_flight.values():
            if delivery.origin is not None and not delivery.is_released:
                delivery.is_evicted = True
                self._drop_content(delivery)

    def evicted(self) -> list[Delivery]:
        """Return the messages in flight whose content must be read again."""
        return [each for each in self.in_flight.values() if each.is_evicted]

    def restore(self, delivery: Delivery, message: Message | None) -> None:
        """Set the content of a message again; None: its topic has it no longer."""
        if not delivery.is_evicted or (
            self.in_flight.get(delivery.packet_id) is not delivery
        ):
            # Another connection of the client was faster.
            return
        if message is None:
            self.discard(delivery)
            return
        self.in_flight_bytes += message.byte_count - delivery.message.byte_count
        delivery.message, delivery.is_evicted = message, False

    def positions(self) -> dict[Origin, int]:
        """Return from where each feed must be read after a crash of the broker."""
        found = dict(self.behind)
        for delivery in (*self.in_flight.values(), *self.queue):
            origin = delivery.origin
            if origin is not None and not delivery.is_released:
                offset = delivery.message.offset
                found[origin] = min(offset, found.get(origin, offset))
        return found

    def _may_send(self, message: Message) -> bool:
        """Return whether one more message may be in flight."""
        count, limits = len(self.in_flight), self.limits
        return not count or (
            count < min(self.send_max, limits.in_flight_max)
            and self.in_flight_bytes + message.byte_count <= limits.queue_bytes_max
        )

    def _forget(self, delivery: Delivery) -> None:
        del self.in_flight[delivery.packet_id]
        self.in_flight_bytes -= delivery.message.byte_count

    def _drop_content(self, delivery: Delivery) -> None:
        before = delivery.message
        delivery.message = before.without_content()
        self.in_flight_bytes += delivery.message.byte_count - before.byte_count

    def _append(self, delivery: Delivery) -> None:
        self.queue.append(delivery)
        self.queue_bytes += delivery.message.byte_count

    def _new_id(self) -> int:
        # The window is smaller than the number of identifiers.
        while True:
            self._last_id = self._last_id % PACKET_ID_MAX + 1
            if self._last_id not in self.in_flight:
                return self._last_id

"""
The part that all subscriptions have in common: consumers around a dispatch machine.

Servers call methods of a subscription, which do not wait.  The two kinds of
subscriptions deliver messages differently: see ``reliable_subscription`` and
``direct_subscription``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields
from functools import partial
from itertools import count, islice
from secrets import randbits
from typing import Protocol

from pydanube.model.descriptions import (
    RANGES_SHOWN_MAX,
    SubscriptionCounts,
    SubscriptionDescription,
)
from pydanube.model.errors import BrokerError, ConsumerReplaced
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import SubscriptionName
from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import Range
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.delivery.counts import Counts
from pydanube_broker.dispatch.effects import (
    BecomeActive,
    BecomeStandby,
    Deliver,
    Drop,
    Effect,
    Park,
    SaveCursor,
)
from pydanube_broker.dispatch.machine import SubscriptionMachine


class ConsumerPort(Protocol):
    """
    The connection to a consumer, implemented by a server.

    The methods do not wait: they write to the transport's buffer, which the consumer's
    credit bounds.
    """

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        """Send the messages of *frame*."""

    def set_state(self, *, is_active: bool, ack_timeout_s: float | None) -> None:
        """
        Tell the consumer whether it is active or a standby, and the ack timeout.

        Messages that were delivered before have at most this timeout from now on;
        None: there is none.
        """

    def close(self, reason: BrokerError) -> None:
        """Tell the consumer that the subscription has detached it."""


@dataclass(slots=True, eq=False)
class Consumer:
    """A consumer of a subscription; compared by identity."""

    key: int
    """Its number in the dispatch machine."""
    name: str
    port: ConsumerPort
    id: int = field(default_factory=partial(randbits, 63))
    """Different for all consumers, also of the same name; nobody can guess it."""


class Subscription:
    """
    Consumers that share one cursor in one topic.

    Subclasses deliver the messages.
    """

    def __init__(
        self,
        name: SubscriptionName,
        type_: SubscriptionType,
        machine: SubscriptionMachine,
        clock: Callable[[], float],
        counts: Counts,
        *,
        check_new_consumer: Callable[[Subscription], None],
        on_send: Callable[[BatchFrame, int], None] | None = None,
    ) -> None:
        """*on_send* is called with each sent frame, and the number of the attempt."""
        self.name = name
        self.type = type_
        self.counts = counts
        self._machine = machine
        self._clock = clock
        self._check_new_consumer = check_new_consumer
        self._consumers: dict[int, Consumer] = {}
        self._consumer_keys: dict[str, int] = {}
        self._keys = count(1)
        self._on_send = on_send
        self._on_freed: Callable[[Subscription], None] | None = None

    # Events.

    def attach(
        self,
        name: str,
        port: ConsumerPort,
        *,
        key_filters: Sequence[str] = (),
        priority: int = 0,
        on_freed: Callable[[Subscription], None] | None = None,
    ) -> Consumer:
        """
        Attach a consumer.

        It replaces an attached consumer of the same name: it gets the messages that
        are in flight with that one, and keeps its filters and priority.  *on_freed*
        is called from now on whenever ``take_freed`` has consumers.

        Raises:
            ConsumerBusy: The subscription is exclusive and has another consumer.
            QuotaExceeded: The subscription or its topic has its maximum number of
                consumers.
        """
        self._on_freed = on_freed or self._on_freed
        key = self._consumer_keys.get(name)
        if key is not None:
            return self._replace(self._consumers[key], port)
        self._check_new_consumer(self)
        consumer = Consumer(next(self._keys), name, port)
        self._consumers[consumer.key] = consumer
        self._consumer_keys[name] = consumer.key
        try:
            effects = self._machine.on_consumer_joined(
                consumer.key,
                self._clock(),
                priority=priority,
                key_filters=key_filters,
                name=name,
            )
        except BrokerError:
            del self._consumers[consumer.key], self._consumer_keys[name]
            raise
        self.counts.add(consumers=1)
        self._carry_out(effects)
        return consumer

    def detach(self, consumer: Consumer) -> None:
        """Detach a consumer; messages in flight with it are delivered again."""
        if self._consumers.get(consumer.key) is not consumer:
            return
        del self._consumers[consumer.key], self._consumer_keys[consumer.name]
        self.counts.add(consumers=-1)
        self._carry_out(self._machine.on_consumer_left(consumer.key, self._clock()))

    def credit(self, consumer: Consumer, messages: int, byte_count: int) -> None:
        """Add to the credit of a consumer."""
        if self._consumers.get(consumer.key) is consumer:
            self._carry_out(
                self._machine.on_credit(
                    consumer.key, messages, byte_count, self._clock()
                )
            )

    def ack(self, ranges: Sequence[Range], through: int) -> None:
        """Acknowledge *ranges*, and all messages below *through*."""
        now = self._clock()
        if ranges:
            self._carry_out(self._machine.on_ack(ranges, now, self.end_offset))
        if through:
            self._carry_out(self._machine.on_ack([(0, through)], now))

    def ack_bits(self, base: int, bits: int) -> None:
        """Acknowledge *base* + i for each set bit i of *bits*."""
        now, end = self._clock(), self.end_offset
        self._carry_out(self._machine.on_ack_bits(base, bits, now, end))

    def nack(
        self, ranges: Sequence[Range], delay_s: float = 0.0, reason: str = ""
    ) -> None:
        """
        Refuse messages that could not be processed, for *reason*.

        They are delivered again after *delay_s* at the earliest, unless they have
        failed too often.
        """
        before = self._machine.in_flight.count
        effects = self._machine.on_nack(
            ranges,
            self._clock(),
            # Clients may send anything, including NaN.
            delay_s=delay_s if delay_s > 0 else 0.0,
            reason=reason,
        )
        self.counts.add(nacked=self._count_returned(before, effects))
        self._carry_out(effects)

    def extend(
        self,
        consumer: Consumer,
        ranges: Sequence[Range],
        ack_timeout_s: float | None = None,
    ) -> None:
        """
        Give *consumer* more time to acknowledge messages, as far as it has them.

        It has *ack_timeout_s* from now; None: the ack timeout of a delivery.
        """
        if self._consumers.get(consumer.key) is consumer:
            self._carry_out(
                self._machine.on_extend(
                    consumer.key, ranges, self._clock(), ack_timeout_s=ack_timeout_s
                )
            )

    def release_messages(self, consumer: Consumer, ranges: Sequence[Range]) -> None:
        """Deliver messages again that *consumer* has and has not processed."""
        if self._consumers.get(consumer.key) is consumer:
            self._carry_out(
                self._machine.on_release(consumer.key, ranges, self._clock())
            )

    def set_ack_timeout(self, ack_timeout_s: float) -> None:
        """
        Set the time within which messages must be acknowledged after delivery.

        It replaces the failure policy's.  Messages in flight have at most this time
        from now on.
        """
        before = self.ack_timeout_s
        self._carry_out(self._machine.set_ack_timeout(ack_timeout_s, self._clock()))
        self._tell_ack_timeout(before)

    def on_policy_changed(self) -> None:
        """React to a changed policy of the topic."""

    def on_trimmed(self) -> None:
        """Acknowledge the messages that were trimmed from the topic."""

    def set_rate(self, messages_per_s: float | None) -> None:
        """Limit the delivery rate, if messages can wait; None removes the limit."""

    def cancel(self) -> None:
        """End the tasks of the subscription."""

    def close(self, reason: BrokerError) -> None:
        """Detach all consumers, and tell them the reason."""
        for consumer in list(self._consumers.values()):
            self.detach(consumer)
            consumer.port.close(reason)

    def wake_up(self) -> None:
        """Look at the clock; a subscription of a non-reliable topic does not wait."""

    # State.

    @property
    def generation(self) -> int:
        """Another number whenever the subscription was moved or created again."""
        return self._machine.cursor.generation

    @property
    def ack_timeout_s(self) -> float | None:
        """The ack timeout of new deliveries; None: there is none."""
        return self._machine.ack_timeout_s

    @property
    def end_offset(self) -> int | None:
        """The end of the topic if messages may be acknowledged before they are read."""
        return None

    @property
    def consumer_count(self) -> int:
        """The number of attached consumers."""
        return len(self._consumers)

    @property
    def cursor_offset(self) -> int:
        """The lowest offset that is not acknowledged."""
        return self._machine.cursor.offset

    @property
    def note(self) -> str:
        """The text that an external reader reported with the offset of the cursor."""
        return self._machine.cursor.note

    @note.setter
    def note(self, text: str) -> None:
        self._machine.cursor.note = text

    def take_freed(self) -> set[int]:
        """
        Return the keys of consumers that had more messages in flight before.

        Messages were acknowledged or returned since the previous call.  The consumers
        may have received other messages meanwhile.
        """
        freed, self._machine.freed = self._machine.freed, set()
        return freed

    def flow_of(self, consumer: Consumer) -> tuple[int, int, int]:
        """
        Return the number of messages in flight with a consumer, and its credit in
        messages and bytes.
        """
        if self._consumers.get(consumer.key) is not consumer:
            return 0, 0, 0
        credit = self._machine.consumers[consumer.key]
        return credit.unacked, credit.messages, credit.byte_count

    @property
    def is_blocked(self) -> bool:
        """Whether a message that failed too often blocks those behind it."""
        return self._machine.deferred.is_blocked(self._machine.next_offset)

    @property
    def is_stopped(self) -> bool:
        """Whether a segment that cannot be read has stopped the subscription."""
        return False

    def backlog(self, end_offset: int) -> int:
        """Return the number of unacknowledged messages below *end_offset*."""
        return self._machine.cursor.backlog(end_offset)

    def lag_s(self, now_us: int) -> float:
        """Return the approximate age of the oldest unacknowledged message, or 0."""
        return 0.0

    def describe(self, end_offset: int) -> SubscriptionDescription:
        """Describe the subscription; *end_offset* is the topic's."""
        machine, counts = self._machine, self.counts
        return SubscriptionDescription(
            subscription=self.name,
            type=self.type,
            cursor=machine.cursor.offset,
            note=machine.cursor.note,
            done=tuple(islice(machine.cursor.done, RANGES_SHOWN_MAX)),
            backlog=self.backlog(end_offset),
            in_flight=machine.in_flight.count + machine.deferred.held.count,
            consumers=tuple(self._consumers[key].name for key in machine.consumers),
            counts=SubscriptionCounts(
                **{
                    each.name: getattr(counts, each.name)
                    for each in fields(SubscriptionCounts)
                }
            ),
        )

    # Effects.

    def save_cursor_now(self, done: Callable[[BrokerError | None], None]) -> None:
        """Write the cursor at once, and call *done* when it is on disk."""
        raise NotImplementedError

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        """Carry out the effects of the machine, deliveries perhaps later."""
        for effect in effects:
            match effect:
                case Deliver():
                    self._deliver(effect)
                case SaveCursor():
                    self._save_cursor()
                case BecomeActive(consumer) | BecomeStandby(consumer):
                    self._tell_state(consumer)
                case Park():
                    self._park(effect)
                case Drop(base, end):
                    if effect.is_expired:
                        self.counts.add(expired=end - base)
                    else:
                        self.counts.add(given_up=end - base)
        if self._on_freed is not None and self._machine.freed:
            self._on_freed(self)

    def _tell_ack_timeout(self, before: float | None) -> None:
        """Tell the consumers the ack timeout, if it is not what it was *before*."""
        if self.ack_timeout_s != before:
            for key in self._consumers:
                self._tell_state(key)

    def _tell_state(self, key: int) -> None:
        self._consumers[key].port.set_state(
            is_active=self._machine.is_active(key), ack_timeout_s=self.ack_timeout_s
        )

    def _deliver(self, effect: Deliver) -> None:
        """Deliver messages, or queue the delivery."""
        raise NotImplementedError

    def _park(self, effect: Park) -> None:
        """Copy messages to the dead-letter topic."""
        raise NotImplementedError

    def _save_cursor(self) -> None:
        """Write the cursor soon, if there is one to save."""

    def _forget_deliveries(self, key: int | None = None) -> None:
        """Drop queued deliveries (to the consumer *key*), if deliveries are queued."""

    def _send(self, consumer: Consumer, frame: BatchFrame, effect: Deliver) -> None:
        """Send *frame*, which is the delivery *effect* or a part of it."""
        attempt = effect.attempt
        self.counts.deliver(
            frame.count,
            frame.byte_count,
            frame.header.first_publish_time,
            is_again=attempt > 1,
        )
        if self._on_send is not None:
            self._on_send(frame, attempt)
        consumer.port.deliver(frame, attempt)

    def _correct_credit(
        self, consumer: Consumer, effect: Deliver, byte_count: int, missing: int = 0
    ) -> None:
        """
        Return credit for the difference between *effect* and what was sent.

        *byte_count* bytes before compression were sent; *missing* messages of the
        delivery do not exist any more.  The consumer returns credit only for what it
        received.
        """
        # The pieces of a batch are larger than the machine's estimate.
        if missing or byte_count != effect.byte_count:
            self.credit(consumer, missing, effect.byte_count - byte_count)

    def _count_returned(self, before: int, effects: Iterable[Effect]) -> int:
        """Return how many of the *before* messages in flight came back."""
        delivered = sum(effect.count for effect in effects if type(effect) is Deliver)
        return before + delivered - self._machine.in_flight.count

    def _replace(self, same: Consumer, port: ConsumerPort) -> Consumer:
        old_port, consumer = same.port, Consumer(same.key, same.name, port)
        self._consumers[same.key] = consumer
        self._forget_deliveries(same.key)
        effects = self._machine.on_consumer_replaced(same.key, self._clock())
        old_port.close(
            ConsumerReplaced(f"another consumer named {same.name} was attached")
        )
        self._carry_out(effects)
        return consumer


def join(deliveries: list[Deliver]) -> Deliver:
    """Return consecutive deliveries to one consumer as one."""
    ranges: list[Range] = []
    for each in deliveries:
        ranges += each.ranges()
    first = deliveries[0]
    return Deliver(
        first.consumer,
        first.base,
        deliveries[-1].end,
        first.attempt,
        sum(each.byte_count for each in deliveries),
        joined=tuple(ranges),
        decided_at=first.decided_at,
    )

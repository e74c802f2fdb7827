"""
The shell around a dispatch machine: feeds it facts, carries out its effects.

Facts come synchronously, from servers.  How messages come to consumers is what the
two kinds of subscription differ in: see ``reliable`` and ``direct``.
"""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING

from pydanube.broker.consumers import Consumer, ConsumerPort
from pydanube.dispatch.effects import (
    BecomeActive,
    BecomeStandby,
    Deliver,
    Drop,
    Effect,
    Park,
    SaveCursor,
)
from pydanube.model.descriptions import (
    RANGES_SHOWN_MAX,
    SubscriptionCounts,
    SubscriptionDescription,
)
from pydanube.model.errors import BrokerError, ConsumerReplaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pydanube.broker.counts import Counts
    from pydanube.dispatch.machine import SubscriptionMachine
    from pydanube.model.names import SubscriptionName
    from pydanube.model.policy import SubscriptionType
    from pydanube.model.ranges import Range
    from pydanube.wire.batches import BatchFrame


class Subscription:
    """
    Consumers that share one position in one topic.

    This part knows the consumers; how messages come to them is the subclasses'.
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
    ) -> None:
        self.name = name
        self.type = type_
        self.counts = counts
        self._machine = machine
        self._clock = clock
        self._check_new_consumer = check_new_consumer
        self._consumers: dict[int, Consumer] = {}
        self._consumer_keys: dict[str, int] = {}
        self._keys = count(1)

    # What happened.

    def attach(
        self,
        name: str,
        port: ConsumerPort,
        *,
        key_filters: Sequence[str] = (),
        priority: int = 0,
    ) -> Consumer:
        """
        Let a consumer in.

        A consumer of the same name loses its place to the newcomer, which also
        gets what was in flight with it, and keeps its filters and priority.

        Raises:
            ConsumerBusy: The subscription is exclusive and has another consumer.
            QuotaExceeded: It or the topic has as many as there may be.
        """
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
        self.counts.attach(1)
        self.carry_out(effects)
        return consumer

    def detach(self, consumer: Consumer) -> None:
        """The consumer is gone; what was in flight with it is delivered again."""
        if self._consumers.get(consumer.key) is not consumer:
            return
        del self._consumers[consumer.key], self._consumer_keys[consumer.name]
        self.counts.attach(-1)
        self.carry_out(self._machine.on_consumer_left(consumer.key, self._clock()))

    def credit(self, consumer: Consumer, messages: int, byte_count: int) -> None:
        """The consumer takes so many messages and bytes more."""
        if self._consumers.get(consumer.key) is consumer:
            self.carry_out(
                self._machine.on_credit(
                    consumer.key, messages, byte_count, self._clock()
                )
            )

    def ack(self, ranges: Sequence[Range], through: int) -> None:
        """These messages, and all below *through*, are done."""
        now = self._clock()
        if ranges:
            self.carry_out(self._machine.on_ack(ranges, now, self.end_offset))
        if through:
            self.carry_out(self._machine.on_ack_through(through, now))

    def nack(
        self, ranges: Sequence[Range], delay_s: float = 0.0, reason: str = ""
    ) -> None:
        """
        These messages were not processed, for *reason*.

        They are delivered again, not before *delay_s*, unless they have failed too
        often.
        """
        before = self._machine.in_flight_count
        effects = self._machine.on_nack(
            ranges,
            self._clock(),
            # A client may say anything, also what is no number.
            delay_s=delay_s if delay_s > 0 else 0.0,
            reason=reason,
        )
        self.counts.fail(nacked=self._came_back(before, effects))
        self.carry_out(effects)

    def set_ack_timeout(self, ack_timeout_s: float) -> None:
        """
        What is delivered from now on must be done within this time.

        It holds instead of the failure policy's.
        """
        self._machine.set_ack_timeout(ack_timeout_s)

    def on_policy_changed(self) -> None:
        """The topic's policy is another one now."""

    def set_rate(self, messages_per_s: float | None) -> None:
        """Deliver no more than this from now on; None: as fast as it goes."""
        raise NotImplementedError

    def cancel(self) -> None:
        """End what runs for the subscription."""

    def close(self, reason: BrokerError) -> None:
        """Let all consumers go."""
        for consumer in list(self._consumers.values()):
            self.detach(consumer)
            consumer.port.close(reason)

    # What is known.

    @property
    def end_offset(self) -> int | None:
        """Where the topic ends, if acks may run ahead of what was read of it."""
        return None

    @property
    def has_consumers(self) -> bool:
        """Whether anybody is attached."""
        return bool(self._consumers)

    @property
    def consumer_count(self) -> int:
        """How many are attached."""
        return len(self._consumers)

    @property
    def cursor_offset(self) -> int:
        """The lowest offset that is not done."""
        return self._machine.cursor.offset

    def flow_of(self, consumer: Consumer) -> tuple[int, int, int]:
        """
        How many messages the consumer has and has not acknowledged; and its credit,
        how many messages and bytes it may still be given.
        """
        if self._consumers.get(consumer.key) is not consumer:
            return 0, 0, 0
        in_flight = self._machine.in_flight_of(consumer.key)
        return in_flight, *self._machine.credit_of(consumer.key)

    @property
    def is_blocked(self) -> bool:
        """Whether something failed too often and blocks what follows."""
        return bool(self._machine.blocked)

    @property
    def is_stopped(self) -> bool:
        """Whether a segment that cannot be read keeps it from going on."""
        return False

    def backlog(self, end_offset: int) -> int:
        """How many messages of the topic, which ends at *end_offset*, are not done."""
        return self._machine.backlog(end_offset)

    def describe(self, end_offset: int) -> SubscriptionDescription:
        """The facts at this moment; *end_offset* is the topic's."""
        machine, counts = self._machine, self.counts
        return SubscriptionDescription(
            subscription=self.name,
            type=self.type,
            cursor=machine.cursor.offset,
            done=tuple(islice(machine.cursor.done, RANGES_SHOWN_MAX)),
            backlog=self.backlog(end_offset),
            in_flight=machine.in_flight_count,
            consumers=tuple(self._consumers[key].name for key in machine.consumers),
            counts=SubscriptionCounts(
                delivered=counts.delivered,
                redelivered=counts.redelivered,
                nacked=counts.nacked,
                timed_out=counts.timed_out,
                expired=counts.expired,
                dead_lettered=counts.dead_lettered,
                given_up=counts.given_up,
                skipped=counts.skipped,
            ),
        )

    # What follows.

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Do what the machine asks for, now or, for deliveries, in their turn."""
        for effect in effects:
            match effect:
                case Deliver():
                    self.deliver_later(effect)
                case SaveCursor():
                    self.save_cursor()
                case BecomeActive(consumer):
                    self._consumers[consumer].port.set_active(is_active=True)
                case BecomeStandby(consumer):
                    self._consumers[consumer].port.set_active(is_active=False)
                case Park():
                    self.park(effect)
                case Drop(base, end):
                    if effect.is_expired:
                        self.counts.end(expired=end - base)
                    else:
                        self.counts.end(given_up=end - base)

    def deliver_later(self, effect: Deliver) -> None:
        """A delivery is due."""
        raise NotImplementedError

    def park(self, effect: Park) -> None:
        """Messages are to go to the dead-letter topic."""
        raise NotImplementedError

    def save_cursor(self) -> None:
        """The cursor has moved."""
        raise NotImplementedError

    def save_cursor_now(self, done: Callable[[BrokerError | None], None]) -> None:
        """Have the cursor written at once; *done* is called when it is on disk."""
        raise NotImplementedError

    def send(self, consumer: Consumer, frame: BatchFrame, effect: Deliver) -> None:
        """Hand *frame*, what *effect* asks for, to *consumer*'s server."""
        attempt = effect.attempt
        self.counts.deliver(frame.count, frame.byte_count, is_again=attempt > 1)
        consumer.port.deliver(frame, attempt)

    def settle(
        self, consumer: Consumer, effect: Deliver, byte_count: int, missing: int = 0
    ) -> None:
        """
        *effect* took *byte_count* bytes before compression.

        The consumer gives back just these.

        And none of it were the *missing* messages that do not exist any more.
        """
        # A batch that was cut is longer in pieces than the machine could know.
        if missing or byte_count != effect.byte_count:
            self.credit(consumer, missing, effect.byte_count - byte_count)

    def _came_back(self, before: int, effects: Iterable[Effect]) -> int:
        """How many messages came back, of *before* in flight, before *effects*."""
        delivered = sum(
            _count_of(effect) for effect in effects if type(effect) is Deliver
        )
        return before + delivered - self._machine.in_flight_count

    def _replace(self, same: Consumer, port: ConsumerPort) -> Consumer:
        old_port, newcomer = same.port, Consumer(same.key, same.name, port)
        self._consumers[same.key] = newcomer
        self.forget_deliveries(same.key)
        effects = self._machine.on_consumer_replaced(same.key, self._clock())
        old_port.close(ConsumerReplaced(f"another consumer named {same.name} came"))
        self.carry_out(effects)
        return newcomer

    def forget_deliveries(self, key: int | None = None) -> None:
        """Deliveries that were due (to consumer *key*) are not wanted any more."""
        raise NotImplementedError


def _count_of(effect: Deliver) -> int:
    """How many messages a delivery has."""
    if effect.ranges is None:
        return effect.end - effect.base
    return sum(end - base for base, end in effect.ranges)

"""
The shell around a dispatch machine: feeds it facts, carries out its effects.

Facts come synchronously, from doors and from the log; what they lead to is
queued and carried out by one task, strictly in order.  The task lives as long
as the subscription has consumers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import count
from typing import TYPE_CHECKING

from pydanube.broker.consumers import Consumer, ConsumerPort
from pydanube.dispatch.effects import (
    BecomeActive,
    BecomeStandby,
    Deliver,
    Effect,
    SaveCursor,
)
from pydanube.model.descriptions import SubscriptionDescription
from pydanube.model.errors import (
    BrokerError,
    ConsumerReplaced,
    OffsetDropped,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pydanube.broker.counts import Counts
    from pydanube.broker.cursors import CursorSaver
    from pydanube.dispatch.machine import SubscriptionMachine
    from pydanube.model.names import SubscriptionName
    from pydanube.model.policy import SubscriptionType
    from pydanube.model.ranges import Range
    from pydanube.storage.topic_log import TopicLog
    from pydanube.wire.batches import BatchFrame

log = logging.getLogger(__name__)

READ_AHEAD_BYTES = 1024 * 1024
"""How much is taken from the log at once; what is delivered is bounded by credit."""


class Subscription:
    """
    Consumers that share one position in one topic.

    This part knows the consumers; how messages come to them is what the two
    subclasses differ in.
    """

    def __init__(
        self,
        name: SubscriptionName,
        type_: SubscriptionType,
        machine: SubscriptionMachine,
        clock: Callable[[], float],
        counts: Counts,
    ) -> None:
        self.name = name
        self.type = type_
        self.counts = counts
        self._machine = machine
        self._clock = clock
        self._consumers: dict[int, Consumer] = {}
        self._keys = count(1)

    # What happened.

    def attach(self, name: str, port: ConsumerPort) -> Consumer:
        """
        Let a consumer in.

        A consumer of the same name loses its place to the newcomer, which also
        gets what was in flight with it.

        Raises:
            ConsumerBusy: The subscription is exclusive and has another consumer.
        """
        same = next((c for c in self._consumers.values() if c.name == name), None)
        if same is not None:
            return self._replace(same, port)
        consumer = Consumer(next(self._keys), name, port)
        self._consumers[consumer.key] = consumer
        try:
            effects = self._machine.on_consumer_came(consumer.key, self._clock())
        except BrokerError:
            del self._consumers[consumer.key]
            raise
        self.carry_out(effects)
        return consumer

    def detach(self, consumer: Consumer) -> None:
        """The consumer is gone; what was in flight with it is delivered again."""
        if self._consumers.get(consumer.key) is not consumer:
            return
        del self._consumers[consumer.key]
        self.carry_out(self._machine.on_consumer_gone(consumer.key, self._clock()))

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

    def nack(self, ranges: Sequence[Range]) -> None:
        """These messages were not processed and are delivered again."""
        self.carry_out(self._machine.on_nack(ranges, self._clock()))

    def set_ack_timeout(self, ack_timeout_s: float) -> None:
        """What is delivered from now on must be done within this time."""
        self._machine.set_ack_timeout(ack_timeout_s)

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

    def describe(self, end_offset: int) -> SubscriptionDescription:
        """The facts at this moment; *end_offset* is the topic's."""
        machine = self._machine
        return SubscriptionDescription(
            subscription=self.name,
            type=self.type,
            cursor=machine.cursor.offset,
            done=tuple(machine.cursor.done),
            backlog=machine.backlog(end_offset),
            in_flight=machine.in_flight_count,
            consumers=tuple(self._consumers[key].name for key in machine.consumers),
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

    def deliver_later(self, effect: Deliver) -> None:
        """A delivery is due."""
        raise NotImplementedError

    def save_cursor(self) -> None:
        """The cursor has moved."""
        raise NotImplementedError

    def save_cursor_now(self, done: Callable[[BrokerError | None], None]) -> None:
        """Have the cursor written at once; *done* is called when it is on disk."""
        raise NotImplementedError

    def send(self, consumer: Consumer, frame: BatchFrame, effect: Deliver) -> None:
        """Hand *frame*, what *effect* asks for, to *consumer*'s door."""
        attempt = effect.attempt
        self.counts.deliver(frame.count, frame.byte_count, is_again=attempt > 1)
        consumer.port.deliver(frame, attempt)

    def settle(self, consumer: Consumer, effect: Deliver, byte_count: int) -> None:
        """*effect* took *byte_count* bytes; the consumer gives back just these."""
        # A batch that was cut is longer in pieces than the machine could know.
        if byte_count != effect.byte_count:
            self.credit(consumer, 0, effect.byte_count - byte_count)

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


class ReliableSubscription(Subscription):
    """A subscription of a stored topic: at least once, with a saved cursor."""

    def __init__(
        self,
        name: SubscriptionName,
        type_: SubscriptionType,
        machine: SubscriptionMachine,
        clock: Callable[[], float],
        counts: Counts,
        *,
        topic_log: TopicLog,
        cursors: CursorSaver,
        tasks: asyncio.TaskGroup,
    ) -> None:
        super().__init__(name, type_, machine, clock, counts)
        self._log = topic_log
        self._cursors = cursors
        self._tasks = tasks
        self._due: deque[Deliver] = deque()
        self._wake = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        # The frame that the machine was told of last: what is delivered next
        # usually comes from it, without another look into the log.
        self._in_hand: BatchFrame | None = None
        self._was_overtaken = False
        self._holds = 0

    def attach(self, name: str, port: ConsumerPort) -> Consumer:
        """Let a consumer in; see the base class."""
        if self._was_overtaken:
            # Its consumers were told that messages are gone; who comes back
            # goes on with the first one that still exists.
            self._was_overtaken = False
            self.seek(self._log.base_offset)
        consumer = super().attach(name, port)
        if self._running is None:
            self._running = self._tasks.create_task(
                self._run(), name=f"subscription {self._log.name} {self.name}"
            )
        self._wake.set()
        return consumer

    @property
    def end_offset(self) -> int | None:
        """See the base class."""
        return self._log.end_offset

    def hold(self) -> None:
        """Deliver nothing until ``release``."""
        self._holds += 1

    def release(self) -> None:
        """Undo one ``hold``."""
        self._holds -= 1
        self._wake.set()

    def seek(self, offset: int) -> None:
        """Go on at *offset*, whatever was done before."""
        self.forget_deliveries()
        self.carry_out(self._machine.on_seek(offset, self._clock()))

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Do what the machine asks for; credit may mean that there is more to read."""
        super().carry_out(effects)
        self._wake.set()

    def deliver_later(self, effect: Deliver) -> None:
        """Queue a delivery for the task."""
        self._due.append(effect)

    def save_cursor(self) -> None:
        """Have the cursor written soon."""
        self._cursors.mark(self._log.topic_id, self.name, self._machine.cursor)

    def save_cursor_now(self, done: Callable[[BrokerError | None], None]) -> None:
        """Have the cursor written at once; *done* is called when it is on disk."""
        self._cursors.save_now(
            self._log.topic_id, self.name, self._machine.cursor, done
        )

    def forget_deliveries(self, key: int | None = None) -> None:
        """See the base class."""
        self._due = deque(
            effect for effect in self._due if key is not None and effect.consumer != key
        )
        if key is None:
            self._in_hand = None

    def cancel(self) -> None:
        """End the task; the topic goes away."""
        if self._running is not None:
            self._running.cancel()

    # The task.

    async def _run(self) -> None:
        # One sick subscription must not take the broker down: this is the one
        # place that decides so.
        unwatch = self._log.watch(self._wake.set)
        try:
            while self.has_consumers:
                await self._step()
        except OffsetDropped as error:
            log.warning("subscription %s of %s: %s", self.name, self._log.name, error)
            self._was_overtaken = True
            self.close(error)
        except Exception as error:
            log.exception("subscription %s of %s failed", self.name, self._log.name)
            self.close(Unavailable(f"the subscription failed: {error}"))
        finally:
            unwatch()
            self._running = None
            self._due.clear()
            self._in_hand = None

    async def _step(self) -> None:
        self._wake.clear()
        deadline = self._machine.next_deadline()
        if deadline is not None and deadline <= self._clock():
            self.carry_out(self._machine.on_time(self._clock()))
        if not self._holds:
            await self._deliver_due()
            await self._read_ahead()
        if self._wake.is_set():
            # Let the doors run: what we sent must get out, acks must get in.
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout_at(self._machine.next_deadline()):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _read_ahead(self) -> None:
        machine = self._machine
        while machine.wanted() > 0 and not self._holds:
            offset = machine.next_offset
            frames = self._log.read_tail(offset, bytes_max=READ_AHEAD_BYTES)
            if frames is None:
                frames = await self._log.read(offset, bytes_max=READ_AHEAD_BYTES)
            if not frames:
                return
            for frame in frames:
                # A seek may have come while we were reading.
                if machine.wanted() <= 0 or not _holds(frame, machine.next_offset):
                    break
                self._in_hand = frame
                effects = machine.on_available(
                    machine.next_offset, frame.end, frame.byte_count, self._clock()
                )
                Subscription.carry_out(self, effects)
                await self._deliver_due()

    async def _deliver_due(self) -> None:
        while self._due and not self._holds:
            effect = self._due[0]
            frames = await self._frames(effect.base, effect.end)
            if not self._due or self._due[0] is not effect or self._holds:
                # While history was read, a seek came.
                continue
            self._due.popleft()
            consumer = self._consumers.get(effect.consumer)
            if consumer is None:
                # It is gone, and the machine has taken the messages back.
                continue
            for frame in frames:
                self.send(consumer, frame, effect)
            byte_count = sum(frame.byte_count for frame in frames)
            self.settle(consumer, effect, byte_count)

    async def _frames(self, base: int, end: int) -> list[BatchFrame]:
        """The messages ``base … end``, cut to it."""
        parts: list[BatchFrame] = []
        while base < end:
            frame = self._in_hand
            if frame is None or not _holds(frame, base):
                frames = self._log.read_tail(base, bytes_max=1)
                if frames is None:
                    frames = await self._log.read(base, bytes_max=1)
                frame = frames[0]
            part_end = min(end, frame.end)
            if (base, part_end) == (frame.base, frame.end):
                parts.append(frame)
            else:
                parts.append(frame.slice(base, part_end))
            base = part_end
        return parts


def _holds(frame: BatchFrame, offset: int) -> bool:
    return frame.base <= offset < frame.end

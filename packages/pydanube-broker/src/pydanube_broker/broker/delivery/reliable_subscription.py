"""
A subscription of a reliable topic: at-least-once delivery, with a saved cursor.

Servers and the log call methods of the subscription, which do not wait.  One task
carries out the resulting deliveries in order.  The task runs while the subscription
has consumers or parked messages.

The offsets of messages that compaction removed are acknowledged when the subscription
reads the log there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from pydanube.model.descriptions import RANGES_SHOWN_MAX, SubscriptionDescription
from pydanube.model.errors import (
    BrokerError,
    CorruptSegment,
    MessageNotHeld,
    ObjectsUnavailable,
    OffsetDropped,
    Unavailable,
)
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import SubscriptionSettings, SubscriptionType
from pydanube.model.ranges import Range, RangeSet
from pydanube.security.principals import Principal
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.delivery.corruption import CorruptionHandler
from pydanube_broker.broker.delivery.counts import Counts
from pydanube_broker.broker.delivery.cursors import CursorSaver
from pydanube_broker.broker.delivery.internal_batches import (
    DEAD_LETTER_PRODUCERS,
    Source,
)
from pydanube_broker.broker.delivery.subscription import (
    Consumer,
    ConsumerPort,
    Subscription,
    join,
)
from pydanube_broker.broker.delivery.subscription_reader import (
    HISTORY_BYTES,
    READ_AHEAD_BYTES,
    SubscriptionReader,
    take_below,
)
from pydanube_broker.broker.pure.dispatch_columns import (
    TIMES,
    US_PER_S,
    delivery_windows,
    ordering_keys,
)
from pydanube_broker.broker.pure.frame_joins import JOINED_MESSAGES_MAX, join_frames
from pydanube_broker.dispatch.effects import Deliver, Effect, Park
from pydanube_broker.dispatch.key_shared.in_flight import InFlightSelections
from pydanube_broker.dispatch.machine import (
    DEFAULT_POLICY,
    NO_LIMITS,
    SubscriptionMachine,
)
from pydanube_broker.dispatch.message_spans import DeliveryWindow
from pydanube_broker.storage.segments.topic_log import TopicLog

log = logging.getLogger(__name__)


class DeadLetterQueue(Protocol):
    """Copies parked messages of subscriptions to their dead-letter topics."""

    def add(self, subscription: ReliableSubscription, park: Park) -> None:
        """Copy messages, and call ``on_parked`` or ``on_park_failed``."""

    def forget(self, subscription: ReliableSubscription) -> None:
        """Stop copying messages of a subscription."""


WAIT_S_MAX = 0.05
"""A delivery that waited longer to be sent has the whole ack timeout from then on."""
CREDIT_WAIT_S = 0.02
"""How long a batch of a segment waits for credit, before it is divided."""
SHARES_WAIT_S = 0.1
"""How long messages that are divided by key wait for credit of all consumers."""
SHARED_MESSAGES_MIN = 4_096
"""Fewer of them are divided at once."""
_ORDERED = {SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER}
"""The types whose messages are first delivered in the order of the topic."""


class ReliableSubscription(Subscription):
    """A subscription of a reliable topic."""

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
        topic: TopicName,
        topic_log: TopicLog,
        settings: SubscriptionSettings,
        author: Principal | None,
        cursors: CursorSaver,
        dead_letters: DeadLetterQueue,
        tasks: asyncio.TaskGroup,
        wall_clock_us: Callable[[], int],
    ) -> None:
        super().__init__(
            name,
            type_,
            machine,
            clock,
            counts,
            check_new_consumer=check_new_consumer,
            on_send=on_send,
        )
        self.topic = topic
        self.log_name = f"subscription {name} of {topic}"
        self.settings = settings
        """Its settings; only ``apply`` changes them."""
        self.author = author
        """The principal that has named the dead-letter topic."""
        self.dead_letter_error: BrokerError | None = None
        """Why parked messages could not be copied to the dead-letter topic."""
        self._log = topic_log
        self._cursors = cursors
        self._dead_letters = dead_letters
        self._tasks = tasks
        self._wall_clock_us = wall_clock_us
        self._deliveries: deque[Deliver] = deque()
        # The machine's count when the first was decided, or before.
        self._returned_before = 0
        # Many subscriptions may be idle, so only active ones have an event.
        self._wake: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._reader = SubscriptionReader(topic_log)
        self._corruption = CorruptionHandler(self.log_name, topic_log, counts)
        # Messages that wait for credit: their number, since when, and whether several
        # consumers divide them by key.
        self._awaiting_credit: tuple[int, float, bool] | None = None
        self._was_overtaken = False
        self._is_cancelled = False
        self._holds = 0
        # The state that was logged last.
        self._was_blocked = False

    def attach(
        self,
        name: str,
        port: ConsumerPort,
        *,
        key_filters: Sequence[str] = (),
        priority: int = 0,
        on_freed: Callable[[Subscription], None] | None = None,
    ) -> Consumer:
        if self._was_overtaken or self.cursor_offset < self._log.start_offset:
            # Consumers were closed because retention dropped messages, or the topic was
            # trimmed and a crash took the cursor back.  Now they continue at the first
            # message that exists.
            self._was_overtaken = False
            self._skip_dropped()
        consumer = super().attach(
            name, port, key_filters=key_filters, priority=priority, on_freed=on_freed
        )
        self._start()
        self.wake_up()
        return consumer

    def apply(self, settings: SubscriptionSettings, author: Principal | None) -> None:
        """Apply other settings, also to messages that have failed already."""
        self.settings, self.author = settings, author
        machine, now = self._machine, self._clock()
        ack_timeout_s = self.ack_timeout_s
        self._carry_out(
            machine.set_failure_policy(settings.failure_policy or DEFAULT_POLICY, now)
        )
        self._carry_out(machine.set_limits(settings.limits or NO_LIMITS, now))
        self._carry_out(machine.set_paused(settings.is_paused, now))
        self._tell_ack_timeout(ack_timeout_s)

    def on_policy_changed(self) -> None:
        self.wake_up()

    def on_trimmed(self) -> None:
        self._skip_dropped()

    def set_rate(self, messages_per_s: float | None) -> None:
        self._carry_out(self._machine.set_rate(messages_per_s, self._clock()))

    async def skip(self, count: int) -> None:
        """
        Acknowledge the next *count* messages that are not acknowledged.

        Raises:
            CorruptSegment: A segment must be read, and is damaged or missing.
        """
        cursor, topic_log = self._machine.cursor, self._log
        if topic_log.missing_from(cursor.offset):
            end = await self._reader.find_end(cursor, count)
        else:
            end = cursor.end_of_open(count, topic_log.end_offset)
        ranges = [(cursor.offset, end)]
        self._carry_out(self._machine.on_ack(ranges, self._clock(), end))

    def on_parked(self, base: int, end: int, *, is_expired: bool) -> None:
        """Acknowledge messages that are on disk in the dead-letter topic."""
        count = end - base
        self.counts.add(dead_lettered=count, expired=count if is_expired else 0)
        self._carry_out(self._machine.on_parked(base, end, self._clock()))
        if not self._machine.deferred.parked.count:
            self.dead_letter_error = None

    def on_park_failed(
        self, base: int, end: int, error: BrokerError, retry_at: float
    ) -> None:
        """Park messages again at *retry_at*, because they could not be copied."""
        self.dead_letter_error = error
        self._carry_out(
            self._machine.on_park_failed(base, end, self._clock(), retry_at)
        )
        # The task must run to try again.
        self._start()

    @property
    def end_offset(self) -> int | None:
        return self._log.end_offset

    @property
    def source(self) -> Source:
        """The subscription as the source of dead letters; positions are offsets."""
        topic_id, cursor = self._log.topic_id, self._machine.cursor
        return Source(
            producer=f"{DEAD_LETTER_PRODUCERS}{topic_id}/{self.name}",
            generation=cursor.generation,
            epoch=self._log.epoch,
            settled=self._cursors.saved_offset(topic_id, self.name, cursor),
        )

    @property
    def base_offset(self) -> int:
        """The first offset of the topic that can be read."""
        return self._log.base_offset

    @property
    def is_stopped(self) -> bool:
        return self._corruption.stopped_by(self.cursor_offset) is not None

    def backlog(self, end_offset: int) -> int:
        """See the base class; unread segments are counted by their message counts."""
        backlog = super().backlog(end_offset)
        if not backlog:
            return 0
        return max(0, backlog - self._log.missing_from(self._machine.next_offset))

    def lag_s(self, now_us: int) -> float:
        oldest = max(self.cursor_offset, self._log.base_offset)
        published_at = self._log.estimate_time(oldest)
        return 0.0 if published_at is None else max(0, now_us - published_at) / 1e6

    def describe(self, end_offset: int) -> SubscriptionDescription:
        machine, topic_log = self._machine, self._log
        description = super().describe(end_offset)
        base = max(description.cursor, topic_log.base_offset)
        byte_count = 0
        if description.backlog:
            byte_count = topic_log.estimate_bytes(base)
            byte_count = byte_count * description.backlog // max(1, end_offset - base)
        error = self.dead_letter_error if machine.deferred.parked.count else None
        stopped_by = self._corruption.stopped_by(self.cursor_offset)
        return replace(
            description,
            backlog_bytes=byte_count,
            oldest_publish_time=topic_log.estimate_time(base),
            delayed=machine.deferred.waiting.count,
            blocked=self._blocked_ranges()[:RANGES_SHOWN_MAX],
            parked=machine.deferred.parked.count,
            dead_letter_error=None if error is None else str(error),
            stopped_by=None if stopped_by is None else str(stopped_by),
            skipped=self._corruption.first_skipped(RANGES_SHOWN_MAX),
            is_paused=self.settings.is_paused,
            settings=self.settings,
        )

    def hold(self) -> None:
        """Deliver nothing until ``release``."""
        self._holds += 1

    def release(self) -> None:
        """Undo one ``hold``."""
        self._holds -= 1
        self.wake_up()

    def seek(self, offset: int) -> None:
        """Move the cursor to *offset*."""
        unsent = self._deliveries
        self._forget_deliveries()
        self._dead_letters.forget(self)
        self.dead_letter_error = None
        self._corruption.reset()
        cursor = self._machine.cursor
        cursor.generation = max(cursor.generation + 1, self._wall_clock_us())
        self._carry_out(self._machine.on_seek(offset, self._clock()))
        for effect in unsent:
            # It was not sent, so the consumer will not return this credit.
            consumer = self._consumers.get(effect.consumer)
            if consumer is not None:
                self.credit(consumer, effect.count, effect.byte_count)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        # More credit may allow the task to read more.
        super()._carry_out(effects)
        if self.is_blocked is not self._was_blocked:
            self._log_blocked()
        self.wake_up()

    def _log_blocked(self) -> None:
        self._was_blocked = self.is_blocked
        if self.is_blocked:
            offset = self._blocked_ranges()[0][0]
            log.warning(
                "%s is blocked by message %d, which failed too often; acknowledge or "
                "skip it, or change the failure policy",
                self.log_name,
                offset,
            )
        else:
            log.info("%s is no longer blocked", self.log_name)

    def _blocked_ranges(self) -> tuple[Range, ...]:
        machine = self._machine
        return machine.deferred.blocked_ranges(machine.next_offset)

    def _deliver(self, effect: Deliver) -> None:
        if not self._deliveries:
            self._returned_before = self._machine.returned_count
        effect.decided_at = self._clock()
        self._deliveries.append(effect)

    def _park(self, effect: Park) -> None:
        self._dead_letters.add(self, effect)

    def _save_cursor(self) -> None:
        self._cursors.mark(self._log.topic_id, self.name, self._machine.cursor)

    # Transactions.

    def check_acks(self, consumer_id: int, ranges: Sequence[Range]) -> None:
        """
        Check that a commit may acknowledge these messages for a consumer.

        The consumer need not have them any more: if they have timed out and were
        delivered again, the first commit wins.

        Raises:
            MessageNotHeld: The consumer has left, or a message is acknowledged, by
                another commit or in another way.
        """
        if all(each.id != consumer_id for each in self._consumers.values()):
            raise MessageNotHeld(
                f"the consumer of {self.log_name} has reconnected since it received "
                "messages that the transaction acknowledges; process them in another "
                "transaction when they are delivered again"
            )
        if not self._machine.can_hold(ranges):
            raise MessageNotHeld(
                f"messages of {self.log_name} that the transaction acknowledges are "
                "acknowledged already, perhaps by another transaction to which they "
                "were delivered again after their ack timeout, or have gone to the "
                "dead-letter topic; process the others in another transaction"
            )

    def check_progress(self, ranges: Sequence[Range]) -> None:
        """
        Check that a commit may acknowledge what a reader has read from the cursor on.

        Raises:
            MessageNotHeld: The cursor has moved since, and not only over messages that
                the topic has lost, for example because it was trimmed.
        """
        if not ranges:
            return
        begin = ranges[0][0]
        if not begin <= self.cursor_offset <= self._log.next_kept(begin):
            raise MessageNotHeld(
                f"the cursor of {self.log_name} is at {self.cursor_offset}, and the "
                f"transaction acknowledges from {begin} on: somebody else has "
                "made progress; read again from the cursor"
            )

    def hold_messages(self, ranges: Sequence[Range]) -> None:
        """Deliver messages to nobody while a commit is decided."""
        self._carry_out(self._machine.on_hold(ranges, self._clock()))

    def commit(self, ranges: Sequence[Range], note: str = "") -> None:
        """
        Acknowledge messages, because a commit with them was decided.

        Keep *note* with the cursor, if it is at the end of *ranges* then.
        """
        self._carry_out(self._machine.on_commit(ranges, self._clock()))
        if note and ranges and self.cursor_offset == ranges[-1][1]:
            self.note = note

    def refuse_commit(self, ranges: Sequence[Range]) -> None:
        """Deliver messages again that a commit held."""
        self._carry_out(self._machine.on_commit_refused(ranges, self._clock()))

    def save_cursor_now(self, done: Callable[[BrokerError | None], None]) -> None:
        """
        Write the cursor at once, and call *done* when it is on disk.

        All calls of one iteration of the event loop become one journal entry.  If the
        topic or the subscription is closed, *done* gets an error.
        """
        if self._is_cancelled:
            # Another broker may have read the cursor.
            closed = Unavailable(f"{self.log_name} is closed; acknowledge again")
            asyncio.get_running_loop().call_soon(done, closed)
            return
        self._cursors.save_now(
            self._log.topic_id, self.name, self._machine.cursor, done
        )

    def _forget_deliveries(self, key: int | None = None) -> None:
        if key is None:
            self._deliveries = deque()
            self._reader.keep(None)
        elif self._deliveries:
            self._deliveries = deque(
                each for each in self._deliveries if each.consumer != key
            )

    def cancel(self) -> None:
        """End the task, because the topic or the subscription is closed."""
        self._is_cancelled = True
        self._dead_letters.forget(self)
        if self._task is not None:
            self._task.cancel()

    async def read(self, ranges: Iterable[Range]) -> list[BatchFrame]:
        """
        Return the messages of *ranges*, which are sorted.

        Messages that compaction has removed meanwhile are left out and acknowledged;
        so are those that cannot be read, if the topic's policy is to skip them.

        Raises:
            OffsetDropped: Retention has dropped some of the messages.
            CorruptSegment: A segment cannot be read.
        """
        frames, missing = await self._reader.read(ranges, self._skip_corrupt)
        if missing:
            self._carry_out(self._machine.on_ack(missing, self._clock()))
        return frames

    def _skip_corrupt(self, error: CorruptSegment, left: deque[Range]) -> list[Range]:
        """Skip the first of the ranges *left*, or raise *error*."""
        ranges = take_below(self._corruption.skip_end(error), left)
        self._corruption.skip(error, ranges, self._machine.cursor)
        return ranges

    def _skip_dropped(self) -> None:
        """Acknowledge messages that were dropped or trimmed, and no others."""
        self._skip_gap(self._machine.cursor.offset)
        # Messages before another gap may still have to be delivered again.
        self._skip_gap(self._machine.next_offset)

    def _skip_gap(self, offset: int) -> None:
        kept = self._log.next_kept(offset)
        if kept > offset:
            gap = [(offset, int(kept))]
            end = self._log.end_offset
            self._carry_out(self._machine.on_ack(gap, self._clock(), end))

    # The task.

    def _start(self) -> None:
        if self._task is None and not self._is_cancelled:
            self._wake = asyncio.Event()
            self._task = self._tasks.create_task(
                self._run(self._wake), name=self.log_name
            )

    def wake_up(self) -> None:
        """Look at the clock, and do what is due."""
        if self._wake is not None:
            self._wake.set()

    @property
    def _has_work(self) -> bool:
        return self.consumer_count > 0 or self._machine.deferred.parked.count > 0

    async def _run(self, wake: asyncio.Event) -> None:
        # A failure of one subscription must not stop the broker.
        unwatch = self._log.watch(wake.set)
        try:
            while self._has_work:
                await self._step(wake)
        except CorruptSegment as error:
            self.close(error)
        except OffsetDropped as error:
            log.warning("%s: %s", self.log_name, error)
            self._was_overtaken = True
            self.close(error)
        except Exception as error:
            log.exception("%s failed", self.log_name)
            self.close(Unavailable(f"the subscription failed: {error}"))
        finally:
            unwatch()
            self._task = self._wake = self._corruption.close_at = None
            self._awaiting_credit = None
            self._deliveries.clear()
            self._reader.keep(None)

    async def _step(self, wake: asyncio.Event) -> None:
        wake.clear()
        deadline = self._machine.next_deadline()
        if deadline is not None and deadline <= self._clock():
            self._on_deadline()
        if not self._holds:
            try:
                await self._send_deliveries()
                await self._read_ahead()
            except (CorruptSegment, ObjectsUnavailable) as error:
                # The end of its wait would be past until the next attempt to read.
                self._awaiting_credit = None
                unsent = sum(each.count for each in self._deliveries)
                delivered = self._machine.in_flight.count - unsent
                self._corruption.on_error(error, self._clock(), delivered)
        if wake.is_set():
            # Let the servers send deliveries and receive acks.
            await asyncio.sleep(0)
            return
        deadline = self._next_deadline()
        if deadline is None:
            await wake.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline - self._clock()):
                await wake.wait()

    def _next_deadline(self) -> float | None:
        times = [self._machine.next_deadline()]
        # While nothing is to be read, for example in a paused subscription, the time of
        # the next attempt to read may be past.
        if not self._holds and (self._deliveries or self._machine.demand() > 0):
            times.append(self._corruption.retry_at)
            if self._awaiting_credit is not None:
                _, since, divides = self._awaiting_credit
                times.append(since + _credit_wait_s(divides))
        return min((time for time in times if time is not None), default=None)

    def _on_deadline(self) -> None:
        before = self._machine.in_flight.count
        for each in list(self._deliveries):
            self._restart_ack_timeout(each)
        effects = self._machine.on_time(self._clock())
        timed_out = self._count_returned(before, effects)
        if timed_out:
            self.counts.add(timed_out=timed_out)
        self._carry_out(effects)

    async def _read_ahead(self) -> None:
        machine = self._machine
        while machine.demand() > 0 and not self._holds:
            waiting, self._awaiting_credit = self._awaiting_credit, None
            # Consumers that come and go do not hold others up for longer.
            since = None if waiting is None else waiting[1]
            if (
                waiting is not None
                and waiting[2] == self._divides
                and self._await_credit(waiting[0], since)
            ):
                return
            offset = machine.next_offset
            frames = self._log.read_tail(offset, bytes_max=READ_AHEAD_BYTES)
            is_history = frames is None
            if frames is None:
                try:
                    frames = await self._log.read(offset, bytes_max=HISTORY_BYTES)
                except CorruptSegment as error:
                    self._skip_ahead(offset, error)
                    continue
                except OffsetDropped:
                    if machine.next_offset == offset:
                        raise
                    # The topic was trimmed while it was read.
                    continue
                # Decoded segments are read without waiting.  What is ready for other
                # consumers is sent before the next messages of the history.
                await asyncio.sleep(0)
            # The tail can be read, too: the cursor may have been moved past a segment
            # that could not be.
            self._corruption.on_success()
            if not frames:
                return
            left = sum(each.count for each in frames)
            # Batches are joined again for each consumer that has credit later.
            if (
                self._divides
                and left >= SHARED_MESSAGES_MIN
                and self._await_credit(min(left, JOINED_MESSAGES_MAX), since)
            ):
                return
            for frame in self._joined(frames):
                left -= frame.count
                # The cursor may have been moved while the log was read.
                if (
                    machine.demand() <= 0
                    or not offset <= machine.next_offset < frame.end
                ):
                    break
                # A frame with gaps has fewer messages than offsets.
                count = min(frame.count, frame.end - machine.next_offset)
                if (
                    is_history
                    and not self._divides
                    and self._await_credit(count, since)
                ):
                    return
                # A frame that is divided by key is decompressed only once.
                offered = frame.plain() if machine.needs_keys else frame
                self._reader.keep(offered)
                super()._carry_out(self._ack_missing(offered))
                super()._carry_out(self._offer(offered, left))
                offset, since = machine.next_offset, None
                await self._send_deliveries()

    def _await_credit(self, count: int, since: float | None) -> bool:
        """
        Return whether to wait for credit for all of *count* messages.

        The wait began at *since*, or begins now.  Dividing a batch means to encode it
        again, and its parts are smaller.
        """
        machine, divides = self._machine, self._divides
        if not machine.awaits_credit(count):
            return False
        now = self._clock()
        if since is None:
            since = now
        if now < since + _credit_wait_s(divides):
            self._awaiting_credit = count, since, divides
            return True
        machine.stop_awaiting_credit()
        return False

    def _joined(self, frames: Sequence[BatchFrame]) -> Iterable[BatchFrame]:
        """Return *frames*, joined if several consumers divide their messages by key."""
        if not self._divides:
            return frames
        return join_frames(frames, self._machine.demand())

    @property
    def _divides(self) -> bool:
        """Whether several consumers divide messages by key."""
        return self._machine.needs_keys and self.consumer_count > 1

    def _skip_ahead(self, offset: int, error: CorruptSegment) -> None:
        """
        Acknowledge the messages from *offset* on that cannot be read.

        Raises:
            CorruptSegment: They are not skipped, or not yet.
        """
        machine, end = self._machine, self._corruption.skip_end(error)
        # The cursor may have been moved while the log was read.
        if offset == machine.next_offset:
            self._corruption.skip(error, [(offset, end)], machine.cursor)
            effects = machine.on_ack([(offset, end)], self._clock(), end)
            assert offset < machine.next_offset
            super()._carry_out(effects)

    def _ack_missing(self, frame: BatchFrame) -> list[Effect]:
        """Acknowledge the missing offsets before and in *frame*."""
        machine = self._machine
        missing = self._reader.find_missing(machine.next_offset)
        return machine.on_ack(missing, self._clock(), frame.end) if missing else []

    def _offer(self, frame: BatchFrame, following: int) -> list[Effect]:
        """Offer *frame* to the machine; *following* messages are offered next."""
        machine, now, ttl_s = self._machine, self._clock(), self._log.policy.ttl_s
        base = machine.next_offset
        if base >= frame.end:
            return []
        if ttl_s is None and not frame.header.columns & TIMES:
            windows: Sequence[DeliveryWindow] = ()
        else:
            epoch_s = now - self._wall_clock_us() / US_PER_S
            windows = delivery_windows(frame, base, ttl_s=ttl_s, epoch_s=epoch_s)
        keys = ordering_keys(frame, base) if machine.needs_keys else None
        return machine.on_available(
            base,
            frame.end,
            frame.plain_bytes,
            now,
            windows,
            keys=keys,
            following=following,
        )

    async def _send_deliveries(self) -> None:
        while self._deliveries and not self._holds:
            deliveries = self._find_joinable()
            delivery = deliveries[0] if len(deliveries) == 1 else join(deliveries)
            frames = await self._read_delivery(delivery)
            if not _begins_with(self._deliveries, deliveries) or self._holds:
                # The cursor was moved while the log was read.
                continue
            for _ in deliveries:
                self._deliveries.popleft()
            consumer = self._consumers.get(delivery.consumer)
            if consumer is None:
                # It has left, and the machine delivers the messages again.
                continue
            # Since the delivery was decided, messages may have been acknowledged, for
            # example by a consumer from which they were taken back, or have failed: a
            # late nack applies to a delivery that was not sent yet.
            if not self._is_current(delivery):
                frames = [
                    each
                    for frame in frames
                    if (each := self._current_part(frame, delivery))
                ]
            if self._clock() - delivery.decided_at > WAIT_S_MAX:
                self._restart_ack_timeout(delivery)
            for frame in frames:
                self._send(consumer, frame, delivery)
            byte_count = sum(frame.plain_bytes for frame in frames)
            count = sum(frame.count for frame in frames)
            missing = delivery.count - count
            self._correct_credit(consumer, delivery, byte_count, missing)

    def _restart_ack_timeout(self, delivery: Deliver) -> None:
        """Let the ack timeout begin now: nothing times out before it is sent."""
        super()._carry_out(self._machine.on_sent_late(delivery, self._clock()))

    def _is_current(self, delivery: Deliver) -> bool:
        """Return whether the consumer still has all messages, if a look tells that."""
        in_flight = self._machine.in_flight
        return isinstance(in_flight, InFlightSelections) and in_flight.has_bits(
            delivery.base,
            delivery.bits or (1 << (delivery.end - delivery.base)) - 1,
            delivery.consumer,
            delivery.attempt,
        )

    def _current_part(self, frame: BatchFrame, delivery: Deliver) -> BatchFrame | None:
        """Return the messages of *frame* that are still part of *delivery*, or None."""
        whole = frame.base, frame.end
        # Later messages must not overtake a first delivery in order, even a failed one.
        is_in_order = delivery.attempt == 1 and self.type in _ORDERED
        if is_in_order or self._machine.returned_count == self._returned_before:
            cursor = self._machine.cursor
            if cursor.first_open(*whole) == whole:
                return frame
            parts_of = cursor.open_ranges
        else:
            current = self._machine.in_flight.ranges_of(
                *whole, delivery.consumer, delivery.attempt
            )
            parts_of = RangeSet(current).intersection
        existing = frame.ranges()
        ranges = [part for base, end in existing for part in parts_of(base, end)]
        if ranges == existing:
            return frame
        return frame.take(ranges) if ranges else None

    def _find_joinable(self) -> list[Deliver]:
        """Return the next deliveries that can be sent as one frame."""
        frame = self._reader.frame
        following = iter(self._deliveries)
        last = next(following)
        joinable = [last]
        # Missing offsets divide what could be one delivery.
        if frame is not None and frame.has_gaps and frame.base <= last.base:
            for each in following:
                if (
                    each.consumer != last.consumer
                    or each.attempt != last.attempt
                    or each.base < last.end
                    or each.end > frame.end
                ):
                    break
                joinable.append(each)
                last = each
        return joinable

    async def _read_delivery(self, delivery: Deliver) -> list[BatchFrame]:
        frame = self._reader.frame
        if (
            frame is not None
            and not delivery.bits
            and delivery.joined is None
            and (delivery.base, delivery.end) == (frame.base, frame.end)
            and not frame.has_gaps
        ):
            # The common case: the batch is delivered as it was published.
            return [frame]
        if delivery.bits:
            piece = self._reader.cut(delivery, self._deliveries)
            if piece is not None:
                return [piece.encode()]
        return await self.read(delivery.ranges())


def _credit_wait_s(divides: bool) -> float:
    return SHARES_WAIT_S if divides else CREDIT_WAIT_S


def _begins_with(queue: deque[Deliver], deliveries: list[Deliver]) -> bool:
    return len(queue) >= len(deliveries) and all(
        one is other for one, other in zip(queue, deliveries, strict=False)
    )

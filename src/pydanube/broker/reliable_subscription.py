"""
A subscription of a stored topic: at least once, with a position that is saved.

Facts come synchronously, from servers and from the log; what they lead to is
queued and carried out by one task, strictly in order.  The task lives as long
as the subscription has consumers, or messages that have to be dead-lettered.

Where messages were compacted away, their offsets are done as soon as the log shows
that nothing is there: when they are read for the first time, or when what was in
hand has to be read again.

At a segment that cannot be read, the subscription stops or skips it, as the topic's
policy says.  One that stops first lets its consumers acknowledge what they have, and
then closes them with the error: an earlier end would make them lose that work each time
they come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from pydanube.broker.dispatch_columns import (
    TIMES,
    US_PER_S,
    delivery_windows,
    ordering_keys,
)
from pydanube.broker.subscription import Subscription
from pydanube.dispatch.effects import Deliver
from pydanube.model.descriptions import RANGES_SHOWN_MAX
from pydanube.model.errors import CorruptSegment, OffsetDropped, Unavailable
from pydanube.model.policy import CorruptionPolicy, DispatchLimits, FailurePolicy
from pydanube.model.ranges import RangeSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pydanube.broker.consumers import Consumer, ConsumerPort
    from pydanube.broker.counts import Counts
    from pydanube.broker.cursors import CursorSaver
    from pydanube.broker.dead_letters import DeadLetters
    from pydanube.dispatch.delivery_window import DeliveryWindow
    from pydanube.dispatch.effects import Effect, Park
    from pydanube.dispatch.machine import SubscriptionMachine
    from pydanube.model.descriptions import SubscriptionDescription
    from pydanube.model.errors import BrokerError
    from pydanube.model.names import SubscriptionName, TopicName
    from pydanube.model.policy import SubscriptionSettings, SubscriptionType
    from pydanube.model.ranges import Range
    from pydanube.storage.topic_log import TopicLog
    from pydanube.wire.batches import BatchFrame

log = logging.getLogger(__name__)

READ_AHEAD_BYTES = 1024 * 1024
"""How much is taken from the log at once; what is delivered is bounded by credit."""

STOP_GRACE_S = 30.0
"""For so long consumers may acknowledge what they have before a corrupt segment."""

SKIP_ATTEMPTS_MIN = 5
"""How often a missing or unreadable segment is read before it is skipped."""

DEFAULT_POLICY = FailurePolicy()
NO_LIMITS = DispatchLimits()


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
        check_new_consumer: Callable[[Subscription], None],
        topic: TopicName,
        topic_log: TopicLog,
        settings: SubscriptionSettings,
        cursors: CursorSaver,
        dead_letters: DeadLetters,
        tasks: asyncio.TaskGroup,
        wall_clock_us: Callable[[], int],
    ) -> None:
        super().__init__(
            name, type_, machine, clock, counts, check_new_consumer=check_new_consumer
        )
        self.topic = topic
        self.settings = settings
        """What was decided about it; to be changed with ``apply`` only."""
        self.dead_letter_error: BrokerError | None = None
        """Why messages have not come to the dead-letter topic, if they have not."""
        self._log = topic_log
        self._cursors = cursors
        self._dead_letters = dead_letters
        self._tasks = tasks
        self._wall_clock_us = wall_clock_us
        self._due: deque[Deliver] = deque()
        # Only of a subscription at work; there may be very many that are not.
        self._wake: asyncio.Event | None = None
        self._running: asyncio.Task[None] | None = None
        # The frame that the machine was told of last: what is delivered next
        # usually comes from it, without another look into the log.
        self._in_hand: BatchFrame | None = None
        # Which offsets it has, if some are missing in between.
        self._in_hand_offsets: RangeSet | None = None
        # Why the last read failed, if it did, and when consumers are told of it.
        self._corruption: CorruptSegment | None = None
        self._close_at: float | None = None
        self._skipped = RangeSet()
        self._was_overtaken = False
        self._is_cancelled = False
        self._holds = 0

    def attach(
        self,
        name: str,
        port: ConsumerPort,
        *,
        key_filters: Sequence[str] = (),
        priority: int = 0,
    ) -> Consumer:
        """Let a consumer in; see the base class."""
        if self._was_overtaken:
            # Its consumers were told that messages are gone; who comes back
            # goes on with the first one that still exists.
            self._was_overtaken = False
            self._pass_lost()
        consumer = super().attach(
            name, port, key_filters=key_filters, priority=priority
        )
        self._start()
        self._wake_up()
        return consumer

    def apply(self, settings: SubscriptionSettings) -> None:
        """Go on with other settings, also for what has failed already."""
        self.settings = settings
        machine, now = self._machine, self._clock()
        self.carry_out(
            machine.set_failure_policy(settings.failure_policy or DEFAULT_POLICY, now)
        )
        self.carry_out(machine.set_limits(settings.limits or NO_LIMITS, now))
        self.carry_out(machine.set_paused(settings.is_paused, now))

    def on_policy_changed(self) -> None:
        """See the base class."""
        self._wake_up()

    def set_rate(self, messages_per_s: float | None) -> None:
        """See the base class."""
        self.carry_out(self._machine.set_rate(messages_per_s, self._clock()))

    async def skip(self, count: int) -> None:
        """
        The next *count* messages that are not done are done.

        Raises:
            CorruptSegment: There are gaps among them that cannot be read.
        """
        machine, topic_log = self._machine, self._log
        if not topic_log.missing_from(machine.cursor.offset):
            effects = machine.on_skip(count, self._clock(), topic_log.end_offset)
        else:
            end = await self._past_open(count)
            begin = machine.cursor.offset
            effects = machine.on_ack([(begin, end)], self._clock(), end)
        self.carry_out(effects)

    def on_parked(self, base: int, end: int, *, is_expired: bool) -> None:
        """These messages are on disk in the dead-letter topic."""
        count = end - base
        self.counts.end(dead_lettered=count, expired=count if is_expired else 0)
        self.carry_out(self._machine.on_parked(base, end, self._clock()))
        if not self._machine.parked_count:
            self.dead_letter_error = None

    def on_park_failed(
        self, base: int, end: int, error: BrokerError, retry_at: float
    ) -> None:
        """They are not; it is to be tried again."""
        self.dead_letter_error = error
        self.carry_out(self._machine.on_park_failed(base, end, self._clock(), retry_at))
        # Somebody has to be there to try it again.
        self._start()

    @property
    def end_offset(self) -> int | None:
        """See the base class."""
        return self._log.end_offset

    @property
    def base_offset(self) -> int:
        """The first offset that can be read of the topic."""
        return self._log.base_offset

    @property
    def is_stopped(self) -> bool:
        """See the base class."""
        return self._stopped_by is not None

    @property
    def _stopped_by(self) -> CorruptSegment | None:
        error = self._corruption
        if error is None or error.offsets is None:
            return error
        # Somebody may have moved it past the segment.
        return error if self._machine.cursor.offset < error.offsets[1] else None

    def backlog(self, end_offset: int) -> int:
        """See the base class; what is not read yet is counted by its segments."""
        backlog = super().backlog(end_offset)
        if not backlog:
            return 0
        return max(0, backlog - self._log.missing_from(self._machine.next_offset))

    def describe(self, end_offset: int) -> SubscriptionDescription:
        """See the base class."""
        machine, topic_log = self._machine, self._log
        facts = super().describe(end_offset)
        base = max(facts.cursor, topic_log.base_offset)
        byte_count = 0
        if facts.backlog:
            byte_count = topic_log.estimate_bytes(base)
            byte_count = byte_count * facts.backlog // max(1, end_offset - base)
        error = self.dead_letter_error if machine.parked_count else None
        return replace(
            facts,
            backlog_bytes=byte_count,
            oldest_publish_time=topic_log.estimate_time(base),
            delayed=machine.delayed_count,
            blocked=tuple(RangeSet(machine.blocked[:RANGES_SHOWN_MAX])),
            parked=machine.parked_count,
            dead_letter_error=None if error is None else str(error),
            stopped_by=None if self._stopped_by is None else str(self._stopped_by),
            skipped=tuple(islice(self._skipped, RANGES_SHOWN_MAX)),
            is_paused=machine.is_paused,
            settings=self.settings,
        )

    def hold(self) -> None:
        """Deliver nothing until ``release``."""
        self._holds += 1

    def release(self) -> None:
        """Undo one ``hold``."""
        self._holds -= 1
        self._wake_up()

    def seek(self, offset: int) -> None:
        """Go on at *offset*, whatever was done before."""
        unsent = self._due
        self.forget_deliveries()
        self._dead_letters.forget(self)
        self.dead_letter_error = None
        self._corruption = self._close_at = None
        self.carry_out(self._machine.on_seek(offset, self._clock()))
        for effect in unsent:
            # Nobody got it, so nobody will ever give this credit back.
            consumer = self._consumers.get(effect.consumer)
            if consumer is not None:
                self.credit(consumer, _count_of(effect), effect.byte_count)

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Do what the machine asks for; credit may mean that there is more to read."""
        super().carry_out(effects)
        self._wake_up()

    def deliver_later(self, effect: Deliver) -> None:
        """Queue a delivery for the task."""
        self._due.append(effect)

    def park(self, effect: Park) -> None:
        """Queue messages for the dead-letter topic."""
        self._dead_letters.add(self, effect)

    def save_cursor(self) -> None:
        """Have the cursor written soon."""
        self._cursors.mark(self._log.topic_id, self.name, self._machine.cursor)

    def save_cursor_now(self, done: Callable[[BrokerError | None], None]) -> None:
        """
        Have the cursor written at once; *done* is called when it is on disk.

        All calls of one turn of the loop are one entry of the journal.
        """
        self._cursors.save_now(
            self._log.topic_id, self.name, self._machine.cursor, done
        )

    def forget_deliveries(self, key: int | None = None) -> None:
        """See the base class."""
        if key is None:
            self._due = deque()
            self._take_in_hand(None)
        elif self._due:
            self._due = deque(each for each in self._due if each.consumer != key)

    def cancel(self) -> None:
        """End the task; the topic or the subscription goes away."""
        self._is_cancelled = True
        self._dead_letters.forget(self)
        if self._running is not None:
            self._running.cancel()

    async def read(self, ranges: Iterable[Range]) -> list[BatchFrame]:
        """
        The messages of *ranges*, which are in order.

        Those that were compacted away meanwhile are not among them, and are done; also
        those that cannot be read, if the topic's policy is to skip them.

        Raises:
            OffsetDropped: Retention has dropped some of them.
            CorruptSegment: They cannot be read.
        """
        parts: list[BatchFrame] = []
        missing: list[Range] = []
        left = deque(ranges)
        while left:
            try:
                frame = await self._frame_at(left[0][0])
            except CorruptSegment as error:
                missing += self._skip(error, _take_below(self._end_of(error), left))
                continue
            if frame is None:
                missing += left
                break
            inside = _take_below(frame.end, left)
            if frame.has_gaps or inside[0][0] < frame.base:
                inside = self._existing(frame, inside, missing)
                if not inside:
                    continue
            if frame is self._in_hand and inside != [(frame.base, frame.end)]:
                # What is cut into pieces is decompressed once, and not for each.
                frame = self._in_hand = frame.plain()
            parts.append(frame.take(inside))
        if missing:
            self.carry_out(self._machine.on_ack(missing, self._clock()))
        return parts

    def _existing(
        self, frame: BatchFrame, ranges: list[Range], missing: list[Range]
    ) -> list[Range]:
        """What of *ranges* is in *frame*; the rest is added to *missing*."""
        offsets = self._in_hand_offsets if frame is self._in_hand else None
        if offsets is None:
            offsets = RangeSet(frame.ranges())
        existing: list[Range] = []
        for base, end in ranges:
            existing += offsets.intersection(base, end)
            missing += offsets.gaps(base, end)
        return existing

    def _take_in_hand(self, frame: BatchFrame | None) -> None:
        self._in_hand = frame
        self._in_hand_offsets = None
        if frame is not None and frame.has_gaps:
            self._in_hand_offsets = RangeSet(frame.ranges())

    async def _past_open(self, count: int) -> int:
        """Where the first *count* messages that are not done end."""
        cursor, topic_log = self._machine.cursor, self._log
        offset = max(cursor.offset, topic_log.base_offset)
        while count > 0:
            frames = await topic_log.read(offset, bytes_max=READ_AHEAD_BYTES)
            if not frames:
                return topic_log.end_offset
            for base, end in chain.from_iterable(each.ranges() for each in frames):
                while count > 0 and (
                    found := cursor.first_open(max(base, offset), end)
                ):
                    offset = min(found[1], found[0] + count)
                    count -= offset - found[0]
            if count > 0:
                offset = frames[-1].end
        return offset

    def _pass_lost(self) -> None:
        """Go on with what can be read; what is lost is done."""
        cursor, begin = self._machine.cursor.offset, self._machine.next_offset
        kept = self._log.next_kept(cursor)
        if kept > cursor:
            self.seek(kept)
        elif (end := self._log.next_kept(begin)) > begin:
            # What was delivered before the gap may still have to be delivered again.
            effects = self._machine.on_ack(
                [(begin, end)], self._clock(), self._log.end_offset
            )
            self.carry_out(effects)

    # The task.

    def _start(self) -> None:
        if self._running is None and not self._is_cancelled:
            self._wake = asyncio.Event()
            self._running = self._tasks.create_task(
                self._run(self._wake), name=f"subscription {self.topic} {self.name}"
            )

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake.set()

    @property
    def _has_work(self) -> bool:
        return self.has_consumers or self._machine.parked_count > 0

    async def _run(self, wake: asyncio.Event) -> None:
        # One sick subscription must not take the broker down: this is the one
        # place that decides so.
        unwatch = self._log.watch(wake.set)
        try:
            while self._has_work:
                await self._step(wake)
        except CorruptSegment as error:
            self.close(error)
        except OffsetDropped as error:
            log.warning("subscription %s of %s: %s", self.name, self.topic, error)
            self._was_overtaken = True
            self.close(error)
        except Exception as error:
            log.exception("subscription %s of %s failed", self.name, self.topic)
            self.close(Unavailable(f"the subscription failed: {error}"))
        finally:
            unwatch()
            self._running = self._wake = self._close_at = None
            self._due.clear()
            self._take_in_hand(None)

    async def _step(self, wake: asyncio.Event) -> None:
        wake.clear()
        deadline = self._machine.next_deadline()
        if deadline is not None and deadline <= self._clock():
            self._on_time()
        if not self._holds:
            try:
                await self._deliver_due()
                await self._read_ahead()
            except CorruptSegment as error:
                self._on_corrupt(error)
        if wake.is_set():
            # Let the servers run: what we sent must get out, acks must get in.
            await asyncio.sleep(0)
            return
        deadline = self._next_deadline()
        if deadline is None:
            await wake.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await wake.wait()

    def _next_deadline(self) -> float | None:
        times = [self._machine.next_deadline()]
        if self._close_at is not None:
            assert self._corruption is not None
            times += [self._close_at, self._corruption.retry_at]
        return min((time for time in times if time is not None), default=None)

    def _on_corrupt(self, error: CorruptSegment) -> None:
        """
        Wait for another attempt to read, as long as consumers have work.

        Raises:
            CorruptSegment: They have none, or took too long.
        """
        now = self._clock()
        if self._corruption is None:
            log.error("subscription %s of %s stops: %s", self.name, self.topic, error)
        self._corruption = error
        if self._close_at is None:
            self._close_at = now + STOP_GRACE_S
        if self._may_skip_later(error):
            # It is skipped after more attempts; consumers wait for that.
            self._close_at = error.retry_at
            return
        held = self._machine.in_flight_count - sum(map(_count_of, self._due))
        if held <= 0 or now >= self._close_at:
            raise error

    def _on_readable(self) -> None:
        """History was read; the subscription goes on if it had stopped."""
        if self._corruption is not None:
            log.info("subscription %s of %s goes on", self.name, self.topic)
            self._corruption = self._close_at = None

    @property
    def _skips(self) -> bool:
        return self._log.policy.on_corruption is CorruptionPolicy.SKIP

    def _may_skip_later(self, error: CorruptSegment) -> bool:
        return self._skips and not _is_final(error)

    def _end_of(self, error: CorruptSegment) -> int:
        """
        Where the messages end that are to be skipped because of *error*.

        Raises:
            CorruptSegment: The topic's policy is not to skip them, or not yet.
        """
        if not self._skips or not _is_final(error) or error.offsets is None:
            raise error
        return error.offsets[1]

    def _skip(self, error: CorruptSegment, ranges: list[Range]) -> list[Range]:
        """Note that *ranges* are skipped because of *error*; return them."""
        self._corruption = self._close_at = None
        new = [gap for base, end in ranges for gap in self._skipped.gaps(base, end)]
        for base, end in new:
            self._skipped.add(base, end)
        cursor = self._machine.cursor
        count = sum(cursor.open_count(base, end) for base, end in ranges)
        self.counts.end(skipped=count)
        if new:
            log.error(
                "subscription %s of %s skips %d messages from offset %d to %d: %s",
                self.name,
                self.topic,
                count,
                new[0][0],
                new[-1][1],
                error,
            )
        return ranges

    def _on_time(self) -> None:
        before = self._machine.in_flight_count
        effects = self._machine.on_time(self._clock())
        timed_out = self._came_back(before, effects)
        if timed_out:
            self.counts.fail(timed_out=timed_out)
        self.carry_out(effects)

    async def _read_ahead(self) -> None:
        machine = self._machine
        while machine.demand() > 0 and not self._holds:
            offset = machine.next_offset
            frames = self._log.read_tail(offset, bytes_max=READ_AHEAD_BYTES)
            if frames is None:
                try:
                    frames = await self._log.read(offset, bytes_max=READ_AHEAD_BYTES)
                except CorruptSegment as error:
                    self._skip_ahead(offset, error)
                    continue
                self._on_readable()
            if not frames:
                return
            for frame in frames:
                # A seek may have come while we were reading.
                if (
                    machine.demand() <= 0
                    or not offset <= machine.next_offset < frame.end
                ):
                    break
                # By keys it is cut into pieces in any case.
                taken = frame.plain() if machine.needs_keys else frame
                self._take_in_hand(taken)
                Subscription.carry_out(self, self._pass_gaps(taken))
                Subscription.carry_out(self, self._offer(taken))
                offset = machine.next_offset
                await self._deliver_due()

    def _skip_ahead(self, offset: int, error: CorruptSegment) -> None:
        """
        Let the messages from *offset* on be done that cannot be read.

        Raises:
            CorruptSegment: The topic's policy is not to skip them, or not yet.
        """
        machine, end = self._machine, self._end_of(error)
        # A seek may have come while we were reading.
        if offset == machine.next_offset:
            ranges = self._skip(error, [(offset, end)])
            effects = machine.on_ack(ranges, self._clock(), end)
            assert offset < machine.next_offset
            Subscription.carry_out(self, effects)

    def _pass_gaps(self, frame: BatchFrame) -> list[Effect]:
        """Let what is missing before *frame* and inside of it be done."""
        machine, offsets = self._machine, self._in_hand_offsets
        begin = machine.next_offset
        if offsets is None and begin >= frame.base:
            return []
        missing = [(begin, frame.base)] if begin < frame.base else []
        if offsets is not None:
            missing += offsets.gaps(max(begin, frame.base), frame.end)
        return machine.on_ack(missing, self._clock(), frame.end)

    def _offer(self, frame: BatchFrame) -> list[Effect]:
        """Tell the machine of *frame*."""
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
            base, frame.end, frame.plain_bytes, now, windows, keys=keys
        )

    async def _deliver_due(self) -> None:
        while self._due and not self._holds:
            effects = self._due_together()
            effect = effects[0] if len(effects) == 1 else _joined(effects)
            frames = await self._frames_of(effect)
            if not _begins_with(self._due, effects) or self._holds:
                # While history was read, a seek came.
                continue
            for _ in effects:
                self._due.popleft()
            consumer = self._consumers.get(effect.consumer)
            if consumer is None:
                # It is gone, and the machine has taken the messages back.
                continue
            for frame in frames:
                self.send(consumer, frame, effect)
            byte_count = sum(frame.plain_bytes for frame in frames)
            count = sum(frame.count for frame in frames)
            self.settle(consumer, effect, byte_count, _count_of(effect) - count)

    def _due_together(self) -> list[Deliver]:
        """The next deliveries, as many as make one frame."""
        frame = self._in_hand
        following = iter(self._due)
        last = next(following)
        together = [last]
        # Where offsets are missing, what is between them comes piece by piece.
        if frame is not None and frame.has_gaps and frame.base <= last.base:
            for each in following:
                if (
                    each.consumer != last.consumer
                    or each.attempt != last.attempt
                    or each.base < last.end
                    or each.end > frame.end
                ):
                    break
                together.append(each)
                last = each
        return together

    async def _frames_of(self, effect: Deliver) -> list[BatchFrame]:
        frame = self._in_hand
        if (
            frame is not None
            and effect.ranges is None
            and (effect.base, effect.end) == (frame.base, frame.end)
            and not frame.has_gaps
        ):
            # Nearly always: the very batch that came, as it is.
            return [frame]
        return await self.read(effect.ranges or [(effect.base, effect.end)])

    async def _frame_at(self, offset: int) -> BatchFrame | None:
        """The first frame with a message from *offset* on; None if there is none."""
        frame = self._in_hand
        if frame is not None and _holds(frame, offset):
            return frame
        frames = self._log.read_tail(offset, bytes_max=1)
        if frames is None:
            frames = await self._log.read(offset, bytes_max=1)
        return frames[0] if frames else None


def _is_final(error: CorruptSegment) -> bool:
    """Whether reading again would not help, as far as one can know."""
    return error.is_damaged or error.attempts >= SKIP_ATTEMPTS_MIN


def _begins_with(due: deque[Deliver], effects: list[Deliver]) -> bool:
    return len(due) >= len(effects) and all(
        one is other for one, other in zip(due, effects, strict=False)
    )


def _joined(effects: list[Deliver]) -> Deliver:
    """Deliveries to one consumer, one behind the other, as one."""
    ranges: list[Range] = []
    for each in effects:
        ranges += each.ranges or [(each.base, each.end)]
    first = effects[0]
    return Deliver(
        first.consumer,
        first.base,
        effects[-1].end,
        first.attempt,
        sum(each.byte_count for each in effects),
        tuple(ranges),
    )


def _take_below(end: int, left: deque[Range]) -> list[Range]:
    """Take what lies below *end* out of *left*, whose ranges are in order."""
    if left[-1][1] <= end:
        inside = list(left)
        left.clear()
        return inside
    inside = []
    while left and left[0][0] < end:
        range_base, range_end = left.popleft()
        if range_end > end:
            left.appendleft((end, range_end))
        inside.append((range_base, min(range_end, end)))
    return inside


def _holds(frame: BatchFrame, offset: int) -> bool:
    return frame.base <= offset < frame.end


def _count_of(effect: Deliver) -> int:
    """How many messages are to be delivered."""
    if effect.ranges is None:
        return effect.end - effect.base
    return sum(end - base for base, end in effect.ranges)

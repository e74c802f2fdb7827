"""
Deferred messages: tracked messages that must not be delivered now.

A message that is not due, or that failed, waits for its time.  The failure policy
decides about messages that failed too often:

    waiting ──→ (ready)               its time has come
    failed ──→ waiting                failure n of at most redeliveries_max
           ├─→ (done)                 poison policy drop
           ├─→ blocked                poison policy block, or no dead-letter topic
           └─→ parked ⇄ being copied  poison policy dead letter

The broker copies parked messages to the dead-letter topic and reports the result;
after a failure it receives them again after a while.  A blocked message stays until it
is acknowledged, expires, or the policy changes.

Messages that a commit acknowledges are held, until its outcome is known.

The cursor has the failures of messages, so they survive a restart.  Then all open
messages are offered again, and those that have failed too often are given up at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydanube.model.policy import Backoff, FailurePolicy, PoisonPolicy
from pydanube.model.ranges import Range
from pydanube.model.retry import RetryPolicy
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.effects import Drop, Effect, Park
from pydanube_broker.dispatch.message_spans import (
    NOBODY,
    MessageSpan,
    MessageSpans,
    by_base,
)

EXPIRED = "expired"


class DeferredMessages:
    """
    Spans that wait, block, are parked or held.

    Methods that park or drop messages append the effects.  Dropped messages are marked
    as done at once.
    """

    __slots__ = (
        *("_all", "_cursor", "_failed_end"),
        *("blocked", "held", "parked", "policy", "waiting"),
    )

    def __init__(self, cursor: Cursor, policy: FailurePolicy) -> None:
        self._cursor = cursor
        self.policy = policy
        self.waiting = MessageSpans(cursor)
        """Messages that are delayed or wait for redelivery."""
        self.blocked = MessageSpans(cursor)
        """Messages that failed too often and block new ones."""
        self.parked = MessageSpans(cursor)
        """
        Messages that are being copied to the dead-letter topic.  If copying failed,
        their time is that of the next attempt.
        """
        self.held = MessageSpans(cursor)
        """Messages that a commit acknowledges whose outcome is not known yet."""
        self._all = (self.waiting, self.blocked, self.parked, self.held)
        # Messages below that are not tracked may have failed before a restart.
        self._failed_end = cursor.failures.end

    def blocked_ranges(self, next_offset: int) -> tuple[Range, ...]:
        """
        Return the messages that block others, in order.

        Among them are those from *next_offset* on, which are not tracked yet, that
        blocked before a restart.
        """
        blocked = self.blocked.ranges()
        if next_offset >= self._failed_end:
            return blocked
        if self._final_policy is not PoisonPolicy.BLOCK:
            return blocked
        untracked = self._cursor.failures.within(next_offset, self._failed_end)
        return (
            *blocked,
            *(
                part
                for failed in untracked
                if self._is_final(failed.failures)
                for part in self._cursor.open_ranges(failed.base, failed.end)
            ),
        )

    def is_blocked(self, next_offset: int) -> bool:
        """Return whether messages block others, as ``blocked_ranges``."""
        if next_offset < self._failed_end:
            return bool(self.blocked_ranges(next_offset))
        return self.blocked.count > 0

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(spans.count for spans in self._all)

    def __len__(self) -> int:
        """Return the number of spans."""
        return sum(map(len, self._all))

    def has(self, offset: int) -> bool:
        """Return whether the message at *offset* waits, blocks, is parked or held."""
        return any(
            spans.find_containing(offset, offset + 1) is not None for spans in self._all
        )

    # Changes.

    def note_failure(self, span: MessageSpan) -> None:
        """Remember the last failure of *span*, also after a restart."""
        self._cursor.failures.note(
            *(span.base, span.end),
            attempt=span.attempt,
            failures=span.failures,
            reason=span.reason,
        )

    def forget_failures(self) -> None:
        """Forget the failures of all messages."""
        self._cursor.failures.clear()
        self._failed_end = 0

    def divide_failed(self, span: MessageSpan) -> Iterator[MessageSpan]:
        """Divide a new *span* into messages that failed before a restart and others."""
        base = span.base
        if base >= self._failed_end:
            yield span
            return
        for failed in self._cursor.failures.within(base, span.end):
            if base < failed.base:
                yield span.part(base, failed.base)
            part = span.part(failed.base, failed.end)
            part.attempt, part.failures = failed.attempt, failed.failures
            part.reason = failed.reason
            yield part
            base = failed.end
        if base < span.end:
            yield span.part(base, span.end)

    def delay(self, span: MessageSpan, due: float) -> None:
        """Keep *span* until *due*."""
        span.time = due
        self.waiting.add(span)

    def fail(
        self, span: MessageSpan, now: float, requested_s: float, effects: list[Effect]
    ) -> bool:
        """Defer *span*, which has failed; return whether it is ready at once."""
        if self.give_up_final(span, effects):
            return False
        delay_s = redelivery_delay_s(self.policy, span.failures, requested_s)
        if delay_s <= 0:
            return True
        self.delay(span, now + delay_s)
        return False

    def give_up_final(self, span: MessageSpan, effects: list[Effect]) -> bool:
        """Give *span* up if it has failed too often; return whether it has."""
        is_final = self._is_final(span.failures)
        if is_final:
            self._give_up(span, effects)
        return is_final

    def expire(self, span: MessageSpan, effects: list[Effect]) -> None:
        """Park or drop *span*, which has expired."""
        span.is_expired = True
        span.reason = EXPIRED
        if (
            self.policy.dead_letter_expired
            and self.policy.dead_letter_topic is not None
        ):
            self._park(span, effects)
        else:
            self._drop(span, effects)

    def mark(self, base: int, end: int) -> int:
        """Mark deferred messages of ``base … end`` as done; return their number."""
        return sum(spans.mark(base, end) for spans in self._all)

    def retry_parking(self, base: int, end: int, retry_at: float) -> None:
        """Copy parked messages of ``base … end`` again at *retry_at*."""
        for span in self.parked.withdraw(base, end):
            span.time = retry_at
            self.parked.add(span)

    def can_hold(self, base: int, end: int) -> bool:
        """Return whether ``base … end`` has no delayed, parked or held messages."""
        if self.parked.overlapping(base, end) or self.held.overlapping(base, end):
            return False
        return all(span.failures for span in self.waiting.overlapping(base, end))

    def hold(self, span: MessageSpan) -> None:
        """Keep *span* until the outcome of a commit is known."""
        span.time = None
        self.held.add(span)

    def release(self, base: int, end: int, effects: list[Effect]) -> list[MessageSpan]:
        """Remove the held messages of ``base … end``; return those that are ready."""
        released = self.held.withdraw(base, end)
        for span in released:
            span.consumer = NOBODY
            span.attempt += 1
        return self._reapply_policy(released, effects)

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Remove and return waiting or blocked messages of ``base … end``."""
        return [
            *self.waiting.withdraw(base, end),
            *self.blocked.withdraw(base, end),
        ]

    def take_due(self, now: float, effects: list[Effect]) -> list[MessageSpan]:
        """Remove and return the spans that are ready now; retry failed parking."""
        ready = self.waiting.withdraw_due(now)
        ready += self._reapply_policy(self.parked.withdraw_due(now), effects)
        return ready

    def set_policy(
        self, policy: FailurePolicy, now: float, effects: list[Effect]
    ) -> list[MessageSpan]:
        """
        Apply *policy* to all messages; return the spans that are ready now.

        Messages that are being copied to the dead-letter topic stay parked.
        """
        self.policy = policy
        blocked = sorted(self.blocked, key=by_base)
        self.blocked.clear()
        failed = [each for each in self.parked if each.time is not None]
        for span in failed:
            self.parked.remove(span)
        ready = self._reapply_policy([*blocked, *sorted(failed, key=by_base)], effects)
        latest = now + policy.redelivery_delay_s_max
        for span in sorted(self.waiting, key=by_base):
            if self._is_final(span.failures):
                self.waiting.remove(span)
                self._give_up(span, effects)
            elif span.failures and span.time is not None:
                self.waiting.remove(span)
                self.delay(span, min(span.time, latest))
        return ready

    def next_time(self) -> float | None:
        """Return the time at which to call take_due(), or None."""
        times = (self.waiting.next_time(), self.parked.next_time())
        return min((time for time in times if time is not None), default=None)

    def clear(self) -> None:
        """Remove all spans."""
        for spans in self._all:
            spans.clear()

    # Steps.

    def _reapply_policy(
        self, spans: list[MessageSpan], effects: list[Effect]
    ) -> list[MessageSpan]:
        """Apply the current policy to *spans*; return those that are ready."""
        ready = []
        for span in spans:
            if span.is_expired:
                self.expire(span, effects)
            elif not self.give_up_final(span, effects):
                ready.append(span)
        return ready

    def _is_final(self, failures: int) -> bool:
        return failures > self.policy.redeliveries_max

    @property
    def _final_policy(self) -> PoisonPolicy:
        """The policy for messages that have failed too often."""
        has_topic = self.policy.dead_letter_topic is not None
        if self.policy.poison is PoisonPolicy.DEAD_LETTER and not has_topic:
            return PoisonPolicy.BLOCK
        return self.policy.poison

    def _give_up(self, span: MessageSpan, effects: list[Effect]) -> None:
        match self._final_policy:
            case PoisonPolicy.DEAD_LETTER:
                self._park(span, effects)
            case PoisonPolicy.DROP:
                self._drop(span, effects)
            case _:
                span.time = None
                self.blocked.add(span)

    def _park(self, span: MessageSpan, effects: list[Effect]) -> None:
        span.time = None
        for base, end in self._cursor.open_ranges(span.base, span.end):
            part = span.part(base, end)
            part.open_count = end - base
            self.parked.add(part)
            delivered = span.attempt - 1
            effects.append(Park(base, end, delivered, span.reason, span.is_expired))

    def _drop(self, span: MessageSpan, effects: list[Effect]) -> None:
        for base, end in self._cursor.open_ranges(span.base, span.end):
            self._cursor.mark(base, end)
            effects.append(Drop(base, end, span.reason, span.is_expired))


def redelivery_delay_s(
    policy: FailurePolicy, failures: int, requested_s: float = 0.0
) -> float:
    """
    Return the delay between failure number *failures* and the next delivery.

    The consumer may request a longer delay with *requested_s*, up to the policy's
    longest delay.
    """
    delay_s, delay_max_s = policy.redelivery_delay_s, policy.redelivery_delay_s_max
    if policy.backoff is Backoff.EXPONENTIAL:
        delay_s = RetryPolicy(delay_s, delay_max_s).delay_s(failures)
    return min(max(delay_s, requested_s), delay_max_s)

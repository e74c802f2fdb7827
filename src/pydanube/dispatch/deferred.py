"""
The messages in hand that are not to be delivered now.

A message that is not due, or that failed, waits for its time.  What becomes of one
that failed too often is the policy's decision:

    waiting ──→ (ready)               its time has come
    failed ──→ waiting                failure n of at most redeliveries_max
           ├─→ (done)                 poison policy drop
           ├─→ blocked                poison policy block, or nowhere to park
           └─→ parked ⇄ on its way    poison policy dead letter

What is parked is with the shell, which copies it to the dead-letter topic, until it
says that this is done, or has failed; then it is with the shell again after a while.
A blocked message stays until it is acknowledged, expires, or the policy changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.effects import Drop, Effect, Park
from pydanube.dispatch.failures import (
    is_final,
    parks_expired,
    poison_of,
    redelivery_delay_s,
)
from pydanube.dispatch.message_spans import MessageSpan, MessageSpans
from pydanube.model.policy import PoisonPolicy

if TYPE_CHECKING:
    from pydanube.dispatch.cursor import Cursor
    from pydanube.model.policy import FailurePolicy
    from pydanube.model.ranges import Range

EXPIRED = "expired"


class DeferredMessages:
    """
    MessageSpans that wait, block, or are parked.

    Methods that may give messages up, by parking or dropping them, append the effects;
    what is dropped is marked done at once.
    """

    __slots__ = ("_cursor", "blocked", "parked", "policy", "waiting")

    def __init__(self, cursor: Cursor, policy: FailurePolicy) -> None:
        self._cursor = cursor
        self.policy = policy
        self.waiting = MessageSpans(cursor)
        """Not due: delayed from the beginning, or waiting for redelivery."""
        self.blocked = MessageSpans(cursor)
        """Failed too often, and stop what is new."""
        self.parked = MessageSpans(cursor)
        """
        On their way to the dead-letter topic; if they have a time, that failed, and is
        tried again then.
        """

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self.waiting.count + self.blocked.count + self.parked.count

    def __len__(self) -> int:
        """How many spans there are."""
        return len(self.waiting) + len(self.blocked) + len(self.parked)

    def has(self, offset: int) -> bool:
        """Whether the message at *offset* waits, blocks or is parked."""
        return any(
            spans.find_holder(offset, offset + 1) is not None
            for spans in (self.waiting, self.blocked, self.parked)
        )

    # What happened.

    def delay(self, span: MessageSpan, due: float) -> None:
        """Keep *span* until *due*."""
        span.time = due
        self.waiting.add(span)

    def fail(
        self, span: MessageSpan, now: float, asked_s: float, effects: list[Effect]
    ) -> bool:
        """Keep *span*, which has failed; return whether it is ready at once."""
        if is_final(self.policy, span.failures):
            self._give_up(span, effects)
            return False
        delay_s = redelivery_delay_s(self.policy, span.failures, asked_s)
        if delay_s <= 0:
            return True
        self.delay(span, now + delay_s)
        return False

    def expire(self, span: MessageSpan, effects: list[Effect]) -> None:
        """Park or drop *span*, whose time is over."""
        span.is_expired = True
        span.reason = EXPIRED
        if parks_expired(self.policy):
            self._park(span, effects)
        else:
            self._drop(span, effects)

    def mark(self, base: int, end: int) -> int:
        """Mark what is here of ``base … end`` as done; return how many that are."""
        total = 0
        for spans in (self.waiting, self.blocked, self.parked):
            total += self._mark_in(spans, base, end)
        return total

    def mark_parked(self, base: int, end: int) -> int:
        """What is parked of ``base … end`` is done; return how many that are."""
        return self._mark_in(self.parked, base, end)

    def retry_parking(self, base: int, end: int, retry_at: float) -> None:
        """What is parked of ``base … end`` did not arrive; try again later."""
        for span in self.parked.withdraw(base, end):
            span.time = retry_at
            self.parked.add(span)

    def withdraw_expired(self, base: int, end: int) -> list[MessageSpan]:
        """Take out what waits or blocks of ``base … end``, whose time is over."""
        return [
            *self.waiting.withdraw(base, end),
            *self.blocked.withdraw(base, end),
        ]

    def take_due(self, now: float, effects: list[Effect]) -> list[MessageSpan]:
        """Take out what is ready now; what is to be parked again, park."""
        ready = self.waiting.withdraw_due(now)
        ready += self._judge_again(self.parked.withdraw_due(now), effects)
        return ready

    def set_policy(
        self, policy: FailurePolicy, now: float, effects: list[Effect]
    ) -> list[MessageSpan]:
        """
        Treat all that is here by *policy*; return what is ready now.

        What is parked and with the shell stays with it.
        """
        self.policy = policy
        blocked = sorted(self.blocked, key=_base)
        self.blocked.clear()
        failed = [each for each in self.parked if each.time is not None]
        for span in failed:
            self.parked.remove(span)
        ready = self._judge_again([*blocked, *sorted(failed, key=_base)], effects)
        latest = now + policy.redelivery_delay_s_max
        for span in sorted(self.waiting, key=_base):
            if is_final(policy, span.failures):
                self.waiting.remove(span)
                self._give_up(span, effects)
            elif span.failures and span.time is not None:
                self.waiting.remove(span)
                self.delay(span, min(span.time, latest))
        return ready

    def next_time(self) -> float | None:
        """When take_due() must be called, or None."""
        waiting, parked = self.waiting.next_time(), self.parked.next_time()
        if waiting is None or parked is None:
            return parked if waiting is None else waiting
        return min(waiting, parked)

    def clear(self) -> None:
        """Forget everything."""
        self.waiting.clear()
        self.blocked.clear()
        self.parked.clear()

    # What follows.

    def _judge_again(
        self, spans: list[MessageSpan], effects: list[Effect]
    ) -> list[MessageSpan]:
        """Treat what was given up by the policy of now; return what is ready."""
        ready = []
        for span in spans:
            if span.is_expired:
                self.expire(span, effects)
            elif is_final(self.policy, span.failures):
                self._give_up(span, effects)
            else:
                ready.append(span)
        return ready

    def _give_up(self, span: MessageSpan, effects: list[Effect]) -> None:
        match poison_of(self.policy):
            case PoisonPolicy.DEAD_LETTER:
                self._park(span, effects)
            case PoisonPolicy.DROP:
                self._drop(span, effects)
            case PoisonPolicy.BLOCK:
                span.time = None
                self.blocked.add(span)

    def _park(self, span: MessageSpan, effects: list[Effect]) -> None:
        span.time = None
        for base, end in self._open(span):
            part = span.part(base, end)
            part.open_count = end - base
            self.parked.add(part)
            delivered = span.attempt - 1
            effects.append(Park(base, end, delivered, span.reason, span.is_expired))

    def _drop(self, span: MessageSpan, effects: list[Effect]) -> None:
        for base, end in self._open(span):
            self._cursor.mark(base, end)
            effects.append(Drop(base, end, span.reason, span.is_expired))

    def _mark_in(self, spans: MessageSpans, base: int, end: int) -> int:
        if not spans.count:
            return 0
        total = 0
        for span in spans.overlapping(base, end):
            count = self._cursor.mark(max(base, span.base), min(end, span.end))
            spans.settle(span, count)
            total += count
        return total

    def _open(self, span: MessageSpan) -> list[Range]:
        """What is not done of *span*."""
        cursor = self._cursor
        return cursor.done.gaps(max(span.base, cursor.offset), span.end)


def _base(span: MessageSpan) -> int:
    return span.base

"""
A subscription of a non-reliable topic: memory only, at most once.

A batch goes straight from the producer to the consumers that have credit for
it.  What nobody has credit for is dropped and counted; nobody waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.broker.dispatch_columns import ordering_keys
from pydanube.broker.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube.dispatch.effects import Deliver, Park
    from pydanube.model.errors import BrokerError
    from pydanube.wire.batches import BatchFrame


class DirectSubscription(Subscription):
    """Consumers of what is published while they are here."""

    _frame: BatchFrame | None = None

    def offer(self, frame: BatchFrame) -> None:
        """
        Deliver *frame* as far as credit goes, and drop the rest.

        The dispatch machine chooses, as for a stored topic; here a delivery is
        done when it was sent, and what is left over is done as well.
        """
        machine = self._machine
        now = self._clock()
        if machine.next_offset != frame.base:
            machine.on_seek(frame.base, now)
        self._frame = frame
        keys = ordering_keys(frame, frame.base) if machine.needs_keys else None
        self.carry_out(
            machine.on_available(
                frame.base, frame.end, frame.plain_bytes, now, keys=keys
            )
        )
        self._frame = None
        self.counts.drop(machine.ready_count)
        machine.on_seek(frame.end, now)

    def deliver_later(self, effect: Deliver) -> None:
        """Deliver at once; there is nothing to wait for."""
        frame = self._frame
        assert frame is not None
        frame = frame.take(effect.ranges or [(effect.base, effect.end)])
        consumer = self._consumers[effect.consumer]
        self.send(consumer, frame, effect)
        self.settle(consumer, effect, frame.plain_bytes)

    def set_rate(self, messages_per_s: float | None) -> None:
        """Nothing waits here, so nothing can be delivered more slowly."""

    def park(self, effect: Park) -> None:
        """Nothing fails: a message that was sent is done."""
        raise AssertionError(effect)

    def save_cursor(self) -> None:
        """Nothing is stored."""

    def save_cursor_now(self, done: Callable[[BrokerError | None], None]) -> None:
        """Nothing is stored, so it is as safe as it gets."""
        done(None)

    def forget_deliveries(self, key: int | None = None) -> None:
        """Nothing is ever due."""

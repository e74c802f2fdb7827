"""
A subscription of a non-reliable topic: at-most-once delivery, from memory only.

A batch is sent at once to the consumers that have credit for it.  Messages for which
no consumer has credit are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable

from pydanube.model.errors import BrokerError
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.delivery.subscription import Subscription
from pydanube_broker.broker.pure.dispatch_columns import ordering_keys
from pydanube_broker.dispatch.effects import Deliver


class DirectSubscription(Subscription):
    """A subscription of a non-reliable topic."""

    _frame: BatchFrame | None = None

    def offer(self, frame: BatchFrame) -> None:
        """
        Deliver *frame* as far as consumers have credit, and drop the rest.

        The dispatch machine chooses the consumers, as for a reliable topic.  All
        messages of the frame count as acknowledged afterwards.
        """
        machine = self._machine
        now = self._clock()
        if machine.next_offset != frame.base:
            machine.on_seek(frame.base, now)
        self._frame = frame
        keys = ordering_keys(frame, frame.base) if machine.needs_keys else None
        self._carry_out(
            machine.on_available(
                frame.base, frame.end, frame.plain_bytes, now, keys=keys
            )
        )
        self._frame = None
        self.counts.add(dropped=machine.ready_count)
        machine.on_seek(frame.end, now)

    def set_ack_timeout(self, ack_timeout_s: float) -> None:
        """Do nothing: no message is delivered again."""

    def save_cursor_now(self, done: Callable[[BrokerError | None], None]) -> None:
        """Call *done*; there is no cursor to save."""
        done(None)

    def _deliver(self, effect: Deliver) -> None:
        frame = self._frame
        assert frame is not None
        frame = frame.take(effect.ranges())
        consumer = self._consumers[effect.consumer]
        self._send(consumer, frame, effect)
        self._correct_credit(consumer, effect, frame.plain_bytes)

"""
The delivery of messages to consumers: one pure machine for each subscription type.

A machine does no I/O and has no clock: ``on_…`` methods take an event and the time,
and return effects for the broker to carry out.

Messages from the cursor up to ``next_offset`` are *tracked*; each one is in one of
these states:

                 ┌─→ delayed ──┐              ┌─→ (done)
     not tracked ┤             ├─→ ready ─→ in flight
                 └─────────────┘     ↑        │ nack, or not acknowledged in time
                                     │        ├─→ waiting for redelivery ─→ (ready)
                                     │        ├─→ blocked
                                     │        └─→ parked ─→ (done)
                                     └────────┘ the consumer left or released it

- Delayed: its delivery window has not begun.  It holds back no other message.
- Ready: it can be delivered as soon as a consumer has credit.
- In flight: a consumer has it.  Each delivery increases its attempt by one.  The
  consumer may extend the deadline for its ack.
- Waiting for redelivery: it failed, and its redelivery delay has not passed.
- Blocked, parked: it failed more often than the failure policy allows; see deferred.py.
- Held, from any of these: a commit that acknowledges it is being decided.  Nobody gets
  it, and it has no deadline.  Then it is done, or ready again.
- Done: acknowledged, dropped, or parked and on disk.  Only a seek makes it undone.

An ack makes a message done in any state: a late ack, for a message that timed out and
waits for redelivery, prevents that redelivery.  Only nacks and ack timeouts are
failures.  If a consumer leaves, is replaced or releases messages, they are ready again
at once.

When a message expires, it is dropped or parked, unless it is in flight; then it may
still be acknowledged, and is given up if the consumer returns it.

After a restart, messages that have failed before keep their failures and attempts.

Time is an argument of all events.  ``on_time`` may be called late; expired messages are
still not delivered by any event.

Subscription types differ only in the consumers that receive the next messages, and in
how many they receive.
"""

from __future__ import annotations

from pydanube.model.policy import SubscriptionType
from pydanube_broker.dispatch.key_shared.machine import KeySharedSubscription
from pydanube_broker.dispatch.machine import SubscriptionMachine
from pydanube_broker.dispatch.shared import SharedSubscription
from pydanube_broker.dispatch.single_active import (
    ExclusiveSubscription,
    FailoverSubscription,
)

MACHINES: dict[SubscriptionType, type[SubscriptionMachine]] = {
    SubscriptionType.EXCLUSIVE: ExclusiveSubscription,
    SubscriptionType.FAILOVER: FailoverSubscription,
    SubscriptionType.SHARED: SharedSubscription,
    SubscriptionType.KEY_SHARED: KeySharedSubscription,
}
"""The machine of each subscription type."""

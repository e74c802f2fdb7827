"""
The delivery of messages to consumers: one pure machine for each subscription type.

A machine does no I/O and has no clock: ``on_…`` methods take an event and the time,
and return effects for the broker to carry out.
"""

from __future__ import annotations

from pydanube.dispatch.key_shared.machine import KeySharedSubscription
from pydanube.dispatch.machine import SubscriptionMachine
from pydanube.dispatch.shared import SharedSubscription
from pydanube.dispatch.single_active import ExclusiveSubscription, FailoverSubscription
from pydanube.model.policy import SubscriptionType

MACHINES: dict[SubscriptionType, type[SubscriptionMachine]] = {
    SubscriptionType.EXCLUSIVE: ExclusiveSubscription,
    SubscriptionType.FAILOVER: FailoverSubscription,
    SubscriptionType.SHARED: SharedSubscription,
    SubscriptionType.KEY_SHARED: KeySharedSubscription,
}
"""The machine of each subscription type."""

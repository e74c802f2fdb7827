"""
The delivery of messages to consumers: one pure machine for each subscription type.

A machine does no I/O and has no clock: ``on_…`` methods take an event and the time,
and return effects for the broker to carry out.
"""

from __future__ import annotations

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.key_shared.machine import KeySharedSubscription
from pydanube.dispatch.machine import (
    DEFAULT_POLICY,
    DEFERRED_SPANS_MAX,
    DONE_RANGES_MAX,
    NO_LIMITS,
    SubscriptionMachine,
)
from pydanube.dispatch.shared import SharedSubscription
from pydanube.dispatch.single_active import ExclusiveSubscription, FailoverSubscription
from pydanube.model.policy import DispatchLimits, FailurePolicy, SubscriptionType

_MACHINES: dict[SubscriptionType, type[SubscriptionMachine]] = {
    SubscriptionType.EXCLUSIVE: ExclusiveSubscription,
    SubscriptionType.FAILOVER: FailoverSubscription,
    SubscriptionType.SHARED: SharedSubscription,
    SubscriptionType.KEY_SHARED: KeySharedSubscription,
}


def create_machine(
    subscription_type: SubscriptionType,
    cursor: Cursor,
    *,
    failure_policy: FailurePolicy = DEFAULT_POLICY,
    limits: DispatchLimits = NO_LIMITS,
    done_ranges_max: int = DONE_RANGES_MAX,
    deferred_spans_max: int = DEFERRED_SPANS_MAX,
) -> SubscriptionMachine:
    """Return a machine of this type that continues from *cursor*."""
    return _MACHINES[subscription_type](
        cursor,
        failure_policy=failure_policy,
        limits=limits,
        done_ranges_max=done_ranges_max,
        deferred_spans_max=deferred_spans_max,
    )

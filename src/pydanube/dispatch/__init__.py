"""
Who gets which messages: one pure machine for each type of subscription.

A machine does no I/O and has no clock: ``on_…`` methods take facts and the time,
and return effects for the shell to carry out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.exclusive import ExclusiveSubscription
from pydanube.dispatch.failover import FailoverSubscription
from pydanube.dispatch.machine import DONE_RANGES_MAX, SubscriptionMachine
from pydanube.dispatch.shared import SharedSubscription
from pydanube.model.policy import SubscriptionType

if TYPE_CHECKING:
    from pydanube.dispatch.cursor import Cursor

_MACHINES: dict[SubscriptionType, type[SubscriptionMachine]] = {
    SubscriptionType.EXCLUSIVE: ExclusiveSubscription,
    SubscriptionType.FAILOVER: FailoverSubscription,
    SubscriptionType.SHARED: SharedSubscription,
}


def machine_for(
    subscription_type: SubscriptionType,
    cursor: Cursor,
    *,
    ack_timeout_s: float | None = None,
    done_ranges_max: int = DONE_RANGES_MAX,
) -> SubscriptionMachine:
    """The machine of a subscription of this type that goes on from *cursor*."""
    return _MACHINES[subscription_type](
        cursor, ack_timeout_s=ack_timeout_s, done_ranges_max=done_ranges_max
    )

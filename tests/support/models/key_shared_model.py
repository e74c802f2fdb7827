"""
A model of a key-shared subscription as sets of single offsets.

The model computes for each message whether it may be delivered, and to which consumer;
only the owners of keys come from the hash ring.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import RangeSet
from pydanube_broker.dispatch.key_shared.hash_ring import HashRing, hash_of
from pydanube_broker.dispatch.message_spans import BatchKeys
from support.models.subscription_history import History, windows_from
from support.models.subscription_model import SubscriptionModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.model.policy import FailurePolicy
    from pydanube.model.ranges import Range
    from pydanube_broker.dispatch.effects import Deliver
    from pydanube_broker.dispatch.machine import SubscriptionMachine


class KeySharedModel(SubscriptionModel):
    """The rules of a key-shared subscription, checked after each event."""

    def __init__(
        self,
        offset: int,
        done: set[int],
        policy: FailurePolicy,
        *,
        done_ranges_max: int,
        deferred_spans_max: int,
    ) -> None:
        # No consumer is active, as in a shared subscription.
        super().__init__(
            SubscriptionType.SHARED,
            offset,
            done,
            policy,
            done_ranges_max=done_ranges_max,
            deferred_spans_max=deferred_spans_max,
        )
        self.keys: dict[int, bytes] = {}
        self.filters: dict[int, list[str]] = {}
        self.delivered_in_order: dict[bytes, list[int]] = {}
        self.rate_deadlines: list[float | None] = [None]
        # The owners of keys among the consumers that are present.
        self.owners: dict[bytes | None, Any] = {}
        # Failed messages, which no later message of their key may overtake.
        self.failed: set[int] = set()

    def on_seek(self, offset: int) -> None:
        super().on_seek(offset)
        self.delivered_in_order.clear()

    # Owners.

    def owner_of(self, key: bytes) -> int | None:
        present = tuple(self.credits)
        if self.owners.get(None) != present:
            self.owners = {None: present}
        if key not in self.owners:
            self.owners[key] = self._find_owner(key)
        return self.owners[key]

    def _find_owner(self, key: bytes) -> int | None:
        accepting = [c for c in self.credits if self._accepts(c, key)]
        first = min((self.priorities[c] for c in accepting), default=None)
        ring = HashRing()
        for consumer in accepting:
            if self.priorities[consumer] == first:
                ring.add(consumer, str(consumer))
        return ring.owner_of(key)

    def _accepts(self, consumer: int, key: bytes) -> bool:
        filters = self.filters[consumer]
        return not filters or any(fnmatchcase(key.decode(), each) for each in filters)

    def _fail(self, offset: int, now: float, requested_s: float, reason: str) -> None:
        super()._fail(offset, now, requested_s, reason)
        self.failed.add(offset)

    def on_hold(self, ranges: list[Range]) -> None:
        super().on_hold(ranges)
        # It may be delivered again.
        self.failed |= self.held

    def _deliverable(self) -> dict[int, int]:
        """Return the ready messages that only credit and limits hold back, by owner."""
        holders: dict[bytes, int] = {}
        for offset, (consumer, _) in self.in_flight.items():
            key = self.keys[offset]
            assert holders.setdefault(key, consumer) == consumer, "a key of two"
        first_failed: dict[bytes, int] = {}
        self.failed &= self._deferred()
        for offset in self.failed:
            key = self.keys[offset]
            first_failed[key] = min(offset, first_failed.get(key, offset))
        owners = {key: self.owner_of(key) for key in {self.keys[o] for o in self.ready}}
        found = {}
        for offset in self.ready:
            key = self.keys[offset]
            owner = owners[key]
            if owner is None or holders.get(key, owner) != owner:
                continue
            if offset < first_failed.get(key, offset + 1):
                found[offset] = owner
        return found

    def _first_deliveries_end(self) -> int:
        if self._is_full() and (self.in_flight or self._deferred()):
            return max(self.done) + 1
        return 1 << 60

    # Checks of effects.

    def _check_delivery(self, delivery: Deliver, before: Deliver | None) -> None:
        offsets = offsets_of(delivery)
        consumer = delivery.consumer
        assert offsets == sorted(set(offsets))
        assert (offsets[0], offsets[-1] + 1) == (delivery.base, delivery.end)
        ranges = delivery.ranges()
        assert (
            len(ranges) > 1
            if delivery.bits
            else ranges == ((delivery.base, delivery.end),)
        )
        assert len(RangeSet(ranges)) == len(ranges)
        assert self.ready.issuperset(offsets), "delivered what was not ready"
        assert {self.deliveries.get(o, 0) + 1 for o in offsets} == {delivery.attempt}
        assert len({self.batch_of[offset] for offset in offsets}) == 1
        messages, byte_count = self._allowance(consumer)
        assert len(offsets) <= messages, "more than the credit"
        assert byte_count > 0, "no byte credit at all"
        assert len(offsets) <= self._delivery_limit(), "more than limits and rate allow"
        base, end, size = self.batch_of[delivery.base]
        fair = size * len(offsets) / (end - base)
        # Returned parts of a batch are charged separately.
        assert abs(delivery.byte_count - fair) < len(ranges)
        deliverable = self._deliverable()
        mine = sorted(o for o, owner in deliverable.items() if owner == consumer)
        assert mine[: len(offsets)] == offsets, "out of order, or not to be delivered"
        returned = [o for o in mine if self.deliveries.get(o, 0)]
        first_deliveries_end = max(
            [self._first_deliveries_end(), *(o + 1 for o in returned)]
        )
        assert offsets[-1] < first_deliveries_end, (
            "a first delivery that is not allowed"
        )

    def _follow(self, delivery: Deliver, now: float) -> None:
        timeout_s = self.ack_timeout_s
        deadline = None if timeout_s is None else now + timeout_s
        offsets = offsets_of(delivery)
        for offset in offsets:
            self._take(offset)
            self.in_flight[offset] = delivery.consumer, deadline
            self.deliveries[offset] = delivery.attempt
            if delivery.attempt == 1 and offset not in self.was_delayed:
                order = self.delivered_in_order.setdefault(self.keys[offset], [])
                assert not order or order[-1] < offset
                order.append(offset)
        credit = self.credits[delivery.consumer]
        credit[0] -= len(offsets)
        credit[1] -= delivery.byte_count
        if self.bucket is not None:
            self.bucket.tokens -= len(offsets)

    def check_queries(self, machine: SubscriptionMachine) -> None:
        super().check_queries(machine)
        self.failed &= self._deferred()

    def _check_no_message_waits_needlessly(self) -> None:
        if self.is_paused or self._delivery_limit() <= 0:
            return
        having = self._having_credit()
        waiting = {o for o, owner in self._deliverable().items() if owner in having}
        assert not {o for o in waiting if self.deliveries.get(o, 0)}
        assert not {o for o in waiting if o < self._first_deliveries_end()}

    def _update_rate_deadline(self, now: float) -> None:
        self.rate_deadline = None
        bucket = self.bucket
        # The machine checks blocked keys only when the rate allows a delivery.
        self.rate_deadlines = [None]
        if bucket is None or self.is_paused or bucket.available:
            return
        having = self._having_credit()
        waiting = [o for o in self.ready if self.owner_of(self.keys[o]) in having]
        rate_deadlines = [bucket.next_time(n + 1, now) for n in range(len(waiting))]
        if any(owner in having for owner in self._deliverable().values()):
            self.rate_deadlines = rate_deadlines
        else:
            self.rate_deadlines += rate_deadlines

    def _check_next_deadline(self, deadline: float | None) -> None:
        expected = []
        for rate_deadline in self.rate_deadlines:
            self.rate_deadline = rate_deadline
            expected.append(self._next_deadline())
        assert any(deadline == pytest.approx(each) for each in expected)

    def _check_demand(self, demand: int) -> None:
        having = self._having_credit()
        could = sum(self._allowance(c)[0] for c in having if self._may_own(c))
        unacked_max = self.limits.unacked_messages_max
        if unacked_max is not None:
            could = min(could, unacked_max - len(self.in_flight))
        most = least = could
        if self.bucket is not None:
            most = min(could, self.bucket.capacity)
            waiting = {o for o in self.ready if self.owner_of(self.keys[o]) in having}
            least = most - len(waiting)
        if self.is_paused or (self._is_full() and self._tracked()):
            most = 0
        if len(self._deferred()) >= self.deferred_spans_max:
            # The machine may divide them into any number of spans.
            least = 0
        assert min(max(0, least), max(0, most)) <= demand <= max(0, most)

    def _may_own(self, consumer: int) -> bool:
        """Return whether no consumer of a better priority accepts every key."""
        mine = self.priorities[consumer]
        return not any(
            self.priorities[each] < mine and not self.filters[each]
            for each in self.credits
        )


class KeySharedHistory(History):
    """A key-shared machine and its model, with generated keys and filters."""

    model: KeySharedModel

    def __init__(
        self,
        kind: SubscriptionType,
        offset: int,
        done: set[int],
        policy: FailurePolicy,
        *,
        done_ranges_max: int,
        deferred_spans_max: int = 1000,
    ) -> None:
        super().__init__(
            kind,
            offset,
            done,
            policy,
            done_ranges_max=done_ranges_max,
            deferred_spans_max=deferred_spans_max,
        )
        self.model = KeySharedModel(
            offset,
            done,
            policy,
            done_ranges_max=done_ranges_max,
            deferred_spans_max=deferred_spans_max,
        )

    def join(self, priority: int = 0, filters: Sequence[str] | None = None) -> None:
        """Add a consumer; some accept only some keys."""
        consumer = self.consumers_ever
        if filters is None:
            filters = FILTERS[consumer % len(FILTERS)]
        self.consumers_ever += 1
        effects = self.machine.on_consumer_joined(
            consumer, self.now, priority=priority, key_filters=filters
        )
        self.model.filters[consumer] = list(filters)
        self.model.on_consumer_joined(consumer, priority)
        self.check(effects)

    def add_batch(
        self,
        count: int,
        byte_count: int,
        *,
        earlier: int = 0,
        windows: Sequence[tuple[int, int, float | None, float | None]] = (),
    ) -> None:
        """Make a batch available, as in the base class; offsets determine the keys."""
        base = max(0, self.machine.next_offset - earlier)
        end = base + count
        absolute_windows = windows_from(windows, base, end, self.now)
        keys = BatchKeys(KEYS, [code_of(offset) for offset in range(base, end)])
        for offset in range(base, end):
            self.model.keys[offset] = KEYS[code_of(offset)]
        effects = self.machine.on_available(
            base, end, byte_count, self.now, absolute_windows, keys=keys
        )
        self.model.on_available(base, end, byte_count, self.now, absolute_windows)
        self.check(effects)

    def process_all(self) -> None:
        """Process all messages, with a consumer that accepts every key."""
        self.join(filters=())
        super().process_all()


KEYS = [b"a", b"b", b"ab", b"ba", b"c", b"", b"cc"]
FILTERS = [(), (), ("a*", "?b"), (), ("c",), ("*",), ()]


def code_of(offset: int) -> int:
    """Return the index of the key of the message at *offset*."""
    return hash_of(str(offset).encode()) % len(KEYS)


def history_of(kind: SubscriptionType, *args: Any, **options: Any) -> History:
    """Return a subscription of type *kind*, and its model."""
    history = KeySharedHistory if kind is SubscriptionType.KEY_SHARED else History
    return history(kind, *args, **options)


def offsets_of(delivery: Deliver) -> list[int]:
    """Return the offsets of the delivered messages, in order."""
    return [offset for base, end in delivery.ranges() for offset in range(base, end)]

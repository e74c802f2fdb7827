"""
A key-shared subscription as sets of single offsets, which judges the machine.

What a message may not do before it is delivered, and to whom it must go, is worked
out anew for every message each time; only whose turn it is stands in a hash ring.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.dispatch.facts import Keys
from pydanube.dispatch.key_shared.hash_ring import HashRing, hash_of
from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import RangeSet
from support.subscription_history import History, windows_from
from support.subscription_model import SubscriptionModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.dispatch.effects import Deliver
    from pydanube.dispatch.machine import SubscriptionMachine
    from pydanube.model.policy import FailurePolicy


class KeySharedModel(SubscriptionModel):
    """What must hold of a key-shared subscription after each fact."""

    def __init__(
        self,
        offset: int,
        done: set[int],
        policy: FailurePolicy,
        *,
        done_ranges_max: int,
        deferred_spans_max: int,
    ) -> None:
        # Nobody is active, as in a shared one.
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
        self.refills: list[float | None] = [None]
        # Of those who are present.
        self.owners: dict[bytes | None, Any] = {}
        # What failed, and nothing of its key may overtake.
        self.held: set[int] = set()

    def on_seek(self, offset: int) -> None:
        super().on_seek(offset)
        self.delivered_in_order.clear()

    # Who may get what.

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

    def _fail(self, offset: int, now: float, asked_s: float, reason: str) -> None:
        super()._fail(offset, now, asked_s, reason)
        self.held.add(offset)

    def _deliverable(self) -> dict[int, int]:
        """Ready messages that wait for nothing but credit and room, and for whom."""
        holders: dict[bytes, int] = {}
        for offset, (consumer, _) in self.in_flight.items():
            key = self.keys[offset]
            assert holders.setdefault(key, consumer) == consumer, "a key of two"
        held: dict[bytes, int] = {}
        self.held &= self._deferred()
        for offset in self.held:
            key = self.keys[offset]
            held[key] = min(offset, held.get(key, offset))
        owners = {key: self.owner_of(key) for key in {self.keys[o] for o in self.ready}}
        found = {}
        for offset in self.ready:
            key = self.keys[offset]
            owner = owners[key]
            if owner is None or holders.get(key, owner) != owner:
                continue
            if offset < held.get(key, offset + 1):
                found[offset] = owner
        return found

    def _first_below(self) -> int:
        if self._is_full() and (self.in_flight or self._deferred()):
            return max(self.done) + 1
        return 1 << 60

    # What the machine answered.

    def _check_delivery(self, delivery: Deliver, before: Deliver | None) -> None:
        offsets = offsets_of(delivery)
        consumer = delivery.consumer
        assert offsets == sorted(set(offsets))
        assert (offsets[0], offsets[-1] + 1) == (delivery.base, delivery.end)
        if delivery.ranges is not None:
            assert len(delivery.ranges) > 1, "without gaps"
            assert len(RangeSet(delivery.ranges)) == len(delivery.ranges)
        assert self.ready.issuperset(offsets), "delivered what was not ready"
        assert {self.deliveries.get(o, 0) + 1 for o in offsets} == {delivery.attempt}
        assert len({self.batch_of[offset] for offset in offsets}) == 1
        messages, byte_count = self._allowance(consumer)
        assert len(offsets) <= messages, "more than was asked for"
        assert byte_count > 0, "no byte credit at all"
        assert len(offsets) <= self._room(), "more than limits and rate allow"
        base, end, size = self.batch_of[delivery.base]
        fair = size * len(offsets) / (end - base)
        # Parts of a batch that came back by themselves are charged by themselves.
        assert abs(delivery.byte_count - fair) < len(delivery.ranges or (None,))
        deliverable = self._deliverable()
        mine = sorted(o for o, owner in deliverable.items() if owner == consumer)
        assert mine[: len(offsets)] == offsets, "out of order, or not to be delivered"
        returned = [o for o in mine if self.deliveries.get(o, 0)]
        first_below = max([self._first_below(), *(o + 1 for o in returned)])
        assert offsets[-1] < first_below, "nothing new is to be delivered"

    def _follow(self, delivery: Deliver, now: float) -> None:
        timeout_s = self.policy.ack_timeout_s
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
        self.held &= self._deferred()

    def _check_nobody_waits_in_vain(self) -> None:
        if self.is_paused or self._room() <= 0:
            return
        having = self._having_credit()
        waiting = {o for o, owner in self._deliverable().items() if owner in having}
        assert not {o for o in waiting if self.deliveries.get(o, 0)}
        assert not {o for o in waiting if o < self._first_below()}

    def _note_refill(self, now: float) -> None:
        self.refilled_at = None
        bucket = self.bucket
        # Who waits for the rate is not looked at closely before the rate allows it.
        self.refills = [None]
        if bucket is None or self.is_paused or bucket.available:
            return
        having = self._having_credit()
        waiting = [o for o in self.ready if self.owner_of(self.keys[o]) in having]
        refills = [bucket.next_time(n + 1, now) for n in range(len(waiting))]
        if any(owner in having for owner in self._deliverable().values()):
            self.refills = refills
        else:
            self.refills += refills

    def _check_next_deadline(self, deadline: float | None) -> None:
        expected = []
        for refilled_at in self.refills:
            self.refilled_at = refilled_at
            expected.append(self._next_deadline())
        assert any(deadline == pytest.approx(each) for each in expected)

    def _check_demand(self, wanted: int) -> None:
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
        if self.is_paused or (self._is_full() and self._in_hand()):
            most = 0
        if len(self._deferred()) >= self.deferred_spans_max:
            # How many spans these are is the machine's business.
            least = 0
        assert min(max(0, least), max(0, most)) <= wanted <= max(0, most)

    def _may_own(self, consumer: int) -> bool:
        """Whether no consumer that comes before *consumer* accepts every key."""
        mine = self.priorities[consumer]
        return not any(
            self.priorities[each] < mine and not self.filters[each]
            for each in self.credits
        )


class KeySharedHistory(History):
    """A key-shared machine and its model; keys and filters come of themselves."""

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

    def come(self, priority: int = 0, filters: Sequence[str] | None = None) -> None:
        """A consumer comes; every third one takes only some keys."""
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

    def bring(
        self,
        count: int,
        byte_count: int,
        *,
        earlier: int = 0,
        windows: Sequence[tuple[int, int, float | None, float | None]] = (),
    ) -> None:
        """As in the base class; the offset says which key a message has."""
        base = max(0, self.machine.next_offset - earlier)
        end = base + count
        told = windows_from(windows, base, end, self.now)
        keys = Keys(KEYS, [code_of(offset) for offset in range(base, end)])
        for offset in range(base, end):
            self.model.keys[offset] = KEYS[code_of(offset)]
        effects = self.machine.on_available(
            base, end, byte_count, self.now, told, keys=keys
        )
        self.model.on_available(base, end, byte_count, self.now, told)
        self.check(effects)

    def calm_down(self) -> None:
        """As in the base class, with somebody who accepts every key."""
        self.come(filters=())
        super().calm_down()


KEYS = [b"a", b"b", b"ab", b"ba", b"c", b"", b"cc"]
FILTERS = [(), (), ("a*", "?b"), (), ("c",), ("*",), ()]


def code_of(offset: int) -> int:
    """Which of the keys the message at *offset* has."""
    return hash_of(str(offset).encode()) % len(KEYS)


def history_of(kind: SubscriptionType, *args: Any, **options: Any) -> History:
    """A subscription of that kind, and its model."""
    history = KeySharedHistory if kind is SubscriptionType.KEY_SHARED else History
    return history(kind, *args, **options)


def offsets_of(delivery: Deliver) -> list[int]:
    """The messages that are delivered, in order."""
    ranges = delivery.ranges or ((delivery.base, delivery.end),)
    return [offset for base, end in ranges for offset in range(base, end)]

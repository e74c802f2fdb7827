"""Every machine, under arbitrary facts, against a model made of single offsets."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from pydanube.dispatch import machine_for
from pydanube.dispatch.cursor import Cursor
from pydanube.model.errors import ConsumerBusy
from pydanube.model.policy import SubscriptionType
from pydanube.model.ranges import RangeSet
from support.subscription_model import SubscriptionModel

pytestmark = pytest.mark.slow

offsets = st.integers(0, 80)
ranges = st.tuples(offsets, st.integers(-1, 12)).map(lambda r: (r[0], r[0] + r[1]))
range_lists = st.lists(ranges, max_size=4)


class Facts(RuleBasedStateMachine):
    """Arbitrary facts; after the last one, everything calms down."""

    kind: SubscriptionType

    @initialize(
        offset=st.integers(0, 5),
        done=st.sets(st.integers(0, 30), max_size=8),
        ack_timeout_s=st.sampled_from([None, 3.0]),
        done_ranges_max=st.sampled_from([1, 2, 100]),
    )
    def begin(self, offset, done, ack_timeout_s, done_ranges_max):
        self.done_ranges_max = done_ranges_max
        self.now = 0.0
        self.consumers_ever = 0
        self.machine = machine_for(
            self.kind,
            Cursor(offset, RangeSet((o, o + 1) for o in done)),
            ack_timeout_s=ack_timeout_s,
            done_ranges_max=done_ranges_max,
        )
        self.model = SubscriptionModel(
            self.kind, offset, done, ack_timeout_s, done_ranges_max
        )

    @rule()
    def consumer_comes(self):
        consumer = self.consumers_ever
        if self.kind is SubscriptionType.EXCLUSIVE and self.machine.consumers:
            with pytest.raises(ConsumerBusy):
                self.machine.on_consumer_came(consumer, self.now)
            return
        self.consumers_ever += 1
        effects = self.machine.on_consumer_came(consumer, self.now)
        self.model.on_consumer_came(consumer)
        self.check(effects)

    @precondition(lambda self: self.machine.consumers)
    @rule(data=st.data())
    def consumer_goes(self, data):
        consumer = data.draw(st.sampled_from(self.machine.consumers))
        effects = self.machine.on_consumer_gone(consumer, self.now)
        self.model.on_consumer_gone(consumer)
        self.check(effects)

    @precondition(lambda self: self.machine.consumers)
    @rule(
        data=st.data(),
        messages=st.integers(0, 20),
        byte_count=st.one_of(st.integers(-50, 300), st.just(10_000)),
    )
    def credit(self, data, messages, byte_count):
        consumer = data.draw(st.sampled_from(self.machine.consumers))
        effects = self.machine.on_credit(consumer, messages, byte_count, self.now)
        self.model.on_credit(consumer, messages, byte_count)
        self.check(effects)

    @rule(
        count=st.integers(1, 12), earlier=st.integers(0, 4), byte_count=st.integers(1)
    )
    def available(self, count, earlier, byte_count):
        base = max(0, self.machine.next_offset - earlier)
        # A batch that ends before next_offset is known already.
        end, byte_count = base + count, byte_count % 1000 + 1
        effects = self.machine.on_available(base, end, byte_count, self.now)
        self.model.on_available(base, end, byte_count)
        self.check(effects)

    @rule(acked=range_lists)
    def ack(self, acked):
        effects = self.machine.on_ack(acked, self.now)
        self.model.on_ack(acked)
        self.check(effects)

    @precondition(lambda self: self.machine.in_flight_count)
    @rule(data=st.data())
    def ack_in_flight(self, data):
        acked = data.draw(st.lists(self.in_flight_ranges(), max_size=3))
        effects = self.machine.on_ack(acked, self.now)
        self.model.on_ack(acked)
        self.check(effects)

    @precondition(lambda self: len(self.machine.cursor.done) < self.done_ranges_max)
    @rule(ahead=st.integers(0, 5), count=st.integers(1, 5), beyond=st.integers(0, 3))
    def ack_ahead_of_what_is_in_hand(self, ahead, count, beyond):
        base = self.machine.next_offset + ahead
        end_offset = base + count
        acked = [(base, end_offset + beyond)]
        effects = self.machine.on_ack(acked, self.now, end_offset)
        self.model.on_ack(acked, end_offset)
        self.check(effects)

    @rule(end=offsets)
    def ack_through(self, end):
        effects = self.machine.on_ack_through(end, self.now)
        self.model.on_ack([(0, end)])
        self.check(effects)

    @rule(nacked=range_lists)
    def nack(self, nacked):
        effects = self.machine.on_nack(nacked, self.now)
        self.model.on_nack(nacked)
        self.check(effects)

    @precondition(lambda self: self.machine.in_flight_count)
    @rule(data=st.data())
    def nack_in_flight(self, data):
        nacked = data.draw(st.lists(self.in_flight_ranges(), max_size=3))
        effects = self.machine.on_nack(nacked, self.now)
        self.model.on_nack(nacked)
        self.check(effects)

    @rule(passed_s=st.sampled_from([0.0, 1.0, 2.0, 10.0]))
    def time_passes(self, passed_s):
        self.now += passed_s
        effects = self.machine.on_time(self.now)
        self.model.on_time(self.now)
        self.check(effects)

    @rule(passed_s=st.sampled_from([0.5, 1.0]))
    def time_passes_unnoticed(self, passed_s):
        self.now += passed_s

    @rule(offset=st.integers(0, 40))
    def seek(self, offset):
        effects = self.machine.on_seek(offset, self.now)
        self.model.on_seek(offset)
        self.check(effects)

    @invariant()
    def queries_cost_nothing(self):
        if hasattr(self, "model"):
            self.check([])

    def teardown(self):
        """With credit and acknowledgements everything is done in the end."""
        if not hasattr(self, "model"):
            return
        if not self.machine.consumers:
            self.consumer_comes()
        end = self.machine.next_offset + 7
        for _ in range(1000):
            if self.machine.cursor.offset >= end:
                break
            self.calm_down(end)
        assert self.machine.cursor.offset >= end
        assert self.machine.ready_count == self.machine.in_flight_count == 0
        assert not self.model.ready
        assert self.machine.next_deadline() is None

    def calm_down(self, end):
        for consumer in self.machine.consumers:
            owed = max(0, -self.machine.credit_of(consumer)[1])
            effects = self.machine.on_credit(consumer, 3, owed + 1, self.now)
            self.model.on_credit(consumer, 3, owed + 1)
            self.check(effects)
        base = self.machine.next_offset
        if self.machine.wanted() and base < end:
            effects = self.machine.on_available(base, end, 10, self.now)
            self.model.on_available(base, end, 10)
            self.check(effects)
        acked = [(o, o + 1) for o in sorted(self.model.in_flight)]
        effects = self.machine.on_ack(acked, self.now)
        self.model.on_ack(acked)
        self.check(effects)

    def in_flight_ranges(self):
        return st.tuples(
            st.sampled_from(sorted(self.model.in_flight)), st.integers(1, 6)
        ).map(lambda r: (r[0], r[0] + r[1]))

    def check(self, effects):
        self.model.check(effects, self.machine, self.now)


class ExclusiveFacts(Facts):
    kind = SubscriptionType.EXCLUSIVE


class FailoverFacts(Facts):
    kind = SubscriptionType.FAILOVER


class SharedFacts(Facts):
    kind = SubscriptionType.SHARED


_SETTINGS = settings(max_examples=100, stateful_step_count=40, deadline=None)

TestExclusive = ExclusiveFacts.TestCase
TestExclusive.settings = _SETTINGS
TestFailover = FailoverFacts.TestCase
TestFailover.settings = _SETTINGS
TestShared = SharedFacts.TestCase
TestShared.settings = _SETTINGS

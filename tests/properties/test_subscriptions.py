"""Each machine compared with a model of single offsets, under arbitrary events."""

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

from pydanube.model.policy import (
    Backoff,
    FailurePolicy,
    PoisonPolicy,
    SubscriptionType,
)
from pydanube.model.ranges import RangeSet
from pydanube_broker.dispatch.deferred import DeferredMessages
from pydanube_broker.dispatch.machine import SubscriptionMachine
from support.models.key_shared_model import history_of

offsets = st.integers(0, 80)
ranges = st.tuples(offsets, st.integers(-1, 12)).map(lambda r: (r[0], r[0] + r[1]))
range_lists = st.lists(ranges, max_size=4)
times = st.sampled_from([None, -1.0, 0.0, 1.0, 3.0, 20.0])
windows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), times, times), max_size=3
)
policies = st.builds(
    FailurePolicy,
    redeliveries_max=st.integers(0, 3),
    ack_timeout_s=st.sampled_from([None, 3.0, 5.0]),
    redelivery_delay_s=st.sampled_from([0.0, 1.0, 4.0]),
    redelivery_delay_s_max=st.sampled_from([2.0, 10.0]),
    backoff=st.sampled_from(Backoff),
    poison=st.sampled_from(PoisonPolicy),
    dead_letter_topic=st.sampled_from([None, "/default/dead"]),
    dead_letter_expired=st.booleans(),
)


class Events(RuleBasedStateMachine):
    """Arbitrary events; after the last one, all messages are processed."""

    kind: SubscriptionType
    history = None

    @initialize(
        offset=st.integers(0, 5),
        done=st.sets(st.integers(0, 30), max_size=8),
        policy=policies,
        done_ranges_max=st.sampled_from([1, 2, 100]),
        deferred_spans_max=st.sampled_from([1, 3, 100]),
    )
    def begin(self, offset, done, policy, done_ranges_max, deferred_spans_max):
        self.history = history_of(
            self.kind,
            offset,
            done,
            policy,
            done_ranges_max=done_ranges_max,
            deferred_spans_max=deferred_spans_max,
        )

    @rule(priority=st.sampled_from([0, 0, 0, 1, -1]))
    def consumer_joins(self, priority):
        self.history.join(priority)

    @precondition(lambda self: self.history.machine.consumers)
    @rule(data=st.data())
    def consumer_leaves(self, data):
        self.history.leave(data.draw(self.consumers()))

    @precondition(lambda self: self.history.machine.consumers)
    @rule(data=st.data())
    def consumer_is_replaced(self, data):
        self.history.replace(data.draw(self.consumers()))

    @precondition(lambda self: self.history.machine.consumers)
    @rule(
        data=st.data(),
        messages=st.integers(0, 20),
        byte_count=st.one_of(st.integers(-50, 300), st.just(10_000)),
    )
    def credit(self, data, messages, byte_count):
        self.history.credit(data.draw(self.consumers()), messages, byte_count)

    @rule(
        count=st.integers(1, 12),
        earlier=st.integers(0, 4),
        byte_count=st.integers(1, 1000),
        windows=windows,
    )
    def available(self, count, earlier, byte_count, windows):
        self.history.add_batch(count, byte_count, earlier=earlier, windows=windows)

    @rule(acked=range_lists)
    def ack(self, acked):
        self.history.ack(acked)

    @precondition(lambda self: self.history.machine.in_flight.count)
    @rule(data=st.data())
    def ack_in_flight(self, data):
        self.history.ack(data.draw(self.in_flight_ranges()))

    @rule(ahead=st.integers(0, 5), count=st.integers(1, 5), beyond=st.integers(0, 3))
    def ack_ahead_of_tracked(self, ahead, count, beyond):
        self.history.ack_ahead(ahead, count, beyond)

    @rule(end=offsets)
    def ack_through(self, end):
        self.history.ack_through(end)

    @rule(count=st.integers(0, 10), beyond=st.integers(0, 5))
    def skip(self, count, beyond):
        self.history.skip(count, beyond)

    @rule(nacked=range_lists)
    def nack(self, nacked):
        self.history.nack(nacked)

    @precondition(lambda self: self.history.machine.in_flight.count)
    @rule(
        data=st.data(),
        delay_s=st.sampled_from([0.0, 0.0, 2.0, 100.0]),
        reason=st.sampled_from(["", "bad"]),
    )
    def nack_in_flight(self, data, delay_s, reason):
        self.history.nack(data.draw(self.in_flight_ranges()), delay_s, reason)

    @precondition(lambda self: self.history.machine.consumers)
    @rule(
        data=st.data(),
        extended=range_lists,
        ack_timeout_s=st.sampled_from([None, 0.5, 4.0, 30.0]),
    )
    def extend(self, data, extended, ack_timeout_s):
        if self.history.model.in_flight:
            extended += data.draw(self.in_flight_ranges())
        self.history.extend(data.draw(self.consumers()), extended, ack_timeout_s)

    @precondition(lambda self: self.history.model.in_flight)
    @rule(data=st.data())
    def release(self, data):
        consumers = sorted(self.history.machine.consumers)
        released = data.draw(self.in_flight_ranges())
        self.history.release(data.draw(st.sampled_from(consumers)), released)

    @rule(held=range_lists)
    def commit_begins(self, held):
        self.history.hold(held)

    @precondition(lambda self: self.history.machine.in_flight.count)
    @rule(data=st.data())
    def commit_of_messages_in_flight_begins(self, data):
        self.history.hold(data.draw(self.in_flight_ranges()))

    @precondition(lambda self: self.history.model.held)
    @rule(data=st.data(), is_refused=st.booleans())
    def commit_is_decided(self, data, is_refused):
        held = sorted(self.history.model.held)
        some = data.draw(st.lists(st.sampled_from(held), unique=True, min_size=1))
        ranges = list(RangeSet((o, o + 1) for o in some))
        if is_refused:
            self.history.refuse_commit(ranges)
        else:
            self.history.commit(ranges)

    @rule(base=offsets, count=st.integers(1, 6))
    def commit_is_carried_out_after_a_takeover(self, base, count):
        self.history.commit([(base, base + count)])

    @rule(passed_s=st.sampled_from([0.0, 1.0, 2.0, 10.0]))
    def time_passes(self, passed_s):
        self.history.pass_time(passed_s)

    @rule(passed_s=st.sampled_from([0.5, 1.0]))
    def time_passes_unnoticed(self, passed_s):
        self.history.pass_time_unnoticed(passed_s)

    @rule(offset=st.integers(0, 40))
    def seek(self, offset):
        self.history.seek(offset)

    @precondition(lambda self: self.history.model.parked)
    @rule(base=offsets, count=st.integers(1, 90))
    def parking_succeeds(self, base, count):
        self.history.park(base, base + count)

    @precondition(lambda self: self.history.model.parked)
    @rule(base=offsets, count=st.integers(1, 90), retry_s=st.sampled_from([0.0, 3.0]))
    def parking_fails(self, base, count, retry_s):
        self.history.fail_to_park(base, base + count, retry_s)

    @rule(policy=policies)
    def policy_changes(self, policy):
        self.history.set_policy(policy)

    @rule(ack_timeout_s=st.sampled_from([1.0, 3.0, 20.0]))
    def ack_timeout_changes(self, ack_timeout_s):
        self.history.set_ack_timeout(ack_timeout_s)

    @rule(all_=st.sampled_from([None, None, 1, 7]), each=st.sampled_from([None, 1, 3]))
    def limits_change(self, all_, each):
        self.history.set_limits(all_, each)

    @rule(rate=st.sampled_from([None, None, 0.5, 4.0, 250.0]))
    def rate_changes(self, rate):
        self.history.set_rate(rate)

    @rule(is_paused=st.booleans())
    def pause(self, is_paused):
        self.history.set_paused(is_paused=is_paused)

    @invariant()
    def queries_match_the_model(self):
        if self.history is not None:
            self.history.model.check_queries(self.history.machine)

    def teardown(self):
        if self.history is not None:
            self.history.process_all()

    def consumers(self):
        return st.sampled_from(list(self.history.machine.consumers))

    def in_flight_ranges(self):
        in_flight = sorted(self.history.model.in_flight)
        one = st.tuples(st.sampled_from(in_flight), st.integers(1, 6))
        return st.lists(one.map(lambda r: (r[0], r[0] + r[1])), max_size=3)


class ExclusiveEvents(Events):
    kind = SubscriptionType.EXCLUSIVE


class FailoverEvents(Events):
    kind = SubscriptionType.FAILOVER


class SharedEvents(Events):
    kind = SubscriptionType.SHARED


class KeySharedEvents(Events):
    kind = SubscriptionType.KEY_SHARED


@pytest.mark.parametrize("kind", SubscriptionType)
def test_model_finds_that_messages_are_not_held(kind, monkeypatch):
    history = history_of(kind, 0, set(), FailurePolicy(), done_ranges_max=100)
    history.join()
    history.credit(0, 100, 10_000)
    history.add_batch(10, 1000)
    monkeypatch.setattr(
        SubscriptionMachine, "on_hold", lambda self, _, now: self._complete([], now)
    )
    held = sorted(history.model.in_flight)[:1]
    with pytest.raises(AssertionError):
        history.hold([(offset, offset + 1) for offset in held])


@pytest.mark.parametrize("kind", SubscriptionType)
def test_model_finds_that_held_messages_come_again_before_the_decision(
    kind, monkeypatch
):
    history = history_of(kind, 0, set(), FailurePolicy(), done_ranges_max=100)
    history.join()
    history.credit(0, 100, 10_000)
    history.add_batch(10, 1000)
    monkeypatch.setattr(DeferredMessages, "hold", _keep_waiting)
    held = sorted(history.model.in_flight)[:1]
    with pytest.raises(AssertionError):
        history.hold([(offset, offset + 1) for offset in held])


def _keep_waiting(messages, span):
    """Hold *span* only for a second."""
    messages.delay(span, 1.0)


_SETTINGS = settings(stateful_step_count=40)

TestExclusive = pytest.mark.slow(ExclusiveEvents.TestCase)
TestExclusive.settings = _SETTINGS
TestFailover = pytest.mark.slow(FailoverEvents.TestCase)
TestFailover.settings = _SETTINGS
TestShared = pytest.mark.slow(SharedEvents.TestCase)
TestShared.settings = _SETTINGS
TestKeyShared = pytest.mark.slow(KeySharedEvents.TestCase)
TestKeyShared.settings = _SETTINGS

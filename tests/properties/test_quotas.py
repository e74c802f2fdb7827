"""A meter passes its rate and no more; refusals are recorded or counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import QuotaExceeded
from pydanube.security.quotas import Quota, QuotaTarget
from pydanube.security.refusal_limit import (
    PER_SOURCE_MAX,
    PER_SOURCE_PER_S,
    RefusalLimit,
)
from pydanube_broker.dispatch.quota_meter import QuotaCounts, QuotaMeter
from pydanube_broker.dispatch.shared_counts import SharedCounts, bytes_of

BILLING = QuotaTarget.parse("user:billing")
RATES = st.integers(1024, 10**8)
PAUSES = st.floats(0, 5)
SIZES = st.integers(0, 10**7)


ARRIVALS = st.lists(st.tuples(PAUSES, SIZES, st.integers(0, 3)))


def check_rate(meters, rate, arrivals):
    """Let callers share *meters*; each waits for its own delay before the next."""
    free_at, now, passed = [0.0] * 4, 0.0, 0
    for pause, size, caller in arrivals:
        now = max(now + pause, free_at[caller])
        delay_s = meters[caller % len(meters)].take_in(size, now)
        assert delay_s >= 0
        passed += size
        free_at[caller] = now + delay_s
    # When the last caller may go on, everything fits into a second's burst and the
    # time that has passed.
    end = max([now, *free_at])
    assert passed <= rate * (end + 1) + rate * 1e-2


@given(rate=RATES, arrivals=ARRIVALS)
def test_callers_that_wait_stay_below_the_rate(rate, arrivals):
    meter = QuotaMeter(BILLING, QuotaCounts(), Quota(bytes_in_per_s=rate), 0.0)
    check_rate([meter], rate, arrivals)


@given(rate=RATES, arrivals=ARRIVALS)
def test_callers_of_several_processes_stay_below_the_rate_of_one(rate, arrivals):
    rows, processes = 64, 3
    memory = memoryview(bytearray(bytes_of(processes, rows)))
    quota = Quota(bytes_in_per_s=rate)
    meters = [
        QuotaMeter(
            *(BILLING, QuotaCounts(), quota, 0.0),
            SharedCounts(memory, number=number + 1, count=processes, rows=rows),
        )
        for number in range(processes)
    ]
    check_rate(meters, rate, arrivals)


@given(rate=RATES, sizes=st.lists(SIZES, min_size=1))
def test_delay_ends_exactly_when_the_charge_is_due(rate, sizes):
    meter = QuotaMeter(BILLING, QuotaCounts(), Quota(bytes_out_per_s=rate), 0.0)
    for size in sizes:
        delay_s = meter.take_out(size, 0.0)
    assert delay_s >= sum(sizes) / rate - 1 - 1e-6
    assert meter.delay_out_s(delay_s) <= 1e-6


@given(
    rates=st.lists(RATES, min_size=1),
    size=SIZES,
)
def test_changed_rate_never_makes_a_delay_negative_or_endless(rates, size):
    meter = QuotaMeter(BILLING, QuotaCounts(), Quota(bytes_in_per_s=1024), 0.0)
    meter.take_in(size, 0.0)
    for now, rate in enumerate(rates):
        meter.set_quota(Quota(bytes_in_per_s=rate), float(now))
        assert 0 <= meter.delay_in_s(float(now)) <= size / min(1024, *rates) + 1


@given(allowed=st.integers(1, 20), steps=st.lists(st.booleans()))
def test_connections_never_exceed_the_limit(allowed, steps):
    meter = QuotaMeter(BILLING, QuotaCounts(), Quota(connections=allowed), 0.0)
    expected = refused = 0
    for is_connecting in steps:
        if not is_connecting:
            if expected:
                meter.disconnect()
                expected -= 1
            continue
        try:
            meter.connect()
        except QuotaExceeded:
            refused += 1
            assert expected == allowed
        else:
            expected += 1
        assert meter.connections == expected <= allowed
    assert meter.refused_count == refused


@given(
    arrivals=st.lists(
        st.tuples(st.floats(0, 10), st.integers(0, 4)), min_size=1, max_size=300
    )
)
def test_every_refusal_is_recorded_or_counted(arrivals):
    limit, now = RefusalLimit(), 0.0
    recorded = dict.fromkeys(range(5), 0)
    for pause, source in arrivals:
        now += pause
        recorded[source] += limit.admits(source, now)
    suppressed = limit.take_suppressed()
    assert sum(recorded.values()) + sum(suppressed.values()) == len(arrivals)
    assert max(recorded.values()) <= PER_SOURCE_MAX + now * PER_SOURCE_PER_S

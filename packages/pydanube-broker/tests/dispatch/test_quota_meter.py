"""A meter delays what exceeds a rate, and refuses what exceeds a count."""

from __future__ import annotations

from collections import Counter

import pytest

from pydanube.model.errors import QuotaExceeded
from pydanube.security.quotas import Quota, QuotaScope, QuotaTarget
from pydanube_broker.dispatch.quota_meter import (
    CREDIT_BYTES_MIN,
    QuotaCounts,
    QuotaMeter,
    credit_bytes_of,
    delay_out_s,
    take_out,
)
from pydanube_broker.dispatch.shared_counts import SharedCounts, bytes_of

SHOP = QuotaTarget.parse("/shop")
BILLING = QuotaTarget.parse("user:billing")
MIB = 1024 * 1024


def meter_of(target=BILLING, **limits):
    return QuotaMeter(target, QuotaCounts(), Quota(**limits), 0.0)


def meters_of_processes(target=BILLING, **limits):
    """Return the meters of a target in two processes of one broker."""
    rows = 64
    memory = memoryview(bytearray(bytes_of(2, rows)))
    return [
        QuotaMeter(
            target,
            QuotaCounts(),
            Quota(**limits),
            0.0,
            SharedCounts(memory, number=number, count=2, rows=rows),
        )
        for number in (1, 2)
    ]


def test_meter_without_limits_delays_and_refuses_nothing():
    meter = meter_of()
    for _ in range(1000):
        assert meter.take_in(MIB, 0.0) == meter.take_out(MIB, 0.0) == 0
        assert meter.take_request(0.0) == 0
        meter.connect()
    meter.check("topics", 10**9)
    assert meter.throttled_s == 0


def test_burst_of_one_second_passes_and_the_rest_waits():
    meter = meter_of(bytes_in_per_s=MIB)
    assert meter.take_in(MIB, 0.0) == 0
    assert meter.take_in(MIB // 2, 0.0) == pytest.approx(0.5)
    assert meter.take_in(MIB // 2, 0.0) == pytest.approx(1.0)
    assert meter.delay_in_s(0.75) == pytest.approx(0.25)
    assert meter.delay_in_s(1.0) == 0
    assert meter.throttled_s == pytest.approx(1.5)


def test_directions_and_requests_are_limited_separately():
    meter = meter_of(bytes_in_per_s=1024, bytes_out_per_s=2048, requests_per_s=1)
    assert meter.take_in(2048, 0.0) == pytest.approx(1.0)
    assert meter.take_out(2048, 0.0) == 0
    assert meter.take_request(0.0) == 0
    assert meter.take_request(0.0) == pytest.approx(1.0)
    assert meter.delay_received_s(0.0) == pytest.approx(1.0)


def test_raised_quota_shortens_the_delay_and_a_removed_one_ends_it():
    meter = meter_of(bytes_in_per_s=1024)
    assert meter.take_in(101 * 1024, 0.0) == pytest.approx(100)
    meter.set_quota(Quota(bytes_in_per_s=10 * 1024), 0.0)
    assert meter.delay_in_s(0.0) == pytest.approx(10)
    meter.set_quota(Quota(), 0.0)
    assert meter.delay_in_s(0.0) == 0


def test_connections_beyond_the_limit_are_refused_until_one_is_lost():
    meter = meter_of(connections=2)
    meter.connect()
    meter.connect()
    with pytest.raises(QuotaExceeded) as refused:
        meter.connect()
    assert str(refused.value) == (
        "the quota connections of user:billing is 2, and 2 are in use: close some "
        "connections, or ask an administrator to raise it with 'danube security "
        "quotas set'"
    )
    meter.disconnect()
    meter.connect()
    assert (meter.connections, meter.refused_count) == (2, 1)


def test_lower_limit_closes_nothing():
    meter = meter_of(connections=2)
    meter.connect()
    meter.connect()
    meter.set_quota(Quota(connections=1), 0.0)
    assert meter.connections == 2
    meter.disconnect()
    with pytest.raises(QuotaExceeded):
        meter.connect()


def test_what_is_added_counts_with_the_measurement():
    meter = meter_of(SHOP, storage_bytes=100)
    meter.add("storage_bytes", 60)
    before = meter.added()
    meter.add("storage_bytes", 30)
    meter.check("storage_bytes", 10)
    meter.on_measured(Counter(storage_bytes=40), Counter(storage_bytes=25), before)
    assert meter.used("storage_bytes") == 95
    with pytest.raises(QuotaExceeded, match="shorten the retention"):
        meter.check("storage_bytes", 6)


def test_refusals_and_delays_are_counted_by_kind_of_target():
    counts = QuotaCounts()
    meter = QuotaMeter(SHOP, counts, Quota(topics=1, bytes_in_per_s=1024), 0.0)
    with pytest.raises(QuotaExceeded):
        meter.check("topics", 2)
    meter.take_in(2048, 0.0)
    assert counts.refused == {(QuotaScope.NAMESPACE, "topics"): 1}
    assert counts.throttled_s == {(QuotaScope.NAMESPACE, "bytes_in_per_s"): 1.0}


def test_longest_delay_of_several_meters_counts():
    meters = [
        meter_of(bytes_out_per_s=1024),
        meter_of(SHOP, bytes_out_per_s=2048),
        meter_of(SHOP),
    ]
    assert take_out(meters, 4096, 0.0) == pytest.approx(3)
    assert delay_out_s(meters, 1.5) == pytest.approx(1.5)
    assert take_out([], 4096, 0.0) == delay_out_s([], 0.0) == 0


def test_credit_of_a_limited_consumer_is_a_part_of_a_second():
    assert credit_bytes_of([meter_of()], 16 * MIB) == 16 * MIB
    assert credit_bytes_of([meter_of(bytes_out_per_s=8 * MIB)], 16 * MIB) == MIB
    assert credit_bytes_of([meter_of(bytes_out_per_s=1024)], 16 * MIB) == (
        CREDIT_BYTES_MIN
    )


def test_rate_of_processes_is_one_rate():
    first, second = meters_of_processes(bytes_in_per_s=MIB)
    assert first.take_in(MIB, 0.0) == 0
    assert second.take_in(MIB // 2, 0.0) == pytest.approx(0.5)
    assert first.delay_in_s(0.0) == pytest.approx(0.5)
    assert second.take_in(0, 0.5) == 0


def test_idle_process_finds_no_debt_of_those_that_kept_to_the_rate():
    first, second = meters_of_processes(bytes_in_per_s=MIB)
    for second_passed in range(60):
        assert first.take_in(MIB, float(second_passed)) == 0
    assert second.take_in(MIB // 4, 60.0) == 0


def test_connections_of_processes_have_one_limit():
    first, second = meters_of_processes(connections=2)
    first.connect()
    second.connect()
    for meter in (first, second):
        with pytest.raises(QuotaExceeded, match="is 2, and 2 are in use"):
            meter.connect()
        assert meter.used("connections") == 2
    second.disconnect()
    first.connect()


def test_stored_bytes_of_processes_add_up_between_measurements():
    first, second = meters_of_processes(SHOP, storage_bytes=100)
    for meter, unsealed in ((first, 10), (second, 20)):
        before = meter.added()
        # Segments are known to both, and what is not sealed only to the owner.
        meter.on_measured(
            Counter(storage_bytes=30), Counter(storage_bytes=unsealed), before
        )
    assert first.used("storage_bytes") == second.used("storage_bytes") == 60
    first.add("storage_bytes", 35)
    assert second.used("storage_bytes") == 95
    with pytest.raises(QuotaExceeded, match="95 are in use"):
        second.check("storage_bytes", 6)

"""The verdicts of `danube doctor`."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pydanube.cli import findings
from pydanube.cli.findings import Verdict
from pydanube.model.clusters import ClusterBroker, ClusterDescription
from pydanube.model.descriptions import StorageDescription
from pydanube.model.subscription_lag import SubscriptionLag
from pydanube.model.version import __version__

GIB = 1024**3
NOW = datetime(2026, 11, 1, tzinfo=UTC)
STORAGE = StorageDescription(remote_url="", local_bytes=10)
LAG = SubscriptionLag(
    topic="/default/a",
    subscription="s",
    lag=1,
    byte_count=1,
    age_s=5.0,
    in_flight=0,
    consumers=1,
    blocked_by=(),
)


@pytest.mark.parametrize(
    ("finding", "verdict"),
    [
        (findings.disk_latency("/d", [0.001, 0.5, 0.001]), Verdict.OK),
        (findings.disk_latency("/d", [0.02]), Verdict.WARNING),
        (findings.disk_latency("/d", [0.2]), Verdict.PROBLEM),
        (findings.free_space("/d", 10 * GIB, 99 * GIB), Verdict.OK),
        (findings.free_space("/d", 9 * GIB, 99 * GIB), Verdict.WARNING),
        (findings.free_space("/d", GIB - 1, 99 * GIB), Verdict.PROBLEM),
        (findings.open_files(16_384), Verdict.OK),
        (findings.open_files(16_383), Verdict.WARNING),
        (findings.open_files(1024), Verdict.PROBLEM),
        (findings.memory(3 * GIB, GIB), Verdict.OK),
        (findings.memory(2 * GIB, GIB), Verdict.WARNING),
        (findings.memory(GIB // 2, GIB), Verdict.PROBLEM),
        (findings.event_loop(has_uvloop=True), Verdict.OK),
        (findings.event_loop(has_uvloop=False), Verdict.WARNING),
        (findings.certificate("c", NOW + timedelta(days=31), NOW), Verdict.OK),
        (findings.certificate("c", NOW + timedelta(days=29), NOW), Verdict.WARNING),
        (findings.certificate("c", NOW, NOW), Verdict.PROBLEM),
        (findings.broker_version(f"pydanube {__version__}", 0.001), Verdict.OK),
        (findings.broker_version("pydanube 0.0.1", 0.001), Verdict.WARNING),
        (findings.readiness(is_ready=True, reasons=[]), Verdict.OK),
        (findings.readiness(is_ready=True, reasons=["x"]), Verdict.WARNING),
        (findings.readiness(is_ready=False, reasons=["x"]), Verdict.PROBLEM),
        (findings.clock(-3.0), Verdict.OK),
        (findings.clock(-3.1), Verdict.WARNING),
        (findings.storage("", STORAGE), Verdict.OK),
        (
            findings.storage("", replace(STORAGE, backlog_age_s=3601.0)),
            Verdict.WARNING,
        ),
        (findings.storage("", replace(STORAGE, is_refusing=True)), Verdict.PROBLEM),
        (findings.storage("", replace(STORAGE, problems=("x",))), Verdict.PROBLEM),
        (findings.subscriptions([]), Verdict.OK),
        (
            findings.subscriptions([LAG, replace(LAG, blocked_by=("paused",))]),
            Verdict.OK,
        ),
        (findings.subscriptions([LAG, replace(LAG, age_s=3601.0)]), Verdict.WARNING),
        (
            findings.subscriptions([replace(LAG, blocked_by=("paused", "message 5"))]),
            Verdict.PROBLEM,
        ),
    ],
)
def test_verdict(finding: findings.Finding, verdict: Verdict) -> None:
    assert finding.verdict is verdict
    assert finding.found
    assert finding.advice or verdict is Verdict.OK


def test_messages_that_cannot_be_dead_lettered_are_not_said_to_stop_deliveries() -> (
    None
):
    waits = ("dead letters of /default/a-part-0",)
    finding = findings.subscriptions([replace(LAG, blocked_by=waits)])
    assert finding.verdict is Verdict.PROBLEM
    assert "cannot copy failed messages" in finding.found
    both = replace(LAG, blocked_by=(*waits, "message 5"))
    assert "deliver nothing" in findings.subscriptions([both]).found


def test_clock_says_which_one_is_ahead() -> None:
    assert "ahead of this machine" in findings.clock(60.0).found
    assert "behind this machine" in findings.clock(-60.0).found


def test_shards_that_are_not_served_are_a_problem() -> None:
    brokers = (ClusterBroker(broker_id="a"), ClusterBroker(broker_id="b"))
    served = ClusterDescription(brokers=brokers, shard_count=8)
    assert findings.cluster(served).found == "a, b serve all 8 shards"
    unserved = findings.cluster(replace(served, unserved_count=2))
    assert unserved.verdict is Verdict.PROBLEM
    assert unserved.found == "2 of 8 shards are not served"


def test_only_the_first_subscriptions_are_named() -> None:
    late = [replace(LAG, subscription=f"s{number}", age_s=7200.0) for number in "1234"]
    found = findings.subscriptions(late).found
    assert "s3 of /default/a and others" in found
    assert "s4" not in found

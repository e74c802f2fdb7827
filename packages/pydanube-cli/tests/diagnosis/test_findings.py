"""The verdicts of `danube doctor`."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pydanube.client.operations.connectors import StoredConnectorList
from pydanube.model.clusters import ClusterBroker, ClusterDescription
from pydanube.model.descriptions import StorageDescription
from pydanube.model.findings import FindingKind, Findings, SubscriptionFinding
from pydanube.model.stored_connectors import ConnectorReport, StoredConnector
from pydanube.model.version import __version__
from pydanube_cli.diagnosis import findings
from pydanube_cli.diagnosis.findings import Verdict

GIB = 1024**3
NOW = datetime(2026, 11, 1, tzinfo=UTC)
STORAGE = StorageDescription(remote_url="", local_bytes=10)


def lagging(*kinds, topic_count=5, measured=5):
    """The finding on subscriptions with which *kinds* are wrong."""
    found = tuple(
        SubscriptionFinding(
            topic="/default/a", subscription=f"s{number}", kind=kind, text="x"
        )
        for number, kind in enumerate(kinds, 1)
    )
    return findings.subscriptions(
        Findings(
            subscriptions=found,
            finding_count=len(found),
            problem_count=sum(each.is_problem for each in kinds),
            topic_count=measured,
            subscription_count=9,
        ),
        topic_count,
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
        (lagging(), Verdict.OK),
        (lagging(FindingKind.PAUSED), Verdict.OK),
        (lagging(FindingKind.LATE), Verdict.WARNING),
        (lagging(FindingKind.LATE, FindingKind.BLOCKED), Verdict.PROBLEM),
        (lagging(FindingKind.CORRUPT_SEGMENT), Verdict.PROBLEM),
    ],
)
def test_verdict(finding: findings.Finding, verdict: Verdict) -> None:
    assert finding.verdict is verdict
    assert finding.found
    assert finding.advice or verdict is Verdict.OK


def test_messages_that_cannot_be_dead_lettered_are_not_said_to_stop_deliveries() -> (
    None
):
    finding = lagging(FindingKind.DEAD_LETTERS)
    assert finding.verdict is Verdict.PROBLEM
    assert "1 cannot copy failed messages" in finding.found
    both = lagging(FindingKind.DEAD_LETTERS, FindingKind.BLOCKED)
    assert "1 deliver nothing: s2 of /default/a" in both.found


def test_topics_that_are_not_examined_are_counted() -> None:
    found = lagging(topic_count=5018, measured=18).found
    assert found == (
        "9, none of which is blocked or late; 5,000 topics are not open, and not "
        "examined"
    )


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
    found = lagging(*[FindingKind.LATE] * 4).found
    assert "s3 of /default/a and others" in found
    assert "s4" not in found


def stored_connector(name, **report):
    told = None
    if report:
        told = ConnectorReport(
            connector=name, worker="w", revision=1, reported_at=1, **report
        )
    return StoredConnector(
        name=name, kind="k", topic="/default/a", revision=1, report=told
    )


def test_connectors_with_problems_are_named_with_the_reason():
    found = findings.connectors(
        StoredConnectorList(
            connectors=(
                stored_connector("a", state="running"),
                stored_connector("b", state="failed", error="no such table"),
                stored_connector("c"),
            ),
            now=2,
        )
    )
    assert found.verdict is Verdict.PROBLEM
    assert found.found.startswith("2 of 3 stored: b: it has failed at the worker w: no")
    assert "c: no worker has run it" in found.found


def test_connectors_that_run_are_counted():
    running = stored_connector("a", state="running")
    found = findings.connectors(StoredConnectorList(connectors=(running,), now=2))
    assert (found.verdict, found.found) == (
        Verdict.OK,
        "1 stored, none of which has a problem",
    )

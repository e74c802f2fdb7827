"""The overview reports what does not work, and nothing else."""

from pydanube.model.clusters import BrokerMode, ClusterBroker, ClusterDescription
from pydanube.model.descriptions import StorageDescription
from pydanube.model.findings import FindingKind, Findings, SubscriptionFinding
from pydanube_console.pure.attention import SHOWN_MAX, concerns_of


def finding(name, kind, text):
    return SubscriptionFinding(
        topic="/default/t", subscription=name, kind=kind, text=text
    )


def texts(*found, storages=None, cluster=None, finding_count=None):
    problems = sum(each.kind.is_problem for each in found)
    findings = Findings(
        subscriptions=found,
        finding_count=len(found) if finding_count is None else finding_count,
        problem_count=problems,
    )
    found = concerns_of(findings, storages or {}, cluster)
    return [(each.kind, each.text) for each in found]


def test_nothing_wrong_is_no_concern():
    assert texts() == []


def test_blocked_subscription_comes_before_late_ones():
    late = finding("s", FindingKind.LATE, "is 1h behind")
    blocked = finding("b", FindingKind.BLOCKED, "is blocked by message 3")
    assert texts(late, blocked) == [
        ("bad", "b of /default/t is blocked by message 3"),
        ("warn", "s of /default/t is 1h behind"),
    ]


def test_concerns_that_are_not_shown_are_counted():
    late = finding("s", FindingKind.LATE, "is 1h behind")
    found = texts(*[late] * SHOWN_MAX, finding_count=SHOWN_MAX + 1200)
    assert len(found) == SHOWN_MAX + 1
    assert found[-1][1].startswith("1,200 more need attention")


def test_storage_and_brokers_are_reported():
    storage = StorageDescription(
        remote_url="s3://x",
        local_bytes=0,
        backlog_bytes=1024,
        is_refusing=True,
        problems=("the disk is full",),
    )
    cluster = ClusterDescription(
        brokers=(ClusterBroker(broker_id="b", mode=BrokerMode.DRAINED),),
        shard_count=4,
        unserved_count=2,
    )
    found = texts(storages={"a": storage}, cluster=cluster)
    assert found == [
        ("bad", "broker a: the disk is full"),
        ("bad", "broker a refuses to publish until 1.0 KiB are uploaded"),
        ("bad", "no broker serves 2 shards"),
        ("warn", "broker b is drained"),
    ]

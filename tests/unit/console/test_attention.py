"""The overview reports what does not work, and nothing else."""

from dataclasses import replace

from pydanube.console.attention import concerns_of
from pydanube.model.clusters import BrokerMode, ClusterBroker, ClusterDescription
from pydanube.model.descriptions import StorageDescription
from support.descriptions import SUBSCRIPTION, TOPIC

NOW = 10_000_000_000


def texts(*subscriptions, storages=None, cluster=None):
    topic = replace(TOPIC, subscriptions=subscriptions)
    found = concerns_of([topic], storages or {}, cluster, NOW)
    return [(each.kind, each.text) for each in found]


def test_healthy_subscription_is_no_concern():
    assert texts(SUBSCRIPTION) == []


def test_blocked_subscription_comes_before_late_ones():
    late = replace(SUBSCRIPTION, oldest_publish_time=NOW - 3_600_000_000)
    blocked = replace(SUBSCRIPTION, subscription="b", blocked=((3, 4),))
    paused = replace(SUBSCRIPTION, subscription="p", is_paused=True)
    found = texts(late, blocked, paused)
    assert found[0] == ("bad", "b of /default/t is blocked by message 3")
    assert ("warn", "p of /default/t is paused, and 5 messages wait") in found
    assert (
        "warn",
        "s of /default/t is 1h behind, with 5 messages and no consumer",
    ) in found


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

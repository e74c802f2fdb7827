"""Tests of the terminal view of the cluster demo."""

from pathlib import Path

from rich.console import Console

from examples.demo.cluster_ledger import TopicLedger
from examples.demo.cluster_processes import ClusterBroker
from examples.demo.cluster_view import view
from pydanube.model.clusters import ClusterBroker as Described
from pydanube.model.clusters import ClusterDescription


def shown(topics, owners, cluster, now):
    broker = ClusterBroker("one", Path("data"), Path("out"), "http://e", "file:///s")
    console = Console(width=100)
    with console.capture() as captured:
        console.print(
            view([broker], topics, owners, cluster, now=now, step="a step follows")
        )
    return captured.get()


def test_owners_and_counts_are_shown():
    topic = TopicLedger("/default/t7")
    for number in range(4):
        topic.on_acknowledged(1.0 + number / 10, "one")
    topic.on_delivered(0, 1.1)
    cluster = ClusterDescription(
        brokers=(Described(broker_id="one", shard_count=256),), shard_count=256
    )
    text = shown([topic], {"/default/t7": "one"}, cluster, 1.4)
    for each in ("killed", "256", "t7", "4 messages acknowledged", "3 on their way"):
        assert each in text
    assert "waiting for a broker: no topic" in text
    assert "a step follows" in text


def test_topics_without_acknowledgements_wait():
    topic = TopicLedger("/default/t7")
    topic.on_acknowledged(1.0, "one")
    assert "waiting for a broker: t7" in shown([topic], {}, None, 9.0)

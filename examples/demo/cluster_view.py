"""The terminal view of the cluster demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from examples.demo.cluster_ledger import rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from examples.demo.cluster_ledger import TopicLedger
    from examples.demo.cluster_processes import ClusterBroker
    from pydanube.model.clusters import ClusterDescription

RATE_WINDOW_S = 2.0
WAITING_S = 0.5
"""A topic without an acknowledgement for this time is shown as waiting."""


def view(
    brokers: Sequence[ClusterBroker],
    topics: Sequence[TopicLedger],
    owners: Mapping[str, str],
    cluster: ClusterDescription | None,
    *,
    now: float,
    step: str,
) -> RenderableType:
    """
    Return what the terminal shows.

    *owners* are the names of the brokers that serve the topics, as the client knows
    them, *cluster* is the description of the cluster that arrived last, and *step* is
    what the demo does.
    """
    table = Table("Broker", "State", "Shards", "Topics", "Acknowledged/s")
    described = {} if cluster is None else {e.broker_id: e for e in cluster.brokers}
    for broker in brokers:
        own = [topic for topic in topics if owners.get(topic.name) == broker.name]
        found = described.get(broker.name)
        rates = [
            sum(
                owner == broker.name
                for owner in topic.owners[len(topic.owners) - count :]
            )
            for topic in topics
            if (count := _recent(topic, now))
        ]
        state = "[green]running" if broker.is_running else "[red]killed"
        if found is not None and found.is_controller and broker.is_running:
            state += ", controller"
        table.add_row(
            broker.name,
            state,
            "" if found is None else str(found.shard_count),
            f"{len(own)}  {_names(own)}",
            f"{sum(rates) / RATE_WINDOW_S:,.0f}",
        )
    acknowledged = sum(len(topic.acknowledged) for topic in topics)
    delivered = sum(min(len(t.delivered), len(t.acknowledged)) for t in topics)
    waiting = [
        topic
        for topic in topics
        if topic.acknowledged and now - topic.acknowledged[-1] > WAITING_S
    ]
    skipped = sum(topic.skipped for topic in topics)
    again = sum(topic.redelivered for topic in topics)
    lines = (
        f"{acknowledged:,} messages acknowledged",
        f"{delivered:,} of them delivered, {acknowledged - delivered:,} on their way",
        f"{skipped:,} missing among the delivered, {again:,} delivered again",
        f"waiting for a broker: {_names(waiting) or 'no topic'}",
        step,
    )
    return Group(table, *map(Text, lines))


def _recent(topic: TopicLedger, now: float) -> int:
    return round(rate(topic.acknowledged, now, RATE_WINDOW_S) * RATE_WINDOW_S)


def _names(topics: Sequence[TopicLedger]) -> str:
    return " ".join(topic.name.rpartition("/")[2] for topic in topics)

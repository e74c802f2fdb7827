"""The samples that a console takes of its brokers, while somebody looks at them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from pydanube.client.client import Client
from pydanube.client.described_topics import describe_all
from pydanube.model.activity import Sample
from pydanube.model.clusters import ClusterBroker, ClusterDescription
from pydanube.model.descriptions import StorageDescription, TopicDescription
from pydanube.model.errors import PermissionDenied
from pydanube.model.findings import Findings
from pydanube.model.subscription_lag import lags_of
from pydanube_console.polling import Poller
from pydanube_console.pure.dead_letter_counts import (
    count_dead_letters,
    dead_letter_topics,
)
from pydanube_console.pure.history import History

T = TypeVar("T")

TOPICS_MAX = 1000
"""Further topics are listed and counted, but have no charts of their own."""

DEAD_LETTER_TOPICS_MAX = 200
"""The most dead-letter topics beyond ``TOPICS_MAX`` whose messages are counted."""

NO_STORAGE = StorageDescription(remote_url="", local_bytes=0)


class Monitor(Poller):
    """Samples of what one user may see."""

    def __init__(self, client: Client, *, topics_max: int = TOPICS_MAX) -> None:
        super().__init__()
        self.history = History()
        self.storages: dict[str, StorageDescription] = {}
        """By broker; empty if the user may not know."""
        self.cluster: ClusterDescription | None = None
        """Without a cluster, the only broker; None: the user may not know."""
        self.names: list[str] = []
        """All topics and partitions."""
        self.findings = Findings()
        """The problems of subscriptions, and totals."""
        self.dead_letters: Mapping[str, int] = {}
        """How many wait in each dead-letter topic."""
        self._client = client
        self._topics_max = topics_max

    @property
    def unmeasured(self) -> int:
        """How many topics and partitions no broker has examined."""
        return max(0, len(self.names) - self.findings.topic_count)

    async def take(self) -> None:
        """Take a sample."""
        client = self._client
        names = sorted(await client.topics.list())
        found = await describe_all(client, names[: self._topics_max])
        findings = await client.cluster.list_findings()
        storages = await _if_permitted(client.storage.describe_all()) or {}
        cluster = await _if_permitted(client.cluster.describe())
        if cluster is not None and not cluster.brokers:
            broker = await client.cluster.describe_broker()
            alone = ClusterBroker(broker_id=broker.broker_id, url=broker.url)
            cluster = ClusterDescription(brokers=(alone,))
            storages = dict(zip([broker.broker_id], storages.values(), strict=False))
        self.storages, self.cluster = storages, cluster
        self.names, self.findings = names, findings
        self.dead_letters = await self._count_dead_letters(found, findings)
        self.history.add(
            Sample(
                taken_at=time.monotonic(),
                topics=found,
                topic_count=len(names),
                storage=next(iter(self.storages.values()), NO_STORAGE),
                totals=findings,
            ),
            lags_of(found, time.time_ns() // 1000),
        )

    async def _count_dead_letters(
        self, found: Sequence[TopicDescription], findings: Findings
    ) -> Mapping[str, int]:
        # The brokers also know the policies of topics beyond the measured ones.
        named = {each.dead_letter_topic for each in findings.dead_letter_routes}
        # Those that the user may not see, or that do not exist yet, are not counted.
        wanted = (dead_letter_topics(found) | named) & set(self.names)
        measured = [each for each in found if each.topic in wanted]
        others = sorted(wanted - {each.topic for each in measured})
        described = await describe_all(self._client, others[:DEAD_LETTER_TOPICS_MAX])
        return count_dead_letters([*measured, *described])


async def _if_permitted(request: Awaitable[T]) -> T | None:
    try:
        return await request
    except PermissionDenied:
        return None

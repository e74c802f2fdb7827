"""Making topics from their records, logs and subscriptions."""

from __future__ import annotations

from collections.abc import Callable

from pydanube.model.names import TopicName
from pydanube_broker.broker.delivery.counts import Counts
from pydanube_broker.broker.governance.namespaces import Namespaces
from pydanube_broker.broker.publishing.topic import DirectTopic, ReliableTopic, Topic
from pydanube_broker.broker.publishing.tracing import Tracing
from pydanube_broker.broker.topics.subscription_store import SubscriptionStore
from pydanube_broker.broker.topics.topic_records import apply_records
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.metadata.records import TopicRecord
from pydanube_broker.storage.segments.topic_log import TopicLog


class TopicLoader:
    """Makes topics: those that are opened, and those that are only looked at."""

    def __init__(
        self,
        *,
        namespaces: Namespaces,
        subscriptions: SubscriptionStore,
        schemas: TopicSchemas,
        counts: Counts,
        clock: Callable[[], float],
        wall_clock_us: Callable[[], int],
        tracing: Tracing | None = None,
    ) -> None:
        self._namespaces = namespaces
        self._subscriptions = subscriptions
        self._schemas = schemas
        self._counts = counts
        self._clock = clock
        self._wall_clock_us = wall_clock_us
        self._tracing = tracing

    async def load(
        self,
        name: TopicName,
        record: TopicRecord,
        topic_log: TopicLog | None,
        *,
        is_new: bool = False,
    ) -> Topic:
        """
        Return a topic with its subscriptions and settings.

        *topic_log* is None if it is not reliable.  One that *is_new* has no
        subscriptions yet.
        """
        namespace = (await self._namespaces.find(name.namespace)).value
        topic: Topic
        if topic_log is None:
            topic = DirectTopic(name, record, self._counts, self._clock, self._tracing)
        else:
            topic = ReliableTopic(
                name,
                record,
                self._counts,
                self._clock,
                self._tracing,
                topic_log=topic_log,
                wall_clock_us=self._wall_clock_us,
            )
            await self._subscriptions.load(topic, is_new=is_new)
        apply_records(topic, record, namespace, self._schemas)
        return topic

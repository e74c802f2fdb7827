"""
Recording new topics in the metadata store.

A topic's record needs the next topic id, so all brokers change one key for each topic
that they create.  Topics that are created at the same time at one broker share
transactions: while one is made, further topics wait for the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import BrokerError, QuotaExceeded, RevisionConflict
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import NamespaceName, TopicName
from pydanube.model.policy import NamespacePolicy, TopicPolicy
from pydanube.model.schemas import TopicSchema
from pydanube_broker.broker.governance.namespaces import Namespaces
from pydanube_broker.broker.governance.quotas import Quotas
from pydanube_broker.cluster.pure.shard_topics import shard_of
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import NamespaceRecord, TopicRecord
from pydanube_broker.metadata.store import (
    ABSENT,
    Comparison,
    MetadataStore,
    Operation,
    Put,
    Stored,
    Unchanged,
    unchanged,
)

log = logging.getLogger(__name__)

TOGETHER_MAX = 40
"""How many topics one transaction records; each needs three comparisons, and etcd by
default accepts 128."""

RECORDING_STEPS = 4
"""The steps of ``LongWork`` for the record of a topic."""

NAMESPACES_KNOWN_MAX = 1000
"""The number of namespaces whose records are remembered."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that is to be recorded."""

    name: TopicName
    policy: TopicPolicy
    limits: NamespacePolicy | None = None
    schema: TopicSchema | None = None


_Waiting = tuple[NewTopic, "asyncio.Future[TopicRecord | None]"]


class TopicRecording:
    """Records the new topics of one broker."""

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        wall_clock_us: Callable[[], int],
        *,
        tasks: asyncio.TaskGroup,
        quotas: Quotas | None,
        shard_count: int | None,
    ) -> None:
        """*shard_count* is the number of shards, if the broker is in a cluster."""
        self.lock = asyncio.Lock()
        """Held while topics are recorded, because they would conflict otherwise."""
        self._store = store
        self._namespaces = namespaces
        self._wall_clock_us = wall_clock_us
        self._tasks = tasks
        self._quotas = quotas
        self._shard_count = shard_count
        self._waiting: deque[_Waiting] = deque()
        self._is_running = False
        # What was read or written last.  Transactions compare these records, so they
        # may be out of date; then they are read again.
        self._last_id: Stored[int] | None = None
        self._known: dict[NamespaceName, Stored[NamespaceRecord]] = {}

    async def try_record(self, new: NewTopic) -> TopicRecord | None:
        """
        Record a topic without a schema, together with others that wait.

        Returns: Its record; None if it has to be recorded alone, because its name or
            that of another topic is taken.

        Cancellation: The topic is recorded or not.

        Raises:
            NamespaceNotFound: Its namespace does not exist.
        """
        outcome: asyncio.Future[TopicRecord | None]
        outcome = asyncio.get_running_loop().create_future()
        self._waiting.append((new, outcome))
        if not self._is_running:
            self._is_running = True
            self._tasks.create_task(self._record_waiting(), name="record topics")
        return await outcome

    def has_quota(self, namespace: NamespaceName) -> bool:
        """Return whether the number of topics in *namespace* is limited."""
        return self._quotas is not None and bool(self._quotas.topics_max(namespace))

    async def record(
        self,
        topics: Sequence[NewTopic],
        conditions: Sequence[Comparison],
        operations: Sequence[Operation],
    ) -> list[TopicRecord]:
        """
        Record *topics*, which are in one namespace, if none of the names is taken.

        The caller has ``lock``.

        Raises:
            RevisionConflict: A name is taken, or a condition does not hold.
            NamespaceNotFound: The namespace does not exist.
            QuotaExceeded: The namespace cannot have so many topics.
        """
        namespace = topics[0].name.namespace
        last, self._last_id = self._last_id, None
        of_namespace = self._known.pop(namespace, None)
        if of_namespace is None or last is None:
            of_namespace = await self._namespaces.find(namespace)
            last = await self._store.get(keys.LAST_TOPIC_ID)
        last_id = 0 if last is None else last.value
        await self._check_quota(namespace, len(topics))
        now = self._wall_clock_us()
        records: dict[TopicName, TopicRecord] = {}
        absent, puts = list[Comparison](), list[Operation]()
        work = LongWork()
        for topic_id, new in enumerate(topics, last_id + 1):
            name, shard = new.name, self._shard_of(new.name)
            records[name] = record = TopicRecord(
                topic_id=topic_id,
                policy=new.policy,
                created_at=now,
                limits=new.limits,
                schema=new.schema,
                shard=shard,
            )
            absent += [
                Unchanged(key(name), ABSENT)
                for key in (keys.topic, keys.partitioned_topic, keys.deleted_topic)
            ]
            puts.append(Put(keys.topic(name), record))
            if shard is not None:
                puts.append(Put(keys.SHARD_TOPICS.key(shard, topic_id), str(name)))
            await work.did(RECORDING_STEPS)
        revision = await self._store.transaction(
            [
                unchanged(keys.NAMESPACES.key(namespace), of_namespace),
                unchanged(keys.LAST_TOPIC_ID, last),
                *absent,
                *conditions,
            ],
            [*puts, Put(keys.LAST_TOPIC_ID, last_id + len(topics)), *operations],
        )
        self._last_id = Stored(last_id + len(topics), revision)
        if len(self._known) < NAMESPACES_KNOWN_MAX:
            self._known[namespace] = of_namespace
        _log_created(topics)
        return list(records.values())

    async def _record_waiting(self) -> None:
        try:
            while self._waiting:
                async with self.lock:
                    await self._record_next()
        finally:
            self._is_running = False
            for _, outcome in self._waiting:
                outcome.cancel()
            self._waiting.clear()

    async def _record_next(self) -> None:
        """Record the topics that have waited longest, if there are no conflicts."""
        # By name, because a name can be asked for twice.
        group: dict[TopicName, _Waiting] = {}
        while self._waiting and len(group) < TOGETHER_MAX:
            name = self._waiting[0][0].name
            first = next(iter(group), name)
            if name in group or name.namespace != first.namespace:
                break
            group[name] = self._waiting.popleft()
        topics = [new for new, _ in group.values()]
        outcomes = [outcome for _, outcome in group.values()]
        try:
            records = await self._try_together(topics)
        except BrokerError as error:
            for outcome in outcomes:
                if not outcome.done():
                    outcome.set_exception(error)
            return
        except asyncio.CancelledError:
            for outcome in outcomes:
                outcome.cancel()
            raise
        for outcome, record in zip(outcomes, records, strict=True):
            if not outcome.done():
                outcome.set_result(record)

    async def _try_together(
        self, topics: Sequence[NewTopic]
    ) -> Sequence[TopicRecord | None]:
        # What was known may have been out of date the first time.
        for _ in range(2):
            try:
                return await self.record(topics, [], [])
            except RevisionConflict:
                continue
            except QuotaExceeded:
                break
        return [None] * len(topics)

    def _shard_of(self, name: TopicName) -> int | None:
        if self._shard_count is None:
            return None
        return shard_of(name, self._shard_count)

    async def _check_quota(self, namespace: NamespaceName, more: int) -> None:
        """Raise if *namespace* cannot have *more* topics, in whichever brokers."""
        # A concurrent creation conflicts, because it also changes the last topic id.
        if self._quotas is None:
            return
        topics_max = self._quotas.topics_max(namespace)
        if topics_max:
            prefix = keys.TOPICS.within(namespace)
            present = len(await self._store.scan(prefix, limit=topics_max))
            self._quotas.check_new_topics(namespace, present, more)


def _log_created(topics: Sequence[NewTopic]) -> None:
    first, last = topics[0], topics[-1]
    if first is not last and first.name.split_partition() is not None:
        log.info(
            "created %d %s partitions, %s to %s",
            len(topics),
            _kind_of(first),
            first.name,
            last.name,
        )
        return
    for each in topics:
        log.info("created the %s topic %s", _kind_of(each), each.name)


def _kind_of(topic: NewTopic) -> str:
    return "reliable" if topic.policy.is_reliable else "non-reliable"

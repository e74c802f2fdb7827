"""
The catalog of topics in the metadata store: names, ids and configuration.

Every change is one transaction: all partitions of a topic appear and disappear
together, for readers and after crashes.  The transaction compares the records on which
it rests, because another broker may change them concurrently.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import (
    AlreadyExists,
    InvalidRequest,
    RevisionConflict,
    SchemaNotFound,
    TopicFenced,
    TopicNotFound,
    Unavailable,
)
from pydanube.model.ids import TopicId
from pydanube.model.names import NamespaceName, TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.model.schemas import TopicSchema
from pydanube_broker.broker.governance.namespaces import Namespaces
from pydanube_broker.broker.governance.quotas import Quotas
from pydanube_broker.broker.governance.topic_recording import NewTopic, TopicRecording
from pydanube_broker.broker.pure.limits import check_policy
from pydanube_broker.broker.pure.partitions import (
    check_count,
    has_partition,
    names_of,
    numbers_of,
    with_partition,
    with_partition_count,
)
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import Key, Prefix
from pydanube_broker.metadata.records import (
    DeletedTopicRecord,
    PartitionedTopicRecord,
    SubjectRecord,
    TopicRecord,
)
from pydanube_broker.metadata.store import (
    ABSENT,
    OPERATIONS_MAX,
    Comparison,
    Delete,
    MetadataStore,
    Operation,
    Put,
    Stored,
    Unchanged,
    retry_on_conflict,
    unchanged,
)

log = logging.getLogger(__name__)


REMOVED_AT_ONCE = OPERATIONS_MAX // 4
"""The most partitions whose records one transaction deletes: each has three."""
REMOVAL_WAIT_S = 10.0
"""How long the deletion of a topic waits for the broker that serves the topic."""


RECORD_SETTINGS = frozenset({"limits", "schema"})
"""The settings of a topic that are not in its policy."""


class Catalog:
    """The records of topics and partitioned topics in the metadata store."""

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        wall_clock_us: Callable[[], int],
        *,
        tasks: asyncio.TaskGroup,
        quotas: Quotas | None = None,
        shard_count: int | None = None,
    ) -> None:
        """*shard_count* is the number of shards, if the broker is in a cluster."""
        self._store = store
        self._recording = TopicRecording(
            store,
            namespaces,
            wall_clock_us,
            tasks=tasks,
            quotas=quotas,
            shard_count=shard_count,
        )
        self._namespaces = namespaces
        self._wall_clock_us = wall_clock_us

    # Creating.

    async def create(
        self, name: TopicName, policy: TopicPolicy, schema: TopicSchema | None = None
    ) -> TopicRecord:
        """
        Record a topic, or a partition of its base name; see ``Topics.create``.

        Returns: The record of the topic.

        Raises:
            AlreadyExists: The name is taken, its base name is a topic without
                partitions, or the other partitions have another policy.
            InvalidRequest: A setting of the policy is out of range.
            QuotaExceeded: Its namespace has as many topics as allowed.
        """
        policy.check()
        is_plain = schema is None and name.split_partition() is None
        if is_plain and not self._recording.has_quota(name.namespace):
            found = await self._recording.try_record(NewTopic(name, policy))
            if found is not None:
                return found
        async with self._recording.lock:
            return await retry_on_conflict(
                partial(self._try_create, name, policy, schema)
            )

    async def _try_create(
        self, name: TopicName, policy: TopicPolicy, schema: TopicSchema | None
    ) -> TopicRecord:
        await self._check_name_is_free(name)
        new = PartitionedTopicRecord(
            partitions=0,
            policy=policy,
            created_at=self._wall_clock_us(),
            schema=schema,
        )
        split = name.split_partition()
        if split is None:
            return (await self._record([name], new, [], []))[0]
        base, number = split
        key = keys.partitioned_topic(base)
        stored = await self._store.get(key)
        before = new if stored is None else stored.value
        if stored is None:
            await self._check_not_a_topic(base, name)
        elif before.policy != policy:
            raise AlreadyExists(
                f"Cannot create the partition '{name}': the partitions of '{base}' "
                "have another policy"
            )
        record = with_partition(before, number)
        created = await self._record(
            [name],
            record,
            [unchanged(key, stored), Unchanged(keys.topic(base), ABSENT)],
            [Put(key, record)],
        )
        return created[0]

    async def create_partitioned(
        self,
        base: TopicName,
        partitions: int,
        policy: TopicPolicy,
        schema: TopicSchema | None = None,
        *,
        exist_ok: bool,
    ) -> None:
        """Record all partitions of *base*; see ``Topics.create_partitioned``."""
        check_count(base, partitions)
        policy.check()
        now = self._wall_clock_us()

        async def attempt() -> None:
            stored = await self._store.get(keys.partitioned_topic(base))
            if stored is None:
                await self._check_not_a_topic(base, base)
                record = PartitionedTopicRecord(
                    partitions=partitions, policy=policy, created_at=now, schema=schema
                )
                await self._grow(base, None, record)
                return
            record = stored.value
            is_same = (record.partitions, record.policy) == (partitions, policy)
            if not (exist_ok and is_same):
                raise AlreadyExists(
                    f"Topic '{base}' already exists, with {record.partitions} "
                    "partitions"
                )
            if record.missing:
                whole = msgspec.structs.replace(record, missing=())
                await self._grow(base, stored, whole)

        async with self._recording.lock:
            await retry_on_conflict(attempt)

    async def add_partitions(self, base: TopicName, partitions: int) -> None:
        """Record more partitions; see ``Topics.add_partitions``."""

        async def attempt() -> None:
            stored = await self._store.get(keys.partitioned_topic(base))
            if stored is None:
                raise TopicNotFound(f"Unable to find the partitioned topic: {base}")
            await self._grow(
                base, stored, with_partition_count(base, stored.value, partitions)
            )

        async with self._recording.lock:
            await retry_on_conflict(attempt)

    # Finding.

    async def find(self, name: TopicName) -> Stored[TopicRecord] | None:
        """Return the record of a topic, if it exists."""
        return await self._store.get(keys.topic(name))

    async def find_each(
        self, names: Sequence[TopicName]
    ) -> list[Stored[TopicRecord] | None]:
        """Return for each of *names* what ``find`` does."""
        return await self._store.get_each([keys.topic(each) for each in names])

    async def get_topic(self, name: TopicName) -> Stored[TopicRecord]:
        """
        Return the record of a topic.

        Raises:
            TopicNotFound: There is no such topic.
        """
        found = await self.find(name)
        if found is None:
            raise TopicNotFound(f"Unable to find the topic: {name}")
        return found

    async def find_partitioned(
        self, base: TopicName
    ) -> Stored[PartitionedTopicRecord] | None:
        """Return the record of a partitioned topic, if it exists."""
        return await self._store.get(keys.partitioned_topic(base))

    async def get(self, name: TopicName) -> TopicRecord | PartitionedTopicRecord:
        """
        Return the record of a topic or partitioned topic.

        Raises:
            TopicNotFound: There is no such topic.
        """
        found = await self.find(name) or await self.find_partitioned(name)
        if found is None:
            raise TopicNotFound(f"Unable to find the topic: {name}")
        return found.value

    async def records(
        self,
        namespace: NamespaceName | None = None,
        *,
        after: TopicName | None = None,
        limit: int | None = None,
    ) -> list[tuple[TopicName, TopicRecord]]:
        """
        Return the records of topics (of *namespace*), sorted by name.

        Returns up to *limit* topics, from the first one after *after* on.  Other tasks
        run in between.
        """
        prefix = keys.TOPICS if namespace is None else keys.TOPICS.within(namespace)
        behind = "" if after is None else keys.topic(after).path
        found = await self._store.scan_valid(prefix, after=behind, limit=limit)
        records, work = list[tuple[TopicName, TopicRecord]](), LongWork()
        for path, stored in found:
            records.append((_name_of(keys.TOPICS, path), stored.value))
            await work.did()
        return records

    async def names(self, namespace: NamespaceName | None = None) -> list[TopicName]:
        """Return all topics (of *namespace*), sorted by name."""
        return [name for name, _ in await self.records(namespace)]

    async def partitioned(
        self, namespace: NamespaceName | None = None
    ) -> dict[TopicName, PartitionedTopicRecord]:
        """Return the records of all partitioned topics (of *namespace*), by name."""
        every = keys.PARTITIONED_TOPICS
        prefix = (
            every if namespace is None else keys.PARTITIONED_TOPICS.within(namespace)
        )
        return {
            _name_of(every, path): stored.value
            for path, stored in await self._store.scan_valid(prefix)
        }

    async def partitions_of(self, name: TopicName) -> list[TopicName]:
        """Return the topic itself, its partitions by number, or an empty list."""
        if await self.find(name) is not None:
            return [name]
        stored = await self.find_partitioned(name)
        return [] if stored is None else names_of(name, stored.value)

    async def reliable_ids(self, name: TopicName) -> set[TopicId]:
        """
        Return the ids of the topic *name*, or of its partitions.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: It is not reliable, so it has no segments.
        """
        names = await self.partitions_of(name)
        found = [record for each in names if (record := await self.find(each))]
        if not found:
            raise TopicNotFound(f"Unable to find the topic: {name}")
        if not all(record.value.policy.is_reliable for record in found):
            raise InvalidRequest(
                f"{name} is not reliable: none of its messages are stored"
            )
        return {TopicId(record.value.topic_id) for record in found}

    async def check_not_a_partition(self, name: TopicName) -> None:
        """
        Raise if a name is a partition of a partitioned topic.

        Raises:
            InvalidRequest: It is one.
        """
        split = name.split_partition()
        if split is None:
            return
        base, number = split
        stored = await self.find_partitioned(base)
        if stored is not None and has_partition(stored.value, number):
            raise InvalidRequest(
                f"Cannot delete individual partition '{name}': delete the partitioned "
                f"topic '{base}' with all of them"
            )

    async def find_subject(self, schema: TopicSchema) -> Stored[SubjectRecord]:
        """
        Return the subject of *schema*.

        Raises:
            SchemaNotFound: There is no such subject or version.
        """
        subject = schema.subject
        stored = await self._store.get(keys.subject(subject))
        if stored is None:
            raise SchemaNotFound(
                f"Schema subject '{subject}' not found in registry: register a schema "
                "first"
            )
        versions = stored.value.versions
        if schema.version is not None and schema.version not in versions:
            raise SchemaNotFound(
                f"Schema subject '{subject}' not found in registry with version "
                f"{schema.version}"
            )
        if (schema.version_min or 0) > max(versions, default=0):
            raise SchemaNotFound(
                f"Schema subject '{subject}' not found in registry with version "
                f"{schema.version_min} or a later one"
            )
        return stored

    # Configuring.

    async def configure(
        self, name: TopicName, **settings: Any
    ) -> dict[TopicName, TopicRecord]:
        """
        Change settings of a topic or of all its partitions; see ``Topics.configure``.

        Returns: The new records of the changed topics.
        """
        if settings.get("limits") is not None:
            check_policy(settings["limits"])
        if settings.get("schema") is not None and not settings["schema"].subject:
            raise InvalidRequest("to bind a topic to a schema, name the subject")
        return await retry_on_conflict(partial(self._try_configure, name, settings))

    async def _try_configure(
        self, name: TopicName, settings: dict[str, Any]
    ) -> dict[TopicName, TopicRecord]:
        changes: dict[Key[Any], dict[str, Any]] = {}
        schema = {each: settings[each] for each in settings.keys() & {"schema"}}
        others = {each: settings[each] for each in settings.keys() - {"schema"}}
        if others:
            for key in await self._keys_of(name):
                changes[key] = others
        if schema:
            for key in await self._keys_of(await self._whole(name)):
                changes[key] = changes.get(key, {}) | schema
        conditions, operations = await self._conflict_on_subject(schema.get("schema"))
        records: dict[TopicName, TopicRecord] = {}
        for key, some in changes.items():
            stored = await self._store.get(key)
            if stored is None:
                raise RevisionConflict(f"{key} has been deleted concurrently")
            record = _with_settings(name, stored.value, some)
            conditions.append(unchanged(key, stored))
            operations.append(Put(key, record))
            if isinstance(record, TopicRecord):
                records[_name_of(keys.TOPICS, key.path)] = record
        await self._store.transaction(conditions, operations)
        return records

    async def trim(
        self, name: TopicName, topic_id: int, offset: int, *, epoch: int
    ) -> TopicRecord:
        """
        Raise the start of a topic to *offset*, unless it is there; return its record.

        *epoch* is that of its writer.

        Raises:
            TopicNotFound: It was deleted.
            TopicFenced: It has a newer writer.
        """
        return await retry_on_conflict(
            partial(self._try_trim, name, topic_id, offset, epoch)
        )

    async def _try_trim(
        self, name: TopicName, topic_id: int, offset: int, epoch: int
    ) -> TopicRecord:
        stored = await self.get_topic(name)
        record = stored.value
        if record.topic_id != topic_id:
            raise TopicNotFound(f"{name} was deleted and created again")
        if record.start_offset >= offset:
            return record
        epoch_key = keys.writer_epoch(TopicId(topic_id), record.shard)
        current = await self._store.get(epoch_key)
        if current is None or current.value != epoch:
            raise TopicFenced(f"{name} has a newer writer than epoch {epoch}")
        trimmed = msgspec.structs.replace(record, start_offset=offset)
        await self._store.transaction(
            [unchanged(keys.topic(name), stored), unchanged(epoch_key, current)],
            [Put(keys.topic(name), trimmed)],
        )
        return trimmed

    async def _keys_of(self, name: TopicName) -> list[Key[Any]]:
        """Return the keys of a topic, or of a partitioned topic and its partitions."""
        names = await self.partitions_of(name)
        if not names:
            raise TopicNotFound(f"Unable to find the topic: {name}")
        found: list[Key[Any]] = [keys.topic(each) for each in names]
        if names != [name]:
            found.append(keys.partitioned_topic(name))
        return found

    async def _whole(self, name: TopicName) -> TopicName:
        """Return the partitioned topic of a partition, or *name* itself."""
        split = name.split_partition()
        if split is not None and await self.find_partitioned(split[0]) is not None:
            return split[0]
        return name

    async def _conflict_on_subject(
        self, schema: TopicSchema | None
    ) -> tuple[list[Comparison], list[Operation]]:
        """Rewrite the subject's record, so that a concurrent deletion conflicts."""
        if schema is None:
            return [], []
        key = keys.subject(schema.subject)
        stored = await self.find_subject(schema)
        return [unchanged(key, stored)], [Put(key, stored.value)]

    # Deleting.

    async def remove(
        self,
        topics: Sequence[tuple[TopicName, Stored[TopicRecord]]],
        partitioned: tuple[TopicName, Stored[PartitionedTopicRecord]] | None,
    ) -> None:
        """
        Delete the records of topics, and of the partitioned topic that they form.

        Reliable topics are recorded as deleted until ``forget_content``.

        Many partitions are deleted in several transactions, the last ones first.  If
        one of them fails, the topic is left without those, and can be deleted again.

        Raises:
            RevisionConflict: A record has changed meanwhile.
        """
        left = list(topics)
        while partitioned is not None and len(left) > REMOVED_AT_ONCE:
            # From the end, so that the record has one range of missing partitions.
            left, some = left[:-REMOVED_AT_ONCE], left[-REMOVED_AT_ONCE:]
            base, stored = partitioned
            partitioned = base, await self._remove_some(base, stored, some)
        conditions, operations = self._removal_of(left)
        if partitioned is not None:
            base, stored = partitioned
            conditions.append(unchanged(keys.partitioned_topic(base), stored))
            operations.append(Delete(keys.partitioned_topic(base)))
        await self._store.transaction(conditions, operations)

    async def _remove_some(
        self,
        base: TopicName,
        stored: Stored[PartitionedTopicRecord],
        partitions: Sequence[tuple[TopicName, Stored[TopicRecord]]],
    ) -> Stored[PartitionedTopicRecord]:
        """Delete the last *partitions* of *base*, and return its new record."""
        split = partitions[0][0].split_partition()
        assert split is not None, "not a partition"
        record, key = stored.value, keys.partitioned_topic(base)
        missing = [each for each in record.missing if each[0] < split[1]]
        missing.append((split[1], record.partitions))
        record = msgspec.structs.replace(record, missing=tuple(missing))
        conditions, operations = self._removal_of(partitions)
        revision = await self._store.transaction(
            [*conditions, unchanged(key, stored)], [*operations, Put(key, record)]
        )
        return Stored(record, revision)

    def _removal_of(
        self, topics: Iterable[tuple[TopicName, Stored[TopicRecord]]]
    ) -> tuple[list[Comparison], list[Operation]]:
        now = self._wall_clock_us()
        conditions: list[Comparison] = []
        operations: list[Operation] = []
        for name, stored in topics:
            topic = stored.value
            conditions.append(unchanged(keys.topic(name), stored))
            operations.append(Delete(keys.topic(name)))
            if topic.shard is not None:
                key = keys.SHARD_TOPICS.key(topic.shard, topic.topic_id)
                operations.append(Delete(key))
            if topic.policy.is_reliable:
                deleted = DeletedTopicRecord(
                    topic_id=topic.topic_id, deleted_at=now, shard=topic.shard
                )
                operations.append(Put(keys.deleted_topic(name), deleted))
        return conditions, operations

    async def wait_forgotten(self, topics: Set[TopicName], name: TopicName) -> None:
        """
        Wait until other brokers have removed the contents of *topics*.

        Until then, no topics of these names can be created.

        *name* is that of the topic or partitioned topic.

        Bounds: It waits for ``REMOVAL_WAIT_S`` at most, and logs that it gave up.
        """
        waiting = {keys.deleted_topic(each).path for each in topics}
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(REMOVAL_WAIT_S),
                self._store.watch(keys.DELETED_TOPICS) as watch,
            ):
                # The first changes have all values.
                first = await anext(watch)
                waiting &= first.values.keys() | first.damaged
                while waiting:
                    changes = (await anext(watch)).values
                    waiting -= {path for path, now in changes.items() if now is None}
        if waiting:
            log.warning("other brokers have not removed the contents of %s yet", name)

    async def forget_content(self, topic_id: TopicId, name: TopicName) -> None:
        """
        Delete the remaining records of a deleted topic without contents.

        From then on, another topic may have its *name*.
        """
        deleted = await self._store.get(keys.deleted_topic(name))
        operations: list[Operation] = []
        prefixes: list[Prefix[Any]] = [
            keys.SUBSCRIPTIONS.within(topic_id),
            keys.SETTINGS.within(topic_id),
            keys.SEGMENTS.within(topic_id),
            keys.HOLDS.within(topic_id),
        ]
        for prefix in prefixes:
            stored = await self._store.scan(prefix)
            operations += [
                Delete(prefix.key(prefix.name_of(path))) for path, _ in stored
            ]
        operations.append(Delete(keys.EPOCHS.key(topic_id)))
        for begin in range(0, len(operations), OPERATIONS_MAX):
            await self._store.transaction(
                [], operations[begin : begin + OPERATIONS_MAX]
            )
        # Last, so that an interrupted deletion continues at the next start.
        if deleted is not None and deleted.value.topic_id == topic_id:
            key = keys.deleted_topic(name)
            with suppress(RevisionConflict):
                await self._store.transaction([unchanged(key, deleted)], [Delete(key)])

    # Helpers.

    async def _check_name_is_free(self, name: TopicName) -> None:
        """Raise if a name is a topic or has partitions, or was one a moment ago."""
        if await self._store.get(keys.deleted_topic(name)) is not None:
            raise Unavailable(
                f"the contents of the deleted topic {name} are still being removed, so "
                "it cannot be created again yet; try again"
            )
        if await self.find(name) is not None:
            raise AlreadyExists(f"Topic '{name}' already exists")
        stored = await self.find_partitioned(name)
        if stored is not None:
            count = sum(1 for _ in numbers_of(stored.value))
            raise AlreadyExists(
                f"Cannot create topic '{name}': partitioned topics with this base name "
                f"already exist (found {count} partitions)"
            )

    async def _check_not_a_topic(self, base: TopicName, name: TopicName) -> None:
        """Raise if a base name is a topic without partitions."""
        if await self.find(base) is not None:
            raise AlreadyExists(
                f"Cannot create partitioned topic '{name}': a non-partitioned topic "
                f"'{base}' already exists"
            )

    async def _grow(
        self,
        base: TopicName,
        stored: Stored[PartitionedTopicRecord] | None,
        record: PartitionedTopicRecord,
    ) -> None:
        """Record the partitions of *record* that are not *stored* yet."""
        before = set() if stored is None else set(numbers_of(stored.value))
        names = [base.partition(n) for n in numbers_of(record) if n not in before]
        key = keys.partitioned_topic(base)
        try:
            await self._record(
                names,
                record,
                [unchanged(key, stored), Unchanged(keys.topic(base), ABSENT)],
                [Put(key, record)],
            )
        except RevisionConflict:
            # Usually a concurrent change won.  If one of the names has partitions of
            # its own, trying again would not help.
            for name in names:
                await self._check_name_is_free(name)
            raise

    async def _record(
        self,
        names: Sequence[TopicName],
        common: PartitionedTopicRecord,
        conditions: Sequence[Comparison],
        operations: Sequence[Operation],
    ) -> list[TopicRecord]:
        """Record the topics *names*, which are new and in one namespace."""
        of_subject, write_subject = await self._conflict_on_subject(common.schema)
        new = [
            NewTopic(name, common.policy, common.limits, common.schema)
            for name in names
        ]
        return await self._recording.record(
            new, [*of_subject, *conditions], [*write_subject, *operations]
        )


def _with_settings(name: TopicName, record: Any, settings: dict[str, Any]) -> Any:
    """
    Return the record of the topic *name* with *settings*.

    Raises:
        InvalidRequest: A setting is out of range, or needs a reliable topic.
    """
    of_record = {each: settings[each] for each in settings.keys() & RECORD_SETTINGS}
    of_policy = {each: settings[each] for each in settings.keys() - RECORD_SETTINGS}
    if not record.policy.is_reliable and of_policy.keys() - {"on_corruption"}:
        raise InvalidRequest(
            f"{name} is not reliable: its messages are not stored, so it has neither "
            "retention nor segments"
        )
    policy = replace(record.policy, **of_policy)
    policy.check()
    return msgspec.structs.replace(record, policy=policy, **of_record)


def _name_of(prefix: Prefix[Any], path: str) -> TopicName:
    return TopicName.parse("/" + prefix.name_of(path))

"""The progress of queries that stage their batches."""

from __future__ import annotations

from collections.abc import Callable

from pydanube.metadata import keys
from pydanube.metadata.records import QueryRecord, StagingDecision
from pydanube.metadata.store import ABSENT, MetadataStore, Stored


class Queries:
    """The progress of all queries, in the metadata store."""

    def __init__(self, store: MetadataStore, wall_clock_us: Callable[[], int]) -> None:
        self._store = store
        self._wall_clock_us = wall_clock_us
        self._records: dict[str, Stored[QueryRecord]] = {}

    def __len__(self) -> int:
        """Return the number of stored queries."""
        return len(self._records)

    async def load(self) -> None:
        """Load all queries; must be called first."""
        for path, stored in await self._store.scan(keys.QUERIES):
            self._records[keys.QUERIES.name_of(path)] = stored

    def of(self, query: str) -> QueryRecord | None:
        """Return the record of *query*; None if it has not committed anything."""
        stored = self._records.get(query)
        return None if stored is None else stored.value

    def decided_version(self, query: str) -> int | None:
        """Return the last decided version of *query*, carried out or not."""
        record = self.of(query)
        if record is None:
            return None
        return record.version if record.decision is None else record.decision.version

    def new_commit_id(self, query: str) -> int:
        """Return an id that no commit of *query* has had."""
        # The time makes ids unique even if the query was forgotten.
        record = self.of(query)
        last = 0 if record is None else record.commit_id
        return max(self._wall_clock_us(), last + 1)

    def decision_of(self, query: str) -> StagingDecision | None:
        """Return the decision of *query* that is not carried out yet."""
        record = self.of(query)
        return None if record is None else record.decision

    async def reload(self, query: str) -> StagingDecision | None:
        """Return the same after reading it from the store again."""
        stored = await self._store.get(keys.QUERIES.key(query))
        if stored is None:
            self._records.pop(query, None)
        else:
            self._records[query] = stored
        return self.decision_of(query)

    def pending(self) -> dict[str, StagingDecision]:
        """Return all decisions that are not carried out yet, by query."""
        return {
            query: stored.value.decision
            for query, stored in self._records.items()
            if stored.value.decision is not None
        }

    async def decide(self, query: str, decision: StagingDecision) -> None:
        """
        Store a decision; one without parts counts as carried out.

        Durability: On return it is on disk.
        """
        before = self.of(query) or QueryRecord()
        if not decision.parts:
            await self._put(query, self._done(decision))
            return
        record = QueryRecord(
            version=before.version,
            message_count=before.message_count,
            committed_at=before.committed_at,
            commit_id=before.commit_id,
            decision=decision,
        )
        await self._put(query, record)

    async def mark_done(self, query: str, decision: StagingDecision) -> None:
        """Record that a decision was carried out."""
        await self._put(query, self._done(decision))

    def old(self, memory_s: float, count_max: int) -> list[str]:
        """Return queries to forget, oldest first: idle for *memory_s*, or too many."""
        begin = self._wall_clock_us() - int(memory_s * 1_000_000)
        idle = sorted(
            (stored.value.committed_at, query)
            for query, stored in self._records.items()
            if stored.value.decision is None
        )
        excess = len(self._records) - count_max
        return [
            query
            for at, (committed_at, query) in enumerate(idle)
            if committed_at < begin or at < excess
        ]

    async def forget(self, query: str) -> None:
        """Delete a query's record, unless it has a pending decision."""
        stored = self._records.get(query)
        if stored is not None and stored.value.decision is None:
            await self._store.delete(keys.QUERIES.key(query), expected=stored.revision)
            del self._records[query]

    def _done(self, decision: StagingDecision) -> QueryRecord:
        return QueryRecord(
            version=decision.version,
            message_count=count_of(decision),
            committed_at=self._wall_clock_us(),
            commit_id=decision.commit_id,
        )

    async def _put(self, query: str, record: QueryRecord) -> None:
        stored = self._records.get(query)
        expected = ABSENT if stored is None else stored.revision
        revision = await self._store.put(
            keys.QUERIES.key(query), record, expected=expected
        )
        self._records[query] = Stored(record, revision)


def count_of(decision: StagingDecision) -> int:
    """Return the number of messages of a decision."""
    return sum(topic.message_count for topic in decision.topics)

"""How far each query is that stages what it writes, as the metadata store has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.broker.staged_commits import count_of
from pydanube.metadata import keys
from pydanube.metadata.records import QueryRecord, StagingDecision
from pydanube.metadata.store import ABSENT, Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube.metadata.store import MetadataStore


class Queries:
    """How far each query is, as the metadata store has it."""

    def __init__(self, store: MetadataStore, wall_clock_us: Callable[[], int]) -> None:
        self._store = store
        self._wall_clock_us = wall_clock_us
        self._records: dict[str, Stored[QueryRecord]] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._records)

    async def load(self) -> None:
        """Read all of them; before all else."""
        for path, stored in await self._store.scan(keys.QUERIES):
            self._records[keys.QUERIES.name_of(path)] = stored

    def of(self, query: str) -> QueryRecord | None:
        """How far *query* is; None if it has not committed anything."""
        stored = self._records.get(query)
        return None if stored is None else stored.value

    def decided_version(self, query: str) -> int | None:
        """The last version of *query* that is decided, carried out or not."""
        record = self.of(query)
        if record is None:
            return None
        return record.version if record.decision is None else record.decision.version

    def new_commit_id(self, query: str) -> int:
        """A number that no commit of *query* has had."""
        # The time, so that it is another one if the query was forgotten.
        record = self.of(query)
        last = 0 if record is None else record.commit_id
        return max(self._wall_clock_us(), last + 1)

    def decision_of(self, query: str) -> StagingDecision | None:
        """What is decided of *query* and not carried out yet."""
        record = self.of(query)
        return None if record is None else record.decision

    async def reload(self, query: str) -> StagingDecision | None:
        """The same, as the store has it, where a change may have been made or not."""
        stored = await self._store.get(keys.query(query))
        if stored is None:
            self._records.pop(query, None)
        else:
            self._records[query] = stored
        return self.decision_of(query)

    def undone(self) -> dict[str, StagingDecision]:
        """What is decided and not carried out yet, by query."""
        return {
            query: stored.value.decision
            for query, stored in self._records.items()
            if stored.value.decision is not None
        }

    async def decide(self, query: str, decision: StagingDecision) -> None:
        """
        Decide; if there is nothing to do for it, it is done at once.

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
        """The decision is carried out."""
        await self._put(query, self._done(decision))

    def old(self, memory_s: float, count_max: int) -> list[str]:
        """Queries that committed nothing for so long, or are too many; oldest first."""
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
        """Forget a query, unless something is decided and not carried out."""
        stored = self._records.get(query)
        if stored is not None and stored.value.decision is None:
            await self._store.delete(keys.query(query), expected=stored.revision)
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
        revision = await self._store.put(keys.query(query), record, expected=expected)
        self._records[query] = Stored(record, revision)

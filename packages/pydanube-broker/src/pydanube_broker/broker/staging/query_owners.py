"""
The owners of queries that stage batches, and which queries are forgotten.

A query belongs to the principal that used it first, from its first part or transaction
on.  Otherwise another client could commit versions of a query that has nothing staged,
and the next versions of its owner would count as repeated.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush

import msgspec

from pydanube_broker.metadata.records import QueryRecord
from pydanube_broker.metadata.store import Stored


def claimed(record: QueryRecord, member: str, now: int) -> QueryRecord:
    """
    Return the record of a query that *member* uses; the first one is its owner.

    *now* is in microseconds.
    """
    if record.owner:
        return record
    return msgspec.structs.replace(
        record, owner=member, committed_at=max(record.committed_at, now)
    )


def old_queries(
    records: Mapping[str, Stored[QueryRecord]],
    now: int,
    memory_s: float,
    count_max: int,
) -> list[str]:
    """
    Return queries to forget: idle for *memory_s*, or too many.

    If there are too many, the owner with the most queries loses its oldest ones, so
    that nobody can have the queries of others forgotten.
    """
    begin = now - int(memory_s * 1_000_000)
    idle = sorted(
        (stored.value.committed_at, query)
        for query, stored in records.items()
        if stored.value.decision is None
    )
    expired = [query for committed_at, query in idle if committed_at < begin]
    excess = len(records) - len(expired) - count_max
    if excess <= 0:
        return expired
    gone = set(expired)
    counts = Counter(
        each.value.owner for query, each in records.items() if query not in gone
    )
    oldest: dict[str, deque[str]] = {}
    for _, query in idle:
        if query not in gone:
            oldest.setdefault(records[query].value.owner, deque()).append(query)
    largest = [(-counts[owner], owner) for owner in oldest]
    heapify(largest)
    forgotten: list[str] = []
    while len(forgotten) < excess and largest:
        count, owner = heappop(largest)
        if oldest[owner]:
            forgotten.append(oldest[owner].popleft())
            heappush(largest, (count + 1, owner))
    return expired + forgotten

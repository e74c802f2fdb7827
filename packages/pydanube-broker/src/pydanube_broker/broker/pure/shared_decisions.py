"""
The record of a query whose commits several brokers decide and carry out.  Pure.

Every change of the record compares its revision, so of two brokers that decide, or that
mark their topics as done, at the same time, one reads the record again.  The commit is
complete when all of its topics are done.

Parts that could still be committed are named in the record before they are removed:
otherwise a commit could be decided that was prepared when they were still there.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from pydanube.model.staging import StagedCommit, is_repeat
from pydanube_broker.metadata.records import QueryRecord, StagingDecision


def answer_of(
    query: str, record: QueryRecord, version: int, commit_id: int | None
) -> StagedCommit | None:
    """
    Return the answer to a request to commit *version*; None: it can be decided.

    *commit_id* is that of the request's own decision, if it has made one.

    Raises:
        VersionBehind: The version is far below the committed one.
    """
    if not is_repeat(query, version, record.version):
        return None
    if version != record.version:
        return StagedCommit(message_count=0, is_repeat=True)
    return StagedCommit(
        message_count=record.message_count, is_repeat=record.commit_id != commit_id
    )


def commit_id_after(record: QueryRecord, now: int) -> int:
    """Return an id that no commit of the query has had; *now* is in microseconds."""
    # The time makes ids unique even if the query was forgotten.
    return max(now, record.commit_id + 1)


def begun(record: QueryRecord, now: int) -> tuple[QueryRecord, int]:
    """Return the record after a transaction begins, and its version."""
    known = [record.version, record.begun]
    if record.decision is not None:
        known.append(record.decision.version)
    version = max(now, *(each + 1 for each in known if each is not None), 0)
    after = msgspec.structs.replace(
        record, begun=version, committed_at=max(record.committed_at, now)
    )
    return after, version


def decided(record: QueryRecord, decision: StagingDecision, now: int) -> QueryRecord:
    """Return the record after *decision*; one that does nothing is complete."""
    assert record.decision is None
    return mark_done(
        msgspec.structs.replace(record, decision=decision), decision.commit_id, (), now
    )


def mark_done(
    record: QueryRecord,
    commit_id: int,
    topic_ids: Collection[int],
    now: int,
    *,
    acked: Collection[tuple[int, str]] = (),
) -> QueryRecord:
    """
    Return the record when the messages of a commit are in these topics.

    *acked* has topics and subscriptions whose cursors have the acknowledged messages.
    """
    decision = record.decision
    if decision is None or decision.commit_id != commit_id:
        return record
    topics = tuple(
        msgspec.structs.replace(each, is_done=True)
        if each.topic_id in topic_ids
        else each
        for each in decision.topics
    )
    acks = tuple(
        msgspec.structs.replace(each, is_done=True)
        if (each.topic_id, each.subscription) in acked
        else each
        for each in decision.acks
    )
    if not all([each.is_done for each in topics] + [each.is_done for each in acks]):
        decision = msgspec.structs.replace(decision, topics=topics, acks=acks)
        return msgspec.structs.replace(record, decision=decision)
    return msgspec.structs.replace(
        record,
        version=decision.version,
        message_count=sum(each.message_count for each in topics),
        committed_at=now,
        commit_id=commit_id,
        decision=None,
    )


def waiting_text(decision: StagingDecision) -> str:
    """Say which topics of a decided commit are not done yet."""
    waiting = [each.name for each in decision.topics if not each.is_done]
    kind = "topics with its messages"
    if not waiting:
        waiting = [each.name for each in decision.acks if not each.is_done]
        kind = "topics with messages that it acknowledges"
    return f"{len(waiting)} {kind}, such as {waiting[0]}"


def may_drop(record: QueryRecord, version: int) -> bool:
    """
    Return whether parts of *version* may be removed.

    A decided commit needs them until it is complete.
    """
    return record.decision is None or record.decision.version != version


def is_complete(record: QueryRecord, version: int) -> bool:
    """Return whether *version* cannot be committed any more, because it is."""
    return record.version is not None and version <= record.version


def dropping(record: QueryRecord, parts: Collection[str], now: int) -> QueryRecord:
    """
    Return the record that keeps *parts* from being committed while they are removed.

    The parts that the record names already must be gone.
    """
    return msgspec.structs.replace(
        record, dropping=tuple(parts), committed_at=max(record.committed_at, now)
    )

"""The journal of one session of a cluster, in the metadata store."""

from __future__ import annotations

from pydanube_broker.cluster.session import ClusterSession
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionJournalRecord
from pydanube_broker.metadata.store import (
    ABSENT,
    Delete,
    HasValue,
    MetadataStore,
    Put,
    Unchanged,
)
from pydanube_broker.storage.journal.journal_sessions import JournalSession

_NUMBER = 1
"""Each session of a cluster has a journal of its own, so it is always the first."""


class OwnSessionJournal:
    """
    This session's journal; implements ``storage.journal_sessions.JournalSessions``.

    It is a list of at most one session: a new session of a cluster recovers no journal
    when it begins, but shards when it takes them over.
    """

    def __init__(
        self, session: ClusterSession, store: MetadataStore, *, kind: str
    ) -> None:
        self._session = session
        self._store = store
        self._kind = kind

    async def load(self) -> tuple[JournalSession, ...]:
        """Return the journal, if it is recorded."""
        session_id = self._session.session_id
        stored = await self._store.get(keys.SESSION_JOURNALS.key(session_id))
        if stored is None:
            return ()
        return (journal_of(session_id, stored.value),)

    async def replace(
        self, expected: tuple[JournalSession, ...], new: tuple[JournalSession, ...]
    ) -> None:
        """Change the record, if it is as *expected*; see ``JournalSessions``."""
        key = keys.SESSION_JOURNALS.key(self._session.session_id)
        assert len(expected) <= 1
        assert len(new) <= 1
        before, after = map(self._record_of, (expected, new))
        await self._store.transaction(
            [Unchanged(key, ABSENT) if before is None else HasValue(key, before)],
            [Delete(key) if after is None else Put(key, after)],
        )

    def _record_of(
        self, sessions: tuple[JournalSession, ...]
    ) -> SessionJournalRecord | None:
        if not sessions:
            return None
        session = sessions[0]
        return SessionJournalRecord(
            kind=self._kind,
            prefix=session.prefix,
            first=session.first,
            is_frozen=session.is_frozen,
            broker_id=self._session.broker_id,
        )


def journal_of(session_id: str, record: SessionJournalRecord) -> JournalSession:
    """Return the journal of a session, to read it."""
    return JournalSession(
        number=_NUMBER,
        session_id=session_id,
        prefix=record.prefix,
        first=record.first,
        is_frozen=record.is_frozen,
    )

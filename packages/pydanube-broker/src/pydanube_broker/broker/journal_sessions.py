"""The sessions of an object journal, kept in the metadata store."""

from __future__ import annotations

from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import JournalSessionRecord
from pydanube_broker.metadata.store import (
    ABSENT,
    Comparison,
    Delete,
    HasValue,
    MetadataStore,
    Operation,
    Put,
    Unchanged,
)
from pydanube_broker.storage.journal.journal_sessions import JournalSession


class MetadataSessions:
    """
    The sessions of a journal; implements ``storage.journal_sessions.JournalSessions``.

    Every change is one transaction that compares all sessions.  A broker that takes
    over changes the last one first, so a list with a new session differs from an
    older list in a session that both have.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def load(self) -> tuple[JournalSession, ...]:
        """Return the present list."""
        stored = await self._store.scan(keys.JOURNAL_SESSIONS)
        return tuple(
            JournalSession(
                number=int(keys.JOURNAL_SESSIONS.name_of(path)),
                session_id=each.value.session_id,
                prefix=each.value.prefix,
                first=each.value.first,
                end=each.value.end,
                is_frozen=each.value.is_frozen,
            )
            for path, each in stored
        )

    async def replace(
        self, expected: tuple[JournalSession, ...], new: tuple[JournalSession, ...]
    ) -> None:
        """Replace the list, if it is as *expected*; see ``JournalSessions.replace``."""
        before = {session.number: session for session in expected}
        after = {session.number: session for session in new}
        comparisons: list[Comparison] = [
            HasValue(keys.journal_session(number), _record_of(session))
            for number, session in before.items()
        ]
        comparisons += [
            Unchanged(keys.journal_session(number), ABSENT)
            for number in after.keys() - before.keys()
        ]
        operations: list[Operation] = [
            Put(keys.journal_session(number), _record_of(session))
            for number, session in after.items()
            if before.get(number) != session
        ]
        operations += [
            Delete(keys.journal_session(number))
            for number in before.keys() - after.keys()
        ]
        await self._store.transaction(comparisons, operations)


def _record_of(session: JournalSession) -> JournalSessionRecord:
    return JournalSessionRecord(
        session_id=session.session_id,
        prefix=session.prefix,
        first=session.first,
        end=session.end,
        is_frozen=session.is_frozen,
    )

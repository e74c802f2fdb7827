"""The record of a session's journal, which other sessions freeze."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from pydanube.model.errors import RevisionConflict
from pydanube_broker.cluster.session import open_cluster_session
from pydanube_broker.cluster.session_journals import OwnSessionJournal, journal_of
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.storage.journal.journal_sessions import JournalSession
from support.fakes.memory_store import MemoryStore

RECORD = SessionRecord(broker_id="b", addresses={}, started_at=0)


async def test_a_session_has_at_most_its_own_journal() -> None:
    store = MemoryStore()
    async with open_cluster_session(store, RECORD, ttl_s=2.0) as session:
        journal = OwnSessionJournal(session, store, kind="object")
        assert await journal.load() == ()
        own = JournalSession(number=1, session_id=session.session_id, prefix="p/")
        await journal.replace((), (own,))
        assert await journal.load() == (own,)
        later = replace(own, first=7)
        await journal.replace((own,), (later,))
        record = await store.get(keys.SESSION_JOURNALS.key(session.session_id))
        assert journal_of(session.session_id, record.value) == later
        with pytest.raises(RevisionConflict):
            await journal.replace((own,), (replace(own, first=8),))


async def test_a_frozen_journal_cannot_be_trimmed() -> None:
    store = MemoryStore()
    async with open_cluster_session(store, RECORD, ttl_s=2.0) as session:
        journal = OwnSessionJournal(session, store, kind="object")
        own = JournalSession(number=1, session_id=session.session_id, prefix="p/")
        await journal.replace((), (own,))
        key = keys.SESSION_JOURNALS.key(session.session_id)
        before = (await store.get(key)).value
        await store.put(key, msgspec.structs.replace(before, is_frozen=True))
        with pytest.raises(RevisionConflict):
            await journal.replace((own,), (replace(own, first=7),))

"""The interface for opening a journal that is not on the broker's disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.objects.store import Objects
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.journal.journal import Journal
from pydanube_broker.storage.journal.journal_sessions import JournalSessions
from pydanube_broker.storage.journal.object_recovery import new_session_id
from pydanube_broker.storage.journal.recovery import Recovery
from pydanube_broker.storage.journal.reserve import Reserve


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalOpening:
    """The settings and the parts of the broker that a journal needs."""

    config: StorageConfig
    """The settings; ``config.journal.options`` are for kinds of other packages."""
    journal_id: bytes
    """The cluster id, 16 bytes.  A journal of another cluster must be refused."""
    sessions: JournalSessions
    """The list of sessions in the metadata store, for journals that fence with it."""
    claim: Callable[[Objects], Awaitable[None]]
    """
    Mark an object store as this cluster's, before anything is written to it.

    Raises:
        InconsistentDirectory: It belongs to another cluster.
        ObjectsUnavailable: It does not answer.
    """
    check: Callable[[Recovery], None]
    """
    Compare the recovered journal with the metadata store.

    Call it before the new session is recorded, and let its errors pass.
    """
    new_session_id: Callable[[], bytes] = new_session_id
    """Returns the id of the session, 16 bytes."""
    reserve: Reserve
    """Says whether the local disk is full; then batches are refused."""
    clock: Callable[[], float]
    """Measures how long commits take."""

    def for_objects(self) -> dict[str, Any]:
        """Return the arguments of ``open_object_journal`` besides store and limits."""
        return {
            "sessions": self.sessions,
            "new_session_id": self.new_session_id,
            "config": self.config.journal,
            "journal_id": self.journal_id,
            "reserve": self.reserve,
            "check": self.check,
            "clock": self.clock,
        }


OpenJournal = Callable[[JournalOpening], AbstractAsyncContextManager[Journal]]
"""
A function that opens a journal, and closes it at the end of the context.

It must fence every other broker that has the journal open.
"""

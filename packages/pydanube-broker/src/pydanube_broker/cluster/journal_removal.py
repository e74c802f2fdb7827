"""
The removal of journals that no session needs any more.

A session that has ended leaves a journal in the object store.  Other sessions take its
shards over, and open them with journals of their own; from then on nobody reads it.

Theory.  A journal may be removed if the key of its session is absent, and after that
no shard names the session as owner or source.  A session never writes its key again,
and a claim compares that the own key is present, so no shard can name it later.  A
journal record that was seen before the key was absent belongs to a session that had
begun, and has ended.  Hence the order of the three reads in ``remove``.

The objects are removed before the record, so that after a crash the next controller
continues.  The fence stays for ever: a put of the ended session may happen at any later
time, and must find it.  Objects of other writers stay, which includes the fence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from typing import TypeVar

from pydanube.aio.tasks import run_all
from pydanube.model.errors import (
    CorruptJournal,
    MetadataUnavailable,
    NewerJournal,
    ObjectsUnavailable,
    RevisionConflict,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.objects.store import Objects
from pydanube.wire.files.group_format import (
    HEADER_BYTES,
    GroupKind,
    decode_group_header,
)
from pydanube_broker.cluster.pure.moves import is_journal_needed
from pydanube_broker.cluster.session_journals import journal_of
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionJournalRecord, ShardRecord
from pydanube_broker.metadata.key import Prefix
from pydanube_broker.metadata.store import (
    ABSENT,
    Delete,
    MetadataStore,
    Stored,
    Unchanged,
)
from pydanube_broker.storage.journal.journal_sessions import JournalSession

T = TypeVar("T")

log = logging.getLogger(__name__)

INTERVAL_S = 60.0
"""How often the controller looks for journals to remove."""
LOOKS_PER_INTERVAL = 12
"""How often a broker checks whether it has become the controller.

A new controller removes journals soon, because each of them may end before an interval
is over when brokers come and go."""
REQUESTS_MAX = 8
"""How many objects are removed at the same time."""


def find_unneeded(
    journals: Iterable[str],
    sessions: Collection[str],
    shards: Collection[ShardRecord],
) -> list[str]:
    """
    Return the sessions among *journals* whose journals nobody needs.

    Ordering: *journals* were read first, then *sessions*, then *shards*.
    """
    return sorted(
        session
        for session in journals
        if session not in sessions and not is_journal_needed(session, shards)
    )


@dataclass(slots=True)
class RemovalCounts:
    """The numbers of things that this broker has removed as the controller."""

    journals: int = 0
    objects: int = 0


class JournalRemoval:
    """Removes journals while this broker is the controller; ``run`` does the work."""

    def __init__(
        self,
        store: MetadataStore,
        objects: Objects,
        is_controller: Callable[[], bool],
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """*objects* is the store of the journals of all sessions."""
        self.counts = RemovalCounts()
        self._store = store
        self._objects = objects
        self._is_controller = is_controller
        self._interval_s = interval_s

    async def run(self) -> None:
        """Remove journals now and then, until cancelled."""
        waited = LOOKS_PER_INTERVAL
        while True:
            await asyncio.sleep(self._interval_s / LOOKS_PER_INTERVAL)
            waited += 1
            if not self._is_controller():
                # If it becomes the controller, removing is due.
                waited = LOOKS_PER_INTERVAL
            elif waited >= LOOKS_PER_INTERVAL:
                waited = 0
                try:
                    await self.remove()
                except (MetadataUnavailable, ObjectsUnavailable) as error:
                    log.warning("the removal of journals goes on later: %s", error)

    async def remove(self) -> None:
        """
        Remove all journals that nobody needs.

        It may be called again after a failure, and by several brokers at once.  A
        journal that cannot be removed now does not keep the others.

        Raises:
            MetadataUnavailable, ObjectsUnavailable: Some are left.
        """
        journals = await self._scan(keys.SESSION_JOURNALS)
        sessions = await self._scan(keys.SESSIONS)
        shards = await self._scan(keys.SHARDS)
        records = [stored.value for stored in shards.values()]
        failure: ObjectsUnavailable | None = None
        for session in find_unneeded(journals, sessions, records):
            try:
                await self._remove(session, journals[session])
            except ObjectsUnavailable as error:
                failure = error
        if failure is not None:
            raise failure

    async def _scan(self, prefix: Prefix[T]) -> Mapping[str, Stored[T]]:
        found = await self._store.scan(prefix)
        return {prefix.name_of(path): stored for path, stored in found}

    async def _remove(self, session: str, stored: Stored[SessionJournalRecord]) -> None:
        journal = journal_of(session, stored.value)
        before = self.counts.objects
        names = await self._names_of(journal)
        # From the end on, so that a probe after a crash finds the ones that are left.
        names.reverse()
        for at in range(0, len(names), REQUESTS_MAX):
            part = names[at : at + REQUESTS_MAX]
            await run_all(self._remove_group(journal, name) for name in part)
        key = keys.SESSION_JOURNALS.key(session)
        try:
            await self._store.transaction(
                [
                    Unchanged(key, stored.revision),
                    Unchanged(keys.SESSIONS.key(session), ABSENT),
                ],
                [Delete(key)],
            )
        except RevisionConflict:
            # Another controller has removed it.
            return
        self.counts.journals += 1
        log.info(
            "removed the journal of session %s, which has ended: %d objects",
            session,
            self.counts.objects - before,
        )

    async def _names_of(self, journal: JournalSession) -> list[str]:
        """Return the names of the journal's objects, in their order."""
        if self._objects.supports_listing:
            return await self._objects.names(journal.prefix)
        names: list[str] = []
        for number in count(journal.first):
            name = journal.object_name(number)
            if not await self._is_group(journal, name):
                return names
            names.append(name)
        raise AssertionError

    async def _remove_group(self, journal: JournalSession, name: str) -> None:
        if await self._is_group(journal, name):
            await self._objects.delete(name)
            self.counts.objects += 1

    async def _is_group(self, journal: JournalSession, name: str) -> bool:
        """Return whether an object exists and the session wrote it."""
        data = await self._objects.read(name, 0, HEADER_BYTES)
        if data is None:
            return False
        try:
            header = decode_group_header(data)
        except (CorruptJournal, NewerJournal) as error:
            log.warning("the object %s of an ended journal stays: %s", name, error)
            return False
        return header.writer == journal.writer and header.kind is not GroupKind.FENCE

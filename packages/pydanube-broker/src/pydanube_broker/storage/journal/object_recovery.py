"""
Recovery of an object journal: fence the last session, and read what all have written.

See group_commits.py about the protocol, and journal_sessions.py about the list of
sessions.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from typing import TypeVar

from pydanube.aio.tasks import gather
from pydanube.model.errors import (
    CorruptJournal,
    JournalFailed,
    NewerJournal,
    ObjectsUnavailable,
    RevisionConflict,
)
from pydanube.model.ids import Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.retry import RetryPolicy
from pydanube.objects.store import Objects
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.group_format import (
    GroupHeader,
    GroupKind,
    committed_end_of,
    decode_entries,
    decode_group_header,
    encode_group,
)
from pydanube.wire.files.journal_format import Batch, Entry, SnapshotEnd
from pydanube_broker.storage.journal.journal_sessions import (
    JournalSession,
    JournalSessions,
)
from pydanube_broker.storage.journal.recovery import Recovery, keep_unsealed
from pydanube_broker.storage.journal.state import JournalState
from pydanube_broker.storage.pure.group_commits import (
    FIRST_GROUP,
    Answer,
    Fencing,
    Step,
)

T = TypeVar("T")

log = logging.getLogger(__name__)

READS_IN_FLIGHT = 32
"""How many objects are read at the same time; a group has 4 MiB at most by default."""
READS_BEGIN = 4
"""How many are read at first; each time all of them exist, twice as many follow."""
FIRST_SESSION = 1
"""The number of the first session of a journal."""
_SESSION_ID_BYTES = 16


@dataclass(slots=True)
class Section:
    """Consecutive groups of a session, of which the first has a snapshot."""

    session: int
    """The number of the session."""
    first: int
    """The number of the first group."""
    byte_count: int = 0
    group_count: int = 0
    entry_count: int = 0
    """The number of entries after the snapshot."""
    ends: dict[TopicId, Offset] = field(default_factory=dict)
    """The topics with batches in it, and the end of the last batch of each."""


@dataclass(slots=True, kw_only=True)
class ObjectRecovery:
    """The recovered content of an object journal, and the new session."""

    recovery: Recovery
    sections: list[Section]
    """The sections of the earlier sessions, in order."""
    sessions: tuple[JournalSession, ...]
    """All sessions; the last one is the new one."""


class GroupConsumer(ABC):
    """Takes the groups of sessions, which are added in order."""

    def __init__(self, journal_id: bytes) -> None:
        self.journal_id = journal_id

    def add(self, session: JournalSession, number: int, data: Buffer) -> bool:
        """
        Take the object *number* of *session*; return False if it is a fence.

        Raises:
            NewerJournal: The object has a newer format version.
            CorruptJournal: The object is damaged or does not fit.
        """
        with _naming(session.object_name(number)):
            return self._add(session, number, memoryview(data))

    def committed_end(self, session: JournalSession, number: int, data: Buffer) -> int:
        """
        Return the number below which all groups existed when an object was begun.

        Raises: As add().
        """
        view = memoryview(data)
        with _naming(session.object_name(number)):
            return committed_end_of(view, self._checked(session, number, view))

    def _add(self, session: JournalSession, number: int, data: memoryview) -> bool:
        header = self._checked(session, number, data)
        if header.kind is GroupKind.FENCE:
            return False
        entries = (decoded.entry for decoded in decode_entries(data, header))
        is_snapshot = header.kind is GroupKind.SNAPSHOT
        self._fold(session, number, entries, len(data), is_snapshot=is_snapshot)
        return True

    @abstractmethod
    def _fold(
        self,
        session: JournalSession,
        number: int,
        entries: Iterator[Entry],
        byte_count: int,
        *,
        is_snapshot: bool,
    ) -> None:
        """Apply the entries of a group; with *is_snapshot*, it begins with one."""

    def _checked(
        self, session: JournalSession, number: int, data: memoryview
    ) -> GroupHeader:
        """Return the header of the object *number* of *session*."""
        header = decode_group_header(data)
        if header.number != number:
            raise CorruptJournal(
                f"expected group {number}, the header says {header.number}"
            )
        if header.journal_id != self.journal_id:
            raise CorruptJournal(
                f"expected an object of cluster {self.journal_id.hex()}, it belongs "
                f"to cluster {header.journal_id.hex()}"
            )
        if header.kind is not GroupKind.FENCE and header.writer != session.writer:
            raise CorruptJournal(
                f"expected a group of session {session.session_id}, session "
                f"{header.writer.hex()} wrote it"
            )
        return header


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the object *name* in errors of the body."""
    try:
        yield
    except NewerJournal as error:
        raise NewerJournal(f"{name}: {error}") from error
    except CorruptJournal as error:
        raise CorruptJournal(f"{name}: {error}") from error


class GroupFold(GroupConsumer):
    """The fold of the groups of all sessions."""

    def __init__(self, journal_id: bytes) -> None:
        super().__init__(journal_id)
        self.recovery = Recovery()
        self.sections: list[Section] = []

    def _fold(
        self,
        session: JournalSession,
        number: int,
        entries: Iterator[Entry],
        byte_count: int,
        *,
        is_snapshot: bool,
    ) -> None:
        if is_snapshot:
            self._begin_section(session, number, entries)
        last = self.sections[-1] if self.sections else None
        if last is None or last.session != session.number:
            raise CorruptJournal("expected a group with a snapshot")
        last.byte_count += byte_count
        last.group_count += 1
        apply = self.recovery.apply
        for entry in entries:
            last.entry_count += 1
            if apply(entry) and type(entry) is Batch:
                last.ends[entry.topic_id] = Offset(entry.frame.end)

    def _begin_section(
        self, session: JournalSession, number: int, entries: Iterator[Entry]
    ) -> None:
        snapshot, count = JournalState(), 0
        # The entries after the snapshot are left for the caller.
        for entry in entries:
            if isinstance(entry, SnapshotEnd):
                break
            count += 1
            snapshot.apply(entry)
        else:
            raise CorruptJournal("expected the end of a snapshot")
        if entry.count != count:
            raise CorruptJournal(
                f"expected a snapshot of {entry.count} entries, there are {count}"
            )
        state = self.recovery.state
        if self.sections and state.positions() != snapshot.positions():
            raise CorruptJournal(
                "expected a snapshot of what the groups before it say; one of them "
                "was replaced"
            )
        self.recovery.state = snapshot
        self.sections.append(Section(session.number, number))


def new_session_id() -> bytes:
    """Return a random id for a session."""
    return os.urandom(_SESSION_ID_BYTES)


def prefix_of(root: str, number: int, session_id: bytes) -> str:
    """Return the prefix of the names of a session's objects."""
    return f"{root}{number:010d}-{session_id.hex()[:8]}/"


async def take_over(
    objects: Objects,
    sessions: JournalSessions,
    *,
    journal_id: bytes,
    session_id: bytes,
    root: str,
    check: Callable[[Recovery], None] = lambda _: None,
    retries: RetryPolicy,
) -> ObjectRecovery:
    """
    Fence the last session, recover the journal, and record a new session.

    *root* is the prefix of the names of all objects of the journal.  *check* is called
    with the recovered state before the new session is recorded, and may raise; the
    last session is fenced then.  *retries* says when a read is repeated.

    Raises:
        JournalFailed: Another broker is taking over at the same time.
        CorruptJournal: An object is missing or damaged, or *sessions* is an older copy.
        ObjectsUnavailable, MetadataUnavailable: The journal cannot be read now.
    """
    fold = GroupFold(journal_id)
    reader = GroupReader(
        fold, objects, session_id=session_id, root=root, retries=retries
    )
    try:
        known = await sessions.load()
        if known and known[-1].end is None and not known[-1].is_frozen:
            # Before anything is read: from here on the last session cannot record that
            # it has deleted groups, so those that the list names are there.
            frozen = (*known[:-1], replace(known[-1], is_frozen=True))
            await sessions.replace(known, frozen)
            known = frozen
        # In order: the fold compares each snapshot with the state before it.
        ended = [await reader.read(session) for session in known]
        assert all(session.end is not None for session in ended)
        recovery = fold.recovery
        keep_unsealed(recovery)
        recovery.sessions = {
            session.number: session.end for session in ended if session.end is not None
        }
        if fold.sections:
            recovery.journal_id = journal_id
        check(recovery)
        number = known[-1].number + 1 if known else FIRST_SESSION
        new = JournalSession(
            number=number,
            session_id=session_id.hex(),
            prefix=prefix_of(root, number, session_id),
        )
        # A session without groups has no objects but its fence, which stays for ever.
        new_sessions = (*(each for each in ended if each.end != FIRST_GROUP), new)
        await sessions.replace(known, new_sessions)
    except RevisionConflict as error:
        raise JournalFailed(
            "another broker with the same metadata store is taking over the journal; "
            "stop one of them, and start the other one again"
        ) from error
    return ObjectRecovery(
        recovery=recovery,
        sections=fold.sections,
        sessions=new_sessions,
    )


class GroupReader:
    """
    Reads the objects of sessions, and ends the last one with a fence.

    *root* is the prefix of the names of the next session's objects; None if there is no
    list of sessions.
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        objects: Objects,
        *,
        session_id: bytes,
        root: str | None,
        retries: RetryPolicy,
    ) -> None:
        self._consumer = consumer
        self._objects = objects
        self._session_id = session_id
        self._root = root
        self._retries = retries

    async def read(self, session: JournalSession) -> JournalSession:
        """Read what *session* has written; return it with its end."""
        if session.end is None:
            return replace(session, end=await self._fence(session))
        missing = await self._read_groups(session, end=session.end)
        if missing is not None:
            raise CorruptJournal(missing)
        return session

    async def read_available(self, session: JournalSession) -> None:
        """Read the groups of *session* that exist now, up to the first missing one."""
        await self._read_groups(session)

    async def read_until(
        self, session: JournalSession, is_done: Callable[[], bool]
    ) -> None:
        """
        Read what *session* has written until *is_done*; it is not fenced.

        Raises: As take_over().
            CorruptJournal: Also if there is no further group.
        """
        missing = await self._read_groups(session, is_done=is_done)
        if not is_done():
            raise CorruptJournal(missing)

    async def _read_groups(
        self,
        session: JournalSession,
        *,
        end: int | None = None,
        is_done: Callable[[], bool] = lambda: False,
    ) -> str | None:
        """
        Read the groups of *session* before *end*, until *is_done* or until one misses.

        Groups after it are read too, as far as they were requested together.  Returns
        which group was expected if one misses.
        """
        first, count = session.first, READS_BEGIN
        while not is_done() and first != end:
            last = first + count
            numbers = range(first, last if end is None else min(last, end))
            found = await self._read_all(session, numbers)
            for number, data in zip(numbers, found, strict=True):
                if data is None or not self._consumer.add(session, number, data):
                    return (
                        f"{session.object_name(number)}: expected a group, "
                        f"{'there is no object' if data is None else 'it is a fence'}"
                    )
            first, count = numbers.stop, min(2 * count, READS_IN_FLIGHT)
        return None

    async def _fence(self, session: JournalSession) -> int:
        """Read *session* up to its end, and fence it there; return the end."""
        fencing, step = Fencing(session.first), Step.READ
        # Read ahead; an object that is there does not change.
        ahead: dict[int, Buffer | None] = {}
        while step is not Step.END:
            number = fencing.number
            if step is Step.PUT:
                step = fencing.on_put(await self._put_fence(session, number))
                continue
            if step is Step.SEARCH:
                behind = await self._read_last(session, number, ahead)
                step = fencing.on_search(behind)
                continue
            data = ahead.pop(number, None)
            if data is None:
                # Also if it was absent when it was read ahead: the session is not
                # fenced yet, and may have put it since.
                numbers = range(number, number + READS_IN_FLIGHT)
                found = await self._read_all(session, numbers)
                ahead = dict(zip(numbers, found, strict=True))
                data = ahead.pop(number)
            is_fence = data is not None and not self._consumer.add(
                session, number, data
            )
            if is_fence and data is not None:
                await self._check_successor(session, decode_group_header(data).writer)
            step = fencing.on_read(exists=data is not None, is_fence=is_fence)
        if fencing.end is None:
            raise CorruptJournal(
                f"{session.object_name(fencing.number)}: expected a group, there is no "
                "object; a later object says that this one was stored, so the store "
                "has lost it"
            )
        return fencing.end

    async def _read_last(
        self, session: JournalSession, number: int, ahead: dict[int, Buffer | None]
    ) -> int:
        """
        Return the number below which all groups existed, by the last object.

        The last object is the one with the highest number above *number*; the result
        is 0 if there is none.  If the store cannot list its objects, only those in
        *ahead*, which were read already, are considered.
        """
        last, data = number, None
        if self._objects.supports_listing:
            after = session.object_name(number)
            list_names = partial(self._objects.names, session.prefix, after=after)
            if names := await self._repeat(list_names):
                last = session.number_of(names[-1])
                data = await self._repeat(partial(self._objects.read, names[-1]))
        else:
            last = max(
                (each for each in ahead if ahead[each] is not None), default=last
            )
            data = ahead.get(last)
        return 0 if data is None else self._consumer.committed_end(session, last, data)

    async def _check_successor(self, session: JournalSession, writer: bytes) -> None:
        """
        Raise if the session that fenced *session* has written groups.

        It was in the list of sessions before it wrote any, so the list is an older one.
        """
        if self._root is None:
            return
        prefix = prefix_of(self._root, session.number + 1, writer)
        if self._objects.supports_listing:
            names = partial(self._objects.names, prefix, count_max=1)
            is_known = not await self._repeat(names)
        else:
            read = partial(self._objects.read, f"{prefix}{FIRST_GROUP:020d}")
            is_known = await self._repeat(read) is None
        if not is_known:
            raise CorruptJournal(
                f"the objects {prefix}… belong to a session that the metadata store "
                "does not know: it is older than the journal. Restore its newest copy"
            )

    async def _put_fence(self, session: JournalSession, number: int) -> Answer:
        data = encode_group(
            [],
            number=number,
            journal_id=self._consumer.journal_id,
            writer=self._session_id,
            kind=GroupKind.FENCE,
            committed_end=number,
        )
        try:
            stored = await self._objects.put_if_absent(
                session.object_name(number), data
            )
        except ObjectsUnavailable as error:
            # The read that follows is repeated, and finds out what happened.
            log.warning("the outcome of putting a fence is unknown: %s", error)
            return Answer.UNKNOWN
        return Answer.STORED if stored else Answer.EXISTS

    async def _read_all(
        self, session: JournalSession, numbers: range
    ) -> list[Buffer | None]:
        return await gather(
            self._repeat(partial(self._objects.read, session.object_name(number)))
            for number in numbers
        )

    async def _repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        failures = 0
        while True:
            try:
                return await call()
            except ObjectsUnavailable as error:
                failures += 1
                if not self._retries.allows(failures):
                    raise
                log.warning("the journal cannot be read, trying again: %s", error)
            await asyncio.sleep(self._retries.delay_s(failures))

"""
The journal in an object store: an acknowledgement means that the object store has it.

Theory.  The event loop collects entries in groups and puts each group as one object,
several at the same time.  A group is *committed* when its object and those of all
groups before it exist; then it is folded into the state, and acknowledged.
group_commits.py has the protocol.

A group is put when it is full, or ``linger_ms`` after the last group was begun.  So
an entry that comes alone is put at once, and many small entries do not cause more
requests than that, except for a few that ``hurry``.

When 64 MiB, half of ``groups_max`` groups or many entries have followed the last one,
and in the first group of a session, a group begins with a snapshot of the state.  The
groups from one snapshot to the next are a *section*, which is what a file is to the
local journal: any suffix of the sections is a complete journal.  A group with a
snapshot waits until nothing is in flight, because only then the committed state is the
state at this point.

Failures.  If the store does not answer, puts are repeated forever; entries wait, and
so do publishers as soon as ``pending_bytes_max`` is reached.  After ``outage_s``,
append() refuses batches until the store answers again; it also does while the journal
is larger than ``bytes_max``, because recovery reads all of it into memory.  If another
session has fenced this one, the journal has failed; it finds out with its next put, or
by reading the list of sessions from time to time.  While the local disk is full,
because segments cannot be sealed or uploaded, append() refuses batches, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from time import perf_counter

from pydanube.aio.futures import Done
from pydanube.aio.tasks import TaskScope, run_all, task_scope
from pydanube.model.errors import (
    BrokerError,
    Closed,
    DiskFull,
    InvalidConfig,
    JournalFailed,
    MetadataUnavailable,
    ObjectsUnavailable,
    Overloaded,
    RevisionConflict,
)
from pydanube.model.ids import Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.retry import RetryPolicy
from pydanube.objects.store import Objects
from pydanube.wire.files.group_format import (
    HEADER_BYTES,
    GroupKind,
    decode_group_header,
    encode_group,
)
from pydanube.wire.files.journal_format import Batch, Entry, SnapshotEnd, TopicSealed
from pydanube_broker.storage.config import JournalConfig, ObjectJournalConfig
from pydanube_broker.storage.journal.journal import (
    Journal,
    SealedOffsetOf,
    count_sealed,
    notify,
    size_of,
)
from pydanube_broker.storage.journal.journal_sessions import (
    JournalSession,
    JournalSessions,
)
from pydanube_broker.storage.journal.journal_writer import Group
from pydanube_broker.storage.journal.object_recovery import (
    ObjectRecovery,
    Section,
    new_session_id,
    take_over,
)
from pydanube_broker.storage.journal.recovery import JournalPosition, Recovery
from pydanube_broker.storage.journal.reserve import Reserve
from pydanube_broker.storage.pure.group_commits import Answer, GroupCommits, Step

log = logging.getLogger(__name__)

ROOT = ".journal/"
"""
The prefix of the names of all objects of the journal.

No namespace has this name, and table readers ignore names that begin with a dot.
"""
LAZY_S = 1.0
"""How long entries wait that nobody waits for."""
CLOSE_S = 30.0
"""How long closing waits for the object store."""
CHECK_S = 5.0
"""How often an open journal checks whether another session has taken over."""
RETRIES = RetryPolicy(first_s=0.05, max_s=5.0)
"""When a put is repeated, and at the start a read."""
READ_RETRIES_MAX = 8
"""How often a read is repeated at the start, before the start fails."""
_DELETES_IN_FLIGHT = 8
SECTION_ENTRIES = 8192
"""The entries after which the next section begins."""
_SNAPSHOT_ENTRIES_PER_GROUP = 16
"""Snapshots of many topics are rarer than small groups alone would make them."""
_ENTRIES_PER_TOPIC = 8
"""Nor are they more frequent than after this many entries for each topic."""


@dataclass(slots=True)
class _Put:
    """A group in flight."""

    group: Group
    section: Section
    is_first: bool
    """Whether it is the first group of the section."""
    byte_count: int
    begun_at: float


class ObjectJournal(Journal):
    """A journal in an object store; see open_object_journal()."""

    outlives_disk = True

    def __init__(
        self,
        config: JournalConfig,
        limits: ObjectJournalConfig,
        recovered: ObjectRecovery,
        *,
        objects: Objects,
        sessions: JournalSessions,
        journal_id: bytes,
        reserve: Reserve,
        tasks: TaskScope,
        retries: RetryPolicy,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(config, recovered.recovery, reserve)
        self.outage: ObjectsUnavailable | None = None
        """The last error of the object store, until it answers again."""
        self.trim_holds: set[int] = set()
        """Shards for which nothing may be removed now."""
        self._outage_since = 0.0
        self._limits = limits
        self._objects = objects
        self._journal_id = journal_id
        self._tasks = tasks
        self._retries = retries
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        # The sections whose snapshot is committed, and the one of the next group.
        self._sections = recovered.sections
        self._open: Section | None = None
        self._stored_bytes = sum(section.byte_count for section in self._sections)
        # The list of sessions, as this session has changed it last.
        self._sessions = sessions
        self._known = recovered.sessions
        self._is_known = True
        self._session: JournalSession = recovered.sessions[-1]
        self._commits = GroupCommits(self._session.writer)
        self._in_flight: dict[int, _Put] = {}
        # Groups that are full, and the one that is not.
        self._full: deque[Group] = deque()
        self._collected = Group()
        # When the collected group is put, and the timer for this.
        self._due_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._linger_s = limits.linger_ms / 1000
        # When the next group may begin that is not full.
        self._next_at = 0.0
        self._trimming = asyncio.Lock()
        self._is_trim_failing = False
        # Whether objects are left that an earlier session did not come to remove.
        self._has_leftovers = len(recovered.sessions) > 1

    def append(
        self, entry: Entry | None, done: Done | None, *, sync: bool = True
    ) -> None:
        if self.failure is not None:
            # The same exception object is raised repeatedly, so drop its traceback.
            raise self.failure.with_traceback(None)
        if type(entry) is Batch and (self.refusal or self.reserve.is_released):
            # Here, because groups that are in flight must not fail.
            raise DiskFull(self.refusal or self.reserve.refusal)
        if type(entry) is Batch and self._refuses():
            raise self._refusal()
        group = self._collected
        group.entries.append((entry, done))
        size = len(entry.frame.buffer) if type(entry) is Batch else size_of(entry)
        group.byte_count += size
        self.pending_bytes += size
        if group.byte_count >= self._limits.group_bytes_max:
            self._full.append(group)
            self._collected = Group()
            self._cancel_timer()
            self._loop.call_soon(self._put_groups)
        elif not group.sync and (sync or done is not None):
            group.sync = True
            self._set_timer(0.0)
        elif self._due_at is None:
            self._set_timer(LAZY_S)

    def hurry(self) -> None:
        """Put what was appended at the next opportunity, whatever ``linger_ms`` is."""
        self._next_at = 0.0
        if self._collected.entries:
            self._set_timer(0.0)

    @property
    def problem(self) -> str:
        if self._refuses():
            return str(self._refusal())
        if self.outage is None:
            return ""
        return f"messages are not acknowledged: {self.outage}"

    @property
    def has_room(self) -> bool:
        # Publishers that wait are to learn that their messages are refused.
        return super().has_room or self._refuses()

    def _refuses(self) -> bool:
        if self._stored_bytes > self._limits.bytes_max:
            return True
        if self.outage is None:
            return False
        return self._clock() - self._outage_since >= self._limits.outage_s

    def _refusal(self) -> Overloaded | ObjectsUnavailable:
        if self.outage is None:
            return Overloaded(
                f"the broker accepts no messages: its journal has {self._stored_bytes} "
                f"bytes, and {self._limits.bytes_max} are allowed (bytes_max); it "
                "shrinks when segments are uploaded"
            )
        return ObjectsUnavailable(
            "messages are not acknowledged, and new ones are refused after "
            f"{self._limits.outage_s:g} s (outage_s): {self.outage}"
        )

    @property
    def byte_count(self) -> int:
        return self._stored_bytes

    @property
    def has_many_groups(self) -> bool:
        limit = self._limits.groups_max
        count = sum(section.group_count for section in self._sections)
        return bool(limit) and count > limit

    @property
    def entry_count(self) -> int:
        return sum(section.entry_count for section in self._sections)

    @property
    def file_count(self) -> int:
        return len(self._sections)

    @property
    def first_name(self) -> str:
        first = self._known[0]
        return first.object_name(first.first)

    @property
    def durable_end(self) -> JournalPosition:
        return JournalPosition(self._session.number, self._commits.committed_end)

    def oldest_ends(self) -> Mapping[TopicId, Offset]:
        return self._sections[0].ends if self._sections else {}

    def roll_if_useless(self, sealed_offset_of: SealedOffsetOf) -> None:
        """Do nothing, because the journal takes no space on the disk."""

    async def trim(self, sealed_offset_of: SealedOffsetOf, executor: Executor) -> None:
        async with self._trimming:
            if self.failure is not None or self.trim_holds:
                return
            try:
                if not self._is_known:
                    await self._load_sessions()
                if self._has_leftovers:
                    await self._remove_leftovers()
                    self._has_leftovers = False
                sections = self._sections[:-1]
                topics = [list(section.ends) for section in sections]
                count = count_sealed([s.ends for s in sections], sealed_offset_of)
                if count:
                    for topic_id in set().union(*topics[:count]):
                        self._note_sealed(topic_id, sealed_offset_of(topic_id))
                    await self._remove(count)
            except RevisionConflict:
                self._on_fenced("it has changed the list of sessions")
            except BrokerError as error:
                if not self._is_trim_failing:
                    log.warning("the journal cannot be trimmed yet: %s", error)
                self._is_trim_failing = True
            else:
                self._is_trim_failing = False

    @property
    def session(self) -> JournalSession:
        """The session of this broker."""
        return self._session

    def close(self) -> None:
        """Accept no more entries; those that wait fail with Closed."""
        self._cancel_timer()
        if self.failure is None:
            self._fail(Closed("the journal is closed"))

    async def watch_session(self, check_s: float) -> None:
        """Fail the journal if another session takes over, also if this one is idle."""
        while self.failure is None:
            await asyncio.sleep(check_s)
            # Another check finds out if the list cannot be read now.
            with suppress(MetadataUnavailable):
                last = (await self._sessions.load())[-1:]
                ours = self._session.session_id
                if not last or last[0].session_id != ours or last[0].is_frozen:
                    self._on_fenced("it has changed the list of sessions")

    # Putting groups.

    def _set_timer(self, delay_s: float) -> None:
        """Put the collected group after *delay_s*, or when the next one may begin."""
        due_at = max(self._loop.time() + delay_s, self._next_at)
        self._cancel_timer()
        self._due_at = due_at
        self._timer = self._loop.call_at(due_at, self._on_due)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._due_at = None
        self._is_due = False

    def _on_due(self) -> None:
        self._is_due = True
        self._put_groups()

    def _put_groups(self) -> None:
        """Put a group that is full or due, if the limits allow, and soon the next."""
        if self.failure is not None or not self._has_slot():
            return
        if self._full:
            group = self._full.popleft()
        elif self._is_due and self._collected.entries:
            group, self._collected = self._collected, Group()
            self._cancel_timer()
        else:
            return
        self._put_group(group)
        # Encoding many entries takes long, and the keepalives of the session wait.
        self._loop.call_soon(self._put_groups)

    def _has_slot(self) -> bool:
        if not self._in_flight:
            return True
        if self._needs_snapshot():
            return False
        return len(self._in_flight) < self._limits.in_flight_max

    def _needs_snapshot(self) -> bool:
        if self._open is None:
            return True
        in_flight = sum(put.byte_count for put in self._in_flight.values())
        if self._open.byte_count + in_flight >= self._config.file_bytes_max:
            return True
        topics = len(self.state.topics)
        if self._open.entry_count >= max(SECTION_ENTRIES, _ENTRIES_PER_TOPIC * topics):
            return True
        if not self._limits.groups_max:
            return False
        count = self._commits.next_number - self._open.first
        snapshot_groups = topics // _SNAPSHOT_ENTRIES_PER_GROUP
        return count >= max(self._limits.groups_max // 2, snapshot_groups)

    def _put_group(self, group: Group) -> None:
        entries = [entry for entry, _ in group.entries if entry is not None]
        if not entries:
            self._join(group)
            return
        # Before the number is taken, as _has_slot() has asked it.
        begins_section = self._needs_snapshot()
        number, kind, section = self._commits.begin(), GroupKind.ENTRIES, self._open
        if section is None or begins_section:
            snapshot = list(self.state.snapshot())
            entries = [*snapshot, SnapshotEnd(len(snapshot)), *entries]
            kind = GroupKind.SNAPSHOT
            section = self._open = Section(self._session.number, number)
        data = encode_group(
            entries,
            number=number,
            journal_id=self._journal_id,
            writer=self._session.writer,
            kind=kind,
            committed_end=self._commits.committed_end,
        )
        self._in_flight[number] = _Put(
            group,
            section,
            is_first=kind is GroupKind.SNAPSHOT,
            byte_count=len(data),
            begun_at=self._clock(),
        )
        self._next_at = self._loop.time() + self._linger_s
        self._tasks.run(self._put(number, data), f"put journal group {number}")

    def _join(self, group: Group) -> None:
        """Commit a group without entries together with the last group in flight."""
        if self._in_flight:
            last = next(reversed(self._in_flight.values())).group
            last.entries += group.entries
            last.byte_count += group.byte_count
            return
        self.pending_bytes -= group.byte_count
        notify(group, None)

    async def _put(self, number: int, data: bytes) -> None:
        """Put an object until it is known whether it exists, or who is the writer."""
        name, step, failures = self._session.object_name(number), Step.PUT, 0
        while step is not Step.END and self.failure is None:
            try:
                step = await self._take_step(step, name, number, data)
            except ObjectsUnavailable as error:
                failures += 1
                self._on_outage(error)
                if step is Step.PUT:
                    step = self._commits.on_put(number, Answer.UNKNOWN)
                await asyncio.sleep(self._retries.delay_s(failures))
            except Exception as error:
                log.exception("the journal cannot be written")
                self._fail(JournalFailed(f"{name} cannot be put: {error!r}"))
                return
            else:
                self._on_answer()
        if self._commits.is_fenced:
            self._on_fenced(f"it has put the object {name}")
        self._commit()

    async def _take_step(self, step: Step, name: str, number: int, data: bytes) -> Step:
        if step is Step.PUT:
            stored = await self._objects.put_if_absent(name, data)
            answer = Answer.STORED if stored else Answer.EXISTS
            return self._commits.on_put(number, answer)
        head = await self._objects.read(name, 0, HEADER_BYTES)
        writer = None if head is None else decode_group_header(head).writer
        return self._commits.on_read(number, writer)

    def _on_outage(self, error: ObjectsUnavailable) -> None:
        self.failure_count += 1
        if self.outage is None:
            log.warning("the journal waits for its store: %s", error)
            self._outage_since = self._clock()
        self.outage = error
        self._wake_room()

    def _on_answer(self) -> None:
        if self.outage is not None:
            log.warning("the store of the journal answers again")
            self.outage = None

    def _on_fenced(self, reason: str) -> None:
        if self.failure is not None:
            return
        error = JournalFailed(
            f"this broker stops: another broker has ended session "
            f"{self._session.number} of its journal and takes over its topics "
            f"({reason}). Whether messages without a receipt are stored is unknown: "
            "send them again, to the other broker"
        )
        log.critical("the journal failed: %s", error)
        self._fail(error)

    def _commit(self) -> None:
        """Commit the groups that are stored, and all before them."""
        if self.failure is not None:
            return
        committed = [self._in_flight.pop(n) for n in self._commits.take_committed()]
        now = self._clock()
        for put in committed:
            self._fold(put)
            self.pending_bytes -= put.group.byte_count
            self.commit_count += 1
            self.sync_count += 1
            self.commit_seconds.observe(now - put.begun_at)
        # Put the next groups first, so that the store works while the callbacks run.
        self._put_groups()
        for put in committed:
            notify(put.group, None)
        self._wake_room()

    def _fold(self, put: _Put) -> None:
        apply, ends = self.state.apply, put.section.ends
        if put.is_first:
            self._sections.append(put.section)
        put.section.byte_count += put.byte_count
        put.section.group_count += 1
        self._stored_bytes += put.byte_count
        for entry, _ in put.group.entries:
            if entry is None:
                continue
            put.section.entry_count += 1
            if apply(entry) and type(entry) is Batch:
                ends[entry.topic_id] = Offset(entry.frame.end)

    def _fail(self, error: JournalFailed | Closed) -> None:
        if self.failure is not None:
            return
        self.failure = error
        groups = [put.group for put in self._in_flight.values()]
        groups += [*self._full, self._collected]
        self._in_flight.clear()
        self._full.clear()
        self._collected = Group()
        self._cancel_timer()
        self.pending_bytes = 0
        for watcher in list(self._failure_watchers.values()):
            watcher()
        for group in groups:
            notify(group, error)
        self._wake_room()

    # Trimming.

    def _note_sealed(self, topic_id: TopicId, sealed_offset: int | None) -> None:
        """Record that a topic is sealed, so that recovery drops its messages."""
        topic = self.state.topics.get(topic_id)
        if sealed_offset is None or topic is None or self.failure is not None:
            return
        if topic.sealed_offset < sealed_offset:
            self.append(TopicSealed(topic_id, Offset(sealed_offset)), None, sync=False)

    async def _remove(self, count: int) -> None:
        """Remove the objects of the oldest *count* sections."""
        before, first = self._known, self._sections[count]
        after = tuple(_begin_at(session, first) for session in before)
        # First the list, so that no recovery looks for objects that are removed.
        await self._replace(after)
        self._stored_bytes -= sum(each.byte_count for each in self._sections[:count])
        del self._sections[:count]
        self._wake_room()
        removed = [
            old.object_name(number)
            for old, new in zip(before, after, strict=True)
            for number in range(old.first, new.first)
        ]
        # If this fails, the sessions stay in the list, and the objects are leftovers.
        self._has_leftovers = True
        await self._delete(removed)
        await self._forget_empty()
        self._has_leftovers = False

    async def _remove_leftovers(self) -> None:
        """Remove the objects before the first ones of all sessions."""
        if not self._objects.supports_listing:
            # Nothing refers to them.
            await self._forget_empty()
            return
        for session in self._known:
            names = await self._objects.names(session.prefix)
            end = session.object_name(session.first)
            await self._delete([name for name in names if name < end])
        await self._forget_empty()

    async def _forget_empty(self) -> None:
        """Remove the sessions from the list that have only their fence."""
        kept = tuple(each for each in self._known if each.first != each.end)
        if kept != self._known:
            await self._replace(kept)

    async def _delete(self, names: list[str]) -> None:
        for at in range(0, len(names), _DELETES_IN_FLIGHT):
            part = names[at : at + _DELETES_IN_FLIGHT]
            await run_all(self._objects.delete(name) for name in part)

    async def _replace(self, sessions: tuple[JournalSession, ...]) -> None:
        try:
            await self._sessions.replace(self._known, sessions)
        except MetadataUnavailable:
            self._is_known = False
            raise
        self._known = sessions

    async def _load_sessions(self) -> None:
        """Read the list after a change with an unknown outcome."""
        found = await self._sessions.load()
        is_last = found and found[-1].session_id == self._session.session_id
        if not is_last or found[-1].is_frozen:
            raise RevisionConflict("another session is taking over")
        self._known, self._is_known = found, True
        self._has_leftovers = True


def _begin_at(session: JournalSession, first: Section) -> JournalSession:
    """Return *session* without what is before the section *first*."""
    if session.number > first.session:
        return session
    if session.number == first.session:
        return replace(session, first=first.first)
    assert session.end is not None
    return replace(session, first=session.end)


@asynccontextmanager
async def open_object_journal(
    objects: Objects,
    sessions: JournalSessions,
    config: JournalConfig,
    limits: ObjectJournalConfig,
    *,
    journal_id: bytes,
    reserve: Reserve | None = None,
    new_session_id: Callable[[], bytes] = new_session_id,
    check: Callable[[Recovery], None] = lambda _: None,
    clock: Callable[[], float] = perf_counter,
    retries: RetryPolicy = RETRIES,
    close_s: float = CLOSE_S,
    check_s: float = CHECK_S,
) -> AsyncIterator[ObjectJournal]:
    """
    Take over the journal that *sessions* lists in *objects*, and open it.

    A broker that has it open is fenced: its journal fails with its next group.

    *journal_id* is the cluster id.  *check* is called with the recovered state before
    the new session is recorded, and may raise.  *clock* measures how long the store
    takes.  Every *check_s* seconds the journal checks that no other one has taken over.

    When the context ends, everything that was appended is committed, unless the store
    does not answer for *close_s*.

    Raises: As take_over().
        InvalidConfig: The store does not support put_if_absent().
    """
    if not objects.supports_put_if_absent:
        raise InvalidConfig(
            "the object store of the journal cannot store an object only if it is "
            "absent, which fencing needs; use another store"
        )
    recovered = await take_over(
        objects,
        sessions,
        journal_id=journal_id,
        session_id=new_session_id(),
        root=ROOT,
        check=check,
        retries=replace(retries, retries_max=READ_RETRIES_MAX),
    )
    async with task_scope() as tasks:
        journal = ObjectJournal(
            config,
            limits,
            recovered,
            objects=objects,
            sessions=sessions,
            journal_id=journal_id,
            reserve=reserve or Reserve(),
            tasks=tasks,
            retries=retries,
            clock=clock,
        )
        tasks.run(journal.watch_session(check_s), "watch the session of the journal")
        try:
            yield journal
        finally:
            try:
                with suppress(BrokerError, TimeoutError):
                    async with asyncio.timeout(close_s):
                        # Nothing more comes that a group could wait for.
                        journal.hurry()
                        await journal.sync()
            finally:
                journal.close()

"""
The log of changes of a cluster in ZooKeeper.

Reading.  A watch of ``head`` says that there are new changes, which are read from the
log and applied to the replica in order, so none is left out.  A reader that was cut off
for so long that the log does not have the next change any more reads all values again,
and finds what differs.

All values are read while others write.  The replica is right nevertheless once the
changes since the beginning are applied: each of them has the whole new value.

Writing.  A change is planned on the replica, and is made on condition that ``head`` is
as the replica has it.  So either nothing has changed since, or the change is not made,
and is planned again.

A change without an answer may be made later.  It is sent again, unaltered, until the
log has its number: by this writer, and then it was made; or by another one, and then it
cannot be made any more, because ``head`` has changed.  A caller that gives up or is
cancelled leaves a change in doubt.  It cannot be made after a later change for the same
reason; if that one has nothing to write, an empty change is written.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.security import OPEN_ACL_UNSAFE

from pydanube.model.errors import (
    MetadataUnavailable,
    RevisionConflict,
    SessionLost,
    TransactionTooLarge,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.metadata.store import Revision, Stored
from pydanube_broker.metadata.watches import difference, revisions_of
from pydanube_zookeeper.client import (
    RETRY_S,
    NoAnswer,
    ZookeeperClient,
    refusal_of,
)
from pydanube_zookeeper.multi_read import reading
from pydanube_zookeeper.pure.nodes import (
    ROOT,
    Head,
    LogEntry,
    Nodes,
    Write,
    decode_entry,
    decode_head,
    encode_entry,
    encode_head,
)
from pydanube_zookeeper.replica import Position, Replica

T = TypeVar("T")

log = logging.getLogger(__name__)

LOG_ENTRIES_MAX = 500
"""The number of changes that the log keeps for readers that are late."""

LOGGED_BYTES_MAX = 32 * 1024
"""Values up to this size are in the log, too."""

REQUEST_BYTES_MAX = 1_000_000
"""The size of a change; ZooKeeper by default closes a connection with a larger request
(``jute.maxbuffer``)."""

READ_NODES_MAX = 100
"""The number of nodes that one request reads."""

READS_MAX = 5
"""The number of such requests at the same time."""

READ_ALL_MAX = 10
"""How often reading all values begins again because the log lacks a change."""

_OPERATION_BYTES = 100
"""More than an operation takes besides its path and its data."""

Plan = Callable[[Replica], Mapping[str, Write | None]]
"""Returns the changes to make, by path."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A change that may have been made."""

    number: int
    attempt: int


class _Gap(Exception):
    """The log does not have a change, or the value that it has written."""


class ChangeLog:
    """Follows the changes of a cluster, and makes some."""

    def __init__(
        self,
        client: ZookeeperClient,
        nodes: Nodes,
        *,
        on_values: Callable[[Revision, Mapping[str, Stored[bytes] | None]], None],
        on_own_change: Callable[[Revision, list[str]], None],
        entries_max: int = LOG_ENTRIES_MAX,
    ) -> None:
        """
        Call *on_values* with each change, and *on_own_change* with those made here.

        The log keeps *entries_max* changes.
        """
        self._entries_max = entries_max
        self.replica = Replica(
            Position(number=0, first=1, version=0, revision=Revision(0))
        )
        self._client = client
        self._nodes = nodes
        self._on_values = on_values
        self._on_own_change = on_own_change
        self._writer = uuid.uuid4().hex
        self._attempts = count(1)
        # Changes are made in the order of the calls.
        self._writing = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._doubt: _Attempt | None = None
        """The newest change without an answer, until its outcome is known."""
        self._made: tuple[_Attempt, Revision] | None = None
        """The newest change by this writer that the replica has."""
        self._is_new = asyncio.Event()
        self._is_new.set()
        self._gap_closed = asyncio.Event()
        """Not set while the log lacks the next change of the replica."""
        self._gap_closed.set()

    async def open(self) -> None:
        """
        Create the nodes of the cluster if they are missing, and read all values.

        Raises: As ``ZookeeperClient.ask``.
        """
        deadline = self._client.new_deadline()
        await self._create_nodes(deadline)
        async with self._reading:
            self.replica = await self._read_all()

    async def refresh(self, deadline: float | None = None) -> None:
        """Apply all changes that were made before this call."""
        deadline = deadline or self._client.new_deadline()
        head = await self._read_head(deadline)
        try:
            async with asyncio.timeout_at(deadline):
                while self.replica.position.number < head.number:
                    await self._gap_closed.wait()
                    await self._catch_up(head, deadline)
        except TimeoutError:
            raise self._client.unavailable() from None

    async def follow(self) -> None:
        """Apply changes soon after they were made; runs beside the callers."""
        on_event = self._client.calling(self._is_new.set)
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            deadline = self._client.new_deadline()
            try:
                head = await self._read_head(deadline, on_event)
                if self._gap_closed.is_set():
                    await self._catch_up(head, deadline)
                if not self._gap_closed.is_set():
                    await self._close_gap()
            except MetadataUnavailable as error:
                log.debug("watches wait: %s", error)
                await asyncio.sleep(RETRY_S)
                self._is_new.set()

    async def commit(
        self, plan: Plan, *, deadline: float | None = None
    ) -> tuple[Revision, list[str]]:
        """
        Make the changes that *plan* returns; return the revision and changed paths.

        *plan* is called again if others have made changes meanwhile, and if it raises
        RevisionConflict while the replica may be out of date.

        Raises:
            MetadataUnavailable: ZooKeeper does not answer.
            RevisionConflict: *plan* has raised it for the current values.
            TransactionTooLarge: ZooKeeper does not accept a change of this size.
            SessionLost: A session that a path belongs to has ended.
        """
        deadline = deadline or self._client.new_deadline()
        async with self._writing:
            is_current = False
            while True:
                conflict: RevisionConflict | None = None
                changes: dict[str, Write | None] = {}
                try:
                    changes = self.replica.effective(plan(self.replica))
                except RevisionConflict as error:
                    conflict = error
                if changes:
                    revision = await self._write(changes, deadline)
                    if revision is not None:
                        return revision, list(changes)
                elif not is_current:
                    await self.refresh(deadline)
                elif self._is_in_doubt():
                    await self._write({}, deadline)
                elif conflict is not None:
                    raise conflict
                else:
                    return self.replica.position.revision, []
                is_current = True

    # Writing.

    def _is_in_doubt(self) -> bool:
        """Return whether an earlier change may still be made."""
        return (
            self._doubt is not None
            and self._doubt.number > self.replica.position.number
        )

    async def _write(
        self, changes: Mapping[str, Write | None], deadline: float
    ) -> Revision | None:
        """
        Make *changes*, and return the revision.

        None: The replica was not current; it is now, and the changes were not made.
        """
        position = self.replica.position
        number = position.number + 1
        attempt = _Attempt(number, next(self._attempts))
        first = min(max(position.first, number + 1 - self._entries_max), number)
        # The log may have become shorter with a new version; two at a time are enough.
        first = min(first, position.first + 2)
        entry = LogEntry(
            writer=self._writer, attempt=attempt.attempt, first=first, changes=changes
        )
        request = self._request(entry, position)
        self._doubt = attempt
        is_sent_again = False
        while True:
            try:
                (results,) = await self._client.ask_once(request, deadline=deadline)
            except NoAnswer:
                is_sent_again = True
                await self._client.pause(deadline)
                await self.refresh(deadline)
                if self.replica.position.number >= number:
                    return await self._outcome(attempt, deadline)
                continue
            failure = next((r for r in results if _is_failure(r)), None)
            if failure is None:
                self._doubt = None
                revision = Revision(results[0].mzxid)
                # The replica may have it already, from the log.
                if number == self.replica.position.number + 1:
                    self._apply(entry, changes, position.next(revision, first))
                return revision
            if not isinstance(failure, BadVersionError):
                raise self._refused(entry, results)
            await self.refresh(deadline)
            if is_sent_again:
                return await self._outcome(attempt, deadline)
            self._doubt = None
            return None

    async def _outcome(self, attempt: _Attempt, deadline: float) -> Revision | None:
        """
        Return the revision of the change that *attempt* made; None: it never will be.

        Raises:
            MetadataUnavailable: The log has forgotten it.
        """
        if self._made is not None and self._made[0] == attempt:
            self._doubt = None
            return self._made[1]
        # The replica may have read all values instead of this change.
        try:
            ((_, entry, revision),) = await self._read_log(
                attempt.number, attempt.number, deadline
            )
        except _Gap:
            raise MetadataUnavailable(
                "ZooKeeper has not answered a change of metadata, and others have made "
                f"{self._entries_max} changes since; whether the change was made is "
                "unknown"
            ) from None
        self._doubt = None
        if (entry.writer, entry.attempt) != (self._writer, attempt.attempt):
            return None
        self._on_own_change(revision, list(entry.changes))
        return revision

    def _request(self, entry: LogEntry, position: Position) -> Callable[[Any], Any]:
        """
        Return the request that makes the change *entry* at *position*.

        Raises:
            TransactionTooLarge: ZooKeeper does not accept it.
        """
        nodes, acl = self._nodes, self._client.acl
        number = position.number + 1
        head = encode_head(Head(number=number, first=entry.first))
        logged = encode_entry(_without_large_values(entry))
        node_changes = self.replica.node_changes(nodes, entry.changes)
        sessions = _sessions_in(entry)
        trimmed = range(position.first, entry.first)
        size = len(logged) + sum(
            len(each.node) + len(each.data or b"") + _OPERATION_BYTES
            for each in node_changes
        )
        size += (len(sessions) + len(trimmed) + 2) * (
            len(nodes.root) + _OPERATION_BYTES
        )
        if size > REQUEST_BYTES_MAX:
            raise TransactionTooLarge(
                f"a change of metadata has {size} bytes; ZooKeeper accepts "
                f"{REQUEST_BYTES_MAX} by default (jute.maxbuffer): divide it"
            )

        def send(kazoo: Any) -> Any:
            transaction = kazoo.transaction()
            transaction.set_data(nodes.head, head, version=position.version)
            for session_id in sessions:
                transaction.check(nodes.session(session_id), version=-1)
            transaction.create(nodes.entry(number), logged, acl=acl)
            for old in trimmed:
                transaction.delete(nodes.entry(old))
            for each in node_changes:
                if each.data is None:
                    transaction.delete(each.node)
                elif each.is_new:
                    transaction.create(each.node, each.data, acl=acl)
                else:
                    transaction.set_data(each.node, each.data)
            return transaction.commit_async()

        return send

    def _refused(self, entry: LogEntry, results: list[Any]) -> Exception:
        """Return the error for a change that failed although ``head`` is as known."""
        self._doubt = None
        for session_id, result in zip(_sessions_in(entry), results[1:], strict=False):
            if isinstance(result, NoNodeError):
                return SessionLost(f"ZooKeeper has ended session {session_id}")
        failure = next(each for each in results if _is_failure(each))
        if not isinstance(failure, NoNodeError | NodeExistsError):
            return refusal_of(failure)
        return MetadataUnavailable(
            f"the nodes below {self._nodes.root} in ZooKeeper were changed by another "
            f"program ({type(failure).__name__}); restore them from a backup"
        )

    # Reading.

    async def _create_nodes(self, deadline: float) -> None:
        nodes, acl = self._nodes, self._client.acl

        def create_root(kazoo: Any) -> Any:
            return kazoo.create_async(ROOT, acl=OPEN_ACL_UNSAFE)

        def create(kazoo: Any) -> Any:
            transaction = kazoo.transaction()
            transaction.create(nodes.root, acl=acl)
            for node in (nodes.log, nodes.sessions, nodes.values):
                transaction.create(node, acl=acl)
            transaction.create(nodes.head, encode_head(Head()), acl=acl)
            return transaction.commit_async()

        (found,) = await self._client.ask(
            lambda kazoo: kazoo.exists_async(nodes.head), deadline=deadline
        )
        if found is not None:
            return
        with suppress(NodeExistsError):
            await self._client.ask(create_root, deadline=deadline)
        # Another broker may create them at the same time.
        (results,) = await self._client.ask(create, deadline=deadline)
        failure = next((each for each in results if _is_failure(each)), None)
        if failure is not None and not isinstance(failure, NodeExistsError):
            raise refusal_of(failure)

    async def _read_head(
        self, deadline: float, on_event: Callable[[object], None] | None = None
    ) -> Head:
        """Return the newest head."""
        head, _ = await self._read_head_node(deadline, on_event)
        if head.number < self.replica.position.number:
            raise self._lost()
        return head

    async def _read_head_node(
        self, deadline: float, on_event: Callable[[object], None] | None = None
    ) -> tuple[Head, Any]:
        """Return the newest head, and the state of its node."""
        head = self._nodes.head
        try:
            _, (data, stat) = await self._client.ask(
                # The member asks the leader for what it does not have yet.
                lambda kazoo: kazoo.sync_async(head),
                lambda kazoo: kazoo.get_async(head, watch=on_event),
                deadline=deadline,
            )
        except NoNodeError as error:
            raise self._lost() from error
        return decode_head(data), stat

    async def _catch_up(self, head: Head, deadline: float) -> None:
        """Apply the changes up to *head* that the replica lacks and the log has."""
        async with self._reading:
            try:
                while self.replica.position.number < head.number:
                    await self._apply_next(head, deadline)
            except _Gap:
                self._gap_closed.clear()
                self._is_new.set()

    async def _close_gap(self) -> None:
        """Read all values, and report those that the replica does not have."""
        log.info("the log lacks changes of metadata; reading all of it")
        async with self._reading:
            replica = await self._read_all()
            missed = difference(revisions_of(self.replica.values), replica.values)
            self.replica = replica
            self._gap_closed.set()
            if missed:
                self._on_values(replica.position.revision, missed)

    async def _apply_next(self, head: Head, deadline: float) -> None:
        """
        Apply the next changes, at most ``READ_NODES_MAX``.

        Raises:
            _Gap: The log does not have one.
        """
        begin = self.replica.position.number + 1
        end = min(head.number, begin + READ_NODES_MAX - 1)
        for number, entry, revision in await self._read_log(begin, end, deadline):
            changes = await self._with_values(entry, revision, deadline)
            # The writer may have applied it meanwhile.
            if number == self.replica.position.number + 1:
                position = self.replica.position.next(revision, entry.first)
                self._apply(entry, changes, position)

    def _apply(
        self,
        entry: LogEntry,
        changes: Mapping[str, Write | None],
        position: Position,
    ) -> None:
        values = self.replica.apply(changes, position)
        if entry.writer == self._writer:
            self._made = (_Attempt(position.number, entry.attempt), position.revision)
            if values:
                self._on_own_change(position.revision, list(values))
        if values:
            self._on_values(position.revision, values)

    async def _read_log(
        self, begin: int, end: int, deadline: float
    ) -> list[tuple[int, LogEntry, Revision]]:
        """
        Return the changes from *begin* to *end* with their revisions.

        Raises:
            _Gap: The log does not have one.
        """
        found = await self._read(
            [self._nodes.entry(number) for number in range(begin, end + 1)], deadline
        )
        entries = []
        for number, node in enumerate(found, begin):
            if node is None:
                raise _Gap
            data, stat = node
            entries.append((number, decode_entry(data), Revision(stat.czxid)))
        return entries

    async def _read(
        self, nodes: Sequence[str], deadline: float
    ) -> list[tuple[bytes, Any] | None]:
        """Return the data and the state of each of *nodes*; None: it is absent."""
        parts = [
            reading(nodes[begin : begin + READ_NODES_MAX])
            for begin in range(0, len(nodes), READ_NODES_MAX)
        ]
        answers = await self._client.ask(*parts, deadline=deadline)
        return [node for answer in answers for node in answer]

    async def _with_values(
        self, entry: LogEntry, revision: Revision, deadline: float
    ) -> Mapping[str, Write | None]:
        """Return the changes of *entry* with the values that the log does not have."""
        large = {
            path: write
            for path, write in entry.changes.items()
            if write is not None and write.value is None
        }
        if not large:
            return entry.changes
        changes = dict(entry.changes)
        nodes = [self._nodes.value(path, w.session_id) for path, w in large.items()]
        found = await self._read(nodes, deadline)
        for (path, write), node in zip(large.items(), found, strict=True):
            if node is None or node[1].mzxid != revision:
                raise _Gap
            changes[path] = Write(value=node[0], session_id=write.session_id)
        return changes

    async def _read_all(self) -> Replica:
        """Return a copy of all values; each request has the whole time."""
        for _ in range(READ_ALL_MAX):
            try:
                return await self._try_read_all()
            except _Gap:
                continue
        raise MetadataUnavailable(
            f"ZooKeeper gets {self._entries_max} changes of metadata while all of it "
            "is read; make fewer changes"
        )

    async def _try_read_all(self) -> Replica:
        before, stat = await self._read_head_node(self._client.new_deadline())
        values: dict[str, Stored[bytes]] = {}
        holders: dict[str, str] = {}
        position = Position(
            number=before.number,
            first=before.first,
            version=stat.version,
            revision=await self._revision_of(before, stat),
        )
        (names,) = await self._client.ask(
            lambda kazoo: kazoo.get_children_async(self._nodes.values)
        )
        for part in _in_parts(names, READ_NODES_MAX * READS_MAX):
            nodes = [f"{self._nodes.values}/{name}" for name in part]
            found = await self._read(nodes, self._client.new_deadline())
            for name, node in zip(part, found, strict=True):
                if node is None:
                    # Deleted meanwhile.
                    continue
                path, session_id = self._nodes.path_of(name)
                data, stat = node
                values[path] = Stored(data, Revision(stat.mzxid))
                holders.pop(path, None)
                if session_id is not None:
                    holders[path] = session_id
        after, _ = await self._read_head_node(self._client.new_deadline())
        replica = Replica(position, values, holders)
        numbers = range(before.number + 1, after.number + 1)
        for some in _in_parts(numbers, READ_NODES_MAX):
            deadline = self._client.new_deadline()
            for _, entry, revision in await self._read_log(some[0], some[-1], deadline):
                changes = await self._with_values(entry, revision, deadline)
                replica.apply(changes, replica.position.next(revision, entry.first))
        return replica

    async def _revision_of(self, head: Head, stat: Any) -> Revision:
        """Return the revision of the newest change, as *head* has it."""
        if head.number == 0:
            return Revision(stat.czxid)
        node = self._nodes.entry(head.number)
        (found,) = await self._client.ask(lambda kazoo: kazoo.exists_async(node))
        if found is None:
            raise _Gap
        return Revision(found.czxid)

    def _lost(self) -> MetadataUnavailable:
        return MetadataUnavailable(
            f"{self._nodes.head} is missing in ZooKeeper: the metadata of the cluster "
            "was deleted; restore it from a backup, or start all brokers again"
        )


def _in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def _is_failure(result: object) -> bool:
    """Return whether *result* is why a transaction was not made."""
    return isinstance(result, Exception) and not isinstance(
        result, RolledBackError | RuntimeInconsistency
    )


def _sessions_in(entry: LogEntry) -> list[str]:
    """Return the sessions that paths belong to after *entry*."""
    found = {
        write.session_id: None
        for write in entry.changes.values()
        if write is not None and write.session_id is not None
    }
    return list(found)


def _without_large_values(entry: LogEntry) -> LogEntry:
    changes = {
        path: Write(value=None, session_id=write.session_id)
        if write is not None and len(write.value or b"") > LOGGED_BYTES_MAX
        else write
        for path, write in entry.changes.items()
    }
    return LogEntry(
        writer=entry.writer, attempt=entry.attempt, first=entry.first, changes=changes
    )

"""
Changes whose outcome is known.

A change that no member has answered may be made, may have been lost, or may be made
later: a member can hold it back, for example while etcd elects a leader.  The writer
finds out, as follows.

Each writer has two keys of its own, ``fence`` and ``number``.  Each of its transactions
compares the revision of the fence and puts its own number, besides what the caller
wants.  After a transaction without an answer, and after one that was cancelled, the
writer puts its fence again, before anything else.  From then on, no earlier transaction
can succeed.  The history of both keys says whether it did: it did if the number was put
before the fence.  If not, the writer repeats the transaction.

The caller therefore always learns the outcome, and a change that failed is not made
later.  The price is one more comparison and one more put in each transaction.  Both
keys have a lease that is not renewed: when it expires, transactions fail, and the
writer begins with a new one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from itertools import count

from pydanube.model.errors import BrokerError, MetadataUnavailable, SessionLost
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.pb import etcd_pb2 as pb
from pydanube_broker.metadata.etcd.attempts import Attempts
from pydanube_broker.metadata.etcd.client import (
    LEASE_GRANT,
    LEASE_REVOKE,
    PUT,
    TXN,
    EtcdClient,
)
from pydanube_broker.metadata.etcd.failures import Compacted, LeaseNotFound, NoAnswer
from pydanube_broker.metadata.etcd.keyspace import Keyspace, stored_in
from pydanube_broker.metadata.etcd.watching import events_since
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.store import (
    Comparison,
    Operation,
    Revision,
    Unchanged,
    check,
    encode_changes,
    sessions_of,
)

WRITERS = "/writers/"
"""The prefix of the keys of all writers."""

LEASE_TTL_S = 3600

_CLOSE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class _Fence:
    """A put of the fence, which all earlier transactions of the writer precede."""

    revision: int
    lease_id: int


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition that a session holds its key."""

    session: Session
    key: bytes
    revision: Revision


class Writer:
    """Makes the changes of one store object."""

    def __init__(self, client: EtcdClient, keyspace: Keyspace) -> None:
        self.guard: Guard | None = None
        """The condition for any change."""
        self._client = client
        self._keyspace = keyspace
        self._prefix = f"{WRITERS}{uuid.uuid4().hex}/"
        self._fence_key = keyspace.key(f"{self._prefix}fence")
        self._number_key = keyspace.key(f"{self._prefix}number")
        self._numbers = count(1)
        self._lock = asyncio.Lock()
        self._fence: _Fence | None = None
        """None: a transaction may still be on its way."""

    async def commit(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        """
        Apply *operations* if *comparisons* hold; see ``MetadataStore.transaction``.

        Returns: The revision and the changed paths.
        """
        sessions = sessions_of(operations)
        changes = encode_changes(operations)
        attempts = self._client.new_attempts()
        is_lease_in_doubt = False
        while True:
            if self.guard is not None:
                self.guard.session.check()
            fence = await self._ensure_fence(attempts)
            number = str(next(self._numbers)).encode()
            since = self._client.revision
            request = self._request(fence, number, comparisons, changes, sessions)
            try:
                answer = await self._client.ask_once(TXN, request, attempts)
            except NoAnswer:
                self._drop(fence)
                await self._client.pause(attempts)
                revision = await self._find(number, since, attempts)
                if revision is not None:
                    return await self._changed_at(revision, changes)
                continue
            except LeaseNotFound as error:
                self._drop(fence)
                if is_lease_in_doubt and sessions:
                    # The writer's own lease was new.
                    raise _lost(sessions) from error
                is_lease_in_doubt = True
                await self._client.pause(attempts)
                continue
            except BaseException:
                # The transaction may be made later, but not after the next one.
                self._drop(fence)
                raise
            if answer.succeeded:
                return _applied(answer, changes)
            found = [each.response_range.kvs for each in answer.responses]
            if not found[0] or found[0][0].mod_revision != fence.revision:
                # Another call has put the fence meanwhile, or its lease has expired.
                self._drop(fence)
                await self._client.pause(attempts)
                continue
            begin = 1
            if self.guard is not None:
                begin = 2
                if not found[1] or found[1][0].mod_revision != self.guard.revision:
                    raise SessionLost(
                        "this broker's session in etcd has ended, so it must not "
                        "change metadata any more"
                    )
            for comparison, entries in zip(comparisons, found[begin:], strict=True):
                stored = stored_in(entries[0]) if entries else None
                check(comparison, stored)
            raise AssertionError("etcd refused a transaction whose comparisons hold")

    async def close(self) -> None:
        """Delete the writer's keys, if etcd answers; otherwise its lease does so."""
        fence, self._fence = self._fence, None
        if fence is None:
            return
        attempts = Attempts(asyncio.get_running_loop().time(), _CLOSE_TIMEOUT_S, 1)
        request = pb.LeaseRevokeRequest(ID=fence.lease_id)
        try:
            await self._client.ask_once(LEASE_REVOKE, request, attempts)
        except (NoAnswer, LeaseNotFound, BrokerError):
            return

    def _drop(self, fence: _Fence) -> None:
        """Put the fence again before the next transaction."""
        if self._fence is fence:
            self._fence = None

    async def _ensure_fence(self, attempts: Attempts) -> _Fence:
        """Return the fence; put it first, if an earlier transaction may be late."""
        async with self._lock:
            if self._fence is None:
                lease = await self._client.ask(
                    LEASE_GRANT, pb.LeaseGrantRequest(TTL=LEASE_TTL_S), attempts
                )
                request = pb.PutRequest(key=self._fence_key, lease=lease.ID)
                answer = await self._client.ask(PUT, request, attempts)
                self._fence = _Fence(answer.header.revision, lease.ID)
            return self._fence

    def _request(
        self,
        fence: _Fence,
        number: bytes,
        comparisons: Sequence[Comparison],
        changes: Mapping[str, bytes | None],
        sessions: Mapping[str, Session],
    ) -> pb.TxnRequest:
        key_of = self._keyspace.key
        request = pb.TxnRequest()
        request.compare.add(
            target=pb.Compare.MOD, key=self._fence_key, mod_revision=fence.revision
        )
        request.failure.add().request_range.key = self._fence_key
        if self.guard is not None:
            request.compare.add(
                target=pb.Compare.MOD,
                key=self.guard.key,
                mod_revision=self.guard.revision,
            )
            request.failure.add().request_range.key = self.guard.key
        for comparison in comparisons:
            request.compare.append(_compare(key_of(comparison.key.path), comparison))
            request.failure.add().request_range.key = key_of(comparison.key.path)
        for path, value in changes.items():
            operation = request.success.add()
            if value is None:
                operation.request_delete_range.key = key_of(path)
                continue
            put = operation.request_put
            put.key, put.value = key_of(path), value
            if path in sessions:
                put.lease = int(sessions[path].session_id, 16)
        put = request.success.add().request_put
        put.key, put.value, put.lease = self._number_key, number, fence.lease_id
        return request

    async def _find(
        self, number: bytes, since: int, attempts: Attempts
    ) -> Revision | None:
        """
        Return the revision of the transaction *number*, sent after revision *since*.

        None: it was not made and never will be.

        Raises:
            MetadataUnavailable: etcd does not answer, or has forgotten its history.
        """
        fence = await self._ensure_fence(attempts)
        while True:
            try:
                async with asyncio.timeout_at(attempts.deadline):
                    return await self._look_for(number, since, fence)
            except TimeoutError:
                raise self._client.unavailable() from None
            except Compacted as error:
                raise MetadataUnavailable(
                    "etcd has not answered a change of metadata and has compacted its "
                    "history since; whether the change was made is unknown"
                ) from error
            except NoAnswer:
                await self._client.pause(attempts)

    async def _look_for(
        self, number: bytes, since: int, fence: _Fence
    ) -> Revision | None:
        begin, end = self._keyspace.range_of(self._prefix)
        events: AsyncIterator[Sequence[pb.Event]] = events_since(
            self._client, begin, end, since + 1
        )
        async with aclosing(events) as batches:  # type: ignore[type-var]
            async for batch in batches:
                for event in batch:
                    entry = event.kv
                    if entry.key == self._number_key and entry.value == number:
                        return Revision(entry.mod_revision)
                    if (
                        entry.key == self._fence_key
                        and entry.mod_revision >= fence.revision
                    ):
                        return None
        raise NoAnswer("the history ended")

    async def _changed_at(
        self, revision: Revision, changes: Mapping[str, bytes | None]
    ) -> tuple[Revision, list[str]]:
        """Return the paths that a transaction has changed at *revision*."""
        request = pb.TxnRequest()
        deleted = [path for path, value in changes.items() if value is None]
        for path in deleted:
            before = request.success.add().request_range
            before.key, before.revision = self._keyspace.key(path), revision - 1
        existed: set[str] = set()
        if deleted:
            try:
                answer = await self._client.ask(TXN, request)
            except Compacted:
                # It is unknown which of them existed.
                existed = set(deleted)
            else:
                existed = {
                    path
                    for path, each in zip(deleted, answer.responses, strict=True)
                    if each.response_range.kvs
                }
        return revision, [
            path
            for path, value in changes.items()
            if value is not None or path in existed
        ]


def _compare(key: bytes, comparison: Comparison) -> pb.Compare:
    if isinstance(comparison, Unchanged):
        return pb.Compare(
            target=pb.Compare.MOD, key=key, mod_revision=comparison.expected
        )
    value = comparison.key.encode(comparison.value)
    return pb.Compare(target=pb.Compare.VALUE, key=key, value=value)


def _applied(
    answer: pb.TxnResponse, changes: Mapping[str, bytes | None]
) -> tuple[Revision, list[str]]:
    # The last response is that of the writer's own key.
    changed = [
        path
        for (path, value), each in zip(
            changes.items(), answer.responses[:-1], strict=True
        )
        if value is not None or each.response_delete_range.deleted
    ]
    return Revision(answer.header.revision), changed


def _lost(sessions: Mapping[str, Session]) -> SessionLost:
    # A transaction rarely has more than one; the others learn it from etcd.
    session = next(iter(sessions.values()))
    return SessionLost(f"etcd has ended session {session.session_id}")

"""
A metadata store in etcd.

The keys of all clusters and of other programs share one revision, so the changes of a
cluster do not have consecutive numbers.

Durability.  etcd answers when most of its members have a change on disk.  Reads are
linearizable: a member asks the others before it answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    suppress,
)
from functools import partial
from typing import TypeVar

from pydanube.model.errors import MetadataUnavailable
from pydanube.wire.pb import etcd_pb2 as pb
from pydanube_broker.metadata.etcd.client import RANGE, EtcdClient, open_client
from pydanube_broker.metadata.etcd.config import EtcdConfig
from pydanube_broker.metadata.etcd.failures import AnswerTooLarge, Compacted
from pydanube_broker.metadata.etcd.keyspace import Keyspace, stored_in
from pydanube_broker.metadata.etcd.leases import open_lease
from pydanube_broker.metadata.etcd.reading import RangeReader, open_reader
from pydanube_broker.metadata.etcd.watching import watch_prefix
from pydanube_broker.metadata.etcd.writer import Guard, Writer
from pydanube_broker.metadata.keepalive_thread import session_in_thread
from pydanube_broker.metadata.key import Key
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.store import (
    Changes,
    Comparison,
    Operation,
    RawChanges,
    Revision,
    SharedStore,
    Stored,
)

T = TypeVar("T")

PAGE_KEYS = 1000
"""The number of keys that one request reads; fewer if they are large."""

RANGE_KEYS_MAX = 100
"""How many keys of a prefix a read has that shares a request with others."""

SCANS_MAX = 10
"""How often a scan begins again because etcd has compacted its revision."""


@asynccontextmanager
async def open_etcd(config: EtcdConfig) -> AsyncIterator[EtcdStore]:
    """
    Open the store of the cluster ``config.cluster_name``.

    Raises:
        MetadataUnavailable: No endpoint answers.
        InvalidConfig: There are no endpoints, a file cannot be read, or etcd refuses
            the user or the password.
    """
    async with open_client(config) as client, open_reader(client) as reader:
        store = EtcdStore(config, client, reader)
        await store.revision()
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def _open_lease(config: EtcdConfig, ttl_s: float) -> AsyncIterator[Session]:
    """Open a session with a connection of its own."""
    async with open_client(config) as client, open_lease(client, ttl_s) as session:
        yield session


class EtcdStore(SharedStore):
    """A ``MetadataStore`` in etcd; opened by ``open_etcd``."""

    def __init__(
        self, config: EtcdConfig, client: EtcdClient, reader: RangeReader
    ) -> None:
        self._config = config
        self._client = client
        self._keyspace = Keyspace(config.cluster_name)
        self._reader = reader
        self._writer = Writer(client, self._keyspace)

    async def close(self) -> None:
        """Delete what the store needed for itself; ``open_etcd`` does the rest."""
        await self._writer.close()

    def guard(self, session: Session, key: Key[T], revision: Revision) -> None:
        """See SharedStore."""
        self._writer.guard = Guard(session, self._keyspace.key(key.path), revision)

    async def revision(self) -> Revision:
        """See MetadataStore."""
        request = pb.RangeRequest(key=self._keyspace.key("/"), count_only=True)
        answer = await self._client.ask(RANGE, request)
        return Revision(answer.header.revision)

    def open_session(self, ttl_s: float) -> AbstractAsyncContextManager[Session]:
        """See MetadataStore; the TTL is rounded up to seconds."""
        return session_in_thread(partial(_open_lease, self._config, ttl_s))

    async def _get(self, path: str) -> Stored[bytes] | None:
        request = pb.RangeRequest(key=self._keyspace.key(path))
        answer = await self._reader.read(request)
        return stored_in(answer.kvs[0]) if answer.kvs else None

    async def _scan(
        self, prefix: str, after: str, limit: int | None
    ) -> Sequence[tuple[str, Stored[bytes]]]:
        if not after and limit is None:
            begin, end = self._keyspace.range_of(prefix)
            request = pb.RangeRequest(key=begin, range_end=end, limit=RANGE_KEYS_MAX)
            with suppress(AnswerTooLarge):
                answer = await self._reader.read(request)
                if not answer.more:
                    return self._found_in(answer)
        _, found = await self._read(prefix, after, limit)
        return found

    def _found_in(self, answer: pb.RangeResponse) -> list[tuple[str, Stored[bytes]]]:
        return [(self._keyspace.path(each.key), stored_in(each)) for each in answer.kvs]

    async def _change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        if not comparisons and not operations:
            return await self.revision(), []
        revision, paths = await self._writer.commit(comparisons, operations)
        if paths and self._on_change is not None:
            self._on_change(revision, paths)
        return revision, paths

    @asynccontextmanager
    async def _watch(self, prefix: str) -> AsyncIterator[AsyncIterator[RawChanges]]:
        async def load() -> RawChanges:
            revision, found = await self._read(prefix, "", None)
            return Changes(revision, dict(found))

        changes = watch_prefix(self._client, self._keyspace, prefix, load)
        async with aclosing(changes):
            yield changes

    async def _read(
        self, prefix: str, after: str, limit: int | None
    ) -> tuple[Revision, list[tuple[str, Stored[bytes]]]]:
        """Read in pages what is below *prefix* at one revision."""
        for _ in range(SCANS_MAX):
            try:
                return await self._try_read(prefix, after, limit)
            except Compacted:
                continue
        raise MetadataUnavailable(
            f"etcd is compacted faster than {prefix} can be read; compact it less often"
        )

    async def _try_read(
        self, prefix: str, after: str, limit: int | None
    ) -> tuple[Revision, list[tuple[str, Stored[bytes]]]]:
        begin, end = self._keyspace.range_of(prefix)
        if after >= prefix:
            begin = self._keyspace.key(after) + b"\0"
        found: list[tuple[str, Stored[bytes]]] = []
        revision, page = 0, PAGE_KEYS
        while True:
            rest = page if limit is None else min(page, limit - len(found))
            request = pb.RangeRequest(
                key=begin, range_end=end, limit=rest, revision=revision
            )
            try:
                answer = await self._client.ask(RANGE, request)
            except AnswerTooLarge:
                assert page > 1, "a value is larger than any request"
                page = max(1, page // 4)
                continue
            found += self._found_in(answer)
            # Later pages are of the same revision.
            revision = revision or answer.header.revision
            if not answer.more or len(found) == limit:
                return Revision(revision), found
            begin = answer.kvs[-1].key + b"\0"

"""
Staged parts in the object store that the brokers of a cluster share.

An object is the complete file of one part.  Its name follows from the key of the part,
so every broker finds it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TypeVar

from pydanube.aio.tasks import TaskScope, gather
from pydanube.model.errors import CorruptStage, InvalidRequest, StagedPartNotFound
from pydanube.model.staging import PartKey
from pydanube.objects.store import Objects
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.staging_format import (
    FileHeader,
    PartContent,
    decode_file_header,
    read_part,
)
from pydanube_broker.storage.journal.staging import PartReader

log = logging.getLogger(__name__)

T = TypeVar("T")

ROOT = ".staging/"
"""The prefix of the names; readers of tables ignore names that begin with a dot."""
OBJECT_BYTES_MAX = 64 * 1024 * 1024
"""The longest part of a cluster: brokers read parts as a whole."""
TOPICS_MAX = 10_000
"""The number of parts whose topics are remembered."""
TRANSFERS_MAX = 4
"""The number of parts that are stored or verified at the same time."""
SMALL_BYTES = 1024 * 1024
"""A part of fewer bytes is read with one request, and many at a time."""
SMALL_READS_MAX = 32
"""The number of small parts that are verified at the same time."""
AHEAD_MAX = 16
"""The number of parts whose first bytes are read before they are opened."""
DELETIONS_MAX = 16
"""The number of objects that are deleted at a time."""
STATS_MAX = 16
"""The number of objects whose size is requested at a time."""
_HEADER_BYTES_MAX = 4096


def query_prefix(query: str) -> str:
    """Return the prefix of the names of a query's parts."""
    return f"{ROOT}{_digest(query)}/"


def version_prefix(query: str, version: int) -> str:
    """Return the prefix of the names of a version's parts."""
    return f"{query_prefix(query)}{version:020d}/"


def name_of(key: PartKey) -> str:
    """Return the name of a part's object."""
    prefix = version_prefix(key.query, key.version)
    # Names have no slash.
    return prefix + _digest(f"{key.name}/{key.part_id}")


def version_of(name: str) -> int:
    """Return the version of the part whose object has this name."""
    return int(name.rsplit("/", 2)[1])


class StagedObjects:
    """
    The complete parts of all brokers.

    Bounds: At most ``TRANSFERS_MAX`` parts are in memory for put() and verify(), with
        ``SMALL_READS_MAX`` small ones, and one for each reader.
    """

    def __init__(
        self,
        objects: Objects,
        bytes_max: int = OBJECT_BYTES_MAX,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        """Parts of more than *bytes_max* are refused."""
        self._objects = objects
        self._bytes_max = bytes_max
        self._small_bytes = small_bytes
        self._transfers = asyncio.Semaphore(TRANSFERS_MAX)
        self._small_reads = asyncio.Semaphore(SMALL_READS_MAX)
        self._topics: dict[str, frozenset[str]] = {}
        """The topics of parts, by the names of their objects."""

    async def put(self, key: PartKey, data: memoryview) -> None:
        """
        Store a complete part; one with the same key has the same messages.

        Durability: On return it is in the object store.

        Raises:
            InvalidRequest: The part is too long.
            ObjectsUnavailable: The store does not answer; the part may be stored.
        """
        if len(data) > self._bytes_max:
            raise InvalidRequest(
                f"the part {key.name} has {len(data)} bytes; in a cluster a part has "
                f"at most {self._bytes_max}: divide it into several parts"
            )
        async with self._transfers:
            await self._objects.put_if_absent(name_of(key), data)

    async def verify(self, key: PartKey) -> PartContent:
        """
        Return the content of a part after verifying every byte.

        Raises:
            StagedPartNotFound: There is no such part.
            CorruptStage: It is damaged.
        """
        name = name_of(key)
        content = await self._work(name, partial(read_part, verifies=True))
        if content.header.key != key:
            raise CorruptStage(f"the object {name} belongs to another part")
        if content.damage is not None:
            raise CorruptStage(f"the object {name}: {content.damage}")
        if not content.is_finished:
            raise CorruptStage(f"the object {name}: the end of the part is missing")
        return content

    def readers(
        self, names: Collection[str], tasks: TaskScope
    ) -> Iterator[Callable[[], Awaitable[PartReader]]]:
        """
        Yield what opens each of *names* for reading piece by piece, in turn.

        *tasks* read the first bytes of the next ones; of small parts, these are all.

        Bounds: Those of ``AHEAD_MAX`` parts are in memory.

        Raises: Opening one raises
            StagedPartNotFound, CorruptStage: It is missing or damaged.
        """
        begun: deque[Awaitable[Buffer | None]] = deque()
        waiting = iter(names)
        for name in names:
            for each in islice(waiting, AHEAD_MAX - len(begun)):
                begun.append(tasks.start(self._read_beginning(each)))
            yield partial(self._open, name, begun.popleft())

    async def topics_of(self, query: str) -> set[str]:
        """
        Return the topics of all parts of a query.

        The first call for a part reads all of it; its topics are then remembered, for
        at most ``TOPICS_MAX`` parts.

        Raises:
            InvalidRequest: The object store cannot list objects.
        """
        if not self._objects.supports_listing:
            raise InvalidRequest(
                "the object store cannot list the parts of a query, so the permission "
                "for their topics cannot be checked; use a store that lists objects"
            )
        names = await self._objects.names(query_prefix(query))
        return set().union(*await gather(map(self._topics_in, names)))

    async def _topics_in(self, name: str) -> frozenset[str]:
        known = self._topics.get(name)
        if known is None:
            try:
                content = await self._work(name, partial(read_part, verifies=False))
            except (StagedPartNotFound, CorruptStage):
                # No commit accepts it.
                return frozenset()
            known = frozenset(topic.name for topic in content.topics)
            if len(self._topics) >= TOPICS_MAX:
                del self._topics[next(iter(self._topics))]
            self._topics[name] = known
        return known

    async def names(self, prefix: str = ROOT) -> list[str]:
        """Return the names of the parts that begin with *prefix*."""
        if not self._objects.supports_listing:
            return []
        return await self._objects.names(prefix)

    async def sizes(self, prefix: str) -> list[int]:
        """Return the bytes of each part whose name begins with *prefix*."""
        names, sizes = await self.names(prefix), []
        for begin in range(0, len(names), STATS_MAX):
            some = names[begin : begin + STATS_MAX]
            found = await gather(self._objects.stat(name) for name in some)
            # Others were removed meanwhile.
            sizes += [each.byte_count for each in found if each is not None]
        return sizes

    async def header(self, name: str) -> FileHeader | None:
        """Return the header of a part; None if it is missing or damaged."""
        found = await self._objects.read(name, 0, _HEADER_BYTES_MAX)
        if found is None:
            return None
        try:
            return decode_file_header(found)[0]
        except CorruptStage as error:
            log.warning("the object %s is no staged part: %s", name, error)
            return None

    async def remove(self, names: Iterable[str]) -> None:
        """Remove parts; missing ones are ignored."""
        waiting = sorted(set(names))
        for begin in range(0, len(waiting), DELETIONS_MAX):
            some = waiting[begin : begin + DELETIONS_MAX]
            await gather(self._objects.delete(name) for name in some)

    async def _work(self, name: str, work: Callable[[memoryview], T]) -> T:
        """Return what *work* makes of an object, in a thread."""
        async with self._small_reads:
            found = await self._read_beginning(name)
            if found is None or len(found) < self._small_bytes:
                return await asyncio.to_thread(work, _existing(found, name))
        # Any number of large parts may wait for their turn: they keep nothing.
        del found
        async with self._transfers:
            found = await self._objects.read(name)
            return await asyncio.to_thread(work, _existing(found, name))

    async def _read_beginning(self, name: str) -> Buffer | None:
        """Return all of a small object, or SMALL_BYTES of a larger one."""
        return await self._objects.read(name, 0, self._small_bytes)

    async def _open(self, name: str, begun: Awaitable[Buffer | None]) -> PartReader:
        found = await begun
        if found is not None and len(found) >= self._small_bytes:
            found = await self._objects.read(name)
        return PartReader(_existing(found, name), name)


def _existing(found: Buffer | None, name: str) -> memoryview:
    if found is None:
        raise StagedPartNotFound(
            f"the object {name} of a staged part does not exist: the part was "
            "dropped, has expired or was never finished; stage the version again"
        )
    return memoryview(found)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]

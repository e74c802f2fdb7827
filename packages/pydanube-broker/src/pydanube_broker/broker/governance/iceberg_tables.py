"""
The Iceberg tables of topics, whose data files are the topics' segments.

A *state* of a table is a metadata file with a manifest list and manifests, which it
shares with the states before it.  They are objects beside the segments, because engines
read them from there.  A request for a table writes a new state if the topic's segments
have changed since the last one; so a table that nobody requests costs nothing.

Each broker of a cluster may write states: the newest metadata file that lists the
present segments is used, whichever broker wrote it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

import msgspec

from pydanube.aio.tasks import gather
from pydanube.model.errors import BrokerError, TopicNotFound
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.objects.store import Objects
from pydanube.wire.buffer import Buffer
from pydanube.wire.files import iceberg_metadata as iceberg
from pydanube.wire.files.iceberg_metadata import ManifestFile, Origin, TopicSegments
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.storage.segments.manifest import Manifest

log = logging.getLogger(__name__)

PREFIX = ".iceberg/"
"""The prefix of the names of all objects of tables."""
REFRESH_S = 10.0
"""The shortest time between two states of a table."""
STATE_KEEP_S = 3600.0
"""How long a state is kept after the next one, for engines that are reading it."""
STATES_MAX = 32
"""The most states of a table that are kept."""
TABLES_MAX = 1000
"""The most tables whose newest state is in memory."""
KNOWN_FILES_MAX = 200_000
"""The most data files whose manifests are in memory, of all tables together."""

_SWEPT = 200
"""The number of objects that each new state examines for tables without a topic."""
_METADATA = ".metadata.json"
_LIST = "-list.avro"
_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergTable:
    """The newest state of a table."""

    metadata_url: str
    """The address of the metadata file."""
    metadata: msgspec.Raw
    """The content of the metadata file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A state of a table, and what its metadata file says."""

    name: str
    """The prefix of its objects' names: the time in microseconds, and a digest."""
    table: IcebergTable
    table_uuid: str
    location: str
    snapshots: Sequence[dict[str, Any]]

    @property
    def created_at(self) -> int:
        return _created_at(self.name)

    def has(self, topics: Sequence[TopicSegments]) -> bool:
        """Return whether it lists exactly the segments of *topics*."""
        if not self.snapshots:
            return not any(topic.segments for topic in topics)
        found = self.snapshots[-1]["summary"][iceberg.DIGEST]
        return bool(found == iceberg.digest_of(topics))


@dataclass(slots=True)
class _Known:
    """A table whose newest state may be in memory."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    state: _State | None = None
    manifests: dict[str, ManifestFile] = field(default_factory=dict)
    """Those of the newest state that this broker has written, by their URL."""


class IcebergTables:
    """
    Writes and finds the metadata of topics' Iceberg tables.

    Bounds: ``TABLES_MAX`` tables in memory, and the manifests of *files_max* data
        files, about 50 MB; ``STATES_MAX`` states of a table in the object store, and
        one new one in *refresh_s*.
    """

    def __init__(
        self,
        catalog: Catalog,
        manifest: Manifest,
        objects: Objects,
        *,
        must_be_uploaded: bool,
        wall_clock_us: Callable[[], int],
        refresh_s: float = REFRESH_S,
        keep_s: float = STATE_KEEP_S,
        files_max: int = KNOWN_FILES_MAX,
    ) -> None:
        """
        *objects* has the segments that engines read, and the metadata of tables.

        *must_be_uploaded* says that segments are there only if they are uploaded.
        """
        self._catalog = catalog
        self._manifest = manifest
        self._objects = objects
        self._must_be_uploaded = must_be_uploaded
        self._wall_clock_us = wall_clock_us
        self._refresh_us = refresh_s * _US_PER_S
        self._keep_us = keep_s * _US_PER_S
        self._files_max = files_max
        self._tables: OrderedDict[TopicName, _Known] = OrderedDict()
        # The object at which the next sweep begins.
        self._swept = ""

    async def check(self, name: TopicName) -> None:
        """
        Raise if there is no table of this name.

        Raises:
            TopicNotFound: The topic does not exist, or is not reliable.
        """
        await self._ids_of(name)

    async def load(self, name: TopicName) -> IcebergTable:
        """
        Return the table of a topic, of a partitioned topic, or of a partition.

        It has all segments of that time, up to one that engines cannot read yet.
        Within *refresh_s* of the last change it may lack the newest.

        Durability: On return, all its objects are durable.
        Cancellation: Objects may be left behind, which a later change of the table
            deletes.

        Raises:
            TopicNotFound: The topic does not exist, or is not reliable.
            ObjectsUnavailable: The object store does not answer.
            InvalidRequest: The object store cannot be listed.
        """
        known = self._tables.get(name)
        if known is None:
            known = self._tables[name] = _Known()
            if len(self._tables) > TABLES_MAX:
                self._tables.popitem(last=False)
        self._tables.move_to_end(name)
        async with known.lock:
            known.state = await self._current_state(name, known)
            return known.state.table

    def _forget_manifests(self) -> None:
        """Keep those of the tables that were used last; others are read again."""
        left = self._files_max
        for known in reversed(self._tables.values()):
            left -= sum(len(each.files) for each in known.manifests.values())
            if left < 0:
                known.manifests = {}

    async def _ids_of(self, name: TopicName) -> dict[TopicName, TopicId]:
        names = await self._catalog.partitions_of(name)
        found = await self._catalog.find_each(names)
        ids = {
            each: TopicId(record.value.topic_id)
            for each, record in zip(names, found, strict=True)
            if record is not None and record.value.policy.is_reliable
        }
        if not ids or len(ids) != len(names):
            raise TopicNotFound(
                f"Unable to find the table of {name}: there is no such topic, or it is "
                "not reliable and none of its messages are stored"
            )
        return ids

    async def _current_state(self, name: TopicName, known: _Known) -> _State:
        state = known.state
        topics: list[TopicSegments] = []
        # Whose first segment that cannot be read yet begins where.
        waiting: dict[str, int] = {}
        ids = await self._ids_of(name)
        loaded = await self._manifest.load_each([*ids.values()])
        for (each, topic_id), segments in zip(ids.items(), loaded, strict=True):
            readable = iceberg.readable_segments(
                segments, must_be_uploaded=self._must_be_uploaded
            )
            split = None if each == name else each.split_partition()
            topics.append(
                TopicSegments(
                    topic=str(each),
                    topic_id=topic_id,
                    partition=None if split is None else split[1],
                    segments=readable,
                )
            )
            if len(readable) < len(segments):
                waiting[str(each)] = segments[len(readable)].base
        now = self._wall_clock_us()
        if state is not None and self._is_of(state, name, topics):
            is_recent = 0 <= now - state.created_at < self._refresh_us
            if is_recent or state.has(topics):
                return state
        names = await self._objects.names(_directory(name))
        state = await self._newest(name, names)
        if state is None or not self._is_of(state, name, topics):
            known.state = None
            return await self._write(name, topics, names, now, known)
        if state.has(topics) or _is_behind(state, waiting):
            return state
        known.state = state
        return await self._write(name, topics, names, now, known)

    def _is_of(
        self, state: _State, name: TopicName, topics: Sequence[TopicSegments]
    ) -> bool:
        """Return whether *state* is of these topics, in the same place."""
        # A topic may have been created again, or its data directory moved.
        is_same = state.table_uuid == iceberg.table_uuid(topics)
        return is_same and state.location == self._location(name)

    def _location(self, name: TopicName) -> str:
        return self._url(_directory(name).rstrip("/"))

    def _url(self, object_name: str) -> str:
        """Return the address of an object with the scheme that engines know."""
        url = self._objects.url(object_name)
        return f"gs://{url[6:]}" if url.startswith("gcs://") else url

    async def _newest(self, name: TopicName, names: Sequence[str]) -> _State | None:
        """Return the newest state of the table among the objects *names*."""
        found = [each for each in names if each.endswith(_METADATA)]
        if not found:
            return None
        data = await self._objects.read(found[-1])
        if data is None:
            return None
        try:
            return self._state(found[-1], bytes(data))
        except (msgspec.DecodeError, KeyError) as error:
            log.warning("%s: the metadata file %s: %r", name, found[-1], error)
            return None

    def _state(self, object_name: str, data: bytes) -> _State:
        metadata = msgspec.json.decode(data)
        return _State(
            name=_state_of(object_name),
            table=IcebergTable(
                metadata_url=self._url(object_name), metadata=msgspec.Raw(data)
            ),
            table_uuid=metadata["table-uuid"],
            location=metadata["location"],
            snapshots=metadata["snapshots"],
        )

    async def _write(
        self,
        name: TopicName,
        topics: Sequence[TopicSegments],
        names: Sequence[str],
        now: int,
        known: _Known,
    ) -> _State:
        """Write a state after that of *known*; delete old ones from objects *names*."""
        last = known.state
        states = sorted({_state_of(each) for each in names})
        created_at = max([now, *(_created_at(each) + 1 for each in states[-1:])])
        digest = iceberg.digest_of(topics)
        prefix = f"{_directory(name)}{created_at:020d}-{digest[:8]}"
        kept = self._kept(states, created_at)
        snapshots = [
            each
            for each in (() if last is None else last.snapshots)
            if _state_of(each["manifest-list"]) in kept
        ]
        if snapshots or any(topic.segments for topic in topics):
            snapshots.append(
                await self._write_snapshot(name, prefix, topics, created_at, known)
            )
        data = iceberg.encode_metadata(
            topics,
            topic=str(name),
            location=self._location(name),
            updated_ms=created_at // 1000,
            snapshots=snapshots,
        )
        await self._objects.put(prefix + _METADATA, data)
        used = {
            _basename(url)
            for each in snapshots
            for url in json.loads(each["summary"][iceberg.MANIFESTS])
        }
        obsolete = [
            each
            for each in names
            if _state_of(each) not in kept and _basename(each) not in used
        ]
        await self._delete(name, obsolete, now)
        return self._state(prefix + _METADATA, data)

    def _kept(self, states: Sequence[str], now: int) -> set[str]:
        """Return those of the earlier *states* that a new state does not delete."""
        kept = states[-(STATES_MAX - 1) :]
        # A state is in use until the next one is made.
        ends = [*map(_created_at, kept), now][1:]
        return {
            state
            for state, end in zip(kept, ends, strict=True)
            if end > now - self._keep_us
        }

    async def _manifests(
        self, name: TopicName, snapshot: dict[str, Any], known: _Known
    ) -> list[ManifestFile]:
        """
        Return the manifests of *snapshot*, of which those *known* are not read again.

        There are none if one cannot be read; then all files are written anew.
        """
        try:
            data = await self._read(name, snapshot["manifest-list"])
            rows = iceberg.decode_manifest_list(data)
            return await gather(self._manifest_of(name, row, known) for row in rows)
        except ValueError as error:
            log.warning("the manifests of %s: %s", snapshot["manifest-list"], error)
            return []

    async def _manifest_of(
        self, name: TopicName, row: dict[str, Any], known: _Known
    ) -> ManifestFile:
        url = row["manifest_path"]
        if url in known.manifests:
            return known.manifests[url]
        data = await self._read(name, url)
        return await asyncio.to_thread(iceberg.decode_manifest, row, data)

    async def _read(self, name: TopicName, url: str) -> Buffer:
        data = await self._objects.read(_directory(name) + _basename(url))
        if data is None:
            raise ValueError(f"{url} is missing")
        return data

    async def _write_snapshot(
        self,
        name: TopicName,
        prefix: str,
        topics: Sequence[TopicSegments],
        created_at: int,
        known: _Known,
    ) -> dict[str, Any]:
        last = known.state
        parent = last.snapshots[-1] if last is not None and last.snapshots else None
        earlier = [] if parent is None else await self._manifests(name, parent, known)
        origin = Origin(
            iceberg.snapshot_id_of(prefix),
            1 if parent is None else parent["sequence-number"] + 1,
        )
        urls = {
            each.object_name: self._url(each.object_name)
            for topic in topics
            for each in topic.segments
        }
        manifests = await asyncio.to_thread(
            iceberg.next_manifests,
            topics,
            earlier,
            urls=urls,
            origin=origin,
            new_url=lambda number: self._url(f"{prefix}-{number}.avro"),
        )
        listed = iceberg.encode_manifest_list(manifests, origin, parent)
        objects = {
            _directory(name) + _basename(each.url): each.data
            for each in manifests
            if each.data
        }
        objects[prefix + _LIST] = listed
        await gather(self._objects.put(*each) for each in objects.items())
        known.manifests = {each.url: replace(each, data=b"") for each in manifests}
        self._forget_manifests()
        return iceberg.new_snapshot(
            topics,
            manifests,
            origin=origin,
            parent=parent,
            timestamp_ms=created_at // 1000,
            manifest_list=self._url(prefix + _LIST),
        )

    async def _delete(self, name: TopicName, obsolete: Sequence[str], now: int) -> None:
        """Delete *obsolete* objects of a table, and some of tables without a topic."""
        try:
            await gather(self._objects.delete(each) for each in obsolete)
            await gather(
                self._objects.delete(each) for each in await self._orphans(now)
            )
        except BrokerError as error:
            # The next change of the table repeats this.
            log.warning("%s: cannot delete old metadata of its table: %s", name, error)

    async def _orphans(self, now: int) -> list[str]:
        """Return old objects of tables without a topic, from the next few objects."""
        page = await self._objects.names(PREFIX, after=self._swept, count_max=_SWEPT)
        self._swept = page[-1] if len(page) == _SWEPT else ""
        found = []
        for directory in {each.rpartition("/")[0] for each in page}:
            name = TopicName.parse(f"/{directory.removeprefix(PREFIX)}")
            if not await self._catalog.partitions_of(name):
                found += [each for each in page if each.startswith(f"{directory}/")]
        return [
            each for each in found if _created_at(_state_of(each)) < now - self._keep_us
        ]


def _is_behind(state: _State, waiting: dict[str, int]) -> bool:
    """Return whether segments that *state* has, or their successors, cannot be read."""
    if not state.snapshots:
        return False
    ends = iceberg.ends_of(state.snapshots[-1])
    return any(begin < ends.get(topic, 0) for topic, begin in waiting.items())


def _directory(name: TopicName) -> str:
    return f"{PREFIX}{name.namespace}/{name.topic}/"


def _basename(path: str) -> str:
    return path.rpartition("/")[2]


def _state_of(path: str) -> str:
    """Return the state that an object of a table belongs to."""
    created_at, _, rest = _basename(path).partition("-")
    return f"{created_at}-{rest[:8]}"


def _created_at(state: str) -> int:
    return int(state.partition("-")[0])

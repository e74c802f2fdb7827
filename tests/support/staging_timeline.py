"""Brokers with a journal, staged files and a metadata store that record."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydanube.broker.broker import open_broker
from pydanube.broker.manifest import MetadataManifest
from pydanube.model.errors import MetadataUnavailable
from pydanube.model.staging import StagedPart
from pydanube.objects.memory import MemoryObjects
from pydanube.storage.config import JournalConfig, StorageConfig
from pydanube.storage.storage_opening import open_storage
from support.brokers import A_NOW_US
from support.memory_store import MemoryStore

CONFIG = StorageConfig(
    journal=JournalConfig(file_bytes_max=4096), seal_interval_s=3600.0
)


@dataclass
class Timeline:
    """The events of the disks and the store, in order."""

    events: list[str] = field(default_factory=list)
    stores: list[tuple[int, MemoryStore]] = field(default_factory=list)
    """(number of events before it, the store from then on)"""
    finished: dict[tuple[int, int], tuple[int, StagedPart]] = field(
        default_factory=dict
    )
    """By version and number of the part: (number of events, what the client got)."""
    committed: dict[int, int] = field(default_factory=dict)
    """By version: the number of events when the client got the answer."""

    @property
    def now(self) -> int:
        return len(self.events)

    def recorder(self, kind: str):
        def record(operation) -> None:
            self.events.append(kind)

        return record


class RecordingStore(MemoryStore):
    """A store that copies itself at every change."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self.loses_request = self.loses_answer = False
        """Whether the next change fails, either before or after it is made."""
        self._timeline = timeline

    def _apply(self, operations):
        if self.loses_request:
            self.loses_request = False
            raise MetadataUnavailable("the request is lost")
        revision = super()._apply(operations)
        self._timeline.events.append("store")
        self._timeline.stores.append((self._timeline.now, copy_of(self)))
        if self.loses_answer:
            self.loses_answer = False
            raise MetadataUnavailable("the answer is lost")
        return revision


def copy_of(store: MemoryStore) -> MemoryStore:
    copied = MemoryStore()
    copied.copy_from(store)
    return copied


@asynccontextmanager
async def recorded_broker(store, journal, staged):
    async with (
        open_storage(
            CONFIG,
            files=journal,
            objects=MemoryObjects(),
            manifest=MetadataManifest(store),
            clock=lambda: 0.0,
        ) as storage,
        open_broker(
            store,
            storage,
            new_broker_id=lambda: "b-1",
            wall_clock_us=lambda: A_NOW_US,
            staging_files=staged,
        ) as broker,
    ):
        yield broker


def store_at(timeline: Timeline, at: int) -> MemoryStore | None:
    found = [store for since, store in timeline.stores if since <= at]
    return found[-1] if found else None


def identity_of(log: dict, stage: dict, store: MemoryStore | None) -> tuple:
    """What distinguishes this state from others that were checked."""
    return (
        hash(tuple(sorted(log.items()))),
        hash(tuple(sorted(stage.items()))),
        store._revision,
    )

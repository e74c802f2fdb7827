"""Brokers with a journal, staged files and a metadata store that record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from pydanube.model.errors import MetadataUnavailable
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.broker.broker_opening import open_broker
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.storage.config import JournalConfig, StorageConfig
from pydanube_broker.storage.storage_opening import open_storage
from support.fakes.brokers import A_NOW_US
from support.fakes.memory_store import MemoryStore
from support.fakes.recording_files import Disk, RecordingFiles
from support.fakes.staging import quiet

CONFIG = StorageConfig(
    journal=JournalConfig(file_bytes_max=4096), seal_interval_s=3600.0
)


@dataclass(frozen=True)
class CrashState:
    """What a crash has left on the disks and in the store."""

    journal: Disk
    staged: Disk
    store: MemoryStore

    @property
    def identity(self) -> tuple:
        """What distinguishes this state from others that were checked."""
        return (
            hash(tuple(sorted(self.journal.items()))),
            hash(tuple(sorted(self.staged.items()))),
            self.store._revision,
        )


class Timeline:
    """
    The disks and the store of a broker, which record their events in order.

    They begin empty, or as a crash has left them.
    """

    def __init__(self, left: CrashState | None = None) -> None:
        self.events: list[str] = []
        self.journal = RecordingFiles(
            left.journal if left else None, self.recorder("journal")
        )
        self.staged = RecordingFiles(
            left.staged if left else None, self.recorder("staged")
        )
        self.store = RecordingStore(self)
        self._stores: list[tuple[int, MemoryStore]] = []
        """(number of events before it, the store from then on)"""
        if left:
            self.store.copy_from(left.store)
            self._stores.append((0, left.store))

    @property
    def now(self) -> int:
        return len(self.events)

    def recorder(self, kind: str):
        def record(operation) -> None:
            self.events.append(kind)

        return record

    def store_changed(self) -> None:
        self.events.append("store")
        self._stores.append((self.now, copy_of(self.store)))

    def broker(self):
        """Run a broker, one at a time."""
        return recorded_broker(self.store, self.journal, self.staged)

    async def recover(self) -> None:
        """Run a broker until it has carried out all decided commits."""
        async with self.broker() as broker:
            await quiet(broker)

    def crash_states(
        self, begin: int, states_max: int
    ) -> Iterator[tuple[int, CrashState]]:
        """
        Yield (moment, state) for up to *states_max* states of each moment.

        A state that is possible at several moments is yielded once.
        """
        seen = set()
        for at in range(begin, self.now + 1):
            rng = Random(at)
            journals, parts = self._disks_at(at)
            # Combine each state of one disk with some state of the other.
            pairs = [(each, rng.choice(parts)) for each in journals]
            pairs += [(rng.choice(journals), each) for each in parts]
            for journal, staged in rng.sample(pairs, min(len(pairs), states_max)):
                state = CrashState(journal, staged, self._store_at(at))
                if state.identity not in seen:
                    seen.add(state.identity)
                    yield at, state

    def crash_state(self, at: int, rng: Random) -> CrashState:
        """Return one of the states that a crash may leave after *at* events."""
        journals, parts = self._disks_at(at)
        return CrashState(rng.choice(journals), rng.choice(parts), self._store_at(at))

    def _disks_at(self, at: int) -> tuple[list[Disk], list[Disk]]:
        events = self.events[:at]
        return (
            list(self.journal.crash_states(events.count("journal"))),
            list(self.staged.crash_states(events.count("staged"))),
        )

    def _store_at(self, at: int) -> MemoryStore:
        return [store for since, store in self._stores if since <= at][-1]


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
        self._timeline.store_changed()
        if self.loses_answer:
            self.loses_answer = False
            raise MetadataUnavailable("the answer is lost")
        return revision


def copy_of(store: MemoryStore) -> MemoryStore:
    copied = MemoryStore()
    copied.copy_from(store)
    return copied


@asynccontextmanager
async def recovered_broker(state: CrashState):
    """Run a broker on what a crash has left; return it and the disk of staged files."""
    staged = RecordingFiles(state.staged)
    journal = RecordingFiles(state.journal)
    async with recorded_broker(copy_of(state.store), journal, staged) as broker:
        yield broker, staged


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

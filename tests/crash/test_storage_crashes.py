"""
After any crash, everything that was acknowledged is there.

The script runs once, on a recording disk.  Then, for every prefix of what was
done to the disk, every state that a crash could leave is built and recovered.
"""

from __future__ import annotations

import asyncio
import copy
import errno
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random

import pytest

from pydanube.model.errors import BrokerError, DiskFull
from pydanube.model.policy import Durability, Retention, TopicPolicy
from pydanube.objects.memory import MemoryObjects
from pydanube.wire.files.journal_format import CursorSaved, CursorState
from pydanube_broker.storage.config import JournalConfig, StorageConfig
from pydanube_broker.storage.storage_opening import open_storage
from support.fakes.batches import frame_of, offsets_of, payloads_of
from support.fakes.manifests import MemoryManifest
from support.fakes.recording_files import RecordingFiles
from support.fakes.storages import seal, until

CONFIG = StorageConfig(
    journal=JournalConfig(file_bytes_max=2048), seal_interval_s=3600.0
)
POLICY = TopicPolicy()
A, B, C = 1, 2, 3
NAMES = {A: "/default/a", B: "/default/b", C: "/default/c"}


@dataclass
class Promises:
    """What was appended and acknowledged, with the number of disk operations then."""

    appended: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    acknowledged: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(operations, topic, payload)"""
    refused: dict[bytes, int] = field(default_factory=dict)
    """Payloads, with the operations when they were acknowledged."""
    saved: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Cursor offsets that were saved, by topic, in order."""
    confirmed: list[tuple[int, int, int]] = field(default_factory=list)
    """(operations, topic, cursor offset)"""
    manifests: list[tuple[int, MemoryManifest]] = field(default_factory=list)
    deleted: list[tuple[int, int]] = field(default_factory=list)
    """(operations, topic) when the deletion was acknowledged."""


class Scribe:
    """Drives a storage and records what it acknowledges."""

    def __init__(self, storage, files, manifest, promises) -> None:
        self.storage, self.files = storage, files
        self.manifest, self.promises = manifest, promises
        self.logs = {}
        self.count = 0

    @property
    def now(self) -> int:
        return len(self.files.operations)

    def append(self, topic: int, messages: int = 2) -> None:
        promises = self.promises
        payloads = [
            f"{topic}:{self.count + at:04d}".encode() * 10 for at in range(messages)
        ]
        frame = frame_of(
            payloads, producer="web-1", producer_id=1, base_sequence=self.count
        )
        self.count += messages
        promises.appended[topic] += payloads

        def done(error: BrokerError | None) -> None:
            if error is None:
                promises.acknowledged += [(self.now, topic, each) for each in payloads]
            else:
                promises.refused |= dict.fromkeys(payloads, self.now)

        self.logs[topic].append_nowait(frame, done)

    def save_cursor(self, topic: int, offset: int) -> None:
        self.promises.saved[topic].append(offset)

        def done(error: BrokerError | None) -> None:
            if error is None:
                self.promises.confirmed.append((self.now, topic, offset))

        cursor = CursorSaved(topic, "billing", CursorState(offset))
        self.storage.save(cursor, done)

    async def sync(self) -> None:
        await self.storage.journal.sync()
        self.note_manifest()

    async def seal(self, topic: int) -> None:
        await seal(self.storage, topic)
        self.note_manifest()

    def note_manifest(self) -> None:
        self.promises.manifests.append((self.now, copy.deepcopy(self.manifest)))


class RecordingManifest(MemoryManifest):
    """A manifest that keeps every version, with the number of disk operations."""

    def __init__(self, files: RecordingFiles, promises: Promises) -> None:
        super().__init__()
        self._files, self._promises = files, promises

    async def change(self, topic_id, epoch, **changes):
        await super().change(topic_id, epoch, **changes)
        version = MemoryManifest()
        version.segments = copy.deepcopy(self.segments)
        self._promises.manifests.append((len(self._files.operations), version))

    def __deepcopy__(self, memo):
        version = MemoryManifest()
        version.segments = copy.deepcopy(self.segments, memo)
        return version


class RecordingObjects(MemoryObjects):
    """Objects recorded with the number of disk operations before them."""

    def __init__(self, files: RecordingFiles) -> None:
        super().__init__()
        self._files = files
        self._put_at: dict[str, int] = {}
        self._deleted_at: dict[str, int] = {}

    async def put(self, name, data) -> None:
        await super().put(name, data)
        self._put_at[name] = len(self._files.operations)

    async def delete(self, name) -> None:
        # Keep it, because it existed at earlier moments.
        self._deleted_at[name] = len(self._files.operations)

    def at(self, count: int) -> MemoryObjects:
        """Return the objects after *count* operations of the disk."""
        found = MemoryObjects()
        for name, data in self._objects.items():
            is_there = self._put_at[name] <= count
            if is_there and count <= self._deleted_at.get(name, count):
                found._objects[name] = data
                found._modified_at[name] = self._modified_at[name]
        return found


async def _everything(scribe: Scribe) -> None:
    """Grow, roll, seal, delete files and save cursors."""
    storage = scribe.storage
    for topic, name in NAMES.items():
        policy = POLICY if topic == A else TopicPolicy(durability=Durability.WRITTEN)
        scribe.logs[topic] = await storage.open_log(topic, name, 1, policy)
    for round_ in range(5):
        scribe.append(A)
        scribe.append(B, 1)
        scribe.append(A, 1)
        await scribe.sync()
        scribe.append(A)
        scribe.save_cursor(A, round_ + 1)
        await scribe.sync()
        if round_ == 1:
            scribe.append(C)
        if round_ == 2:
            await scribe.seal(A)
            await storage.delete_topic(C)
            scribe.promises.deleted.append((scribe.now, C))
        if round_ == 3:
            await scribe.seal(B)
    # Groups without a sync, and a new file after them.
    for _ in range(4):
        scribe.append(B, 9)
        await _committed(scribe.logs[B])
    scribe.append(B, 3)
    await scribe.sync()


async def _committed(log) -> None:
    await until(lambda: log.end_offset == log.next_offset)


def _record(script, disk=None, fail=lambda operation: None):
    promises = Promises()
    files = RecordingFiles(disk, fail)
    objects = RecordingObjects(files)

    async def run() -> None:
        manifest = RecordingManifest(files, promises)
        promises.manifests.append((0, copy.deepcopy(manifest)))
        async with open_storage(
            CONFIG, files=files, objects=objects, manifest=manifest, clock=lambda: 0.0
        ) as storage:
            await script(Scribe(storage, files, manifest, promises))

    asyncio.run(run())
    return files, objects, promises


async def _check(disk, objects, manifest, promises, count, *, go_on: bool):
    """Recover from *disk*; check what was acknowledged after *count* operations."""
    files = RecordingFiles(disk)
    manifest, objects = copy.deepcopy(manifest), copy.deepcopy(objects)
    async with open_storage(
        CONFIG, files=files, objects=objects, manifest=manifest, clock=lambda: 0.0
    ) as storage:
        found = {
            topic: await _read_all(storage, topic, name)
            for topic, name in storage.recovered
        }
        _compare(storage, found, promises, count)
        if go_on:
            for topic in found:
                done = []
                log = storage.logs.get(topic)
                log.append_nowait(frame_of([b"afterwards"]), done.append)
                await storage.journal.sync()
                assert done == [None]
    if go_on:
        async with open_storage(
            CONFIG,
            files=RecordingFiles(files.contents),
            objects=objects,
            manifest=manifest,
            clock=lambda: 0.0,
        ) as storage:
            for topic, name in storage.recovered:
                again = await _read_all(storage, topic, name)
                assert again == [*found[topic], b"afterwards"]


async def _read_all(storage, topic, name) -> list[bytes]:
    log = await storage.open_log(topic, name, 2, POLICY)
    frames, at = [], log.base_offset
    while at < log.end_offset:
        frames += await log.read(at, bytes_max=1 << 20)
        at = frames[-1].end
    assert offsets_of(frames) == list(range(log.base_offset, log.end_offset))
    return payloads_of(frames)


def _compare(storage, found, promises, count) -> None:
    for topic, payloads in found.items():
        # In order, once, nothing invented: a prefix of what was appended, but for
        # what was refused (and may be there if nobody had been told yet).
        expected = [
            each
            for each in promises.appended[topic]
            if promises.refused.get(each, count + 1) > count
        ]
        assert payloads == expected[: len(payloads)]
        state = storage.find_state(topic)
        producer = state.producers.get("web-1")
        if payloads:
            assert producer.next_sequence == int(payloads[-1][2:6]) + 1
        cursor = state.cursors.get("billing")
        saved = promises.saved[topic]
        confirmed = [
            offset
            for at, of, offset in promises.confirmed
            if at <= count and of == topic
        ]
        if cursor is not None:
            assert cursor.offset in saved
        if confirmed:
            assert cursor.offset >= confirmed[-1]
    for at, topic, payload in promises.acknowledged:
        # Topics B and C are acknowledged when written, so power loss may lose messages.
        if at <= count and topic == A:
            assert payload in found[topic]
    for at, topic in promises.deleted:
        assert at > count or topic not in found


def _check_crashes(
    files, objects, promises, *, stride: int = 1, states_max: int | None = None
) -> int:
    """Check after every *stride* operations up to *states_max* states of the disk."""
    checked = 0

    async def run() -> None:
        nonlocal checked
        seen = set()
        for count in range(0, len(files.operations) + 1, stride):
            manifests = [m for at, m in promises.manifests if at <= count][-1:]
            # The manifest may have changed at this very moment, or not yet.
            manifests += [m for at, m in promises.manifests if at < count][-1:]
            disks = list(files.crash_states(count))
            if states_max is not None:
                disks = Random(count).sample(disks, min(len(disks), states_max))
            for disk in disks:
                for manifest in manifests:
                    key = hash((repr(manifest.segments), tuple(sorted(disk.items()))))
                    acknowledged = [a for a in promises.acknowledged if a[0] <= count]
                    if (key, len(acknowledged)) in seen:
                        continue
                    seen.add((key, len(acknowledged)))
                    go_on = checked % 5 == 0
                    there = objects.at(count)
                    await _check(disk, there, manifest, promises, count, go_on=go_on)
                    checked += 1

    asyncio.run(run())
    return checked


@pytest.mark.slow
@pytest.mark.parametrize("states_max", [8, pytest.param(None, marks=pytest.mark.soak)])
def test_every_crash_keeps_what_was_acknowledged(states_max) -> None:
    files, objects, promises = _record(_everything)
    assert any(each.kind == "remove" for each in files.operations)
    assert sum(each.kind == "create" for each in files.operations) > 3
    checked = _check_crashes(files, objects, promises, states_max=states_max)
    assert checked > (800 if states_max is None else 250)


@pytest.mark.slow
@pytest.mark.parametrize("stride", [16, pytest.param(1, marks=pytest.mark.soak)])
def test_crash_during_recovery_is_recovered(stride) -> None:
    files, objects, promises = _record(_everything)
    manifest = promises.manifests[-1][1]

    async def recover(disk):
        again = RecordingFiles(disk)
        async with open_storage(
            CONFIG, files=again, objects=objects, manifest=manifest, clock=lambda: 0.0
        ):
            pass
        return again

    async def run() -> int:
        checked = 0
        # The last file begun, and the last group written into a file.
        kinds = [each.kind for each in files.operations]
        for last in (_last(kinds, "create"), _last(kinds, "write")):
            for disk in list(files.crash_states(last + 2))[::stride]:
                again = await recover(disk)
                for step in range(len(again.operations) + 1):
                    for second in again.crash_states(step):
                        await _check(
                            second, objects, manifest, promises, last, go_on=False
                        )
                        checked += 1
        return checked

    assert asyncio.run(run()) > 100


def _last(kinds, kind) -> int:
    return len(kinds) - 1 - kinds[::-1].index(kind)


def test_a_full_disk_refuses_and_goes_on() -> None:
    full = False

    def fail(operation):
        is_write = operation.kind in {"write", "create"}
        return OSError(errno.ENOSPC, "full") if full and is_write else None

    async def script(scribe: Scribe) -> None:
        nonlocal full
        log = await scribe.storage.open_log(A, NAMES[A], 1, POLICY)
        scribe.logs[A] = log
        for round_ in range(12):
            full = round_ % 3 == 1
            scribe.append(A)
            scribe.append(A, 3)
            with pytest.raises(DiskFull) if full else nullcontext():
                await scribe.sync()
            assert log.next_offset == log.end_offset
        full = False

    files, objects, promises = _record(script, fail=fail)
    assert promises.refused
    assert len(promises.acknowledged) == 8 * 5
    _check_crashes(files, objects, promises, stride=3)


def test_cursor_is_never_ahead_of_what_was_saved() -> None:
    async def script(scribe: Scribe) -> None:
        scribe.logs[A] = await scribe.storage.open_log(A, NAMES[A], 1, POLICY)
        scribe.append(A, 9)
        for offset in (1, 4, 9):
            scribe.save_cursor(A, offset)
            await scribe.sync()

    files, objects, promises = _record(script)
    _check_crashes(files, objects, promises)


def test_acknowledged_segments_are_dropped_after_their_cursor_is_on_disk() -> None:
    async def script(scribe: Scribe) -> None:
        storage = scribe.storage
        scribe.logs[A] = log = await storage.open_log(A, NAMES[A], 1, POLICY)
        log.configure(POLICY, Retention(drops_acknowledged=True))
        cursors = storage.find_state(A).cursors
        log.follow_cursors(lambda: [each.offset for each in cursors.values()])
        for offset in (4, 8):
            # The newest segment stays, so several go to show a cursor that is behind.
            for _ in range(2):
                scribe.append(A)
                await scribe.sync()
                await scribe.seal(A)
            # Nobody waits for this cursor, so it is written and not synced.
            storage.save(CursorSaved(A, "billing", CursorState(offset)))
            await until(lambda offset=offset: _offset(cursors) == offset)
            await storage.sealer.apply_retention(log)
        assert log.base_offset == 6

    files, objects, promises = _record(script)

    async def check(count, disk, manifest) -> int:
        async with open_storage(
            CONFIG,
            files=RecordingFiles(disk),
            objects=objects.at(count),
            manifest=manifest,
        ) as storage:
            state = storage.find_state(A)
            segments = await manifest.load(A)
            base = segments[0].base if segments else 0
            assert base <= (0 if state is None else _offset(state.cursors))
            return base

    async def run() -> set[int]:
        bases = set()
        for count in range(len(files.operations) + 1):
            manifests = [m for at, m in promises.manifests if at <= count][-1:]
            for disk in files.crash_states(count):
                for manifest in manifests:
                    bases.add(await check(count, disk, copy.deepcopy(manifest)))
        return bases

    assert asyncio.run(run()) == {0, 2, 6}


def _offset(cursors) -> int:
    cursor = cursors.get("billing")
    return 0 if cursor is None else cursor.offset

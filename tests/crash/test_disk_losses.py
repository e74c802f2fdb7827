"""With an object journal, nothing acknowledged is lost when the disk is lost."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import BrokerError, CorruptJournal, ObjectsUnavailable
from pydanube.model.policy import TopicPolicy
from pydanube_broker.storage.config import JournalConfig
from pydanube_broker.storage.segments.manifest import change_manifest
from support.fakes.batches import frame_of, payloads_of
from support.fakes.compacted import compact
from support.fakes.object_journals import Link
from support.fakes.object_storages import ObjectWorld
from support.fakes.storages import open_topic, publish, read_all, seal, until

JOURNAL = JournalConfig(file_bytes_max=2048)


async def publish_some(log, begin, count):
    for number in range(begin, begin + count):
        await publish(log, b"%d" % number)


async def numbers_of(log):
    return [int(payload) for payload in payloads_of(await read_all(log))]


async def uploaded(log, count):
    await until(lambda: sum(each.is_uploaded for each in log.segments) == count)


async def test_messages_outlive_the_disk_sealed_or_not():
    world = ObjectWorld()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage)
        await publish_some(log, 0, 10)
        await seal(storage, 1)
        await uploaded(log, 1)
        world.remote.gate = asyncio.Event()
        await publish_some(log, 10, 10)
        await seal(storage, 1)
        await publish_some(log, 20, 10)
        assert [each.is_uploaded for each in log.segments] == [True, False]
    world.remote.gate = None
    world.lose_disk()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage, epoch=2)
        assert log.sealed_offset == 10
        assert await numbers_of(log) == list(range(30))
        await publish_some(log, 30, 5)
        await seal(storage, 1)
        await uploaded(log, 2)
    world.lose_disk()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage, epoch=3)
        assert log.sealed_offset == 35
        assert await numbers_of(log) == list(range(35))


async def test_the_journal_is_trimmed_when_segments_are_uploaded():
    world = ObjectWorld()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage)
        await publish_some(log, 0, 30)
        world.remote.gate = asyncio.Event()
        await seal(storage, 1)
        size = storage.journal.byte_count
        assert storage.journal.file_count > 3
        await storage.sealer.trim_journal()
        assert storage.journal.byte_count == size
        world.remote.gate.set()
        await uploaded(log, 1)
        await storage.sealer.trim_journal()
        assert storage.journal.file_count == 1
        assert storage.journal.byte_count < size
    world.lose_disk()
    async with world.storage(journal=JOURNAL) as storage:
        assert await numbers_of(await open_topic(storage, epoch=2)) == list(range(30))


async def test_a_segment_counts_as_lost_only_when_it_is():
    world = ObjectWorld()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage)
        await publish_some(log, 0, 10)
        world.remote.gate = asyncio.Event()
        await seal(storage, 1)
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage, epoch=2)
        assert log.sealed_offset == 10
        assert len(log.segments) == 1
        assert await numbers_of(log) == list(range(10))
    world.lose_disk()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage, epoch=3)
        assert log.sealed_offset == 0
        assert await numbers_of(log) == list(range(10))


async def test_messages_that_retention_dropped_do_not_return():
    world = ObjectWorld()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage)
        await publish_some(log, 0, 10)
        await seal(storage, 1)
        await uploaded(log, 1)
        await publish_some(log, 10, 10)
        world.remote.gate = asyncio.Event()
        await seal(storage, 1)
        dropped = log.segments
        await change_manifest(world.manifest, log, removed=dropped)
        log.on_dropped(len(dropped))
        await publish_some(log, 20, 5)
    world.remote.gate = None
    world.lose_disk()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage, epoch=2)
        assert await numbers_of(log) == list(range(20, 25))


async def test_a_lost_segment_without_messages_in_the_journal_is_reported():
    world = ObjectWorld()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage)
        await publish_some(log, 0, 30)
        await seal(storage, 1)
        await uploaded(log, 1)
        await storage.sealer.trim_journal()
        # As an older copy of the metadata would have it.
        world.remote._objects.pop(log.segments[0].object_name)
        (entry,) = world.manifest.segments[1].values()
    world.manifest.segments[1][0] = replace(entry, is_uploaded=False)
    world.lose_disk()
    before = dict(world.manifest.segments[1])
    async with world.storage(journal=JOURNAL) as storage:
        with pytest.raises(CorruptJournal, match="neither on the local disk"):
            await open_topic(storage, epoch=2)
    assert world.manifest.segments[1] == before
    # If all of its messages were trimmed, nothing is missing.
    async with world.storage(journal=JOURNAL) as storage:
        log = await storage.open_log(
            1, "/default/t1", 2, TopicPolicy(), start_offset=30
        )
        assert (log.base_offset, log.end_offset) == (30, 30)
    assert world.manifest.segments[1] == {}


async def test_replacements_are_uploaded_before_the_manifest_names_them():
    world = ObjectWorld()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage)
        for begin in (0, 10):
            await publish_some(log, begin, 10)
            await seal(storage, 1)
        await uploaded(log, 2)
        await storage.sealer.trim_journal()
        old = log.segments
        world.remote.is_away = True
        with pytest.raises(ObjectsUnavailable):
            await compact(storage, world.objects, log, lambda _: True)
        assert log.segments == old == await world.manifest.load(1)
        world.remote.is_away = False
        (new,) = await compact(storage, world.objects, log, lambda _: True)
        assert new.is_uploaded
        assert await world.manifest.load(1) == (new,)
    world.lose_disk()
    async with world.storage(journal=JOURNAL) as storage:
        log = await open_topic(storage, epoch=2)
        assert log.segments == (new,)
        assert await numbers_of(log) == list(range(20))


# At random moments.


class Run:
    """A broker's lives, and what it has acknowledged."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = ObjectWorld()
        self.world.close_s = 0.0
        self.acked: list[tuple[int, bytes]] = []
        self.epoch = 0
        self.count = 0

    async def live(self, link, started):
        """Publish, seal and upload until the process is killed."""
        rng = self.rng
        self.epoch += 1
        options = {"link": link, "journal": JOURNAL, "seal_interval_s": 0.001}
        with suppress(BrokerError), ending(started):
            async with self.world.storage(**options) as storage:
                log = await open_topic(storage, epoch=self.epoch)
                await self.check(log)
                started.set()
                while True:
                    self.publish(log)
                    if rng.random() < 0.05:
                        await seal(storage, 1)
                    for _ in range(rng.randrange(10)):
                        await asyncio.sleep(0)

    def publish(self, log):
        self.count += 1
        payload = b"%d" % self.count
        log.append_nowait(
            frame_of([payload]),
            lambda error: error or self.acked.append((log.end_offset - 1, payload)),
        )

    async def check(self, log):
        found = payloads_of(await read_all(log))
        assert log.base_offset == 0
        assert len(found) == log.end_offset
        for offset, payload in self.acked:
            assert found[offset] == payload

    async def run(self, lives):
        rng = self.rng
        async with task_scope() as tasks:
            for _ in range(lives):
                link = RemoteLink(self.world.remote, rng, rng.choice([0.0, 0.05, 0.2]))
                started = asyncio.Event()
                running = tasks.run(self.live(link, started))
                await started.wait()
                for _ in range(rng.randrange(10, 1500)):
                    await asyncio.sleep(0)
                link.is_cut = True
                running.cancel()
                await asyncio.wait([running])
                await link.execute_late()
                if rng.random() < 0.7:
                    self.world.lose_disk()
        async with self.world.storage(journal=JOURNAL) as storage:
            await self.check(await open_topic(storage, epoch=self.epoch + 1))
        return len(self.acked)


@contextmanager
def ending(started):
    """Set *started* at the end, even if the process did not come so far."""
    try:
        yield
    finally:
        started.set()


class RemoteLink(Link):
    """The way to the remote store, for segments as well."""

    async def put(self, name, data):
        await self._ask(lambda: self._objects.put(name, data))

    async def stat(self, name):
        return await self._ask(lambda: self._objects.stat(name))

    def open(self, name):
        if self.is_cut:
            raise OSError("the process is dead")
        return self._objects.open(name)

    def url(self, name):
        return self._objects.url(name)


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_when_processes_and_disks_are():
    counts = [await Run(seed).run(lives=4) for seed in range(20)]
    assert sum(counts) > 1000


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_nothing_acknowledged_is_lost_with_many_seeds():
    for seed in range(1000, 1500):
        await Run(seed).run(lives=6)

"""The local copies of segments keep within their budget at every write."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from pydanube.model.errors import MetadataUnavailable
from pydanube_broker.storage.config import RemoteConfig
from support.fakes.batches import payloads_of
from support.fakes.compacted import offer
from support.fakes.storages import (
    FlakyObjects,
    open_topic,
    publish,
    read_all,
    seal,
    until,
    wake,
)
from support.fakes.upload_worlds import UploadWorld

URL = "s3://bucket"
PAYLOAD_BYTES = 10_000
SEGMENT_BYTES_MAX = 20_000
"""More than a segment with one message has."""


class WatchedObjects(FlakyObjects):
    """Local objects that note the size of all of them after each put."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def put(self, name, data):
        # Others have their turn between the decision to put and the put.
        await asyncio.sleep(0)
        await super().put(name, data)
        self.sizes.append(self.size)

    @property
    def size(self):
        return sum(each.size for each in self._objects.values())


@pytest.fixture
def world():
    """Return a world with a remote store, whose local objects are watched."""
    world = UploadWorld()
    world.objects = WatchedObjects()
    return world


@asynccontextmanager
async def opened(world, segments_max):
    """Open a storage with a budget of so many segments, which may evict."""
    limit = segments_max * SEGMENT_BYTES_MAX
    remote = RemoteConfig(url=URL, local_bytes_max=limit)
    async with world.storage(remote=remote) as storage:
        await storage.uploader.claim()
        yield storage


def payload(number):
    """Return a message that cannot be compressed."""
    return random.Random(number).randbytes(PAYLOAD_BYTES)


async def fill(storage, log, count):
    """Seal so many segments, each when the one before is uploaded."""
    for number in range(count):
        await publish(log, payload(number))
        await seal(storage, log.topic_id)
        await until(lambda: not storage.uploader.tiers.backlog)


async def test_room_is_made_before_a_segment_is_written(world):
    async with opened(world, 2) as storage:
        log = await open_topic(storage)
        await fill(storage, log, 8)
        assert payloads_of(await read_all(log)) == [payload(each) for each in range(8)]
        assert storage.uploader.local_bytes == world.objects.size
    assert len(world.objects.sizes) == 8
    assert max(world.objects.sizes) <= 2 * SEGMENT_BYTES_MAX
    # The budget is used.
    assert max(world.objects.sizes) > SEGMENT_BYTES_MAX


async def test_segments_that_are_sealed_at_the_same_time_share_the_budget(world):
    async with opened(world, 4) as storage:
        logs = [await open_topic(storage, topic_id) for topic_id in (1, 2, 3)]
        for _ in range(4):
            async with asyncio.TaskGroup() as tasks:
                for log in logs:
                    tasks.create_task(fill(storage, log, 1))
        assert all(log.end_offset == log.sealed_offset == 4 for log in logs)
    assert len(world.objects.sizes) == 12
    assert max(world.objects.sizes) <= 4 * SEGMENT_BYTES_MAX


async def test_a_topic_that_is_sealed_twice_at_the_same_time_has_each_message_once(
    world,
):
    async with opened(world, 2) as storage:
        log = await open_topic(storage)
        await publish(log, payload(0))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(storage.sealer.seal_now())
        assert payloads_of(await read_all(log)) == [payload(0)]
        assert len(log.segments) == 1
        assert storage.sealer.sealing_seconds.count == 1


async def test_nothing_is_stored_of_a_topic_that_is_deleted_while_it_is_sealed(world):
    async with opened(world, 2) as storage:
        log = await open_topic(storage)
        await publish(log, payload(0))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(storage.sealer.seal_now())
            tasks.create_task(storage.delete_topic(1))
        assert world.objects.stored == {}
        assert await world.manifest.load(1) == ()


async def test_segments_that_are_not_uploaded_are_never_evicted_to_make_room(world):
    world.remote.is_away = True
    async with opened(world, 2) as storage:
        log = await open_topic(storage)
        for number in range(3):
            await publish(log, payload(number))
            await seal(storage, 1)
        assert len(world.objects.stored) == 3
        assert storage.uploader.evictor.count == 0


async def test_room_is_made_for_the_replacements_of_maintenance(world):
    sizes = []

    async def change(*args, **changes):
        await type(world.manifest).change(world.manifest, *args, **changes)
        sizes.append(storage.uploader.local_bytes)

    async with opened(world, 3) as storage:
        log, other = await open_topic(storage), await open_topic(storage, 2)
        await fill(storage, log, 1)
        world.wall += 1
        await fill(storage, other, 2)
        new = await offer(world.objects, log, log.segments, lambda _: True)
        before = storage.uploader.local_bytes
        world.manifest.change = change
        storage.uploader.evictor.bytes_max = before
        old = [segment.object_name for segment in log.segments]
        await storage.replace_segments(1, old, [new])
        assert storage.uploader.local_bytes <= before
        assert storage.uploader.evictor.count > 0
        # The oldest one was evicted.
        assert old[0] not in world.objects.stored
        assert sizes[0] + new.byte_count <= before
        assert payloads_of(await read_all(log)) == [payload(0)]


async def test_replaced_segments_count_until_they_are_deleted(world):
    world.remote.is_away = True
    async with opened(world, 9) as storage:
        log = await open_topic(storage)
        await publish(log, payload(0))
        await seal(storage, 1)
        new = await offer(world.objects, log, log.segments, lambda _: True)
        old = [segment.object_name for segment in log.segments]
        await storage.replace_segments(1, old, [new])
        assert storage.uploader.local_bytes == world.objects.size > new.byte_count
        world.now += 100
        wake(storage)
        await until(lambda: old[0] not in world.objects.stored)
        assert storage.uploader.local_bytes == world.objects.size == new.byte_count


async def test_sealing_goes_on_if_no_room_can_be_made(world, caplog):
    async with opened(world, 1) as storage:
        log = await open_topic(storage)
        await fill(storage, log, 1)

        async def held_topics():
            raise MetadataUnavailable("on purpose")

        world.manifest.held_topics = held_topics
        await publish(log, payload(1))
        await seal(storage, 1)
        assert log.sealed_offset == 2
        await until(lambda: "cannot be evicted" in caplog.text)
        del world.manifest.held_topics

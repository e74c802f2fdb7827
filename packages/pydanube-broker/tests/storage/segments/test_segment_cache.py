import asyncio

from support.fakes.batches import offsets_of
from support.fakes.storages import World, open_topic, publish, read_all, seal


async def test_several_readers_of_one_row_group_decode_it_once():
    world = World()
    async with world.storage() as storage:
        log = await open_topic(storage)
        await publish(log, *[b"x"] * 100)
        await seal(storage, 1)
        async with asyncio.TaskGroup() as tasks:
            reads = [tasks.create_task(log.read(at, bytes_max=1)) for at in range(20)]
        assert all(offsets_of(read.result())[0] == 0 for read in reads)
        # The footer once, the row group once.
        assert world.objects.open_count == 2


async def test_cancelled_reader_does_not_affect_others():
    async with World().storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"x")
        await seal(storage, 1)
        async with asyncio.TaskGroup() as tasks:
            one = tasks.create_task(log.read(0, bytes_max=1))
            other = tasks.create_task(log.read(0, bytes_max=1))
            await asyncio.sleep(0)
            one.cancel()
        assert offsets_of(other.result()) == [0]


async def test_cache_size_is_bounded():
    async with World().storage(row_group_bytes=2000, cache_bytes_max=15_000) as storage:
        log = await open_topic(storage)
        for _ in range(30):
            await publish(log, b"x" * 1000)
        await seal(storage, 1)
        for _ in range(2):
            frames = await read_all(log)
            assert offsets_of(frames) == list(range(30))
            assert 0 < storage.cache.byte_count <= 15_000


async def test_cache_may_be_empty():
    async with World().storage(cache_bytes_max=0) as storage:
        log = await open_topic(storage)
        await publish(log, b"x")
        await seal(storage, 1)
        assert offsets_of(await log.read(0, bytes_max=1)) == [0]
        assert storage.cache.byte_count == 0


async def test_the_segments_of_a_deleted_topic_leave_the_cache():
    async with World().storage() as storage:
        log = await open_topic(storage)
        await publish(log, b"x" * 1000)
        await seal(storage, 1)
        await log.read(0, bytes_max=1)
        assert storage.cache.byte_count > 0
        await storage.delete_topic(1)
        assert storage.cache.byte_count == 0

"""The history is copied to another store, which brokers accept when it is complete."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest

from pydanube.model.errors import InvalidRequest, ObjectsUnavailable
from pydanube_broker.storage.config import RemoteConfig
from pydanube_broker.storage.remote.tiered_objects import MARKER_NAME
from support.fakes.storages import FlakyObjects, open_topic, publish, seal, until
from support.fakes.upload_worlds import RemoteObjects, UploadWorld

REMOTE = RemoteConfig(url="s3://bucket")
MARKER = b'{"cluster_id":"c"}'


@pytest.fixture
def world():
    return UploadWorld()


@pytest.fixture
def target(world):
    return RemoteObjects(lambda: world.wall)


@asynccontextmanager
async def opened(world):
    async with world.storage(remote=REMOTE) as storage:
        await storage.uploader.loaded.wait()
        await world.remote.put(MARKER_NAME, MARKER)
        yield storage


async def filled(storage, *topic_ids, count=3):
    for topic_id in topic_ids:
        log = await open_topic(storage, topic_id)
        for number in range(count):
            await add(log, storage, b"%d" % number)


async def add(log, storage, payload):
    await publish(log, payload)
    await seal(storage, log.topic_id)
    await until(lambda: not storage.uploader.tiers.backlog)
    return log.segments[-1].object_name


async def opening(objects):
    return objects


async def copy(storage, target, after="", **options):
    """Copy page by page; return the pages."""
    pages = []
    while not pages or after:
        page = await storage.store_copying.copy_page(
            partial(opening, target), after, bytes_per_s=0, is_counting=True, **options
        )
        pages.append(page)
        after = page.after
    return pages


async def finish(storage, target):
    return await storage.store_copying.finish(partial(opening, target))


async def test_all_segments_are_copied_and_the_cluster_id_comes_last(world, target):
    async with opened(world) as storage:
        await filled(storage, 1, 2)
        (page,) = await copy(storage, target)
        assert (page.segment_count, page.copied_count, page.damaged) == (6, 6, ())
        assert MARKER_NAME not in target.stored
        assert (await finish(storage, target)).copied_count == 0
    assert target.stored == world.remote.stored


async def test_copy_is_repeated_and_continued_without_copying_again(world, target):
    async with opened(world) as storage:
        await filled(storage, 1, 2)
        first, *_ = await copy(storage, target, segments_max=2)
        assert (first.copied_count, first.segments_left) == (2, 6)
        target.puts.clear()
        again = await copy(storage, target)
        assert [page.copied_count for page in again] == [0]
        assert target.puts == []


async def test_damaged_objects_of_the_other_store_are_replaced(world, target):
    async with opened(world) as storage:
        await filled(storage, 1)
        await copy(storage, target)
        first, second, third = [name for name in target.stored if name != MARKER_NAME]
        await target.put(first, bytes(len(target.stored[first])))
        await target.put(second, b"x")
        await target.delete(third)
        (page,) = await copy(storage, target)
        assert page.copied_count == 3
        await finish(storage, target)
    assert target.stored == world.remote.stored


async def test_finishing_copies_what_was_uploaded_meanwhile(world, target):
    async with opened(world) as storage:
        await filled(storage, 1, 2)
        await copy(storage, target)
        new = await add(storage.logs[1], storage, b"new")
        assert new not in target.stored
        finished = await finish(storage, target)
        assert (finished.copied_count, finished.damaged) == (1, ())
    assert target.stored == world.remote.stored


async def test_unfinished_copy_gets_no_cluster_id(world, target):
    async with opened(world) as storage:
        await filled(storage, 1)
        await copy(storage, target)
        one = storage.logs[1].segments[0].object_name
        await storage.uploader.evict()
        await target.delete(one)
        await world.remote.put(one, b"damaged")
        (problem,) = (await finish(storage, target)).damaged
        assert problem.object_name == one
        assert "in the other store: " in problem.problem
        assert MARKER_NAME not in target.stored


async def test_damaged_remote_copy_is_replaced_by_the_local_one_when_copying(
    world, target
):
    async with opened(world) as storage:
        await filled(storage, 1)
        one = storage.logs[1].segments[0].object_name
        await world.remote.delete(one)
        (page,) = await copy(storage, target)
        assert page.damaged == ()
        assert bytes(world.objects.stored[one]) == target.stored[one]


async def test_segments_that_are_not_uploaded_are_not_copied(world, target):
    async with opened(world) as storage:
        await filled(storage, 1)
        await storage.uploader.claim()
        world.remote.gate = asyncio.Event()
        log = storage.logs[1]
        await publish(log, b"new")
        await seal(storage, 1)
        (page,) = await copy(storage, target)
        assert (page.segment_count, page.copied_count) == (4, 3)
        assert (await finish(storage, target)).damaged == ()


async def test_store_of_another_cluster_is_refused_and_not_touched(world, target):
    await target.put(MARKER_NAME, b'{"cluster_id":"d"}')
    async with opened(world) as storage:
        await filled(storage, 1)
        for request in (copy, finish):
            with pytest.raises(InvalidRequest, match="belongs to another cluster"):
                await request(storage, target)
    assert list(target.stored) == [MARKER_NAME]


async def test_store_that_does_not_answer_is_an_error(world, target):
    target.is_away = True
    async with opened(world) as storage:
        await filled(storage, 1)
        with pytest.raises(ObjectsUnavailable):
            await copy(storage, target)


async def test_repair_takes_intact_copies_from_a_further_store(world, target):
    async with opened(world) as storage:
        await filled(storage, 1)
        await copy(storage, target)
        one, two, three = (each.object_name for each in storage.logs[1].segments)
        await storage.uploader.evict()
        await world.remote.delete(one)
        await world.remote.put(two, b"x")
        await target.put(three, b"wrong, but not needed")
        page = await storage.verification.verify_page(
            *(None, ""),
            bytes_per_s=0,
            is_repairing=True,
            open_source=partial(opening, target),
        )
        assert [each.object_name for each in page.damaged] == [one, two]
        assert all(each.is_repaired for each in page.damaged)
        again = await storage.verification.verify_page(
            *(None, ""), bytes_per_s=0, is_repairing=False
        )
        assert again.damaged == ()


async def test_lost_local_copy_comes_back_from_a_further_store_and_is_uploaded(world):
    source = FlakyObjects()
    async with opened(world) as storage:
        log = await open_topic(storage)
        await storage.uploader.claim()
        world.remote.is_away = True
        await publish(log, b"a")
        await seal(storage, 1)
        name = log.segments[0].object_name
        await source.put(name, world.objects.stored[name])
        await world.objects.delete(name)
        page = await storage.verification.verify_page(
            *(None, ""),
            bytes_per_s=0,
            is_repairing=True,
            open_source=partial(opening, source),
        )
        assert page.damaged[0].is_repaired
        world.remote.is_away = False
        await storage.uploader.upload_now()
    assert bytes(world.remote.stored[name]) == bytes(source.stored[name])

"""Every copy of every segment is verified, page by page, and repaired if possible."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pydanube.model.descriptions import CopyState, SegmentsVerified
from pydanube.model.errors import (
    InconsistentDirectory,
    InvalidRequest,
    ObjectsUnavailable,
)
from pydanube_broker.storage.config import RemoteConfig
from pydanube_broker.storage.segments import segment_pages
from pydanube_broker.storage.segments.segment_pages import page_bytes
from support.fakes.storages import FlakyObjects, World, open_topic, publish, seal, until
from support.fakes.upload_worlds import UploadWorld

REMOTE = RemoteConfig(url="s3://bucket")


@pytest.fixture
def world():
    return UploadWorld()


@asynccontextmanager
async def opened(world):
    async with world.storage(remote=REMOTE) as storage:
        await storage.uploader.loaded.wait()
        yield storage


async def filled(storage, *topic_ids, count=3, uploads=True):
    """Topics with *count* segments each; return the names of their objects."""
    names = []
    for topic_id in topic_ids:
        log = await open_topic(storage, topic_id)
        for number in range(count):
            await publish(log, b"%d" % number)
            await seal(storage, topic_id)
        names += [segment.object_name for segment in log.segments]
    if uploads:
        await until(lambda: not storage.uploader.tiers.backlog)
    return names


async def verify(storage, after="", topic_ids=None, **options):
    """Return the sum of all pages."""
    options = {"bytes_per_s": 0, "is_repairing": False} | options
    pages = []
    while not pages or after:
        page = await storage.verification.verify_page(topic_ids, after, **options)
        pages.append(page)
        after = page.after
    return SegmentsVerified(
        segment_count=sum(page.segment_count for page in pages),
        byte_count=sum(page.byte_count for page in pages),
        without_checksum=sum(page.without_checksum for page in pages),
        damaged=tuple(each for page in pages for each in page.damaged),
    )


async def damage(objects, name):
    content = bytearray(await objects.read(name))
    content[len(content) // 2] ^= 1
    await objects.put(name, content)


class HookedObjects(FlakyObjects):
    """Local objects that call a function before each stat()."""

    async def before_stat(self, name):
        """Do nothing, unless a test replaces this."""

    async def stat(self, name):
        await self.before_stat(name)
        return await super().stat(name)


def states(verified):
    return {each.object_name: (each.local, each.remote) for each in verified.damaged}


async def test_both_copies_of_every_segment_are_read(world):
    async with opened(world) as storage:
        names = await filled(storage, 1, 2)
        found = await verify(storage)
        assert (found.segment_count, found.damaged) == (len(names), ())
        sizes = [len(world.remote.stored[name]) for name in names]
        # Each copy, and its footer once more.
        assert found.byte_count >= 2 * sum(sizes)


async def test_damage_of_each_copy_is_found_and_the_other_copy_is_intact(world):
    async with opened(world) as storage:
        one, two, three = await filled(storage, 1)
        await damage(world.objects, one)
        await damage(world.remote, two)
        await world.remote.delete(three)
        found = await verify(storage)
        assert states(found) == {
            one: (CopyState.DAMAGED, CopyState.INTACT),
            two: (CopyState.INTACT, CopyState.DAMAGED),
            three: (CopyState.INTACT, CopyState.MISSING),
        }
        assert all(
            each.has_intact_copy and not each.is_repaired for each in found.damaged
        )
        assert found.damaged[0].problem.startswith("the local copy is damaged: ")
        assert found.damaged[2].problem == "the remote copy is missing"


async def test_evicted_segment_needs_no_local_copy(world):
    async with opened(world) as storage:
        await filled(storage, 1)
        await storage.uploader.evict()
        assert (await verify(storage)).damaged == ()


async def test_segment_that_is_not_uploaded_needs_its_local_copy(world):
    world.remote.is_away = True
    async with opened(world) as storage:
        one, two, three = await filled(storage, 1, uploads=False)
        world.remote.is_away = False
        await storage.uploader.claim()
        await damage(world.objects, one)
        await world.objects.delete(two)
        # The upload of the third one waits.
        world.remote.gate = asyncio.Event()
        found = await verify(storage, is_repairing=True)
        assert states(found) == {
            one: (CopyState.DAMAGED, CopyState.NONE),
            two: (CopyState.MISSING, CopyState.NONE),
        }
        assert not any(each.has_intact_copy for each in found.damaged)
        assert three in world.objects.stored


async def test_repair_replaces_the_bad_copy_by_the_good_one(world):
    async with opened(world) as storage:
        one, two, three = await filled(storage, 1)
        before = dict(world.remote.stored)
        await damage(world.objects, one)
        await damage(world.remote, two)
        await world.remote.delete(three)
        found = await verify(storage, is_repairing=True)
        assert states(found) == {
            one: (CopyState.REPAIRED, CopyState.INTACT),
            two: (CopyState.INTACT, CopyState.REPAIRED),
            three: (CopyState.INTACT, CopyState.REPAIRED),
        }
        assert all(each.is_repaired for each in found.damaged)
        assert world.remote.stored == before
        assert {name: bytes(world.objects.stored[name]) for name in before} == before
        assert (await verify(storage)).damaged == ()


async def test_repair_with_two_bad_copies_changes_nothing(world):
    async with opened(world) as storage:
        one, *_ = await filled(storage, 1)
        await damage(world.objects, one)
        await damage(world.remote, one)
        before = bytes(world.objects.stored[one]), world.remote.stored[one]
        (found,) = (await verify(storage, is_repairing=True)).damaged
        assert (found.local, found.remote) == (CopyState.DAMAGED, CopyState.DAMAGED)
        assert not found.has_intact_copy
        assert (bytes(world.objects.stored[one]), world.remote.stored[one]) == before


async def test_failed_repair_says_why(world):
    async with opened(world) as storage:
        one, *_ = await filled(storage, 1)
        await damage(world.remote, one)
        world.remote.damages = True
        (found,) = (await verify(storage, is_repairing=True)).damaged
        assert not found.is_repaired
        assert "after it was copied it is damaged" in found.problem


async def test_segment_that_is_dropped_during_the_verification_is_left_out(world):
    world.objects = HookedObjects()
    async with opened(world) as storage:
        one, two, _ = await filled(storage, 1)
        log = storage.logs[1]

        async def drop(name):
            # It was still listed when the page began.
            if name == one and log.find_segment(one):
                await world.manifest.change(1, 1, removed=log.segments[:1])
                log.on_dropped(1)
                await world.objects.delete(one)
                await world.remote.delete(one)

        world.objects.before_stat = drop
        await damage(world.remote, two)
        assert list(states(await verify(storage))) == [two]


async def test_local_copy_that_is_evicted_before_its_repair_stays_away(world):
    world.objects = HookedObjects()
    async with opened(world) as storage:
        one, *_ = await filled(storage, 1)
        await damage(world.objects, one)
        calls = []

        async def evict(name):
            calls.append(name)
            # The third time is at the beginning of the repair.
            if calls.count(one) == 3:
                await world.objects.delete(one)

        world.objects.before_stat = evict
        assert (await verify(storage, is_repairing=True)).damaged == ()
        assert one not in world.objects.stored


async def test_verification_continues_where_a_page_ended(world):
    async with opened(world) as storage:
        names = await filled(storage, 1, 2, 10)
        await damage(world.objects, names[-1])
        first = await storage.verification.verify_page(
            *(None, ""),
            bytes_per_s=0,
            is_repairing=False,
            is_counting=True,
            segments_max=2,
        )
        assert (first.segment_count, first.segments_left) == (2, 9)
        assert first.bytes_left == sum(len(world.remote.stored[name]) for name in names)
    # After a restart, and with topics that are not open.
    async with opened(world) as storage:
        rest = await verify(storage, first.after, segments_max=2)
        assert rest.segment_count == 7
        assert list(states(rest)) == [names[-1]]
        assert storage.logs == {}


async def test_only_the_topics_that_are_named_are_verified(world):
    async with opened(world) as storage:
        names = await filled(storage, 1, 2, 10)
        await damage(world.objects, names[0])
        assert (await verify(storage, topic_ids={2, 10})).damaged == ()
        assert (await verify(storage, topic_ids={1})).segment_count == 3


async def test_position_that_is_none_is_refused(world):
    async with opened(world) as storage:
        for after in ("x", "1/2", "../1"):
            with pytest.raises(InvalidRequest, match="is not a position"):
                await verify(storage, after)


async def test_wrong_or_absent_store_is_an_error_and_not_damage(world):
    async def refuse(_):
        raise InconsistentDirectory("another cluster")

    async with opened(world) as storage:
        await filled(storage, 1)
    world.claim_remote = refuse
    async with opened(world) as storage:
        with pytest.raises(InconsistentDirectory):
            await verify(storage)


async def test_store_that_goes_away_is_an_error_and_not_damage(world):
    async with opened(world) as storage:
        await filled(storage, 1)
        world.remote.is_away = True
        with pytest.raises(ObjectsUnavailable):
            await verify(storage)


async def test_disk_that_cannot_read_a_local_copy_counts_as_damage(world):
    world.objects = HookedObjects()
    async with opened(world) as storage:
        one, *_ = await filled(storage, 1)

        async def fail(name):
            if name == one:
                raise ObjectsUnavailable("Input/output error")

        world.objects.before_stat = fail
        found = await verify(storage)
        assert states(found) == {one: (CopyState.DAMAGED, CopyState.INTACT)}
        assert "cannot be read: Input/output error" in found.damaged[0].problem


async def test_broker_without_a_remote_store_verifies_local_copies():
    world = World()
    async with world.storage() as storage:
        names = await filled(storage, 1, uploads=False)
        await damage(world.objects, names[0])
        found = await verify(storage, is_repairing=True)
        assert states(found) == {names[0]: (CopyState.DAMAGED, CopyState.NONE)}


async def test_segment_in_a_store_that_is_not_set_any_more_is_a_problem(world):
    async with opened(world) as storage:
        one, *others = await filled(storage, 1)
    await world.objects.delete(one)
    local = World(files=world.files, objects=world.objects, manifest=world.manifest)
    async with local.storage() as storage:
        found = await verify(storage)
        assert states(found) == {one: (CopyState.NONE, CopyState.UNKNOWN)}
        assert "storage.remote.url" in found.damaged[0].problem
        assert len(others) == 2


async def test_segments_without_checksums_are_counted_and_not_repaired(world):
    async with opened(world) as storage:
        one, *_ = await filled(storage, 1)
        log = storage.logs[1]
        bare = replace(
            log.segments[0], checksum=None, part_checksums=None, is_uploaded=True
        )
        world.manifest.segments[1][0] = bare
        log.segments = (bare, *log.segments[1:])
        await world.remote.delete(one)
        found = await verify(storage, is_repairing=True)
        assert found.without_checksum == 1
        assert "without a checksum" in found.damaged[0].problem
        assert one not in world.remote.stored


def test_page_is_shorter_at_a_low_rate():
    assert page_bytes(0) == page_bytes(10**12) == segment_pages.PAGE_BYTES
    assert page_bytes(1000) == 1000 * segment_pages.PAGE_S


async def test_rate_holds_across_pages():
    calls = []

    def clock():
        calls.append("clock")
        return 0.0

    async def work(topic_id, entry, page):
        await page.pace(10)
        calls.append("work")

    world = World()
    async with world.storage() as storage:
        await filled(storage, 1, count=1, uploads=False)
        pages = segment_pages.SegmentPages(world.manifest, clock)
        await pages.run(work, None, "", bytes_per_s=10_000, is_counting=False)
    # After the last piece it looks at the clock again, and waits.
    assert calls == ["clock", "work", "clock"]

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pydanube.model.errors import (
    CorruptSegment,
    DiskFull,
    InconsistentDirectory,
    MetadataUnavailable,
    ObjectsUnavailable,
)
from pydanube.model.policy import Retention, TopicPolicy
from pydanube.wire.files.segment_format import object_name
from pydanube_broker.storage.config import RemoteConfig
from pydanube_broker.storage.pure.upload_planning import TrackedSegment
from support.fakes.batches import payloads_of
from support.fakes.storages import World, open_topic, publish, read_all, seal, until
from support.fakes.upload_worlds import UploadWorld

URL = "s3://bucket"
REMOTE = RemoteConfig(url=URL)
SMALL = RemoteConfig(url=URL, local_bytes_max=1)


@pytest.fixture
def world():
    """Return a world with a remote store."""
    return UploadWorld()


@asynccontextmanager
async def opened(world, remote=REMOTE, **config):
    async with world.storage(remote=remote, **config) as storage:
        await storage.uploader.loaded.wait()
        yield storage


async def sealed(storage, log, *payloads):
    """Seal one segment with *payloads*, and return its entry."""
    await publish(log, *payloads)
    await seal(storage, log.topic_id)
    return log.segments[-1]


async def uploaded(storage):
    await until(lambda: not storage.uploader.tiers.backlog)


def later(world, storage, seconds):
    """Let *seconds* pass."""
    world.now += seconds
    world.wall += int(seconds * 1_000_000)
    storage.uploader.wake()


async def is_recorded(world, topic_id=1):
    return [entry.is_uploaded for entry in await world.manifest.load(topic_id)]


async def test_sealed_segment_is_uploaded_and_recorded(world):
    async with opened(world) as storage:
        log = await open_topic(storage)
        entry = await sealed(storage, log, b"a", b"b")
        assert not entry.is_uploaded
        await uploaded(storage)
        assert await is_recorded(world) == [True]
        assert log.segments[0].is_uploaded
        name = entry.object_name
        assert world.remote.stored == {name: bytes(world.objects.stored[name])}
        assert storage.segment_url(entry) == f"memory:///{name}"
        assert storage.remote_url(log.segments[0]) == f"s3://bucket/{name}"
        assert storage.remote_url(entry) == ""
        assert storage.uploader.counts.uploads == 1
        assert storage.uploader.counts.uploaded_bytes == entry.byte_count
        assert storage.problems == []


async def test_without_a_remote_store_nothing_is_uploaded():
    async with World().storage() as storage:
        log = await open_topic(storage)
        entry = await sealed(storage, log, b"a")
        assert storage.uploader is None
        assert storage.remote_url(replace(entry, is_uploaded=True)) == ""


async def test_backlog_of_a_stopped_broker_is_uploaded_after_its_topic_is_opened(world):
    world.remote.is_away = True
    async with opened(world) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, b"a")
        await sealed(storage, log, b"b")
    world.remote.is_away = False
    async with opened(world) as storage:
        assert len(storage.uploader.tiers.backlog) == 2
        assert storage.uploader.unopened_topics() == {1}
        await open_topic(storage, epoch=2)
        assert storage.uploader.unopened_topics() == set()
        await uploaded(storage)
    assert await is_recorded(world) == [True, True]
    assert len(world.remote.stored) == 2


async def test_the_store_is_claimed_before_the_first_upload_and_only_once(world):
    async with opened(world) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, b"a")
        await sealed(storage, log, b"b")
        await uploaded(storage)
    assert world.claims == [False]
    async with opened(world) as storage:
        log = await open_topic(storage, epoch=2)
        await sealed(storage, log, b"c")
        await uploaded(storage)
    assert world.claims == [False, True]


async def test_nothing_is_changed_in_a_store_of_another_cluster(world):
    async def refuse(_):
        raise InconsistentDirectory("the store belongs to cluster 7")

    world.claim_remote = refuse
    async with opened(world, SMALL) as storage:
        log = await open_topic(storage)
        entry = await sealed(storage, log, b"a")
        await until(lambda: storage.uploader.outage)
        storage.uploader.objects.delete_remote("other")
        later(world, storage, 100)
        await until(lambda: storage.uploader.counts.failures)
        assert world.remote.puts == []
        assert "belongs to cluster 7" in str(storage.problems)
        assert entry.object_name in world.objects.stored


async def test_uploads_are_repeated_after_growing_pauses_until_the_store_is_back(world):
    world.remote.is_away = True
    async with opened(world) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, b"a")
        failures = storage.uploader.counts
        for count, pause_s in enumerate((1, 2, 4, 8), 1):
            await until(lambda: failures.failures == count)  # noqa: B023
            later(world, storage, pause_s - 0.5)
            for _ in range(10):
                await asyncio.sleep(0)
            assert failures.failures == count
            later(world, storage, 0.5)
        assert "s3://bucket does not answer" in storage.problems[-1]
        assert storage.uploader.oldest_age_s == 15
        world.remote.is_away = False
        later(world, storage, 100)
        await uploaded(storage)
        assert storage.problems == []
        assert storage.uploader.oldest_age_s == 0
    assert await is_recorded(world) == [True]


async def test_an_upload_with_an_unknown_outcome_is_repeated(world):
    world.remote.is_unknown = True
    async with opened(world) as storage:
        log = await open_topic(storage)
        entry = await sealed(storage, log, b"a")
        await until(lambda: storage.uploader.counts.failures)
        assert list(world.remote.stored) == [entry.object_name]
        assert await is_recorded(world) == [False]
        world.remote.is_unknown = False
        later(world, storage, 100)
        await uploaded(storage)
    assert world.remote.puts == [entry.object_name] * 2
    assert await is_recorded(world) == [True]


async def test_an_upload_that_the_metadata_store_did_not_record_is_repeated(world):
    change = world.manifest.change

    async def fail(*args, **changes):
        if changes.get("added") and changes["added"][0].is_uploaded:
            raise MetadataUnavailable("on purpose")
        await change(*args, **changes)

    world.manifest.change = fail
    async with opened(world) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, b"a")
        await until(lambda: storage.uploader.counts.failures)
        assert not log.segments[0].is_uploaded
        world.manifest.change = change
        later(world, storage, 100)
        await uploaded(storage)
    assert await is_recorded(world) == [True]


async def test_a_copy_that_differs_is_not_recorded_but_uploaded_again(world):
    world.remote.damages = True
    async with opened(world) as storage:
        log = await open_topic(storage)
        entry = await sealed(storage, log, b"a")
        await until(lambda: storage.uploader.counts.failures)
        assert "is damaged: " in storage.problems[-1]
        assert await is_recorded(world) == [False]
        world.remote.damages = False
        later(world, storage, 100)
        await uploaded(storage)
    name = entry.object_name
    assert world.remote.stored[name] == bytes(world.objects.stored[name])


@pytest.mark.parametrize("loss", ["damaged", "missing"])
async def test_damaged_or_missing_local_copy_is_a_problem_and_does_not_block_others(
    world, loss
):
    world.remote.is_away = True
    async with opened(world) as storage:
        log = await open_topic(storage)
        entry = await sealed(storage, log, b"a")
        await until(lambda: storage.uploader.counts.failures)
        whole = world.objects.stored[entry.object_name]
        if loss == "missing":
            del world.objects.stored[entry.object_name]
        else:
            await world.objects.put(entry.object_name, bytes(whole)[::-1])
        world.remote.is_away = False
        later(world, storage, 100)
        await until(lambda: loss in str(storage.problems))
        other = await sealed(storage, log, b"b")
        await until(lambda: world.remote.stored)
        assert list(world.remote.stored) == [other.object_name]
        # It is restored from a backup.
        await world.objects.put(entry.object_name, whole)
        later(world, storage, 100)
        await uploaded(storage)
        assert storage.problems == []
    assert await is_recorded(world) == [True, True]


async def test_segment_that_only_the_remote_store_has_is_verified_and_recorded(world):
    world.remote.is_away = True
    async with opened(world) as storage:
        log = await open_topic(storage)
        entry = await sealed(storage, log, b"a")
        await until(lambda: storage.uploader.counts.failures)
        world.remote.is_away = False
        data = world.objects.stored.pop(entry.object_name)
        await world.remote.put(entry.object_name, data)
        later(world, storage, 100)
        await uploaded(storage)
    assert await is_recorded(world) == [True]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_so_many_segments_are_uploaded_at_the_same_time(world, concurrency):
    world.remote.gate = asyncio.Event()
    remote = RemoteConfig(url=URL, concurrency=concurrency)
    async with opened(world, remote) as storage:
        log = await open_topic(storage)
        entries = [await sealed(storage, log, b"%d" % at) for at in range(5)]
        await until(lambda: world.remote.waiting == concurrency)
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.remote.waiting == concurrency
        # Sealing and reading do not wait for uploads.
        entries.append(await sealed(storage, log, b"x"))
        assert len(payloads_of(await read_all(log))) == 6
        world.remote.gate.set()
        await uploaded(storage)
    assert world.remote.puts == [entry.object_name for entry in entries]


async def test_segment_that_retention_drops_during_its_upload_is_deleted(world):
    world.remote.gate = asyncio.Event()
    async with opened(world) as storage:
        policy = TopicPolicy(retention=Retention(bytes_max=1))
        log = await open_topic(storage, policy=policy)
        dropped = await sealed(storage, log, b"a")
        kept = await sealed(storage, log, b"b")
        await until(lambda: world.remote.waiting == 2)
        await storage.sealer.apply_retention(log)
        world.remote.gate.set()
        await uploaded(storage)
        await until(lambda: list(world.remote.stored) == [kept.object_name])
        await until(lambda: not storage.uploader.objects.remote_deletions)
    assert dropped.object_name not in world.objects.stored
    assert await is_recorded(world) == [True]


async def test_retention_removes_both_copies(world):
    async with opened(world) as storage:
        policy = TopicPolicy(retention=Retention(bytes_max=1))
        log = await open_topic(storage, policy=policy)
        await sealed(storage, log, b"a")
        kept = await sealed(storage, log, b"b")
        await uploaded(storage)
        await storage.sealer.apply_retention(log)
        assert list(world.objects.stored) == [kept.object_name]
        await until(lambda: list(world.remote.stored) == [kept.object_name])


async def test_topic_is_deleted_while_the_store_is_away_and_its_copies_later(world):
    async with opened(world) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, b"a")
        await uploaded(storage)
        world.remote.is_away = True
        await storage.delete_topic(1)
        assert world.objects.stored == {}
        assert storage.uploader.tiers.local_bytes == 0
        await until(lambda: storage.uploader.outage)
        assert len(world.remote.stored) == 1
        world.remote.is_away = False
        later(world, storage, 100)
        await until(lambda: not world.remote.stored)


async def test_new_topic_with_the_name_of_a_deleted_one_keeps_its_objects(world):
    async with opened(world) as storage:
        name = "/default/orders"
        log = await open_topic(storage, 1, name=name)
        old = await sealed(storage, log, b"a")
        await uploaded(storage)
        world.remote.is_away = True
        await storage.delete_topic(1)
        log = await open_topic(storage, 2, name=name)
        new = await sealed(storage, log, b"b")
        assert new.object_name == old.object_name
        world.remote.is_away = False
        later(world, storage, 100)
        await uploaded(storage)
        later(world, storage, 100)
        await until(lambda: not storage.uploader.objects.remote_deletions)
        await storage.uploader.evict()
        assert payloads_of(await read_all(log)) == [b"b"]


# Evictions.


async def test_oldest_uploaded_copies_are_evicted_and_read_from_the_remote_store(world):
    async with opened(world) as storage:
        log = await open_topic(storage)
        first = await sealed(storage, log, b"a" * 100)
        world.wall += 1
        second = await sealed(storage, log, b"b" * 100)
        await uploaded(storage)
        storage.uploader.evictor.bytes_max = first.byte_count + 200
        world.wall += 1
        third = await sealed(storage, log, b"c" * 100)
        await uploaded(storage)
        await until(lambda: len(world.objects.stored) == 1)
        assert list(world.objects.stored) == [third.object_name]
        assert storage.uploader.evictor.count == 2
        assert storage.uploader.local_bytes == third.byte_count
        assert storage.segment_url(first) == f"s3://bucket/{first.object_name}"
        assert second.object_name in world.remote.stored
        payloads = payloads_of(await read_all(log))
        assert [each[:1] for each in payloads] == [b"a", b"b", b"c"]
    # The evicted ones are known to be evicted after a restart.
    async with opened(world) as storage:
        assert list(storage.uploader.tiers.cached) == [third.object_name]
        log = await open_topic(storage, epoch=2)
        assert len(payloads_of(await read_all(log))) == 3
        assert list(storage.uploader.tiers.cached) == [third.object_name]


async def test_segments_are_never_evicted_before_they_are_uploaded(world):
    world.remote.is_away = True
    async with opened(world, SMALL) as storage:
        log = await open_topic(storage)
        entry = await sealed(storage, log, b"a")
        await until(lambda: storage.uploader.counts.failures)
        await storage.uploader.evict()
        assert list(world.objects.stored) == [entry.object_name]
        world.remote.is_away = False
        later(world, storage, 100)
        await until(lambda: not world.objects.stored)
        assert payloads_of(await read_all(log)) == [b"a"]


async def test_topics_with_retention_holds_keep_their_local_copies(world):
    world.manifest.held.add(1)
    async with opened(world, SMALL) as storage:
        held, other = await open_topic(storage, 1), await open_topic(storage, 2)
        kept = await sealed(storage, held, b"a")
        await uploaded(storage)
        await sealed(storage, other, b"b")
        await uploaded(storage)
        await until(lambda: len(world.objects.stored) == 1)
        assert await storage.uploader.evict() == (0, 0)
        assert list(world.objects.stored) == [kept.object_name]


async def test_copies_of_one_topic_are_evicted_on_request(world):
    async with opened(world) as storage:
        logs = [await open_topic(storage, topic_id) for topic_id in (1, 2)]
        entries = [await sealed(storage, log, b"x") for log in logs]
        await uploaded(storage)
        assert await storage.uploader.evict({2}) == (1, entries[1].byte_count)
        assert list(world.objects.stored) == [entries[0].object_name]


# A full budget.


async def test_publishing_is_refused_while_the_backlog_exceeds_the_budget(world):
    world.remote.is_away = True
    async with opened(world, SMALL) as storage:
        log = await open_topic(storage)
        await publish(log, b"b")
        await seal(storage, 1)
        with pytest.raises(DiskFull, match="local_bytes_max"):
            await publish(log, b"c")
        with pytest.raises(DiskFull, match="local_bytes_max"):
            storage.check_disk()
        assert storage.problems[0].startswith("publishing is refused")
        # Reading goes on.
        assert payloads_of(await read_all(log)) == [b"b"]
        world.remote.is_away = False
        later(world, storage, 100)
        await uploaded(storage)
        assert await publish(log, b"d") == 1
        storage.check_disk()
        assert storage.problems == []


# On request.


async def test_upload_on_request_does_not_wait_for_the_next_attempt(world):
    world.remote.is_away = True
    async with opened(world) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, b"a")
        await until(lambda: storage.uploader.counts.failures)
        with pytest.raises(ObjectsUnavailable, match="does not answer"):
            await storage.uploader.upload_now()
        world.remote.is_away = False
        await storage.uploader.upload_now({1})
    assert await is_recorded(world) == [True]


async def test_upload_on_request_waits_for_the_topics_that_it_names(world):
    world.remote.gate = asyncio.Event()
    async with opened(world) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, b"a")
        await storage.uploader.upload_now({2})
        assert len(storage.uploader.tiers.backlog) == 1


async def test_upload_on_request_of_a_topic_that_cannot_be_opened_is_an_error(world):
    world.remote.is_away = True
    async with opened(world) as storage:
        for topic_id in (1, 2):
            log = await open_topic(storage, topic_id)
            await sealed(storage, log, b"a")
    world.remote.is_away = False
    async with opened(world) as storage:
        await open_topic(storage, 2, epoch=2)
        # It waits for the topic that is open.
        with pytest.raises(ObjectsUnavailable, match=r"1 segments .* default/t1/"):
            await storage.uploader.upload_now()
        assert await is_recorded(world, 2) == [True]
        with pytest.raises(ObjectsUnavailable, match="cannot be opened"):
            await storage.uploader.upload_now({1})


async def test_upload_on_request_does_not_fail_because_of_another_topic(world):
    async with opened(world) as storage:
        log, other = await open_topic(storage, 1), await open_topic(storage, 2)
        counts = storage.uploader.counts
        world.remote.is_away = True
        lost = await sealed(storage, other, b"b")
        await until(lambda: counts.failures == 1)
        world.remote.is_away = False
        await world.objects.delete(lost.object_name)
        world.remote.gate = asyncio.Event()
        await sealed(storage, log, b"a")
        later(world, storage, 60)
        await until(lambda: world.remote.waiting and counts.failures == 2)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(storage.uploader.upload_now({1}))
            await until(lambda: counts.failures == 3)
            assert not waiting.done()
            world.remote.gate.set()
    assert await is_recorded(world) == [True]


# Orphans in the remote store.


async def an_orphan(world, storage, log, base, end, *, epoch=1):
    """Store an object of *log* that no manifest names; return its name."""
    data = world.objects.stored[log.segments[0].object_name]
    name = object_name("", log.name, base, end, epoch)
    await world.remote.put(name, data)
    return name


async def test_old_orphans_of_the_remote_store_are_deleted(world):
    async with opened(world, orphan_keep_s=10) as storage:
        log = await open_topic(storage)
        kept = await sealed(storage, log, b"a", b"b", b"c")
        await uploaded(storage)
        old = await an_orphan(world, storage, log, 0, 2)
        newer_epoch = await an_orphan(world, storage, log, 0, 1, epoch=2)
        beyond = await an_orphan(world, storage, log, 2, 4)
        await world.remote.put("default/t1/notes.txt", b"x")
        world.wall += 9_999_999
        await storage.uploader.orphans.search()
        assert old in world.remote.stored
        world.wall += 1
        await storage.uploader.orphans.search()
        assert set(world.remote.stored) == {
            kept.object_name,
            newer_epoch,
            beyond,
            "default/t1/notes.txt",
        }


async def test_orphans_of_topics_that_are_not_open_or_deleted_are_found(world):
    async with opened(world) as storage:
        log = await open_topic(storage)
        kept = await sealed(storage, log, b"a", b"b", b"c")
        await uploaded(storage)
        await an_orphan(world, storage, log, 0, 2)
        beyond = await an_orphan(world, storage, log, 2, 4)
    async with opened(world, orphan_keep_s=0) as storage:
        await storage.uploader.orphans.search()
        assert set(world.remote.stored) == {kept.object_name, beyond}
        await storage.delete_topic(1)
        storage.uploader.objects.remote_deletions.clear()
        await storage.uploader.orphans.search()
        assert world.remote.stored == {}


async def test_object_that_is_being_uploaded_is_no_orphan(world):
    async with opened(world, orphan_keep_s=0) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, b"a", b"b")
        await uploaded(storage)
        name = await an_orphan(world, storage, log, 0, 1)
        storage.uploader.uploading[name] = TrackedSegment(1, name, 1, 0)
        await storage.uploader.orphans.search()
        assert name in world.remote.stored
        del storage.uploader.uploading[name]
        await storage.uploader.orphans.search()
        assert name not in world.remote.stored


async def test_the_search_for_orphans_reads_names_in_pages(world):
    async with opened(world, orphan_keep_s=0) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, *(b"%d" % at for at in range(12)))
        await uploaded(storage)
        for end in range(1, 11):
            await an_orphan(world, storage, log, 0, end)
        names = world.remote.names

        async def small_pages(prefix, *, after, count_max):
            return await names(prefix, after=after, count_max=min(3, count_max))

        world.remote.names = small_pages
        await storage.uploader.orphans.search()
        assert list(world.remote.stored) == [log.segments[0].object_name]


# Without the store.


async def test_evicted_segment_names_the_setting_if_the_store_is_not_set_any_more(
    world,
):
    async with opened(world) as storage:
        log = await open_topic(storage)
        await sealed(storage, log, b"a")
        await uploaded(storage)
        await storage.uploader.evict()
    world.opened_objects = lambda: world.objects
    async with world.storage() as storage:
        log = await open_topic(storage, epoch=2)
        with pytest.raises(CorruptSegment, match=r"check storage\.remote\.url"):
            await log.read(0, bytes_max=1)

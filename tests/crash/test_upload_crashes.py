"""
After a crash at any step of what moves, drops or merges segments, nothing is lost.

The steps are the requests to both object stores and the changes of the manifest.  The
process dies at each of them, just before or just after the request is carried out.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from pydanube.model.policy import Retention, TopicPolicy
from pydanube_broker.storage.config import RemoteConfig
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from support.fakes.batches import payloads_of
from support.fakes.object_storages import ObjectWorld
from support.fakes.storages import open_topic, publish, read_all, seal, until, wake
from support.fakes.upload_worlds import UploadWorld

POLICY = TopicPolicy(retention=Retention(bytes_max=1))
PAYLOADS = [b"a", b"b", b"c"]
STEPS_MAX = 200
SEGMENT = ".parquet"
"""The end of the names of segments; journals may be beside them."""
SMALL = [b"%d" % at for at in range(8)]
"""Messages whose segments are merged."""


class Death:
    """The moment at which the process dies: at step number *step*."""

    def __init__(self, step: int, *, is_after: bool) -> None:
        self.is_dead = False
        self.died = asyncio.Event()
        self.names: list[str] = []
        self._step = step
        self._is_after = is_after

    async def request(self, name, work):
        """Carry out *work*, unless the process is dead."""
        if not self.is_dead:
            self.names.append(name)
            if len(self.names) != self._step:
                return await work()
            self.is_dead = True
            self.died.set()
            if self._is_after:
                await work()
        return await asyncio.Future()


class MortalObjects:
    """Objects as a process uses them that may die."""

    supports_listing = True

    def __init__(self, name, objects, death) -> None:
        self._name, self._objects, self._death = name, objects, death
        self.open, self.url = objects.open, objects.url
        self.new_object = objects.new_object

    def __getattr__(self, method):
        call = getattr(self._objects, method)

        def request(*args, **options):
            what = f"{self._name} {method}"
            return self._death.request(what, lambda: call(*args, **options))

        return request


class Mortal:
    """The segments of a world in which processes die."""

    death: Death
    steps_before_merging = 0

    def opened_objects(self, remote=None):
        """See World."""
        return TieredObjects(
            MortalObjects("local", self.objects, self.death),
            MortalObjects("remote", remote or self.remote, self.death),
        )


class MortalWorld(Mortal, UploadWorld):
    """A world in which processes die."""


class MortalObjectWorld(Mortal, ObjectWorld):
    """One whose segments are uploaded before they become part of a topic."""


async def live(world, death, published, script=None, **budget):
    """Run the *script* until its end or the death of the process."""
    world.death = death
    change = type(world.manifest).change

    async def change_or_die(*args, **changes):
        return await death.request(
            "change the manifest", lambda: change(world.manifest, *args, **changes)
        )

    world.manifest.change = change_or_die
    remote = RemoteConfig(url="s3://bucket", concurrency=1, **budget)
    async with world.storage(remote=remote) as storage, asyncio.TaskGroup() as tasks:
        alive = tasks.create_task((script or drop_and_evict)(storage, published))
        dead = tasks.create_task(death.died.wait())
        await asyncio.wait([alive, dead], return_when=asyncio.FIRST_COMPLETED)
        alive.cancel()
        dead.cancel()
    del world.manifest.change


async def drop_and_evict(storage, published):
    """Seal, upload, drop and evict."""
    await storage.uploader.loaded.wait()
    log = await open_topic(storage, policy=POLICY)
    for payload in PAYLOADS[:2]:
        await publish(log, payload)
        published.append(payload)
        await seal(storage, 1)
    await until(lambda: not storage.uploader.tiers.backlog)
    await storage.sealer.apply_retention(log)
    await storage.uploader.evict()
    await until(lambda: not storage.uploader.objects.remote_deletions)
    await publish(log, PAYLOADS[2])
    published.append(PAYLOADS[2])
    await seal(storage, 1)
    await until(lambda: not storage.uploader.tiers.backlog)


async def fill_the_budget(storage, published):
    """Seal more than the local disk may have, so that each segment needs room."""
    await storage.uploader.loaded.wait()
    log = await open_topic(storage)
    for payload in PAYLOADS:
        await publish(log, payload)
        published.append(payload)
        await seal(storage, 1)
        await until(lambda: not storage.uploader.tiers.backlog)
    assert storage.uploader.evictor.count == len(PAYLOADS) - 1


async def merge(world, storage, published):
    """Seal and upload small segments, merge them, and let the old ones be deleted."""
    await storage.uploader.loaded.wait()
    log = await open_topic(storage)
    for payload in SMALL:
        await publish(log, payload)
        published.append(payload)
        await seal(storage, 1)
    await until(lambda: not storage.uploader.tiers.backlog)
    old = {segment.object_name for segment in log.segments}
    world.steps_before_merging = len(world.death.names)
    await storage.merger.merge_round()
    await until(lambda: not storage.uploader.tiers.backlog)
    world.now += 3600.0
    wake(storage)
    await until(lambda: not old & {*world.objects.stored, *world.remote.stored})


async def recover(world, published, payloads=PAYLOADS):
    """Open the storage again, finish everything, and compare all copies."""
    world.death = Death(0, is_after=False)
    remote = RemoteConfig(url="s3://bucket")
    async with world.storage(remote=remote, orphan_keep_s=0) as storage:
        await storage.uploader.loaded.wait()
        log = await open_topic(storage, epoch=2)
        stored = payloads[log.base_offset : log.end_offset]
        assert log.end_offset >= len(published)
        assert payloads_of(await read_all(log)) == stored
        await seal(storage, 1)
        await until(lambda: not storage.uploader.tiers.backlog)
        await until(lambda: not storage.uploader.objects.remote_deletions)
        await storage.sealer._collect_orphans(log)
        await storage.uploader.orphans.search()
        names = {segment.object_name for segment in await world.manifest.load(1)}
        assert all(segment.is_uploaded for segment in await world.manifest.load(1))
        stored_names = {*world.remote.stored}
        assert {each for each in stored_names if each.endswith(SEGMENT)} == names
        assert set(world.objects.stored) <= names
        await storage.uploader.evict()
        assert world.objects.stored == {}
        assert payloads_of(await read_all(log)) == stored


@pytest.mark.slow
@pytest.mark.parametrize("is_after", [False, True])
async def test_crash_at_any_step_of_uploads_loses_nothing_and_leaves_no_orphans(
    is_after,
):
    for step in range(1, STEPS_MAX):
        world, published = MortalWorld(), []
        death = Death(step, is_after=is_after)
        await live(world, death, published)
        await recover(world, published)
        if not death.is_dead:
            break
    assert not death.is_dead
    steps = set(death.names)
    assert {
        "local put_new",
        "remote put",
        "remote read",
        "change the manifest",
    } <= steps
    assert {"local delete", "remote delete"} <= steps


@pytest.mark.slow
@pytest.mark.parametrize("is_after", [False, True])
async def test_crash_at_any_step_of_making_room_for_a_segment_loses_nothing(is_after):
    for step in range(1, STEPS_MAX):
        world, published = MortalWorld(), []
        death = Death(step, is_after=is_after)
        # One segment fits.
        budget = {"local_bytes_max": 5000}
        await live(world, death, published, fill_the_budget, **budget)
        await recover(world, published)
        if not death.is_dead:
            break
    assert not death.is_dead
    assert "local delete" in death.names


@pytest.mark.slow
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("new_world", [MortalWorld, MortalObjectWorld])
async def test_crash_at_any_step_of_a_merge_loses_nothing_and_leaves_no_orphans(
    new_world, is_after
):
    world = new_world()
    death = Death(0, is_after=is_after)
    await live(world, death, [], partial(merge, world))
    assert len(await world.manifest.load(1)) == 1
    steps = {*death.names[world.steps_before_merging :]}
    assert {"local put", "change the manifest", "local delete"} <= steps
    assert {"remote put", "remote delete"} <= steps
    for step in _ends_of_runs(death.names, world.steps_before_merging):
        world, published = new_world(), []
        death = Death(step, is_after=is_after)
        await live(world, death, published, partial(merge, world))
        assert death.is_dead
        await recover(world, published, SMALL)


def _ends_of_runs(names, begin):
    """Return the numbers of the first and the last of equal steps, after *begin*."""
    neighbours = zip(["", *names], names, [*names[1:], ""], strict=False)
    return [
        step
        for step, (before, name, after) in enumerate(neighbours, start=1)
        if step > begin and not before == name == after
    ]

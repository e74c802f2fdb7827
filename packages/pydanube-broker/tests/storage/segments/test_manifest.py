import asyncio

import pytest

from pydanube.model.errors import BackupRunning
from pydanube.model.ids import TopicId
from pydanube_broker.storage.segments.manifest import HoldableManifest, Manifest


class SlowManifest(Manifest):
    """A manifest whose changes wait for ``may_end``."""

    def __init__(self):
        self.may_end = asyncio.Event()
        self.changes = []

    async def change(self, topic_id, epoch, *, shard=None, removed=(), added=()):
        await self.may_end.wait()
        self.changes.append((removed, added))


async def test_segments_are_added_but_not_removed_while_held():
    slow = SlowManifest()
    slow.may_end.set()
    manifest = HoldableManifest(slow)
    async with manifest.held():
        await manifest.change(TopicId(1), 1, added=["new"])
        with pytest.raises(BackupRunning):
            await manifest.change(TopicId(1), 1, removed=["old"])
    await manifest.change(TopicId(1), 1, removed=["old"])
    assert slow.changes == [((), ["new"]), (["old"], ())]


async def test_holding_waits_for_a_removal_that_has_begun():
    slow = SlowManifest()
    manifest = HoldableManifest(slow)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(manifest.change(TopicId(1), 1, removed=["old"]))
        await asyncio.sleep(0)

        async def hold():
            async with manifest.held():
                return list(slow.changes)

        held = tasks.create_task(hold())
        await asyncio.sleep(0)
        assert not held.done()
        slow.may_end.set()
    assert held.result() == [(["old"], ())]


async def test_only_one_may_hold():
    manifest = HoldableManifest(SlowManifest())
    async with manifest.held():
        with pytest.raises(BackupRunning):
            await manifest.held().__aenter__()
    async with manifest.held():
        assert manifest.is_held

"""
After any crash, a producer that sends everything again stores each id exactly once.

The broker runs once, on a recording disk; then it is opened on every state of the disk
that a crash could leave.
"""

from __future__ import annotations

import asyncio
import copy

import pytest

from support.fakes.brokers import A_NOW_US, BrokerWorld
from support.fakes.identified import offsets, opened, publish, stored_ids
from support.fakes.recording_files import RecordingFiles

BATCHES = [["a", "b"], ["b", "c"], ["c"], ["d", "d", "a"], ["e"]]


@pytest.mark.slow
def test_every_crash_leaves_each_id_once_after_sending_again() -> None:
    assert asyncio.run(_check_all_crashes()) > 20


async def _check_all_crashes() -> int:
    world = BrokerWorld()
    world.files = files = RecordingFiles()
    acknowledged: list[tuple[int, str, int]] = []
    async with world.broker() as broker:
        topic, session = await opened(broker)
        begin = len(files.operations)
        for ids in BATCHES:
            found = await offsets(publish(topic, session, ids, A_NOW_US), len(ids))
            now = len(files.operations)
            acknowledged += [(now, *pair) for pair in zip(ids, found, strict=True)]
        end = len(files.operations)
    checked = 0
    for count in range(begin, end + 1):
        for disk in files.crash_states(count):
            after = BrokerWorld(store=copy.deepcopy(world.store))
            after.files = RecordingFiles(disk)
            known = {each: at for now, each, at in acknowledged if now <= count}
            await _send_again(after, known)
            checked += 1
    return checked


async def _send_again(world: BrokerWorld, known: dict[str, int]) -> None:
    async with world.broker() as broker:
        topic, session = await opened(broker)
        for ids in BATCHES:
            found = await offsets(publish(topic, session, ids, A_NOW_US), len(ids))
            for each, offset in zip(ids, found, strict=True):
                assert known.setdefault(each, offset) == offset
        assert sorted(await stored_ids(topic)) == ["a", "b", "c", "d", "e"]

"""The broker collects garbage and returns memory while it is idle."""

import asyncio
import gc
import weakref

import psutil
import pyarrow as pa
import pytest

from pydanube.wire.files.segment_checksums import _borrowed_memory, _free_memory
from pydanube_broker.servers import idle_memory
from pydanube_broker.servers.idle_memory import (
    IDLE_LOAD,
    Schedule,
    memory_upkeep,
    release_free_memory,
)
from support.fakes.storages import until

MIB = 1024 * 1024
EAGER = Schedule(check_s=0.01, collect_s=0.0, collect_s_max=0.0, release_s=0.0)


class Node:
    """An object that refers to itself."""

    def __init__(self):
        self.itself = self


@pytest.mark.parametrize(
    ("passed_s", "load", "is_due"),
    [
        (Schedule().collect_s, 0.0, True),
        (Schedule().collect_s, IDLE_LOAD, True),
        (Schedule().collect_s - 1, 0.0, False),
        (Schedule().collect_s, 0.5, False),
        (Schedule().collect_s_max, 1.0, True),
    ],
)
def test_full_collections_run_when_idle_or_overdue(passed_s, load, is_due):
    assert Schedule().is_collection_due(passed_s, load) == is_due


async def test_a_reference_cycle_is_collected():
    async with memory_upkeep(EAGER), asyncio.timeout(60):
        node = Node()
        gone = weakref.ref(node)
        gc.collect(1)
        del node
        while gone() is not None:  # noqa: ASYNC110  # No event marks a collection.
            await asyncio.sleep(0.01)


async def test_the_collector_is_restored_afterwards(monkeypatch):
    before, calls = gc.get_threshold(), []
    # The real ones would unfreeze the tests.
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append("unfreeze"))
    async with memory_upkeep():
        assert calls == ["freeze"]
        assert gc.get_threshold() != before

    assert gc.get_threshold() == before
    assert calls == ["freeze", "unfreeze"]


def test_freed_memory_goes_back_to_the_system():
    process = psutil.Process()
    buffers = [pa.allocate_buffer(64 * 1024) for _ in range(4096)]
    for buffer in buffers:
        memoryview(buffer).cast("B")[::4096] = bytes(16)
    full = process.memory_info().rss
    buffers.clear()
    release_free_memory()
    assert process.memory_info().rss < full - 128 * MIB


async def test_memory_of_row_groups_is_released_whenever_the_broker_is_idle(
    monkeypatch,
):
    monkeypatch.setattr(idle_memory, "wanted_processor_time", lambda: 0.0)
    async with memory_upkeep(EAGER):
        # Reading a single row group later does not make the broker busy.
        for _ in range(3):
            with _borrowed_memory(MIB):
                pass
            assert _free_memory
            await until(lambda: not _free_memory)

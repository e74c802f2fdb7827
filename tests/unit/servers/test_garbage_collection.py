"""The broker looks for garbage when nobody has to wait for it."""

import asyncio
import gc
import weakref

import pytest

from pydanube.servers import garbage_collection
from pydanube.servers.garbage_collection import (
    INTERVAL_S,
    INTERVAL_S_MAX,
    QUIET_LOAD,
    collect_when_idle,
    is_due,
)


class Node:
    """Something that refers to itself."""

    def __init__(self):
        self.itself = self


@pytest.mark.parametrize(
    ("passed_s", "load", "due"),
    [
        (INTERVAL_S, 0.0, True),
        (INTERVAL_S, QUIET_LOAD, True),
        (INTERVAL_S - 1, 0.0, False),
        (INTERVAL_S, 0.5, False),
        (INTERVAL_S_MAX, 1.0, True),
    ],
)
def test_all_objects_are_looked_at_when_it_is_quiet_or_late(passed_s, load, due):
    assert is_due(passed_s, load) == due


def test_garbage_is_found_in_the_end(monkeypatch):
    monkeypatch.setattr(garbage_collection, "LOOK_S", 0.01)
    monkeypatch.setattr(garbage_collection, "INTERVAL_S", 0.0)
    monkeypatch.setattr(garbage_collection, "INTERVAL_S_MAX", 0.0)

    async def run():
        async with collect_when_idle(), asyncio.timeout(30):
            node = Node()
            gone = weakref.ref(node)
            gc.collect(1)
            del node
            while gone() is not None:  # noqa: ASYNC110  # Nobody says when.
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_everything_is_as_before_afterwards():
    async def run():
        async with collect_when_idle():
            assert gc.get_freeze_count() > 0
            assert gc.get_threshold() != before

    before = gc.get_threshold()

    asyncio.run(run())

    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0

"""Requests wait for the next owner of a shard, but not for long."""

import asyncio

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.names import TopicName
from pydanube_broker.broker.topics.shards import SETTLING_MAX, Shards
from support.fakes.shard_owners import KnownOwners


@pytest.fixture
def shards() -> Shards:
    return Shards(8, KnownOwners())


def test_shards_that_wait_are_problems_with_their_reasons(shards: Shards) -> None:
    assert shards.problems == []
    waits = {
        5: "x: no object",
        2: "the store is away",
        3: "x: no object",
    }
    shards.owners.waits |= waits
    assert shards.problems == [
        "1 shards wait for a takeover, the first is 2: the store is away",
        "2 shards wait for a takeover, the first is 3: x: no object",
    ]
    name = TopicName.parse("/default/t")
    assert "and waits: x: no object; try again" in str(shards.not_owner(name, 5))
    assert str(shards.not_owner(name, 6)).endswith("is being taken over; try again")


async def test_waits_until_the_shard_is_elsewhere(shards: Shards) -> None:
    elsewhere = shards.owners.elsewhere
    async with task_scope() as tasks:
        waiting = tasks.run(shards.settle(3))
        await asyncio.sleep(0)
        elsewhere.add(4)
        shards.owners.note_change()
        await asyncio.sleep(0)
        assert not waiting.done()
        elsewhere.add(3)
        shards.owners.note_change()
        await waiting


async def test_waits_until_the_shard_is_served_here(shards: Shards) -> None:
    async with task_scope() as tasks:
        waiting = tasks.run(shards.settle(3))
        await asyncio.sleep(0)
        shards.served[3] = 1
        shards.owners.note_change()
        await waiting


async def test_does_not_wait_for_a_settled_shard_or_without_one(shards: Shards) -> None:
    shards.owners.elsewhere.add(3)
    await shards.settle(3)
    await shards.settle(None)


async def test_gives_up_after_a_while(shards: Shards) -> None:
    await shards.settle(3, within_s=0.0)
    assert not shards.serves(3)


async def test_only_so_many_requests_wait(shards: Shards) -> None:
    async with task_scope() as tasks:
        waiting = [tasks.run(shards.settle(3)) for _ in range(SETTLING_MAX)]
        await asyncio.sleep(0)
        await shards.settle(3)
        assert not any(each.done() for each in waiting)
        tasks.cancel()

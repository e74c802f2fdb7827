"""Who has which number is known after a restart."""

from __future__ import annotations

import asyncio

from pydanube.broker.consumer_registry import ConsumerRegistry
from pydanube.metadata.memory import MemoryStore
from pydanube.metadata.records import ConsumerRecord
from pydanube.model.policy import SubscriptionType


def record(name: str) -> ConsumerRecord:
    return ConsumerRecord(
        topic="/default/orders",
        subscription="s",
        consumer=name,
        type=SubscriptionType.KEY_SHARED,
        key_filters=("eu-*",),
    )


def test_who_is_known_is_found_by_another_broker_of_the_store():
    async def run():
        store = MemoryStore()
        await ConsumerRegistry(store).change({7: record("a"), 8: record("b")})
        assert await ConsumerRegistry(store).load() == {7: record("a"), 8: record("b")}

    asyncio.run(run())


def test_who_is_forgotten_is_not_found_and_a_number_may_get_another_owner():
    async def run():
        known = ConsumerRegistry(MemoryStore())
        await known.change({7: record("a"), 8: record("b")})
        await known.change({8: record("c")}, [7, 4711])
        assert await known.load() == {8: record("c")}

    asyncio.run(run())

"""Consumer numbers survive a restart."""

from __future__ import annotations

from pydanube.model.policy import SubscriptionType
from pydanube_broker.broker.consumer_registry import ConsumerRegistry
from pydanube_broker.metadata.records import ConsumerRecord
from support.fakes.memory_store import MemoryStore


def record(name: str) -> ConsumerRecord:
    return ConsumerRecord(
        topic="/default/orders",
        subscription="s",
        consumer=name,
        type=SubscriptionType.KEY_SHARED,
        key_filters=("eu-*",),
    )


async def test_stored_consumers_survive_a_restart():
    store = MemoryStore()
    await ConsumerRegistry(store).change({7: record("a"), 8: record("b")})
    assert await ConsumerRegistry(store).load() == {7: record("a"), 8: record("b")}


async def test_deleted_consumer_is_gone_and_its_number_can_be_reused():
    known = ConsumerRegistry(MemoryStore())
    await known.change({7: record("a"), 8: record("b")})
    await known.change({8: record("c")}, [7, 4711])
    assert await known.load() == {8: record("c")}

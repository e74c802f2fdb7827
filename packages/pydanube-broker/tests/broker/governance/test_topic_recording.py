"""Topics that are created at the same time share transactions."""

import asyncio

import pytest

from pydanube.aio.long_work import STEPS_MAX
from pydanube.model.errors import AlreadyExists, NamespaceNotFound
from pydanube.model.names import TopicName
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.governance.namespaces import Namespaces
from pydanube_broker.broker.governance.topic_recording import RECORDING_STEPS
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import NamespaceRecord
from support.fakes.brokers import RELIABLE
from support.fakes.memory_store import MemoryStore


class HeldStore(MemoryStore):
    """A store that counts requests, and holds transactions back while it is closed."""

    def __init__(self):
        super().__init__()
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.read_count = 0
        self.transaction_count = 0

    async def _get(self, path):
        self.read_count += 1
        return await super()._get(path)

    async def _change(self, comparisons, operations):
        self.transaction_count += 1
        await self.is_open.wait()
        return await super()._change(comparisons, operations)


@pytest.fixture
async def store():
    store = HeldStore()
    for name in ("default", "shop"):
        await store.put(keys.NAMESPACES.key(name), NamespaceRecord(created_at=0))
    return store


@pytest.fixture
async def tasks():
    async with asyncio.TaskGroup() as tasks:
        yield tasks


@pytest.fixture
async def catalog(store, tasks):
    return catalog_of(store, tasks)


def catalog_of(store, tasks):
    namespaces = Namespaces(store, opened={}, lock=None, wall_clock_us=lambda: 0)
    return Catalog(store, namespaces, lambda: 7, tasks=tasks, shard_count=16)


def topic(number, namespace="default"):
    return TopicName.parse(f"/{namespace}/t{number}")


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_other_tasks_run_while_many_partitions_are_prepared(
    store, catalog, tasks
):
    store.transaction_count, turn_count = 0, 0
    creating = tasks.create_task(
        catalog.create_partitioned(topic(0), 500, RELIABLE, exist_ok=False)
    )
    while not store.transaction_count:
        await asyncio.sleep(0)
        turn_count += 1
    await creating
    assert turn_count >= 500 * RECORDING_STEPS // STEPS_MAX
    assert len(await catalog.partitions_of(topic(0))) == 500


async def test_a_further_topic_costs_one_transaction_and_no_read(store, catalog):
    await catalog.create(topic(0), RELIABLE)
    store.read_count = store.transaction_count = 0
    record = await catalog.create(topic(1), RELIABLE)
    assert (store.read_count, store.transaction_count) == (0, 1)
    assert (await catalog.get_topic(topic(1))).value == record


async def test_topics_that_come_during_a_transaction_share_the_next(
    store, catalog, tasks
):
    store.is_open.clear()
    store.transaction_count = 0
    creating = []
    for number in range(31):
        creating.append(tasks.create_task(catalog.create(topic(number), RELIABLE)))
        await turns()
    store.is_open.set()
    records = [await each for each in creating]
    assert store.transaction_count == 2
    assert [record.topic_id for record in records] == list(range(1, 32))


async def test_a_name_that_is_taken_does_not_keep_others_from_being_created(
    store, catalog, tasks
):
    await catalog.create(topic(0), RELIABLE)
    store.is_open.clear()
    names = [topic(1), topic(0), topic(2), topic(2), topic(3, "none"), topic(4, "shop")]
    creating = [tasks.create_task(_outcome(catalog, name)) for name in names]
    await turns()
    store.is_open.set()
    outcomes = [await each for each in creating]
    # One of the two that have the same name is created.
    assert {*outcomes[2:4]} == {None, AlreadyExists}
    assert outcomes[:2] == [None, AlreadyExists]
    assert outcomes[4:] == [NamespaceNotFound, None]
    found = [str(name) for name, _ in await catalog.records()]
    assert found == ["/default/t0", "/default/t1", "/default/t2", "/shop/t4"]


async def _outcome(catalog, name):
    try:
        await catalog.create(name, RELIABLE)
    except (AlreadyExists, NamespaceNotFound) as error:
        return type(error)


async def test_topics_of_several_brokers_have_different_ids(store, catalog, tasks):
    other = catalog_of(store, tasks)
    ids = set()
    for number in range(4):
        for each, namespace in ((catalog, "default"), (other, "shop")):
            record = await each.create(topic(number, namespace), RELIABLE)
            ids.add(record.topic_id)
    assert ids == set(range(1, 9))


async def test_a_topic_whose_caller_gave_up_leaves_the_others_alone(
    store, catalog, tasks
):
    store.is_open.clear()
    creating = [
        tasks.create_task(catalog.create(topic(number), RELIABLE))
        for number in range(3)
    ]
    await turns()
    creating[0].cancel()
    store.is_open.set()
    records = [await each for each in creating[1:]]
    assert [record.topic_id for record in records] == [2, 3]

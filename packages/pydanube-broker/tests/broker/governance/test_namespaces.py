import pytest

from pydanube.model.errors import (
    AlreadyExists,
    InvalidRequest,
    NamespaceInUse,
    NamespaceNotFound,
)
from pydanube.model.names import NamespaceName, TopicName, parse_namespace
from pydanube.model.policy import NamespacePolicy
from pydanube_broker.metadata import keys
from support.fakes.brokers import (
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
)

SHOP = parse_namespace("shop")
ORDERS = TopicName.parse("/shop/orders")
FEW = NamespacePolicy(max_producers_per_topic=3, max_message_size=1000)
FEWER = NamespacePolicy(max_producers_per_topic=1)


async def test_new_store_has_two_namespaces(broker):
    assert await broker.namespaces.names() == ["default", "system"]
    assert await broker.namespaces.policy("default") == NamespacePolicy()


async def test_namespaces_are_listed_sorted(broker):
    await broker.namespaces.create(SHOP)
    await broker.namespaces.create(NamespaceName("alpha"))
    await broker.topics.create(ORDERS, RELIABLE)
    await broker.topics.create_partitioned(TopicName.parse("/shop/events"), 2, RELIABLE)
    names = await broker.namespaces.names()
    assert names == ["alpha", "default", "shop", "system"]


async def test_namespace_and_policy_survive_a_restart(world):
    async with world.broker() as broker:
        await broker.namespaces.create(SHOP, FEW)
    async with world.broker() as broker:
        assert await broker.namespaces.policy(SHOP) == FEW


async def test_namespace_is_created_once(broker):
    await broker.namespaces.create(SHOP, FEW)
    with pytest.raises(AlreadyExists, match=r"Namespace shop already exists\."):
        await broker.namespaces.create(SHOP)
    await broker.namespaces.create(SHOP, exist_ok=True)
    assert await broker.namespaces.policy(SHOP) == FEW


@pytest.mark.parametrize("name", ["default", "system"])
async def test_first_namespaces_cannot_be_deleted(broker, name):
    with pytest.raises(InvalidRequest, match="cannot be deleted"):
        await broker.namespaces.delete(NamespaceName(name))


async def test_missing_namespace_cannot_be_deleted_or_described(broker):
    with pytest.raises(NamespaceNotFound):
        await broker.namespaces.delete(SHOP)
    with pytest.raises(NamespaceNotFound):
        await broker.namespaces.policy(SHOP)
    with pytest.raises(NamespaceNotFound):
        await broker.namespaces.configure(SHOP, policy=FEW)
    with pytest.raises(NamespaceNotFound):
        await broker.topics.create(ORDERS, RELIABLE)


@pytest.mark.parametrize("partitions", [None, 2])
async def test_namespace_with_topics_cannot_be_deleted(broker, partitions):
    await broker.namespaces.create(SHOP)
    await broker.namespaces.create(NamespaceName("shop-2"))
    if partitions is None:
        await broker.topics.create(ORDERS, NON_RELIABLE)
    else:
        await broker.topics.create_partitioned(ORDERS, partitions, RELIABLE)
    with pytest.raises(NamespaceInUse, match="/shop/orders"):
        await broker.namespaces.delete(SHOP)
    await broker.namespaces.delete(NamespaceName("shop-2"))
    await broker.topics.delete(ORDERS)
    await broker.namespaces.delete(SHOP)
    assert await broker.namespaces.names() == ["default", "system"]
    with pytest.raises(NamespaceNotFound):
        await broker.topics.create(ORDERS, RELIABLE)


async def create(broker, partitions):
    if partitions is None:
        await broker.topics.create(ORDERS, RELIABLE)
    else:
        await broker.topics.create_partitioned(ORDERS, partitions, RELIABLE)


@pytest.mark.parametrize("partitions", [None, 2])
async def test_concurrent_topic_creation_prevents_namespace_deletion(partitions):
    """Two brokers on one store; the other one acts just before a transaction."""
    mine = BrokerWorld()
    other = BrokerWorld(mine.store)
    async with mine.broker() as broker, other.broker() as second:
        await broker.namespaces.create(SHOP)
        mine.store.concurrent_actions.append(lambda: create(second, partitions))
        with pytest.raises(NamespaceInUse):
            await broker.namespaces.delete(SHOP)


@pytest.mark.parametrize("partitions", [None, 2])
async def test_concurrent_namespace_deletion_prevents_topic_creation(partitions):
    mine = BrokerWorld()
    other = BrokerWorld(mine.store)
    async with mine.broker() as broker, other.broker() as second:
        await broker.namespaces.create(SHOP)
        mine.store.concurrent_actions.append(lambda: second.namespaces.delete(SHOP))
        with pytest.raises(NamespaceNotFound):
            await create(broker, partitions)
        assert await mine.store.scan(keys.TOPICS.within(SHOP)) == []
        assert await mine.store.scan(keys.PARTITIONED_TOPICS.within(SHOP)) == []


async def test_changed_policy_applies_to_open_topics(broker):
    await broker.namespaces.create(SHOP, FEW)
    topic = await broker.topics.create(ORDERS, RELIABLE)
    own = await broker.topics.create(TopicName.parse("/shop/own"), RELIABLE)
    elsewhere = await broker.topics.create(TopicName.parse("/default/x"), RELIABLE)
    await broker.topics.configure(own.name, limits=FEW)
    assert topic.limits == FEW
    await broker.namespaces.configure(SHOP, policy=FEWER)
    assert topic.limits == FEWER
    assert own.limits == FEW
    assert elsewhere.limits == NamespacePolicy()
    later = await broker.topics.create(TopicName.parse("/shop/later"), RELIABLE)
    assert later.limits == FEWER


@pytest.mark.parametrize("limit", [-1, 2**32])
async def test_limits_out_of_range_are_refused(broker, limit):
    policy = NamespacePolicy(max_publish_rate=limit)
    with pytest.raises(InvalidRequest, match="max_publish_rate"):
        await broker.namespaces.create(SHOP, policy)
    await broker.namespaces.create(SHOP)
    with pytest.raises(InvalidRequest):
        await broker.namespaces.configure(SHOP, policy=policy)
    await broker.topics.create(ORDERS, RELIABLE)
    with pytest.raises(InvalidRequest):
        await broker.topics.configure(ORDERS, limits=policy)

"""Topics of more partitions than a transaction of the metadata store has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pydanube_broker.metadata import keys
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld
from support.servers.metadata_services import SERVICES

if TYPE_CHECKING:
    from support.servers.metadata_services import MetadataService

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("service", SERVICES, ids=str)
async def test_topic_that_grew_to_many_partitions_is_deleted_and_created_again(
    request: pytest.FixtureRequest, service: MetadataService
) -> None:
    member = request.getfixturevalue(service.kind)
    async with (
        service.open(service.config_of(member)) as store,
        BrokerWorld(store).broker() as broker,
    ):
        await broker.topics.create_partitioned(A_TOPIC, 25, RELIABLE)
        for count in range(50, 175, 25):
            await broker.topics.add_partitions(A_TOPIC, count)
        await broker.topics.delete(A_TOPIC)
        assert await broker.catalog.names() == []
        for prefix in (keys.PARTITIONED_TOPICS, keys.DELETED_TOPICS, keys.EPOCHS):
            assert await store.scan(prefix) == []
        await broker.topics.create_partitioned(A_TOPIC, 3, RELIABLE)

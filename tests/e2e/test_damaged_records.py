"""A record that cannot be decoded, in each service, fails only its own topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pydanube.model.errors import Corrupt
from pydanube.model.names import TopicName
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import key_of
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld
from support.servers.metadata_services import SERVICES

if TYPE_CHECKING:
    from support.servers.metadata_services import MetadataService

pytestmark = pytest.mark.e2e

OTHER = TopicName.parse("/default/other")


@pytest.mark.parametrize("service", SERVICES, ids=str)
async def test_damaged_record_fails_only_its_topic(
    request: pytest.FixtureRequest, service: MetadataService
) -> None:
    member = request.getfixturevalue(service.kind)
    async with service.open(service.config_of(member)) as store:
        world = BrokerWorld(store)
        async with world.broker() as broker:
            for name in (A_TOPIC, OTHER):
                await broker.topics.create(name, RELIABLE)
        await store.put(key_of(keys.topic(A_TOPIC).path, list), ["damaged"])
        async with world.broker() as broker:
            assert (await broker.topics.get(OTHER)).name == OTHER
            assert await broker.catalog.names() == [OTHER]
            with pytest.raises(Corrupt, match="/topics/default/orders"):
                await broker.topics.get(A_TOPIC)
            with pytest.raises(Corrupt):
                await broker.topics.create(A_TOPIC, RELIABLE)
            assert len(broker.damaged_records) == 1

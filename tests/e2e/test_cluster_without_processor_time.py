"""Three brokers with a tenth of a processor each keep their sessions in a takeover."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import pydanube
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.metadata_services import SERVICES, MetadataService
from support.servers.processor_shares import processor_shares

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = [f"/default/t{number}" for number in range(100)]
SHARE = 0.1


async def sessions_of(client: pydanube.Client) -> dict[str, str]:
    found = await client.cluster.describe()
    return {each.broker_id: each.session_id for each in found.brokers if each.url}


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("service", SERVICES, ids=str)
async def test_brokers_short_of_processor_time_keep_their_sessions_in_a_takeover(
    request: pytest.FixtureRequest, tmp_path: Path, service: MetadataService
) -> None:
    endpoint = service.endpoint(request.getfixturevalue(service.kind).port)
    settings = cluster_settings(
        endpoint, tmp_path, kind=service.kind, shards=24, ttl_s=10
    )
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
        cluster_broker(tmp_path, settings, "c") as third,
        processor_shares() as limit,
    ):
        urls = ",".join(each.url for each in (second, third, first))
        async with pydanube.connect(urls, retry_s=300) as client:
            for topic in TOPICS:
                await client.topics.create(topic)
            before = await sessions_of(client)
            for broker in (first, second, third):
                limit(broker.pid, SHARE)
            await asyncio.to_thread(first.kill)
            for topic in TOPICS:
                async with client.producer(topic) as producer:
                    await producer.send(b"after")
            after = await sessions_of(client)
    assert after == {name: before[name] for name in ("b", "c")}

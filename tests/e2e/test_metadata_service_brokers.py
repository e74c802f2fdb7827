"""Brokers with their metadata in etcd or ZooKeeper."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import pydanube
from support.drivers.running import TOPIC, published, received
from support.servers.metadata_services import SERVICES, MetadataService
from support.servers.processes import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class ClusterMetadata:
    """The metadata of a cluster in a service."""

    service: MetadataService
    member: Any
    cluster_name: str
    file: Path
    """The settings of a broker."""


@pytest.fixture(params=SERVICES)
def metadata(request: pytest.FixtureRequest, tmp_path: Path) -> ClusterMetadata:
    """Return those of a new cluster name in one of the services."""
    service: MetadataService = request.param
    member, name = request.getfixturevalue(service.kind), uuid4().hex
    given = {
        "endpoints": service.endpoint(member.port),
        "cluster_name": name,
        "session_ttl_s": service.session_ttl_s,
        "timeout_s": 2,
    }
    file = tmp_path / "broker.yaml"
    file.write_text(
        json.dumps({"metadata": {"kind": service.kind, service.kind: given}})
    )
    return ClusterMetadata(service, member, name, file)


def broker_of(metadata: ClusterMetadata, name: str = "data") -> BrokerProcess:
    directory = metadata.file.parent
    return BrokerProcess(
        directory / name,
        *("--config", str(metadata.file)),
        log_file=directory / f"{name}.log",
    )


async def test_a_broker_keeps_its_metadata_in_the_service(
    metadata: ClusterMetadata,
) -> None:
    with broker_of(metadata) as process:
        async with pydanube.connect(process.url) as client:
            await published(client, b"a", b"b")
        process.kill()
        # It waits until the session of the killed one has ended.
        process.start()
        async with (
            pydanube.connect(process.url) as client,
            client.consumer(TOPIC, subscription="sub", start="earliest") as consumer,
        ):
            assert await received(consumer, 2) == [b"a", b"b"]
        assert process.stop() == 0
        assert not (process.data_dir / "metadata.sqlite").exists()


def test_a_second_broker_is_refused(metadata: ClusterMetadata) -> None:
    with broker_of(metadata) as first:
        second = broker_of(metadata, "other")
        second.spawn()
        assert second.wait() == 4
        log = second.log_file.read_text()
        assert f"(process {first.pid}, data directory" in log
        assert f"(metadata.{metadata.service.kind}.cluster_name)" in log
        assert first.stop() == 0


def test_a_broker_refuses_the_metadata_of_another_data_directory(
    metadata: ClusterMetadata,
) -> None:
    with broker_of(metadata) as first:
        assert first.stop() == 0
    other = broker_of(metadata, "other")
    other.spawn()
    assert other.wait() == 11
    assert "is missing or was emptied" in other.log_file.read_text()


def test_a_broker_whose_session_is_lost_stops(metadata: ClusterMetadata) -> None:
    with broker_of(metadata) as process:
        metadata.service.end_sessions(metadata.member, metadata.cluster_name)
        assert process.wait() == 7
        assert "another broker may have taken over" in process.log_file.read_text()


def test_a_broker_stops_when_the_service_is_away_for_longer_than_its_session(
    metadata: ClusterMetadata,
) -> None:
    with broker_of(metadata) as process:
        metadata.member.pause()
        try:
            assert process.wait() == 7
        finally:
            metadata.member.resume()
        assert "another broker may have taken over" in process.log_file.read_text()
        process.start()
        assert process.stop() == 0


def test_a_broker_does_not_start_without_the_service(metadata: ClusterMetadata) -> None:
    text = metadata.file.read_text().replace(str(metadata.member.port), "1")
    metadata.file.write_text(text)
    process = broker_of(metadata)
    process.spawn()
    assert process.wait() == 7
    assert f"{metadata.service.name} does not answer" in process.log_file.read_text()

"""Brokers with their metadata in etcd."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import pydanube
from support.etcd import EtcdMember
from support.processes import BrokerProcess
from support.running import TOPIC, published, received

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


@pytest.fixture
def settings(tmp_path: Path, etcd: EtcdMember) -> Path:
    """Return the file with the settings of a cluster name."""
    path = tmp_path / "broker.yaml"
    path.write_text(
        f"metadata:\n  kind: etcd\n  etcd:\n    endpoints: {etcd.url}\n"
        f"    cluster_name: {uuid4().hex}\n    session_ttl_s: 1\n    timeout_s: 2\n"
    )
    return path


def broker_of(settings: Path, name: str = "data") -> BrokerProcess:
    directory = settings.parent
    return BrokerProcess(
        directory / name,
        *("--config", str(settings)),
        log_file=directory / f"{name}.log",
    )


async def test_a_broker_keeps_its_metadata_in_etcd(settings: Path) -> None:
    with broker_of(settings) as process:
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


def test_a_second_broker_is_refused(settings: Path) -> None:
    with broker_of(settings) as first:
        second = broker_of(settings, "other")
        second.spawn()
        assert second.wait() == 4
        log = second.log_file.read_text()
        assert f"(process {first.pid}, data directory" in log
        assert "choose another name (metadata.etcd.cluster_name)" in log
        assert first.stop() == 0


def test_a_broker_refuses_the_metadata_of_another_data_directory(
    settings: Path,
) -> None:
    with broker_of(settings) as first:
        assert first.stop() == 0
    other = broker_of(settings, "other")
    other.spawn()
    assert other.wait() == 11
    assert "is missing or was emptied" in other.log_file.read_text()


def test_a_broker_whose_session_is_lost_stops(settings: Path, etcd: EtcdMember) -> None:
    with broker_of(settings) as process:
        # The session of this broker, and leases that nobody misses.
        for lease in etcd.ask("lease/leases")["leases"]:
            etcd.ask("lease/revoke", ID=lease["ID"])
        assert process.wait() == 7
        assert "another broker may have taken over" in process.log_file.read_text()


def test_a_broker_stops_when_etcd_is_away_for_longer_than_its_session(
    settings: Path, etcd: EtcdMember
) -> None:
    with broker_of(settings) as process:
        etcd.pause()
        try:
            assert process.wait() == 7
        finally:
            etcd.resume()
        assert "another broker may have taken over" in process.log_file.read_text()
        process.start()
        assert process.stop() == 0


def test_a_broker_does_not_start_without_etcd(settings: Path, etcd: EtcdMember) -> None:
    text = settings.read_text().replace(str(etcd.port), "1")
    settings.write_text(text)
    process = broker_of(settings)
    process.spawn()
    assert process.wait() == 7
    assert "etcd does not answer" in process.log_file.read_text()

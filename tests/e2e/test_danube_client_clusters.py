"""The published client of Danube in a cluster whose topics move and brokers die."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import pydanube.sync
from support.servers.cluster_processes import (
    cluster_broker,
    cluster_settings,
    write_settings,
)
from support.servers.danube_client import DanubeClient
from support.servers.etcd import EtcdMember
from support.servers.processes import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/orders"
COUNT = 100
"""The messages that are sent before, and again after each event."""


@pytest.fixture
def settings(tmp_path: Path, etcd: EtcdMember) -> dict[str, Any]:
    """Return the settings of all brokers of a new cluster."""
    return cluster_settings(etcd.url, tmp_path, ttl_s=4)


@pytest.fixture
def behind_one_address(tmp_path: Path, settings: dict[str, Any]) -> list[BrokerProcess]:
    """
    Return three brokers, and the address that clients of Danube have for all of them.

    It is that of the last broker, in place of a load balancer.
    """
    settings["listen"] = {}
    brokers = [cluster_broker(tmp_path, settings, name) for name in ("a", "b", "front")]
    settings["listen"]["connect_url"] = brokers[-1].grpc_url
    for broker in brokers:
        write_settings(tmp_path, settings, broker.data_dir.name)
    return brokers


class Flow:
    """A producer that sends numbers, and a consumer that gets them."""

    def __init__(self, client: DanubeClient) -> None:
        self._client = client
        self._sent = 0
        client.create_producer(name="shop", topic=TOPIC)
        client.subscribe(
            name="billing", topic=TOPIC, subscription="s", type="EXCLUSIVE"
        )

    def start(self, count: int) -> Any:
        """Begin to send *count* more numbers; return the future of the last one."""
        first, self._sent = self._sent, self._sent + count
        return self._client.start(
            "send_each", producer="shop", first=first, end=self._sent
        )

    def received(self) -> set[int]:
        """Return the numbers that have come, which are all that were sent."""
        numbers = self._client.receive_numbers(consumer="billing", end=self._sent)
        return set(numbers)


@pytest.mark.soak
def test_a_client_follows_a_topic_in_use_that_moves(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    with (
        cluster_broker(tmp_path, settings, "a") as first,
        cluster_broker(tmp_path, settings, "b") as second,
        DanubeClient(second.grpc_url) as client,
        pydanube.sync.connect(f"{first.url},{second.url}") as native,
    ):
        native.topics.create(TOPIC)
        flow = Flow(client)
        for target in ("b", "a", "b"):
            sending = flow.start(COUNT)
            native.cluster.move_topic(TOPIC, target)
            sending.result(60)
        assert flow.received() == set(range(3 * COUNT))
        stored = [int(each) for batch in native.read(TOPIC) for each in batch.payloads]
        assert list(dict.fromkeys(stored)) == list(range(3 * COUNT))


@pytest.mark.soak
def test_a_client_behind_one_address_survives_the_death_of_owners(
    behind_one_address: list[BrokerProcess],
) -> None:
    first, second, front = behind_one_address
    with (
        first,
        second,
        front,
        DanubeClient(front.grpc_url) as client,
        pydanube.sync.connect(front.url) as native,
    ):
        native.topics.create(TOPIC)
        native.cluster.move_topic(TOPIC, "a")
        flow = Flow(client)
        flow.start(COUNT).result(60)
        for owner, heir in ((first, "b"), (second, "front")):
            sending = flow.start(COUNT)
            owner.kill()
            sending.result(60)
            if heir != "front":
                native.cluster.move_topic(TOPIC, heir)
        assert flow.received() == set(range(3 * COUNT))
        stored = [int(each) for batch in native.read(TOPIC) for each in batch.payloads]
        assert list(dict.fromkeys(stored)) == list(range(3 * COUNT))

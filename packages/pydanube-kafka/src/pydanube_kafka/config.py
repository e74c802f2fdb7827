"""The settings of the listener for Kafka clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from pydanube.model.metrics import Metric
from pydanube_broker.servers.settings.listener_config import ListenerConfig
from pydanube_kafka.metrics import KAFKA_METRICS
from pydanube_kafka.pure.nodes import parse_address

KIB = 1024
MIB = 1024 * KIB


class KafkaConfig(ListenerConfig, frozen=True, kw_only=True):
    """The listener for Kafka clients."""

    NAME: ClassVar[str] = "kafka"
    TITLE: ClassVar[str] = "the protocol of Kafka"
    OPEN: ClassVar[str] = "pydanube_kafka.listener:open_kafka"
    SCHEMES: ClassVar[tuple[str, str]] = ("kafka", "kafkas")
    USUAL_PORT: ClassVar[int] = 9092
    SERVES_CLUSTERS: ClassVar[bool] = True
    METRICS: ClassVar[Sequence[Metric]] = KAFKA_METRICS

    port: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    """The port for Kafka clients, usually 9092; 0 chooses a free port and prints it.
    Without it, the broker has no listener for them."""
    advertised_address: str = ""
    """The host or host:port to which clients connect after the first answer; by default
    the address to which they connected; in a cluster, the host of
    `cluster.advertised_url` or `listen.host`. Processes have ports of their own."""
    namespaces: bool = False
    """Whether the name of a Kafka topic begins with a namespace: `shop.orders` is then
    `/shop/orders`. Otherwise it is `/default/shop.orders`, and topics of other
    namespaces are not seen."""
    auto_create_topics: bool = True
    """Whether a topic that does not exist is created when a client asks for it and
    allows that, as Kafka does."""
    partitions: Annotated[int, Meta(ge=1, le=1000)] = 1
    """The number of partitions of topics that are created so, and of those that clients
    create without a number."""
    request_bytes_max: Annotated[int, Meta(ge=64 * KIB, le=256 * MIB)] = 32 * MIB
    """The maximum length of a request. A longer one closes its connection."""
    fetch_bytes_max: Annotated[int, Meta(ge=64 * KIB, le=256 * MIB)] = 32 * MIB
    """The most messages in bytes of the answer to one request to fetch."""
    producers_max: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000
    """The maximum number of idempotent producers of which the listener holds sessions.
    Beyond it, those that were silent longest are closed."""
    groups_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """The maximum number of groups with members."""
    group_members_max: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """The maximum number of members of a group."""
    group_heartbeat_interval_s: Annotated[float, Meta(ge=0.1, le=60)] = 5
    """How often members with `group.protocol=consumer` send heartbeats, and how often
    the broker looks for new topics and partitions of their subscriptions."""
    group_session_timeout_s: Annotated[float, Meta(ge=1, le=1800)] = 45
    """How long such a member may be silent before others get its partitions. Members
    of groups with the classic protocol choose their own."""

    def address(self, host: str, port: int) -> str:
        """See ListenerConfig."""
        if not self.advertised_address:
            return super().address(host, port)
        host, advertised = parse_address(self.advertised_address, port)
        # Each of several processes has another port than that of the settings.
        return super().address(host, advertised if port == self.port else port)

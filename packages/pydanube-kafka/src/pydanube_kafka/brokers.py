"""The brokers of the cluster: which one leads a partition, or coordinates a group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from pydanube.model.errors import Unavailable
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.topics.shards import SETTLE_S
from pydanube_broker.metadata import keys
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.pure.nodes import (
    ALONE,
    NOBODY,
    Node,
    number_of,
    parse_address,
    shard_of,
)

LISTED_S = 30.0
"""
How long a broker is listed that has left the cluster; it may only have restarted.

librdkafka forgets a broker that is not listed, and waits without an end if that was the
coordinator of a group (https://github.com/confluentinc/librdkafka/issues/5511).
"""


class Leader(NamedTuple):
    """The broker that serves a partition."""

    number: int
    """``NOBODY``: none serves it at the moment."""
    epoch: int
    """The number of claims of its shard; -1 without a cluster."""


class Brokers:
    """The brokers that clients can connect to; one, without a cluster."""

    def __init__(
        self,
        broker: Broker,
        advertised: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*advertised* is the address of this broker, unless it is that of a client."""
        self._broker = broker
        self._clock = clock
        # The others that were listed, and until when they are if they have left.
        self._known: dict[int, tuple[Node, float]] = {}
        self._advertised = advertised
        self._cluster_id = ""
        self.port = 0
        """The port on which this broker listens."""

    async def cluster_id(self) -> str:
        """Return the id of the cluster, which is the same in all brokers."""
        if not self._cluster_id:
            stored = await self._broker.store.get(keys.CLUSTER)
            known = None if stored is None else stored.value.cluster_id
            self._cluster_id = known or self._broker.broker_id
        return self._cluster_id

    @property
    def own_number(self) -> int:
        """The number of this broker."""
        if self._broker.shards is None:
            return ALONE
        return number_of(self._broker.broker_id)

    def own(self, local_host: str) -> Node:
        """Return this broker, for a client that has connected to *local_host*."""
        host, port = local_host, self.port
        if self._advertised:
            host, port = parse_address(self._advertised, self.port)
        return Node(self.own_number, host, port)

    def list(self, local_host: str) -> Sequence[Node]:
        """Return all brokers, also those that have just left; this one is first."""
        now, nodes = self._clock(), self._running(local_host)
        known = {number: each for number, each in self._known.items() if each[1] > now}
        known |= {each.number: (each, now + LISTED_S) for each in nodes[1:]}
        self._known = known
        return [nodes[0], *(each for each, _ in known.values())]

    def _running(self, local_host: str) -> Sequence[Node]:
        nodes = [self.own(local_host)]
        shards = self._broker.shards
        if shards is not None:
            for each in shards.owners.others():
                address = each.addresses.get(KafkaConfig.NAME)
                if address:
                    host, port = parse_address(address, self.port)
                    nodes.append(Node(number_of(each.broker_id), host, port))
        return nodes

    def leader_of(self, shard: int | None) -> Leader:
        """Return the broker that serves the topics of *shard*."""
        shards = self._broker.shards
        if shards is None:
            return Leader(ALONE, -1)
        owner = shards.broker_of(shard, self._broker.broker_id)
        if not owner or shard is None:
            return Leader(NOBODY, -1)
        return Leader(number_of(owner), shards.claims_of(shard))

    async def settle(self, shards: Iterable[int | None]) -> None:
        """
        Wait until brokers serve all *shards*, for ``SETTLE_S`` at most.

        librdkafka keeps that a partition has no leader for minutes, and its
        ``query_watermark_offsets`` fails meanwhile.
        """
        cluster = self._broker.shards
        if cluster is None:
            return
        missing = [
            each for each in set(shards) if self.leader_of(each).number == NOBODY
        ]
        if missing:
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_S):
                    for each in missing:
                        await cluster.settle(each)

    def is_coordinator(self, key: str) -> bool:
        """
        Return whether this broker coordinates a group or transactional id.

        Without a session in the cluster, it coordinates none.
        """
        shards = self._broker.shards
        if shards is None:
            return True
        try:
            shards.owners.check_session()
        except Unavailable:
            return False
        return shards.serves(shard_of(key, shards.count))

    def coordinator_of(self, key: str, local_host: str) -> Node | None:
        """Return the broker that does; None if there is none at the moment."""
        shards = self._broker.shards
        if shards is None:
            return self.own(local_host)
        number = self.leader_of(shard_of(key, shards.count)).number
        nodes = {each.number: each for each in self._running(local_host)}
        return nodes.get(number)

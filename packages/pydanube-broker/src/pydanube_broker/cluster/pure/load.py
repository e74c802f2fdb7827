"""
The load of a session's shards, which the controller balances.

Rates are exponentially weighted averages, so that a short burst moves no shards.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.metadata.cluster_records import ShardLoad

SMOOTHING_S = 30.0
"""The time after which a new rate has 63 % of the weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraffic:
    """The traffic of a topic since it was opened, and its present state."""

    shard: int
    byte_count: int = 0
    message_count: int = 0
    connections: int = 0
    """The producers and consumers now."""
    tail_bytes: int = 0


@dataclass(slots=True)
class _Interval:
    """The sums of the topics of a shard."""

    byte_count: int = 0
    message_count: int = 0
    connections: int = 0
    tail_bytes: int = 0


class LoadMeter:
    """
    The load of the shards that a session serves.

    A shard has a load when it was served for a whole interval; until then, that of its
    earlier owner is a better estimate.
    """

    def __init__(self, smoothing_s: float = SMOOTHING_S) -> None:
        self._smoothing_s = smoothing_s
        self._measured_at = 0.0
        self._served: set[int] = set()
        """The shards that were served at the last measurement."""
        self._topics: Mapping[TopicId, TopicTraffic] = {}
        self._loads: dict[int, ShardLoad] = {}

    def measure(
        self,
        topics: Mapping[TopicId, TopicTraffic],
        served: Collection[int],
        now: float,
    ) -> dict[int, ShardLoad]:
        """Take the traffic of all open topics, and return the loads."""
        intervals = {shard: _Interval() for shard in self._served.intersection(served)}
        for topic_id, traffic in topics.items():
            interval = intervals.get(traffic.shard)
            if interval is None:
                continue
            before = self._topics.get(topic_id)
            if before is None or before.message_count > traffic.message_count:
                # It was opened since then.
                before = TopicTraffic(shard=traffic.shard)
            interval.byte_count += traffic.byte_count - before.byte_count
            interval.message_count += traffic.message_count - before.message_count
            interval.connections += traffic.connections
            interval.tail_bytes += traffic.tail_bytes
        elapsed_s = now - self._measured_at
        self._loads = {
            shard: self._smoothed(shard, interval, elapsed_s)
            for shard, interval in intervals.items()
        }
        self._served, self._topics, self._measured_at = set(served), topics, now
        return self._loads

    def _smoothed(self, shard: int, interval: _Interval, elapsed_s: float) -> ShardLoad:
        byte_rate = interval.byte_count / elapsed_s
        message_rate = interval.message_count / elapsed_s
        before = self._loads.get(shard)
        if before is not None:
            old = math.exp(-elapsed_s / self._smoothing_s)
            byte_rate += old * (before.bytes_per_s - byte_rate)
            message_rate += old * (before.messages_per_s - message_rate)
        return ShardLoad(
            bytes_per_s=round(byte_rate, 1),
            messages_per_s=round(message_rate, 1),
            connections=interval.connections,
            tail_bytes=interval.tail_bytes,
        )

"""
How many shards a session takes over at the same time.  Pure.

All shards of a broker that has ended come at once.  Each of them needs the processor,
and so do messages, clients that connect again, and the journal.  So a session begins
with some of them, and with more only while its event loop goes round quickly.
"""

from __future__ import annotations

from pydanube_broker.metadata.cluster_records import ShardLoad

FIRST_MAX = 16
"""How many shards may begin before it is known what the event loop bears."""
SHARDS_MAX = 64
"""The most shards that are taken over at the same time."""
ROUND_S_MAX = 0.25
"""If the event loop takes longer to go round once, fewer shards begin."""
HANDOVERS_MAX = 8
"""The most shards that leave their owners for one session at the same time."""
TOPICS_MAX = 64
TAIL_BYTES_MAX = 16 * 1024 * 1024
MESSAGES_PER_S_MAX = 20_000.0
CONNECTIONS_MAX = 64
"""A shard with so many topics, bytes, messages or connections leaves its owner alone;
smaller ones leave together up to these sums."""


def handover_cost(topic_count: int, load: ShardLoad) -> float:
    """
    Return the part of a session's handovers that a shard takes; 1 stands for all.

    While a shard goes from one owner to the next, clients wait for it.  Small shards
    mostly wait for the metadata store and for object stores, so several of them take
    no longer than one.  Large ones need the processor, and would delay each other.
    """
    return max(
        1 / HANDOVERS_MAX,
        topic_count / TOPICS_MAX,
        load.tail_bytes / TAIL_BYTES_MAX,
        load.messages_per_s / MESSAGES_PER_S_MAX,
        load.connections / CONNECTIONS_MAX,
    )


class TakeoverPace:
    """The number of shards that may be taken over at the same time; one at least."""

    def __init__(self) -> None:
        self.limit = FIRST_MAX

    @property
    def handovers(self) -> float:
        """The sum of ``handover_cost`` of the shards that may leave their owners."""
        return min(1.0, self.limit / FIRST_MAX)

    def on_round(self, taken_s: float) -> None:
        """Take how long the event loop took to go round once."""
        if taken_s > ROUND_S_MAX:
            self.limit = max(1, self.limit // 2)
        else:
            self.limit = min(SHARDS_MAX, self.limit + 1)

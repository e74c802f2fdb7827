"""Descriptions of clusters of brokers."""

from __future__ import annotations

from enum import Enum

from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass


class BrokerMode(Enum):
    """Whether a broker may own shards."""

    ACTIVE = "active"
    DRAINING = "draining"
    """Its shards are moving to other brokers, and it gets no new ones."""
    DRAINED = "drained"

    @classmethod
    def parse(cls, text: str) -> BrokerMode:
        """
        Return the mode that *text* names.

        Raises:
            InvalidRequest: There is no such mode.
        """
        try:
            return cls(text)
        except ValueError:
            names = ", ".join(each.value for each in cls)
            raise InvalidRequest(
                f"{text[:40]!r} is not a mode of brokers; choose from {names}"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBroker:
    """One broker of a cluster, or the only broker."""

    broker_id: str
    url: str = ""
    """Its address for clients; empty if the broker does not run."""
    grpc_url: str = ""
    """Its address for clients of Danube; empty if it is not known."""
    admin_url: str = ""
    """Its address for administrators of Danube; empty if it is not known."""
    http_url: str = ""
    """Its address for health, metrics and the JSON API; empty if it is not known."""
    mode: BrokerMode = BrokerMode.ACTIVE
    is_controller: bool = False
    """Whether it decides which broker serves which topics."""
    shard_count: int = 0
    """The number of shards that it serves."""
    incoming_count: int = 0
    """The number of shards that it is taking over, or is to take over."""
    started_at: int | None = None
    """When its session began, in microseconds since 1970; None if it does not run."""
    zone: str = ""
    session_id: str = ""
    topic_count: int | None = None
    """The number of topics of its shards; None unless it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """The load of a broker that may serve shards."""

    broker_id: str
    load_percent: float
    """The weight of its shards, in percent of the weight of all shards."""
    topic_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMove:
    """A shard that moves to another broker, with all its topics."""

    shard: int
    source: str = ""
    """The broker that serves it; empty if none does."""
    target: str
    topics: tuple[str, ...] = ()
    """The names of its topics, or the first ones."""
    topic_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardMoves:
    """Shards that move to other brokers."""

    moves: tuple[ShardMove, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The brokers of a cluster at one moment."""

    brokers: tuple[ClusterBroker, ...]
    """By name; a broker that does not run is listed if it was drained."""
    shard_count: int = 0
    """The number of shards; 0 if there is no cluster but one broker."""
    unserved_count: int = 0
    """The number of shards that no broker serves at this moment."""

"""The brokers of a cluster as people see them, and changes of their modes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TypeVar

from pydanube.model.clusters import BrokerMode, ClusterBroker, ClusterDescription
from pydanube.model.errors import InvalidRequest
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    BrokerModeRecord,
    SessionRecord,
    ShardRecord,
    ShardState,
)
from pydanube_broker.metadata.key import Prefix
from pydanube_broker.metadata.store import (
    ABSENT,
    MetadataStore,
    Put,
    Unchanged,
    retry_on_conflict,
)

T = TypeVar("T")

STREAM = "stream"
"""The name of the listener of the native protocol in the addresses of a session."""
GRPC = "grpc"
"""The name of the listener for clients of Danube."""
GRPC_CONNECT = "grpc-connect"
"""The name of the proxy in front of that listener, if there is one."""
PEER_GRPC = "peer-grpc"
"""The name of the same listener for other brokers, which forward calls to it."""
PEER_ADMIN = "peer-admin"
"""The name of the gRPC listener for administrators, for other brokers."""

PEER_HTTP = "peer-http"
"""The name of the HTTP listener, with the metrics, as other brokers reach it."""

log = logging.getLogger(__name__)


async def describe_cluster(
    store: MetadataStore, *, counts_topics: bool = False
) -> ClusterDescription:
    """
    Return the brokers of the cluster that *store* describes.

    *counts_topics* reads the names of all topics.

    The parts are read one after the other, so a shard that moves meanwhile may be
    counted as unserved.
    """
    controller = await store.get(keys.CONTROLLER)
    return describe(
        sessions=await _values(store, keys.SESSIONS),
        shards=await _values(store, keys.SHARDS),
        modes=await _values(store, keys.BROKER_MODES),
        controller=None if controller is None else controller.value,
        topics=await _values(store, keys.SHARD_TOPICS) if counts_topics else None,
    )


async def count_topics(store: MetadataStore, session_id: str) -> int:
    """Return the number of topics in the shards that a session owns."""
    shards = await _values(store, keys.SHARDS)
    owned = {name for name, record in shards.items() if record.owner == session_id}
    topics = await _values(store, keys.SHARD_TOPICS)
    return sum(name.partition("/")[0] in owned for name in topics)


async def _values(store: MetadataStore, prefix: Prefix[T]) -> dict[str, T]:
    found = await store.scan_valid(prefix)
    return {prefix.name_of(path): stored.value for path, stored in found}


def describe(
    *,
    sessions: Mapping[str, SessionRecord],
    shards: Mapping[str, ShardRecord],
    modes: Mapping[str, BrokerModeRecord],
    controller: str | None,
    topics: Iterable[str] | None = None,
) -> ClusterDescription:
    """
    Return the description of a cluster with these records.

    *topics* are paths, which begin with shards.
    """
    topic_counts: Counter[str | None] = Counter()
    for path in topics or ():
        shard = shards.get(path.partition("/")[0])
        topic_counts[None if shard is None else shard.owner] += 1
    serving: Counter[str | None] = Counter()
    incoming: Counter[str | None] = Counter()
    for shard in shards.values():
        is_served = shard.state in {ShardState.OPEN, ShardState.CLOSING}
        serving[shard.owner if is_served and shard.owner in sessions else None] += 1
        heading_for = shard.target or shard.owner
        if not is_served or heading_for != shard.owner:
            incoming[heading_for] += 1
    brokers = [
        ClusterBroker(
            broker_id=record.broker_id,
            url=record.addresses.get(STREAM, ""),
            grpc_url=record.addresses.get(GRPC, ""),
            admin_url=record.addresses.get(PEER_ADMIN, ""),
            http_url=record.addresses.get(PEER_HTTP, ""),
            mode=_mode_of(modes, record.broker_id),
            is_controller=session == controller,
            shard_count=serving[session],
            incoming_count=incoming[session],
            started_at=record.started_at,
            zone=record.zone,
            session_id=session,
            topic_count=None if topics is None else topic_counts[session],
        )
        for session, record in sessions.items()
    ]
    present = {each.broker_id for each in brokers}
    brokers += [
        ClusterBroker(broker_id=name, mode=record.mode)
        for name, record in modes.items()
        if name not in present and record.mode is not BrokerMode.ACTIVE
    ]
    return ClusterDescription(
        brokers=tuple(sorted(brokers, key=_order)),
        shard_count=len(shards),
        unserved_count=serving[None],
    )


def _mode_of(modes: Mapping[str, BrokerModeRecord], broker_id: str) -> BrokerMode:
    record = modes.get(broker_id)
    return BrokerMode.ACTIVE if record is None else record.mode


def _order(broker: ClusterBroker) -> tuple[str, int]:
    return broker.broker_id, broker.started_at or 0


async def set_broker_mode(
    store: MetadataStore,
    broker_id: str,
    mode: BrokerMode,
    *,
    reason: str = "",
    wall_clock_us: int,
) -> None:
    """
    Drain a broker, or activate it again; it keeps the mode when it restarts.

    The controller of the cluster moves the shards.  Draining a broker again changes
    nothing.

    Raises:
        InvalidRequest: The cluster has no such broker, or a broker is to be drained and
            no other active one runs; or *mode* is not one that people set.
    """
    if mode is BrokerMode.DRAINED:
        raise InvalidRequest("a broker is drained when its shards have moved: drain it")
    await retry_on_conflict(
        partial(_try_to_set, store, broker_id, mode, reason, wall_clock_us)
    )
    log.info("the broker %s is %s from now on: %s", broker_id, mode.value, reason)


async def _try_to_set(
    store: MetadataStore,
    broker_id: str,
    mode: BrokerMode,
    reason: str,
    wall_clock_us: int,
) -> None:
    known = (await describe_cluster(store)).brokers
    ours = [each for each in known if each.broker_id == broker_id]
    if not ours:
        names = ", ".join(sorted({each.broker_id for each in known}))
        raise InvalidRequest(f"the cluster has no broker {broker_id!r}; it has {names}")
    if mode is BrokerMode.DRAINING:
        if ours[0].mode is not BrokerMode.ACTIVE:
            return
        if not any(
            each.mode is BrokerMode.ACTIVE and each.broker_id != broker_id
            for each in known
        ):
            raise InvalidRequest(
                f"{broker_id} is the only active broker, so no other one could serve "
                "its topics: start or activate another broker first"
            )
    key = keys.BROKER_MODES.key(broker_id)
    stored = await store.get(key)
    record = BrokerModeRecord(mode=mode, changed_at=wall_clock_us, reason=reason)
    before = ABSENT if stored is None else stored.revision
    await store.transaction([Unchanged(key, before)], [Put(key, record)])

"""
The values of the metadata store that a cluster of brokers needs.

docs/format/compatibility.md says how records may change.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from pydanube.model.clusters import BrokerMode


class BrokerModeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The mode that an administrator gave a broker; it survives restarts."""

    mode: BrokerMode
    changed_at: int
    reason: str = ""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session: one run of a broker.  The record has the session's lease."""

    broker_id: str
    addresses: dict[str, str]
    """The advertised address of each listener, by its name."""
    started_at: int
    zone: str = ""
    peer_key: str = ""
    """
    The key that other brokers show when they ask this one to store their messages.

    It proves that they can read the metadata of the cluster.
    """


class SessionJournalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of a session."""

    kind: str
    """As in the setting ``storage.journal.kind``."""
    prefix: str
    """The prefix of the names of its objects."""
    first: int
    """The first group that is still needed; it has a snapshot."""
    is_frozen: bool = False
    """Whether another session recovers from it, so that nothing may be removed."""
    broker_id: str
    """The broker of the session."""
    is_given_up: bool = False
    """Whether shards do without it if it is damaged, by request of an operator."""


class ShardState(Enum):
    """How far the owner of a shard is."""

    RELEASED = "released"
    """It has no owner."""
    OPENING = "opening"
    """The owner is taking the shard over, and serves nothing."""
    OPEN = "open"
    CLOSING = "closing"
    """The owner is asked to release the shard."""


class ShardRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A shard: who owns it, and which journal has its unsealed messages."""

    state: ShardState = ShardState.RELEASED
    epoch: int = 0
    """The number of claims; also in a key of its own."""
    owner: str | None = None
    """The session that owns it; None if it is released."""
    source: str | None = None
    """The session whose journal has its entries; None if the shard is new."""
    source_epoch: int = 0
    """The epoch of the entries that count; those of other epochs are ignored."""
    has_left: bool = False
    """Whether the source ended its entries with SHARD_LEFT before it released."""
    target: str | None = None
    """The session that should own it; None if the owner should keep it."""


class ShardLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The load that one shard causes."""

    bytes_per_s: float = 0.0
    messages_per_s: float = 0.0
    connections: int = 0
    tail_bytes: int = 0


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a session, by shard.  The record has the session's lease."""

    measured_at: int
    shards: dict[int, ShardLoad]
    is_strained: bool = False
    """Whether the session was nearly lost lately, or its event loop stood still; see
    ``sessions.Margin``."""

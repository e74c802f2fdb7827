"""The owners of the shards of a cluster, as a session saw them last."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.cluster.mirror import Mirror
from pydanube_broker.cluster.session import ClusterSession
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord, ShardState
from pydanube_broker.metadata.sessions import Session


@dataclass(slots=True)
class TakeoverCounts:
    """The number of steps that a session has made with shards."""

    claims: int = 0
    """Transactions that made this session the owner of a shard."""
    served: int = 0
    """Shards that it began to serve."""
    released: int = 0
    """Shards that it released."""
    refusals: int = 0
    """Transactions that were refused, because something had changed meanwhile."""
    failures: int = 0
    """Steps that failed and are repeated."""
    takeovers: int = 0
    """Groups of shards that it began to serve together."""
    takeover_s: float = 0.0
    """The time that these groups took, from the first preparation or claim on."""
    lost_topics: int = 0
    """Topics that it serves without a journal that was given up."""
    lost_sessions: int = 0
    """Sessions that ended while they owned shards, which this session claimed."""


class ShardOwners:
    """
    The owners of all shards, for the broker of a session.

    Before ``Takeovers`` run, no shard has an owner.
    """

    def __init__(self, session: ClusterSession) -> None:
        self.records = Mirror(keys.SHARDS)
        """The records of the shards; the takeovers follow them."""
        self.waits: dict[int, str] = {}
        """Why this session cannot take shards over at the moment."""
        self.counts = TakeoverCounts()
        """The takeovers of this session."""
        self._session = session
        self._changed = asyncio.Event()

    @property
    def lease(self) -> Session:
        """The lease that the session depends on."""
        return self._session.lease

    def check_session(self) -> None:
        """
        Return if the session goes on.

        Raises:
            SessionLost: It is over.
        """
        self._session.check()

    def others(self) -> Sequence[SessionRecord]:
        """Return the other sessions, as they were seen last."""
        members = self._session.members.values
        own = self._session.session_id
        return [each.value for name, each in members.items() if name != own]

    def find_owner(self, shard: int) -> SessionRecord | None:
        """
        Return the other session that serves a shard, as it was seen last.

        Returns None if the shard is not open, or its owner is gone or this session.
        """
        stored = self.records.values.get(str(shard))
        if stored is None or stored.value.state is ShardState.OPENING:
            return None
        owner = stored.value.owner
        if owner is None or owner == self._session.session_id:
            return None
        member = self._session.members.values.get(owner)
        return None if member is None else member.value

    def owns(self, shard: int) -> bool:
        """Return whether this session serves a shard, or will in a moment."""
        stored = self.records.values.get(str(shard))
        return (
            stored is not None
            and stored.value.state is ShardState.OPEN
            and stored.value.owner == self._session.session_id
        )

    def find_epoch(self, shard: int) -> int:
        """Return the number of claims of a shard, as it was seen last."""
        stored = self.records.values.get(str(shard))
        return 0 if stored is None else stored.value.epoch

    def is_elsewhere(self, shard: int) -> bool:
        """Return whether another session serves a shard, and is to keep it."""
        stored = self.records.values.get(str(shard))
        return (
            stored is not None
            and stored.value.state is ShardState.OPEN
            and stored.value.owner != self._session.session_id
            and stored.value.owner in self._session.members.values
        )

    def note_change(self) -> None:
        """Take that shards may have other owners, or are served now."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self) -> None:
        """Return when ``note_change`` is called."""
        await self._changed.wait()

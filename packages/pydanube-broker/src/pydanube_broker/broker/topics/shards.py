"""Which shards a broker of a cluster serves, and who owns the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from pydanube.model.errors import InvalidRequest, NotOwner
from pydanube.model.ids import Epoch
from pydanube.model.names import TopicName
from pydanube_broker.cluster.overview import STREAM
from pydanube_broker.cluster.pure.placement import PlacementLimits
from pydanube_broker.cluster.shard_owners import TakeoverCounts
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.metadata.sessions import Session

SETTLE_S = 2.0
"""How long a request waits for the next owner of a topic's shard."""
SETTLING_MAX = 128
"""
How many requests wait for that at the same time.

A connection stops reading at 256 requests, and messages for other topics would wait.
"""


PROBLEMS_MAX = 8
"""How many reasons are named for shards that cannot be taken over."""


class Owners(Protocol):
    """The owners of all shards, as the cluster knows them."""

    waits: dict[int, str]
    """Why this broker cannot take shards over at the moment."""
    counts: TakeoverCounts
    """The takeovers of this session."""

    @property
    def lease(self) -> Session:
        """The lease that the session of this broker depends on."""

    def check_session(self) -> None:
        """Raise SessionLost if the session of this broker is over."""

    def others(self) -> Sequence[SessionRecord]:
        """Return the other sessions, as they were seen last."""

    def find_owner(self, shard: int) -> SessionRecord | None:
        """Return the other session that serves a shard, as it was seen last."""

    def owns(self, shard: int) -> bool:
        """Return whether this broker serves a shard, or will in a moment."""

    def find_epoch(self, shard: int) -> int:
        """Return the number of claims of a shard, as it was seen last."""

    def is_elsewhere(self, shard: int) -> bool:
        """Return whether another broker serves a shard, and is to keep it."""

    def note_change(self) -> None:
        """Take that this broker serves other shards."""

    async def wait_for_change(self) -> None:
        """Return when shards may have other owners, or are served."""


class Shards:
    """The shards that this broker serves."""

    def __init__(
        self, count: int, owners: Owners, limits: PlacementLimits | None = None
    ) -> None:
        """
        *count* is the number of shards for new topics.

        By *limits*, this broker balances as the controller.
        """
        self.count = count
        self.owners = owners
        self.limits = limits or PlacementLimits()
        self.served: dict[int, Epoch] = {}
        """The shards that accept messages, and the epochs of their claims."""
        self._waiting = 0

    @property
    def problems(self) -> list[str]:
        """Descriptions of present problems, for administrators."""
        shards: dict[str, list[int]] = {}
        for shard, reason in sorted(self.owners.waits.items()):
            shards.setdefault(reason, []).append(shard)
        return [
            f"{len(each)} shards wait for a takeover, the first is {each[0]}: {reason}"
            for reason, each in shards.items()
        ][:PROBLEMS_MAX]

    def serves(self, shard: int | None) -> bool:
        """Return whether this broker serves *shard*."""
        return shard in self.served

    def epoch_of(self, name: TopicName, shard: int | None) -> Epoch:
        """
        Return the epoch with which this broker serves the *shard* of a topic.

        Raises:
            NotOwner: Another broker serves it, or none.
            SessionLost: The session of this broker is over.
            InvalidRequest: The topic was created outside of a cluster.
        """
        self.owners.check_session()
        if shard is None:
            raise InvalidRequest(
                f"{name} was created outside of a cluster and has no shard; copy its "
                "messages to a topic that a broker of the cluster creates"
            )
        if shard not in self.served:
            raise self.not_owner(name, shard)
        return self.served[shard]

    async def settle(self, shard: int | None, *, within_s: float = SETTLE_S) -> None:
        """
        Wait while a shard goes from one owner to the next, for *within_s* at most.

        Bounds: ``SETTLING_MAX`` callers wait; others return at once.
        """
        if shard is None or self._waiting >= SETTLING_MAX:
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(within_s):
                while not (self.serves(shard) or self.owners.is_elsewhere(shard)):
                    await self.owners.wait_for_change()
        except TimeoutError:
            return
        finally:
            self._waiting -= 1

    def not_owner(self, name: TopicName, shard: int) -> NotOwner:
        """Return the error that names the owner of a topic in *shard*."""
        url = self.url_of(shard)
        if not url:
            reason = self.owners.waits.get(shard, "")
            return NotOwner(
                f"no broker serves {name} at the moment: its shard {shard} is being "
                f"taken over{reason and f', and waits: {reason}'}; try again"
            )
        return NotOwner(
            f"another broker serves {name}, in shard {shard}: connect to {url}"
        )

    def url_of(self, shard: int) -> str:
        """Return the URL of the owner of *shard*; empty if it is not known."""
        return self.addresses_of(shard).get(STREAM, "")

    def claims_of(self, shard: int) -> int:
        """Return the number of claims of a shard: the epoch of who serves it."""
        return self.served.get(shard) or self.owners.find_epoch(shard)

    def broker_of(self, shard: int | None, own_id: str) -> str:
        """Return the id of the broker that serves *shard*; empty if not known."""
        if self.serves(shard):
            return own_id
        owner = None if shard is None else self.owners.find_owner(shard)
        return "" if owner is None else owner.broker_id

    def addresses_of_owners(self) -> list[Mapping[str, str]]:
        """Return the addresses of the other brokers that serve shards."""
        owners = {
            owner.broker_id: owner.addresses
            for owner in map(self.owners.find_owner, range(self.count))
            if owner is not None
        }
        return list(owners.values())

    def addresses_of(self, shard: int | None) -> Mapping[str, str]:
        """Return the addresses of the owner of *shard*; none if it is not known."""
        owner = None if shard is None else self.owners.find_owner(shard)
        return {} if owner is None else owner.addresses

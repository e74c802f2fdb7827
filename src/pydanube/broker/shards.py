"""Which shards a broker of a cluster serves, and who owns the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydanube.cluster.overview import STREAM
from pydanube.cluster.placement import PlacementLimits
from pydanube.cluster.takeover import TakeoverCounts
from pydanube.metadata.cluster_records import SessionRecord
from pydanube.model.errors import InvalidRequest, NotOwner
from pydanube.model.ids import Epoch
from pydanube.model.names import TopicName


class Shards:
    """The shards that this broker serves."""

    def __init__(self, count: int, check_session: Callable[[], None]) -> None:
        """
        *count* is the number of shards for new topics.

        *check_session* raises if the session of this broker is over.
        """
        self.count = count
        self.served: dict[int, Epoch] = {}
        """The shards that accept messages, and the epochs of their claims."""
        self.find_owner: Callable[[int], SessionRecord | None] = lambda _: None
        """Returns the other session that serves a shard, as it was seen last."""
        self.counts = TakeoverCounts()
        """The takeovers of this session."""
        self.limits = PlacementLimits()
        """The limits by which this broker balances as the controller."""
        self.check_session = check_session
        """Raises SessionLost if the session of this broker is over."""

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
        self.check_session()
        if shard is None:
            raise InvalidRequest(
                f"{name} was created outside of a cluster and has no shard; copy its "
                "messages to a topic that a broker of the cluster creates"
            )
        if shard not in self.served:
            raise self.not_owner(name, shard)
        return self.served[shard]

    def not_owner(self, name: TopicName, shard: int) -> NotOwner:
        """Return the error that names the owner of a topic in *shard*."""
        url = self.url_of(shard)
        if not url:
            return NotOwner(
                f"no broker serves {name} at the moment: its shard {shard} is being "
                "taken over; try again"
            )
        return NotOwner(
            f"another broker serves {name}, in shard {shard}: connect to {url}"
        )

    def url_of(self, shard: int) -> str:
        """Return the URL of the owner of *shard*; empty if it is not known."""
        return self.addresses_of(shard).get(STREAM, "")

    def broker_of(self, shard: int | None, own_id: str) -> str:
        """Return the id of the broker that serves *shard*; empty if not known."""
        if self.serves(shard):
            return own_id
        owner = None if shard is None else self.find_owner(shard)
        return "" if owner is None else owner.broker_id

    def addresses_of(self, shard: int | None) -> Mapping[str, str]:
        """Return the addresses of the owner of *shard*; none if it is not known."""
        owner = None if shard is None else self.find_owner(shard)
        return {} if owner is None else owner.addresses

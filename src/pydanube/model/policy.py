"""What a user may decide about a topic and a subscription."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DispatchMode(Enum):
    """How much a topic promises."""

    RELIABLE = "reliable"
    """On disk before it is acknowledged, replayable, delivered at least once."""
    NON_RELIABLE = "non_reliable"
    """In memory only, delivered at most once, lowest latency."""


class Durability(Enum):
    """What an acknowledgement of a reliable topic means."""

    DURABLE = "durable"
    """On disk: it survives the loss of power."""
    WRITTEN = "written"
    """With the operating system: it survives the end of the broker process."""


class SubscriptionType(Enum):
    """How the consumers of one subscription share its messages."""

    EXCLUSIVE = "exclusive"
    """One consumer; a second one is refused."""
    FAILOVER = "failover"
    """One active consumer; the others stand by and take over in the order they came."""
    SHARED = "shared"
    """All consumers, each message to one of them."""


class Start(Enum):
    """Where a new subscription begins."""

    EARLIEST = "earliest"
    """At the oldest message that is kept."""
    LATEST = "latest"
    """At the first message published after the subscription was created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long sealed history is kept; None means for ever."""

    age_s: float | None = None
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """What was decided about a topic when it was created."""

    dispatch: DispatchMode = DispatchMode.RELIABLE
    durability: Durability = Durability.DURABLE
    retention: Retention = Retention()

    @property
    def is_reliable(self) -> bool:
        """Whether messages are stored."""
        return self.dispatch is DispatchMode.RELIABLE

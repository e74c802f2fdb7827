"""The counters of a client."""

from __future__ import annotations

from pydanube.model.lazy_dataclasses import dataclass


@dataclass(slots=True)
class ClientCounters:
    """
    Counts of what a client has done since it was opened.

    The client counts each batch, not each message.
    """

    published: int = 0
    """Messages that the broker acknowledged."""
    publish_failures: int = 0
    """Messages that raised an error after they were sent or queued."""
    received: int = 0
    """Messages that the program received, redeliveries included."""
    redelivered: int = 0
    """Messages that the program received again."""
    late: int = 0
    """Messages that the client dropped, because their ack timeout had passed."""
    acked: int = 0
    """
    Messages that the program acknowledged; a cumulative acknowledgement counts as one.
    """
    nacked: int = 0
    """Messages that the program rejected."""
    reconnects: int = 0
    """Connections that replaced a lost one."""

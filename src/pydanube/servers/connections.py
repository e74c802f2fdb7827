"""The connections of one listener, how many there may be, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class ConnectionCounts:
    """The connections of one listener that does not speak the native protocol."""

    listener: str
    """``grpc``, ``admin`` or ``http``."""
    connections_max: int
    open_count: int = 0
    refused_total: int = 0
    """Connections that were closed because there were too many."""
    silent_total: int = 0
    """Connections that were closed because nothing came, or not enough in time."""
    abusive_total: int = 0
    """Connections that were closed because of what the peer sent."""

    def admit(self) -> bool:
        """Count a new connection; whether it may stay.  Call ``lose`` in any case."""
        self.open_count += 1
        if self.open_count <= self.connections_max:
            return True
        self.refused_total += 1
        return False

    def lose(self) -> None:
        """A connection is gone."""
        self.open_count -= 1

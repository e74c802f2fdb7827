"""Counts of a listener's connections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class ConnectionCounts:
    """The connections of a gRPC or HTTP listener."""

    listener: str
    """``grpc``, ``admin`` or ``http``."""
    connections_max: int = 10_000
    open_count: int = 0
    refused_total: int = 0
    """Connections that were closed because there were too many."""
    silent_total: int = 0
    """Connections that were closed because the peer was silent or too slow."""
    abusive_total: int = 0
    """Connections that were closed because the peer violated protocol or limits."""

    def admit(self) -> bool:
        """Count a new connection; return whether to keep it.  Call ``lose`` later."""
        self.open_count += 1
        if self.open_count <= self.connections_max:
            return True
        self.refused_total += 1
        return False

    def lose(self) -> None:
        """Count a lost connection."""
        self.open_count -= 1

"""The connections of a listener: their counts, and the end of silent ones."""

from __future__ import annotations

import socket
from dataclasses import field

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.dispatch.shared_counts import (
    ONE_PROCESS,
    SharedCount,
    SharedCounts,
)


@dataclass(slots=True, kw_only=True)
class ConnectionCounts:
    """The connections of a listener, in this process of the broker."""

    listener: str
    """``stream``, ``grpc``, ``admin``, ``http`` or ``mqtt``."""
    connections_max: int = 10_000
    """The most connections in all processes together."""
    shared: SharedCounts = field(default=ONE_PROCESS, repr=False)
    open_count: int = 0
    refused_total: int = 0
    """Connections that were closed because there were too many."""
    silent_total: int = 0
    """Connections that were closed because the peer was silent or too slow."""
    abusive_total: int = 0
    """Connections that were closed because the peer violated protocol or limits."""
    _count: SharedCount = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._count = self.shared.of(f"listener:{self.listener}")

    def admit(self) -> bool:
        """Count a new connection; return whether to keep it.  Call ``lose`` later."""
        self.open_count += 1
        self._count.add("connections", 1)
        if self.open_count + self._count.others("connections") <= self.connections_max:
            return True
        self.refused_total += 1
        return False

    def lose(self) -> None:
        """Count a lost connection."""
        self.open_count -= 1
        self._count.add("connections", -1)


def enable_keepalive(connection: socket.socket, timeout_s: float) -> None:
    """Let the kernel close the connection of an unreachable peer, where supported."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        # A peer on this machine; its end is always noticed.
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", max(1, round(timeout_s))),
        ("TCP_KEEPINTVL", max(1, round(timeout_s / 3))),
        ("TCP_USER_TIMEOUT", max(1000, round(timeout_s * 1000))),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)

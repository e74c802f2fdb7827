"""The clients that are connected to a broker, through any of its listeners."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

from pydanube.model.connections import ConnectionMember
from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """Facts about a connection at one moment."""

    listener: str
    address: str
    client: str
    principal: str
    members: tuple[ConnectionMember, ...] = ()
    member_count: int = 0
    received_messages: int | None = None
    received_bytes: int | None = None
    sent_messages: int | None = None
    sent_bytes: int | None = None


class OpenConnection(Protocol):
    """A connection whose client has said who it is."""

    def facts(self, may_see: Callable[[TopicName], bool]) -> ConnectionFacts:
        """Describe it, with the members whose topics *may_see* accepts."""

    def end(self, reason: str) -> None:
        """Close it soon."""


class OpenConnections:
    """
    The open connections, by number: the time when each was made, in microseconds.

    Bounds: The listeners limit how many there are.
    """

    def __init__(self, wall_clock_us: Callable[[], int]) -> None:
        self._wall_clock_us = wall_clock_us
        self._open: dict[int, OpenConnection] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: OpenConnection) -> int:
        """Add *connection*, and return its number, which ``remove`` needs."""
        self._last = max(self._last + 1, self._wall_clock_us())
        self._open[self._last] = connection
        return self._last

    def remove(self, number: int) -> None:
        """Remove a connection; it need not be there."""
        self._open.pop(number, None)

    def page(self, after: int, count_max: int) -> list[tuple[int, OpenConnection]]:
        """Return the first *count_max* connections after the number *after*."""
        numbers = list(self._open)
        start = bisect_right(numbers, after)
        wanted = numbers[start : start + count_max]
        return [(number, self._open[number]) for number in wanted]

    def close(self, number: int, reason: str) -> None:
        """
        Close a connection.

        Raises:
            InvalidRequest: There is no such connection.
        """
        connection = self._open.get(number)
        if connection is None:
            raise InvalidRequest(
                f"this broker has no connection {number}: it may be closed already, or "
                "be one of another broker"
            )
        connection.end(reason)

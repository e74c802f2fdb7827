"""The allowance of a connection for frames that bring no request forward."""

from __future__ import annotations

from pydanube_broker.wire.grpc.http2_frames import ErrorCode, Http2Error

ALLOWANCE = 10_000
"""How many frames that bring no request forward a peer may send before the next call of
``Allowance.refill``, unless it earns more."""
ALLOWANCE_MAX = 2 * ALLOWANCE
"""The largest allowance that a peer can earn."""
RESPONSE_EARNS = 64
"""The increase of the allowance for an answered request.  It pays for the window
updates, pings and long headers that a client may send with every call."""
MESSAGE_EARNS = 4
"""The increase of the allowance for each message sent to the peer."""
MESSAGE_BYTES_EARN = 1024
"""A sent message adds 1 more for each of these bytes."""


class Allowance:
    """The allowance of one connection."""

    __slots__ = ("_units",)

    def __init__(self) -> None:
        self._units = ALLOWANCE

    def spend(self, units: int) -> None:
        """
        Subtract *units*.

        Raises:
            Http2Error: The allowance is used up.
        """
        self._units -= units
        if self._units < 0:
            raise Http2Error(
                "too many frames that bring no request forward",
                ErrorCode.ENHANCE_YOUR_CALM,
            )

    def earn(self, units: int) -> None:
        """Add *units*, up to ``ALLOWANCE_MAX``."""
        self._units = min(self._units + units, ALLOWANCE_MAX)

    def earn_messages(self, count: int, byte_count: int) -> None:
        """Add what *count* sent messages earn, which have *byte_count* together."""
        self.earn(count * MESSAGE_EARNS + byte_count // MESSAGE_BYTES_EARN)

    def refill(self) -> None:
        """Add units up to ``ALLOWANCE``; call this at regular intervals."""
        self._units = max(self._units, ALLOWANCE)

"""A stream of HTTP/2: its windows, and the data that waits for them."""

from __future__ import annotations

from collections import deque

STREAM_WINDOW = 65_535
"""The bytes that a peer may send on a stream before it is granted more."""


class Stream:
    """An open stream."""

    __slots__ = (
        *("closing", "extra_window", "is_closed_by_peer", "is_drained", "pending"),
        *("pending_bytes", "receivable", "sendable"),
    )

    def __init__(self, sendable: int) -> None:
        self.sendable = sendable
        """How many bytes the peer's window allows us to send."""
        self.receivable = STREAM_WINDOW
        """How many bytes the peer may still send."""
        self.extra_window = 0
        """How many bytes were granted beyond the initial window."""
        self.pending: deque[memoryview] | None = None
        """Data that waits for the peer's windows; None if there was none yet."""
        self.pending_bytes = 0
        self.closing: bytes | None = None
        """The frames that end the stream, to be sent after the data."""
        self.is_closed_by_peer = False
        self.is_drained = True
        """Whether no ``SendCompleted`` is due."""

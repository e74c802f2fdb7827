"""
The limit for the memory of partly received frames over all connections.

Only frames that are longer than a connection's receive buffer count.  The whole length
of a frame is reserved before its memory is allocated, so a frame that was started can
always be completed.  A frame that does not fit waits, and its connection is not read.
Waiting frames are served in order.
"""

from __future__ import annotations

from typing import Protocol


class Receiver(Protocol):
    """A connection that may have to wait for memory."""

    def on_receive_room(self) -> None:
        """Continue: the requested memory is reserved now."""


class ReceiveMemory:
    """The reserved memory of all connections."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.reserved_bytes = 0
        self._reserved: dict[Receiver, int] = {}
        self._waiting: dict[Receiver, int] = {}

    @property
    def is_exhausted(self) -> bool:
        """True while a connection is waiting for memory."""
        return bool(self._waiting)

    def holds(self, receiver: Receiver) -> bool:
        """Return whether memory is reserved for *receiver*."""
        return receiver in self._reserved

    def reserve(self, receiver: Receiver, byte_count: int) -> bool:
        """
        Reserve memory for one frame of *receiver*.

        Returns: False if the frame must wait until ``on_receive_room`` is called.
        """
        assert receiver not in self._reserved
        assert receiver not in self._waiting
        if self._waiting or not self._fits(byte_count):
            self._waiting[receiver] = byte_count
            return False
        self._grant(receiver, byte_count)
        return True

    def release(self, receiver: Receiver) -> None:
        """Release the memory of *receiver*, or stop waiting for it."""
        self._waiting.pop(receiver, None)
        self.reserved_bytes -= self._reserved.pop(receiver, 0)
        while self._waiting:
            next_receiver, byte_count = next(iter(self._waiting.items()))
            if not self._fits(byte_count):
                return
            del self._waiting[next_receiver]
            self._grant(next_receiver, byte_count)
            next_receiver.on_receive_room()

    def _fits(self, byte_count: int) -> bool:
        # A single frame always fits, even if it exceeds the limit.
        left = self.bytes_max - self.reserved_bytes
        return byte_count <= left or not self._reserved

    def _grant(self, receiver: Receiver, byte_count: int) -> None:
        self._reserved[receiver] = byte_count
        self.reserved_bytes += byte_count

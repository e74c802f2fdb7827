"""Transports without a socket, for protocols that a test drives by hand."""

from __future__ import annotations

import asyncio


class RecordingTransport(asyncio.Transport):
    """Keeps what is written, and what the protocol asked for."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = bytearray()
        self.write_count = 0
        self.unsent_bytes = 0
        """Of what was written, so much is not with the peer yet."""
        self.is_reading_now = True
        self.is_closed = False
        self.is_aborted = False

    def write(self, data) -> None:
        self.written += data
        self.write_count += 1

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

"""
Batches without compression, for clients that do not know their codec.

Several clients receive the same batch of a topic at about the same time.  It is
decompressed for the first of them.
"""

from __future__ import annotations

from pydanube.wire.batches import BatchFrame

CACHE_BYTES_MAX = 8 * 1024 * 1024
"""The most bytes of decompressed batches that are kept for the next client."""


class PlainBatches:
    """
    The batches that were decompressed last.

    Bounds: ``CACHE_BYTES_MAX``, and the compressed batches.  Credit counts bytes before
        compression, and so does the limit of batches when they are published: the work
        for a client is no larger than both.
    """

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self.decompressed_total = 0
        self.decompressed_bytes_total = 0
        """Their bytes after decompression."""
        self._bytes_max = bytes_max
        self._kept_bytes = 0
        # By the identity of the compressed batch, which is kept, too; oldest first.
        self._kept: dict[int, tuple[BatchFrame, BatchFrame]] = {}

    def of(self, frame: BatchFrame) -> BatchFrame:
        """Return *frame* without compression."""
        found = self._kept.get(id(frame))
        if found is not None:
            return found[1]
        plain = frame.plain()
        if plain is frame:
            return frame
        self.decompressed_total += 1
        self.decompressed_bytes_total += plain.byte_count
        self._kept[id(frame)] = frame, plain
        self._kept_bytes += plain.byte_count
        while self._kept_bytes > self._bytes_max:
            _, oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_bytes -= oldest.byte_count
        return plain

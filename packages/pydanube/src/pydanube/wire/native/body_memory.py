"""
Memory for the bodies of long frames, which later frames use again.

New memory has to be cleared, and each of its pages costs a fault.  A batch of messages
is read where its frame was received, and so are payloads, columns and whatever Arrow
makes of them.  All of these refer to the memory, directly or through a view, so that
the number of its references says whether it is free.
"""

from __future__ import annotations

import sys

REUSED_BYTES_MIN = 128 * 1024
"""The shortest body whose memory is used again; the C library reuses shorter ones."""
REUSED_BYTES_MAX = 2 * 1024 * 1024
"""The longest body whose memory is used again."""
REUSED_COUNT_MAX = 8
"""The number of bodies whose memory is kept."""


class BodyMemory:
    """
    The memory of the long frames of one connection.

    Bounds: It keeps the memory of ``REUSED_COUNT_MAX`` bodies, with an eighth more
        than ``REUSED_BYTES_MAX`` each at most.  Memory that is in use belongs to those
        who refer to it.
    """

    def __init__(self) -> None:
        # In the order in which they were made, whether they are in use or not.
        self._kept: list[bytearray] = []
        self._is_in_demand = False

    @property
    def free_bytes(self) -> int:
        """The length of the memory that is kept, and to which nothing refers."""
        return sum(
            len(self._kept[index])
            for index in range(len(self._kept))
            if _references(self._kept, index) == _REFERENCES_OF_FREE
        )

    def take(self, byte_count: int) -> memoryview:
        """Return memory to which nothing else refers; it may have any content."""
        if not REUSED_BYTES_MIN <= byte_count <= REUSED_BYTES_MAX:
            return memoryview(bytearray(byte_count))
        self._is_in_demand = True
        kept = self._kept
        for index in range(len(kept)):
            # A short body in long memory would keep all of it.
            if (
                byte_count <= len(kept[index]) <= 2 * byte_count
                and _references(kept, index) == _REFERENCES_OF_FREE
            ):
                return memoryview(kept[index])[:byte_count]
        if len(kept) == REUSED_COUNT_MAX:
            del kept[0]
        # The next body may be a little longer.
        memory = bytearray(byte_count + byte_count // 8)
        kept.append(memory)
        return memoryview(memory)[:byte_count]

    def release_unused(self) -> None:
        """Keep nothing if no memory was taken since the last call."""
        if not self._is_in_demand:
            self._kept.clear()
        self._is_in_demand = False

    def release(self) -> None:
        """Keep nothing."""
        self._kept.clear()


def _references(buffers: list[bytearray], index: int) -> int:
    return sys.getrefcount(buffers[index])


_REFERENCES_OF_FREE = _references([bytearray()], 0)
"""The references to memory in a list, as counted by a call that has one itself."""

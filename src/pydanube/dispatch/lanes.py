"""What is ready for one consumer of a key-shared subscription."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING

from pydanube.dispatch.bundles import bits_below, lowest

if TYPE_CHECKING:
    from pydanube.dispatch.bundles import Share


class Lane:
    """
    Shares for one consumer, in the order of offsets.

    The messages of a share may lie between those of another; they still leave in
    order.  Each change costs no more than a search, however much waits.
    """

    __slots__ = ("_heap", "_serial", "consumer", "count")

    def __init__(self, consumer: int) -> None:
        self.consumer = consumer
        self.count = 0
        """How many messages wait."""
        # With the lowest offset that the share had then: by now it may be higher, or
        # the share may be somewhere else.
        self._heap: list[tuple[int, int, Share]] = []
        self._serial = count()

    def put(self, share: Share) -> None:
        """Let *share* wait here."""
        share.line = self
        self.count += share.bits.bit_count()
        heappush(self._heap, (share.first, next(self._serial), share))

    def head(self) -> Share | None:
        """The share that holds the first message, or None if nothing waits."""
        heap = self._heap
        while heap:
            noted, serial, share = heap[0]
            if share.line is not self:
                heappop(heap)
                continue
            first = share.first
            if first == noted:
                return share
            heapreplace(heap, (first, serial, share))
        return None

    def leading(self, share: Share) -> int:
        """Those bits of *share*, the head, that come before all other shares."""
        # One of the next two entries of a heap has the second lowest offset.
        following = min((each[0] for each in self._heap[1:3]), default=None)
        if following is None:
            return share.bits
        at = following - share.bundle.origin
        return bits_below(share.bits, max(at, lowest(share.bits) + 1))

    def take(self, share: Share, bits: int) -> Share:
        """Take *bits*, leading ones, from *share*, the head; return them as a share."""
        self.count -= bits.bit_count()
        if bits == share.bits:
            heappop(self._heap)
            share.line = None
            return share
        share.bits ^= bits
        _, serial, _ = self._heap[0]
        heapreplace(self._heap, (share.first, serial, share))
        return share.part(bits)

    def pop(self, share: Share) -> None:
        """Let *share*, the head, wait here no more."""
        heappop(self._heap)
        self.count -= share.bits.bit_count()
        share.line = None

    def returned_below(self) -> int:
        """The end of what waits here and was delivered before; 0 if nothing was."""
        return max(
            (
                share.bundle.origin + share.bits.bit_length()
                for _, _, share in self._heap
                if share.line is self and share.attempt > 1
            ),
            default=0,
        )

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self.count = 0

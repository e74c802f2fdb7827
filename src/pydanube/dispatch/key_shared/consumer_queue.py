"""The messages that are ready for one consumer of a key-shared subscription."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count

from pydanube.dispatch.key_shared.batch_chunks import Selection, bits_below
from pydanube.model.range_blocks import lowest_bit


class ConsumerQueue:
    """
    Selections for one consumer, in the order of offsets.

    Messages leave in the order of offsets, even if those of several selections
    interleave.  Each change takes logarithmic time.
    """

    __slots__ = ("_heap", "_serial", "consumer", "count")

    def __init__(self, consumer: int) -> None:
        self.consumer = consumer
        self.count = 0
        """The number of messages that wait."""
        # Each selection with the lowest offset that it had when it was added.  By now
        # that offset may be higher, or the selection may have left the queue.
        self._heap: list[tuple[int, int, Selection]] = []
        self._serial = count()

    def put(self, selection: Selection) -> None:
        """Add *selection*."""
        selection.queue = self
        self.count += selection.bits.bit_count()
        heappush(self._heap, (selection.first, next(self._serial), selection))

    def head(self) -> Selection | None:
        """Return the selection with the lowest offset, or None."""
        heap = self._heap
        while heap:
            noted, serial, selection = heap[0]
            if selection.queue is not self:
                heappop(heap)
                continue
            first = selection.first
            if first == noted:
                return selection
            heapreplace(heap, (first, serial, selection))
        return None

    def leading(self, selection: Selection) -> int:
        """Return the bits of *selection*, the head, that precede all others."""
        # One of the next two entries of a heap has the second lowest offset.
        following = min((each[0] for each in self._heap[1:3]), default=None)
        if following is None:
            return selection.bits
        at = following - selection.chunk.origin
        return bits_below(selection.bits, max(at, lowest_bit(selection.bits) + 1))

    def take(self, selection: Selection, bits: int) -> Selection:
        """Remove *bits*, leading ones, from *selection*, the head, and return them."""
        self.count -= bits.bit_count()
        if bits == selection.bits:
            heappop(self._heap)
            selection.queue = None
            return selection
        selection.bits ^= bits
        _, serial, _ = self._heap[0]
        heapreplace(self._heap, (selection.first, serial, selection))
        return selection.part(bits)

    def pop(self, selection: Selection) -> None:
        """Remove *selection*, the head."""
        heappop(self._heap)
        self.count -= selection.bits.bit_count()
        selection.queue = None

    def returned_below(self) -> int:
        """Return the end of the messages that were delivered before; 0 if none were."""
        return max(
            (
                selection.chunk.origin + selection.bits.bit_length()
                for _, _, selection in self._heap
                if selection.queue is self and selection.attempt > 1
            ),
            default=0,
        )

    def clear(self) -> None:
        """Remove all selections."""
        self._heap.clear()
        self.count = 0

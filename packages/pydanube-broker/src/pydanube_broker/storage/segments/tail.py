"""The tail of a topic: its newest frames, in memory."""

from __future__ import annotations

from bisect import bisect_right

from pydanube.wire.batches import BatchFrame

FRAME_BYTES = 600
"""About how much memory a frame takes beside its bytes: its header and its places."""


def held_bytes_of(frame: BatchFrame) -> int:
    """Return how much of the memory for unsealed messages *frame* takes."""
    return frame.memory_bytes + FRAME_BYTES


class Tail:
    """
    The newest frames of a topic, as producers sent them, without gaps.

    Dropping frames does not affect readers that have taken them.

    Limits count the size of decoded messages: a frame of a few hundred bytes may
    decompress to megabytes.  The limit of all tails together also counts what each
    frame takes beside its bytes, which is most of a frame with one small message.
    """

    __slots__ = (
        "_appended",
        "_bases",
        "_frames",
        "_memory",
        "_positions",
        "_times",
        "byte_count",
        "end",
        "memory_bytes",
    )

    def __init__(self, base: int) -> None:
        self._frames: list[BatchFrame] = []
        self._bases: list[int] = []
        self._times: list[float] = []
        # How many bytes were ever appended: in total, and before each frame.
        self._appended = 0
        self._positions: list[int] = []
        self._memory: list[int] = []
        self.byte_count = 0
        """The length of all frames."""
        self.memory_bytes = 0
        """The memory that their decoded messages would take."""
        self.end = base
        """The first offset after the last frame."""

    @property
    def base(self) -> int:
        """The first offset in the tail; the end if it is empty."""
        return self._bases[0] if self._bases else self.end

    @property
    def oldest_time(self) -> float | None:
        """When the oldest frame was appended."""
        return self._times[0] if self._times else None

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def frames(self) -> tuple[BatchFrame, ...]:
        """All frames."""
        return tuple(self._frames)

    @property
    def held_bytes(self) -> int:
        """How much of the memory for unsealed messages the frames take."""
        return self.memory_bytes + FRAME_BYTES * len(self._frames)

    def append(self, frame: BatchFrame, now: float) -> int:
        """Append *frame*; return by how much ``held_bytes`` rises."""
        base = frame.base
        assert base == self.end, f"the tail ends at {self.end}, not at {base}"
        self._frames.append(frame)
        self._bases.append(base)
        self._times.append(now)
        self._positions.append(self._appended)
        self._appended += len(frame.buffer)
        self.byte_count += len(frame.buffer)
        self.end = base + frame.header.count
        memory_bytes = frame.memory_bytes
        self._memory.append(memory_bytes)
        self.memory_bytes += memory_bytes
        return memory_bytes + FRAME_BYTES

    def frames_from(self, offset: int, bytes_max: int) -> list[BatchFrame]:
        """
        Return frames from the one with *offset* on, of about *bytes_max* when decoded.

        There is at least one, unless *offset* is the end.
        """
        if offset >= self.end:
            return []
        frames, memory = self._frames, self._memory
        at = first = max(0, bisect_right(self._bases, offset) - 1)
        memory_bytes = 0
        for at in range(first, len(frames)):
            memory_bytes += memory[at]
            if memory_bytes > bytes_max and at > first:
                return frames[first:at]
        return frames[first : at + 1]

    def find(self, offset: int) -> BatchFrame | None:
        """Return the frame with *offset*, if it is in the tail."""
        if not self.base <= offset < self.end:
            return None
        return self._frames[bisect_right(self._bases, offset) - 1]

    def bytes_from(self, offset: int) -> int:
        """Return the total length of the frames from the one with *offset* on."""
        if not self._frames or offset >= self.end:
            return 0
        at = max(0, bisect_right(self._bases, offset) - 1)
        return self._appended - self._positions[at]

    def find_time(self, publish_time: int) -> int | None:
        """
        Return the first offset whose message was published at *publish_time* or later.

        A batch whose first and last message are older is assumed to be older.
        """
        for frame in self._frames:
            found = frame.find_time(publish_time)
            if found is not None:
                return found
        return None

    def drop_below(self, offset: int) -> int:
        """
        Drop every frame that ends at or below *offset*.

        Returns by how much ``held_bytes`` falls.
        """
        count = bisect_right(self._bases, offset)
        if count and self._frames[count - 1].end > offset:
            count -= 1
        dropped = sum(self._memory[:count])
        self.byte_count -= sum(len(frame.buffer) for frame in self._frames[:count])
        self.memory_bytes -= dropped
        del self._frames[:count], self._bases[:count], self._times[:count]
        del self._positions[:count], self._memory[:count]
        self.end = max(self.end, offset)
        return dropped + FRAME_BYTES * count

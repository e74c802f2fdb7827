"""
Acknowledgements between the user's hands and the broker's disk.

They gather, travel as ranges, and are kept until the broker has confirmed them:
when the connection breaks, what is not confirmed is sent again.  Acknowledging
twice does no harm, so nothing here looks for what it knows already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.client.offsets import merge_ranges
from pydanube.wire.native.messages import divided_to_wire

if TYPE_CHECKING:
    from pydanube.wire.pb import stream_pb2 as pb


class Acks:
    """What one consumer has acknowledged and the broker does not have on disk."""

    __slots__ = ("_bases", "_ends", "_unconfirmed", "base", "end")

    def __init__(self) -> None:
        # The run that grows, as long as one is acknowledged behind the other; then
        # those before it.
        self.base = 0
        self.end = 0
        self._bases: list[int] = []
        self._ends: list[int] = []
        self._unconfirmed: list[pb.OffsetRanges] = []

    def add(self, base: int, end: int) -> None:
        """These offsets are done."""
        if base == self.end and self.base < base:
            self.end = end
            return
        if self.base < self.end:
            self._bases.append(self.base)
            self._ends.append(self.end)
        self.base, self.end = base, end

    @property
    def range_count(self) -> int:
        """How many ranges have gathered, besides the one that grows."""
        return len(self._bases)

    @property
    def has_unconfirmed(self) -> bool:
        """Whether there is anything that is not sent, or sent and not confirmed."""
        return self.base < self.end or bool(self._bases) or bool(self._unconfirmed)

    def take(self) -> list[pb.OffsetRanges]:
        """What has gathered, to be sent now; often one, never none."""
        self.add(0, 0)
        ranges = merge_ranges(zip(self._bases, self._ends, strict=True))
        self._bases, self._ends = [], []
        taken = divided_to_wire(ranges)
        if ranges:
            self._unconfirmed += taken
        return taken

    def take_unconfirmed(self) -> list[pb.OffsetRanges]:
        """All that was sent and is not confirmed; it is the caller's from now on."""
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        return unconfirmed

    def restore_unconfirmed(self, unconfirmed: list[pb.OffsetRanges]) -> None:
        """It was not confirmed."""
        self._unconfirmed += unconfirmed

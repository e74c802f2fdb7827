"""What the consumers of a key-shared subscription have and have not acknowledged."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydanube.dispatch.bundles import Bundles, Share
    from pydanube.dispatch.stretches import Stretch

_STALE_MAX = 64


class KeyedFlights:
    """
    Shares in flight, by offset and by time.

    What one consumer has of a bundle is one share, however it was delivered; but
    every delivery has a deadline of its own.
    """

    __slots__ = ("_bundles", "_serial", "_stale_count", "_timers", "count")

    def __init__(self, bundles: Bundles) -> None:
        self._bundles = bundles
        # A heap of deadlines and the bits of a share that they are for.  Those count
        # that the share still has.
        self._timers: list[tuple[float, int, Share, int]] = []
        self._serial = count()
        # How many timers are for shares of which nothing is left.
        self._stale_count = 0
        self.count = 0
        """How many messages are in flight, without those that are done."""

    def add(self, share: Share, consumer: int, time: float | None) -> None:
        """*consumer* has *share* now, until *time*."""
        bits, in_flight = share.bits, share.bundle.in_flight
        self.count += bits.bit_count()
        for held in in_flight:
            if held.consumer == consumer and held.is_like(share):
                held.bits |= bits
                break
        else:
            held = share
            held.consumer = consumer
            in_flight[held] = None
        if time is not None:
            held.timer_count += 1
            heappush(self._timers, (time, next(self._serial), held, bits))

    def settle(self, share: Share, bits: int) -> int:
        """These *bits* of *share* are not in flight any more; return how many."""
        count = bits.bit_count()
        self.count -= count
        share.bits ^= bits
        if not share.bits:
            del share.bundle.in_flight[share]
            self._stale_count += share.timer_count
            if 2 * self._stale_count > len(self._timers) + _STALE_MAX:
                self._timers = [each for each in self._timers if each[2].bits]
                heapify(self._timers)
                self._stale_count = 0
        return count

    def withdraw(self, base: int, end: int) -> list[Stretch]:
        """Take out what is not done of ``base … end``."""
        taken: list[Stretch] = []
        for bundle in self._bundles.overlapping(base, end):
            mask = bundle.mask(base, end)
            for share in list(bundle.in_flight):
                taken += self._withdraw(share, share.bits & mask)
        return sorted(taken, key=_base)

    def take_all_of(self, consumer: int) -> list[Share]:
        """Take out what *consumer* has; the shares stay in their bundles' count."""
        found = [
            share
            for bundle in self._bundles
            for share in bundle.in_flight
            if share.consumer == consumer
        ]
        taken = []
        for share in found:
            taken.append(share.part(share.bits))
            self.settle(share, share.bits)
        return taken

    def withdraw_due(self, now: float) -> list[Stretch]:
        """Take out what has not been done in time."""
        taken: list[Stretch] = []
        while (time := self.next_time()) is not None and time <= now:
            _, _, share, bits = heappop(self._timers)
            share.timer_count -= 1
            taken += self._withdraw(share, share.bits & bits)
        return taken

    def next_time(self) -> float | None:
        """The earliest deadline, or None."""
        timers = self._timers
        while timers:
            time, _, share, bits = timers[0]
            if share.bits & bits:
                return time
            heappop(timers)
            if share.bits:
                share.timer_count -= 1
            else:
                self._stale_count -= 1
        return None

    def limit_times(self, latest: float | None) -> None:
        """Let nothing stay longer than to *latest*; None: all may."""
        timed: dict[Share, int] = {}
        timers = []
        for time, serial, share, bits in self._timers:
            if share.bits & bits and latest is not None:
                timers.append((min(time, latest), serial, share, bits))
                timed[share] = timed.get(share, 0) | bits
        for bundle in self._bundles:
            for share in bundle.in_flight:
                share.timer_count = 0
                untimed = share.bits & ~timed.get(share, 0)
                if untimed and latest is not None:
                    timers.append((latest, next(self._serial), share, untimed))
        for _, _, share, _ in timers:
            share.timer_count += 1
        heapify(timers)
        self._timers, self._stale_count = timers, 0

    def clear(self) -> None:
        """Forget everything."""
        self._timers.clear()
        self._stale_count = 0
        self.count = 0

    def _withdraw(self, share: Share, bits: int) -> list[Stretch]:
        if not bits:
            return []
        stretches = share.bundle.stretches(share, bits)
        self._bundles.shrink(share.bundle, self.settle(share, bits))
        return stretches


def _base(stretch: Stretch) -> int:
    return stretch.base

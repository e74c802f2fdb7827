"""
Keys whose messages must wait, although a consumer might have credit.

A gate is closed for a key

- from the first message on that failed and is not done: while it waits for its
  redelivery, blocks or is parked, nothing of its key that comes later may overtake it;
- entirely, while messages of the key are in flight with a consumer that has lost it
  to another one, because somebody came or went.

All other keys have no gate.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import groupby
from typing import TYPE_CHECKING

from pydanube.dispatch.ready import ANYWHERE
from pydanube.model.ranges import RangeSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from pydanube.dispatch.bundles import Share
    from pydanube.dispatch.cursor import Cursor


class Gate:
    """One key, and what is ready of it and waits."""

    __slots__ = ("count", "held", "key", "moving", "shares")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.held = RangeSet()
        """Its messages that failed and are not done."""
        self.moving = 0
        """How many are in flight with a consumer that has lost the key."""
        self.shares: dict[Share, None] = {}
        self.count = 0
        """How many messages wait."""

    @property
    def open_below(self) -> int:
        """Below which offset messages may pass."""
        if self.moving:
            return 0
        first = self.held.first()
        return ANYWHERE if first is None else first[0]

    def put(self, share: Share) -> None:
        """Let *share*, which is all of this key, wait here."""
        share.line = self
        self.shares[share] = None
        self.count += share.bits.bit_count()

    def leave(self, share: Share) -> None:
        """Let *share* wait here no more."""
        del self.shares[share]
        self.count -= share.bits.bit_count()
        share.line = None


class Gates:
    """The gates that are closed, by key."""

    __slots__ = ("_bases", "_gates", "_held", "closing_count")

    def __init__(self) -> None:
        self._gates: dict[bytes, Gate] = {}
        # What is held, of all keys: the bases in order; and end and key of each.
        self._bases: list[int] = []
        self._held: dict[int, tuple[int, bytes]] = {}
        self.closing_count = 0
        """How often a gate was closed."""

    def __getitem__(self, key: bytes) -> Gate:
        """The gate of *key*, which is closed."""
        return self._gates[key]

    def closed_among(self, keys: Iterable[bytes]) -> AbstractSet[bytes]:
        """Those of *keys* whose gate is closed."""
        return self._gates.keys() & keys

    def hold(self, base: int, keys: Sequence[bytes]) -> None:
        """*base* and what follows, of these keys, failed: nothing may overtake it."""
        for key, run in groupby(keys):
            end = base + len(list(run))
            self._close(key).held.add(base, end)
            self._note(base, end, key)
            base = end

    def release(self, base: int, end: int) -> list[Gate]:
        """What was held of ``base … end`` may be delivered, or is done or given up."""
        released: dict[Gate, None] = {}
        for held, held_end, key in self._take(base, end):
            gate = self._gates[key]
            gate.held.remove(max(base, held), min(end, held_end))
            released[gate] = None
            for kept, kept_end in ((held, base), (end, held_end)):
                if kept < kept_end:
                    self._note(kept, kept_end, key)
        return list(released)

    def release_done(self, base: int, end: int, cursor: Cursor) -> list[Gate]:
        """What was held of ``base … end`` and is done is not held any more."""
        released: dict[Gate, None] = {}
        for held, held_end, _ in self._overlapping(base, end):
            at, stop = max(base, held), min(end, held_end)
            still = cursor.done.gaps(max(at, cursor.offset), stop)
            for open_base, open_end in (*still, (stop, stop)):
                released |= dict.fromkeys(self.release(at, open_base))
                at = open_end
        return list(released)

    def move(self, keys: Iterable[bytes]) -> None:
        """A message of each of *keys* is in flight with a consumer that has lost it."""
        for key in keys:
            self._close(key).moving += 1

    def moved(self, keys: Iterable[bytes]) -> list[Gate]:
        """These messages are not in flight any more."""
        found = []
        for key in keys:
            gate = self._gates.get(key)
            if gate is not None and gate.moving:
                gate.moving -= 1
                if not gate.moving:
                    found.append(gate)
        return found

    def forget_moves(self) -> None:
        """Begin anew with what moves; nothing waits at any gate."""
        for gate in list(self._gates.values()):
            gate.moving = 0
            gate.shares.clear()
            gate.count = 0
            if not gate.held:
                del self._gates[gate.key]

    def open(self, gate: Gate) -> None:
        """Nothing of the key must wait any more."""
        assert not gate.shares
        del self._gates[gate.key]

    def clear(self) -> None:
        """Forget everything."""
        self._gates.clear()
        self._bases.clear()
        self._held.clear()

    def __len__(self) -> int:
        return len(self._gates)

    def _close(self, key: bytes) -> Gate:
        self.closing_count += 1
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = Gate(key)
        return gate

    def _note(self, base: int, end: int, key: bytes) -> None:
        self._bases.insert(bisect_left(self._bases, base), base)
        self._held[base] = end, key

    def _take(self, base: int, end: int) -> list[tuple[int, int, bytes]]:
        """Take out what overlaps ``base … end``."""
        taken = self._overlapping(base, end)
        for held, _, _ in taken:
            del self._held[held]
        if taken:
            at = bisect_left(self._bases, taken[0][0])
            del self._bases[at : at + len(taken)]
        return taken

    def _overlapping(self, base: int, end: int) -> list[tuple[int, int, bytes]]:
        """What is held and overlaps ``base … end``, in order."""
        bases = self._bases
        first = max(0, bisect_right(bases, base) - 1)
        found = []
        for each in bases[first : bisect_left(bases, end, first)]:
            held_end, key = self._held[each]
            if base < held_end:
                found.append((each, held_end, key))
        return found

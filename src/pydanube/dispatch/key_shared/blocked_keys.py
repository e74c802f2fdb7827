"""
Keys whose messages must wait, although a consumer might have credit.

A blocked is closed for a key

- from the first message on that failed and is not done: while it waits for its
  redelivery, blocks or is parked, nothing of its key that comes later may overtake it;
- entirely, while messages of the key are in flight with a consumer that has lost it
  to another one, because somebody came or went.

All other keys have no blocked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import groupby
from typing import TYPE_CHECKING

from pydanube.dispatch.ready import OFFSET_MAX
from pydanube.model.ranges import RangeSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from pydanube.dispatch.cursor import Cursor
    from pydanube.dispatch.key_shared.batch_chunks import Selection


class BlockedKey:
    """One key, and what is ready of it and waits."""

    __slots__ = ("count", "draining", "held", "key", "selections")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.held = RangeSet()
        """Its messages that failed and are not done."""
        self.draining = 0
        """How many are in flight with a consumer that has lost the key."""
        self.selections: dict[Selection, None] = {}
        self.count = 0
        """How many messages wait."""

    @property
    def deliverable_below(self) -> int:
        """Below which offset messages may pass."""
        if self.draining:
            return 0
        first = self.held.first()
        return OFFSET_MAX if first is None else first[0]

    def put(self, selection: Selection) -> None:
        """Let *selection*, which is all of this key, wait here."""
        selection.queue = self
        self.selections[selection] = None
        self.count += selection.bits.bit_count()

    def leave(self, selection: Selection) -> None:
        """Let *selection* wait here no more."""
        del self.selections[selection]
        self.count -= selection.bits.bit_count()
        selection.queue = None


class BlockedKeys:
    """The blocked_keys that are closed, by key."""

    __slots__ = ("_bases", "_blocked_keys", "_held", "block_count")

    def __init__(self) -> None:
        self._blocked_keys: dict[bytes, BlockedKey] = {}
        # What is held, of all keys: the bases in order; and end and key of each.
        self._bases: list[int] = []
        self._held: dict[int, tuple[int, bytes]] = {}
        self.block_count = 0
        """How often a blocked was closed."""

    def __getitem__(self, key: bytes) -> BlockedKey:
        """The blocked of *key*, which is closed."""
        return self._blocked_keys[key]

    def blocked_among(self, keys: Iterable[bytes]) -> AbstractSet[bytes]:
        """Those of *keys* whose blocked is closed."""
        return self._blocked_keys.keys() & keys

    def hold(self, base: int, keys: Sequence[bytes]) -> None:
        """*base* and what follows, of these keys, failed: nothing may overtake it."""
        for key, run in groupby(keys):
            end = base + len(list(run))
            self._close(key).held.add(base, end)
            self._note(base, end, key)
            base = end

    def release(self, base: int, end: int) -> list[BlockedKey]:
        """What was held of ``base … end`` may be delivered, or is done or given up."""
        released: dict[BlockedKey, None] = {}
        for held, held_end, key in self._take(base, end):
            blocked = self._blocked_keys[key]
            blocked.held.remove(max(base, held), min(end, held_end))
            released[blocked] = None
            for kept, kept_end in ((held, base), (end, held_end)):
                if kept < kept_end:
                    self._note(kept, kept_end, key)
        return list(released)

    def release_done(self, base: int, end: int, cursor: Cursor) -> list[BlockedKey]:
        """What was held of ``base … end`` and is done is not held any more."""
        released: dict[BlockedKey, None] = {}
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
            self._close(key).draining += 1

    def moved(self, keys: Iterable[bytes]) -> list[BlockedKey]:
        """These messages are not in flight any more."""
        found = []
        for key in keys:
            blocked = self._blocked_keys.get(key)
            if blocked is not None and blocked.draining:
                blocked.draining -= 1
                if not blocked.draining:
                    found.append(blocked)
        return found

    def reset_draining(self) -> None:
        """Begin anew with what moves; nothing waits at any blocked."""
        for blocked in list(self._blocked_keys.values()):
            blocked.draining = 0
            blocked.selections.clear()
            blocked.count = 0
            if not blocked.held:
                del self._blocked_keys[blocked.key]

    def open(self, blocked: BlockedKey) -> None:
        """Nothing of the key must wait any more."""
        assert not blocked.selections
        del self._blocked_keys[blocked.key]

    def clear(self) -> None:
        """Forget everything."""
        self._blocked_keys.clear()
        self._bases.clear()
        self._held.clear()

    def __len__(self) -> int:
        return len(self._blocked_keys)

    def _close(self, key: bytes) -> BlockedKey:
        self.block_count += 1
        blocked = self._blocked_keys.get(key)
        if blocked is None:
            blocked = self._blocked_keys[key] = BlockedKey(key)
        return blocked

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

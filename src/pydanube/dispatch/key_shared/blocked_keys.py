"""
Keys whose messages must wait, although their consumer may have credit.

A key is blocked

- from the first message that failed and is not done: while that message waits for
  redelivery, blocks or is parked, no later message of the key may overtake it;
- entirely, while messages of the key are in flight with its former owner, because a
  consumer joined or left and the key has a new owner.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby

from pydanube.dispatch.cursor import Cursor
from pydanube.dispatch.key_shared.batch_chunks import Selection
from pydanube.dispatch.ready import OFFSET_MAX
from pydanube.model.ranges import RangeSet


class BlockedKey:
    """A key, and its messages that are ready and must wait."""

    __slots__ = ("count", "draining", "failed", "key", "selections")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.failed = RangeSet()
        """The messages of the key that failed and are not done."""
        self.draining = 0
        """The number of messages that are in flight with a former owner of the key."""
        self.selections: dict[Selection, None] = {}
        self.count = 0
        """The number of messages that wait."""

    @property
    def deliverable_below(self) -> int:
        """The offset below which messages of the key may be delivered."""
        if self.draining:
            return 0
        first = self.failed.first()
        return OFFSET_MAX if first is None else first[0]

    def put(self, selection: Selection) -> None:
        """Add *selection*, whose messages all have this key."""
        selection.queue = self
        self.selections[selection] = None
        self.count += selection.bits.bit_count()

    def remove(self, selection: Selection) -> None:
        """Remove *selection*."""
        del self.selections[selection]
        self.count -= selection.bits.bit_count()
        selection.queue = None


class BlockedKeys:
    """The blocked keys of a subscription."""

    __slots__ = ("_bases", "_blocked_keys", "_failed", "block_count")

    def __init__(self) -> None:
        self._blocked_keys: dict[bytes, BlockedKey] = {}
        # The failed ranges of all keys: the sorted bases, and the end and key of each.
        self._bases: list[int] = []
        self._failed: dict[int, tuple[int, bytes]] = {}
        self.block_count = 0
        """How often a key was blocked, or blocked for another reason."""

    def __getitem__(self, key: bytes) -> BlockedKey:
        return self._blocked_keys[key]

    def blocked_among(self, keys: Iterable[bytes]) -> AbstractSet[bytes]:
        """Return those of *keys* that are blocked."""
        return self._blocked_keys.keys() & keys

    def add_failed(self, base: int, keys: Sequence[bytes]) -> None:
        """Block *keys*, the keys of *base* and the messages after it, which failed."""
        for key, run in groupby(keys):
            end = base + len(list(run))
            self._block(key).failed.add(base, end)
            self._add_range(base, end, key)
            base = end

    def remove_failed(self, base: int, end: int) -> list[BlockedKey]:
        """Forget that messages of ``base … end`` failed; return the keys affected."""
        affected: dict[BlockedKey, None] = {}
        for failed, failed_end, key in self._remove(base, end):
            blocked = self._blocked_keys[key]
            blocked.failed.remove(max(base, failed), min(end, failed_end))
            affected[blocked] = None
            for kept, kept_end in ((failed, base), (end, failed_end)):
                if kept < kept_end:
                    self._add_range(kept, kept_end, key)
        return list(affected)

    def remove_done(self, base: int, end: int, cursor: Cursor) -> list[BlockedKey]:
        """Forget failed messages of ``base … end`` that are done; return their keys."""
        affected: dict[BlockedKey, None] = {}
        for failed, failed_end, _ in self._overlapping(base, end):
            at, stop = max(base, failed), min(end, failed_end)
            for open_base, open_end in (*cursor.open_ranges(at, stop), (stop, stop)):
                affected |= dict.fromkeys(self.remove_failed(at, open_base))
                at = open_end
        return list(affected)

    def add_draining(self, keys: Iterable[bytes]) -> None:
        """Block *keys*, one for each message in flight with a former owner."""
        for key in keys:
            self._block(key).draining += 1

    def remove_draining(self, keys: Iterable[bytes]) -> list[BlockedKey]:
        """Undo ``add_draining``; return the keys that have drained."""
        found = []
        for key in keys:
            blocked = self._blocked_keys.get(key)
            if blocked is not None and blocked.draining:
                blocked.draining -= 1
                if not blocked.draining:
                    found.append(blocked)
        return found

    def reset_draining(self) -> None:
        """Forget which messages drain, and which ones wait."""
        for blocked in list(self._blocked_keys.values()):
            blocked.draining = 0
            blocked.selections.clear()
            blocked.count = 0
            if not blocked.failed:
                del self._blocked_keys[blocked.key]

    def unblock(self, blocked: BlockedKey) -> None:
        """Remove *blocked*, which holds no messages."""
        assert not blocked.selections
        del self._blocked_keys[blocked.key]

    def clear(self) -> None:
        """Remove all keys."""
        self._blocked_keys.clear()
        self._bases.clear()
        self._failed.clear()

    def __len__(self) -> int:
        return len(self._blocked_keys)

    def _block(self, key: bytes) -> BlockedKey:
        self.block_count += 1
        blocked = self._blocked_keys.get(key)
        if blocked is None:
            blocked = self._blocked_keys[key] = BlockedKey(key)
        return blocked

    def _add_range(self, base: int, end: int, key: bytes) -> None:
        self._bases.insert(bisect_left(self._bases, base), base)
        self._failed[base] = end, key

    def _remove(self, base: int, end: int) -> list[tuple[int, int, bytes]]:
        """Remove and return the failed ranges that overlap ``base … end``."""
        taken = self._overlapping(base, end)
        for failed, _, _ in taken:
            del self._failed[failed]
        if taken:
            at = bisect_left(self._bases, taken[0][0])
            del self._bases[at : at + len(taken)]
        return taken

    def _overlapping(self, base: int, end: int) -> list[tuple[int, int, bytes]]:
        """Return the failed ranges that overlap ``base … end``, in order."""
        bases = self._bases
        first = max(0, bisect_right(bases, base) - 1)
        found = []
        for each in bases[first : bisect_left(bases, end, first)]:
            failed_end, key = self._failed[each]
            if base < failed_end:
                found.append((each, failed_end, key))
        return found

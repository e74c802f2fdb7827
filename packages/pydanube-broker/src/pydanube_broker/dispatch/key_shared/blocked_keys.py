"""
Keys whose messages must wait, although their consumer may have credit.

A key is blocked

- from the first message that failed and is not done: while that message waits for
  redelivery, blocks, is parked or held, no later message of the key may overtake it;
- entirely, while messages of the key are in flight with its former owner, because a
  consumer joined or left and the key has a new owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.ranges import RangeSet
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.key_shared.batch_chunks import Selection
from pydanube_broker.dispatch.offset_index import OffsetIndex
from pydanube_broker.dispatch.ready import OFFSET_MAX


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


@dataclass(slots=True)
class _FailedRange:
    """Messages ``base … end`` of one key, which failed."""

    base: int
    end: int
    key: bytes


class BlockedKeys:
    """The blocked keys of a subscription."""

    __slots__ = ("_blocked_keys", "_failed", "block_count")

    def __init__(self) -> None:
        self._blocked_keys: dict[bytes, BlockedKey] = {}
        self._failed: OffsetIndex[_FailedRange] = OffsetIndex()
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
            self._failed.insert(_FailedRange(base, end, key))
            base = end

    def remove_failed(self, base: int, end: int) -> list[BlockedKey]:
        """Forget that messages of ``base … end`` failed; return the keys affected."""
        affected: dict[BlockedKey, None] = {}
        for failed in self._failed.overlapping(base, end):
            self._failed.delete(failed)
            blocked = self._blocked_keys[failed.key]
            blocked.failed.remove(max(base, failed.base), min(end, failed.end))
            affected[blocked] = None
            for kept, kept_end in ((failed.base, base), (end, failed.end)):
                if kept < kept_end:
                    self._failed.insert(_FailedRange(kept, kept_end, failed.key))
        return list(affected)

    def remove_done(self, base: int, end: int, cursor: Cursor) -> list[BlockedKey]:
        """Forget failed messages of ``base … end`` that are done; return their keys."""
        affected: dict[BlockedKey, None] = {}
        for failed in self._failed.overlapping(base, end):
            at, stop = max(base, failed.base), min(end, failed.end)
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
        self._failed.clear()

    def __len__(self) -> int:
        return len(self._blocked_keys)

    def _block(self, key: bytes) -> BlockedKey:
        self.block_count += 1
        blocked = self._blocked_keys.get(key)
        if blocked is None:
            blocked = self._blocked_keys[key] = BlockedKey(key)
        return blocked

"""
Counts that the processes of one broker have in common.

A limit, such as the connections of a principal, holds for all processes of a broker
together.  Each process counts for itself, in a part of a memory that all of them share
and that nobody else writes.  It reads the parts of the others when it decides.  So
nothing is locked, no message is sent, and the counts of a process that has ended are
gone when its part is cleared.  Processes that admit something in the same instant may
exceed a limit by one each.

The part of a process is a hash table.  A row has the hash of a name, and a number for
each kind of count.  A broker with one process has no such memory.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import blake2b

KINDS = (
    *("connections", "sessions", "topics", "subscriptions", "storage_bytes"),
    *("requests_per_s", "bytes_in_per_s", "bytes_out_per_s"),
    *("throttled_us", "refused"),
)
"""The kinds of counts of a name; those of rates are totals, which only rise."""
ROWS = 32_768
"""The rows of a process; quotas and the principals of clients need up to 20,000."""
PROBES_MAX = 64
"""A name that finds no row in so many is counted by each process for itself."""

_COLUMNS = {kind: index for index, kind in enumerate(KINDS, 1)}
_ROW = 1 + len(KINDS)
_FREE = 0
_RELEASED = 1
"""A row that was released; the names behind it stay where they are."""


def bytes_of(processes: int, rows: int = ROWS) -> int:
    """Return the size of the memory of so many processes."""
    return processes * rows * _ROW * 8


class SharedCounts:
    """The counts of one process of a broker, beside those of the others."""

    def __init__(
        self,
        memory: memoryview | None = None,
        *,
        number: int = 1,
        count: int = 1,
        rows: int = ROWS,
        proof: str = "1",
    ) -> None:
        """
        Create the counts of the process *number* of *count*; the first is 1.

        *memory* has ``bytes_of(count)`` bytes, zero at first.  *proof* is a secret of
        the processes.
        """
        self.proof = proof
        """The proof that a process has charged a request which it passes on."""
        self.memory = memoryview(b"") if memory is None else memory.cast("q")
        self.rows = rows
        self._base = self._base_of(number)
        self.others = tuple(
            self._base_of(each) for each in range(1, count + 1) if each != number
        )

    def is_proof(self, given: bytes) -> bool:
        """Return whether another process has charged the request that shows *given*."""
        return bool(self.others) and hmac.compare_digest(given, self.proof.encode())

    def of(self, name: str) -> SharedCount:
        """Return the counts under *name*; no row is used before something is added."""
        return SharedCount(self, name)

    def clear(self, number: int) -> None:
        """Forget what the process *number* has counted, which has ended."""
        base = self._base_of(number)
        end = base + self.rows * _ROW
        self.memory[base:end] = memoryview(bytes((end - base) * 8)).cast("q")

    def find(self, base: int, key: int) -> int:
        """Return where the row of *key* begins in a part; -1: there is none."""
        for place in self._places(base, key):
            if (found := self.memory[place]) == key:
                return place
            if found == _FREE:
                break
        return -1

    def claim(self, key: int) -> int:
        """Return where the row of *key* in the own part begins; -1: none is left."""
        free = -1
        for place in self._places(self._base, key):
            if (found := self.memory[place]) == key:
                return place
            if free < 0 and found in {_FREE, _RELEASED}:
                free = place
            if found == _FREE:
                break
        if free >= 0:
            self.memory[free] = key
        return free

    def release(self, place: int) -> None:
        """Give up a row of the own part."""
        for column in range(place + 1, place + _ROW):
            self.memory[column] = 0
        self.memory[place] = _RELEASED

    def _base_of(self, number: int) -> int:
        return (number - 1) * self.rows * _ROW

    def _places(self, base: int, key: int) -> Iterator[int]:
        for step in range(PROBES_MAX):
            yield base + (key + step) % self.rows * _ROW


class SharedCount:
    """The counts of the processes of a broker under one name."""

    __slots__ = ("_counts", "_key", "_places", "_row", "_seen", "has_others")

    def __init__(self, counts: SharedCounts, name: str) -> None:
        self._counts = counts
        self.has_others = bool(counts.others)
        self._key = _key_of(name) if counts.others else _FREE
        self._row = -1
        # Where the rows of the others were found last.
        self._places = [-1] * len(counts.others)
        # The totals of the others when ``news`` was called last.
        self._seen: dict[str, int] = {}

    def add(self, kind: str, change: int) -> None:
        """Add to the count of this process."""
        if not self.has_others:
            return
        if self._row < 0:
            self._row = self._counts.claim(self._key)
        if self._row >= 0:
            self._counts.memory[self._row + _COLUMNS[kind]] += change

    def put(self, kind: str, value: int) -> None:
        """Change the count of this process."""
        self.add(kind, value - self._own(kind))

    def others(self, kind: str) -> int:
        """Return what the other processes have counted."""
        memory, key, places = self._counts.memory, self._key, self._places
        column, total = _COLUMNS[kind], 0
        for index, base in enumerate(self._counts.others):
            place = places[index]
            if place < 0 or memory[place] != key:
                place = places[index] = self._counts.find(base, key)
            if place >= 0:
                total += memory[place + column]
        return total

    def news(self, kind: str) -> int:
        """Return what the others have added to a total since the last call."""
        total = self.others(kind)
        seen = self._seen.get(kind, total)
        self._seen[kind] = total
        # A process that has ended takes its part of the total with it.
        return max(0, total - seen)

    def release(self) -> None:
        """Forget what this process has counted."""
        if self._row >= 0:
            self._counts.release(self._row)
            self._row = -1

    def _own(self, kind: str) -> int:
        if self._row < 0:
            return 0
        return self._counts.memory[self._row + _COLUMNS[kind]]


def _key_of(name: str) -> int:
    digest = blake2b(name.encode(), digest_size=8).digest()
    # Smaller numbers say that a row is free.
    return int.from_bytes(digest, "big") >> 1 | 2


ONE_PROCESS = SharedCounts()
"""The counts of a broker with one process, which has no others."""

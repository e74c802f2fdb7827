"""
The messages of a key-shared subscription, as bits of batch chunks.

The messages of one key are scattered over a batch, and so are those of one consumer.
A *chunk* is a batch, or a part of it, with its keys.  A *selection* is a set of its
messages in the same state: ready, or in flight with one consumer.  The set is an
integer with one bit for each message, so a thousand messages are separated, counted
or removed by a few operations.

    chunk 40 … 48       keys    a b a c b a a c
    a selection of it   bits    1 0 1 0 0 1 1 0      = 0b01100101, lowest bit first

Messages that are done, wait or are parked are in no selection, and a chunk without
messages in selections is removed.  A message that returns later brings its key along.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cache
from typing import Protocol, TypeVar

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.range_blocks import lowest_bit, ranges_of_bits
from pydanube.model.ranges import Range
from pydanube_broker.dispatch.message_spans import (
    NOBODY,
    Batch,
    MessageSpan,
    look_up,
)
from pydanube_broker.dispatch.offset_index import OffsetIndex

T = TypeVar("T")

CHUNK_MESSAGES_MAX = 16_384
"""
Longer batches become several chunks, so that the integers stay short.

Each chunk becomes a delivery for each consumer, so four chunks instead of one took a
third more time.
"""
_SPARSE_MIN = 16
"""Chunks with fewer keys are never thinned."""
_SPARSE = 8
"""If there are this many keys for one of the messages, each is looked up by itself."""
_CODE_BYTES = 4
_KEY_BYTES = 60
"""The memory of a short key, or of the place of a sparse one."""
_KEPT_BYTES_MAX = 512
"""A chunk is thinned when its keys take this much memory for each message left."""
_TARGETS_MAX = 256


@dataclass(slots=True, eq=False)
class BatchSlice(Batch):
    """A batch of which only the keys of one range of messages are kept."""

    first: int = 0
    slice_keys: Sequence[bytes] = ()
    """The key of *first* and those of the messages after it."""

    def keys_of(self, base: int, end: int) -> Sequence[bytes]:
        """Return the keys of ``base … end``."""
        return self.slice_keys[base - self.first : end - self.first]


class SelectionQueue(Protocol):
    """A queue in which selections wait."""

    count: int
    """The number of messages that wait."""


@dataclass(slots=True, eq=False)
class AckTimer:
    """A deadline by which messages of a selection must be acknowledged."""

    time: float
    selection: Selection
    bits: int
    """The messages; those that the selection no longer has are ignored."""

    @property
    def is_live(self) -> bool:
        """Whether it still applies to a message."""
        return self.selection.bits & self.bits != 0


@dataclass(slots=True, eq=False)
class Selection:
    """Messages of one chunk that are in the same state."""

    chunk: BatchChunk
    bits: int
    attempt: int = 1
    """In flight, the number of this delivery; otherwise of the next one."""
    failures: int = 0
    reason: str = ""
    consumer: int = NOBODY
    """The consumer that has it; NOBODY while it is ready."""
    queue: SelectionQueue | None = None
    """The queue in which it waits, if it is ready and routed."""
    checked_at: int = 0
    """The value of ``BlockedKeys.block_count`` when its keys were last checked."""
    draining: int = 0
    """The bits whose keys now belong to another consumer."""
    timers: list[AckTimer] = field(default_factory=list)
    """The deadlines of its messages; a message that is in flight has at most one."""

    @property
    def first(self) -> int:
        """The lowest offset; the selection must not be empty."""
        return self.chunk.origin + lowest_bit(self.bits)

    def is_like(self, other: Selection) -> bool:
        """Return whether the two can be merged if they are in the same place."""
        return (
            self.attempt == other.attempt
            and self.failures == other.failures
            and self.reason == other.reason
        )

    def part(self, bits: int) -> Selection:
        """Return a new selection of *bits* that is in no queue."""
        return Selection(self.chunk, bits, self.attempt, self.failures, self.reason)


@dataclass(slots=True, eq=False)
class BatchChunk:
    """
    The messages of a batch, or of a part of it, that are ready or in flight.

    The keys are stored as they arrived: the distinct keys, and a code for each
    message.  When these take much memory for each message left, only the keys of the
    messages left are stored.
    """

    batch: Batch
    origin: int
    """The offset of bit 0."""
    base: int
    end: int
    """The messages of the chunk lie in ``base … end``."""
    ready: dict[Selection, None] = field(default_factory=dict)
    in_flight: dict[Selection, None] = field(default_factory=dict)
    count: int = 0
    """The number of messages in its selections."""
    charged: int = 0
    """
    The number of messages of the batch that were charged, wherever they lie; so the
    charges of all messages add up to the bytes of the batch.
    """
    _unique: Sequence[bytes] = ()
    _codes: Sequence[int] = ()
    _look_up: Callable[[Sequence[int], bytes], bytes] = look_up
    # The key of each bit, after thinning; then _unique and _codes are empty.
    _sparse_keys: dict[int, bytes] | None = None
    # Runs of messages that expire at the same time, in order.
    _expiring: list[tuple[int, int, float]] = field(default_factory=list)

    @classmethod
    def of_batch(cls, batch: Batch, origin: int, base: int, end: int) -> BatchChunk:
        """Return a chunk of ``base … end`` of *batch*, whose bit 0 is *origin*."""
        keys = batch.keys
        assert keys is not None
        at = origin - batch.base
        codes = keys.codes[at : at + CHUNK_MESSAGES_MAX]
        return cls(
            batch,
            origin,
            base,
            end,
            charged=at,
            _unique=keys.unique,
            _codes=codes,
            _look_up=keys.look_up,
        )

    @classmethod
    def of_slice(cls, batch_slice: BatchSlice, base: int, end: int) -> BatchChunk:
        """Return a chunk of ``base … end`` only, whose keys are learnt later."""
        return cls(batch_slice, base, base, end, _sparse_keys={})

    # Keys.

    @property
    def known_keys(self) -> Iterable[bytes]:
        """The keys that messages of the chunk may have."""
        return self._unique if self._sparse_keys is None else self._sparse_keys.values()

    def add_keys(self, base: int, keys: Iterable[bytes]) -> None:
        """Store *keys*, those of *base* and the messages after it."""
        if self._sparse_keys is not None:
            self._sparse_keys.update(enumerate(keys, base - self.origin))

    def keys_of(self, bits: int) -> list[bytes]:
        """Return the keys of *bits*, in order."""
        if self._sparse_keys is not None:
            return [self._sparse_keys[at] for at in positions(bits)]
        unique, codes = self._unique, self._codes
        return [unique[codes[at]] for at in positions(bits)]

    def divide(
        self, bits: int, targets_of: Callable[[Sequence[bytes]], list[T]]
    ) -> dict[T, int]:
        """Divide *bits* by the targets that *targets_of* returns for their keys."""
        if self._sparse_keys is None and bits.bit_count() * _SPARSE >= len(
            self._unique
        ):
            targets = targets_of(self._unique)
            numbers = {each: at for at, each in enumerate(dict.fromkeys(targets))}
            if len(numbers) == 1:
                return {targets[0]: bits}
            if len(numbers) <= _TARGETS_MAX:
                # First one byte for each message, the number of its target; then, for
                # each target, one bit for each byte with its number.
                of_code = bytes([numbers[each] for each in targets])
                text = self._look_up(self._codes, of_code)[::-1]
                divided = {
                    each: int(text.translate(_picking(number)), 2) & bits
                    for each, number in numbers.items()
                }
                return {each: part for each, part in divided.items() if part}
        found: dict[T, int] = {}
        at_once = positions(bits)
        for at, each in zip(at_once, targets_of(self.keys_of(bits)), strict=True):
            found[each] = found.get(each, 0) | 1 << at
        return found

    def thin(self) -> None:
        """Drop the keys of messages that have left, if they take much memory."""
        codes, keys = len(self._codes), len(self._unique)
        if self._sparse_keys is not None:
            codes = keys = len(self._sparse_keys)
        kept_bytes = _CODE_BYTES * codes + _KEY_BYTES * keys
        if codes < _SPARSE_MIN or self.count * _KEPT_BYTES_MAX > kept_bytes:
            return
        bits = 0
        for selection in (*self.ready, *self.in_flight):
            bits |= selection.bits
        left = self.keys_of(bits)
        self._sparse_keys = dict(zip(positions(bits), left, strict=True))
        self._unique = self._codes = ()
        batch = self.batch
        if batch.keys is not None:
            self.batch = Batch(batch.base, batch.end, batch.byte_count)

    # Messages.

    def mask(self, base: int, end: int) -> int:
        """Return the bits of ``base … end``, whether or not they are selected."""
        base, end = max(base, self.base), min(end, self.end)
        return (1 << (end - base)) - 1 << (base - self.origin) if base < end else 0

    def charge(self, count: int) -> int:
        """
        Return the bytes to charge for *count* messages: the average of the batch.

        The charges of all messages add up to the bytes of the batch.
        """
        batch = self.batch
        size = batch.end - batch.base
        before = self.charged * batch.byte_count // size
        self.charged += count
        return self.charged * batch.byte_count // size - before

    def expire_at(self, base: int, end: int, expires: float) -> None:
        """Note that ``base … end`` expire; ranges that are known are ignored."""
        expiring = self._expiring
        at = bisect_left(expiring, (base + 1,))
        if not at or expiring[at - 1][1] <= base:
            expiring[at:at] = [(base, end, expires)]

    @property
    def has_expiring(self) -> bool:
        """Whether any of its messages expire."""
        return bool(self._expiring)

    def spans(self, selection: Selection, bits: int) -> list[MessageSpan]:
        """Return *bits* of *selection* as spans that carry their keys."""
        found = []
        for base, end in ranges_of_bits(self.origin, bits):
            for cut, cut_end, expires in self._by_expiry(base, end):
                found.append(
                    MessageSpan(
                        cut,
                        cut_end,
                        selection.attempt,
                        self._slice(cut, cut_end),
                        selection.failures,
                        expires,
                        selection.reason,
                        consumer=selection.consumer,
                        open_count=cut_end - cut,
                    )
                )
        return found

    def _slice(self, base: int, end: int) -> BatchSlice:
        batch = self.batch
        keys = self.keys_of((1 << (end - base)) - 1 << (base - self.origin))
        return BatchSlice(
            batch.base, batch.end, batch.byte_count, first=base, slice_keys=tuple(keys)
        )

    def _by_expiry(
        self, base: int, end: int
    ) -> Iterable[tuple[int, int, float | None]]:
        expiring = self._expiring
        at = max(0, bisect_right(expiring, (base, end)) - 1) if expiring else 0
        while base < end:
            # The first run that ends above base, if any does.
            while at < len(expiring) and expiring[at][1] <= base:
                at += 1
            if at == len(expiring) or expiring[at][0] >= end:
                yield base, end, None
                return
            there, there_end, expires = expiring[at]
            if base < there:
                yield base, there, None
                base = there
            cut_end = min(end, there_end)
            yield base, cut_end, expires
            base = cut_end


class BatchChunks(OffsetIndex[BatchChunk]):
    """Chunks by offset; their messages do not overlap."""

    __slots__ = ()

    @property
    def last(self) -> BatchChunk | None:
        """The highest chunk that was added, or None if it has been removed."""
        return self._by_base.get(self._bases[-1]) if self._bases else None

    def bits_of(self, ranges: Iterable[Range]) -> Iterator[tuple[BatchChunk, int]]:
        """
        Yield the messages in *ranges* as bits of chunks.

        A chunk may be yielded several times, and may shrink in between.
        """
        chunk: BatchChunk | None = None
        bits = 0
        for base, end in ranges:
            if chunk is not None:
                # Most lists are of one batch.
                if chunk.base <= base < end <= chunk.end:
                    bits |= (1 << (end - base)) - 1 << (base - chunk.origin)
                    continue
                yield chunk, bits
                chunk = None
            for found in self.overlapping(base, end):
                if chunk is not None:
                    yield chunk, bits
                chunk, bits = found, found.mask(base, end)
        if chunk is not None:
            yield chunk, bits

    def shrink(self, chunk: BatchChunk, count: int) -> None:
        """Note that *count* messages of *chunk* have left their selections."""
        chunk.count -= count
        if chunk.count:
            chunk.thin()
        else:
            self.delete(chunk)


def lowest_bits(bits: int, count: int) -> int:
    """Return the lowest *count* set bits, or all."""
    if count >= bits.bit_count():
        return bits
    if count == 1:
        return bits & -bits
    # Find the shortest lower part that has enough of them.
    low, high = 0, bits.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (bits & (1 << middle) - 1).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return bits & (1 << low) - 1


def bits_below(bits: int, number: int) -> int:
    """Return the bits whose number is less than *number*."""
    if number >= bits.bit_length():
        return bits
    return bits & (1 << number) - 1 if number > 0 else 0


def moved_bits(bits: int, count: int) -> int:
    """Return the bits with numbers that are higher by *count*, none below 0."""
    return bits << count if count >= 0 else bits >> -count


def positions(bits: int) -> list[int]:
    """Return the numbers of the set bits, in order."""
    return [at for base, end in ranges_of_bits(0, bits) for at in range(base, end)]


@cache
def _picking(number: int) -> bytes:
    """Return a table that maps the byte *number* to "1" and all others to "0"."""
    return bytes(b"01"[each == number] for each in range(256))

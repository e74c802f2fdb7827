"""
Messages of a key-shared subscription: those of one batch together, as bits.

The messages of one key lie scattered over a batch, and so do those of one consumer.
A *bundle* is a batch, or a part of it, with its keys; a *share* is those of its
messages that are in the same state: ready alike, or in flight with one consumer.
Which messages these are says a number, bit by bit, so that a thousand of them are
told apart, counted or taken out by a few operations.

    bundle 40 … 48      keys    a b a c b a a c
    a share of it       bits    1 0 1 0 0 1 1 0      = 0b01100101, lowest bit first

Whatever is done, waits or is parked is in no share; a bundle without any messages in
shares is forgotten.  A message that comes back later brings its key along.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from pydanube.dispatch.stretches import NOBODY, Batch, Stretch
from pydanube.model.range_blocks import ranges_of_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pydanube.model.ranges import Range

T = TypeVar("T")

BUNDLE_MESSAGES_MAX = 4096
"""Longer batches become several bundles, so that numbers stay short."""
_SPARSE_MIN = 16
"""Bundles with fewer keys are never thinned."""
_SPARSE = 8
"""A bundle is thinned when only one in so many of its messages is left."""
_STALE_MAX = 64
_TARGETS_MAX = 256


@dataclass(slots=True, eq=False)
class Excerpt(Batch):
    """A batch of which only the keys of some messages are remembered."""

    first: int = 0
    texts: Sequence[bytes] = ()
    """The key of *first* and those of what follows."""

    def keys_of(self, base: int, end: int) -> Sequence[bytes]:
        """The keys of ``base … end``."""
        return self.texts[base - self.first : end - self.first]


class Line(Protocol):
    """Where shares wait."""

    count: int
    """How many messages wait there."""


@dataclass(slots=True, eq=False)
class Share:
    """Messages of one bundle that are all treated alike."""

    bundle: Bundle
    bits: int
    attempt: int = 1
    """In flight, the number of this delivery; else of the next one."""
    failures: int = 0
    reason: str = ""
    consumer: int = NOBODY
    """Who has it; NOBODY while it is ready."""
    line: Line | None = None
    """Where it waits, if it is ready and that is decided."""
    sieved: int = 0
    """Up to which closing of a gate its keys were looked at."""
    moving: int = 0
    """Which of the bits belong to keys that are to move to another consumer."""
    timer_count: int = 0
    """How often it is in the queue of deadlines."""

    @property
    def first(self) -> int:
        """The lowest offset; there must be one."""
        return self.bundle.origin + lowest(self.bits)

    def is_like(self, other: Share) -> bool:
        """Whether both could be one, if they were in the same place."""
        return (
            self.attempt == other.attempt
            and self.failures == other.failures
            and self.reason == other.reason
        )

    def part(self, bits: int) -> Share:
        """A new share of these *bits*, not in any line."""
        return Share(self.bundle, bits, self.attempt, self.failures, self.reason)


@dataclass(slots=True, eq=False)
class Bundle:
    """
    The messages of a batch, or of a part of it, that are ready or in flight.

    Its keys are remembered as they came, as different ones and a code for each
    message; when few messages are left, as those of these messages only.
    """

    batch: Batch
    origin: int
    """The offset of bit 0."""
    first: int
    end: int
    """Its own messages lie in ``first … end``."""
    ready: dict[Share, None] = field(default_factory=dict)
    in_flight: dict[Share, None] = field(default_factory=dict)
    count: int = 0
    """How many messages there are in its shares."""
    charged: int = 0
    """
    Before which message of the batch the next one is charged, if it were charged in
    order: just so the charges of all add up.
    """
    _unique: Sequence[bytes] = ()
    _codes: Sequence[int] = ()
    # Instead of these, the key for each bit.
    _texts: dict[int, bytes] | None = None
    # Runs of messages that expire at the same time, in order.
    _expiring: list[tuple[int, int, float]] = field(default_factory=list)

    @classmethod
    def of_batch(cls, batch: Batch, origin: int, first: int, end: int) -> Bundle:
        """The part ``first … end`` of *batch*, all from *origin* on being its own."""
        keys = batch.keys
        assert keys is not None
        at = origin - batch.base
        codes = keys.codes[at : at + BUNDLE_MESSAGES_MAX]
        return cls(
            batch, origin, first, end, charged=at, _unique=keys.unique, _codes=codes
        )

    @classmethod
    def of_excerpt(cls, excerpt: Excerpt, base: int, end: int) -> Bundle:
        """A bundle of ``base … end`` only, which come back."""
        return cls(excerpt, base, base, end, _texts={})

    # Keys.

    @property
    def known_keys(self) -> Iterable[bytes]:
        """The keys that any of its messages may have."""
        return self._unique if self._texts is None else self._texts.values()

    def learn(self, base: int, keys: Iterable[bytes]) -> None:
        """The keys of *base* and of what follows, which had been forgotten."""
        if self._texts is not None:
            self._texts.update(enumerate(keys, base - self.origin))

    def keys_of(self, bits: int) -> list[bytes]:
        """The keys of these messages, in order."""
        if self._texts is not None:
            return [self._texts[at] for at in positions(bits)]
        unique, codes = self._unique, self._codes
        return [unique[codes[at]] for at in positions(bits)]

    def divide(
        self, bits: int, targets_of: Callable[[Sequence[bytes]], list[T]]
    ) -> dict[T, int]:
        """Divide *bits* by what *targets_of* says of each key."""
        if self._texts is None and bits.bit_count() * _SPARSE >= len(self._unique):
            targets = targets_of(self._unique)
            numbers = {each: at for at, each in enumerate(dict.fromkeys(targets))}
            if len(numbers) == 1:
                return {targets[0]: bits}
            if len(numbers) <= _TARGETS_MAX:
                # One byte for each message, and then one bit for each byte that is
                # the number of a target.
                of_code = bytes([numbers[each] for each in targets])
                text = bytes(map(of_code.__getitem__, self._codes))[::-1]
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
        """Forget the keys of messages that are not here, if these are most."""
        texts = self._texts
        known = len(self._codes) if texts is None else len(texts)
        if known < _SPARSE_MIN or self.count * _SPARSE > known:
            return
        bits = 0
        for share in (*self.ready, *self.in_flight):
            bits |= share.bits
        keys = self.keys_of(bits)
        self._texts = dict(zip(positions(bits), keys, strict=True))
        self._unique = self._codes = ()
        batch = self.batch
        if batch.keys is not None:
            self.batch = Batch(batch.base, batch.end, batch.byte_count)

    # Messages.

    def mask(self, base: int, end: int) -> int:
        """The bits of what lies in ``base … end``, which need not be here."""
        base, end = max(base, self.first), min(end, self.end)
        return (1 << (end - base)) - 1 << (base - self.origin) if base < end else 0

    def charge(self, count: int) -> int:
        """
        What *count* messages cost in bytes, on the average of the batch.

        The charges of all messages add up to the batch.
        """
        batch = self.batch
        size = batch.end - batch.base
        before = self.charged * batch.byte_count // size
        self.charged += count
        return self.charged * batch.byte_count // size - before

    def expire_at(self, base: int, end: int, expires: float) -> None:
        """Remember that ``base … end`` expire; what is known already is ignored."""
        expiring = self._expiring
        at = bisect_left(expiring, (base + 1,))
        if not at or expiring[at - 1][1] <= base:
            expiring[at:at] = [(base, end, expires)]

    @property
    def has_expiring(self) -> bool:
        """Whether any of its messages expire."""
        return bool(self._expiring)

    def stretches(self, share: Share, bits: int) -> list[Stretch]:
        """These *bits* of *share* as stretches, which remember their keys."""
        found = []
        for base, end in ranges_of_bits(self.origin, bits):
            for cut, cut_end, expires in self._by_expiry(base, end):
                found.append(
                    Stretch(
                        cut,
                        cut_end,
                        share.attempt,
                        self._excerpt(cut, cut_end),
                        share.failures,
                        expires,
                        share.reason,
                        consumer=share.consumer,
                        open_count=cut_end - cut,
                    )
                )
        return found

    def _excerpt(self, base: int, end: int) -> Excerpt:
        batch = self.batch
        keys = self.keys_of((1 << (end - base)) - 1 << (base - self.origin))
        return Excerpt(
            batch.base, batch.end, batch.byte_count, first=base, texts=tuple(keys)
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


class Bundles:
    """Bundles by offset, none of them overlapping another one's own messages."""

    __slots__ = ("_bundles", "_firsts")

    def __init__(self) -> None:
        self._bundles: dict[int, Bundle] = {}
        # Sorted; a superset of the keys of _bundles.  None of a removed bundle lies
        # inside a present one.
        self._firsts: list[int] = []

    def add(self, bundle: Bundle) -> None:
        """Put *bundle* in."""
        firsts, first = self._firsts, bundle.first
        if not firsts or first > firsts[-1]:
            firsts.append(first)
        else:
            at = bisect_left(firsts, first)
            firsts[at : bisect_left(firsts, bundle.end, at)] = [first]
        self._bundles[first] = bundle

    def find(self, offset: int) -> Bundle | None:
        """The bundle in whose range *offset* lies, if there is one."""
        at = bisect_right(self._firsts, offset) - 1
        bundle = self._bundles.get(self._firsts[at]) if at >= 0 else None
        return bundle if bundle is not None and offset < bundle.end else None

    @property
    def last(self) -> Bundle | None:
        """The highest bundle, unless that is gone."""
        return self._bundles.get(self._firsts[-1]) if self._firsts else None

    def bits_of(self, ranges: Iterable[Range]) -> Iterator[tuple[Bundle, int]]:
        """
        What lies in *ranges*, as bits of bundles; a bundle may come more than once.

        Bundles may be shrunk meanwhile.
        """
        bundle: Bundle | None = None
        bits = 0
        for base, end in ranges:
            if bundle is not None:
                # Most lists are of one batch.
                if bundle.first <= base < end <= bundle.end:
                    bits |= (1 << (end - base)) - 1 << (base - bundle.origin)
                    continue
                yield bundle, bits
                bundle = None
            for found in self.overlapping(base, end):
                if bundle is not None:
                    yield bundle, bits
                bundle, bits = found, found.mask(base, end)
        if bundle is not None:
            yield bundle, bits

    def overlapping(self, base: int, end: int) -> list[Bundle]:
        """The bundles in whose range some of ``base … end`` lies, in order."""
        first = max(0, bisect_right(self._firsts, base) - 1)
        last = bisect_left(self._firsts, end, first)
        found = map(self._bundles.get, self._firsts[first:last])
        return [each for each in found if each is not None and base < each.end]

    def shrink(self, bundle: Bundle, count: int) -> None:
        """Note that *count* messages of *bundle* are in no share any more."""
        bundle.count -= count
        if bundle.count:
            bundle.thin()
            return
        del self._bundles[bundle.first]
        if len(self._firsts) > 2 * len(self._bundles) + _STALE_MAX:
            self._firsts = [each for each in self._firsts if each in self._bundles]

    def clear(self) -> None:
        """Forget all."""
        self._bundles.clear()
        self._firsts.clear()

    def __iter__(self) -> Iterator[Bundle]:
        """All of them, in no particular order."""
        return iter(self._bundles.values())

    def __len__(self) -> int:
        return len(self._bundles)


def lowest(bits: int) -> int:
    """The number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1


def lowest_bits(bits: int, count: int) -> int:
    """The lowest *count* of the bits that are set, or all."""
    if count >= bits.bit_count():
        return bits
    if count == 1:
        return bits & -bits
    # The shortest lower part that has enough of them.
    low, high = 0, bits.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (bits & (1 << middle) - 1).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return bits & (1 << low) - 1


def bits_below(bits: int, number: int) -> int:
    """Those of *bits* whose number is less than *number*."""
    if number >= bits.bit_length():
        return bits
    return bits & (1 << number) - 1 if number > 0 else 0


def positions(bits: int) -> list[int]:
    """The numbers of the bits that are set, in order."""
    return [at for base, end in ranges_of_bits(0, bits) for at in range(base, end)]


@cache
def _picking(number: int) -> bytes:
    """A table that makes a 1 of the byte *number*, and a 0 of all others."""
    return bytes(b"01"[each == number] for each in range(256))

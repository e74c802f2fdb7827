"""What is ready in a key-shared subscription, sorted by who is to get it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.bundles import (
    BUNDLE_MESSAGES_MAX,
    Bundle,
    Bundles,
    Excerpt,
    Share,
    bits_below,
)
from pydanube.dispatch.gates import Gate, Gates
from pydanube.dispatch.lanes import Lane
from pydanube.dispatch.ready import ANYWHERE
from pydanube.dispatch.stretches import NOBODY
from pydanube.model.range_blocks import bits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydanube.dispatch.cursor import Cursor
    from pydanube.dispatch.key_owners import KeyOwners
    from pydanube.dispatch.stretches import Batch, Stretch


class KeyedReady:
    """
    A lane for each consumer, with the messages of the keys that it owns.

    Messages of keys that must wait are at the gates of these keys, and come to the
    lane in their place when the gate opens.  What was told since the last call of
    ``route`` is nowhere yet.
    """

    __slots__ = (
        "_bundles",
        "_cursor",
        "_lanes",
        "_owners",
        "_unrouted",
        "busy",
        "gates",
    )

    def __init__(self, cursor: Cursor, bundles: Bundles, owners: KeyOwners) -> None:
        self._cursor = cursor
        self._bundles = bundles
        self._owners = owners
        self.gates = Gates()
        self._lanes = {NOBODY: Lane(NOBODY)}
        self.busy: dict[Lane, None] = {}
        """The lanes in which something may wait."""
        self._unrouted: list[Share] = []

    # What the machine tells.

    def add_lane(self, consumer: int) -> None:
        """A consumer came; it gets nothing before ``reassign``."""
        self._lanes[consumer] = Lane(consumer)

    def remove_lane(self, consumer: int) -> None:
        """A consumer is gone; what waits for it does so until ``reassign``."""
        del self._lanes[consumer]

    def add_new(self, stretch: Stretch) -> None:
        """Append a stretch that lies behind all new ones that came before."""
        batch, base = stretch.batch, stretch.base
        while base < stretch.end:
            skipped = (base - batch.base) // BUNDLE_MESSAGES_MAX * BUNDLE_MESSAGES_MAX
            origin = batch.base + skipped
            end = min(stretch.end, origin + BUNDLE_MESSAGES_MAX)
            bits = self._open_bits(base, end, origin)
            if bits:
                bundle = self._bundle_of(batch, origin, base, end)
                self._add(Share(bundle, bits), base, end, stretch.expires)
            base = end

    def put_back(self, stretch: Stretch) -> None:
        """Take a stretch that came back from a consumer, or is due now."""
        excerpt, base = stretch.batch, stretch.base
        assert isinstance(excerpt, Excerpt)
        while base < stretch.end:
            bundle = self._bundles.find(base)
            end = min(stretch.end, base + BUNDLE_MESSAGES_MAX)
            if bundle is not None:
                end = min(end, bundle.end)
            bits = self._open_bits(base, end, base if bundle is None else bundle.origin)
            if bits:
                if bundle is None:
                    bundle = Bundle.of_excerpt(excerpt, base, end)
                    self._bundles.add(bundle)
                bundle.learn(base, excerpt.keys_of(base, end))
                share = Share(
                    bundle, bits, stretch.attempt, stretch.failures, stretch.reason
                )
                self._add(share, base, end, stretch.expires)
            base = end
        gates = self.gates
        for gate in gates.release(stretch.base, stretch.end) if gates else ():
            self._let_pass(gate)

    def take_back(self, share: Share) -> None:
        """Take a share, whole, that came back from a consumer."""
        share.bundle.ready[share] = None
        self._unrouted.append(share)

    def withdraw(self, base: int, end: int) -> list[Stretch]:
        """Take out what is not done of ``base … end``."""
        taken: list[Stretch] = []
        for bundle in self._bundles.overlapping(base, end):
            mask = bundle.mask(base, end)
            count = 0
            for share in list(bundle.ready):
                bits = share.bits & mask
                if bits:
                    taken += bundle.stretches(share, bits)
                    count += self.forget(share, bits)
            if count:
                self._bundles.shrink(bundle, count)
        return taken

    def forget(self, share: Share, bits: int) -> int:
        """These *bits* of *share* are not ready any more; return how many."""
        count = bits.bit_count()
        share.bits ^= bits
        if share.line is not None:
            share.line.count -= count
        if not share.bits:
            del share.bundle.ready[share]
            if isinstance(share.line, Gate):
                share.line.leave(share)
            share.line = None
        return count

    def hold(self, stretch: Stretch) -> None:
        """*stretch* has failed; let nothing of its keys overtake it."""
        assert isinstance(stretch.batch, Excerpt)
        keys = stretch.batch.keys_of(stretch.base, stretch.end)
        self.gates.hold(stretch.base, keys)

    def release_done(self, base: int, end: int) -> None:
        """Nothing must wait for what is done of ``base … end``."""
        gates = self.gates
        for gate in gates.release_done(base, end, self._cursor) if gates else ():
            self._let_pass(gate)

    def on_moved(self, keys: Iterable[bytes]) -> None:
        """Messages of these keys, one for each, are not in flight any more."""
        for gate in self.gates.moved(keys):
            self._let_pass(gate)

    def clear(self) -> None:
        """Forget all that is ready."""
        for lane in self.busy:
            lane.clear()
        self.busy.clear()
        self._unrouted.clear()

    # Who gets what.

    def reassign(self) -> None:
        """Decide anew who is to get what, because a consumer came or went."""
        self.clear()
        gates = self.gates
        gates.forget_moves()
        for bundle in self._bundles:
            ready, bundle.ready = bundle.ready, {}
            for share in ready:
                share.line = None
                self._merge(share)
            for share in bundle.in_flight:
                share.moving = 0
                for owner, bits in bundle.divide(share.bits, self._owners.of).items():
                    if owner != share.consumer:
                        share.moving |= bits
                        gates.move(bundle.keys_of(bits))

    def route(self) -> None:
        """Let all that came since wait in its place."""
        if self._unrouted:
            unrouted, self._unrouted = self._unrouted, []
            for share in unrouted:
                if share.bits:
                    self._route(share)

    def head(self, lane: Lane) -> Share | None:
        """The share with the first message in *lane* that can be delivered."""
        closing_count = self.gates.closing_count
        while (share := lane.head()) is not None:
            if share.sieved == closing_count:
                return share
            # A gate was closed since: some of its keys may have to wait.
            share.sieved = closing_count
            if self.gates and self.gates.closed_among(share.bundle.known_keys):
                lane.pop(share)
                self._route(share)
        del self.busy[lane]
        return None

    def take(self, lane: Lane, share: Share, bits: int) -> Share:
        """Take *bits*, leading ones, from *share*, the head of *lane*."""
        taken = lane.take(share, bits)
        if taken is share:
            del share.bundle.ready[share]
        return taken

    def _route(self, share: Share) -> None:
        bundle = share.bundle
        divided = bundle.divide(share.bits, self._targets_of)
        if len(divided) == 1:
            (target,) = divided
            self._put(target, share)
            return
        del bundle.ready[share]
        for target, bits in divided.items():
            part = share.part(bits)
            bundle.ready[part] = None
            self._put(target, part)

    def _targets_of(self, keys: Sequence[bytes]) -> list[int | Gate]:
        """For each of *keys* its gate, if that is closed, or else its owner."""
        targets: list[int | Gate] = [*self._owners.of(keys)]
        closed = self.gates.closed_among(keys) if self.gates else ()
        if closed:
            for at, key in enumerate(keys):
                if key in closed:
                    targets[at] = self.gates[key]
        return targets

    def _put(self, target: int | Gate, share: Share) -> None:
        if isinstance(target, Gate):
            target.put(share)
            self._let_pass(target)
            return
        lane = self._lanes[target]
        share.sieved = self.gates.closing_count
        lane.put(share)
        self.busy[lane] = None

    def _let_pass(self, gate: Gate) -> None:
        """Let those into their lane that *gate* need not keep."""
        open_below = gate.open_below
        (owner,) = self._owners.of([gate.key])
        for share in list(gate.shares) if open_below else ():
            bundle = share.bundle
            passing = bits_below(share.bits, open_below - bundle.origin)
            if passing == share.bits:
                gate.leave(share)
                self._put(owner, share)
            elif passing:
                share.bits ^= passing
                gate.count -= passing.bit_count()
                part = share.part(passing)
                bundle.ready[part] = None
                self._put(owner, part)
        if open_below == ANYWHERE:
            self.gates.open(gate)

    # What came.

    def _bundle_of(self, batch: Batch, origin: int, base: int, end: int) -> Bundle:
        """The bundle of new messages ``base … end``."""
        bundle = self._bundles.last
        if bundle is not None and bundle.batch is batch and bundle.origin == origin:
            bundle.end = end
            return bundle
        bundle = Bundle.of_batch(batch, origin, base, end)
        self._bundles.add(bundle)
        return bundle

    def _open_bits(self, base: int, end: int, origin: int) -> int:
        """What is not done of ``base … end``."""
        cursor = self._cursor
        if cursor.done or base < cursor.offset:
            return bits_of(cursor.done.gaps(max(base, cursor.offset), end), origin)
        return (1 << end - base) - 1 << (base - origin)

    def _add(self, share: Share, base: int, end: int, expires: float | None) -> None:
        bundle = share.bundle
        bundle.count += share.bits.bit_count()
        if expires is not None:
            bundle.expire_at(base, end, expires)
        self._merge(share)

    def _merge(self, share: Share) -> None:
        """Let *share* be routed, with what came before if that is like it."""
        last = self._unrouted[-1] if self._unrouted else None
        if (
            last is not None
            and last.bits
            and last.bundle is share.bundle
            and last.is_like(share)
        ):
            last.bits |= share.bits
            return
        self.take_back(share)

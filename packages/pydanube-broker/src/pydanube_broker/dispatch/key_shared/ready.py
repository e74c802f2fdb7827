"""The ready messages of a key-shared subscription, sorted by consumer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import count

from pydanube.model.range_blocks import bits_of, lowest_bit
from pydanube_broker.dispatch.cursor import Cursor
from pydanube_broker.dispatch.key_shared.batch_chunks import (
    CHUNK_MESSAGES_MAX,
    BatchChunk,
    BatchChunks,
    BatchSlice,
    Selection,
    bits_below,
)
from pydanube_broker.dispatch.key_shared.blocked_keys import BlockedKey, BlockedKeys
from pydanube_broker.dispatch.key_shared.key_owners import KeyOwners
from pydanube_broker.dispatch.message_spans import NOBODY, Batch, MessageSpan
from pydanube_broker.dispatch.ready import OFFSET_MAX


class ReadySelections:
    """
    The ready messages of a key-shared subscription, in one queue for each consumer.

    A consumer's queue holds the messages of the keys that it owns.  Messages of a
    blocked key wait at its ``BlockedKey``, and move to the owner's queue when the key
    is unblocked.  ``route`` sorts messages that arrived since it was last called.
    """

    __slots__ = (
        "_chunks",
        "_cursor",
        "_owners",
        "_queues",
        "_unrouted",
        "blocked_keys",
        "non_empty",
    )

    def __init__(self, cursor: Cursor, chunks: BatchChunks, owners: KeyOwners) -> None:
        self._cursor = cursor
        self._chunks = chunks
        self._owners = owners
        self.blocked_keys = BlockedKeys()
        self._queues = {NOBODY: ConsumerQueue(NOBODY)}
        self.non_empty: dict[ConsumerQueue, None] = {}
        """The queues that may hold messages."""
        self._unrouted: list[Selection] = []

    # Changes.

    def add_consumer(self, consumer: int) -> None:
        """Add a queue for *consumer*, which owns no keys before ``reassign``."""
        self._queues[consumer] = ConsumerQueue(consumer)

    def remove_consumer(self, consumer: int) -> None:
        """Remove the queue of *consumer*; ``reassign`` moves its messages to others."""
        del self._queues[consumer]

    def add_new(self, span: MessageSpan) -> None:
        """Add a new span, which lies above all spans added before."""
        batch, base = span.batch, span.base
        while base < span.end:
            skipped = (base - batch.base) // CHUNK_MESSAGES_MAX * CHUNK_MESSAGES_MAX
            origin = batch.base + skipped
            end = min(span.end, origin + CHUNK_MESSAGES_MAX)
            bits = self._open_bits(base, end, origin)
            if bits:
                chunk = self._chunk_of(batch, origin, base, end)
                self._add(Selection(chunk, bits), base, end, span.expires)
            base = end

    def put_back(self, span: MessageSpan) -> None:
        """Add a span that a consumer returned, or that is due now."""
        batch_slice, base = span.batch, span.base
        assert isinstance(batch_slice, BatchSlice)
        while base < span.end:
            chunk = self._chunks.find_containing(base, base + 1)
            end = min(span.end, base + CHUNK_MESSAGES_MAX)
            if chunk is not None:
                end = min(end, chunk.end)
            bits = self._open_bits(base, end, base if chunk is None else chunk.origin)
            if bits:
                if chunk is None:
                    chunk = BatchChunk.of_slice(batch_slice, base, end)
                    self._chunks.insert(chunk)
                chunk.add_keys(base, batch_slice.keys_of(base, end))
                selection = Selection(
                    chunk, bits, span.attempt, span.failures, span.reason
                )
                self._add(selection, base, end, span.expires)
            base = end
        for blocked in self.blocked_keys.remove_failed(span.base, span.end):
            self._unblock(blocked)

    def put_back_selection(self, selection: Selection) -> None:
        """Add a whole selection that a consumer returned."""
        selection.chunk.ready[selection] = None
        self._unrouted.append(selection)

    def withdraw(self, base: int, end: int) -> list[MessageSpan]:
        """Remove and return the messages of ``base … end`` that are not done."""
        taken: list[MessageSpan] = []
        for chunk in self._chunks.overlapping(base, end):
            mask = chunk.mask(base, end)
            count = 0
            for selection in list(chunk.ready):
                bits = selection.bits & mask
                if bits:
                    taken += chunk.spans(selection, bits)
                    count += self.forget(selection, bits)
            if count:
                self._chunks.shrink(chunk, count)
        return taken

    def forget(self, selection: Selection, bits: int) -> int:
        """Remove *bits* from *selection*; return their number."""
        count = bits.bit_count()
        selection.bits ^= bits
        if selection.queue is not None:
            selection.queue.count -= count
        if not selection.bits:
            del selection.chunk.ready[selection]
            if isinstance(selection.queue, BlockedKey):
                selection.queue.remove(selection)
            selection.queue = None
        return count

    def add_failed(self, span: MessageSpan) -> None:
        """Block the keys of *span*, which has failed."""
        assert isinstance(span.batch, BatchSlice)
        keys = span.batch.keys_of(span.base, span.end)
        self.blocked_keys.add_failed(span.base, keys)

    def remove_done(self, base: int, end: int) -> None:
        """Unblock keys that were blocked by messages of ``base … end``, now done."""
        for blocked in self.blocked_keys.remove_done(base, end, self._cursor):
            self._unblock(blocked)

    def on_drained(self, keys: Iterable[bytes]) -> None:
        """Note that draining messages with these keys are no longer in flight."""
        for blocked in self.blocked_keys.remove_draining(keys):
            self._unblock(blocked)

    def clear(self) -> None:
        """Remove all messages."""
        for queue in self.non_empty:
            queue.clear()
        self.non_empty.clear()
        self._unrouted.clear()

    # Routing.

    def reassign(self) -> None:
        """Route all messages again, because a consumer joined or left."""
        self.clear()
        blocked_keys = self.blocked_keys
        blocked_keys.reset_draining()
        for chunk in self._chunks:
            ready, chunk.ready = chunk.ready, {}
            for selection in ready:
                selection.queue = None
                self._merge(selection)
            for selection in chunk.in_flight:
                selection.draining = 0
                owners = chunk.divide(selection.bits, self._owners.owners_of)
                for owner, bits in owners.items():
                    if owner != selection.consumer:
                        selection.draining |= bits
                        blocked_keys.add_draining(chunk.keys_of(bits))

    def route(self) -> None:
        """Sort the messages that were added since the last call into queues."""
        if self._unrouted:
            unrouted, self._unrouted = self._unrouted, []
            for selection in unrouted:
                if selection.bits:
                    self._route(selection)

    def head(self, queue: ConsumerQueue) -> Selection | None:
        """Return the selection with the first deliverable message in *queue*."""
        block_count = self.blocked_keys.block_count
        while (selection := queue.head()) is not None:
            if selection.checked_at == block_count:
                return selection
            # A key was blocked since then; it may be one of the selection's.
            selection.checked_at = block_count
            if self.blocked_keys and self.blocked_keys.blocked_among(
                selection.chunk.known_keys
            ):
                queue.pop(selection)
                self._route(selection)
        del self.non_empty[queue]
        return None

    def take(self, queue: ConsumerQueue, selection: Selection, bits: int) -> Selection:
        """Remove *bits*, leading ones, from *selection*, the head, and return them."""
        taken = queue.take(selection, bits)
        if taken is selection:
            del selection.chunk.ready[selection]
        return taken

    def _route(self, selection: Selection) -> None:
        chunk = selection.chunk
        divided = chunk.divide(selection.bits, self._targets_of)
        if len(divided) == 1:
            (target,) = divided
            self._put(target, selection)
            return
        del chunk.ready[selection]
        for target, bits in divided.items():
            part = selection.part(bits)
            chunk.ready[part] = None
            self._put(target, part)

    def _targets_of(self, keys: Sequence[bytes]) -> list[int | BlockedKey]:
        """Return for each of *keys* its BlockedKey if it is blocked, else its owner."""
        targets: list[int | BlockedKey] = [*self._owners.owners_of(keys)]
        if self.blocked_keys:
            blocked = self.blocked_keys.blocked_among(keys)
            for at, key in enumerate(keys if blocked else ()):
                if key in blocked:
                    targets[at] = self.blocked_keys[key]
        return targets

    def _put(self, target: int | BlockedKey, selection: Selection) -> None:
        if isinstance(target, BlockedKey):
            target.put(selection)
            self._unblock(target)
            return
        queue = self._queues[target]
        selection.checked_at = self.blocked_keys.block_count
        queue.put(selection)
        self.non_empty[queue] = None

    def _unblock(self, blocked: BlockedKey) -> None:
        """Move the messages of *blocked* that may be delivered to the owner's queue."""
        deliverable_below = blocked.deliverable_below
        (owner,) = self._owners.owners_of([blocked.key])
        for selection in list(blocked.selections) if deliverable_below else ():
            chunk = selection.chunk
            passing = bits_below(selection.bits, deliverable_below - chunk.origin)
            if passing == selection.bits:
                blocked.remove(selection)
                self._put(owner, selection)
            elif passing:
                selection.bits ^= passing
                blocked.count -= passing.bit_count()
                part = selection.part(passing)
                chunk.ready[part] = None
                self._put(owner, part)
        if deliverable_below == OFFSET_MAX:
            self.blocked_keys.unblock(blocked)

    # Messages.

    def _chunk_of(self, batch: Batch, origin: int, base: int, end: int) -> BatchChunk:
        """Return the chunk of the new messages ``base … end``."""
        chunk = self._chunks.last
        if chunk is not None and chunk.batch is batch and chunk.origin == origin:
            chunk.end = end
            return chunk
        chunk = BatchChunk.of_batch(batch, origin, base, end)
        self._chunks.insert(chunk)
        return chunk

    def _open_bits(self, base: int, end: int, origin: int) -> int:
        """Return the messages of ``base … end`` that are not done, as bits."""
        cursor = self._cursor
        if cursor.done or base < cursor.offset:
            return bits_of(cursor.open_ranges(base, end), origin)
        return (1 << end - base) - 1 << (base - origin)

    def _add(
        self, selection: Selection, base: int, end: int, expires: float | None
    ) -> None:
        chunk = selection.chunk
        chunk.count += selection.bits.bit_count()
        if expires is not None:
            chunk.expire_at(base, end, expires)
        self._merge(selection)

    def _merge(self, selection: Selection) -> None:
        """Queue *selection* for routing, merged with the one before if possible."""
        last = self._unrouted[-1] if self._unrouted else None
        if (
            last is not None
            and last.bits
            and last.chunk is selection.chunk
            and last.is_like(selection)
        ):
            last.bits |= selection.bits
            return
        self.put_back_selection(selection)


class ConsumerQueue:
    """
    Selections for one consumer, in the order of offsets.

    Messages leave in the order of offsets, even if those of several selections
    interleave.  Each change takes logarithmic time.
    """

    __slots__ = ("_heap", "_serial", "consumer", "count")

    def __init__(self, consumer: int) -> None:
        self.consumer = consumer
        self.count = 0
        """The number of messages that wait."""
        # Each selection with the lowest offset that it had when it was added.  By now
        # that offset may be higher, or the selection may have left the queue.
        self._heap: list[tuple[int, int, Selection]] = []
        self._serial = count()

    def put(self, selection: Selection) -> None:
        """Add *selection*."""
        selection.queue = self
        self.count += selection.bits.bit_count()
        heappush(self._heap, (selection.first, next(self._serial), selection))

    def head(self) -> Selection | None:
        """Return the selection with the lowest offset, or None."""
        heap = self._heap
        while heap:
            noted, serial, selection = heap[0]
            if selection.queue is not self:
                heappop(heap)
                continue
            first = selection.first
            if first == noted:
                return selection
            heapreplace(heap, (first, serial, selection))
        return None

    def leading(self, selection: Selection) -> int:
        """Return the bits of *selection*, the head, that precede all others."""
        # One of the next two entries of a heap has the second lowest offset.
        following = min((each[0] for each in self._heap[1:3]), default=None)
        if following is None:
            return selection.bits
        at = following - selection.chunk.origin
        return bits_below(selection.bits, max(at, lowest_bit(selection.bits) + 1))

    def take(self, selection: Selection, bits: int) -> Selection:
        """Remove *bits*, leading ones, from *selection*, the head, and return them."""
        self.count -= bits.bit_count()
        if bits == selection.bits:
            heappop(self._heap)
            selection.queue = None
            return selection
        selection.bits ^= bits
        _, serial, _ = self._heap[0]
        heapreplace(self._heap, (selection.first, serial, selection))
        return selection.part(bits)

    def pop(self, selection: Selection) -> None:
        """Remove *selection*, the head."""
        heappop(self._heap)
        self.count -= selection.bits.bit_count()
        selection.queue = None

    def returned_below(self) -> int:
        """Return the end of the messages that were delivered before; 0 if none were."""
        return max(
            (
                selection.chunk.origin + selection.bits.bit_length()
                for _, _, selection in self._heap
                if selection.queue is self and selection.attempt > 1
            ),
            default=0,
        )

    def clear(self) -> None:
        """Remove all selections."""
        self._heap.clear()
        self.count = 0

"""
Reading ranges of topics without a subscription, and printing their messages.

Several ranges with an end are merged by publish time.  Ranges without an end are
printed as their messages arrive.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import cast

from pydanube.aio.tasks import gather
from pydanube.client.client import Client
from pydanube.client.messages.messages import MessageBatch, ReceivedBatch
from pydanube.model.errors import OffsetDropped
from pydanube_cli.messages.message_formats import Renderer
from pydanube_cli.messages.message_selection import select_messages
from pydanube_cli.messages.pure.conditions import Condition
from pydanube_cli.messages.topic_ranges import TopicRange
from pydanube_cli.presentation.output import print_note
from pydanube_cli.presentation.standard_streams import OutputStream

PREFETCH_BYTES = 64 * 1024 * 1024
"""The bytes that all readers of a command hold together."""
READER_BYTES_MAX = 8 * 1024 * 1024

Batches = AsyncGenerator[MessageBatch]


class LimitReached(Exception):
    """The wanted number of messages has been printed."""


class Printer:
    """Prints messages that fulfil conditions, at most *limit* of them; None: all."""

    def __init__(
        self,
        output: OutputStream,
        render: Renderer,
        limit: int | None,
        conditions: Sequence[Condition] = (),
    ) -> None:
        self._output = output
        self._render = render
        self._left = limit
        self._conditions = conditions
        self._turn = asyncio.Lock()

    async def print_all(self, batches: Batches) -> None:
        """
        Print *batches* as they arrive; other calls may print between them.

        Raises:
            LimitReached: This was the last message.
            BrokenPipeError: The reader of the output has closed it.
        """
        async with aclosing(batches):
            async for batch in batches:
                selected = select_messages(batch, self._conditions)
                if not selected:
                    # Long batches without output must not delay Ctrl-C.
                    await asyncio.sleep(0)
                    continue
                async with self._turn:
                    await self._print(selected)

    async def _print(self, batch: MessageBatch) -> None:
        if self._left is not None:
            if len(batch) > self._left:
                batch = MessageBatch.of(batch.topic, batch[: self._left])
            self._left -= len(batch)
        await self._output.write(b"".join(self._render(batch)))
        if self._left == 0:
            raise LimitReached


async def print_ranges(
    client: Client, ranges: Sequence[TopicRange], printer: Printer
) -> None:
    """
    Print the messages of *ranges*, which have ends, in the order of publish times.

    The messages of each range stay in their order, also if their times do not rise.

    Bounds: The ranges hold about ``PREFETCH_BYTES`` together, but each may hold two
        batches, however large these are.
    """
    wanted = [each for each in ranges if each.end is not None and each.base < each.end]
    readers = [_read_range(client, each, len(wanted)) for each in wanted]
    await printer.print_all(readers[0] if len(readers) == 1 else merge(readers))


async def follow_ranges(
    client: Client, ranges: Sequence[TopicRange], printer: Printer, output: OutputStream
) -> None:
    """
    Print the messages of *ranges*, which have no ends, as they arrive.

    Bounds: As ``print_ranges``.

    Raises:
        BrokenPipeError: The reader of *output* has closed it, also if there are no
            messages to print.
    """
    readers = (_read_range(client, each, len(ranges)) for each in ranges)
    await gather(
        [output.wait_for_broken_pipe(), *(printer.print_all(each) for each in readers)]
    )


async def _read_range(client: Client, wanted: TopicRange, count: int) -> Batches:
    """Read one of *count* ranges; skip messages that retention drops meanwhile."""
    topic, offset = wanted.topic, wanted.base
    while True:
        reading = client.read(
            topic,
            start=offset,
            end=wanted.end,
            follow=wanted.end is None,
            prefetch_bytes=min(READER_BYTES_MAX, PREFETCH_BYTES // count),
        )
        try:
            async with aclosing(cast("Batches", reading)) as batches:
                async for batch in batches:
                    yield batch
                    offset = batch.offsets[-1] + 1
        except OffsetDropped:
            if wanted.is_base_exact and offset == wanted.base:
                raise
            first = (await client.topics.describe(topic)).base_offset
            if first <= offset:
                raise
            print_note(
                f"Retention has dropped the messages before offset {first} of {topic} "
                f"while they were read; those from offset {offset} on are missing."
            )
            offset = first
        else:
            return


class _Head:
    """The next message of a reader, which is merged with others."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._batch: ReceivedBatch
        self._times: Sequence[int]
        self._index = 0

    async def load(self) -> bool:
        """Return whether there is a message, after reading the next batch if needed."""
        batch = await anext(self._batches, None)
        if batch is None:
            return False
        # A reader yields each received batch alone and whole.
        [(self._batch, self._index, _)] = batch.slices
        first = self._batch.frame.header.first_publish_time
        self._times = self._batch.times or [first] * self._batch.count
        return True

    @property
    def time(self) -> int:
        """The publish time of the next message."""
        return self._times[self._index]

    @property
    def is_loaded(self) -> bool:
        return self._index < self._batch.count

    def take(self, until: int | None) -> MessageBatch:
        """Return the next message, and those after it that are not after *until*."""
        base, times = self._index, self._times
        end = base + 1
        while end < len(times) and (until is None or times[end] <= until):
            end += 1
        self._index = end
        return MessageBatch(self._batch.topic, [(self._batch, base, end)])


async def merge(readers: Sequence[Batches]) -> Batches:
    """Yield the messages of *readers* by publish time, in the order of each reader."""
    async with AsyncExitStack() as opened:
        for each in readers:
            await opened.enter_async_context(aclosing(each))
        heads = [_Head(each) for each in readers]
        loaded = await gather(head.load() for head in heads)
        queue = [(heads[at].time, at) for at, is_there in enumerate(loaded) if is_there]
        heapq.heapify(queue)
        while queue:
            _, at = heapq.heappop(queue)
            head = heads[at]
            yield head.take(queue[0][0] if queue else None)
            if head.is_loaded or await head.load():
                heapq.heappush(queue, (head.time, at))

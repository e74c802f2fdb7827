"""Messages of several topics are merged, limited, and followed."""

import asyncio
import os
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.client.messages.messages import MessageBatch, ReceivedBatch
from pydanube.model.errors import OffsetDropped
from pydanube_cli.messages.message_formats import RENDERERS, Output
from pydanube_cli.messages.topic_ranges import TopicRange, find_ranges
from pydanube_cli.messages.topic_reading import (
    LimitReached,
    Printer,
    follow_ranges,
    merge,
    print_ranges,
)
from pydanube_cli.presentation.standard_streams import OutputStream
from support.drivers.running import TOPIC, published
from support.fakes.batches import frame_of

OTHER = "/default/refunds"
RAW = RENDERERS[Output.TEXT, False]


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        with suppress(OSError):
            os.close(descriptor)


def printer_to(descriptor, limit=None):
    return Printer(OutputStream(descriptor), RAW, limit)


async def batches(*times):
    """Yield a batch for each of *times*, the publish times of its messages."""
    for each in times:
        payloads = [str(time).encode() for time in each]
        received = ReceivedBatch(frame_of(payloads, publish_times=each), TOPIC, 1)
        yield MessageBatch(TOPIC, [(received, 0, len(each))])


async def merged(readers):
    found = []
    async for batch in merge([batches(*each) for each in readers]):
        found += map(int, batch.payloads)
    return found


STREAM = st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=4), max_size=3)


@given(st.lists(STREAM, max_size=4))
def test_sorted_readers_are_merged_by_time(readers):
    numbered = [
        [time * 10 + n for part in each for time in part]
        for n, each in enumerate(readers)
    ]
    in_order = [[sorted(each)] if each else [] for each in numbered]
    everything = sorted(time for each in numbered for time in each)
    assert asyncio.run(merged(in_order)) == everything


@given(st.lists(STREAM, max_size=4))
def test_merged_readers_keep_their_own_order(readers):
    numbered = [
        [[time * 10 + n for time in part] for part in each]
        for n, each in enumerate(readers)
    ]
    found = asyncio.run(merged(numbered))
    for n, each in enumerate(numbered):
        mine = [time for part in each for time in part]
        assert [time for time in found if time % 10 == n] == mine
    assert len(found) == sum(len(part) for each in readers for part in each)


async def test_ranges_are_printed_by_time_up_to_the_end_that_they_had(client, pipe):
    read, write = pipe
    for topic, times in ((TOPIC, [1, 4, 2]), (OTHER, [3, 5])):
        async with client.producer(topic) as producer:
            stamps = pa.array(times, pa.timestamp("us", "UTC"))
            payloads = [str(time).encode() for time in times]
            await producer.send_batch(
                pa.table({"payload": payloads, "publish_time": stamps})
            )
    ranges = await find_ranges(client, [TOPIC, OTHER], "earliest", "latest")
    await published(client, b"later")
    await print_ranges(client, ranges, printer_to(write))
    assert os.read(read, 100) == b"1\n3\n4\n2\n5\n"


async def test_nothing_is_printed_beyond_the_limit(client, pipe):
    read, write = pipe
    await published(client, b"a", b"b", b"c")
    ranges = await find_ranges(client, [TOPIC], "earliest", "latest")
    with pytest.raises(LimitReached):
        await print_ranges(client, ranges, printer_to(write, limit=2))
    assert os.read(read, 100) == b"a\nb\n"


async def test_new_messages_of_all_topics_are_followed(client, pipe):
    read, write = pipe
    await published(client, b"old")
    await published(client, b"old", topic=OTHER)
    ranges = await find_ranges(client, [TOPIC, OTHER], "latest", None)
    following = follow_ranges(
        client, ranges, printer_to(write, limit=2), OutputStream(write)
    )
    async with asyncio.TaskGroup() as tasks:
        ended = tasks.create_task(_until_limit(following))
        await published(client, b"1")
        await published(client, b"2", topic=OTHER)
    assert ended.result()
    assert sorted(os.read(read, 100).split()) == [b"1", b"2"]


async def _until_limit(following):
    try:
        await following
    except LimitReached:
        return True
    return False


async def test_following_ends_when_the_reader_closes_the_pipe_of_a_quiet_topic(
    client, pipe
):
    read, write = pipe
    await client.topics.create(TOPIC)
    ranges = await find_ranges(client, [TOPIC], "latest", None)
    os.close(read)
    with pytest.raises(BrokenPipeError):
        await follow_ranges(client, ranges, printer_to(write), OutputStream(write))


class DroppingClient:
    """A client whose topic loses its messages before offset 5 during the first read."""

    def __init__(self, client):
        self._client = client
        self.starts = []

    def read(self, topic, *, start, **options):
        self.starts.append(start)
        if start < 5:
            return self._begin(topic)
        return self._client.read(topic, start=start, **options)

    async def _begin(self, topic):
        if self.starts == [0]:
            async for batch in self._client.read(topic, end=2):
                yield batch
        raise OffsetDropped("offset 2 does not exist any more")

    @property
    def topics(self):
        return self

    async def describe(self, topic):
        return replace(await self._client.topics.describe(topic), base_offset=5)


async def test_messages_dropped_while_they_are_read_are_skipped_with_a_note(
    client, pipe, capsys
):
    read, write = pipe
    await published(client, *(str(n).encode() for n in range(7)))
    dropping = DroppingClient(client)
    wanted = TopicRange(topic=TOPIC, base=0, end=7, is_base_exact=False)
    await print_ranges(dropping, [wanted], printer_to(write))
    assert os.read(read, 100) == b"0\n1\n5\n6\n"
    assert dropping.starts == [0, 5]
    assert "from offset 2 on are missing" in capsys.readouterr().err


async def test_start_that_was_dropped_is_an_error(client, pipe):
    _, write = pipe
    await published(client, b"a", b"b")
    wanted = TopicRange(topic=TOPIC, base=1, end=2, is_base_exact=True)
    with pytest.raises(OffsetDropped):
        await print_ranges(DroppingClient(client), [wanted], printer_to(write))

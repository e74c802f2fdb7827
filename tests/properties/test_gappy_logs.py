"""A log with gaps is read like a dictionary of its messages, from any offset."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.wire.batches import runs_of
from pydanube_broker.storage.segments.segments import FRAME_OFFSETS_MAX
from support.fakes.compacted import compact, offer
from support.fakes.storages import World, open_topic, publish, seal

batches = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@st.composite
def logs(draw):
    """The number of messages in each batch of each segment, and which are kept."""
    segments = draw(st.lists(batches, min_size=1, max_size=4))
    tail = draw(st.lists(st.integers(1, 4), max_size=2))
    sealed = sum(map(sum, segments))
    kept = draw(st.sets(st.integers(0, sealed - 1)))
    cuts = draw(st.sets(st.integers(1, len(segments)), max_size=3))
    return segments, tail, kept | {sealed - 1}, sorted({*cuts, len(segments)})


def message(offset):
    return {
        "payload": b"%d" % offset + b"x" * (offset % 7),
        "key": None if offset % 5 == 0 else b"k%d" % (offset % 3),
        "time": 1_700_000_000_000_000 + 1000 * offset,
    }


async def fill(storage, segments, tail):
    log = await open_topic(storage)
    offset = 0
    for is_sealed, group in [*((True, each) for each in segments), (False, tail)]:
        for count in group:
            rows = [message(at) for at in range(offset, offset + count)]
            await publish(
                log,
                *(row["payload"] for row in rows),
                keys=[row["key"] for row in rows],
                publish_times=[row["time"] for row in rows],
                schema_id=offset % 2,
            )
            offset += count
        if is_sealed:
            await seal(storage, 1)
    return log


def rows_of(frame):
    """Offset and payload of each message."""
    rows = frame.check()
    offsets = [at for base, end in frame.ranges() for at in range(base, end)]
    return list(zip(offsets, rows.column("payload").to_pylist(), strict=True))


@pytest.mark.slow
@given(logs(), st.integers(1, 60), st.integers(1, 4), st.integers(0, 80))
async def test_every_message_that_stays_is_read_once_from_any_offset(
    log_, frame_bytes, rows_max, start
):
    segments, tail, kept, cuts = log_
    world = World()
    async with world.storage(frame_bytes=frame_bytes, cache_bytes_max=200) as store:
        log = await fill(store, segments, tail)
        old, begin = log.segments, 0
        for cut in cuts:
            group = old[begin:cut]
            begin = cut
            offered = await offer(
                world.objects, log, group, lambda at: at in kept, rows_max=rows_max
            )
            names = [each.object_name for each in group]
            await store.replace_segments(1, names, [offered])
        sealed, end = log.sealed_offset, log.end_offset
        expected = [
            (at, message(at)["payload"])
            for at in range(end)
            if at in kept or at >= sealed
        ]
        begin = min(start, end)
        wanted = [row for row in expected if row[0] >= begin]
        got, offset = [], begin
        while offset < end:
            frames = await log.read(offset, bytes_max=frame_bytes)
            assert frames, "there is a message behind every gap"
            for frame in frames:
                assert frame.end > offset
                got += [row for row in rows_of(frame) if row[0] >= offset]
                assert frame.end - frame.base <= FRAME_OFFSETS_MAX
                offset = frame.end
        assert got == wanted
        assert log.missing_from(0) == end - len(expected)
        # Times rise with offsets here, so the first match is the expected one.
        time = message(begin)["time"]
        first = next((at for at, _ in wanted), end)
        if begin < end and first < sealed:
            assert await log.find_time(time) == first
        # Merging the segments again changes nothing.
        await compact(store, world.objects, log, lambda _: True)
        assert log.missing_from(0) == end - len(expected)


@settings(max_examples=2 * settings.default.max_examples)
@given(
    st.sets(st.integers(0, 200), min_size=1), st.integers(0, 210), st.integers(0, 210)
)
def test_a_frame_with_gaps_is_cut_by_offsets(offsets, base, end):
    from pydanube.model.batch import Column, schema_of
    from pydanube.wire.batches import BatchHeader, encode_rows

    numbers = sorted(offsets)
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"%d" % at for at in numbers], pa.binary()), pa.array(numbers)],
        schema=schema_of(Column.PAYLOAD | Column.OFFSET),
    )
    header = BatchHeader(
        count=0, columns=0, first_publish_time=5, last_publish_time=5, epoch=3
    )
    frame = encode_rows(rows, header)
    assert (frame.base, frame.end) == (numbers[0], numbers[-1] + 1)
    assert frame.ranges() == runs_of(pa.array(numbers, pa.int64()))
    assert frame.has_gaps == (numbers[-1] - numbers[0] + 1 > len(numbers))
    part = frame.within(base, end)
    inside = [at for at in numbers if base <= at < end]
    if not inside:
        assert part is None
        return
    assert rows_of(part) == [(at, b"%d" % at) for at in inside]
    assert rows_of(frame.take(part.ranges())) == rows_of(part)
    assert part.header.epoch == 3

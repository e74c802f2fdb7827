import tracemalloc

from pydanube.wire.batches import Codec, decode
from pydanube_broker.storage.segments.tail import Tail, held_bytes_of
from support.fakes.batches import empty_messages, frame_of, offsets_of


def tail_of(*counts, base=0):
    tail = Tail(base)
    for now, count in enumerate(counts):
        frame = frame_of([b"x" * 10] * count)
        frame.stamp(tail.end, 1)
        tail.append(frame, float(now))
    return tail


def test_frames_are_found_by_any_of_their_offsets():
    tail = tail_of(3, 1, 4, base=10)
    assert [tail.frames_from(at, 1)[0].base for at in range(10, 18)] == (
        [10] * 3 + [13] + [14] * 4
    )


def test_no_frames_are_found_after_the_end():
    assert tail_of(3).frames_from(3, 100) == []
    assert Tail(7).frames_from(7, 100) == []


def test_as_many_frames_come_as_the_limit_allows_but_at_least_one():
    tail = tail_of(1, 1, 1)
    size = tail.memory_bytes // 3
    assert [len(tail.frames_from(0, limit)) for limit in (1, size, 2 * size)] == [
        1,
        1,
        2,
    ]
    assert offsets_of(tail.frames_from(1, 10**6)) == [1, 2]


def test_frames_count_for_what_they_take_when_they_are_decoded():
    tail = Tail(0)
    for _ in "abc":
        frame = empty_messages(10_000, Codec.ZSTD)
        frame.stamp(tail.end, 1)
        held = tail.append(frame, 0.0)
    size = frame.memory_bytes
    assert tail.byte_count < 1000
    assert tail.memory_bytes == 3 * size > 3 * 10_000 * 20
    assert tail.held_bytes == 3 * held == 3 * held_bytes_of(frame)
    assert len(tail.frames_from(0, 2 * size)) == 2
    assert tail.drop_below(10_000) == held
    assert tail.memory_bytes == 2 * size
    assert tail.held_bytes == 2 * held


def test_frames_of_one_small_message_count_for_the_memory_that_they_take():
    whole = bytes(frame_of([b"x" * 100]).buffer)
    tail = Tail(0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for at in range(2000):
            frame = decode(bytearray(whole))
            frame.stamp(at, 1)
            tail.append(frame, float(at))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.7 * tail.held_bytes < taken < 1.1 * tail.held_bytes


def test_dropping_takes_only_whole_frames():
    tail = tail_of(3, 2, 2)
    before = tail.byte_count
    assert tail.drop_below(4) > 0
    assert tail.base == 3
    assert tail.byte_count < before
    assert tail.oldest_time == 1.0
    tail.drop_below(7)
    assert (tail.base, tail.end, tail.byte_count, len(tail)) == (7, 7, 0, 0)
    assert tail.oldest_time is None


def test_frames_that_a_reader_holds_stay():
    tail = tail_of(2, 2)
    held = tail.frames_from(0, 10**6)
    tail.drop_below(4)
    assert offsets_of(held) == [0, 1, 2, 3]


def test_the_bytes_from_an_offset_on_are_those_of_the_frames():
    tail = tail_of(3, 1, 4, base=10)
    sizes = [frame.byte_count for frame in tail.frames_from(10, 10**6)]
    assert tail.bytes_from(0) == tail.bytes_from(12) == sum(sizes)
    assert tail.bytes_from(13) == sum(sizes[1:])
    tail.drop_below(13)
    assert tail.bytes_from(0) == tail.byte_count == sum(sizes[1:])
    assert tail.bytes_from(17) == sizes[2]
    assert tail.bytes_from(18) == 0
    tail.drop_below(18)
    assert tail.bytes_from(0) == 0


def test_frame_of_an_offset_is_found():
    tail = tail_of(3, 1, base=10)
    assert tail.find(12).base == 10
    assert tail.find(13).base == 13
    assert tail.find(9) is None
    assert tail.find(14) is None

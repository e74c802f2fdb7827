"""Messages can be told apart, and long runs send the same ones again."""

import zlib

import pytest

from bench.payloads import (
    RING_BYTES,
    Rings,
    headers_of,
    make_ring,
    pieces,
    ring_length,
)


@pytest.mark.parametrize("message_bytes", [16, 100, 1024])
def test_every_message_carries_its_place(message_bytes):
    ring = make_ring(50, message_bytes)

    assert {len(payload) for payload in ring} == {message_bytes}
    assert headers_of(ring)["place"].tolist() == list(range(50))


def test_streams_are_told_apart():
    ring = make_ring(3, 32, stream=7)

    assert (headers_of(ring)["place"] >> 40).tolist() == [7, 7, 7]
    assert ring[0][16:] != make_ring(3, 32)[0][16:]


def test_with_a_rate_messages_say_when_they_are_due():
    ring = make_ring(4, 16, rate=1000)

    assert headers_of(ring)["time"].tolist() == [0, 1_000_000, 2_000_000, 3_000_000]


def test_messages_do_not_compress():
    data = b"".join(make_ring(200, 1024))

    assert len(zlib.compress(data)) > 0.98 * len(data)


def test_headers_of_messages_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="one length"):
        headers_of([bytes(20), bytes(21)])


def test_a_message_without_room_for_its_header_is_refused():
    with pytest.raises(ValueError, match="at least 16"):
        make_ring(1, 15)


def test_a_stream_goes_round_and_round_its_ring():
    ring = make_ring(4, 16)

    taken = pieces(ring, 3, 7)

    assert headers_of(taken)["place"].tolist() == [3, 0, 1, 2, 3, 0, 1]


def test_a_ring_is_as_long_as_memory_allows():
    assert ring_length(1000, 100) == 1000
    assert ring_length(10**9, 100) <= RING_BYTES // 100
    assert ring_length(10**9, 64 * 1024) <= RING_BYTES // (64 * 1024)
    assert ring_length(10**9, 64 * 1024, streams=1000) == 16


def test_a_ring_that_was_made_is_kept_and_its_beginning_is_a_shorter_one():
    rings = Rings()

    long = rings.ring(20, 32)

    assert rings.ring(20, 32) is long
    assert rings.ring(5, 32) == long[:5]
    assert len(rings.ring(30, 32)) == 30

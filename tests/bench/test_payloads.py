"""Tests of the messages that are sent."""

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
def test_message_has_its_sequence(message_bytes):
    ring = make_ring(50, message_bytes)

    assert {len(payload) for payload in ring} == {message_bytes}
    assert headers_of(ring)["place"].tolist() == list(range(50))


def test_streams_have_distinct_headers():
    ring = make_ring(3, 32, stream=7)

    assert (headers_of(ring)["place"] >> 40).tolist() == [7, 7, 7]
    assert ring[0][16:] != make_ring(3, 32)[0][16:]


def test_paced_messages_have_their_due_time():
    ring = make_ring(4, 16, rate=1000)

    assert headers_of(ring)["time"].tolist() == [0, 1_000_000, 2_000_000, 3_000_000]


def test_messages_are_incompressible():
    data = b"".join(make_ring(200, 1024))

    assert len(zlib.compress(data)) > 0.98 * len(data)


def test_messages_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="one length"):
        headers_of([bytes(20), bytes(21)])


def test_message_smaller_than_its_header_is_refused():
    with pytest.raises(ValueError, match="at least 16"):
        make_ring(1, 15)


def test_stream_repeats_its_ring():
    ring = make_ring(4, 16)

    taken = pieces(ring, 3, 7)

    assert headers_of(taken)["place"].tolist() == [3, 0, 1, 2, 3, 0, 1]


def test_ring_length_is_bounded_by_memory():
    assert ring_length(1000, 100) == 1000
    assert ring_length(10**9, 100) <= RING_BYTES // 100
    assert ring_length(10**9, 64 * 1024) <= RING_BYTES // (64 * 1024)
    assert ring_length(10**9, 64 * 1024, streams=1000) == 16


def test_rings_are_cached_and_share_a_prefix():
    rings = Rings()

    long = rings.ring(20, 32)

    assert rings.ring(20, 32) is long
    assert rings.ring(5, 32) == long[:5]
    assert len(rings.ring(30, 32)) == 30

"""Routing of messages with and without keys to partitions."""

from collections import Counter

import pytest

from pydanube.client.pure.routing import Router, fnv1a_64


# Test vectors of the hash's authors: other clients must compute the same.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"b", 0xAF63DF4C8601F1A5),
        (b"foobar", 0x85944171F73967E8),
        (b"hello", 0xA430D84680AABD0B),
        (b"\xff\x00\x00\x01", 0x6961196491CC682D),
    ],
)
def test_hash_is_fnv1a_of_64_bits(data, expected):
    assert fnv1a_64(data) == expected


def test_key_goes_to_its_hash_modulo_the_partitions():
    assert [Router(3).partition_for(key) for key in (b"a", b"foobar", b"hello")] == [
        0xAF63DC4C8601EC8C % 3,
        0x85944171F73967E8 % 3,
        0xA430D84680AABD0B % 3,
    ]


def test_added_partitions_are_used_from_the_next_message_on():
    router = Router(1)
    assert router.advance() == 0
    router.partitions = 2
    assert [router.advance() for _ in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("count", [2, 8])
def test_many_keys_are_about_evenly_spread(count):
    router = Router(count)
    found = Counter(router.partition_for(f"user-{n}".encode()) for n in range(20_000))
    assert max(found.values()) < 1.1 * 20_000 / count
    assert min(found.values()) > 0.9 * 20_000 / count

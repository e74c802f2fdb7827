"""Shares of the ring are even, and few keys move."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from pydanube_broker.dispatch.key_shared.hash_ring import (
    POINTS_PER_OWNER,
    HashRing,
    hash_of,
)

KEYS = [f"key-{number}".encode() for number in range(1000)]


def ring_of(*owners, prefix="consumer"):
    ring = HashRing()
    for owner in owners:
        ring.add(owner, f"{prefix}-{owner}")
    return ring


def owners_in(ring, **options):
    return {key: ring.owner_of(key, **options) for key in KEYS}


@pytest.mark.parametrize(
    "prefix", ["", "a", "consumer", "10.0.0.1:5000", "ß", "0" * 50]
)
@pytest.mark.parametrize("first", [0, 1, 90, 100_000, 2**31])
def test_no_owner_has_more_than_twice_the_mean(prefix, first):
    owners = range(first, first + 8)
    shares = list(owners_in(ring_of(*owners, prefix=prefix)).values())
    counts = [shares.count(owner) for owner in owners]
    assert max(counts) < 2 * len(KEYS) / 8
    assert min(counts) > len(KEYS) / 8 / 2


NAMES_OF_TWO = {
    "numbered": lambda n, rng: (f"worker-{n}", f"worker-{n + 1}"),
    "anonymous": lambda n, rng: tuple(
        f"consumer-{rng.getrandbits(48):012x}" for _ in range(2)
    ),
    "pods": lambda n, rng: (f"orders-{n}-0", f"orders-{n}-1"),
}


@pytest.mark.parametrize("kind", NAMES_OF_TWO)
def test_two_owners_share_many_keys_about_equally(kind):
    rng = random.Random(1)
    pair_count, one_has_all = 60, 0
    few = [b"alpha", b"beta", b"gamma", b"delta", b"epsilon"]
    for n in range(pair_count):
        ring = HashRing()
        for owner, name in enumerate(NAMES_OF_TWO[kind](n, rng)):
            ring.add(owner, name)
        many = [rng.randbytes(8) for _ in range(1000)]
        share = sum(ring.owner_of(key) for key in many) / len(many)
        assert 0.4 < share < 0.6
        one_has_all += len({ring.owner_of(key) for key in few}) == 1
    # The expected value is 1/16 of the pairs.
    assert one_has_all / pair_count < 2 / 16


def test_added_owner_takes_its_share_and_no_other_key_moves():
    ring = ring_of(1, 2, 3, 4)
    before = owners_in(ring)
    ring.add(5, "consumer-5")
    after = owners_in(ring)
    drained = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in drained} == {5}
    assert len(KEYS) / 5 / 2 < len(drained) < len(KEYS) / 5 * 2
    ring.remove(5)
    assert owners_in(ring) == before


def test_order_of_adding_does_not_matter():
    assert owners_in(ring_of(1, 2, 3)) == owners_in(ring_of(3, 1, 2))


def test_owners_are_the_same_in_every_process():
    assert hash_of(b"key") == 0x7DB914A8
    assert owners_in(ring_of(1, 2, 3))[b"key-0"] == 2


def test_remaining_owners_share_the_keys_of_the_others():
    ring = ring_of(1, 2, 3)
    everybody = owners_in(ring)
    some = owners_in(ring, among={1, 3})
    assert set(some.values()) == {1, 3}
    assert all(some[key] == owner for key, owner in everybody.items() if owner != 2)
    assert some == owners_in(ring_of(1, 3))


def test_empty_ring_has_no_owners():
    ring = ring_of(1)
    ring.remove(1)
    assert ring.owner_of(b"key") is None
    assert ring_of(1).owner_of(b"key", among=()) is None


def test_large_ring_assigns_keys_to_the_owner_of_the_next_point():
    owners = range(40)
    points = sorted(
        (hash_of(f"consumer-{owner}-{number}".encode()), owner)
        for owner in owners
        for number in range(POINTS_PER_OWNER)
    )
    expected = {
        key: points[bisect_left(points, (hash_of(key), 0)) % len(points)][1]
        for key in KEYS
    }
    ring = ring_of(*owners)
    assert owners_in(ring) == expected
    for owner in range(3, 40):
        ring.remove(owner)
    assert owners_in(ring) == owners_in(ring_of(0, 1, 2))

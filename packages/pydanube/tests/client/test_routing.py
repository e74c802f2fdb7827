"""Routing of messages with and without keys to partitions."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.client.pure.routing import KEYLESS_RUN_MESSAGES, Router, fnv1a_64
from pydanube.model.batch import batch_of


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


def test_batch_without_keys_stays_together_and_the_next_goes_to_the_next_partition():
    router = Router(3)
    numbers = []
    for _ in range(6):
        [(number, places, piece)] = router.split(batch_of([b"x"] * 5))
        numbers.append(number)
        assert (places.to_pylist(), piece.num_rows) == ([0, 1, 2, 3, 4], 5)
    assert numbers == [0, 1, 2, 0, 1, 2]


def test_very_large_batch_without_keys_is_spread():
    router = Router(4)
    batch = batch_of([b"x"] * (4 * KEYLESS_RUN_MESSAGES))
    assert [number for number, _, _ in router.split(batch)] == [0, 1, 2, 3]


def test_messages_without_a_key_in_a_keyed_batch_share_one_partition():
    router = Router(5)
    keys = [b"k", None, b"k", None]
    batch = batch_of([b"0", b"1", b"2", b"3"], keys=keys)
    found = {
        number: piece.column("payload").to_pylist()
        for number, _, piece in router.split(batch)
    }
    assert found[router.partition_for(b"k")] == [b"0", b"2"]
    assert found[0] == [b"1", b"3"]
    assert router.current == 1


def test_added_partitions_are_used_from_the_next_message_on():
    router = Router(1)
    assert router.advance() == 0
    router.partitions = 2
    assert [router.advance() for _ in range(3)] == [1, 0, 1]


keys = st.one_of(st.none(), st.binary(max_size=4), st.sampled_from([b"a", b"b", b""]))


@given(st.lists(keys, min_size=1, max_size=60), st.integers(1, 7))
def test_splitting_loses_nothing_and_keeps_the_order_of_each_partition(keys, count):
    router = Router(count)
    batch = batch_of([str(n).encode() for n in range(len(keys))], keys=keys)
    if batch.column("key").null_count == len(keys):
        batch = batch.drop_columns(["key"])
    seen = []
    for number, placed, piece in router.split(batch):
        assert 0 <= number < count
        places = placed.to_pylist()
        assert places == sorted(places)
        assert piece.column("payload").to_pylist() == [str(n).encode() for n in places]
        for place in places:
            if keys[place] is not None:
                assert number == router.partition_for(keys[place])
        seen += places
    assert sorted(seen) == list(range(len(keys)))


@pytest.mark.parametrize("count", [2, 8])
def test_many_keys_are_about_evenly_spread(count):
    router = Router(count)
    found = Counter(router.partition_for(f"user-{n}".encode()) for n in range(20_000))
    assert max(found.values()) < 1.1 * 20_000 / count
    assert min(found.values()) > 0.9 * 20_000 / count


def test_same_key_twice_in_a_batch_is_hashed_once():
    router = Router(2)
    batch = batch_of([b"x"] * 1000, keys=[b"same"] * 1000)
    fnv1a_64.cache_clear()
    list(router.split(batch))
    assert fnv1a_64.cache_info().misses + fnv1a_64.cache_info().hits == 1


def test_piece_of_a_batch_is_a_batch_of_the_envelope():
    batch = batch_of([b"a", b"b"], keys=[b"1", b"2"], attributes=[{"x": "y"}, None])
    for _, _, piece in Router(9).split(batch):
        assert piece.schema == batch.schema
        assert isinstance(piece, pa.RecordBatch)

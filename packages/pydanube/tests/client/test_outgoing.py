"""Batches on their way to the broker, of Python sequences and of Arrow data."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.client.pure.outgoing import (
    ArrowBatch,
    ColumnBatch,
    DeliveryWindow,
)
from pydanube.client.pure.routing import KEYLESS_RUN_MESSAGES, Router, fnv1a_64
from pydanube.model.batch import attributes_of
from pydanube.model.errors import InvalidRequest
from pydanube.model.message_columns import MessageColumns
from pydanube.wire.batches import BatchHeader, Codec, Column

NOW = 1_700_000_000_000_000


def of_columns(payloads, **columns):
    return ColumnBatch(MessageColumns(payloads=payloads, **columns))


def of_arrow(payloads, **columns):
    return ArrowBatch(MessageColumns(payloads=payloads, **columns).to_arrow())


@pytest.fixture(params=[of_columns, of_arrow])
def batch_of(request):
    """Return the function that makes a batch."""
    return request.param


def encoded(batch):
    header = BatchHeader(first_publish_time=NOW, last_publish_time=NOW)
    return batch.encode(header, Codec.NONE)


def column(batch, name):
    found = encoded(batch).check().column(name)
    return (found if name in ("payload", "key") else found.cast(pa.int64())).to_pylist()


def attributes(batch):
    rows = encoded(batch).check().column("attributes").to_pylist()
    return [attributes_of(each) for each in rows]


def places(indexes):
    return indexes.to_pylist() if isinstance(indexes, pa.Array) else list(indexes)


def test_batch_knows_its_size_and_columns(batch_of):
    batch = batch_of(
        [b"abc", b""],
        keys=[b"k", None],
        attributes=[{"name": "é"}, None],
        publish_times=[NOW, NOW + 1],
    )
    assert batch.count == 2
    assert batch.columns == (
        Column.PAYLOAD | Column.KEY | Column.ATTRIBUTES | Column.PUBLISH_TIME
    )
    assert batch.times(5) == (NOW, NOW + 1)
    assert batch_of([b"a"]).times(5) == (5, 5)
    # The frame adds its header, and each buffer its padding.
    assert batch.byte_count <= encoded(batch).byte_count <= batch.byte_count + 700


def test_slice_has_the_messages_between_two_indexes(batch_of):
    batch = batch_of([b"0", b"1", b"2"], keys=[None, b"k", None]).slice(1, 3)
    assert column(batch, "payload") == [b"1", b"2"]
    assert column(batch, "key") == [b"k", None]


def test_window_is_that_of_each_message(batch_of):
    batch = batch_of([b"0", b"1"]).with_window(DeliveryWindow(NOW, NOW + 1))
    assert column(batch, "deliver_at") == [NOW, NOW]
    assert column(batch, "expires_at") == [NOW + 1, NOW + 1]
    batch = batch_of([b"0"]).with_window(DeliveryWindow(None, NOW))
    assert batch.columns == Column.PAYLOAD | Column.EXPIRES_AT


def test_window_of_arrow_data_is_given_once():
    batch = of_arrow([b"a"], expires_at=[NOW + 9])
    with_both = batch.with_window(DeliveryWindow(NOW, None))
    assert column(with_both, "deliver_at") == [NOW]
    assert column(with_both, "expires_at") == [NOW + 9]
    with pytest.raises(InvalidRequest, match="expires_at of its own"):
        batch.with_window(DeliveryWindow(None, NOW))


def test_ids_and_attributes_join_those_of_each_message(batch_of):
    own = [{"a": "1"}, None]
    batch = batch_of([b"0", b"1"], attributes=own, deliver_at=[NOW, None])
    assert attributes(batch.with_ids(["x", "y"])) == [
        {"a": "1", "x-deduplication-id": "x"},
        {"x-deduplication-id": "y"},
    ]
    assert attributes(batch.with_attributes({"b": "2"})) == [
        {"a": "1", "b": "2"},
        {"b": "2"},
    ]
    plain = batch_of([b"0", b"1"], deliver_at=[NOW, None])
    assert attributes(plain.with_attributes({"b": "2"})) == [{"b": "2"}] * 2
    assert attributes(plain.with_ids(["x", "y"]))[1] == {"x-deduplication-id": "y"}


def test_attribute_that_is_no_text_in_utf_8_is_named():
    batch = of_columns([b"0"], attributes=[{"name": "\ud800"}])
    with pytest.raises(InvalidRequest, match=r"name.*surrogates not allowed"):
        batch.byte_count  # noqa: B018
    with pytest.raises(InvalidRequest, match="surrogates not allowed"):
        encoded(batch)


def test_batch_without_keys_stays_together_and_the_next_goes_to_the_next_partition(
    batch_of,
):
    router = Router(3)
    numbers = []
    for _ in range(6):
        [(number, indexes, piece)] = batch_of([b"x"] * 5).split(router, base=2)
        numbers.append(number)
        assert (places(indexes), piece.count) == ([2, 3, 4, 5, 6], 5)
    assert numbers == [0, 1, 2, 0, 1, 2]


def test_very_large_batch_without_keys_is_spread(batch_of):
    batch = batch_of([b"x"] * (4 * KEYLESS_RUN_MESSAGES))
    assert [number for number, _, _ in batch.split(Router(4))] == [0, 1, 2, 3]


def test_messages_without_a_key_in_a_keyed_batch_share_one_partition(batch_of):
    router = Router(5)
    batch = batch_of([b"0", b"1", b"2", b"3"], keys=[b"k", None, b"k", None])
    found = {
        number: column(piece, "payload") for number, _, piece in batch.split(router)
    }
    assert found[router.partition_for(b"k")] == [b"0", b"2"]
    assert found[0] == [b"1", b"3"]
    assert router.current == 1


def test_messages_without_a_key_are_routed_by_their_ids(batch_of):
    router = Router(7)
    batch = batch_of([b"0", b"1"], keys=[b"k", None])
    for number, indexes, _ in batch.split(router, ["a", "b"], base=4):
        for at in places(indexes):
            assert number == router.partition_for([b"k", b"b"][at - 4])
    [(number, _, _)] = batch_of([b"0"]).split(router, ["a"])
    assert number == router.partition_for(b"a")
    assert router.current == 0


keys = st.one_of(st.none(), st.binary(max_size=4), st.sampled_from([b"a", b"b", b""]))


@pytest.mark.parametrize("make", [of_columns, of_arrow])
@given(keys=st.lists(keys, min_size=1, max_size=60), count=st.integers(1, 7))
def test_splitting_loses_nothing_and_keeps_the_order_of_each_partition(
    make, keys, count
):
    router = Router(count)
    batch = make([str(n).encode() for n in range(len(keys))], keys=keys)
    seen = []
    for number, indexes, piece in batch.split(router):
        assert 0 <= number < count
        found = places(indexes)
        assert found == sorted(found)
        assert column(piece, "payload") == [str(n).encode() for n in found]
        assert column(piece, "key") == [keys[n] for n in found]
        for place in found:
            if keys[place] is not None:
                assert number == router.partition_for(keys[place])
        seen += found
    assert sorted(seen) == list(range(len(keys)))


def test_same_key_twice_in_a_batch_is_hashed_once(batch_of):
    batch = batch_of([b"x"] * 1000, keys=[b"same"] * 1000)
    fnv1a_64.cache_clear()
    list(batch.split(Router(2)))
    assert fnv1a_64.cache_info().misses + fnv1a_64.cache_info().hits == 1

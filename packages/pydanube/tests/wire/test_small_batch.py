import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.batch import batch_of, schema_of
from pydanube.model.errors import CorruptBatch
from pydanube.wire.batches import BatchHeader, Codec, Column, encode, encode_payloads
from pydanube.wire.small_batch import (
    SMALL_BYTES_MAX,
    SMALL_MESSAGES_MAX,
    decode_small_batch,
    encode_small_batch,
)

payloads = st.lists(st.binary(max_size=60), min_size=1, max_size=12)


@st.composite
def messages(draw):
    """Payloads, and publish times for each of them or none."""
    bodies = draw(payloads)
    count = len(bodies)
    times = st.lists(st.integers(0, 2**50), min_size=count, max_size=count)
    return bodies, draw(st.just([]) | times)


def found_in(body, bodies, times):
    return decode_small_batch(body, 0, len(bodies), has_times=bool(times))


@given(messages())
def test_the_bytes_are_those_that_arrow_writes(drawn):
    bodies, times = drawn

    written = batch_of(bodies, publish_times=times or None).serialize().to_pybytes()

    assert encode_small_batch(bodies, times) == written


@pytest.mark.parametrize("count", [1, 2, 7, 8, SMALL_MESSAGES_MAX])
def test_bytes_of_any_number_of_messages_are_those_of_arrow(count):
    bodies = [bytes([number]) * (number % 5) for number in range(count)]

    assert encode_small_batch(bodies) == batch_of(bodies).serialize().to_pybytes()


@given(messages(), st.integers(0, 9))
def test_encoded_messages_are_decoded(drawn, at):
    bodies, times = drawn
    buffer = bytes(at) + encode_small_batch(bodies, times)

    found = decode_small_batch(buffer, at, len(bodies), has_times=bool(times))

    assert found.payloads() == bodies
    assert list(found.times) == times
    assert found.longest == max(map(len, bodies))


@given(messages())
def test_arrow_reads_what_was_written(drawn):
    bodies, times = drawn
    columns = Column.PAYLOAD | (Column.PUBLISH_TIME if times else 0)
    body = pa.py_buffer(encode_small_batch(bodies, times))

    batch = pa.ipc.read_record_batch(body, schema_of(columns))

    batch.validate(full=True)
    assert batch.column("payload").to_pylist() == bodies


@given(messages(), st.data())
def test_changed_bytes_decode_as_in_arrow(drawn, data):
    bodies, times = drawn
    body = bytearray(encode_small_batch(bodies, times))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))

    found = found_in(body, bodies, times)

    if found is not None:
        columns = Column.PAYLOAD | (Column.PUBLISH_TIME if times else 0)
        batch = pa.ipc.read_record_batch(pa.py_buffer(body), schema_of(columns))
        batch.validate(full=True)
        assert batch.column("payload").to_pylist() == found.payloads()


@given(messages(), st.data())
def test_truncated_or_longer_body_is_not_a_small_batch(drawn, data):
    bodies, times = drawn
    body = encode_small_batch(bodies, times)
    end = data.draw(st.integers(0, len(body) - 1))

    assert found_in(body[:end], bodies, times) is None
    assert found_in(body + bytes(8), bodies, times) is None


@given(st.binary(max_size=400), st.integers(0, 200), st.booleans())
def test_arbitrary_bytes_do_no_harm(data, count, has_times):
    decode_small_batch(data, 0, count, has_times=has_times)


@given(messages(), st.integers(0, 20))
def test_another_count_than_that_of_the_body_is_refused(drawn, count):
    bodies, times = drawn
    body = encode_small_batch(bodies, times)

    found = decode_small_batch(body, 0, count, has_times=bool(times))

    assert (found is not None) == (count == len(bodies))


def test_messages_with_other_columns_are_no_small_batch():
    body = batch_of([b"a"], keys=[b"k"]).serialize().to_pybytes()

    assert decode_small_batch(body, 0, 1, has_times=False) is None
    assert decode_small_batch(body, 0, 1, has_times=True) is None


def test_long_or_many_messages_are_no_small_batch():
    long = encode_small_batch([bytes(SMALL_BYTES_MAX)])
    many = [b""] * (SMALL_MESSAGES_MAX + 1)

    assert decode_small_batch(long, 0, 1, has_times=False) is None
    assert (
        decode_small_batch(encode_small_batch(many), 0, len(many), has_times=False)
        is None
    )


def header(**fields):
    return BatchHeader(
        count=1,
        columns=Column.PAYLOAD,
        first_publish_time=fields.pop("time", 5),
        last_publish_time=5,
        producer="web-1",
    )


@pytest.mark.parametrize("times", [[], [5, 6]])
def test_few_messages_are_framed_as_any_batch(times):
    bodies = [b"hi", b"there"]
    few = encode_payloads(bodies, header(), times)
    as_batch = encode(batch_of(bodies, publish_times=times or None), header())

    assert few.buffer == as_batch.buffer
    few.verify()
    assert few.decode_small_batch().payloads() == bodies


def test_compressed_message_is_no_small_batch():
    frame = encode(batch_of([b"hi"]), header(), Codec.ZSTD)

    assert frame.decode_small_batch() is None
    frame.verify()


@pytest.mark.parametrize("at", [30, 100, 180, 270])
def test_verifying_finds_what_checking_finds(at):
    frame = encode_payloads([bytes(100)], header())
    frame.buffer[at] ^= 1

    with pytest.raises(CorruptBatch):
        frame.verify()


def test_verifying_refuses_impossible_times():
    with pytest.raises(CorruptBatch, match="years"):
        encode_payloads([b"hi"], header(time=2**62)).verify()
    with pytest.raises(CorruptBatch, match="years"):
        encode_payloads([b"hi", b"there"], header(), [5, 2**62]).verify()
    with pytest.raises(CorruptBatch, match="years"):
        encode_payloads([b"hi", b"there"], header(), [-(2**62), 5]).verify()

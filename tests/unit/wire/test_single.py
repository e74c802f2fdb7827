import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.batch import batch_of, schema_of
from pydanube.model.errors import CorruptBatch
from pydanube.wire.batches import BatchHeader, Codec, Column, encode, encode_message
from pydanube.wire.single import SINGLE_BYTES_MAX, encode_single, find_single

payloads = st.binary(max_size=300)


@given(payloads)
def test_the_bytes_are_those_that_arrow_writes(payload):
    assert encode_single(payload) == batch_of([payload]).serialize().to_pybytes()


@given(payloads)
def test_a_payload_is_found_again(payload):
    assert find_single(encode_single(payload)) == payload


@given(payloads)
def test_arrow_reads_what_was_written(payload):
    body = pa.py_buffer(bytes(encode_single(payload)))
    batch = pa.ipc.read_record_batch(body, schema_of(Column.PAYLOAD))
    batch.validate(full=True)
    assert batch.column("payload").to_pylist() == [payload]


@given(payloads, st.data())
def test_a_changed_byte_is_never_taken_for_another_layout(payload, data):
    body = encode_single(payload)
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))

    found = find_single(body)

    # Only the payload and the zeros behind it may differ.
    assert found is None or at >= 168


@given(payloads, st.data())
def test_a_body_that_is_cut_or_longer_is_not_one(payload, data):
    body = bytes(encode_single(payload))
    end = data.draw(st.integers(0, len(body) - 1))

    assert find_single(body[:end]) is None
    assert find_single(body + bytes(8)) is None


@given(st.binary(max_size=400))
def test_arbitrary_bytes_do_no_harm(data):
    find_single(data)


def test_two_messages_or_one_with_a_key_are_arrows_to_read():
    assert find_single(batch_of([b"a", b"b"]).serialize().to_pybytes()) is None
    assert find_single(batch_of([b"a"], keys=[b"k"]).serialize().to_pybytes()) is None


def test_a_long_payload_is_arrows_to_read():
    assert find_single(encode_single(bytes(SINGLE_BYTES_MAX))) is None


def header(**fields):
    return BatchHeader(
        count=1,
        columns=Column.PAYLOAD,
        first_publish_time=fields.pop("time", 5),
        last_publish_time=5,
        producer="web-1",
    )


def test_a_message_is_framed_as_a_batch_of_one():
    alone = encode_message(b"hi", header())
    as_batch = encode(batch_of([b"hi"]), header())

    assert alone.buffer == as_batch.buffer
    alone.verify()
    assert alone.find_single() == b"hi"


def test_a_compressed_message_is_arrows_to_read():
    frame = encode(batch_of([b"hi"]), header(), Codec.ZSTD)

    assert frame.find_single() is None
    frame.verify()


@pytest.mark.parametrize("at", [30, 100, 180, 270])
def test_verifying_finds_what_checking_finds(at):
    frame = encode_message(bytes(100), header())
    frame.buffer[at] ^= 1

    with pytest.raises(CorruptBatch):
        frame.verify()


def test_verifying_refuses_impossible_times():
    with pytest.raises(CorruptBatch, match="years"):
        encode_message(b"hi", header(time=2**62)).verify()

"""Headers are decoded as they were encoded, and memory is bounded."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pydanube.model.errors import ProtocolViolation
from pydanube_broker.wire.grpc import hpack
from pydanube_broker.wire.grpc.hpack import (
    CACHED_BLOCKS_MAX,
    HEADERS_MAX,
    LIST_BYTES_MAX,
    TABLE_BYTES_MAX,
    HeaderDecoder,
    encode_headers,
)


def codes() -> dict[int, str]:
    """The Huffman code of every character, as a text of zeros and ones."""
    found = {}
    code = width = 0
    for length, characters in hpack._LENGTHS:
        code <<= length - width
        width = length
        for character in characters:
            found[ord(character)] = f"{code:0{length}b}"
            code += 1
    return found


def huffman(text: bytes, padding: str = "1") -> bytes:
    bits = "".join(codes()[byte] for byte in text)
    bits += padding * (-len(bits) % 8)
    return int(bits or "0", 2).to_bytes(len(bits) // 8, "big")


def literal(name: bytes, value: bytes, *, first: int = 0x00) -> bytes:
    """A header with short texts that says so itself; 0x40 adds it to the table."""
    return bytes([first, len(name)]) + name + bytes([len(value)]) + value


# The examples of RFC 7541, appendix C.


def test_the_examples_of_single_headers():
    literal_with_indexing = bytes.fromhex(
        "400a637573746f6d2d6b65790d637573746f6d2d686561646572"
    )
    decoder = HeaderDecoder()
    assert decoder.decode(literal_with_indexing) == ((b"custom-key", b"custom-header"),)
    without_indexing = bytes.fromhex("040c2f73616d706c652f70617468")
    assert decoder.decode(without_indexing) == ((b":path", b"/sample/path"),)
    never_indexed = bytes.fromhex("100870617373776f726406736563726574")
    assert decoder.decode(never_indexed) == ((b"password", b"secret"),)
    assert decoder.decode(b"\x82") == ((b":method", b"GET"),)


def test_the_examples_of_requests_with_huffman_codes():
    decoder = HeaderDecoder()
    first = (
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", b"/"),
        (b":authority", b"www.example.com"),
    )
    assert decoder.decode(bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff")) == first
    assert decoder.decode(bytes.fromhex("828684be5886a8eb10649cbf")) == (
        *first,
        (b"cache-control", b"no-cache"),
    )
    assert decoder.decode(
        bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf")
    ) == (
        (b":method", b"GET"),
        (b":scheme", b"https"),
        (b":path", b"/index.html"),
        (b":authority", b"www.example.com"),
        (b"custom-key", b"custom-value"),
    )


# Texts.


def test_every_character_has_a_huffman_code_and_no_code_begins_another():
    found = codes()
    assert set(found) == set(range(256))
    ordered = sorted(found.values())
    assert not any(other.startswith(code) for code, other in pairwise(ordered))
    text = bytes(range(256))
    encoded = huffman(text)
    block = b"\x00\x01x\xff" + bytes([len(encoded) - 127 & 0x7F | 0x80])
    block += bytes([len(encoded) - 127 >> 7]) + encoded
    assert HeaderDecoder().decode(block) == ((b"x", text),)


@pytest.mark.parametrize(
    "encoded",
    [
        huffman(b"a", padding="0"),
        huffman(b"a") + b"\xff",
        b"\xff\xff\xff\xff",
        b"\xfe",
    ],
    ids=["zeros", "too much padding", "end of text", "half a code"],
)
def test_invalid_huffman_codes_are_refused(encoded):
    block = b"\x00\x01x" + bytes([0x80 | len(encoded)]) + encoded
    with pytest.raises(ProtocolViolation, match="Huffman"):
        HeaderDecoder().decode(block)


# The table.


def test_added_headers_are_indexed_newest_first():
    decoder = HeaderDecoder()
    decoder.decode(literal(b"a", b"1", first=0x40) + literal(b"b", b"2", first=0x40))
    assert decoder.decode(b"\xbe\xbf") == ((b"b", b"2"), (b"a", b"1"))
    # Only a name, and another value.
    assert decoder.decode(b"\x0f\x30\x013") == ((b"a", b"3"),)


def test_cached_block_is_decoded_again_after_the_table_changed():
    decoder = HeaderDecoder()
    decoder.decode(literal(b"a", b"1", first=0x40))
    assert decoder.decode(b"\xbe") == decoder.decode(b"\xbe") == ((b"a", b"1"),)
    decoder.decode(literal(b"b", b"2", first=0x40))
    assert decoder.decode(b"\xbe") == ((b"b", b"2"),)


def test_the_oldest_headers_make_room_for_new_ones():
    decoder = HeaderDecoder()
    count = TABLE_BYTES_MAX // (32 + 2 + 2)
    for number in range(count + 5):
        decoder.decode(literal(b"%02d" % (number % 100), b"xx", first=0x40))
    last = 62 + count - 1
    oldest = decoder.decode(bytes([0xFF, last - 127]))
    assert oldest == ((b"%02d" % 5, b"xx"),)
    with pytest.raises(ProtocolViolation, match="no header"):
        decoder.decode(bytes([0xFF, last + 1 - 127]))


def test_a_header_that_is_longer_than_the_table_only_empties_it():
    decoder = HeaderDecoder()
    decoder.decode(literal(b"a", b"1", first=0x40))
    decoder.decode(b"\x3f\x01" + literal(b"name", b"value", first=0x40))
    with pytest.raises(ProtocolViolation, match="no header"):
        decoder.decode(b"\xbe")


def test_a_table_may_be_made_smaller_and_as_large_as_allowed():
    decoder = HeaderDecoder()
    decoder.decode(literal(b"a", b"1", first=0x40))
    decoder.decode(b"\x20")
    with pytest.raises(ProtocolViolation, match="no header"):
        decoder.decode(b"\xbe")
    decoder.decode(b"\x3f\xe1\x1f" + literal(b"a", b"1", first=0x40))
    assert decoder.decode(b"\xbe") == ((b"a", b"1"),)
    with pytest.raises(ProtocolViolation, match="4097"):
        decoder.decode(b"\x3f\xe2\x1f")
    with pytest.raises(ProtocolViolation, match="after a header"):
        decoder.decode(b"\x82\x20")


# Errors.


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        b"\xff\xff\xff\xff\xff\x7f",
        b"\x40",
        b"\x00\x03ab",
        b"\x00\x01a",
        b"\x00\x01a\x7f\x80",
    ],
)
def test_a_malformed_block_is_refused(block):
    with pytest.raises(ProtocolViolation):
        HeaderDecoder().decode(block)


def test_header_list_size_is_bounded():
    decoder = HeaderDecoder()
    decoder.decode(b"\x40\x01a\x7f\xa1\x1e" + b"x" * 4000)
    with pytest.raises(ProtocolViolation, match="longer than"):
        decoder.decode(b"\xbe" * (LIST_BYTES_MAX // 4000 + 1))


def test_a_block_of_more_than_the_maximum_of_headers_is_refused():
    block = encode_headers([(b"a", b"b")])
    assert len(HeaderDecoder().decode(block * HEADERS_MAX)) == HEADERS_MAX
    with pytest.raises(ProtocolViolation, match="more than 256 headers"):
        HeaderDecoder().decode(block * (HEADERS_MAX + 1))


def test_number_of_cached_blocks_is_bounded():
    decoder = HeaderDecoder()
    for number in range(2 * CACHED_BLOCKS_MAX):
        decoder.decode(literal(b"a", b"%03d" % number))
    assert len(decoder._cache) == CACHED_BLOCKS_MAX
    assert decoder.decode(literal(b"a", b"999")) == ((b"a", b"999"),)


# Encoding.


def test_a_block_means_the_same_to_every_decoder():
    headers = (
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"0"),
        (b"grpc-message", b"x" * 1000),
        (b"server", b""),
    )
    block = encode_headers(headers)
    fresh, used = HeaderDecoder(), HeaderDecoder()
    used.decode(literal(b"a", b"1", first=0x40))
    assert fresh.decode(block) == used.decode(block) == headers


def test_block_may_change_the_size_of_the_table_twice_only():
    HeaderDecoder().decode(b"\x20\x30\x82")
    with pytest.raises(ProtocolViolation, match="too often"):
        HeaderDecoder().decode(b"\x20\x30\x20\x82")


def test_short_block_of_long_headers_is_not_cached():
    decoder = HeaderDecoder()
    value = b"x" * 3000
    decoder.decode(b"\x40\x01a\x7f" + bytes((0x80 | (3000 - 127) & 0x7F, 22)) + value)
    headers = decoder.decode(b"\xbe\xbe")
    assert headers == ((b"a", value),) * 2
    assert decoder.decode(b"\xbe\xbe") is not headers
    once = decoder.decode(b"\xbe")
    assert decoder.decode(b"\xbe") is once

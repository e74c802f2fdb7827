"""
HPACK, the compression of headers in HTTP/2 (RFC 7541).

After a client's first requests, its header blocks are a few indexes into its dynamic
table, the same each time.  The decoder therefore caches decoded blocks until the table
changes.  The encoder keeps no table, because nearly all our responses use one of a few
blocks encoded in advance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pydanube.model.errors import ProtocolViolation

Header = tuple[bytes, bytes]
Headers = tuple[Header, ...]

TABLE_BYTES_MAX = 4096
"""The size of the dynamic table, which is the default of the RFC."""
LIST_BYTES_MAX = 32 * 1024
"""The largest header list of one request, as RFC 9113 counts it."""
HEADERS_MAX = 256
"""The most headers of one request; a byte of a block can stand for a header."""
CACHED_BLOCKS_MAX = 64
CACHED_BLOCK_BYTES_MAX = 128
CACHED_LIST_BYTES_MAX = 4096
"""The most cached blocks, the longest of them, and its largest header list."""
TABLE_UPDATES_MAX = 2
"""How often one block may resize the table (RFC 7541, section 4.2)."""
ENTRY_OVERHEAD_BYTES = 32

_TABLE: tuple[Header, ...] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
)
_INDEX_OF_NAME = {
    name: index for index, (name, _) in reversed(list(enumerate(_TABLE, 1)))
}
_INDEX_OF = {header: index for index, header in enumerate(_TABLE, 1) if header[1]}

_LENGTHS = (
    (5, "012aceiost"),
    (6, " %-./3456789=A_bdfghlmnpru"),
    (7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, "&*,;XZ"),
    (10, '!"()?'),
    (11, "'+|"),
    (12, "#>"),
    (13, "\x00$@[]~"),
    (14, "^}"),
    (15, "<`{"),
    (19, "\\\xc3\xd0"),
    (20, "\x80\x82\x83\xa2\xb8\xc2\xe0\xe2"),
    (21, "\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6"),
    (
        22,
        (
            "\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb"
            "\xbd\xbe\xc4\xc6\xe4\xe8\xe9"
        ),
    ),
    (
        23,
        (
            "\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8"
            "\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef"
        ),
    ),
    (24, "\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed"),
    (25, "\xc7\xcf\xea\xeb"),
    (26, "\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff"),
    (
        27,
        "\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
    ),
    (
        28,
        (
            "\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12\x13\x14\x15\x17\x18"
            "\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9"
        ),
    ),
    (30, "\n\r\x16"),
)
"""The code length in bits of each character.  The codes are canonical: sorted by length
and then by character, each is the successor of the one before."""


class HeaderDecoder:
    """Decodes the header blocks of one peer."""

    def __init__(self) -> None:
        # The newest entry first, in the order of their indexes.
        self._table: deque[Header] = deque()
        self._table_bytes = 0
        self._table_bytes_max = TABLE_BYTES_MAX
        self._cache: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """
        Return the headers in *block*.

        Raises:
            ProtocolViolation: The block is malformed or its header list too large; the
                peer's table and ours may differ now.
        """
        known = self._cache.get(block)
        if known is not None:
            return known
        try:
            headers, is_cacheable = self._decode(block)
        except IndexError as error:
            raise ProtocolViolation("a header block is truncated") from error
        if (
            is_cacheable
            and len(block) <= CACHED_BLOCK_BYTES_MAX
            and len(self._cache) < CACHED_BLOCKS_MAX
        ):
            self._cache[block] = headers
        return headers

    def _decode(self, block: bytes) -> tuple[Headers, bool]:
        """Return the headers, and whether they may be cached for an equal block."""
        headers: list[Header] = []
        is_cacheable = True
        size = at = updates = 0
        while at < len(block):
            first = block[at]
            if first & 0x80:
                # Nearly all indexes fit into one byte.
                index, at = (
                    (first & 0x7F, at + 1) if first < 0xFF else _integer(block, at, 7)
                )
                header = self._entry(index)
            elif first & 0xE0 == 0x20:
                if headers:
                    raise ProtocolViolation("the table is resized after a header")
                updates += 1
                if updates > TABLE_UPDATES_MAX:
                    raise ProtocolViolation("the table is resized too often")
                table_bytes, at = _integer(block, at, 5)
                self._resize(table_bytes)
                is_cacheable = False
                continue
            else:
                is_added = bool(first & 0x40)
                index, at = _integer(block, at, 6 if is_added else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _string(block, at)
                value, at = _string(block, at)
                header = (name, value)
                if is_added:
                    self._add(header)
                    is_cacheable = False
            size += len(header[0]) + len(header[1]) + ENTRY_OVERHEAD_BYTES
            if size > LIST_BYTES_MAX:
                raise ProtocolViolation(
                    f"the headers of a request are longer than {LIST_BYTES_MAX}"
                )
            headers.append(header)
            if len(headers) > HEADERS_MAX:
                raise ProtocolViolation(
                    f"a request has more than {HEADERS_MAX} headers"
                )
        return tuple(headers), is_cacheable and size <= CACHED_LIST_BYTES_MAX

    def _entry(self, index: int) -> Header:
        if 0 < index <= len(_TABLE):
            return _TABLE[index - 1]
        at = index - len(_TABLE) - 1
        if not 0 <= at < len(self._table):
            raise ProtocolViolation(f"there is no header {index} in the table")
        return self._table[at]

    def _add(self, header: Header) -> None:
        self._cache.clear()
        byte_count = len(header[0]) + len(header[1]) + ENTRY_OVERHEAD_BYTES
        self._shrink_to(self._table_bytes_max - byte_count)
        # An entry that is too long for the table only empties it.
        if byte_count <= self._table_bytes_max:
            self._table.appendleft(header)
            self._table_bytes += byte_count

    def _resize(self, table_bytes_max: int) -> None:
        if table_bytes_max > TABLE_BYTES_MAX:
            raise ProtocolViolation(
                f"a header table of {table_bytes_max} bytes; {TABLE_BYTES_MAX} are "
                "allowed"
            )
        self._cache.clear()
        self._table_bytes_max = table_bytes_max
        self._shrink_to(table_bytes_max)

    def _shrink_to(self, table_bytes: int) -> None:
        while self._table and self._table_bytes > table_bytes:
            name, value = self._table.pop()
            self._table_bytes -= len(name) + len(value) + ENTRY_OVERHEAD_BYTES


def byte_count_of(headers: Headers) -> int:
    """Return the bytes of all names and values together."""
    return sum(len(name) + len(value) for name, value in headers)


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Encode *headers* without the dynamic table."""
    block = bytearray()
    for header in headers:
        index = _INDEX_OF.get(header)
        if index is not None:
            block += _encode_integer(index, 7, 0x80)
            continue
        name, value = header
        index = _INDEX_OF_NAME.get(name, 0)
        block += _encode_integer(index, 4, 0x00)
        for text in (value,) if index else (name, value):
            block += _encode_integer(len(text), 7, 0x00)
            block += text
    return bytes(block)


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return the number that begins in the last *bits* of a byte, and its end."""
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    shift = 0
    while True:
        byte = block[at]
        at += 1
        value += (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise ProtocolViolation("a number in a header block is too long")


def _encode_integer(value: int, bits: int, flags: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes((flags | value,))
    encoded = bytearray((flags | most,))
    value -= most
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    is_huffman = bool(block[at] & 0x80)
    length, at = _integer(block, at, 7)
    end = at + length
    if end > len(block):
        raise ProtocolViolation("a header block is truncated within a string")
    text = block[at:end]
    return (_huffman.decode(text) if is_huffman else text), end


class _Huffman:
    """
    Decodes Huffman codes, half a byte at a time.

    A state is an inner node of the tree of codes.  No code is shorter than five
    bits, so half a byte completes at most one character.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[int, int]] = []
        self._may_end: list[bool] = []

    def decode(self, text: bytes) -> bytes:
        """
        Return the decoded *text*.

        Raises:
            ProtocolViolation: *text* is not a sequence of codes.
        """
        if not self._steps:
            self._build()
        steps = self._steps
        decoded = bytearray()
        state = 0
        for byte in text:
            for half in (byte >> 4, byte & 15):
                state, character = steps[state << 4 | half]
                if character >= 0:
                    decoded.append(character)
                elif state < 0:
                    raise ProtocolViolation("a header has an invalid Huffman code")
        if not self._may_end[state]:
            raise ProtocolViolation("a Huffman code in a header is truncated")
        return bytes(decoded)

    def _build(self) -> None:
        # A leaf is the complement of its character, so inner nodes are the numbers
        # from 0 on; the code of all ones, "end of text", has no leaf.
        nodes: list[list[int | None]] = [[None, None]]
        code = width = 0
        for length, characters in _LENGTHS:
            code <<= length - width
            width = length
            for character in characters:
                self._place(nodes, code, length, ord(character))
                code += 1
        self._steps = [
            self._step(nodes, node, half)
            for node in range(len(nodes))
            for half in range(16)
        ]
        # A text is padded with ones to a whole byte.
        self._may_end = [False] * len(nodes)
        node: int | None = 0
        for _ in range(8):
            assert node is not None
            self._may_end[node] = True
            node = nodes[node][1]

    @staticmethod
    def _place(
        nodes: list[list[int | None]], code: int, length: int, character: int
    ) -> None:
        node = 0
        for bit in range(length - 1, 0, -1):
            following = nodes[node][code >> bit & 1]
            if following is None:
                following = len(nodes)
                nodes[node][code >> bit & 1] = following
                nodes.append([None, None])
            node = following
        nodes[node][code & 1] = ~character

    @staticmethod
    def _step(nodes: list[list[int | None]], node: int, half: int) -> tuple[int, int]:
        """Return the node after half a byte, and the character on the way or -1."""
        found = -1
        for bit in (8, 4, 2, 1):
            following = nodes[node][1 if half & bit else 0]
            if following is None:
                return -1, -1
            if following < 0:
                found, following = ~following, 0
            node = following
        return node, found


_huffman = _Huffman()

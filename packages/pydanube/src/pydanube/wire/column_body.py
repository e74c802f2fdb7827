"""
The body of a batch, written and read without Arrow but in its format.

``docs/format/batch.md`` says which arrays and buffers each column has.  What is written
here is what Arrow writes, byte for byte.  Each column is read when it is first needed.
Nothing here trusts the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple

from pydanube.model.batch import Column
from pydanube.model.errors import CorruptBatch, InvalidRequest
from pydanube.model.message_columns import FIELDS, MessageColumns
from pydanube.wire.arrow_metadata import Pair, decode_metadata, encode_metadata
from pydanube.wire.buffer import Buffer, padded_size, split

_PADDINGS = tuple(bytes(count) for count in range(8))


class Layout(NamedTuple):
    """The arrays and buffers that a column has."""

    nodes: int
    buffers: int


_NUMBERS = Layout(1, 2)
_BYTES = Layout(1, 3)
# The map, its entries, their names and their values.
_MAP = Layout(4, 9)

LAYOUTS: dict[Column, Layout] = {
    Column.PUBLISH_TIME: _NUMBERS,
    Column.KEY: _BYTES,
    Column.PAYLOAD: _BYTES,
    Column.ATTRIBUTES: _MAP,
    Column.OFFSET: _NUMBERS,
    Column.PRODUCER: _BYTES,
    Column.DELIVER_AT: _NUMBERS,
    Column.EXPIRES_AT: _NUMBERS,
}
"""The layout of each column, in their order in a body."""

_TEXTS = frozenset({Column.PRODUCER})
_REQUIRED = frozenset({Column.PUBLISH_TIME, Column.PAYLOAD, Column.OFFSET})


def encode_body(columns: MessageColumns) -> bytes:
    """
    Return the body of a batch with *columns*.

    Raises:
        InvalidRequest: A value is not of its column's type, or out of range.
    """
    count = len(columns.payloads)
    writer = _Writer()
    try:
        for column, name in FIELDS.items():
            values = getattr(columns, name)
            if values is None:
                continue
            if column is Column.ATTRIBUTES:
                writer.add_maps(values)
            elif LAYOUTS[column] is _NUMBERS:
                writer.add_numbers(values)
            elif column in _TEXTS:
                writer.add_bytes([None if v is None else v.encode() for v in values])
            else:
                writer.add_bytes(values)
    except (ValueError, TypeError, AttributeError, struct.error) as error:
        raise InvalidRequest(f"invalid batch: {error}") from error
    head = encode_metadata(count, writer.nodes, writer.buffers, writer.size)
    return b"".join((head, *writer.parts))


class _Writer:
    """The buffers that a body gets, and where they are."""

    def __init__(self) -> None:
        self.nodes: list[Pair] = []
        self.buffers: list[Pair] = []
        self.parts: list[bytes] = []
        self.size = 0
        """The length of all buffers, each padded to a multiple of 8."""

    def add_numbers(self, values: Sequence[int | None]) -> None:
        if self._add_array(values):
            values = [value or 0 for value in values]
        self._add_buffer(struct.pack(f"<{len(values)}q", *values))

    def add_bytes(self, values: Sequence[bytes | None]) -> None:
        present: Sequence[bytes] = values  # type: ignore[assignment]
        if self._add_array(values):
            present = [value or b"" for value in values]
        self._add_offsets(accumulate(map(len, present), initial=0), len(present))
        self._add_buffer(b"".join(present))

    def add_maps(self, values: Sequence[Any]) -> None:
        present = values
        if self._add_array(values):
            present = [each or {} for each in values]
        offsets = list(accumulate(map(len, present), initial=0))
        self._add_offsets(offsets, len(values))
        # The entries, none of which is null.
        self.nodes.append((offsets[-1], 0))
        self._add_buffer(b"")
        names = chain.from_iterable(present)
        self.add_bytes([name.encode() for name in names])
        texts = chain.from_iterable(each.values() for each in present)
        self.add_bytes([text.encode() for text in texts])

    def _add_array(self, values: Sequence[Any]) -> int:
        """Add the node and the validity of an array; return how many are null."""
        null_count = values.count(None)
        self.nodes.append((len(values), null_count))
        bits = b""
        if null_count:
            text = "".join("0" if each is None else "1" for each in reversed(values))
            bits = int(text, 2).to_bytes((len(values) + 7) // 8, "little")
        self._add_buffer(bits)
        return null_count

    def _add_offsets(self, offsets: Iterable[int], count: int) -> None:
        self._add_buffer(struct.pack(f"<{count + 1}i", *offsets))

    def _add_buffer(self, data: bytes) -> None:
        self.buffers.append((self.size, len(data)))
        self.parts += (data, _PADDINGS[-len(data) % 8])
        self.size += padded_size(len(data))


class ColumnBody:
    """
    The columns of a body that is not compressed.

    Raises:
        CorruptBatch: On construction: the body has no batch of these *columns* and
            *count*, or a buffer is outside of it.
    """

    def __init__(self, body: Buffer, columns: int, count: int) -> None:
        self._body = memoryview(body)
        self._count = count
        metadata = decode_metadata(body)
        self._at = metadata.body_at
        self._places, nodes, buffers = _places_of(columns)
        if metadata.row_count != count:
            raise CorruptBatch(
                f"the header counts {count} messages, the body has {metadata.row_count}"
            )
        if (len(metadata.nodes), len(metadata.buffers)) != (nodes, buffers):
            raise CorruptBatch(
                f"the body has {len(metadata.nodes)} arrays and "
                f"{len(metadata.buffers)} buffers, its columns {nodes} and {buffers}"
            )
        self._nodes = metadata.nodes
        self._buffers = metadata.buffers

    def values(self, column: Column) -> list[Any]:
        """
        Return the values of a column that the body has; times are in microseconds.

        Attributes are lists of pairs.

        Raises:
            CorruptBatch: A length or an offset inside the column is invalid, or a text
                is not UTF-8.
        """
        node, buffer = self._places[column]
        if column in _REQUIRED and self._nodes[node][1]:
            raise CorruptBatch(f"the column {column.name.lower()} has nulls")
        if column is Column.ATTRIBUTES:
            return self._maps(node, buffer)
        if self._nodes[node][0] != self._count:
            raise CorruptBatch(
                f"a column has {self._nodes[node][0]} values, the batch "
                f"{self._count} messages"
            )
        if LAYOUTS[column] is _NUMBERS:
            numbers = self._numbers(buffer + 1, self._count, "q")
            return self._with_nulls(node, buffer, numbers)
        if column in _TEXTS:
            return self._texts(node, buffer)
        data, offsets = self._slices(buffer, self._count)
        return self._with_nulls(node, buffer, split(data, offsets))

    def _maps(self, node: int, buffer: int) -> list[Any]:
        count = self._nodes[node][0]
        entries, nulls = self._nodes[node + 1]
        lengths = [self._nodes[node + each][0] for each in (2, 3)]
        if count != self._count or lengths != [entries, entries] or entries < 0:
            raise CorruptBatch(
                f"the column attributes has {count} maps of {entries} entries with "
                f"{lengths[0]} names and {lengths[1]} values"
            )
        if nulls or self._nodes[node + 2][1]:
            raise CorruptBatch("an attribute of a message, or its name, is null")
        offsets = self._offsets(buffer + 1, count, entries)
        # Validity and offsets of the maps, validity of the entries.
        names = self._texts(node + 2, buffer + 3)
        pairs = list(zip(names, self._texts(node + 3, buffer + 6), strict=True))
        maps = [pairs[begin:end] for begin, end in pairwise(offsets)]
        return self._with_nulls(node, buffer, maps)

    def _texts(self, node: int, buffer: int) -> list[str | None]:
        data, offsets = self._slices(buffer, self._nodes[node][0])
        try:
            if data.isascii():
                text = data.decode()
                found = [text[begin:end] for begin, end in pairwise(offsets)]
            else:
                found = [each.decode() for each in split(data, offsets)]
        except UnicodeDecodeError as error:
            raise CorruptBatch(f"a text of the body is not UTF-8: {error}") from error
        return self._with_nulls(node, buffer, found)

    def _slices(self, buffer: int, count: int) -> tuple[bytes, Sequence[int]]:
        """Return the data of an array of bytes, and where each of them begins."""
        data = bytes(self._buffer(buffer + 2))
        return data, self._offsets(buffer + 1, count, len(data))

    def _offsets(self, buffer: int, count: int, end: int) -> Sequence[int]:
        """Return rising offsets, one more than *count*, none beyond *end*."""
        if not count and not self._buffers[buffer][1]:
            return (0,)
        offsets = self._numbers(buffer, count + 1, "i")
        if offsets[0] < 0 or offsets[-1] > end or offsets != sorted(offsets):
            raise CorruptBatch(f"offsets in the body are not rising from 0 to {end}")
        return offsets

    def _with_nulls(self, node: int, buffer: int, values: list[Any]) -> list[Any]:
        null_count = self._nodes[node][1]
        if not null_count:
            return values
        count = len(values)
        bits = self._buffer(buffer)
        if 8 * len(bits) >= count > 0:
            text = f"{int.from_bytes(bits, 'little'):0{count}b}"[: -count - 1 : -1]
            if text.count("0") == null_count:
                return [
                    value if bit == "1" else None
                    for value, bit in zip(values, text, strict=True)
                ]
        raise CorruptBatch(
            f"a column of {count} values has other than {null_count} nulls"
        )

    def _numbers(self, buffer: int, count: int, kind: str) -> list[int]:
        data = self._buffer(buffer)
        size = struct.calcsize(f"<{kind}")
        if count < 0 or len(data) < count * size:
            raise CorruptBatch(f"a buffer of {len(data)} bytes for {count} numbers")
        return list(struct.unpack_from(f"<{count}{kind}", data))

    def _buffer(self, buffer: int) -> memoryview:
        begin, size = self._buffers[buffer]
        at = self._at + begin
        return self._body[at : at + size]


@cache
def _places_of(columns: int) -> tuple[dict[Column, Pair], int, int]:
    """Return the first node and buffer of each column, and how many there are."""
    places, node, buffer = {}, 0, 0
    for column, layout in LAYOUTS.items():
        if columns & column:
            places[column] = node, buffer
            node += layout.nodes
            buffer += layout.buffers
    return places, node, buffer

"""
Batches on their way to the broker: Python sequences, or a user's Arrow data.  Pure.

Payloads, keys and attributes that users pass as lists become Arrow data if it is
installed.  Otherwise they stay lists until they are encoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from pydanube.client.pure.routing import KEYLESS_RUN_MESSAGES, Router
from pydanube.model import arrow
from pydanube.model.arrow import envelope, pa, pc
from pydanube.model.batch import Column, columns_of, conform, schema_of
from pydanube.model.deduplication import DEDUPLICATION_ID
from pydanube.model.errors import InvalidRequest
from pydanube.model.message_columns import MessageColumns
from pydanube.wire.batches import (
    BatchFrame,
    BatchHeader,
    Codec,
    encode,
    encode_columns,
)


class DeliveryWindow(NamedTuple):
    """The time from which a message may be delivered, and the time it expires."""

    deliver_at: int | None
    expires_at: int | None


class OutgoingBatch(Protocol):
    """The messages of a batch that is not encoded yet."""

    @property
    def count(self) -> int:
        """The number of messages."""

    @property
    def byte_count(self) -> int:
        """The size of the body, or a little more."""

    @property
    def columns(self) -> int:
        """The columns that there are, as bits."""

    def times(self, now: int) -> tuple[int, int]:
        """Return the first and the last publish time, by default *now*."""

    def slice(self, base: int, end: int) -> OutgoingBatch:
        """Return the messages ``base … end``."""

    def split(
        self, router: Router, ids: Sequence[str] | None = None, base: int = 0
    ) -> Iterator[tuple[int, Any, OutgoingBatch]]:
        """
        Yield the messages by partition, with their indexes, counted from *base*.

        Messages without a key are routed by their *ids*, if these are given.

        Ordering: Messages of one partition keep their order.
        """

    def with_window(self, window: DeliveryWindow) -> OutgoingBatch:
        """
        Return the batch with *window* for each message.

        Raises:
            InvalidRequest: It has such a column of its own.
        """

    def with_ids(self, ids: Sequence[str]) -> OutgoingBatch:
        """Return the batch with the id of each message in its attributes."""

    def with_attributes(self, attributes: Mapping[str, str]) -> OutgoingBatch:
        """Return the batch with *attributes* added to those of each message."""

    def encode(self, header: BatchHeader, codec: Codec) -> BatchFrame:
        """
        Return the batch as a frame with *header*.

        Raises:
            InvalidRequest: A value cannot be encoded.
        """


class ColumnBatch:
    """A batch of Python sequences."""

    __slots__ = ("_columns",)

    def __init__(self, columns: MessageColumns) -> None:
        self._columns = columns

    @property
    def count(self) -> int:
        return len(self._columns.payloads)

    @property
    def columns(self) -> int:
        return self._columns.columns()

    @property
    def byte_count(self) -> int:
        found = self._columns
        byte_count = 4 * len(found.payloads) + sum(map(len, found.payloads))
        if found.keys is not None:
            byte_count += sum(4 + len(key or b"") for key in found.keys)
        for texts in found.attributes or ():
            byte_count += 4 + sum(map(_byte_count_of, (texts or {}).items()))
        numbers = (found.publish_times, found.deliver_at, found.expires_at)
        # Values and the bits of those that are not null.
        return byte_count + sum(9 * len(each) for each in numbers if each is not None)

    def times(self, now: int) -> tuple[int, int]:
        times = self._columns.publish_times
        return (now, now) if times is None else (times[0], times[-1])

    def slice(self, base: int, end: int) -> ColumnBatch:
        return ColumnBatch(self._columns.map(itemgetter(slice(base, end))))

    def split(
        self, router: Router, ids: Sequence[str] | None = None, base: int = 0
    ) -> Iterator[tuple[int, Sequence[int], ColumnBatch]]:
        keys = self._columns.keys
        if ids is not None:
            given = keys or [None] * len(ids)
            keys = [
                id_.encode() if key is None else key
                for key, id_ in zip(given, ids, strict=True)
            ]
        if keys is None:
            for begin in range(0, self.count, KEYLESS_RUN_MESSAGES):
                end = min(begin + KEYLESS_RUN_MESSAGES, self.count)
                piece = self.slice(begin, end)
                yield router.current, range(base + begin, base + end), piece
                router.advance()
            return
        indexes: dict[int, list[int]] = {}
        numbers = {key: router.partition_for(key) for key in {*keys} if key is not None}
        for index, key in enumerate(keys):
            number = router.current if key is None else numbers[key]
            indexes.setdefault(number, []).append(index)
        if None in keys:
            router.advance()
        for number, found in indexes.items():
            piece = self if len(indexes) == 1 else self._take(found)
            yield number, [base + index for index in found] if base else found, piece

    def _take(self, indexes: Sequence[int]) -> ColumnBatch:
        return ColumnBatch(
            self._columns.map(lambda values: [values[at] for at in indexes])
        )

    def with_window(self, window: DeliveryWindow) -> ColumnBatch:
        given = {
            name: [time] * self.count
            for name, time in window._asdict().items()
            if time is not None
        }
        return ColumnBatch(replace(self._columns, **given))

    def with_ids(self, ids: Sequence[str]) -> ColumnBatch:
        return self._with_attributes([{DEDUPLICATION_ID: each} for each in ids])

    def with_attributes(self, attributes: Mapping[str, str]) -> ColumnBatch:
        return self._with_attributes([attributes] * self.count)

    def _with_attributes(self, added: Sequence[Mapping[str, str]]) -> ColumnBatch:
        own = self._columns.attributes
        if own is not None:
            added = [{**(a or {}), **b} for a, b in zip(own, added, strict=True)]
        return ColumnBatch(replace(self._columns, attributes=added))

    def encode(self, header: BatchHeader, codec: Codec) -> BatchFrame:
        return encode_columns(self._columns, header, codec)


def _byte_count_of(attribute: tuple[str, str]) -> int:
    try:
        return 8 + sum(len(each.encode()) for each in attribute)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the attribute {attribute!r:.80}: {error}") from error


class ArrowBatch:
    """A batch of Arrow data."""

    __slots__ = ("_rows",)

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    @property
    def count(self) -> int:
        return self._rows.num_rows  # type: ignore[no-any-return]

    @property
    def byte_count(self) -> int:
        return self._rows.nbytes  # type: ignore[no-any-return]

    @property
    def columns(self) -> int:
        return columns_of(self._rows)

    def times(self, now: int) -> tuple[int, int]:
        if not self.columns & Column.PUBLISH_TIME:
            return now, now
        times = self._rows.column("publish_time").cast(pa.int64())
        return times[0].as_py(), times[-1].as_py()

    def slice(self, base: int, end: int) -> ArrowBatch:
        return ArrowBatch(self._rows.slice(base, end - base))

    def split(
        self, router: Router, ids: Sequence[str] | None = None, base: int = 0
    ) -> Iterator[tuple[int, Sequence[int] | pa.Array, ArrowBatch]]:
        rows = self._rows
        has_keys = self.columns & Column.KEY
        if ids is not None:
            keys = pa.array(ids).cast(pa.binary())
            if has_keys:
                keys = pc.coalesce(rows.column("key"), keys)
        elif has_keys:
            keys = rows.column("key")
        else:
            for begin in range(0, rows.num_rows, KEYLESS_RUN_MESSAGES):
                end = min(begin + KEYLESS_RUN_MESSAGES, rows.num_rows)
                piece = self.slice(begin, end)
                yield router.current, range(base + begin, base + end), piece
                router.advance()
            return
        numbers = _partitions_of(keys, router)
        for number in pc.unique(numbers).to_pylist():
            indexes = pc.indices_nonzero(pc.equal(numbers, number))
            yield number, pc.add(indexes, base), ArrowBatch(rows.take(indexes))

    def with_window(self, window: DeliveryWindow) -> ArrowBatch:
        rows = self._rows
        for name, time in window._asdict().items():
            if time is None:
                continue
            if name in rows.schema.names:
                raise InvalidRequest(f"the batch has a column {name} of its own")
            times = pa.repeat(pa.scalar(time, envelope.TIME_TYPE), rows.num_rows)
            rows = _with_column(rows, name, times)
        return ArrowBatch(rows)

    def with_ids(self, ids: Sequence[str]) -> ArrowBatch:
        return self._with_attributes([{DEDUPLICATION_ID: each} for each in ids])

    def with_attributes(self, attributes: Mapping[str, str]) -> ArrowBatch:
        if self.columns & Column.ATTRIBUTES:
            return self._with_attributes([attributes] * self.count)
        one = pa.array([list(attributes.items())], envelope.ATTRIBUTES_TYPE)
        column = one.take(pa.repeat(0, self.count))
        return ArrowBatch(_with_column(self._rows, "attributes", column))

    def _with_attributes(self, added: Sequence[Mapping[str, str]]) -> ArrowBatch:
        own: Sequence[Any] = [None] * self.count
        if self.columns & Column.ATTRIBUTES:
            own = self._rows.column("attributes").to_pylist()
        merged = [
            list({**dict(a or ()), **b}.items())
            for a, b in zip(own, added, strict=True)
        ]
        column = pa.array(merged, envelope.ATTRIBUTES_TYPE)
        return ArrowBatch(_with_column(self._rows, "attributes", column))

    def encode(self, header: BatchHeader, codec: Codec) -> BatchFrame:
        return encode(self._rows, header, codec)


def _with_column(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """Return *rows* with *column*, in the order of columns of the envelope."""
    columns = {**dict(zip(rows.schema.names, rows.columns, strict=True)), name: column}
    schema = schema_of(columns_of(rows) | Column[name.upper()])
    arrays = [columns[each] for each in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _partitions_of(keys: pa.Array, router: Router) -> pa.Array:
    """Return each message's partition; those without a key share one."""
    encoded = keys.dictionary_encode()
    of_code = [router.partition_for(key) for key in encoded.dictionary.to_pylist()]
    numbers = pc.take(pa.array(of_code, pa.int32()), encoded.indices)
    if numbers.null_count:
        numbers = pc.fill_null(numbers, router.current)
        router.advance()
    return numbers


def outgoing(columns: MessageColumns) -> OutgoingBatch:
    """
    Return *columns* as a batch; of Arrow data if it is installed, for large batches.

    Raises:
        InvalidRequest: A value is not of its column's type.
    """
    if not arrow.is_installed():
        return ColumnBatch(columns)
    try:
        return ArrowBatch(columns.to_arrow())
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"invalid batch: {error}") from error


def arrow_batches(data: pa.RecordBatch | pa.Table) -> list[OutgoingBatch]:
    """
    Return a user's Arrow data as batches.

    Raises: As ``conform``.
    """
    return [ArrowBatch(each) for each in conform(data)]

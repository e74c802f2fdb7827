"""
The messages of PostgreSQL's output plugin ``pgoutput``, version 1.  Pure.

Source: PostgreSQL's documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydanube_connect.pure.failures import ConnectorFailed

UNCHANGED = object()
"""Stands for the value of a column that has not changed, and is not sent."""

Value = str | None | object
Row = Sequence[Value]
"""The texts of the columns; None is NULL."""

EPOCH_S = 946_684_800
"""The time that PostgreSQL counts from, 2000-01-01, in seconds since 1970."""

_KEY_FLAG = 1


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins."""

    lsn: int
    """The position of its commit."""
    time_us: int
    """The time of its commit, in microseconds since 1970."""
    transaction: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The transaction ends."""

    end_lsn: int
    """The position that follows it."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, as the changes that follow have it."""

    id: int
    schema: str
    table: str
    columns: tuple[str, ...]
    types: tuple[int, ...]
    """The object identifiers of the columns' types."""
    identity: tuple[int, ...]
    """Which columns identify a row in the log, by index."""


@dataclass(frozen=True, slots=True)
class Change:
    """A row is inserted, updated or deleted."""

    operation: str
    """``c``, ``u`` or ``d``, as Debezium calls them."""
    relation: int
    before: Row | None
    """The old row, or None if the server does not send it."""
    is_key: bool
    """Whether *before* has the columns of the identity only, the others as None."""
    after: Row | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables are emptied."""

    relations: tuple[int, ...]


Event = Begin | Commit | Relation | Change | Truncate


def parse(data: bytes) -> Event | None:
    """
    Return the event in *data*, or None if it is of no interest.

    Raises:
        ConnectorFailed: The message is malformed.
    """
    try:
        return _parse(data)
    except (struct.error, IndexError, ValueError) as error:
        raise ConnectorFailed(
            f"PostgreSQL has sent a malformed message {data[:40]!r}: {error}"
        ) from error


def _parse(data: bytes) -> Event | None:
    # Others are types, origins and logical messages.
    parser = _PARSERS.get(data[:1])
    return None if parser is None else parser(data)


def _begin(data: bytes) -> Begin:
    lsn, time_us, transaction = struct.unpack_from(">QqI", data, 1)
    return Begin(lsn, time_us + EPOCH_S * 1_000_000, transaction)


def _commit(data: bytes) -> Commit:
    return Commit(struct.unpack_from(">BQQq", data, 1)[2])


def _insert(data: bytes) -> Change:
    after, _ = _row(data, 6)
    return Change("c", _relation_id(data), None, is_key=False, after=after)


def _delete(data: bytes) -> Change:
    before, _ = _row(data, 6)
    is_key = data[5:6] == b"K"
    return Change("d", _relation_id(data), before, is_key=is_key, after=None)


def _truncate(data: bytes) -> Truncate:
    count, _ = struct.unpack_from(">IB", data, 1)
    return Truncate(struct.unpack_from(f">{count}I", data, 6))


def _relation_id(data: bytes) -> int:
    found: int = struct.unpack_from(">I", data, 1)[0]
    return found


def _update(data: bytes) -> Change:
    before, at, is_key = None, 5, False
    if data[5:6] in {b"K", b"O"}:
        is_key = data[5:6] == b"K"
        before, at = _row(data, 6)
    after, _ = _row(data, at + 1)
    if before is not None and not is_key:
        after = [
            old if new is UNCHANGED else new
            for old, new in zip(before, after, strict=True)
        ]
    return Change("u", _relation_id(data), before, is_key=is_key, after=after)


def _row(data: bytes, at: int) -> tuple[list[Value], int]:
    """Return the values at *at*, and where they end."""
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    values: list[Value] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t, a text.
            end = at + 4 + int.from_bytes(data[at : at + 4])
            if end > len(data):
                raise ValueError("a value is longer than the message")
            values.append(data[at + 4 : end].decode())
            at = end
        elif kind == 0x6E:  # n, NULL.
            values.append(None)
        elif kind == 0x75:  # u, unchanged.
            values.append(UNCHANGED)
        else:
            raise ValueError(f"a value of the kind {kind}")
    return values, at


def _relation(data: bytes) -> Relation:
    schema, at = _text(data, 5)
    table, at = _text(data, at)
    (count,) = struct.unpack_from(">xH", data, at)
    at += 3
    columns, types, identity = [], [], []
    for number in range(count):
        flags = data[at]
        name, at = _text(data, at + 1)
        columns.append(name)
        types.append(struct.unpack_from(">Ii", data, at)[0])
        at += 8
        if flags & _KEY_FLAG:
            identity.append(number)
    return Relation(
        _relation_id(data),
        schema or "pg_catalog",
        table,
        tuple(columns),
        tuple(types),
        tuple(identity),
    )


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


_PARSERS: dict[bytes, Callable[[bytes], Event]] = {
    b"B": _begin,
    b"C": _commit,
    b"R": _relation,
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
    b"T": _truncate,
}

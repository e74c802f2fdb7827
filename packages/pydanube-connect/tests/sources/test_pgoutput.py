"""The messages of PostgreSQL's log are parsed, and malformed ones are refused."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.sources.pure.pgoutput import (
    EPOCH_S,
    UNCHANGED,
    Begin,
    Change,
    Commit,
    Relation,
    Truncate,
    parse,
)


def row(*values):
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif value is UNCHANGED:
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">I", len(value.encode())) + value.encode())
    return b"".join(parts)


def relation(*columns):
    described = b"".join(
        struct.pack(">B", flags) + name.encode() + b"\0" + struct.pack(">Ii", kind, -1)
        for flags, name, kind in columns
    )
    head = b"R" + struct.pack(">I", 7) + b"public\0orders\0d"
    return head + struct.pack(">H", len(columns)) + described


HEAD = struct.pack(">I", 7)
BEGIN = b"B" + struct.pack(">QqI", 99, 5, 3)
COMMIT = b"C" + struct.pack(">BQQq", 0, 99, 120, 5)
MESSAGES = {
    BEGIN: Begin(99, EPOCH_S * 1_000_000 + 5, 3),
    COMMIT: Commit(120),
    relation((1, "id", 23), (0, "who", 25)): Relation(
        7, "public", "orders", ("id", "who"), (23, 25), (0,)
    ),
    b"I" + HEAD + b"N" + row("1", None): Change(
        "c", 7, None, is_key=False, after=["1", None]
    ),
    b"U" + HEAD + b"N" + row("1", UNCHANGED): Change(
        "u", 7, None, is_key=False, after=["1", UNCHANGED]
    ),
    b"U" + HEAD + b"K" + row("1", None) + b"N" + row("2", "é"): Change(
        "u", 7, ["1", None], is_key=True, after=["2", "é"]
    ),
    b"U" + HEAD + b"O" + row("1", "long") + b"N" + row("1", UNCHANGED): Change(
        "u", 7, ["1", "long"], is_key=False, after=["1", "long"]
    ),
    b"D" + HEAD + b"K" + row("1", None): Change(
        "d", 7, ["1", None], is_key=True, after=None
    ),
    b"T" + struct.pack(">IB2I", 2, 0, 7, 8): Truncate((7, 8)),
    b"Y" + HEAD: None,
}


@pytest.mark.parametrize("data", MESSAGES, ids=lambda data: data[:1].decode())
def test_messages_are_parsed(data):
    assert parse(data) == MESSAGES[data]


@pytest.mark.parametrize("data", MESSAGES, ids=lambda data: data[:1].decode())
def test_messages_that_are_cut_are_refused(data):
    for size in range(1, len(data)):
        if MESSAGES[data] is not None:
            with pytest.raises(ConnectorFailed, match="malformed"):
                parse(data[:size])


@given(st.sampled_from(sorted(MESSAGES)), st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(message, rest):
    for data in (message[:1] + rest, message[:6] + rest):
        with suppress(ConnectorFailed):
            parse(data)

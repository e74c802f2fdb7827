"""
The numbers of the batch writes of a query, by which sinks recognise a repeated one.

A run takes a new number before it writes, and uses it again if it repeats the write.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec

from pydanube_spark.pipelines.state import replace_file


class WriteNumber(msgspec.Struct, frozen=True):
    """The identity of a write, for the options ``appId`` and ``batchId``."""

    app: str
    number: int


def take_number(directory: Path, query: str) -> WriteNumber:
    """
    Return the next number of *query*, whose numbers are stored in *directory*.

    Durability: The number is on disk, because a sink drops a number that it knows.
    """
    file = directory / f"{query}.writes.json"
    try:
        last = msgspec.json.decode(file.read_bytes(), type=WriteNumber)
    except FileNotFoundError:
        last = WriteNumber(uuid.uuid4().hex, -1)
    found = WriteNumber(last.app, last.number + 1)
    directory.mkdir(parents=True, exist_ok=True)
    replace_file(file, msgspec.json.encode(found), is_durable=True)
    return found

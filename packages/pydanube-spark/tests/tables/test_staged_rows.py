"""Tests of staged changes, whose files are in memory."""

import threading

import pyarrow as pa
import pytest

from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.data_files import AT_ONCE_MAX
from pydanube_spark.tables.staged_rows import (
    StagedChanges,
    StagingLocation,
    small_changes,
    stage_rows,
)

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("name", pa.string())])
COLUMNS = UpsertColumns(keys=("id",), order=("at",))


class Files:
    """A table's storage in memory, whose files are opened *together* at a time."""

    schema = SCHEMA

    def __init__(self, together):
        self._streams = {}
        self._lock = threading.Lock()
        self.opened = []
        self._together = threading.Barrier(together, timeout=60)

    def create(self, name):
        self._streams[name] = Stream()
        return name, self._streams[name]

    def open(self, path):
        self._together.wait()
        with self._lock:
            self.opened.append(path)
        return pa.BufferReader(self._streams[path].content)

    def delete(self, path):
        del self._streams[path]


class Stream(pa.BufferOutputStream):
    content = None

    def close(self):
        if self.content is None:
            self.content = self.getvalue()


def changes_of(files, count, **how):
    """Changes in *count* files, each with a row of its own and one that it replaces."""
    location = StagingLocation(files, SCHEMA)
    staged = []
    for number in range(count):
        rows = [
            {"id": 0, "at": number, "name": f"{number}"},
            {"id": number + 1, "at": 0, "name": "own"},
        ]
        batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
        name = f"task-{number}"
        staged += stage_rows(
            location, iter([batch]), name, COLUMNS, file_bytes_max=1 << 20
        )
    return StagedChanges(location, tuple(staged), COLUMNS, **how)


def expected(count):
    rows = [{"id": 0, "at": count - 1, "name": f"{count - 1}"}]
    rows += [{"id": n + 1, "at": 0, "name": "own"} for n in range(count)]
    return rows


def sorted_rows(table):
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_many_small_files_are_opened_once_and_several_at_a_time():
    files = Files(together=AT_ONCE_MAX)
    changes = changes_of(files, 3 * AT_ONCE_MAX)
    assert sorted_rows(small_changes(changes).latest(0)) == expected(3 * AT_ONCE_MAX)
    assert sorted(files.opened) == sorted(each.path for each in changes.files)


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_latest_rows_are_those_of_all_files_in_their_order(part_bytes):
    files = Files(together=1)
    changes = changes_of(files, 5, part_bytes=part_bytes)
    found = [changes.latest(number) for number in range(changes.part_count)]
    assert sorted_rows(pa.concat_tables(found)) == expected(5)

"""Tests of both phases of the table sink."""

import os
from dataclasses import replace

import pyarrow as pa
import pytest

from pydanube_spark.pure.sink import BatchKey, TaskKey
from pydanube_spark.tables.delta_table import DeltaLakeTable
from pydanube_spark.tables.pure.table_options import UpkeepPolicy
from pydanube_spark.tables.table_sink import LakeSink
from support.drivers.lake_tables import KINDS, data_files, options, read, table_in

pytestmark = pytest.mark.slow

NUMBERS = pa.schema({"n": pa.int64()})
OF_A_JOB = BatchKey("some-job", 0, "")


@pytest.fixture
def table(tmp_path):
    return table_in(tmp_path, "delta")


def of_query(number, app="query"):
    return BatchKey(app, number, "query")


def sink_of(table, **how):
    place = table.prepare(NUMBERS, options())
    return LakeSink(table, place, file_bytes_max=1_000_000, **how)


def written(sink, key, *numbers):
    """Return the output of a task that has written *numbers*."""
    rows = pa.record_batch({"n": pa.array(numbers, pa.int64())})
    return sink.write(TaskKey(key, 0, 0), iter([rows]))


def numbers(table):
    return sorted(read(table).column("n").to_pylist())


def test_repeated_micro_batch_is_dropped_and_its_files_deleted(table, tmp_path):
    sink, key = sink_of(table), of_query(4)
    first, again = written(sink, key, 1), written(sink, key, 1)
    sink.commit(key, [first])
    sink.commit(key, [again])
    assert numbers(table) == [1]
    assert len(data_files(tmp_path)) == 1
    assert table.app_versions(["query"]) == {"query": 4}


def test_app_id_replaces_query_id(table):
    sink, key = sink_of(table, is_named=True), of_query(0, app="mine")
    sink.commit(key, [written(sink, key, 1)])
    assert table.app_versions(["mine", "query"]) == {"mine": 0, "query": None}


def test_unnumbered_batch_is_written_each_time(table):
    sink = sink_of(table)
    for _ in range(2):
        sink.commit(OF_A_JOB, [written(sink, OF_A_JOB, 1)])
    assert numbers(table) == [1, 1]
    assert table.app_versions([OF_A_JOB.app]) == {OF_A_JOB.app: None}
    replacing = replace(sink, is_overwrite=True)
    replacing.commit(OF_A_JOB, [written(replacing, OF_A_JOB, 2)])
    assert numbers(table) == [2]


def test_numbered_batch_is_written_once(table):
    sink, key = sink_of(table, is_named=True), BatchKey("mine", 7, "")
    for _ in range(2):
        sink.commit(key, [written(sink, key, 1)])
    assert numbers(table) == [1]


def test_abort_deletes_files(table, tmp_path):
    sink = sink_of(table)
    sink.abort(OF_A_JOB, [written(sink, OF_A_JOB, 1)])
    assert data_files(tmp_path) == []


def test_abort_keeps_committed_files(table, tmp_path):
    """Spark aborts when commit fails, also if only its answer was lost."""
    sink, key = sink_of(table), of_query(0)
    piece = written(sink, key, 1)
    sink.commit(key, [piece])
    sink.abort(key, [piece])
    assert numbers(table) == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_small_files_are_merged_when_there_are_enough(tmp_path, kind):
    table = table_in(tmp_path, kind)
    sink = sink_of(table, upkeep=UpkeepPolicy(files_min=5))
    counts = []
    for number in range(12):
        key = of_query(number)
        sink.commit(key, [written(sink, key, number)])
        counts.append(table.file_count(table.data_version()))
    # The first and the last batch that look find too few.
    assert counts == [*range(1, 11), 1, 2]
    assert numbers(table) == list(range(12))
    assert table.app_versions(["query"]) == {"query": 11}


def test_replaced_files_are_deleted_after_their_time(table, tmp_path):
    hour = 3600.0
    policy = UpkeepPolicy(files_min=2, clean_older_than_s=hour)
    sink = sink_of(table, upkeep=policy)
    left = tmp_path / "table" / "danube-left.parquet"
    left.write_bytes(b"")
    os.utime(left, (0, 0))
    for number in (1, 2, 10):
        key = of_query(number)
        sink.commit(key, [written(sink, key, number)])
    assert not left.exists()
    # The files of the three batches were replaced just now.
    assert len(data_files(tmp_path)) == 3


def test_a_batch_is_committed_although_its_table_cannot_be_compacted(table, caplog):
    sink = sink_of(FailingTable(table.name, {}, wait=lambda _: None))
    sink = replace(sink, upkeep=UpkeepPolicy(files_min=2))
    sink.commit(of_query(10), [written(sink, of_query(10), 1)])
    assert numbers(table) == [1]
    [message] = caplog.messages
    assert "a later batch tries again" in message


class FailingTable(DeltaLakeTable):
    """A table that cannot be compacted."""

    def compact(self, **_):
        raise OSError("no space is left")

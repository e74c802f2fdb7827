"""Objects of a store are read in the order of their names, each message once."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from contextlib import aclosing
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_connect.pure.failures import Transient
from pydanube_connect.sources import objects
from pydanube_connect.sources.object_contents import blocks_of, rows_of
from pydanube_connect.sources.objects import ObjectsOptions, ObjectsSource


def parquet_of(**columns):
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


@pytest.fixture
def store(tmp_path):
    def put(name, data):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)

    return put


async def read(tmp_path, count, position=None, **options):
    """The first *count* payloads, and the position after each batch."""
    source = ObjectsSource(
        ObjectsOptions(
            url=tmp_path.as_uri().replace("file", "fs"), poll="10ms", **options
        )
    )
    values, positions = [], []
    batches = source.batches(position)
    async for batch in batches:
        values += [each.value for each in batch.records]
        positions.append((len(values), batch.position))
        if len(values) >= count:
            break
    await batches.aclose()
    return values, positions


async def test_lines_in_the_order_of_names(tmp_path, store):
    store("b.log", b"3\r\n4")
    store("a.log", b"1\n2\n")
    store("c.txt", b"other\n")
    store("d/e.log", b"5\n\n7\n")
    values, _ = await read(tmp_path, 7, pattern="*.log")
    assert values == [b"1", b"2", b"3", b"4", b"5", b"", b"7"]


async def test_objects_as_a_whole(tmp_path, store):
    store("a", b"1\n2\n")
    store("b", b"")
    values, _ = await read(tmp_path, 2, format=objects.ObjectFormat.WHOLE)
    assert values == [b"1\n2\n", b""]


async def test_reading_continues_after_every_batch(tmp_path, store):
    lines = [b"%d" % each for each in range(3 * objects.BATCH_LINES_MAX)]
    store("a", b"\n".join(lines))
    store("b", b"\n".join(lines[:10]) + b"\n")
    expected = [*lines, *lines[:10]]
    values, positions = await read(tmp_path, len(expected))
    assert values == expected
    assert len(positions) > 4
    for seen, position in positions[:-1]:
        rest, _ = await read(tmp_path, len(expected) - seen, position)
        assert rest == expected[seen:]


async def test_only_new_objects_are_read_after_the_latest(tmp_path, store):
    store("a", b"old\n")
    source_options = {"start": objects.ObjectsStart.LATEST}
    _, [(_, position)] = await read(tmp_path, 0, **source_options)
    store("b", b"new\n")
    values, _ = await read(tmp_path, 1, position, **source_options)
    assert values == [b"new"]


@pytest.mark.parametrize(
    "kind", [objects.ObjectFormat.LINES, objects.ObjectFormat.WHOLE]
)
async def test_long_messages_have_a_problem_and_others_are_read(tmp_path, store, kind):
    store("a", b"x" * 9_000_000)
    store("b", b"next")
    options = ObjectsOptions(
        url=tmp_path.as_uri().replace("file", "fs"),
        format=kind,
        message_bytes_max="1KiB",
    )
    records = []
    batches = ObjectsSource(options).batches(None)
    async with aclosing(batches):
        while len(records) < 2:
            records += (await anext(batches)).records
    assert [each.value for each in records] == [b"x" * 1024, b"next"]
    assert "message at 0 of a is longer than 1KiB" in records[0].problem
    assert records[1].problem is None


@given(lines=st.lists(st.binary(max_size=9).filter(lambda x: b"\n" not in x)))
async def test_blocks_do_not_divide_lines(lines):
    data = b"\n".join(lines)

    class Store:
        async def read(self, name, begin, end):
            return data[begin:end][:3]

    reading = objects.Reading(Store(), ObjectsOptions(url="fs:///a"))
    found = [each async for each in reading.read("a", 0)]
    values = list(itertools.chain(*(each.records for each in found)))
    wanted = data.split(b"\n")
    if not wanted[-1]:
        wanted.pop()
    assert [each.value for each in values] == [
        each.removesuffix(b"\r") for each in wanted
    ]


ROWS = [{"id": str(n), "text": f'a, "{n}"\nb'} for n in range(7000)]


def csv_of(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, ["id", "text"])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


async def test_rows_of_csv_continue_after_every_batch_also_compressed(tmp_path, store):
    store("a.csv.gz", gzip.compress(csv_of(ROWS)))
    store("b.csv", b"\xef\xbb\xbf" + csv_of(ROWS[:2]).replace(b"\r\n", b"\n"))
    store("c.csv.zst", pa.compress(csv_of(ROWS[2:3]), "zstd", asbytes=True))
    options = {"format": objects.ObjectFormat.CSV}
    expected = [*ROWS, *ROWS[:3]]
    values, positions = await read(tmp_path, len(expected), **options)
    assert values == expected
    assert len(positions) > 3
    for seen, position in positions[:-1]:
        rest, _ = await read(tmp_path, len(expected) - seen, position, **options)
        assert rest == expected[seen:]


async def test_rows_of_parquet_continue_after_every_batch(tmp_path, store):
    rows = [{"n": n, "at": None, "tags": ["a"]} for n in range(2500)]
    rows[0]["at"] = datetime(2026, 1, 2, tzinfo=UTC)
    table = pa.Table.from_pylist(rows).cast(
        pa.schema(
            {
                "n": pa.int64(),
                "at": pa.timestamp("ns", "UTC"),
                "tags": pa.list_(pa.string()),
            }
        )
    )
    (tmp_path / "a").mkdir()
    pq.write_table(table, tmp_path / "a" / "x.parquet", row_group_size=1200)
    options = {"format": objects.ObjectFormat.PARQUET}
    values, positions = await read(tmp_path, len(rows), **options)
    assert values == rows
    assert len(positions) > 3
    for seen, position in positions[:-1]:
        rest, _ = await read(tmp_path, len(rows) - seen, position, **options)
        assert rest == rows[seen:]


@pytest.mark.parametrize(
    ("kind", "name", "data", "problem"),
    [
        (
            "lines",
            "a.gz",
            gzip.compress(b"x\n" * 99, mtime=0)[:-9],
            "not compressed with gzip",
        ),
        ("lines", "a.zst", b"x", "not compressed with zstd"),
        ("csv", "a", b"n,n\n1,2\n", "same name"),
        ("csv", "a", b'"n\n1,2\n', "quotation marks"),
        ("csv", "a", b"n,m\n1\n", "has 1 cells, and the first row has 2"),
        ("csv", "a", b"n,m\n1,\xff\n", "not UTF-8"),
        ("csv", "a", b"n" * 2000, "first row is longer"),
        ("csv", "a", b'n,m\n1,"' + b"x" * 2000, "longer than 1KiB"),
        ("parquet", "a", b"PAR1 and more of it PAR1", "not a Parquet file"),
        ("parquet", "a", b"", "not a Parquet file"),
        (
            "parquet",
            "a",
            parquet_of(at=pa.array([2**62], pa.timestamp("us", "UTC"))),
            "value that JSON has not",
        ),
    ],
    ids=lambda each: str(each)[:40],
)
async def test_an_object_of_another_format_is_a_problem_and_the_next_is_read(
    tmp_path, store, kind, name, data, problem
):
    store(name, data)
    options = ObjectsOptions(
        url=f"fs://{tmp_path}",
        format=objects.ObjectFormat(kind),
        message_bytes_max="1KiB",
        poll="10ms",
    )
    records = []
    async with aclosing(ObjectsSource(options).batches(None)) as batches:
        async for batch in batches:
            records += [each for each in batch.records if each.problem]
            position = batch.position
            if position == {"name": name}:
                break
    assert len(records) == 1
    assert problem in records[0].problem
    assert name in records[0].problem


async def test_a_store_that_does_not_answer_is_no_invalid_object():
    class File(io.BytesIO):
        def readinto(self, _):
            raise OSError("no answer")

    class Store:
        def open(self, _):
            return File(bytes(100))

    for found in (
        blocks_of(Store(), "a", 0, "gzip"),
        rows_of(Store(), "a", 0),
    ):
        with pytest.raises(Transient, match="no answer"):
            await anext(found)


async def test_rows_whose_columns_are_only_called_like_those_of_messages(
    tmp_path, store
):
    row = dict.fromkeys(objects.MESSAGE_COLUMNS.names, 1)
    store("a", parquet_of(**{name: [each] for name, each in row.items()}))
    values, _ = await read(tmp_path, 1, format=objects.ObjectFormat.PARQUET)
    assert values == [row]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
async def test_batches_of_rows_say_how_large_they_are(tmp_path, store, kind):
    """So few large rows are in memory until they are published."""
    table = pa.table({"n": ["x" * 1000] * 50})
    if kind == "csv":
        store("a", b"n\n" + b"x" * 1000 + b"\n" + (b"x" * 1000 + b"\n") * 49)
    else:
        pq.write_table(table, tmp_path / "a")
    options = ObjectsOptions(
        url=f"fs://{tmp_path}", format=objects.ObjectFormat(kind), poll="10ms"
    )
    async with aclosing(ObjectsSource(options).batches(None)) as batches:
        async for batch in batches:
            if batch.records:
                break
    assert len(batch.records) == 50
    assert 50_000 <= batch.byte_count <= 60_000

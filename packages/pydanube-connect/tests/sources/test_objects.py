"""Objects of a store are read in the order of their names, each message once."""

from __future__ import annotations

import itertools
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_connect.sources import objects
from pydanube_connect.sources.objects import ObjectsOptions, ObjectsSource


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


@pytest.mark.parametrize("kind", list(objects.ObjectFormat))
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

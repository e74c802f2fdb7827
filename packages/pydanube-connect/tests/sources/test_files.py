"""The lines of files are read once, also when files are renamed or truncated."""

import asyncio
import os
from contextlib import aclosing

import pytest

from pydanube_connect.sources.files import FilesOptions, FilesSource, FilesStart

HOUR_AGO = 3700


class Reading:
    """A source that reads a directory, run after run."""

    def __init__(self, directory, *patterns, **options):
        self.position = None
        self._options = FilesOptions(
            directory=str(directory),
            patterns=list(patterns or ["*.log"]),
            poll="1ms",
            **options,
        )

    async def lines(self, count):
        """The next *count* lines, each with its file; no more come at once."""
        batches = FilesSource(self._options).batches(self.position)
        found = []
        try:
            async with asyncio.timeout(30):
                while len(found) < count or self.position is None:
                    batch = await anext(batches)
                    self.position = batch.position
                    found += [
                        (each.attributes["file.path"], each.value.decode())
                        for each in batch.records
                    ]
        finally:
            await batches.aclose()
        return found


def append(path, text):
    with path.open("a") as file:
        file.write(text)


async def test_lines_are_read_when_they_are_complete(tmp_path):
    log = tmp_path / "a.log"
    append(log, "one\r\ntwo\nthr")
    append(tmp_path / "other.txt", "no\n")
    reading = Reading(tmp_path)
    assert await reading.lines(2) == [("a.log", "one"), ("a.log", "two")]
    append(log, "ee\n\nfour\n")
    assert await reading.lines(3) == [
        ("a.log", "three"),
        ("a.log", ""),
        ("a.log", "four"),
    ]


async def test_files_below_and_new_ones_are_found(tmp_path):
    reading = Reading(tmp_path, "**/*.log")
    append(tmp_path / "a.log", "one\n")
    assert await reading.lines(1) == [("a.log", "one")]
    (tmp_path / "sub").mkdir()
    append(tmp_path / "sub/b.log", "two\n")
    assert await reading.lines(1) == [("sub/b.log", "two")]


async def test_latest_begins_after_the_complete_lines_that_exist(tmp_path):
    append(tmp_path / "a.log", "old\nincompl")
    append(tmp_path / "empty.log", "")
    reading = Reading(tmp_path, start=FilesStart.LATEST)
    assert await reading.lines(0) == []
    append(tmp_path / "a.log", "ete\n")
    append(tmp_path / "empty.log", "first\n")
    append(tmp_path / "new.log", "new\n")
    assert sorted(await reading.lines(3)) == [
        ("a.log", "incomplete"),
        ("empty.log", "first"),
        ("new.log", "new"),
    ]


@pytest.mark.parametrize("pattern", ["a.log", "a.log*"])
async def test_a_renamed_file_is_read_to_its_end(tmp_path, pattern):
    log = tmp_path / "a.log"
    append(log, "one\n")
    reading = Reading(tmp_path, pattern)
    assert await reading.lines(1) == [("a.log", "one")]
    append(log, "two\n")
    log.rename(tmp_path / "a.log.1")
    append(tmp_path / "a.log.1", "written late\n")
    append(log, "three\n")
    found = await reading.lines(3)
    assert sorted(found) == [
        ("a.log", "three"),
        ("a.log.1", "two"),
        ("a.log.1", "written late"),
    ]
    append(tmp_path / "a.log.1", "even later\n")
    assert await reading.lines(1) == [("a.log.1", "even later")]


async def test_the_last_line_of_a_file_that_was_renamed_long_ago_is_complete(tmp_path):
    log = tmp_path / "a.log"
    append(log, "one\nlast")
    reading = Reading(tmp_path)
    assert await reading.lines(1) == [("a.log", "one")]
    old = log.rename(tmp_path / "a.old")
    then = old.stat().st_mtime - HOUR_AGO
    os.utime(old, (then, then))
    assert await reading.lines(1) == [("a.old", "last")]
    append(tmp_path / "b.log", "x\n")
    await reading.lines(1)
    assert [each["path"] for each in reading.position.values()] == ["b.log"]


async def test_a_truncated_file_begins_anew(tmp_path):
    log = tmp_path / "a.log"
    append(log, "one\ntwo\n")
    reading = Reading(tmp_path)
    await reading.lines(2)
    log.write_text("1\n")
    assert await reading.lines(1) == [("a.log", "1")]
    # Truncated, and as long as before.
    log.write_text("9\n8\n7\n")
    assert await reading.lines(3) == [("a.log", each) for each in "987"]


async def test_files_that_are_gone_are_forgotten(tmp_path):
    append(tmp_path / "a.log", "one\n")
    reading = Reading(tmp_path)
    await reading.lines(1)
    (tmp_path / "a.log").unlink()
    append(tmp_path / "b.log", "two\n")
    assert await reading.lines(1) == [("b.log", "two")]
    assert [each["path"] for each in reading.position.values()] == ["b.log"]


async def test_long_lines_and_large_files(tmp_path):
    log = tmp_path / "a.log"
    append(log, "".join(f"{number:099}\n" for number in range(30_000)))
    reading = Reading(tmp_path, line_bytes_max="100B")
    found = await reading.lines(30_000)
    assert [int(line) for _, line in found] == list(range(30_000))


@pytest.mark.parametrize("size", [101, 3_000_000])
async def test_a_line_that_is_too_long_has_a_problem_and_the_next_is_read(
    tmp_path, size
):
    options = FilesOptions(
        directory=str(tmp_path), patterns=["*"], poll="1ms", line_bytes_max="100B"
    )
    log = tmp_path / "a.log"
    append(log, "x" * (size - 1))
    batches = FilesSource(options).batches(None)
    async with asyncio.timeout(30), aclosing(batches):
        first = await anext(batches)
        assert first.records == []
        append(log, "x\nnext\n")
        found = []
        while len(found) < 2:
            found += (await anext(batches)).records
    assert [each.value for each in found] == [b"x" * 100, b"next"]
    assert "the line at 0 of a.log is longer than 100B" in found[0].problem
    assert found[1].problem is None
    assert found[1].attributes["file.offset"] == str(size + 1)

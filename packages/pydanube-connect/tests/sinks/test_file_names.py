"""Tests of the names of files of messages."""

from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_connect.sinks.pure.file_names import (
    STEP_BYTES_MAX,
    InvalidPartition,
    directory_of,
    last_offset_of,
    name_of,
    partition_of,
    partition_problem,
)

DIRECTORY = directory_of("/default/orders", "")


def message_of(value):
    return SimpleNamespace(
        payload=msgspec.json.encode({"a": value}),
        publish_time=datetime(2026, 1, 2, 3, tzinfo=UTC),
    )


def test_names_sort_as_offsets_and_say_which_are_written():
    first = name_of(DIRECTORY, 0, 99, "jsonl.gz")
    assert first == f"default/orders/{0:020}-{99:020}.jsonl.gz"
    assert first < name_of(DIRECTORY, 100, 1000, "jsonl")
    assert last_offset_of(DIRECTORY, first) == 99
    assert last_offset_of(DIRECTORY, "default/orders/notes.txt") == -1


def test_files_of_other_partitions_are_not_those_of_a_directory():
    name = name_of(directory_of("/default/orders", "day=1"), 0, 99, "csv")
    assert last_offset_of(DIRECTORY, name) == -1


@given(st.text(max_size=100))
def test_a_value_is_one_part_of_a_path(value):
    try:
        found = partition_of("{value.a}/{time:%Y}", message_of(value))
    except InvalidPartition:
        assert len(value.encode()) > STEP_BYTES_MAX // 3
        return
    first, year = found.split("/")
    assert year == "2026"
    assert first.strip(".")
    assert first.isascii()


@given(st.lists(st.text(max_size=20), unique=True, min_size=2, max_size=2))
def test_different_values_have_different_partitions(values):
    first, second = (partition_of("{value.a}", message_of(each)) for each in values)
    assert first != second


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("/a", "not a path"),
        ("a//b", "not a path"),
        ("../a", "not a path"),
        ("{time:%Y/%m}", "a slash is between places"),
        ("{tyme}", "stands for nothing"),
        ("day={time:%Y-%m-%d}/{value.a b}", "should be"),
    ],
)
def test_a_partition_is_a_path(template, problem):
    assert problem in partition_problem(template)


def test_a_valid_partition_has_no_problem():
    assert partition_problem("day={time:%F}/region={value.region}/{key}") is None

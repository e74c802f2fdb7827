"""Tests of the options of both table formats."""

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pure.sink import BatchIdentity
from pydanube_spark.tables.pure.table_options import (
    DELTA_OPTIONS,
    ICEBERG_OPTIONS,
    PartitionField,
    UpkeepPolicy,
    parse_delta,
    parse_iceberg,
    parse_partition_by,
)
from support.fakes.option_tables import options_table
from support.project import ROOT


def test_option_names_ignore_case():
    found = parse_delta(
        {
            "PATH": " s3://bucket/table ",
            "partitionby": "day, customer",
            "MergeSchema": "TRUE",
            "appId": "orders",
            "batchId": "7",
            "fileBytesMax": "1000",
            "storage.AWS_REGION": "eu-central-1",
            "checkpointLocation": "of Spark",
        }
    )
    assert found.table == "s3://bucket/table"
    assert found.connection == {"aws_region": "eu-central-1"}
    assert [part.column for part in found.write.partition_by] == ["day", "customer"]
    assert found.write.merge_schema
    assert found.identity == BatchIdentity("orders", 7)
    assert found.write.file_bytes_max == 1000


def test_upkeep_is_a_number_of_files_and_an_age():
    assert parse_delta({"path": "x"}).write.upkeep is None
    given = {"path": "x", "compactFiles": "20"}
    assert parse_delta(given).write.upkeep == UpkeepPolicy(files_min=20)
    found = parse_delta({**given, "cleanOlderThan": "7d"}).write.upkeep
    assert found == UpkeepPolicy(files_min=20, clean_older_than_s=7 * 86_400)


def test_catalog_properties_keep_their_names():
    found = parse_iceberg({"table": "a.b.c", "catalog.s3.region": "x"})
    assert found.table == "a.b.c"
    assert found.connection == {"s3.region": "x"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'path' is required"),
        ({"path": ""}, "'path' is required"),
        ({"path": "x", "mergeSchem": "true"}, "did you mean 'mergeSchema'"),
        ({"path": "x", "storage.": "y"}, "unknown option 'storage.'"),
        ({"path": "x", "mergeSchema": "yes"}, "mergeSchema: must be true or false"),
        ({"path": "x", "batchId": "1"}, "batchId: set appId, too"),
        ({"path": "x", "appId": "a", "batchId": "-1"}, "batchId: must be a number"),
        ({"path": "x", "fileBytesMax": "0"}, "fileBytesMax: must be a number from 1"),
        ({"path": "x", "partitionBy": "day(t)"}, "add a column with this value"),
        ({"path": "x", "compactFiles": "1"}, "compactFiles: must be a number from 2"),
        ({"path": "x", "cleanOlderThan": "9h"}, "cleanOlderThan: only with"),
        (
            {"path": "x", "compactFiles": "9", "cleanOlderThan": "9m"},
            "cleanOlderThan: must be 1h or more",
        ),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(InvalidConfig, match=message.replace("(", r"\(")):
        parse_delta(options)


@pytest.mark.parametrize("name", ["orders", ".orders", "lake."])
def test_iceberg_table_without_namespace_is_refused(name):
    with pytest.raises(InvalidConfig, match="table: "):
        parse_iceberg({"table": name})


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", []),
        ("a", ["a"]),
        ("a, b ,", ["a", "b"]),
        ("day(t)", ["day(t)"]),
        ("days(t), HOURS(u)", ["day(t)", "hour(u)"]),
        ("bucket(16, key),truncate(name, 4)", ["bucket(16, key)", "truncate(4, name)"]),
    ],
)
def test_partition_by_is_parsed(text, fields):
    assert [str(each) for each in parse_partition_by(text)] == fields


@pytest.mark.parametrize(
    "text",
    ["week(t)", "day(t, 3)", "bucket(key)", "bucket(0, k)", "a b", "day(", "a,a"],
)
def test_invalid_partition_by_is_refused(text):
    with pytest.raises(InvalidConfig, match="partitionBy"):
        parse_partition_by(text)


def test_transforms_have_iceberg_names():
    assert parse_partition_by("bucket(16, key)") == (
        PartitionField("key", "bucket[16]"),
    )


@pytest.mark.parametrize(
    ("page", "options"), [("delta", DELTA_OPTIONS), ("iceberg", ICEBERG_OPTIONS)]
)
def test_guide_lists_every_option(page, options):
    guide = ROOT / f"docs/guide/{page}.md"
    assert options_table(options) in guide.read_text(encoding="utf-8")

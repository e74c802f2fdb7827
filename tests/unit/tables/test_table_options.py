"""What is said with option(...) of the two formats."""

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.spark.sink import BatchIdentity
from pydanube.spark.sink_options import options_table
from pydanube.tables.table_options import (
    DELTA_OPTIONS,
    ICEBERG_OPTIONS,
    PartitionField,
    parse_delta,
    parse_iceberg,
    parse_partition_by,
)
from support.project import ROOT


def test_options_are_taken_in_any_case():
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
    assert found.path == "s3://bucket/table"
    assert found.storage == {"aws_region": "eu-central-1"}
    assert [part.column for part in found.write.partition_by] == ["day", "customer"]
    assert found.write.merge_schema
    assert found.identity == BatchIdentity("orders", 7)
    assert found.write.file_bytes_max == 1000


def test_catalog_properties_keep_their_names():
    found = parse_iceberg({"table": "a.b.c", "catalog.s3.region": "x"})
    assert found.table == "a.b.c"
    assert found.catalog == {"s3.region": "x"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'path' is required"),
        ({"path": ""}, "'path' is required"),
        ({"path": "x", "mergeSchem": "true"}, "did you mean 'mergeSchema'"),
        ({"path": "x", "storage.": "y"}, "unknown option 'storage.'"),
        ({"path": "x", "mergeSchema": "yes"}, "mergeSchema: must be true or false"),
        ({"path": "x", "batchId": "1"}, "batchId: give appId too"),
        ({"path": "x", "appId": "a", "batchId": "-1"}, "batchId: must be a number"),
        ({"path": "x", "fileBytesMax": "0"}, "fileBytesMax: must be a number from 1"),
        ({"path": "x", "partitionBy": "day(t)"}, "add a column that has it"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    with pytest.raises(InvalidConfig, match=message.replace("(", r"\(")):
        parse_delta(options)


@pytest.mark.parametrize("name", ["orders", ".orders", "lake."])
def test_an_iceberg_table_has_a_namespace(name):
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
def test_a_partitioning_is_understood(text, fields):
    assert [str(each) for each in parse_partition_by(text)] == fields


@pytest.mark.parametrize(
    "text",
    ["week(t)", "day(t, 3)", "bucket(key)", "bucket(0, k)", "a b", "day(", "a,a"],
)
def test_a_partitioning_that_is_none_is_refused(text):
    with pytest.raises(InvalidConfig, match="partitionBy"):
        parse_partition_by(text)


def test_transforms_are_written_as_iceberg_has_them():
    assert parse_partition_by("bucket(16, key)") == (
        PartitionField("key", "bucket[16]"),
    )


@pytest.mark.parametrize(
    ("page", "options"), [("delta", DELTA_OPTIONS), ("iceberg", ICEBERG_OPTIONS)]
)
def test_the_guide_has_every_option(page, options):
    guide = ROOT / f"docs/guide/{page}.md"
    assert options_table(options) in guide.read_text(encoding="utf-8")

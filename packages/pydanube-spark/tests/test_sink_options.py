"""The options that several sinks have, and the tables of all in the guide."""

import pyarrow as pa
import pytest

from pydanube_spark.formats import OPTIONS, SINKS, declared_options
from pydanube_spark.pure.sink_options import APP_ID, missing_columns, parse_sink_options
from pydanube_spark.sinks.option_tables import (
    CLICKHOUSE_OPTIONS,
    LANCEDB_OPTIONS,
    POSTGRES_OPTIONS,
)
from support.fakes.option_tables import options_table
from support.project import ROOT


def test_options_of_spark_itself_are_ignored():
    given = parse_sink_options({"checkpointLocation": "/tmp/x"}, (APP_ID,))
    assert "checkpointLocation" not in given


@pytest.mark.parametrize(
    "declared",
    [POSTGRES_OPTIONS, CLICKHOUSE_OPTIONS, LANCEDB_OPTIONS],
)
def test_guide_has_the_table_of_each_sink(declared):
    guide = ROOT / "docs/guide/sinks.md"
    assert options_table(declared) in guide.read_text(encoding="utf-8")


def test_every_format_declares_its_options():
    assert OPTIONS.keys() == SINKS.keys()
    for name in OPTIONS:
        names = [each.name for each in declared_options(name)]
        assert len(set(names)) == len(names)
        assert "appId" in names


def test_a_wrong_name_has_a_suggestion_or_else_a_list():
    there = pa.schema({"customer": pa.string(), "amount": pa.int64()})
    problem, other = missing_columns("keyColumns", ["custumer", "amount", "z"], there)
    assert problem == (
        "keyColumns: the DataFrame has no column 'custumer'; did you mean 'customer'?"
    )
    assert other.endswith("no column 'z'; it has customer, amount")

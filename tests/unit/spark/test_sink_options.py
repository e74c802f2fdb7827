"""The options that several sinks have, and the tables of all in the guide."""

import pytest

from pydanube.sinks import clickhouse, http, lancedb, postgres
from pydanube.spark.sink_options import APP_ID, parse_sink_options
from support.option_tables import options_table
from support.project import ROOT


def test_options_of_spark_itself_are_ignored():
    given = parse_sink_options({"checkpointLocation": "/tmp/x"}, (APP_ID,))
    assert "checkpointLocation" not in given


@pytest.mark.parametrize(
    "declared",
    [postgres.OPTIONS, clickhouse.OPTIONS, lancedb.OPTIONS, http.OPTIONS],
)
def test_guide_has_the_table_of_each_sink(declared):
    guide = ROOT / "docs/guide/sinks.md"
    assert options_table(declared) in guide.read_text(encoding="utf-8")

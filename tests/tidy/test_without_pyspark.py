"""Reading, exporting and maintaining topics work where PySpark is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = [
    "pydanube_spark.pipelines.loading",
    "pydanube_spark.sinks.option_tables",
    "pydanube_spark",
    "pydanube_spark.reader.scan_reader",
    "pydanube_spark.tables.delta_table",
    "pydanube_spark.tables.iceberg_table",
    "pydanube_spark.tables.export.exporter",
    "pydanube_spark.tables.export.zero_copy",
    "pydanube_spark.tables.maintenance.run",
]
BLOCKED = "import sys; sys.modules['pyspark'] = None; import "


@pytest.mark.slow
def test_modules_are_imported_without_pyspark() -> None:
    program = BLOCKED + ", ".join(MODULES)
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

"""Reading, exporting and maintaining topics work where PySpark is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = [
    "pydanube.pipelines.loading",
    "pydanube.sinks.option_tables",
    "pydanube.spark",
    "pydanube.reader.scan_reader",
    "pydanube.tables.delta_table",
    "pydanube.tables.iceberg_table",
    "pydanube.tables.export.exporter",
    "pydanube.tables.export.zero_copy",
    "pydanube.tables.maintenance.run",
]
BLOCKED = "import sys; sys.modules['pyspark'] = None; import "


@pytest.mark.slow
def test_modules_are_imported_without_pyspark() -> None:
    program = BLOCKED + ", ".join(MODULES)
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

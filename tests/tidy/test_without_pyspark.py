"""Reading, exporting and maintaining topics work where PySpark is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = "import sys; sys.modules['pyspark'] = None; import {module}"


@pytest.mark.parametrize(
    "module",
    [
        "pydanube.spark",
        "pydanube.reader.scan_reader",
        "pydanube.tables.delta_table",
        "pydanube.tables.iceberg_table",
        "pydanube.tables.export.exporter",
        "pydanube.tables.export.zero_copy",
        "pydanube.tables.maintenance.run",
    ],
)
def test_module_is_imported_without_pyspark(module: str) -> None:
    program = BLOCKED.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

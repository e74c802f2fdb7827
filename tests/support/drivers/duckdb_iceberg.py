"""DuckDB with its Iceberg extension, from packages instead of the network."""

from importlib.util import find_spec
from pathlib import Path

import pytest

EXTENSIONS = ("avro", "httpfs", "iceberg")


def connect_duckdb(directory: Path):
    """Return a connection that keeps its extensions in *directory*."""
    duckdb = pytest.importorskip("duckdb")
    database = duckdb.connect()
    database.execute(f"SET extension_directory = '{directory}'")
    database.execute(f"SET home_directory = '{directory}'")
    for name in EXTENSIONS:
        found = find_spec(f"duckdb_extension_{name}")
        if found is None or found.origin is None:
            pytest.skip(f"the package duckdb-extension-{name} is not installed")
        [file] = Path(found.origin).parent.rglob("*.duckdb_extension")
        database.execute(f"INSTALL '{file}'")
        database.execute(f"LOAD {name}")
    return database

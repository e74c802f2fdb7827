"""
Upserts of changed rows into a large table, without Spark.

``python -m bench.spark_upserts`` fills a table with rows whose keys are in no order,
and merges changes of random keys, as the commit of a sink does.  It prints the time,
the processor time, the bytes written, and the memory of each merge, as a Markdown
table.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.scale import tell
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.data_files import write_files
from pydanube_spark.tables.delta_table import DeltaLakeTable
from pydanube_spark.tables.iceberg_table import IcebergLakeTable
from pydanube_spark.tables.pure.table_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pydanube_spark.tables.table import LakeTable

COLUMNS = UpsertColumns(keys=("id",), order=("at",))
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.int64()),
        ("amount", pa.float64()),
        ("name", pa.string()),
        ("note", pa.string()),
    ]
)
BATCH_ROWS = 1_000_000
FILE_BYTES = 32 * 1024 * 1024
MIB = 1024 * 1024


def main() -> None:
    """Fill a table and merge changes into it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("delta", "iceberg"), default="iceberg")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--changed", type=float, default=0.01, help="the part of them")
    parser.add_argument("--merges", type=int, default=3)
    parser.add_argument(
        "--rewrite",
        action="store_true",
        help="rewrite the files of an Iceberg table instead of marking rows",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        table = _table(Path(directory), given.kind, rewrites=given.rewrite)
        _run(Path(directory), table, given.rows, given.changed, given.merges)


def _run(
    directory: Path, table: LakeTable, count: int, changed: float, merges: int
) -> None:
    rng = np.random.default_rng(1)
    place = table.prepare(SCHEMA, WriteOptions())
    keys = rng.permutation(count)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, count, BATCH_ROWS):
            yield from _rows(keys[start : start + BATCH_ROWS], 1, rng).to_batches(
                65_536
            )

    files = write_files(place, batches(), "bench", file_bytes_max=FILE_BYTES)
    table.commit(files, ())
    size = sum(each.byte_count for each in files)
    tell(f"{count:,} rows in {len(files)} files of {size / MIB:.0f} MiB\n")
    tell("| merge | seconds | of processors | written | peak memory |")
    tell("|---|---|---|---|---|")
    for number in range(1, merges + 1):
        wanted = rng.choice(count, max(1, int(count * changed)), replace=False)
        changes = _rows(wanted, number + 1, rng)
        written, used = _byte_count(directory), sum(os.times()[:2])
        began = time.perf_counter()
        table.merge(changes, COLUMNS, ())
        seconds = time.perf_counter() - began
        used = sum(os.times()[:2]) - used
        written = _byte_count(directory) - written
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        tell(
            f"| {len(changes):,} rows | {seconds:.1f} | {used:.1f} | "
            f"{written / MIB:.1f} MiB | {peak:.0f} MiB |"
        )


def _table(directory: Path, kind: str, *, rewrites: bool) -> LakeTable:
    if kind == "delta":
        return DeltaLakeTable(str(directory / "table"), {})
    catalog = {
        "type": "sql",
        "name": "bench",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"file://{directory}/warehouse",
    }
    if rewrites:
        return IcebergLakeTable("db.bench", catalog, rewrite_bytes_max=1 << 60)
    return IcebergLakeTable("db.bench", catalog)


def _rows(keys: NDArray[np.int64], at: int, rng: np.random.Generator) -> pa.Table:
    """Return rows with keys *keys*, of about 30 bytes in a file."""
    count = len(keys)
    texts = [
        pa.array(rng.integers(0, most, count)).cast(pa.string())
        for most in (100_000, 1_000_000_000)
    ]
    return pa.table(
        [keys, np.full(count, at), rng.random(count), *texts], schema=SCHEMA
    )


def _byte_count(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.rglob("*.parquet"))


if __name__ == "__main__":
    main()

"""
Upserts of changed rows into a large table, by the sink of a stream.

``python -m bench.spark_upserts`` fills a table with rows whose keys are in no order,
and merges changes of random keys, as the commit of a sink does.  With ``--master`` the
jobs of a merge are tasks of Spark.  It prints the time, the processor time, the bytes
written, and the memory of each merge, as a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from bench.scale import tell
from pydanube_spark.pure.sink import BatchKey, TaskKey
from pydanube_spark.pure.upserts import UpsertColumns
from pydanube_spark.tables.data_files import write_files
from pydanube_spark.tables.delta_table import DeltaLakeTable
from pydanube_spark.tables.iceberg_table import IcebergLakeTable
from pydanube_spark.tables.merge_runners import LOCAL_BYTES_MAX
from pydanube_spark.tables.pure.table_options import WriteOptions
from pydanube_spark.tables.staged_rows import StagingLocation
from pydanube_spark.tables.table_sink import LakeSink

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
    parser.add_argument(
        "--master", help="run all jobs as tasks of Spark there, such as local[2]"
    )
    given = parser.parse_args()
    local_bytes_max = LOCAL_BYTES_MAX
    if given.master is not None:
        from pydanube_spark.sessions import session  # noqa: PLC0415

        session("upserts", master=given.master)
        local_bytes_max = -1
    with tempfile.TemporaryDirectory() as directory:
        table = _table(Path(directory), given.kind, rewrites=given.rewrite)
        _run(
            Path(directory),
            table,
            count=given.rows,
            changed=given.changed,
            merges=given.merges,
            local_bytes_max=local_bytes_max,
        )


def _run(
    directory: Path,
    table: LakeTable,
    *,
    count: int,
    changed: float,
    merges: int,
    local_bytes_max: int,
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
    sink = LakeSink(
        table,
        StagingLocation(place, SCHEMA),
        file_bytes_max=FILE_BYTES,
        upsert=COLUMNS,
        local_bytes_max=local_bytes_max,
    )
    tell("| merge | seconds | of processors, here and elsewhere | written | memory |")
    tell("|---|---|---|---|---|")
    for number in range(1, merges + 1):
        wanted = rng.choice(count, max(1, int(count * changed)), replace=False)
        changes = _rows(wanted, number + 1, rng)
        key = BatchKey("bench", number, "bench")
        written = _byte_count(directory)
        output = sink.write(TaskKey(key, 0, number), iter(changes.to_batches()))
        before = _uses()
        # The peak of the memory, which Linux counts from here.
        Path("/proc/self/clear_refs").write_text("5")
        began = time.perf_counter()
        sink.commit(key, [output])
        seconds = time.perf_counter() - began
        written = _byte_count(directory) - written
        after = _uses()
        own = after.pop(os.getpid())
        used = own.seconds - before.pop(os.getpid()).seconds
        others = sum(each.seconds for each in after.values())
        others -= sum(each.seconds for each in before.values())
        workers = [each.peak_mib for each in after.values() if each.is_python]
        peak = f"{own.peak_mib:.0f} MiB"
        if workers:
            peak += f", a worker {max(workers):.0f} MiB"
        tell(
            f"| {len(changes):,} rows | {seconds:.1f} | {used:.1f} + {others:.1f} | "
            f"{written / MIB:.1f} MiB | {peak} |"
        )


class _Use(NamedTuple):
    """The resources that a process has used."""

    seconds: float
    peak_mib: float
    is_python: bool


def _uses() -> dict[int, _Use]:
    """Return what this process and those that it has started have used."""
    found, parents = {}, {}
    ticks = os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (path / "stat").read_text().rpartition(")")
            status = (path / "status").read_text()
        except OSError:
            continue  # It has ended.
        fields = rest.split()
        pid = int(path.name)
        parents[pid] = int(fields[1])
        peak = next((x for x in status.splitlines() if x.startswith("VmHWM")), "0 0")
        found[pid] = _Use(
            (int(fields[11]) + int(fields[12])) / ticks,
            int(peak.split()[1]) / 1024,
            "python" in name,
        )
    ours = {os.getpid()}
    while more := {pid for pid in parents if parents[pid] in ours} - ours:
        ours |= more
    return {pid: found[pid] for pid in ours}


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

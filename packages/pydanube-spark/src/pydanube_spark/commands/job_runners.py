"""Where the tasks of a command run: in threads, or in Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube_cli.presentation.output import print_note

if TYPE_CHECKING:
    from pydanube_spark.jobs import Runner

NO_SPARK = "none"

Master = Annotated[
    str,
    typer.Option(
        metavar="none|MASTER",
        help="Where the tasks run: none uses threads of this process; otherwise a "
        "Spark master such as local[*], spark://host:7077 or sc://host:15002.",
    ),
]


@contextmanager
def job_runner(name: str, master: str) -> Iterator[Runner]:
    """Yield the runner that a command's option ``--master`` names."""
    from pydanube_spark.jobs import SparkRunner, ThreadRunner  # noqa: PLC0415

    if master == NO_SPARK:
        yield ThreadRunner(os.cpu_count() or 1)
        return
    from pydanube_spark.sessions import session  # noqa: PLC0415  # It takes a while.

    with spark_log() as path:
        print_note(f"Starting Spark on {master}; if it fails, its log is {path}.")
        remote = master if master.startswith("sc://") else None
        spark = session(name, master=master, remote=remote, log_file=path)
        try:
            yield SparkRunner(spark)
        finally:
            spark.stop()


@contextmanager
def spark_log() -> Iterator[Path]:
    """Make a file for the log of Spark, which stays if the block raises an error."""
    with NamedTemporaryFile(prefix="danube-spark-", suffix=".log", delete=False) as log:
        path = Path(log.name)
    yield path
    path.unlink(missing_ok=True)

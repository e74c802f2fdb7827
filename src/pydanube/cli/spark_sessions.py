"""The Spark sessions of commands that can run without Spark."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

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
def spark_session(name: str, master: str, **options: Any) -> Iterator[SparkSession]:
    """Yield a session of the Spark at *master*, and stop it afterwards."""
    from pydanube.spark.session import session  # noqa: PLC0415  # It takes a while.

    remote = master if master.startswith("sc://") else None
    spark = session(name, master=master, remote=remote, **options)
    try:
        yield spark
    finally:
        spark.stop()

"""
A run as it was requested, and the processes that run such requests.

Such a process reads its request as JSON from standard input, because values of
``--set`` may be secrets, which everybody could see in the arguments of a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from pydanube.declarations.pure.parameters import parse_set
from pydanube.model.errors import InvalidRequest
from pydanube_spark.commands.pipeline_backfills import as_backfill
from pydanube_spark.pipelines.loading import Pipeline, load
from pydanube_spark.pipelines.pure.spec import TriggerKind, parse_trigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the user has requested it."""

    file: str
    settings: list[str] = []
    master: str | None = None
    remote: str | None = None
    conf: list[str] = []
    """Settings of Spark, which override those of the file."""
    trigger: str | None = None
    metrics_listen: str | None = None
    start: str | None = None
    """Where a backfill starts; see ``as_backfill``."""
    end: str | None = None
    into: str | None = None
    output_format: str = "table"
    supervisor: int | None = None
    """The pid of the process that runs the connector."""

    def load(self, tables: Mapping[str, Sequence[str]] | None = None) -> Pipeline:
        """
        Return the pipeline, with the Spark and the trigger of the request.

        *tables* are those of mirrors; see ``loading.load``.

        Raises:
            InvalidDeclaration: The file is invalid.
            InvalidRequest: Options exclude each other.
        """
        if self.master is not None and self.remote is not None:
            raise InvalidRequest("--master and --remote exclude each other")
        pipeline = self.declared(tables)
        spark = pipeline.spec.spark
        if self.master is not None or self.remote is not None:
            spark = msgspec.structs.replace(
                spark, master=self.master, remote=self.remote
            )
        if self.conf:
            settings = {**spark.settings, **parse_settings(self.conf)}
            spark = msgspec.structs.replace(spark, settings=settings)
        if spark is not pipeline.spec.spark:
            spec = msgspec.structs.replace(pipeline.spec, spark=spark)
            pipeline = replace(pipeline, spec=spec)
        pipeline = as_backfill(pipeline, self.start, self.end, self.into)
        if self.trigger is None:
            return pipeline
        kinds = (TriggerKind.AVAILABLE_NOW.value, TriggerKind.CONTINUOUS.value)
        value = self.trigger if self.trigger in kinds else {"every": self.trigger}
        return replace(pipeline, trigger=parse_trigger(value))

    def declared(self, tables: Mapping[str, Sequence[str]] | None = None) -> Pipeline:
        """Return the pipeline as the file declares it, with *tables* of mirrors."""
        given = parse_set(self.settings)
        return load(
            Path(self.file), parameters=given, environment=os.environ, tables=tables
        )


def load_pipeline(
    file: Path,
    settings: list[str] | None,
    master: str | None = None,
    remote: str | None = None,
    tables: Mapping[str, Sequence[str]] | None = None,
) -> Pipeline:
    """Return the pipeline in *file*, with the Spark that the options name."""
    request = RunRequest(
        file=str(file), settings=settings or [], master=master, remote=remote
    )
    return request.load(tables)


def start_process(
    program: str, request: RunRequest, name: str, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """
    Start a process of the module *program* for *request*.

    *name* is only shown in lists of processes.
    """
    process = subprocess.Popen(  # noqa: S603  # Our own program.
        [sys.executable, "-m", program, name],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        # A new session, so that Ctrl-C does not reach the process.
        start_new_session=True,
    )
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(msgspec.json.encode(request))
    return process


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """
    Return settings of Spark from texts of the form ``NAME=VALUE``.

    Raises:
        InvalidRequest: A text has another form.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidRequest(f"--conf has the form spark.NAME=VALUE, not {text!r}")
        found[name] = value
    return found

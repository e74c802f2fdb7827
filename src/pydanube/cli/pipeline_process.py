"""
The processes of pipelines that run in the background or are started again.

A process reads its request as JSON from standard input, because values of ``--set`` may
be secrets, which everybody could see in the arguments of a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from pydanube.cli.commands.pipeline_backfills import as_backfill
from pydanube.declarations.parameters import parse_set
from pydanube.model.errors import InvalidRequest
from pydanube.pipelines.loading import Pipeline, load
from pydanube.pipelines.spec import TriggerKind, parse_trigger
from pydanube.pipelines.submitting import parse_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


PROGRAM = "pydanube.cli.pipeline_program"
"""The module that such a process runs."""


class Role(Enum):
    """The part that a process plays in a run."""

    SUPERVISOR = "supervisor"
    """It holds the run, and starts workers."""
    WORKER = "worker"
    """It runs the pipeline once, with Spark."""
    CONNECTOR = "connector"
    """It holds the run of a connector's pipeline, and runs it once."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the user has requested it."""

    file: str
    connector: str | None = None
    """The connector of the file to run; None: the file is a pipeline."""
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
    is_once: bool = False
    """Whether the schedule and the restarts of the file are ignored."""
    is_detached: bool = False
    output_format: str = "table"
    submit: list[str] = []
    """The command that runs the pipeline instead of a worker; see ``submitting``."""
    submit_environment: dict[str, str] = {}
    supervisor: int | None = None
    """The pid of the process that supervises the worker."""

    def load(self) -> Pipeline:
        """
        Return the pipeline, with the Spark and the trigger of the request.

        Raises:
            InvalidDeclaration: The file is invalid.
            InvalidRequest: Options exclude each other.
        """
        if self.master is not None and self.remote is not None:
            raise InvalidRequest("--master and --remote exclude each other")
        pipeline = self._load()
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

    def _load(self) -> Pipeline:
        given = parse_set(self.settings)
        file = Path(self.file)
        if self.connector is None:
            return load(file, parameters=given, environment=os.environ)
        from pydanube.connectors import loading  # noqa: PLC0415  # Few runs do.
        from pydanube.pipelines.connector_pipelines import (  # noqa: PLC0415
            pipeline_of,
        )

        declared = loading.load(file, parameters=given, environment=os.environ)
        return next(
            pipeline_of(each) for each in declared if each.name == self.connector
        )


def load_pipeline(
    file: Path,
    settings: list[str] | None,
    master: str | None = None,
    remote: str | None = None,
) -> Pipeline:
    """Return the pipeline in *file*, with the Spark that the options name."""
    request = RunRequest(
        file=str(file), settings=settings or [], master=master, remote=remote
    )
    return request.load()


def start_process(
    request: RunRequest, role: Role, name: str, output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process for *request*; *name* is only shown in lists of processes."""
    # A new session, so that Ctrl-C does not reach the process.
    process = _popen(
        [sys.executable, "-m", PROGRAM, role.value, name], output, subprocess.PIPE
    )
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(msgspec.json.encode(request))
    return process


def start_command(
    command: Sequence[str], variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start the *command* of a request, with *variables* in its environment."""
    return _popen(command, None, subprocess.DEVNULL, variables)


def _popen(
    command: Sequence[str],
    output: IO[bytes] | None,
    stdin: int,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603  # Our own program, or Spark's.
        command,
        stdin=stdin,
        stdout=output,
        stderr=output,
        env={**os.environ, **(variables or {})},
        start_new_session=True,
    )

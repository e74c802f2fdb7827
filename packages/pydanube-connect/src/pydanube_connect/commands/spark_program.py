"""
The program of a process that ``spark_connectors`` starts.

    python -m pydanube_connect.commands.spark_program NAME

The request is JSON on standard input.
"""

from __future__ import annotations

import sys

import msgspec
import typer

from pydanube_cli.administration.declared_files import exit_on_problems
from pydanube_cli.invocation.error_report import exit_on_error
from pydanube_cli.presentation.output import OutputFormat
from pydanube_connect.commands.connector_run import ConnectorRun
from pydanube_spark.commands.pipeline_runs import run_here


def main() -> None:
    """Run the pipeline of a connector until it ends."""
    try:
        with exit_on_error(), exit_on_problems(OutputFormat.TABLE):
            run_here(msgspec.json.decode(sys.stdin.buffer.read(), type=ConnectorRun))
    except typer.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    main()

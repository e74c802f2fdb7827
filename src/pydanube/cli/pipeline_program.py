"""
The program of a process that ``pipeline_process`` starts.

    python -m pydanube.cli.pipeline_program NAME

The request is JSON on standard input.
"""

from __future__ import annotations

import sys

import msgspec
import typer

from pydanube.cli.commands.pipeline_runs import run_here
from pydanube.cli.declared_files import exit_on_problems
from pydanube.cli.error_report import exit_on_error
from pydanube.cli.output import OutputFormat
from pydanube.cli.pipeline_process import RunRequest


def main() -> None:
    """Run the pipeline of a connector until it ends."""
    try:
        with exit_on_error(), exit_on_problems(OutputFormat.TABLE):
            run_here(msgspec.json.decode(sys.stdin.buffer.read(), type=RunRequest))
    except typer.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    main()

"""
The program of a process that ``pipeline_process`` starts.

    python -m pydanube.cli.pipeline_program ROLE NAME

The request is JSON on standard input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import typer

from pydanube.cli.error_report import exit_on_error
from pydanube.cli.pipeline_process import Role, RunRequest
from pydanube.cli.pipeline_supervision import (
    run_connector,
    run_supervised,
    run_worker,
)

ROLES = {
    Role.SUPERVISOR: run_supervised,
    Role.WORKER: run_worker,
    Role.CONNECTOR: run_connector,
}


def main() -> None:
    """Run as the role in the arguments says."""
    _run(ROLES[Role(sys.argv[1])], sys.stdin.buffer.read())


def run_file(path: str) -> None:
    """Run as a worker, with the request in the file *path*."""
    _run(run_worker, Path(path).read_bytes())


def _run(run: Callable[[RunRequest], None], request: bytes) -> None:
    try:
        with exit_on_error():
            run(msgspec.json.decode(request, type=RunRequest))
    except typer.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    main()

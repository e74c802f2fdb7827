"""The problems of files that declare pipelines or connectors, as commands print."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import typer

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_cli.presentation.output import OutputFormat, print_json, print_note

EXIT_INVALID = 2


@contextmanager
def exit_on_problems(output_format: OutputFormat) -> Iterator[None]:
    """Print the problems of a file, one per line, and exit with code 2."""
    try:
        yield
    except InvalidDeclaration as invalid:
        if output_format is OutputFormat.JSON:
            found = [asdict(each) for each in invalid.problems]
            print_json({"file": invalid.file, "problems": found})
        else:
            for problem in invalid.problems:
                print_note(f"error: {invalid.file}: {problem}")
        raise typer.Exit(EXIT_INVALID) from None

"""`danube version`: prints the versions of pydanube and its main dependencies."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

import typer

from pydanube.cli import parameters
from pydanube.cli.output import OutputFormat, print_fields, print_json
from pydanube.cli.parameters import examples
from pydanube.model.version import __version__

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command(epilog=examples("danube version", "danube version --format json"))
def version(
    *,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """Print the version."""
    versions = {
        "danube": __version__,
        "python": platform.python_version(),
        "pyarrow": version_of("pyarrow"),
    }
    if output_format is OutputFormat.JSON:
        print_json(versions)
    else:
        print_fields(versions.items())

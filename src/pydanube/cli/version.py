"""`danube version`: which version this is, and of what it is made."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

import typer

from pydanube.cli import options
from pydanube.cli.answers import Format, print_facts, print_json
from pydanube.cli.options import examples
from pydanube.model.version import __version__

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@app.command(epilog=examples("danube version", "danube version --format json"))
def version(
    *,
    answer_format: options.AnswerFormat = Format.TABLE,
) -> None:
    """Say which version this is."""
    versions = {
        "danube": __version__,
        "python": platform.python_version(),
        "pyarrow": version_of("pyarrow"),
    }
    if answer_format is Format.JSON:
        print_json(versions)
    else:
        print_facts(versions.items())

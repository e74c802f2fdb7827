"""`danube version`: prints the versions of pydanube and its main dependencies."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

import typer

from pydanube.model.version import __version__
from pydanube_cli.invocation.declaration import command
from pydanube_cli.presentation.output import Fields, Result

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(app, "danube version", "danube version --format json")
def version() -> Result:
    """Print the version."""
    versions = {
        "danube": __version__,
        "python": platform.python_version(),
        "pyarrow": version_of("pyarrow"),
    }
    return Result(versions, Fields(versions.items()))

"""The options that commands for pipelines have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The pipeline file.", show_default=False),
]

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter of the file; may be repeated.",
    ),
]

Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The Spark master, such as 'local[4]' or spark://host:7077; overrides "
        "the file. By default all cores of this machine.",
    ),
]

Remote = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A Spark Connect server, such as sc://host:15002; instead of --master.",
    ),
]

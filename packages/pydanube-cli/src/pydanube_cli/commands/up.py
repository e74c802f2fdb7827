"""`danube up`: runs a whole system on this machine, for development."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pydanube_cli.development.example import write_example
from pydanube_cli.development.parts import find_parts
from pydanube_cli.development.processes import System
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption, run
from pydanube_cli.presentation.output import print_line, print_note

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube up",
    "danube up --init shop",
    "danube up shop",
    "danube up shop --no-console",
)
def up(
    directory: Annotated[Path, typer.Argument()] = Path(),
    *,
    init: bool = False,
    console: bool = True,
) -> None:
    """
    Run a broker, the console, and what a directory describes.

    For development: all of it in one command, with one log, until Ctrl-C. In the
    directory, broker.yaml has the settings of the broker, connectors/*.yaml and
    pipelines/*.yaml declare connectors and pipelines, and programs/*.py are programs in
    Python; none of them is needed. The broker's data is in .danube. Programs that fail
    are started again; when the broker ends, all end.

    Args:
        directory (DIRECTORY): The directory that describes the system.
        init: Write a small system into the directory, and run nothing: a web page that
            publishes orders, and a worker that bills them. It needs FastAPI.
        console (--console/--no-console): Whether to serve the web console, if it is
            installed.
    """
    if init:
        for path in write_example(directory):
            print_line(f"Wrote {path}")
        print_line(f"Run it: pip install fastapi uvicorn && danube up {directory}")
        return
    # The list of commands imports this module.
    from pydanube_cli.main import all_commands  # noqa: PLC0415

    parts = find_parts(directory, installed=all_commands(), has_console=console)
    width = max(len(each.name) for each in parts)
    names = ", ".join(each.name for each in parts)
    print_note(f"Running {names}. Stop with Ctrl-C.")
    system = System(parts, lambda name, text: print_line(f"{name:<{width}} | {text}"))

    async def serve(interruption: Interruption) -> None:
        async with interruption.until_requested():
            await system.run()

    run(serve)

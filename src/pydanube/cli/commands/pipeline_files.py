"""The pipeline file of a command, and the problems in it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.cli.output import OutputFormat, print_json, print_note
from pydanube.model.errors import InvalidRequest
from pydanube.pipelines.loading import Pipeline, load, locate
from pydanube.pipelines.parameters import parse_set
from pydanube.pipelines.problems import InvalidPipeline
from pydanube.pipelines.spec import Trigger, TriggerKind, parse_duration
from pydanube.pipelines.state import StateDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_INVALID = 2

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


def load_pipeline(
    file: Path,
    settings: list[str] | None,
    master: str | None = None,
    remote: str | None = None,
) -> Pipeline:
    """Return the pipeline in *file*, with the Spark that the options name."""
    if master is not None and remote is not None:
        raise InvalidRequest("--master and --remote exclude each other")
    pipeline = load(file, parameters=_parameters(settings), environment=os.environ)
    if master is None and remote is None:
        return pipeline
    return pipeline.on_spark(master=master, remote=remote)


def find_state(file: Path, settings: list[str] | None) -> tuple[str, StateDirectory]:
    """Return the name of the pipeline in *file*, and its state."""
    name, directory = locate(file, _parameters(settings), os.environ)
    return name, StateDirectory(directory)


def _parameters(settings: list[str] | None) -> dict[str, str]:
    try:
        return parse_set(settings or ())
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def state_directory_of(pipeline: Pipeline) -> StateDirectory:
    """Return the state directory of *pipeline*."""
    return StateDirectory(pipeline.state_directory)


def parse_trigger(text: str) -> Trigger:
    """Return the trigger that --trigger names."""
    for kind in (TriggerKind.AVAILABLE_NOW, TriggerKind.CONTINUOUS):
        if text == kind.value:
            return Trigger(kind)
    return Trigger(TriggerKind.EVERY, parse_duration_option(text))


def parse_duration_option(text: str) -> float:
    """Return the seconds of a duration option."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


@contextmanager
def exit_on_problems(output_format: OutputFormat) -> Iterator[None]:
    """Print the problems of a pipeline file, one per line, and exit with code 2."""
    try:
        yield
    except InvalidPipeline as invalid:
        if output_format is OutputFormat.JSON:
            found = [asdict(each) for each in invalid.problems]
            print_json({"file": invalid.file, "problems": found})
        else:
            for problem in invalid.problems:
                print_note(f"error: {invalid.file}: {problem}")
        raise typer.Exit(EXIT_INVALID) from None

"""`danube pipeline`: runs pipelines on Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs, to_builtins

from pydanube.cli import parameters
from pydanube.cli.commands.pipeline_runs import (
    check_brokers_of,
    run_pipeline,
    spark_for,
)
from pydanube.cli.declaration import command
from pydanube.cli.output import (
    Fields,
    OutputFormat,
    Result,
    Table,
    print_json,
    print_line,
    print_note,
)
from pydanube.cli.parameters import command_group
from pydanube.cli.quantities import parse_duration
from pydanube.model.errors import InvalidRequest, NotFound, TimedOut
from pydanube.pipelines.loading import Pipeline, load, locate
from pydanube.pipelines.parameters import parse_set
from pydanube.pipelines.problems import InvalidPipeline
from pydanube.pipelines.spec import TriggerKind, parse_trigger
from pydanube.pipelines.state import StateDirectory
from pydanube.pipelines.templates import DEFAULT, templates, write_template

EXIT_INVALID = 2

app = command_group(
    "Run a pipeline of topics, files and tables on Spark.\n\nA pipeline is a "
    "file that describes sources, steps and sinks; 'danube pipeline init' writes an "
    "example.",
    "danube pipeline init",
    "danube pipeline validate orders.yaml",
    "danube pipeline run orders.yaml",
)

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

SINK = {"Sink": "sink", "Writes to": "writes_to", "Columns": "columns"}

Remote = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="A Spark Connect server, such as sc://host:15002; instead of --master.",
    ),
]


@command(
    app,
    "danube pipeline init",
    "danube pipeline init --template windows metrics",
    "danube pipeline init --list",
)
def init(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The directory for the files; by default the current directory.",
            show_default=False,
        ),
    ] = Path(),
    *,
    template: str = DEFAULT,
    is_list: bool = False,
) -> None:
    """
    Write an example of a pipeline, with comments.

    Existing files are never replaced.

    Args:
        template (-t NAME): The example to write.
        is_list (--list): Print the names of all templates and exit.
    """
    if is_list:
        for name in templates():
            print_line(name)
        return
    for path in write_template(template, directory):
        print_line(str(path))


@command(
    app,
    "danube pipeline validate orders.yaml",
    "danube pipeline validate orders.yaml --no-spark",
    "danube pipeline validate orders.yaml --set table=/tmp/orders",
)
def validate(
    file: File,
    *,
    settings: Set = None,
    master: Master = None,
    remote: Remote = None,
    spark: bool = True,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Validate a pipeline without starting or writing anything.

    The file is checked first; then, with Spark, the schemas of its sources, whether the
    steps fit them, and whether the sinks accept the result. All problems are reported
    with their place in the file. The exit code is 2 if there are any.

    Args:
        spark (--spark/--no-spark): Also validate with Spark, brokers and servers;
            --no-spark checks only the file, which is fast.
    """
    with exit_on_problems(output_format):
        pipeline = load_pipeline(file, settings, master, remote)
        sinks: list[dict[str, str]] = []
        if spark:
            check_brokers_of(pipeline)
            with spark_for(pipeline, pipeline.state.log_file) as session:
                from pydanube.pipelines.validation import (  # noqa: PLC0415
                    validate as validate_with,
                )

                queries = validate_with(session, pipeline)
                sinks = [
                    {
                        "sink": each.name,
                        "writes_to": each.writes_to,
                        "columns": each.frame.schema.simpleString(),
                    }
                    for each in queries
                ]
    asked = "" if spark else "; not checked with Spark and the servers"
    return Result(
        {"file": str(pipeline.file), "problems": [], "sinks": sinks},
        *([Table.of(sinks, SINK)] if sinks else ()),
        f"{pipeline.file}: valid{asked}",
    )


@command(
    app,
    "danube pipeline run orders.yaml",
    "danube pipeline run orders.yaml --set table=/data/orders --trigger 10s",
    "danube pipeline run orders.yaml --master spark://host:7077 --format json",
)
def run(
    file: File,
    *,
    settings: Set = None,
    master: Master = None,
    remote: Remote = None,
    trigger: str | None = None,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Run a pipeline, from where it stopped the last time.

    It is validated first. Ctrl-C, SIGTERM and 'danube pipeline stop' end it after the
    running micro-batches; a second Ctrl-C ends it at once, which is safe. The exit code
    is 0 if everything was written or 'danube pipeline stop' ended it, 1 if a query
    failed permanently, 2 if the file is invalid, 4 if the pipeline is already running,
    130 or 143 if a signal ended it.

    Args:
        trigger (available-now|continuous|DURATION): When queries run a micro-batch;
            overrides the file.
    """
    with exit_on_problems(OutputFormat.TABLE):
        pipeline = load_pipeline(file, settings, master, remote)
        if trigger is not None:
            kinds = (TriggerKind.AVAILABLE_NOW.value, TriggerKind.CONTINUOUS.value)
            value = trigger if trigger in kinds else {"every": trigger}
            pipeline = replace(pipeline, trigger=parse_trigger(value))
        run_pipeline(pipeline, output_format)


@command(
    app,
    "danube pipeline status orders.yaml",
    "danube pipeline status orders.yaml --format json",
)
def status(file: File, *, settings: Set = None) -> Result:
    """
    Show the progress of a run, or how the last run ended.

    The exit code is 3 if the pipeline was never run.
    """
    name, state = find_state(file, settings)
    found = state.read_status()
    if found is None:
        raise NotFound(f"{name} was never run: {state.path} is empty")
    is_there = state.is_locked()
    is_dead = not found.state.is_over and not is_there
    shown = "died" if is_dead else found.state.value
    parts: list[str | Fields | Table] = [
        Fields(
            [
                ("Pipeline", found.pipeline),
                ("State", shown),
                ("Process", f"{found.pid} on {found.host}"),
                ("Since", found.since),
                ("Updated", found.updated),
                ("Last error", found.error),
            ]
        )
    ]
    if is_dead:
        parts.append(
            "Its process no longer exists; 'danube pipeline run' continues where it "
            "stopped."
        )
    if found.queries:
        from pydanube.pipelines.display import COLUMNS, cells_of  # noqa: PLC0415

        parts += ["", Table(COLUMNS, [cells_of(each) for each in found.queries])]
    facts = to_builtins(found) | {"state": shown, "is_running": is_there}
    return Result(facts, *parts)


@command(app, "danube pipeline stop orders.yaml")
def stop(
    file: File,
    *,
    settings: Set = None,
    timeout: str = "10m",
) -> None:
    """
    End a run after its current micro-batches, and wait until it has ended.

    The exit code is 3 if the pipeline is not running, and 9 if the wait times out.

    Args:
        timeout (DURATION): How long to wait until the run has ended; 0s does not wait.
    """
    timeout_s = parse_duration(timeout)
    name, state = find_state(file, settings)
    if not state.is_locked():
        raise NotFound(f"{name} is not running")
    state.request_stop()
    give_up_at = time.monotonic() + timeout_s
    while timeout_s and state.is_locked():
        if time.monotonic() >= give_up_at:
            raise TimedOut(
                f"{name} is still running; it stops after its current micro-batches"
            )
        time.sleep(0.1)
    print_line(f"{name} has stopped" if timeout_s else "asked to stop")


def load_pipeline(
    file: Path,
    settings: list[str] | None,
    master: str | None = None,
    remote: str | None = None,
) -> Pipeline:
    """Return the pipeline in *file*, with the Spark that the options name."""
    if master is not None and remote is not None:
        raise InvalidRequest("--master and --remote exclude each other")
    pipeline = load(file, parameters=parse_set(settings or ()), environment=os.environ)
    if master is None and remote is None:
        return pipeline
    spark = structs.replace(pipeline.spec.spark, master=master, remote=remote)
    return replace(pipeline, spec=structs.replace(pipeline.spec, spark=spark))


def find_state(file: Path, settings: list[str] | None) -> tuple[str, StateDirectory]:
    """Return the name of the pipeline in *file*, and its state."""
    given = parse_set(settings or ())
    with exit_on_problems(OutputFormat.TABLE):
        name, state = locate(file, given, os.environ)
    return name, state


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

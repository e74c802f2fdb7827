"""`danube pipeline`: run what a file says on Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from pydanube.cli import parameters
from pydanube.cli.commands.pipeline_files import (
    File,
    Set,
    duration_of,
    find_state,
    load_pipeline,
    problems_reported,
    state_of,
    trigger_of,
)
from pydanube.cli.commands.pipeline_runs import run_pipeline, spark_for
from pydanube.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_line,
    print_table,
)
from pydanube.cli.parameters import examples
from pydanube.model.errors import NotFound, TimedOut
from pydanube.pipelines.templates import DEFAULT, templates, write_template

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Run a pipeline of topics, files and tables on Spark.\n\n"
    "A file says what is read, what becomes of it, and where it goes; "
    "'danube pipeline init' writes one to begin with.",
    epilog=examples(
        "danube pipeline init",
        "danube pipeline validate orders.yaml",
        "danube pipeline run orders.yaml",
    ),
)

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs, such as 'local[4]' or spark://host:7077, instead of "
        "what the file says. By default on all cores of this machine.",
    ),
]

Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="A Spark Connect server, such as sc://host:15002, instead of a master.",
    ),
]


@app.command(
    epilog=examples(
        "danube pipeline init",
        "danube pipeline init --template windows metrics",
        "danube pipeline init --list",
    )
)
def init(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Where the files go; by default here.",
            show_default=False,
        ),
    ] = Path(),
    *,
    template: Annotated[
        str,
        typer.Option(
            "--template", "-t", metavar="NAME", help="Which example to begin with."
        ),
    ] = DEFAULT,
    is_list: Annotated[
        bool, typer.Option("--list", help="Show the names of all templates, and end.")
    ] = False,
) -> None:
    """
    Write a pipeline to begin with, with comments.

    A file that is there already is never replaced.
    """
    if is_list:
        for name in templates():
            print_line(name)
        return
    for path in write_template(template, directory):
        print_line(str(path))


@app.command(
    epilog=examples(
        "danube pipeline validate orders.yaml",
        "danube pipeline validate orders.yaml --no-spark",
        "danube pipeline validate orders.yaml --set table=/tmp/orders",
    )
)
def validate(
    file: File,
    *,
    settings: Set = None,
    master: Master = None,
    remote: Remote = None,
    spark: Annotated[
        bool,
        typer.Option(
            "--spark/--no-spark",
            help="Ask Spark, brokers and servers too; or look at the file alone, which "
            "takes no time.",
        ),
    ] = True,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Find what is wrong with a pipeline; nothing is started or written.

    First the file itself is looked at, then with Spark what its sources have, whether
    the steps fit them, and whether the sinks take what comes out. Every problem is
    named with its place. The exit code is 2 if there is one.
    """
    with problems_reported(output_format):
        pipeline = load_pipeline(file, settings, master, remote)
        columns: list[tuple[str, str, str]] = []
        if spark:
            with spark_for(pipeline, state_of(pipeline).log_file) as session:
                from pydanube.pipelines.validation import (  # noqa: PLC0415
                    validate as validate_with,
                )

                plan = validate_with(session, pipeline)
                columns = [
                    (each.name, each.writes_to, each.frame.schema.simpleString())
                    for each in plan.queries
                ]
    if output_format is OutputFormat.JSON:
        sinks = [{"sink": a, "writes_to": b, "columns": c} for a, b, c in columns]
        print_json({"file": str(pipeline.file), "problems": [], "sinks": sinks})
        return
    if columns:
        print_table(("Sink", "Writes to", "Columns"), columns)
    asked = "" if spark else "; Spark and the servers were not asked"
    print_line(f"{pipeline.file}: nothing is wrong with it{asked}")


@app.command(
    epilog=examples(
        "danube pipeline run orders.yaml",
        "danube pipeline run orders.yaml --set table=/data/orders --trigger 10s",
        "danube pipeline run orders.yaml --master spark://host:7077 --format json",
    )
)
def run(
    file: File,
    *,
    settings: Set = None,
    master: Master = None,
    remote: Remote = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            "--trigger",
            metavar="available-now|continuous|DURATION",
            help="When queries run a micro-batch, instead of what the file says.",
        ),
    ] = None,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Run a pipeline, from where it stopped the last time.

    It is validated first. Ctrl-C, SIGTERM and 'danube pipeline stop' end it when the
    micro-batches that are running are done; Ctrl-C again ends it at once, which does no
    harm. The exit code is 0 if all there was is written or it was stopped, 1 if a query
    failed for good, 2 if something is wrong with the file, 4 if it is running already,
    130 or 143 if a signal ended it.
    """
    with problems_reported(OutputFormat.TABLE):
        pipeline = load_pipeline(file, settings, master, remote)
        if trigger is not None:
            pipeline = pipeline.with_trigger(trigger_of(trigger))
        run_pipeline(pipeline, output_format)


@app.command(
    epilog=examples(
        "danube pipeline status orders.yaml",
        "danube pipeline status orders.yaml --format json",
    )
)
def status(
    file: File,
    *,
    settings: Set = None,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Show how a run is getting on, or how the last one ended.

    The exit code is 3 if there was none.
    """
    with problems_reported(OutputFormat.TABLE):
        name, state = find_state(file, settings)
    found = state.read_status()
    if found is None:
        raise NotFound(f"{name} was never run: there is nothing in {state.path}")
    is_there = state.is_locked()
    is_dead = not found.state.is_over and not is_there
    shown = "died" if is_dead else found.state.value
    if output_format is OutputFormat.JSON:
        from msgspec import to_builtins  # noqa: PLC0415  # Not needed otherwise.

        print_json(to_builtins(found) | {"state": shown, "is_running": is_there})
        return
    print_fields(
        [
            ("Pipeline", found.pipeline),
            ("State", shown),
            ("Process", f"{found.pid} on {found.host}"),
            ("Since", found.since),
            ("Updated", found.updated),
            ("Last error", found.error),
        ]
    )
    if is_dead:
        print_line("Its process is gone; 'danube pipeline run' goes on where it was.")
    if found.queries:
        print_line()
        from pydanube.pipelines.display import COLUMNS, cells_of  # noqa: PLC0415

        print_table(COLUMNS, [cells_of(each) for each in found.queries])


@app.command(epilog=examples("danube pipeline stop orders.yaml"))
def stop(
    file: File,
    *,
    settings: Set = None,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How long to wait for its end; 0s does not wait."
        ),
    ] = "10m",
) -> None:
    """
    End a run when its micro-batches are done, and wait until it has ended.

    The exit code is 3 if it is not running, and 9 if it takes too long.
    """
    timeout_s = 0.0 if timeout.strip("0") in ("", "s") else duration_of(timeout)
    with problems_reported(OutputFormat.TABLE):
        name, state = find_state(file, settings)
    if not state.is_locked():
        raise NotFound(f"{name} is not running")
    state.request_stop()
    give_up_at = time.monotonic() + timeout_s
    while timeout_s and state.is_locked():
        if time.monotonic() >= give_up_at:
            raise TimedOut(f"{name} is still running; it ends when it can")
        time.sleep(0.1)
    print_line(f"{name} has stopped" if timeout_s else "asked to stop")

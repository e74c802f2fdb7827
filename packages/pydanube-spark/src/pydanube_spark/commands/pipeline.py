"""`danube pipeline`: runs pipelines on Spark."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pydanube.security.addresses import parse_listen
from pydanube_cli.administration.declared_files import exit_on_problems
from pydanube_cli.invocation import parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import OutputFormat, Result, Table, print_line
from pydanube_spark.commands import (
    pipeline_checks,
    pipeline_operations,
    pipeline_submit,
)
from pydanube_spark.commands.pipeline_options import File, Master, Remote, Set
from pydanube_spark.commands.pipeline_process import RunRequest, load_pipeline
from pydanube_spark.commands.pipeline_runs import (
    check_brokers_of,
    run_here,
    spark_for,
    with_mirrored_tables,
)
from pydanube_spark.pipelines.templates import DEFAULT, templates, write_template

app = command_group(
    "Run a pipeline of topics, files and tables on Spark.\n\nA pipeline is a "
    "file that describes sources, steps and sinks; 'danube pipeline init' writes an "
    "example.",
    "danube pipeline init",
    "danube pipeline validate orders.yaml",
    "danube pipeline run orders.yaml",
)

SINK = {"Sink": "sink", "Writes to": "writes_to", "Columns": "columns"}


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
            reload = partial(load_pipeline, file, settings, master, remote)
            pipeline = with_mirrored_tables(pipeline, reload)
            check_brokers_of(pipeline)
            with spark_for(pipeline, pipeline.state.log_file) as session:
                from pydanube_spark.pipelines.validation import (  # noqa: PLC0415
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
    "danube pipeline run orders.yaml --metrics-listen 127.0.0.1:9400",
    "danube pipeline run orders.yaml --master spark://host:7077 --format json",
    "danube pipeline run orders.yaml --from 2026-01-01 --to 2026-02-01 --into january",
)
def run(
    file: File,
    *,
    settings: Set = None,
    master: Master = None,
    remote: Remote = None,
    conf: Annotated[list[str] | None, typer.Option()] = None,
    trigger: str | None = None,
    start: str | None = None,
    end: str | None = None,
    into: str | None = None,
    metrics_listen: str | None = None,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Run a pipeline, from where it stopped the last time.

    It is validated first. Ctrl-C, SIGTERM and 'danube pipeline stop' end it after the
    running micro-batches; a second Ctrl-C ends it at once, which is safe. The exit code
    is 0 if everything was written or 'danube pipeline stop' ended it; 1 if a query
    failed permanently or no broker answers; 2 if the file is invalid; 4 if the pipeline
    is already running; 130 or 143 if a signal ended it. systemd, cron and other
    programs start it again after a failure, and on a schedule: see the guide.

    Args:
        conf (NAME=VALUE): A setting of Spark, which overrides that of the file; may be
            repeated.
        trigger (available-now|continuous|DURATION): When queries run a micro-batch;
            overrides the file.
        start (--from POSITION): Read topics once from this position on: a time, how
            long ago, an offset, or earliest; needs --into.
        end (--to POSITION): Stop before this position; by default the last message.
        into (NAME): Write to other targets, whose names end in NAME, with a state
            directory of their own; see 'danube pipeline verify --against'.
        metrics_listen (HOST:PORT): Serve metrics for Prometheus at this address;
            overrides the file.
    """
    request = RunRequest(
        file=str(file.resolve()),
        settings=settings or [],
        master=master,
        remote=remote,
        conf=conf or [],
        trigger=trigger,
        metrics_listen=metrics_listen,
        start=start,
        end=end,
        into=into,
        output_format=output_format.value,
    )
    with exit_on_problems(OutputFormat.TABLE):
        if metrics_listen is not None:
            parse_listen(metrics_listen)
        run_here(request)


pipeline_operations.add_to(app)
pipeline_submit.add_to(app)
pipeline_checks.add_to(app)

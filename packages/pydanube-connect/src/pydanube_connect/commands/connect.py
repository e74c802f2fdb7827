"""`danube connect`: runs connectors."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import to_builtins

from pydanube.aio.span_export import open_span_export
from pydanube.aio.tasks import task_scope
from pydanube.client.client import DEFAULT_URL
from pydanube.client.connections.telemetry import Telemetry
from pydanube.declarations.pure.parameters import parse_set
from pydanube.model import arrow
from pydanube.model.errors import InvalidRequest, NotFound, Unavailable
from pydanube.model.extras import MissingExtra, require
from pydanube.model.positions import to_datetime
from pydanube.model.quantity_formats import format_time
from pydanube.model.shown_text import excerpt, printable
from pydanube.security.addresses import parse_listen
from pydanube_cli.administration.declared_files import exit_on_problems
from pydanube_cli.invocation import interruption, parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interrupted, Interruption
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import (
    OutputFormat,
    Result,
    Table,
    print_json_line,
    print_line,
    print_note,
)
from pydanube_cli.presentation.quantities import parse_duration
from pydanube_connect.commands.connector_pipelines import pipeline_of
from pydanube_connect.commands.connector_runs import (
    ConnectorRun,
    new_token,
    registered,
    token_in,
)
from pydanube_connect.commands.connector_runs import find as find_runs
from pydanube_connect.commands.connector_runs import running as running_connectors
from pydanube_connect.commands.spark_connectors import run_spark
from pydanube_connect.commands.stored_connectors import (
    DONE,
    act_on_stored,
    add_commands,
)
from pydanube_connect.connector import Source
from pydanube_connect.kinds import KINDS, find_kind, options_of, summary_of
from pydanube_connect.loading import DeclaredConnector, load
from pydanube_connect.run_log import LINES_MAX, LogLine
from pydanube_connect.running import ConnectorRuns
from pydanube_connect.sinks.spark import SparkSink
from pydanube_connect.status import ConnectorStatus, State
from pydanube_connect.trial import Sample, Trial, try_connector
from pydanube_connect.worker import ConnectorWorker
from pydanube_spark.pipelines.state import process_start_time

EXIT_FAILED = 1
FOLLOW_S = 0.5
"""How often a process is asked for new lines."""
PAYLOAD_CHARACTERS_MAX = 200
"""How much of a payload is shown."""
LISTEN_DEFAULT = "127.0.0.1:0"
STOP_S = 30.0
"""How long connectors may take to finish what they have in hand."""

app = command_group(
    "Run connectors, which publish what other systems have, or write messages to "
    "them.\n\nA file declares them; 'danube connect kinds' shows what there is.\n\n"
    "'danube connect apply' stores connectors in the broker instead, where "
    "'danube connect work' runs them.",
    "danube connect kinds",
    "danube connect validate webhooks.yaml",
    "danube connect test webhooks.yaml",
    "danube connect run webhooks.yaml",
    "danube connect status",
    "danube connect apply webhooks.yaml",
    "danube connect work",
)
add_commands(app)

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE…", help="The files that declare connectors.", show_default=False
    ),
]

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter of the files; may be repeated.",
    ),
]


@command(
    app,
    "danube connect run webhooks.yaml",
    "danube connect run sensors.yaml orders.yaml --format json",
    "danube connect run orders.yaml --listen 0.0.0.0:9500",
)
def run(
    files: Files,
    *,
    settings: Set = None,
    interval: str = "10s",
    listen: str = LISTEN_DEFAULT,
    token_file: Path | None = None,
    traces: str | None = None,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Run the connectors of files, in one process, from where they stopped the last time.

    The files are validated first. A line is printed when the state of a connector
    changes, and regularly while its counts change. Ctrl-C and SIGTERM stop the
    connectors after what they have in hand; a second Ctrl-C stops them at once, which
    is safe. The exit code is 0 if all connectors have reached their end, 1 if one has
    failed for good, 2 if a file is invalid, 130 or 143 if a signal ended the run.

    The process answers to 'danube connect status', 'pause', 'resume' and 'restart'.

    Args:
        interval (DURATION): How often the counts are printed.
        listen (HOST:PORT): Where GET /health, /metrics (for Prometheus) and /status are
            answered; by default at a free port of this machine, which 'danube connect
            status' shows.
        token_file (FILE): A file with the token that changes at the address need, for
            the web console of another machine or user; by default a new one, which only
            you can read.
        traces (URL): The collector of OpenTelemetry that gets a span for each batch, by
            OTLP over HTTP, such as http://127.0.0.1:4318; by default none.
    """
    interval_s = parse_duration(interval)
    parse_listen(listen)
    token = new_token() if token_file is None else token_in(token_file)
    connectors = _load_all(files, settings, OutputFormat.TABLE)
    arrow.load()
    # A full collection of garbage does not visit what was imported.
    gc.freeze()

    async def follow(interrupted: Interruption) -> list[ConnectorStatus]:
        async with _tracing(traces) as telemetry:
            runs = ConnectorRuns(
                connectors,
                partial(_report, output_format),
                interval_s=interval_s,
                run_spark=partial(run_spark, settings=settings or ()),
                telemetry=telemetry,
            )
            async with _answering(runs, listen, token):
                return await _run_until(interrupted, runs)

    found = interruption.run(follow)
    if any(each.state is State.FAILED for each in found):
        raise typer.Exit(EXIT_FAILED)


def _report(output_format: OutputFormat, status: ConnectorStatus) -> None:
    if output_format is OutputFormat.JSON:
        print_json_line(status)
    else:
        print_line(status.line())


@command(
    app,
    "danube connect work",
    "danube connect work --url danube://broker:6650 --directory /etc/danube/connect",
)
def work(
    *,
    directory: Path = Path(),
    name: str | None = None,
    interval: str = "10s",
    listen: str = LISTEN_DEFAULT,
    token_file: Path | None = None,
    traces: str | None = None,
    url: parameters.Url = DEFAULT_URL,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Run the connectors that the broker stores, until Ctrl-C.

    Start as many workers as you like, on one machine or several, with the same
    credentials, secrets and files: they share the connectors, and take over what
    another one leaves. 'danube connect apply' stores connectors and changes them, and
    this runs the changes within seconds. Ctrl-C and SIGTERM stop the connectors after
    what they have in hand; others then run them. The exit code is 130 or 143.

    Args:
        directory (DIR): The directory of files that definitions name, such as schemas
            and functions of your own; by default the current one.
        name (NAME): The name of this worker; by default the machine and the process.
        interval (DURATION): How often the counts are printed.
        listen (HOST:PORT): Where GET /health, /metrics (for Prometheus) and /status are
            answered; by default at a free port of this machine.
        token_file (FILE): A file with the token that changes at the address need.
        traces (URL): The collector of OpenTelemetry that gets a span for each batch, by
            OTLP over HTTP; by default none.
    """
    interval_s = parse_duration(interval)
    parse_listen(listen)
    token = new_token() if token_file is None else token_in(token_file)
    arrow.load()
    gc.freeze()
    place = directory.resolve()

    async def follow(interrupted: Interruption) -> None:
        async with _tracing(traces) as telemetry:
            runs = ConnectorRuns(
                [],
                partial(_report, output_format),
                interval_s=interval_s,
                telemetry=telemetry,
                is_open=True,
            )
            worker = ConnectorWorker(
                name or f"{platform.node()}:{os.getpid()}",
                runs,
                broker=url,
                directory=place,
                environment=os.environ,
            )
            async with _answering(runs, listen, token, is_worker=True):
                await _run_until(interrupted, runs, worker)

    interruption.run(follow)


@asynccontextmanager
async def _tracing(endpoint: str | None) -> AsyncIterator[Telemetry | None]:
    """Export spans to *endpoint* during the body, if there is one."""
    if endpoint is None:
        yield None
        return
    async with open_span_export(
        endpoint,
        service="danube-connect",
        instance=f"{platform.node()}:{os.getpid()}",
        feature="traces of connectors (--traces)",
    ) as provider:
        from pydanube.otel import OpenTelemetry  # noqa: PLC0415  # An extra.

        yield OpenTelemetry(tracer_provider=provider)


@asynccontextmanager
async def _answering(
    runs: ConnectorRuns, listen: str, token: str, *, is_worker: bool = False
) -> AsyncIterator[None]:
    """Let the user see and steer *runs* during the body."""
    try:
        require("connect", "the status of connectors")
    except MissingExtra as error:
        if listen != LISTEN_DEFAULT:
            raise
        print_note(f"'danube connect status' does not show this run: {error}")
        yield
        return
    from pydanube_connect.commands.connector_endpoint import serving_endpoint  # noqa: PLC0415

    async with serving_endpoint(runs, token, listen) as url:
        found = ConnectorRun(
            pid=os.getpid(),
            mark=process_start_time(os.getpid()),
            url=url,
            token=token,
            connectors=None
            if is_worker
            else [each.connector for each in runs.statuses],
        )
        if listen != LISTEN_DEFAULT:
            print_note(f"health, metrics and status are at {url}")
        with registered(found):
            yield


async def _run_until(
    interrupted: Interruption,
    runs: ConnectorRuns,
    worker: ConnectorWorker | None = None,
) -> list[ConnectorStatus]:
    stop = asyncio.Event()
    async with task_scope() as tasks:
        running = [tasks.start(runs.run(stop))]
        if worker is not None:
            running.append(tasks.start(worker.run(stop)))
        async with interrupted.until_requested():
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        with interrupted.shielded(STOP_S):
            for each in running:
                await each
    if interrupted.number is not None:
        raise Interrupted(interrupted.number)
    return runs.statuses


Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME…", help="The names of connectors.", show_default=False
    ),
]


@command(app, "danube connect status", "danube connect status orders --format json")
def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME…",
            help="The connectors to show; by default all.",
            show_default=False,
        ),
    ] = None,
) -> Result:
    """
    Show the connectors that you run on this machine.

    The counts are those since the start of the process. The address of a process
    answers GET /health, /metrics and /status.
    """
    runs = find_runs(names).values() if names else running_connectors()
    by_pid = {each.pid: each for each in runs}
    rows = [
        {**to_builtins(found), "pid": each.pid, "url": each.url}
        for each in by_pid.values()
        for found in each.statuses()
        if not names or found.connector in names
    ]
    columns: dict[str, Any] = {
        "Connector": "connector",
        "Kind": "kind",
        "Topic": "topic",
        "State": "state",
        "Messages": lambda each: f"{each['messages']:,}",
        "Lag": lambda each: "" if each["lag"] is None else f"{each['lag']:,}",
        "Retries": "retries",
        "Last error": lambda each: each["error"] or "",
        "Address": "url",
    }
    return Result(rows, Table.of(rows, columns))


@command(
    app,
    "danube connect logs orders",
    "danube connect logs orders --follow",
    "danube connect logs orders --lines 100 --format json",
)
def logs(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The name of a connector.", show_default=False
        ),
    ],
    *,
    lines: Annotated[int, typer.Option(min=1, max=LINES_MAX)] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> None:
    """
    Show the last lines of a connector: changes of its state, and what it has logged.

    The process of the connector has the last 1,000 lines of each, also those that it
    does not print.

    Args:
        lines (-n COUNT): How many lines are shown.
        follow: Continue with new lines, until Ctrl-C or the end of the process.
    """
    [run] = find_runs([name]).values()

    def show(found: Sequence[LogLine]) -> None:
        for each in found:
            if output_format is OutputFormat.JSON:
                print_json_line(each)
            else:
                time = format_time(to_datetime(each.time))
                print_line(f"{time}  {each.level:<7}  {printable(each.text)}")

    found = run.log_lines(name)
    show(found[-lines:])

    async def work(interrupted: Interruption) -> None:
        last = found[-1].number if found else 0
        async with interrupted.until_requested():
            while True:
                await asyncio.sleep(FOLLOW_S)
                try:
                    more = await asyncio.to_thread(run.log_lines, name, last)
                except Unavailable:
                    return  # The process has ended.
                show(more)
                last = more[-1].number if more else last

    if follow:
        interruption.run(work)


@command(app, "danube connect pause orders")
def pause(names: Names, *, url: parameters.Url = DEFAULT_URL) -> Result:
    """
    Pause connectors, which finish what they have in hand and disconnect.

    Those that 'danube connect run' runs on this machine stay paused until 'danube
    connect resume', or until their process ends; those that the broker stores until
    'danube connect resume'.
    """
    return _act("pause", names, url)


@command(app, "danube connect resume orders")
def resume(names: Names, *, url: parameters.Url = DEFAULT_URL) -> Result:
    """Run paused connectors from where they stopped."""
    return _act("resume", names, url)


@command(app, "danube connect restart orders")
def restart(names: Names, *, url: parameters.Url = DEFAULT_URL) -> Result:
    """Open connectors anew, also those that have failed or finished."""
    return _act("restart", names, url)


def _act(action: str, names: Sequence[str], url: str) -> Result:
    """Act on connectors of files that run on this machine, and on stored ones."""
    of_files = {
        name
        for each in running_connectors()
        if each.connectors is not None
        for name in each.connectors
    }
    stored = [each for each in names if each not in of_files]
    try:
        lines = act_on_stored(url, action, stored) if stored else []
    except (NotFound, Unavailable) as error:
        raise type(error)(
            f"no process runs a connector {' or '.join(stored)} of a file here; {error}"
        ) from None
    here = find_runs([each for each in names if each in of_files])
    done = [run.act(action, name) for name, run in here.items()]
    lines += [f"{each.connector} {DONE[action]}" for each in done]
    rows = [to_builtins(each) for each in done]
    return Result([*rows, *({"connector": each} for each in stored)], *lines)


@command(
    app,
    "danube connect validate webhooks.yaml",
    "danube connect validate sensors.yaml --set host=mqtt.example.com",
)
def validate(
    files: Files,
    *,
    settings: Set = None,
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Validate files that declare connectors, without connecting to anything.

    All problems are reported with their place in the file. The exit code is 2 if there
    are any.
    """
    connectors = _load_all(files, settings, output_format)
    rows = [
        {
            "connector": each.name,
            "kind": each.spec.kind,
            "direction": "source" if each.is_source else "sink",
            "topic": each.spec.topic,
        }
        for each in connectors
    ]
    return Result(
        {"problems": [], "connectors": rows},
        Table.of(
            rows,
            {
                "Connector": "connector",
                "Kind": "kind",
                "Direction": "direction",
                "Topic": "topic",
            },
        ),
    )


@command(
    app,
    "danube connect test webhooks.yaml",
    "danube connect test orders.yaml --records 20 --timeout 30s",
    name="test",
)
def try_all(
    files: Files,
    *,
    settings: Set = None,
    records: Annotated[int, typer.Option(min=1, max=1000)] = 5,
    timeout: str = "10s",
    output_format: parameters.FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Try connectors: connect to both systems, and show what sources would publish.

    All connectors are tried at the same time, and each result is shown as it comes.
    Nothing is published, written, acknowledged or created. Sources are read from their
    beginning. Those whose reading would change the other system, such as MQTT, are only
    connected. The exit code is 1 if a connector could not run, or if records are
    invalid.

    Args:
        records (COUNT): How many records of each source are read and shown.
        timeout (DURATION): How long to wait for each answer of the other system; the
            trial of a connector ends after three times as long.
    """
    connectors = _load_all(files, settings, output_format)
    timeout_s = parse_duration(timeout)

    async def attempt(declared: DeclaredConnector) -> Trial:
        trial = await try_connector(declared, records_max=records, timeout_s=timeout_s)
        if output_format is OutputFormat.TABLE:
            _show_trial(trial)
        return trial

    async def work() -> list[Trial]:
        async with asyncio.TaskGroup() as tasks:
            trials = [tasks.create_task(attempt(each)) for each in connectors]
        return [each.result() for each in trials]

    found = asyncio.run(work())
    return Result(
        found, exit_code=EXIT_FAILED if any(each.has_failed for each in found) else 0
    )


def _show_trial(trial: Trial) -> None:
    result = "failed" if trial.has_failed else "ok"
    found = "; ".join(filter(None, (trial.problem, *trial.facts)))
    print_line(
        f"{trial.connector} ({trial.kind}, {trial.topic}): {result}: {printable(found)}"
    )
    for each in trial.samples:
        print_line(f"  {_sample_line(each)}")


def _sample_line(sample: Sample) -> str:
    if sample.problem is not None:
        return f"{sample.topic}  invalid: {printable(sample.problem)}"
    key = "" if sample.key is None else f"  key {printable(sample.key)}"
    payload = excerpt(printable(sample.payload), PAYLOAD_CHARACTERS_MAX)
    return f"{sample.topic}{key}  {payload}"


@command(app, "danube connect kinds", "danube connect kinds mqtt-source", name="kinds")
def list_kinds(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="The kind whose options to list; by default all kinds.",
            show_default=False,
        ),
    ] = None,
) -> Result:
    """List the kinds of connectors, or the options of one kind."""
    if kind is None:
        kinds = [
            {
                "kind": name,
                "direction": "source" if issubclass(found, Source) else "sink",
                "summary": summary_of(found),
            }
            for name in KINDS
            for found in [find_kind(name, Path())]
        ]
        columns = {"Kind": "kind", "Direction": "direction", "Summary": "summary"}
        return Result(kinds, Table.of(kinds, columns))
    options = options_of(find_kind(kind, Path()))
    return Result(
        options,
        Table.of(
            options,
            {
                "Option": "name",
                "Type": "type",
                "Default": lambda each: each.default or "required",
                "Meaning": lambda each: each.help.replace("`", ""),
            },
        ),
    )


def _load_all(
    files: Sequence[Path], settings: list[str] | None, output_format: OutputFormat
) -> list[DeclaredConnector]:
    given = parse_set(settings or ())
    found: dict[str, DeclaredConnector] = {}
    with exit_on_problems(output_format):
        for file in files:
            for each in load(file, parameters=given, environment=os.environ):
                if each.name in found:
                    raise InvalidRequest(
                        f"the connector {each.name} is declared in {each.file} and in "
                        f"{found[each.name].file}: the names of connectors differ"
                    )
                found[each.name] = each
                if issubclass(each.kind, SparkSink):
                    pipeline_of(each)  # Raises if it is invalid.
    return list(found.values())

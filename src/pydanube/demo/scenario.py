"""The steps of the demo."""

from __future__ import annotations

import logging
import signal
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from deltalake import DeltaTable
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from pydanube import sync
from pydanube.demo import inputs, queries
from pydanube.demo.broker_process import DemoFailed, running_broker
from pydanube.demo.chart import draw
from pydanube.demo.proofs import (
    ReadBack,
    prove_lag,
    prove_lines,
    prove_telemetry,
    prove_topic,
)
from pydanube.demo.publishing import (
    LINES,
    LINES_SUBSCRIPTION,
    TELEMETRY,
    TELEMETRY_SUBSCRIPTION,
    Ledger,
    TelemetryProducer,
    find_backlogs,
    publish_lines,
)
from pydanube.demo.summary import Report, show
from pydanube.model.errors import BrokerError
from pydanube.spark import JavaNotFound, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.console import Console

    from pydanube.demo.proofs import Claim

BROKER_SETTINGS = {
    # Small segments, so that the query reads sealed segments and the tail.
    "DANUBE_STORAGE__SEAL_BYTES": str(16 * 1024 * 1024),
}

QUERY_WAIT_S = 120.0

EXIT_PROVEN = 0
EXIT_NOT_PROVEN = 1
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130


def run_demo(
    directory: Path | None,
    output: Path | None,
    console: Console,
    *,
    seconds: float,
    small: bool,
) -> int:
    """Run the demo; see ``pydanube.demo.run``."""
    try:
        with _sigterm_as_interrupt(), ExitStack() as stack:
            if directory is None:
                temporary = tempfile.TemporaryDirectory(prefix="danube-demo-")
                directory = Path(stack.enter_context(temporary))
            context = Context(
                stack,
                stack.enter_context(_progress(console)),
                _require_empty(directory).resolve(),
                _create_directory(output or Path("demo-output")).resolve(),
            )
            report = demonstrate(context, seconds=seconds, small=small)
    except (DemoFailed, JavaNotFound, BrokerError) as error:
        console.print(f"\n{error}", style="red", markup=False, soft_wrap=True)
        return EXIT_FAILED
    except KeyboardInterrupt:
        console.print("\nInterrupted; everything that was started is stopped.")
        return EXIT_INTERRUPTED
    show(report, console)
    return EXIT_PROVEN if report.is_proven else EXIT_NOT_PROVEN


@dataclass(frozen=True, slots=True)
class Context:
    """The exit stack, the progress display and the directories of a run."""

    stack: ExitStack
    steps: Progress
    directory: Path
    output: Path

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show the progress of the body."""
        task = self.steps.add_task(text, total=1, detail="")
        yield
        self.steps.update(task, completed=1)


def demonstrate(context: Context, *, seconds: float, small: bool) -> Report:
    """
    Run broker, producers and queries, and compare their results.

    Cancellation: The stack of *context* stops broker and Spark in any case.

    Raises:
        DemoFailed: Something did not start or did not finish.
        JavaNotFound: There is no Java for Spark.
        BrokerError: The broker refused a request.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    paths = inputs.source_files(small=small)
    started_at = time.monotonic()
    with context.step("Start a broker"):
        data, log_file = context.directory / "broker", context.output / "broker.log"
        url = context.stack.enter_context(
            running_broker(data, log_file, BROKER_SETTINGS)
        )
    client = context.stack.enter_context(sync.connect(url))
    for topic in (LINES, TELEMETRY):
        client.create_topic(topic, reliable=True)
    # A client is used by one thread, and the producer has its own.
    telemetry = TelemetryProducer(context.stack.enter_context(sync.connect(url)))
    stop_telemetry = context.stack.enter_context(telemetry.running())
    lines = _publish(context, client, paths)
    spark = _start_spark(context)
    lines_query = _run_lines_query(context, spark, url, lines)
    live_query = _run_telemetry_query(
        context, spark, url, telemetry, seconds=seconds, stop_telemetry=stop_telemetry
    )
    with context.step("Read back and compare"):
        counts, windows = (
            DeltaTable(context.directory / name).to_pyarrow_table()
            for name in ("lines", "telemetry")
        )
        backlogs = find_backlogs(client)
        claims = [
            *prove_topic("stdlib-lines", lines, _read_back(client, LINES)),
            *prove_lines("stdlib-lines", lines, counts, _lines_on_disk(paths)),
            *prove_topic("telemetry", telemetry.ledger, _read_back(client, TELEMETRY)),
            *prove_telemetry("telemetry", telemetry.ledger, windows),
            *prove_lag(backlogs, (LINES_SUBSCRIPTION, TELEMETRY_SUBSCRIPTION)),
        ]
        facts = {
            **_publishing_facts(lines, client),
            **_query_facts(lines_query, live_query, windows),
            "the whole run": f"{time.monotonic() - started_at:.0f} s",
        }
    with context.step("Draw the chart"):
        chart = context.output / "danube-demo.png"
        draw(
            chart,
            lines=counts,
            telemetry=windows,
            batches=queries.batch_log(lines_query),
            lag=telemetry.lag,
            headline=_headline(lines, telemetry.ledger, claims),
        )
    return Report(facts=facts, claims=claims, chart=chart)


def _publish(context: Context, client: Any, paths: Sequence[Path]) -> Ledger:
    text = "Publish lines of Python"
    task = context.steps.add_task(text, total=len(paths), detail="")

    def on_progress(ledger: Ledger) -> None:
        detail = f"{ledger.acknowledged:,} lines, {ledger.rate:,.0f}/s"
        context.steps.update(task, completed=len(ledger.by_key), detail=detail)

    return publish_lines(client, paths, on_progress)


def _start_spark(context: Context) -> SparkSession:
    log_file = context.output / "spark.log"
    # Py4J logs every call that Ctrl-C interrupts, partly with the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4j)
    context.stack.callback(logging.getLogger().removeFilter, _is_not_py4j)
    with context.step("Start Spark"):
        try:
            spark = session("danube demo", log_file=log_file)
        except JavaNotFound:
            raise
        except Exception as error:
            # The error may have one of many types.
            raise DemoFailed(
                f"Spark did not start: {error}. Its output is in {log_file}; set "
                "JAVA_HOME to use another Java."
            ) from error
    context.stack.callback(_stop, spark)
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler would cancel jobs during any call to the JVM; here the
        # exit stack stops the queries.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark


def _run_lines_query(
    context: Context, spark: SparkSession, url: str, lines: Ledger
) -> StreamingQuery:
    """Run the query over the existing messages and return it when it has ended."""
    text = "Lines by file into Delta"
    task = context.steps.add_task(text, total=lines.acknowledged, detail="")
    done = 0

    def on_batch(rows: int) -> None:
        nonlocal done
        done += rows
        context.steps.update(task, completed=done, detail=f"{done:,} lines")

    query = queries.start_lines_query(
        spark,
        url,
        context.directory,
        on_batch,
        # At least three micro-batches, even with little input.
        rows_max=min(queries.LINES_PER_TRIGGER, max(1, lines.acknowledged // 3)),
    )
    context.stack.callback(_stop, query)
    _await(lambda: query.awaitTermination(1), query)
    return query


def _run_telemetry_query(
    context: Context,
    spark: SparkSession,
    url: str,
    telemetry: TelemetryProducer,
    *,
    seconds: float,
    stop_telemetry: Callable[[], None],
) -> StreamingQuery:
    """Run the query beside the producer and return it when it has no lag."""
    text = "Telemetry, live, into Delta"
    task = context.steps.add_task(text, total=None, detail="")
    query = queries.start_telemetry_query(spark, url, context.directory)
    context.stack.callback(_stop, query)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        _check(query)
        detail = f"{telemetry.ledger.acknowledged:,} messages"
        context.steps.update(task, detail=detail)
        time.sleep(0.1)
    stop_telemetry()
    # The subscription advances when the sink has committed a batch.
    _await(lambda: telemetry.find_backlogs().get(TELEMETRY_SUBSCRIPTION) == 0, query)
    query.stop()
    detail = f"{telemetry.ledger.acknowledged:,} messages"
    context.steps.update(task, total=1, completed=1, detail=detail)
    return query


def _await(is_done: Callable[[], Any], query: StreamingQuery) -> None:
    give_up_at = time.monotonic() + QUERY_WAIT_S
    while not is_done():
        _check(query)
        if time.monotonic() > give_up_at:
            raise DemoFailed(
                f"The query {query.name} has not ended within "
                f"{QUERY_WAIT_S:.0f} s; its last status: {query.status}"
            )
        time.sleep(0.05)
    _check(query)


def _check(query: StreamingQuery) -> None:
    error = query.exception()
    if error is not None:
        raise DemoFailed(f"The query {query.name} failed: {error}")


def _read_back(client: Any, topic: str) -> ReadBack:
    return ReadBack.from_ranges(
        each for batch in client.read(topic, start=0) for each in batch.ranges()
    )


def _lines_on_disk(paths: Sequence[Path]) -> dict[str, int]:
    root = inputs.library_path()
    return {
        path.relative_to(root).as_posix(): path.read_bytes().count(b"\n") + 1
        for path in paths
    }


def _publishing_facts(lines: Ledger, client: Any) -> dict[str, str]:
    where = client.describe_topic(LINES)
    rate_mb = lines.byte_count / 1e6 / lines.duration_s
    return {
        "lines published, each on disk when acknowledged": f"{lines.acknowledged:,}",
        "… in": f"{lines.duration_s:.2f} s",
        "… which is": f"{lines.rate:,.0f} messages/s, {rate_mb:.0f} MB/s",
        "… of them in sealed Parquet segments at the end": (
            f"{where.sealed_offset:,} in {where.segment_count}"
        ),
    }


def _query_facts(
    lines: StreamingQuery, live: StreamingQuery, windows: pa.Table
) -> dict[str, str]:
    done, seen = queries.batch_log(lines), queries.batch_log(live)
    rate = sum(done.rows) / max(sum(done.duration_s), 1e-9)
    return {
        "Spark's micro-batches over the lines": f"{len(done.rows):,}",
        "… their rate, Delta commits included": f"{rate:,.0f} messages/s",
        "telemetry messages, live": f"{sum(seen.rows):,}",
        "… in micro-batches": f"{len(seen.rows):,}",
        "… as windows in the Delta table": f"{windows.num_rows:,}",
    }


def _headline(lines: Ledger, telemetry: Ledger, claims: Sequence[Claim]) -> str:
    hold = sum(claim.holds for claim in claims)
    return (
        f"{lines.acknowledged:,} lines of {len(lines.by_key):,} source files and "
        f"{telemetry.acknowledged:,} telemetry messages   ·   {hold} of {len(claims)} "
        "checks hold"
    )


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}", style="dim"),
        console=console,
    )


def _require_empty(directory: Path) -> Path:
    if directory.exists() and any(directory.iterdir()):
        raise DemoFailed(
            f"{directory} is not empty. The demo needs new topics; choose a new or "
            "empty directory."
        )
    return _create_directory(directory)


def _create_directory(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoFailed(f"{directory} cannot be created: {error}") from error
    return directory


def _stop(what: SparkSession | StreamingQuery) -> None:
    """Stop it; ignore errors, because an interrupt may have ended the JVM."""
    with suppress(Exception):
        what.stop()


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, so that everything is stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""The steps of the demo."""

from __future__ import annotations

import logging
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from examples.demo import queries
from examples.demo.chart import draw
from examples.demo.inputs import read_source, source_files
from examples.demo.proofs import (
    Claim,
    prove_lines,
    prove_telemetry,
    prove_topic,
)
from examples.demo.publishing import (
    LINES,
    NAMES,
    TELEMETRY,
    Ledger,
    TelemetryProducer,
    publish_lines,
)
from pydanube import sync
from pydanube.model.errors import BrokerError, InvalidRequest
from pydanube_cli.bench.broker_process import running_broker
from pydanube_spark import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BROKER_SETTINGS = {
    # Small segments, so that the query reads sealed segments and the tail.
    "DANUBE_STORAGE__SEAL_BYTES": str(16 * 1024 * 1024),
}

QUERY_WAIT_S = 120.0


class DemoFailed(BrokerError):
    """The demo cannot continue; the message says why and what to do."""

    code = "demo_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of the demo."""

    facts: Mapping[str, str]
    """Figures by what they are about."""
    claims: Sequence[Claim]
    chart: Path


def run_demo(directory: Path, output: Path, *, seconds: float, small: bool) -> Report:
    """
    Run broker, producers and queries, and compare their results.

    Args:
        directory: The new or empty directory for broker, checkpoints and tables.
        output: The directory for the chart and the logs.
        seconds: How long the query over this machine's telemetry runs.
        small: Publish only a part of the standard library, for tests.

    Cancellation: Broker and Spark are stopped in any case, also by SIGTERM.

    Raises:
        InvalidRequest: *directory* is not empty.
        ProcessFailed: The broker did not start.
        DemoFailed: Spark did not start, or a query did not finish.
        BrokerError: The broker refused a request.
        KeyboardInterrupt: SIGINT or SIGTERM arrived.
    """
    if directory.exists() and any(directory.iterdir()):
        raise InvalidRequest(
            f"{directory} is not empty. The demo needs new topics; choose a new or "
            "empty directory."
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started_at = time.monotonic()
    directory, output = directory.resolve(), output.resolve()
    for each in (directory, output):
        each.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        steps = stack.enter_context(
            Progress(
                SpinnerColumn(finished_text="[green]✓"),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
            )
        )
        with _step(steps, "Start a broker"):
            data, log_file = directory / "broker", output / "broker.log"
            broker = running_broker(data, log_file, BROKER_SETTINGS)
            url = stack.enter_context(broker).url()
        client = stack.enter_context(sync.connect(url))
        for topic in NAMES:
            client.topics.create(topic, reliable=True)
        # A client is used by one thread, and the producer has its own.
        telemetry = TelemetryProducer(stack.enter_context(sync.connect(url)))
        thread = stack.enter_context(ThreadPoolExecutor(1))
        publishing = thread.submit(telemetry.publish)
        stack.callback(telemetry.stopping.set)
        paths = source_files(small=small)
        with _step(steps, "Publish the lines of Python's standard library"):
            lines = publish_lines(client, paths)
        with _step(steps, "Start Spark"):
            spark = _start_spark(output / "spark.log", stack)
        with _step(steps, "Lines by file into Delta"):
            # At least three micro-batches, even with little input.
            rows_max = min(queries.LINES_PER_TRIGGER, max(1, lines.acknowledged // 3))
            lines_query = queries.start_lines_query(
                spark, url, directory / "lines", rows_max
            )
            stack.callback(_stop, lines_query)
            _wait_until(lambda: not lines_query.isActive, lines_query, QUERY_WAIT_S)
        with _step(steps, "Telemetry, live, into Delta"):
            live_query = queries.start_telemetry_query(
                spark, url, directory / "telemetry"
            )
            stack.callback(_stop, live_query)
            end_at = time.monotonic() + seconds
            _wait_until(lambda: time.monotonic() > end_at, live_query, 2 * seconds)
            telemetry.stopping.set()
            publishing.result()
            # The subscription advances when the sink has committed a batch.
            _wait_until(
                lambda: telemetry.find_lag().get(NAMES[TELEMETRY]) == 0,
                live_query,
                QUERY_WAIT_S,
            )
            live_query.stop()
        with _step(steps, "Read back and compare"):
            counts, windows = (
                DeltaTable(directory / name).to_pyarrow_table()
                for name in ("lines", "telemetry")
            )
            live, lag = telemetry.ledger, telemetry.find_lag()
            claims = [
                *_prove_topic(client, LINES, lines, lag),
                *prove_lines(LINES, lines, counts, map(read_source, paths)),
                *_prove_topic(client, TELEMETRY, live, lag),
                *prove_telemetry(TELEMETRY, live, windows),
            ]
            facts = {
                **_facts(lines, client, lines_query, live_query),
                "… as windows in the Delta table": f"{windows.num_rows:,}",
                "the whole run": f"{time.monotonic() - started_at:.0f} s",
            }
        with _step(steps, "Draw the chart"):
            chart = output / "danube-demo.png"
            hold = sum(claim.holds for claim in claims)
            draw(
                chart,
                sent={"lines": lines.sent, "counters": live.sent},
                batches=queries.batch_log(lines_query),
                lag=telemetry.lag,
                headline=f"{lines.acknowledged:,} lines of {len(paths):,} source files "
                f"and {live.acknowledged:,} telemetry messages   ·   {hold} of "
                f"{len(claims)} checks hold",
            )
    return Report(facts=facts, claims=claims, chart=chart)


@contextmanager
def _step(steps: Progress, text: str) -> Iterator[None]:
    task = steps.add_task(text, total=1)
    yield
    steps.update(task, completed=1)


def _start_spark(log_file: Path, stack: ExitStack) -> SparkSession:
    # Py4J logs every call that Ctrl-C interrupts, partly with the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    try:
        spark = session("pydanube demo", log_file=log_file)
    except Exception as error:
        # The error may have one of many types.
        raise DemoFailed(
            f"Spark did not start: {error}. Its output is in {log_file}; set "
            "JAVA_HOME to use another Java."
        ) from error
    stack.callback(_stop, spark)
    # Spark's own handler would cancel jobs during any call to the JVM; here the exit
    # stack stops the queries.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return spark


def _stop(what: SparkSession | StreamingQuery) -> None:
    """Stop it; ignore errors, because an interrupt may have ended the JVM."""
    with suppress(Exception):
        what.stop()


def _wait_until(
    is_done: Callable[[], bool], query: StreamingQuery, timeout_s: float
) -> None:
    give_up_at = time.monotonic() + timeout_s
    is_over = False
    while not is_over:
        time.sleep(0.1)
        is_over = is_done()
        if (error := query.exception()) is not None:
            raise DemoFailed(f"The query {query.name} failed: {error}")
        if not is_over and time.monotonic() > give_up_at:
            raise DemoFailed(
                f"The query {query.name} has not ended within {timeout_s:.0f} s; its "
                f"last status: {query.status}"
            )


def _prove_topic(
    client: Any, topic: str, ledger: Ledger, lag: Mapping[str, int]
) -> list[Claim]:
    batches = client.read(topic, start=0)
    ranges = (each for batch in batches for each in batch.ranges())
    return prove_topic(topic, ledger, ranges, lag.get(NAMES[topic]))


def _facts(
    lines: Ledger, client: Any, lines_query: StreamingQuery, live_query: StreamingQuery
) -> dict[str, str]:
    where = client.topics.describe(LINES)
    rate = lines.acknowledged / lines.duration_s
    rate_mb = lines.byte_count / 1e6 / lines.duration_s
    done, seen = queries.batch_log(lines_query), queries.batch_log(live_query)
    done_rate = sum(rows for rows, _ in done) / sum(took_s for _, took_s in done)
    return {
        "lines published, each on disk when acknowledged": f"{lines.acknowledged:,}",
        "… in": f"{lines.duration_s:.2f} s",
        "… which is": f"{rate:,.0f} messages/s, {rate_mb:.0f} MB/s",
        "… of them in sealed Parquet segments at the end": (
            f"{where.sealed_offset:,} in {where.segment_count}"
        ),
        "Spark's micro-batches over the lines": f"{len(done):,}",
        "… their rate, Delta commits included": f"{done_rate:,.0f} messages/s",
        "telemetry messages, live": f"{sum(rows for rows, _ in seen):,}",
        "… in micro-batches": f"{len(seen):,}",
    }

"""`danube bench`: throughput and latency of a broker; see ``pydanube_cli.bench``."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pydanube.model.errors import InvalidRequest
from pydanube.model.extras import require
from pydanube_cli.bench.broker_process import running_broker
from pydanube_cli.bench.figures import FIGURES, headline
from pydanube_cli.bench.machine import measure_machine
from pydanube_cli.bench.run import GRPC, ON_REQUEST, WORKLOADS, Row, Scale, run_bench
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.parameters import FormatOption
from pydanube_cli.presentation.output import (
    Columns,
    OutputFormat,
    Result,
    Table,
    print_note,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube bench",
    "danube bench --workload end-to-end --message-bytes 1024",
    "danube bench --workload spark-read -n 2000000 --message-bytes 200",
    "danube bench --url danube://10.0.0.5:6651 --format json",
)
def bench(
    *,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="|".join([*WORKLOADS, GRPC, *ON_REQUEST]),
            help="The workload to run; by default all except those with Spark.",
        ),
    ] = None,
    messages: Annotated[int, typer.Option(min=1000)] = 3_000_000,
    message_bytes: Annotated[int, typer.Option(min=0)] = 100,
    batch_messages: Annotated[int, typer.Option(min=1)] = 1000,
    url: str | None = None,
    grpc_url: str | None = None,
    data_dir: Path | None = None,
    output_format: FormatOption = OutputFormat.TABLE,
) -> Result:
    """
    Measure throughput and latency on this machine.

    Producer, broker and consumer are separate processes. Every result says what an
    acknowledgement meant, and every consumer checks that each message arrived once and
    in order. The topics, named /default/bench-…, are deleted afterwards.

    The workloads: publish publishes in batches; end-to-end publishes and consumes at
    the same time; sharing does the same with subscriptions of each type; backlog
    consumes stored messages; one-by-one sends single messages instead of batches, also
    in 100 tasks that wait for each acknowledgement; workers calls functions with stored
    messages, which it acknowledges; latency sends one message at a time; grpc uses the
    protocol of the original Danube; the others use Spark.

    Most consumers acknowledge whole batches and read no message. In the result "each
    message read" of end-to-end the consumer also reads the payload, key and offset of
    every message, and in one-by-one it reads each payload and acknowledges each message
    by itself.

    Results depend on the machine, the disk and the batch size. `make bench` in a
    checkout compares pydanube with other systems.

    Args:
        messages (-n): The number of messages of each throughput workload.
        message_bytes: The payload size of each message.
        batch_messages: The number of messages in a batch.
        url (URL): The broker to measure. By default a broker is started with a
            temporary data directory.
        grpc_url (URL): The address of the gRPC listener of the broker given with --url,
            as http://HOST:PORT; without it the workload grpc is skipped.
        data_dir (DIR): Where the broker that is started stores its data; this chooses
            the disk that is measured.
    """
    known = [*WORKLOADS, GRPC, *ON_REQUEST]
    if workload is not None and workload not in known:
        raise InvalidRequest(
            f"unknown workload {workload!r}; use one of {', '.join(known)}"
        )
    if workload == GRPC and url is not None and grpc_url is None:
        raise InvalidRequest("the workload grpc needs --grpc-url together with --url")
    scale = Scale(
        messages=messages, message_bytes=message_bytes, batch_messages=batch_messages
    )
    with _broker(url, grpc_url, data_dir) as (broker_url, broker_grpc_url, directory):
        machine = measure_machine(directory)
        if output_format is OutputFormat.TABLE:
            print_note(
                f"{machine.cores} cores, Python {machine.python}, one fdatasync "
                f"{machine.fdatasync_us:.0f} µs, memory copies at "
                f"{machine.copy_gb_s:.1f} GB/s"
            )
        rows = []
        measured = run_bench(broker_url, scale, workload, grpc_url=broker_grpc_url)
        for row in measured:
            rows.append(row)
            if output_format is OutputFormat.TABLE:
                text = headline(row, shows_latency=row["per_second"] is None)
                print_note(f"  {row['workload']}, {row['durability']}: {text}")
    return Result({"machine": machine, "rows": rows}, "", Table.of(rows, COLUMNS))


@contextmanager
def _broker(
    url: str | None, grpc_url: str | None, data_dir: Path | None
) -> Iterator[tuple[str, str | None, Path]]:
    """
    Yield the URLs of the broker to measure, and a directory on the disk it writes to.
    """
    with tempfile.TemporaryDirectory(dir=data_dir, prefix="danube-bench-") as name:
        directory = Path(name)
        if url is not None:
            yield url, grpc_url, directory
            return
        require("broker", "a broker to measure")
        with running_broker(directory / "data", directory / "log", {}) as broker:
            yield broker.url(), broker.url("grpc"), directory


def _figure(name: str, row: Row) -> str:
    value = row[name]
    if value is None:
        return ""
    return f"{value:,.{2 if name == 'client_cpu_s_per_million' else 0}f}"


COLUMNS: Columns = {
    "workload": "workload",
    "ack means": "durability",
    "bytes": "message_bytes",
    "batch": "batch",
    **{
        title: partial(_figure, name)
        for name, title in FIGURES.items()
        if name != "p90_us"
    },
}

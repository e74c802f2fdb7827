"""The benchmark: its workloads, their processes, and the results."""

from __future__ import annotations

import multiprocessing
import uuid
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pydanube.sync
from pydanube.bench import grpc_workloads, workloads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydanube.bench.workloads import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale of the benchmark."""

    messages: int = 3_000_000
    """The number of messages in batches; a fifth of it one by one."""
    message_bytes: int = 100
    batch_messages: int = 1000
    latencies: int = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One result with its conditions."""

    workload: str
    durability: str
    message_bytes: int
    batch: str
    messages: int
    per_second: float | None = None
    mb_per_second: float | None = None
    p50_us: float | None = None
    p90_us: float | None = None
    p99_us: float | None = None
    p999_us: float | None = None
    max_us: float | None = None
    client_cpu_s_per_million: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return asdict(self)


DURABILITY = {
    "durable": "synced before acknowledgement",
    "written": "page cache",
    "memory": "memory",
}


def run_bench(
    url: str, scale: Scale, only: str | None = None, *, grpc_url: str | None = None
) -> Iterator[Row]:
    """
    Measure the broker at *url* and yield the results one by one.

    With *grpc_url*, also measure its gRPC listener.

    Producer and consumer have their own processes.  The benchmark creates topics
    ``/default/bench-…`` and deletes them.

    Raises:
        LostMessages: A consumer did not receive every message once and in order.
    """
    for name, workload in WORKLOADS.items():
        if only is None or only == name:
            yield from workload(url, scale)
    if only in ON_REQUEST:
        yield from ON_REQUEST[only](url, scale)
    if grpc_url is not None and only in {None, GRPC}:
        yield from _grpc(url, scale, grpc_url)


def _publish(url: str, scale: Scale) -> Iterator[Row]:
    for durability in ("durable", "written"):
        with _Bench(url, durability) as bench:
            [figures] = bench.run(partial(workloads.publish_batches, **_batches(scale)))
            yield _throughput(
                "publish", durability, scale, messages=_whole(scale), figures=figures
            )


def _end_to_end(url: str, scale: Scale) -> Iterator[Row]:
    for durability in ("durable", "written"):
        with _Bench(url, durability) as bench:
            consume = partial(workloads.consume_batches, messages=_whole(scale))
            publish = partial(workloads.publish_batches, **_batches(scale))
            consumed, published = bench.run(consume, publish)
            figures = {
                "began_ns": published["began_ns"],
                "ended_ns": consumed["ended_ns"],
                "cpu_s": published["cpu_s"] + consumed["cpu_s"],
            }
            yield _throughput(
                "end to end", durability, scale, messages=_whole(scale), figures=figures
            )


SHARING = (("exclusive", 1), ("shared", 4), ("key_shared", 4))
"""The subscription types that are compared, with their numbers of consumers."""
KEYS = 1000


def _sharing(url: str, scale: Scale) -> Iterator[Row]:
    for subscription_type, consumers in SHARING:
        with _Bench(url, "durable") as bench:
            consume = partial(
                workloads.consume_together,
                messages=_whole(scale),
                consumers=consumers,
                subscription_type=subscription_type,
            )
            publish = partial(workloads.publish_batches, **_batches(scale), keys=KEYS)
            consumed, published = bench.run(consume, publish)
            figures = {
                "began_ns": published["began_ns"],
                "ended_ns": consumed["ended_ns"],
                "cpu_s": published["cpu_s"] + consumed["cpu_s"],
            }
            name = subscription_type.replace("_", "-")
            plural = "" if consumers == 1 else "s"
            yield _throughput(
                f"end to end, {consumers} {name} consumer{plural}",
                "durable",
                scale,
                messages=_whole(scale),
                figures=figures,
            )


def _backlog(url: str, scale: Scale) -> Iterator[Row]:
    with _Bench(url, "durable") as bench:
        bench.run(partial(workloads.publish_batches, **_batches(scale)))
        [figures] = bench.run(
            partial(workloads.consume_batches, messages=_whole(scale))
        )
        yield _throughput(
            "consume a backlog",
            "durable",
            scale,
            messages=_whole(scale),
            figures=figures,
        )


def _one_by_one(url: str, scale: Scale) -> Iterator[Row]:
    messages = max(1, scale.messages // 5)
    with _Bench(url, "durable") as bench:
        [published] = bench.run(
            partial(
                workloads.publish_one_by_one,
                messages=messages,
                message_bytes=scale.message_bytes,
            )
        )
        row = partial(_throughput, durability="durable", scale=scale, messages=messages)
        yield row("send_nowait one by one", figures=published, batch="by the client")
        [consumed] = bench.run(partial(workloads.consume_one_by_one, messages=messages))
        yield row("async for one by one", figures=consumed, batch="by the client")


def _latency(url: str, scale: Scale) -> Iterator[Row]:
    options: dict[str, Any] = {
        "messages": scale.latencies,
        "message_bytes": scale.message_bytes,
    }
    for durability in ("durable", "written"):
        with _Bench(url, durability) as bench:
            [figures] = bench.run(partial(workloads.publish_latency, **options))
            yield _latencies("publish to acknowledgement", durability, scale, figures)
    for durability in ("durable", "memory"):
        with _Bench(url, durability) as bench:
            [figures] = bench.run(
                partial(
                    workloads.delivery_latency,
                    **options,
                    reliable=durability != "memory",
                )
            )
            yield _latencies("publish to receive", durability, scale, figures)


CALLS_MAX = 20_000
"""The maximum number of messages in workloads with one call per message."""


def _grpc(url: str, scale: Scale, grpc_url: str) -> Iterator[Row]:
    messages = max(scale.latencies, min(CALLS_MAX, scale.messages // 100))
    row = partial(_throughput, durability="durable", scale=scale, batch="1 message")
    for in_flight, count in ((1, scale.latencies), (64, messages)):
        with _Bench(url, "durable") as bench:
            publish = partial(
                grpc_workloads.publish_calls,
                grpc_url=grpc_url,
                messages=count,
                message_bytes=scale.message_bytes,
                in_flight=in_flight,
            )
            [figures] = bench.run(publish)
            name = f"gRPC publish, {in_flight} at a time"
            published: Row = row(name, messages=count, figures=figures)
            yield replace(published, **_percentiles(figures))
    with _Bench(url, "durable") as bench:
        bench.prepare_backlog()
        publish = partial(
            workloads.publish_batches,
            messages=messages,
            message_bytes=scale.message_bytes,
            batch_messages=messages,
        )
        bench.run(publish)
        receive = partial(
            grpc_workloads.receive_calls, grpc_url=grpc_url, messages=messages
        )
        [figures] = bench.run(receive)
        yield row("gRPC receive and acknowledge", messages=messages, figures=figures)


def _spark_read(url: str, scale: Scale) -> Iterator[Row]:
    # Only this workload needs Spark and Java.
    from pydanube.bench.spark_workloads import read_tables  # noqa: PLC0415

    with _Bench(url, "durable") as bench:
        bench.run(partial(workloads.publish_batches, **_batches(scale)))
        [figures] = bench.run(partial(read_tables, message_bytes=scale.message_bytes))
    names = {
        "topic": "Spark reads a topic",
        "segments": "Spark reads its segments",
        "parquet": "Spark's Parquet source reads the same files",
    }
    for key, name in names.items():
        if key not in figures:
            # There are too few messages for a segment.
            continue
        of = "topic" if key == "topic" else "segments"
        yield Row(
            workload=name,
            durability=DURABILITY["durable"],
            message_bytes=scale.message_bytes,
            batch="all columns",
            messages=round(figures[f"{of}_messages"]),
            per_second=figures[key],
            mb_per_second=figures[key] * scale.message_bytes / 1e6,
        )


def _spark_write(url: str, scale: Scale) -> Iterator[Row]:
    from pydanube.bench.spark_writing import write_table  # noqa: PLC0415

    with _Bench(url, "durable") as bench:
        write = partial(
            write_table, messages=scale.messages, message_bytes=scale.message_bytes
        )
        [figures] = bench.run(write)
    for mode, rate in figures.items():
        yield Row(
            workload=f"Spark writes a topic, {mode.replace('-', ' ')}",
            durability=DURABILITY["durable"],
            message_bytes=scale.message_bytes,
            batch="by Spark",
            messages=scale.messages,
            per_second=rate,
            mb_per_second=rate * scale.message_bytes / 1e6,
        )


def _spark_stream(url: str, scale: Scale) -> Iterator[Row]:
    from pydanube.bench.spark_writing import stream_latency  # noqa: PLC0415

    messages = min(scale.latencies, STREAM_MESSAGES_MAX)
    with _Bench(url, "durable") as bench:
        [figures] = bench.run(partial(stream_latency, messages=messages))
    yield Row(
        workload="publish to receive through a Spark stream",
        durability=DURABILITY["durable"],
        message_bytes=TIME_BYTES,
        batch="1 message",
        messages=messages,
        **_percentiles(figures),
    )


TIME_BYTES = 19
"""The size of a payload with a time in nanoseconds."""
STREAM_MESSAGES_MAX = 1000
"""The maximum number of messages in a workload with a fixed rate."""

GRPC = "grpc"
"""The workload that needs another URL."""

ON_REQUEST: dict[str, Callable[[str, Scale], Iterator[Row]]] = {
    "spark-read": _spark_read,
    "spark-write": _spark_write,
    "spark-stream": _spark_stream,
}
"""Workloads that only run on request."""

WORKLOADS: dict[str, Callable[[str, Scale], Iterator[Row]]] = {
    "publish": _publish,
    "end-to-end": _end_to_end,
    "sharing": _sharing,
    "backlog": _backlog,
    "one-by-one": _one_by_one,
    "latency": _latency,
}


class _Bench:
    """A new topic, and processes that use it."""

    def __init__(self, url: str, durability: str) -> None:
        self._url = url
        self._topic = f"/default/bench-{uuid.uuid4().hex[:8]}"
        self._durability = durability
        self._processes = ProcessPoolExecutor(
            2, mp_context=multiprocessing.get_context("spawn")
        )

    def __enter__(self) -> _Bench:
        with pydanube.sync.connect(self._url) as client:
            if self._durability == "memory":
                client.create_topic(self._topic, reliable=False)
            else:
                client.create_topic(self._topic, durability=self._durability)
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.shutdown(cancel_futures=True)
        with pydanube.sync.connect(self._url) as client:
            client.delete_topic(self._topic, force=True)

    def prepare_backlog(self) -> None:
        """Create the subscription before messages are published."""
        with pydanube.sync.connect(self._url) as client:
            client.create_subscription(
                self._topic, workloads.SUBSCRIPTION, type="shared", start="earliest"
            )

    def run(self, *work: Callable[..., Figures]) -> list[Figures]:
        """Run *work* concurrently, each in a process."""
        running: list[Future[Figures]] = [
            self._processes.submit(each, self._url, self._topic) for each in work
        ]
        return [each.result() for each in running]


def _batches(scale: Scale) -> dict[str, Any]:
    return {
        "messages": _whole(scale),
        "message_bytes": scale.message_bytes,
        "batch_messages": scale.batch_messages,
    }


def _whole(scale: Scale) -> int:
    """Return the number of messages in whole batches."""
    return max(1, scale.messages // scale.batch_messages) * scale.batch_messages


def _throughput(
    workload: str,
    durability: str,
    scale: Scale,
    *,
    messages: int,
    figures: Figures,
    batch: str | None = None,
) -> Row:
    seconds = (figures["ended_ns"] - figures["began_ns"]) / 1e9
    return Row(
        workload=workload,
        durability=DURABILITY[durability],
        message_bytes=scale.message_bytes,
        batch=batch or f"{scale.batch_messages} messages",
        messages=messages,
        per_second=messages / seconds,
        mb_per_second=messages * scale.message_bytes / seconds / 1e6,
        client_cpu_s_per_million=figures["cpu_s"] / messages * 1e6,
    )


def _latencies(workload: str, durability: str, scale: Scale, figures: Figures) -> Row:
    return Row(
        workload=workload,
        durability=DURABILITY[durability],
        message_bytes=scale.message_bytes,
        batch="1 message",
        messages=scale.latencies,
        **_percentiles(figures),
    )


def _percentiles(figures: Figures) -> dict[str, Any]:
    """Return the latency fields of a row."""
    return {
        "p50_us": figures["p50_us"],
        "p90_us": figures["p90_us"],
        "p99_us": figures["p99_us"],
        "p999_us": figures["p99.9_us"],
        "max_us": figures["max_us"],
    }

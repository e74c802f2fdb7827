"""The benchmark: its workloads, their processes, and the results."""

from __future__ import annotations

import multiprocessing
import uuid
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
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

    @property
    def in_batches(self) -> dict[str, Any]:
        """The size and number of the messages of workloads with whole batches."""
        batches = max(1, self.messages // self.batch_messages)
        return {
            "messages": batches * self.batch_messages,
            "message_bytes": self.message_bytes,
            "batch_messages": self.batch_messages,
        }


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
        with _Bench(url, scale, durability) as bench:
            [figures] = bench.run(
                partial(workloads.publish_batches, **scale.in_batches)
            )
            yield bench.row("publish", figures)


def _end_to_end(url: str, scale: Scale) -> Iterator[Row]:
    for durability in ("durable", "written"):
        with _Bench(url, scale, durability) as bench:
            figures = bench.run_together(
                partial(workloads.publish_batches, **scale.in_batches),
                workloads.consume,
            )
            yield bench.row("end to end", figures)


SHARING = (("exclusive", 1), ("shared", 4), ("key_shared", 4))
"""The subscription types that are compared, with their numbers of consumers."""
KEYS = 1000


def _sharing(url: str, scale: Scale) -> Iterator[Row]:
    for subscription_type, consumers in SHARING:
        with _Bench(url, scale) as bench:
            figures = bench.run_together(
                partial(workloads.publish_batches, **scale.in_batches, keys=KEYS),
                partial(
                    workloads.consume,
                    consumers=consumers,
                    subscription_type=subscription_type,
                ),
            )
            name = subscription_type.replace("_", "-")
            plural = "" if consumers == 1 else "s"
            yield bench.row(f"end to end, {consumers} {name} consumer{plural}", figures)


def _backlog(url: str, scale: Scale) -> Iterator[Row]:
    with _Bench(url, scale) as bench:
        bench.run(partial(workloads.publish_batches, **scale.in_batches))
        messages = scale.in_batches["messages"]
        [figures] = bench.run(partial(workloads.consume, messages=messages))
        yield bench.row("consume a backlog", figures)


def _one_by_one(url: str, scale: Scale) -> Iterator[Row]:
    messages = max(1, scale.messages // 5)
    with _Bench(url, scale) as bench:
        publish = partial(
            workloads.publish_one_by_one,
            messages=messages,
            message_bytes=scale.message_bytes,
        )
        row = partial(bench.row, batch="by the client", messages=messages)
        [published] = bench.run(publish)
        yield row("send_nowait one by one", published)
        [consumed] = bench.run(partial(workloads.consume_one_by_one, messages=messages))
        yield row("async for one by one", consumed)


def _latency(url: str, scale: Scale) -> Iterator[Row]:
    options: dict[str, Any] = {
        "messages": scale.latencies,
        "message_bytes": scale.message_bytes,
    }
    one: dict[str, Any] = {"messages": scale.latencies, "batch": "1 message"}
    for durability in ("durable", "written"):
        with _Bench(url, scale, durability) as bench:
            [figures] = bench.run(partial(workloads.publish_latency, **options))
            yield bench.row("publish to acknowledgement", figures, **one)
    for durability in ("durable", "memory"):
        options["reliable"] = durability != "memory"
        with _Bench(url, scale, durability) as bench:
            [figures] = bench.run(partial(workloads.delivery_latency, **options))
            yield bench.row("publish to receive", figures, **one)


CALLS_MAX = 20_000
"""The maximum number of messages in workloads with one call per message."""


def _grpc(url: str, scale: Scale, grpc_url: str) -> Iterator[Row]:
    messages = max(scale.latencies, min(CALLS_MAX, scale.messages // 100))
    for in_flight, count in ((1, scale.latencies), (64, messages)):
        with _Bench(url, scale) as bench:
            publish = partial(
                grpc_workloads.publish_calls,
                grpc_url=grpc_url,
                messages=count,
                message_bytes=scale.message_bytes,
                in_flight=in_flight,
            )
            [figures] = bench.run(publish)
            name = f"gRPC publish, {in_flight} at a time"
            yield bench.row(name, figures, messages=count, batch="1 message")
    with _Bench(url, scale) as bench:
        bench.prepare_backlog()
        publish = partial(
            workloads.publish_batches,
            messages=messages,
            message_bytes=scale.message_bytes,
            batch_messages=messages,
        )
        bench.run(publish)
        [figures] = bench.run(
            partial(grpc_workloads.receive_calls, grpc_url=grpc_url, messages=messages)
        )
        name = "gRPC receive and acknowledge"
        yield bench.row(name, figures, messages=messages, batch="1 message")


def _spark_read(url: str, scale: Scale) -> Iterator[Row]:
    # Only these workloads need Spark and Java.
    from pydanube.bench.spark_workloads import read_tables  # noqa: PLC0415

    with _Bench(url, scale) as bench:
        bench.run(partial(workloads.publish_batches, **scale.in_batches))
        [figures] = bench.run(partial(read_tables, message_bytes=scale.message_bytes))
        names = {
            "topic": "Spark reads a topic",
            "segments": "Spark reads its segments",
            "parquet": "Spark's Parquet source reads the same files",
        }
        for key, name in names.items():
            # There may be too few messages for a segment.
            if key in figures:
                of = "topic" if key == "topic" else "segments"
                messages = round(figures[f"{of}_messages"])
                rate = {"per_second": figures[key]}
                yield bench.row(name, rate, messages=messages, batch="all columns")


def _spark_write(url: str, scale: Scale) -> Iterator[Row]:
    from pydanube.bench.spark_workloads import write_table  # noqa: PLC0415

    with _Bench(url, scale) as bench:
        write = partial(
            write_table, messages=scale.messages, message_bytes=scale.message_bytes
        )
        [rates] = bench.run(write)
        for mode, rate in rates.items():
            name = f"Spark writes a topic, {mode.replace('-', ' ')}"
            figures = {"per_second": rate}
            yield bench.row(name, figures, messages=scale.messages, batch="by Spark")


def _spark_stream(url: str, scale: Scale) -> Iterator[Row]:
    from pydanube.bench.spark_workloads import stream_latency  # noqa: PLC0415

    messages = min(scale.latencies, STREAM_MESSAGES_MAX)
    with _Bench(url, scale) as bench:
        [figures] = bench.run(partial(stream_latency, messages=messages))
        name = "publish to receive through a Spark stream"
        row = bench.row(name, figures, messages=messages, batch="1 message")
        yield replace(row, message_bytes=TIME_BYTES)


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
    """A new topic, processes that use it, and their results."""

    def __init__(self, url: str, scale: Scale, durability: str = "durable") -> None:
        self._url = url
        self._scale = scale
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
        running = [
            self._processes.submit(each, self._url, self._topic) for each in work
        ]
        return [each.result() for each in running]

    def run_together(
        self, publish: Callable[..., Figures], consume: Callable[..., Figures]
    ) -> Figures:
        """Publish and consume at once; the time is that from the first to the last."""
        messages = self._scale.in_batches["messages"]
        consumed, published = self.run(partial(consume, messages=messages), publish)
        return {
            "began_ns": published["began_ns"],
            "ended_ns": consumed["ended_ns"],
            "cpu_s": published["cpu_s"] + consumed["cpu_s"],
        }

    def row(
        self,
        workload: str,
        figures: Figures,
        *,
        messages: int | None = None,
        batch: str | None = None,
    ) -> Row:
        """
        Return the result of a workload with *messages*, by default those in batches.

        *figures* are those of a row, or the times from which its rates follow.
        """
        messages = messages or self._scale.in_batches["messages"]
        if "began_ns" in figures:
            seconds = (figures.pop("ended_ns") - figures.pop("began_ns")) / 1e9
            figures["per_second"] = messages / seconds
            figures["client_cpu_s_per_million"] = figures["cpu_s"] / messages * 1e6
        if "per_second" in figures:
            mb = self._scale.message_bytes / 1e6
            figures["mb_per_second"] = figures["per_second"] * mb
        figures.pop("cpu_s", None)
        return Row(
            workload=workload,
            durability=DURABILITY[self._durability],
            message_bytes=self._scale.message_bytes,
            batch=batch or f"{self._scale.batch_messages} messages",
            messages=messages,
            **figures,
        )

"""The benchmark: its workloads, their processes, and the results."""

from __future__ import annotations

import multiprocessing
import uuid
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pydanube.sync
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_cli.bench.figures import FIGURES, Durability, rate_figures
from pydanube_cli.bench.native_workloads import (
    SUBSCRIPTION,
    consume,
    consume_one_by_one,
    delivery_latency,
    process,
    publish_in_tasks,
    publish_latency,
    publish_messages,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from pydanube_cli.bench.figures import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale of the benchmark."""

    messages: int = 3_000_000
    """The number of messages in batches; a fifth of it one by one."""
    message_bytes: int = 100
    batch_messages: int = 1000
    latencies: int = 2000

    @property
    def in_batches(self) -> dict[str, int]:
        """The size and number of the messages of workloads with whole batches."""
        batches = max(1, self.messages // self.batch_messages)
        return {
            "messages": batches * self.batch_messages,
            "message_bytes": self.message_bytes,
            "batch_messages": self.batch_messages,
        }


Row = dict[str, Any]
"""One result: its conditions, and all FIGURES, which are None if not measured."""


def run_bench(
    url: str, scale: Scale, only: str | None = None, *, grpc_url: str | None = None
) -> Iterator[Row]:
    """
    Measure the broker at *url* and yield the results one by one.

    With *grpc_url*, also measure its gRPC listener if ``grpc`` is installed.

    Producer and consumer have their own processes.  The benchmark creates topics
    ``/default/bench-…`` and deletes them.

    Raises:
        LostMessages: A consumer did not receive every message once and in order.
    """
    workloads = dict(WORKLOADS)
    if grpc_url is not None and (only == GRPC or find_spec("grpc") is not None):
        workloads[GRPC] = partial(_grpc, grpc_url=grpc_url)
    if only is not None:
        workloads = {only: (workloads | ON_REQUEST)[only]}
    for workload in workloads.values():
        yield from workload(url, scale)


ONE_MESSAGE = "1 message"
SHARING = (
    ("1 exclusive consumer", 1, "exclusive"),
    ("4 shared consumers", 4, "shared"),
    ("4 key-shared consumers", 4, "key_shared"),
)
"""The numbers of consumers and subscription types that are compared."""
WORKERS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("worker", 5, {}),
    (
        "worker, 16 calls that wait once",
        10,
        {"handler": "waits", "concurrency": 16},
    ),
    ("worker, the order of keys", 5, {"order": "key"}),
    (
        "worker, the order of keys, 16 calls that wait once",
        10,
        {"handler": "waits", "concurrency": 16, "order": "key"},
    ),
    ("worker, a function without async", 30, {"handler": "sync"}),
    ("worker, batches", 1, {"batch": 1000}),
)
"""The workers, the part of all messages that they process, and their options."""
KEYS = 1000
SENDING_TASKS = 100
"""The number of tasks that publish single messages at the same time."""
CALLS_MAX = 20_000
"""The maximum number of messages in workloads with one call per message."""
TIME_BYTES = 19
"""The size of a payload with a time in nanoseconds."""
STREAM_MESSAGES_MAX = 1000
"""The maximum number of messages in a workload with a fixed rate."""


def _publish(url: str, scale: Scale) -> Iterator[Row]:
    for durability in (Durability.SYNCED, Durability.PAGE_CACHE):
        with _Bench(url, scale, durability) as bench:
            yield bench.measure("publish", publish_messages, **scale.in_batches)


def _end_to_end(url: str, scale: Scale) -> Iterator[Row]:
    for durability in (Durability.SYNCED, Durability.PAGE_CACHE):
        with _Bench(url, scale, durability) as bench:
            yield bench.measure_both("end to end")
    with _Bench(url, scale) as bench:
        yield bench.measure_both("end to end, each message read", reads_each=True)


def _sharing(url: str, scale: Scale) -> Iterator[Row]:
    for name, count, kind in SHARING:
        with _Bench(url, scale) as bench:
            yield bench.measure_both(
                f"end to end, {name}",
                keys=KEYS,
                consumers=count,
                subscription_type=kind,
            )


def _backlog(url: str, scale: Scale) -> Iterator[Row]:
    for name, reads_each in (
        ("consume a backlog", False),
        ("consume a backlog, each message read", True),
    ):
        with _Bench(url, scale) as bench:
            bench.start(publish_messages, **scale.in_batches).result()
            messages = scale.in_batches["messages"]
            yield bench.measure(name, consume, messages=messages, reads_each=reads_each)


def _one_by_one(url: str, scale: Scale) -> Iterator[Row]:
    messages = max(1, scale.messages // 5)
    for durability in (Durability.SYNCED, Durability.PAGE_CACHE):
        with _Bench(url, scale, durability, batch="by the client") as bench:
            yield bench.measure(
                f"send awaited in {SENDING_TASKS} tasks",
                publish_in_tasks,
                messages=max(1, messages // 3),
                message_bytes=scale.message_bytes,
                tasks=SENDING_TASKS,
            )
    with _Bench(url, scale, batch="by the client") as bench:
        yield bench.measure(
            "send_nowait one by one",
            publish_messages,
            messages=messages,
            message_bytes=scale.message_bytes,
        )
        yield bench.measure(
            "async for one by one", consume_one_by_one, messages=messages
        )


def _workers(url: str, scale: Scale) -> Iterator[Row]:
    for name, part, options in WORKERS:
        messages = max(1, scale.in_batches["messages"] // part)
        with _Bench(url, scale, batch=f"{options.get('batch', 1)} per call") as bench:
            bench.start(
                publish_messages, **scale.in_batches | {"messages": messages}, keys=KEYS
            ).result()
            yield bench.measure(name, process, messages=messages, **options)


def _latency(url: str, scale: Scale) -> Iterator[Row]:
    options = {"messages": scale.latencies, "message_bytes": scale.message_bytes}
    for durability in (Durability.SYNCED, Durability.PAGE_CACHE):
        with _Bench(url, scale, durability, batch=ONE_MESSAGE) as bench:
            name = "publish to acknowledgement"
            yield bench.measure(name, publish_latency, **options)
    for durability in (Durability.SYNCED, Durability.MEMORY):
        with _Bench(url, scale, durability, batch=ONE_MESSAGE) as bench:
            is_reliable = durability != Durability.MEMORY
            yield bench.measure(
                "publish to receive", delivery_latency, **options, reliable=is_reliable
            )


def _grpc(url: str, scale: Scale, *, grpc_url: str) -> Iterator[Row]:
    # It may not be installed.
    from pydanube_cli.bench.grpc_workloads import (  # noqa: PLC0415
        publish_calls,
        receive_calls,
    )

    messages = max(scale.latencies, min(CALLS_MAX, scale.messages // 100))
    for in_flight, count in ((1, scale.latencies), (64, messages)):
        with _Bench(url, scale, batch=ONE_MESSAGE) as bench:
            yield bench.measure(
                f"gRPC publish, {in_flight} at a time",
                publish_calls,
                grpc_url=grpc_url,
                messages=count,
                message_bytes=scale.message_bytes,
                in_flight=in_flight,
            )
    with _Bench(url, scale, batch=ONE_MESSAGE) as bench:
        with pydanube.sync.connect(url) as client:
            client.subscriptions.create(
                bench.topic, SUBSCRIPTION, type="shared", start="earliest"
            )
        bench.start(
            publish_messages,
            messages=messages,
            message_bytes=scale.message_bytes,
            batch_messages=messages,
        ).result()
        yield bench.measure(
            "gRPC receive and acknowledge",
            receive_calls,
            grpc_url=grpc_url,
            messages=messages,
        )


def _spark_read(url: str, scale: Scale) -> Iterator[Row]:
    # Only these workloads need Spark and Java.
    from pydanube_spark.bench_workloads import read_tables  # noqa: PLC0415

    with _Bench(url, scale, batch="all columns") as bench:
        bench.start(publish_messages, **scale.in_batches).result()
        reading = bench.start(read_tables, message_bytes=scale.message_bytes)
        for name, (messages, seconds) in reading.result().items():
            yield bench.row(name, messages, {"seconds": seconds})


def _spark_write(url: str, scale: Scale) -> Iterator[Row]:
    from pydanube_spark.bench_workloads import write_table  # noqa: PLC0415

    messages = scale.messages
    with _Bench(url, scale, batch="by Spark") as bench:
        writing = bench.start(
            write_table, messages=messages, message_bytes=scale.message_bytes
        )
        for mode, seconds in writing.result().items():
            name = f"Spark writes a topic, {mode.replace('-', ' ')}"
            yield bench.row(name, messages, {"seconds": seconds})


def _spark_stream(url: str, scale: Scale) -> Iterator[Row]:
    from pydanube_spark.bench_workloads import stream_latency  # noqa: PLC0415

    messages = min(scale.latencies, STREAM_MESSAGES_MAX)
    with _Bench(url, scale, batch=ONE_MESSAGE) as bench:
        name = "publish to receive through a Spark stream"
        row = bench.measure(name, stream_latency, messages=messages)
        yield row | {"message_bytes": TIME_BYTES}


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
    "workers": _workers,
    "latency": _latency,
}


class _Bench:
    """A new topic, processes that use it, and their results."""

    def __init__(
        self,
        url: str,
        scale: Scale,
        durability: Durability = Durability.SYNCED,
        *,
        batch: str | None = None,
    ) -> None:
        self.topic = f"/default/bench-{uuid.uuid4().hex[:8]}"
        self._url = url
        self._scale = scale
        self._durability = durability
        self._batch = batch or f"{scale.batch_messages} messages"
        self._processes = ProcessPoolExecutor(
            2, mp_context=multiprocessing.get_context("spawn")
        )

    def __enter__(self) -> _Bench:
        with pydanube.sync.connect(self._url) as client:
            match self._durability:
                case Durability.MEMORY:
                    client.topics.create(self.topic, reliable=False)
                case Durability.PAGE_CACHE:
                    client.topics.create(self.topic, durability="written")
                case Durability.SYNCED:
                    client.topics.create(self.topic, durability="durable")
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.shutdown(cancel_futures=True)
        with pydanube.sync.connect(self._url) as client:
            client.topics.delete(self.topic, force=True)

    def start(self, work: Callable[..., Any], **options: Any) -> Future[Any]:
        """Start *work* in a process."""
        return self._processes.submit(work, self._url, self.topic, **options)

    def measure(self, name: str, work: Callable[..., Figures], **options: Any) -> Row:
        """Return the result of *work*, in a process, on ``messages`` of *options*."""
        figures = self.start(work, **options).result()
        return self.row(name, options["messages"], figures)

    def measure_both(self, name: str, keys: int = 0, **options: Any) -> Row:
        """Publish and consume at once; the time is that from the first to the last."""
        in_batches = self._scale.in_batches
        messages = in_batches["messages"]
        consuming = self.start(consume, messages=messages, **options)
        published = self.start(publish_messages, **in_batches, keys=keys).result()
        consumed = consuming.result()
        figures = {
            "began_ns": published["began_ns"],
            "ended_ns": consumed["ended_ns"],
            "cpu_s": published["cpu_s"] + consumed["cpu_s"],
        }
        return self.row(name, messages, figures)

    def row(self, name: str, messages: int, measured: Figures) -> Row:
        """Return the row for *measured*: figures, or times from which they follow."""
        if "ended_ns" in measured:
            times_ns = measured["ended_ns"] - measured["began_ns"]
            measured["seconds"] = times_ns / 1e9
            measured["client_cpu_s_per_million"] = measured["cpu_s"] / messages * 1e6
        if "seconds" in measured:
            size = self._scale.message_bytes
            measured |= rate_figures(messages, size, measured["seconds"])
        return {
            "workload": name,
            "durability": self._durability,
            "message_bytes": self._scale.message_bytes,
            "batch": self._batch,
            "messages": messages,
            **{figure: measured.get(figure) for figure in FIGURES},
        }

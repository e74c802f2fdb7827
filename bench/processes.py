"""
More cores: a broker with several processes against one process.

``python -m bench.processes`` gives each process of the broker the same part of a core,
with the quotas of cgroups (version 1), so that a machine with two cores shows what more
cores would bring; the clients have the rest.  In turns it starts a broker with 1, 2, 4
and 8 processes, and publishes to topics that are spread evenly over them:

- ``native``: single messages to 64 topics of each process, over the native protocol,
- ``grpc``: one message at a time on each of 64 connections for each process, over
  Danube's protocol,
- ``mqtt``: messages of QoS 1 from 64 devices for each process, each to its own topic,
- ``batches``: batches of 1,000 messages to 8 topics of each process, over the native
  protocol.

It prints the rates, how many times one process they are, and the messages for each
second of processor time of the broker, with how many times one process that is.  The
rates count only if the broker is the limit: it should use its quota.  On a busy
machine it does not, and the messages for each second of processor time still tell what
more processes cost: the goals are 0.85 of one process, and 0.8 for batches.  It needs
the right to make cgroups, and says so.

Each process has the same work, whatever their number: so many topics, connections and
devices, and 512 single messages on their way, for example, and as much memory for
unsealed messages.  With ``--fixed-load`` all processes together have as much as one, so
that a process of eight has an eighth: it commits smaller groups and seals topics
earlier, which costs more for each message.

The clients and the processes share the machine, so the quotas of all processes should
leave it room: eight processes with 15 % of a core use 1.2 cores.  For each
workload the program prints the cores that the clients use, the part of the machine that
is idle, and in what part of the periods processes have spent their quotas.  If nothing
is idle, the machine is the limit, and the rates are not those of more cores.

``--share 0`` sets no quotas.  Then the processes share the cores of the machine with
the clients, and must not be slower than one by more than a tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import struct
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import grpc.aio
import psutil

import pydanube
from bench.mqtt_listener import Device
from bench.remote_reads import say
from bench.run import interruptible
from bench.servers import HOST, accepts, free_port, running
from bench.systems.system import BenchFailed
from bench.usage import memory_bytes, processor_s
from pydanube.aio.loops import new_loop
from pydanube.aio.tasks import gather, task_scope
from pydanube.wire.pb import danube_api_pb2 as pb

CGROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 20_000
"""Short, so that a process whose quota is spent stands still only shortly."""

CLIENTS = 2
TOPICS = {"native": 64, "grpc": 64, "mqtt": 64, "batches": 8}
"""For each process."""
TAIL_BYTES_MAX = 512 * 1024 * 1024
"""For each process, as one has by default."""
SPARE = 1.4
"""How many times as many topics are created as are used, the same number on each
process, because some processes get fewer than others."""
SPARE_MIN = 150
TASKS_PER_TOPIC = 8
BATCH_MESSAGES = 1000
BATCHES_AT_ONCE = 2
WINDOW = 10
PAYLOAD = b"x" * 100
WARM_S = 1.5
SETTLE_S = 60.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The ports that the processes of a broker share."""

    stream: int
    grpc: int
    mqtt: int
    http: int


@dataclass(frozen=True, slots=True)
class Trial:
    """What was measured of one workload with one number of processes."""

    rate: float
    broker_cpu_s: float
    seconds: float
    memory_mib: float
    client_cpu_s: float
    idle: float
    """The part of the machine's processor time that nobody used."""
    throttled: float
    """The part of the periods in which a process stood still with its quota spent."""
    group: float
    """The messages that were stored with one sync of a journal."""

    @property
    def per_cpu_second(self) -> float:
        return self.rate * self.seconds / max(self.broker_cpu_s, 1e-9)

    @property
    def cores(self) -> float:
        return self.broker_cpu_s / self.seconds

    @property
    def client_cores(self) -> float:
        return self.client_cpu_s / self.seconds


Trials = dict[str, dict[int, list[Trial]]]


class QuotasImpossible(Exception):
    """Why this program cannot limit processes."""


@dataclass
class Quotas:
    """The cgroups of this program, one for each process."""

    share: float
    _groups: list[Path] = field(default_factory=list)

    def limit(self, pids: Sequence[int]) -> None:
        """
        Give each process its share of a core.

        Raises:
            QuotasImpossible: The system does not allow it.
        """
        for pid in pids if self.share else ():
            group = CGROUPS / f"danube-bench-{os.getpid()}-{pid}"
            try:
                group.mkdir()
                self._groups.append(group)
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                quota = str(round(PERIOD_US * self.share))
                (group / "cpu.cfs_quota_us").write_text(quota)
                (group / "cgroup.procs").write_text(str(pid))
            except OSError as error:
                raise QuotasImpossible(
                    f"the processor time of processes cannot be limited here: "
                    f"{group}: {error.strerror}. The figures need cgroups of version 1 "
                    f"below {CGROUPS}, and the right to make them; --share 0 measures "
                    "without quotas."
                ) from error

    def periods(self) -> tuple[int, int]:
        """Return the periods of all groups so far, and in how many one stood still."""
        found = [
            dict(line.split() for line in (each / "cpu.stat").read_text().splitlines())
            for each in self._groups
        ]
        return (
            sum(int(each["nr_periods"]) for each in found),
            sum(int(each["nr_throttled"]) for each in found),
        )

    def remove(self) -> None:
        """Remove the groups of processes that have ended."""
        for group in self._groups:
            with suppress(OSError):
                group.rmdir()
        self._groups.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--processes", default="1,2,4,8", help="numbers of processes")
    parser.add_argument("--workloads", default=",".join(TOPICS))
    parser.add_argument("--share", type=float, default=0.15, help="of a core for each")
    parser.add_argument(
        "--fixed-load",
        action="store_true",
        help="as many topics, and memory, for all processes as one process has",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each workload")
    parser.add_argument("--chart", type=Path, help="a PNG file to write")
    parser.add_argument("--data-dir", type=Path, help="the disk that is written to")
    given = parser.parse_args()
    logging.getLogger("pydanube").setLevel(logging.ERROR)
    counts = [int(each) for each in given.processes.split(",")]
    workloads = given.workloads.split(",")
    if unknown := set(workloads) - TOPICS.keys():
        raise BenchFailed(
            f"--workloads: expected some of {', '.join(TOPICS)}, got {unknown.pop()!r}"
        )
    trials: Trials = {each: defaultdict(list) for each in workloads}
    with interruptible():
        try:
            for number in range(given.rounds):
                # In turns, because the machine is not always equally busy.
                for count in counts if number % 2 == 0 else reversed(counts):
                    measure(count, workloads, given, trials)
        except QuotasImpossible as error:
            say(f"skipped: {error}")
            return
    say(json.dumps(report(trials), indent=2))
    if given.chart is not None:
        draw(trials, given.chart)


def measure(
    count: int, workloads: Sequence[str], given: argparse.Namespace, trials: Trials
) -> None:
    """Start a broker with *count* processes, and measure each workload."""
    quotas = Quotas(given.share)
    topics_of = {
        each: TOPICS[each] if given.fixed_load else TOPICS[each] * count
        for each in workloads
    }
    needed = -(-max(topics_of.values()) // count)
    names = [f"t{number:03d}" for number in range(candidates(needed * count))]
    try:
        with (
            tempfile.TemporaryDirectory(
                prefix="processes-", dir=given.data_dir
            ) as scratch,
            running_processes(
                *(count, names, Path(scratch), workloads),
                tail_bytes_max=TAIL_BYTES_MAX * (1 if given.fixed_load else count),
            ) as (endpoint, supervisor),
        ):
            topics = asyncio.run(spread_topics(endpoint, count, names, needed))
            pids = broker_processes(supervisor, endpoint.stream, count)
            quotas.limit(pids)
            for workload in workloads:
                trial = run_workload(
                    workload,
                    endpoint,
                    topics[: topics_of[workload]],
                    pids,
                    quotas,
                    seconds=given.seconds,
                )
                trials[workload][count].append(trial)
                say(
                    f"{count} processes, {workload}: {trial.rate:,.0f} messages/s, "
                    f"{trial.per_cpu_second:,.0f} for each CPU second, "
                    f"{trial.cores:.2f} cores, clients {trial.client_cores:.2f}, "
                    f"idle {trial.idle:.0%}, throttled {trial.throttled:.0%}, "
                    f"{trial.group:,.0f} messages for each sync, "
                    f"{trial.memory_mib:.0f} MiB"
                )
    finally:
        quotas.remove()


@contextmanager
def running_processes(
    count: int,
    names: Sequence[str],
    scratch: Path,
    workloads: Sequence[str],
    *,
    tail_bytes_max: int,
) -> Iterator[tuple[Endpoint, int]]:
    """Run a broker with *count* processes; yields its ports and the supervisor."""
    endpoint = Endpoint(free_port(), free_port(), free_port(), free_port())
    rules = [
        {"filter": f"sensors/{name}/#", "topic": f"/default/{name}"} for name in names
    ]
    has_mqtt = "mqtt" in workloads
    # Topics stay where they are: what a move costs is another question.
    settings = {
        "DANUBE_CLUSTER__IMBALANCE_PERCENT_MAX": "1000",
        "DANUBE_STORAGE__TAIL_BYTES_MAX": str(tail_bytes_max),
    }
    if has_mqtt:
        settings["DANUBE_MQTT__PORT"] = str(endpoint.mqtt)
        settings["DANUBE_MQTT__RULES"] = json.dumps(rules)
    command = [
        *(sys.executable, "-m", "pydanube_cli.main", "broker"),
        *("--stream-port", str(endpoint.stream), "--grpc-port", str(endpoint.grpc)),
        *("--http-port", str(endpoint.http), "--admin-port", str(free_port())),
        *("--data-dir", str(scratch / "data")),
    ]
    if count > 1:
        command += ["--processes", str(count)]
    with running(
        command,
        scratch / "log",
        is_ready=lambda: all(
            accepts(port)
            for port in (endpoint.stream, endpoint.mqtt)
            if port != endpoint.mqtt or has_mqtt
        ),
        environ=settings,
    ) as pid:
        yield endpoint, pid


def broker_processes(supervisor: int, port: int, count: int) -> list[int]:
    """
    Return the processes that serve *port*.

    Raises:
        BenchFailed: There are others than *count*.
    """
    parent = psutil.Process(supervisor)
    candidates = [parent] if count == 1 else parent.children(recursive=True)
    found = [
        each.pid
        for each in candidates
        if any(
            one.status == psutil.CONN_LISTEN and one.laddr.port == port
            for one in each.net_connections("tcp")
        )
    ]
    if len(found) != count:
        raise BenchFailed(f"expected {count} broker processes, found {len(found)}")
    return found


def candidates(needed: int) -> int:
    """Return how many topics to create so that *needed* are spread evenly."""
    return max(round(needed * SPARE), needed + SPARE_MIN)


async def spread_topics(
    endpoint: Endpoint, count: int, names: Sequence[str], needed: int
) -> list[str]:
    """
    Create topics, and return some so that each process has every count-th of them.

    Each process has *needed* of them or more.

    Raises:
        BenchFailed: The processes do not divide the topics among them.
    """
    async with pydanube.connect(f"danube://{HOST}:{endpoint.stream}") as client:
        for name in names:
            await client.topics.create(f"/default/{name}", exist_ok=True)
    give_up_at = time.monotonic() + SETTLE_S
    while True:
        owned: dict[str, list[str]] = defaultdict(list)
        async with grpc.aio.insecure_channel(f"{HOST}:{endpoint.grpc}") as channel:
            for name in names:
                topic = f"/default/{name}"
                owned[await owner_of(channel, topic)].append(topic)
        if len(owned) == count and all(len(each) >= needed for each in owned.values()):
            return [
                topic for some in zip(*owned.values(), strict=False) for topic in some
            ]
        if time.monotonic() > give_up_at:
            raise BenchFailed(
                f"after {SETTLE_S:.0f} s, {len(owned)} of {count} processes have "
                f"{sorted(map(len, owned.values()))} of {len(names)} topics"
            )
        await asyncio.sleep(0.5)


async def owner_of(channel: grpc.aio.Channel, topic: str) -> str:
    """Return the host and the port of the process that serves *topic*."""
    lookup = unary(channel, "Discovery/TopicLookup", pb.TopicLookupResponse)
    found = await lookup(pb.TopicLookupRequest(topic=topic))
    url: str = found.connect_url
    return url.partition("//")[2] or url


def unary(channel: grpc.aio.Channel, method: str, answer: Any) -> Any:
    return channel.unary_unary(
        f"/danube.{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )


def run_workload(
    workload: str,
    endpoint: Endpoint,
    topics: Sequence[str],
    pids: Sequence[int],
    quotas: Quotas,
    *,
    seconds: float,
) -> Trial:
    """Publish to *topics* from several processes."""
    stored, syncs = counted(endpoint)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(CLIENTS + 1)
    with context.Pool(CLIENTS, initialize, (Window(seconds, barrier),)) as pool:
        work = [
            (workload, endpoint, topics[first::CLIENTS]) for first in range(CLIENTS)
        ]
        waiting = pool.starmap_async(run_client, work)
        try:
            barrier.wait(SETTLE_S)
        except threading.BrokenBarrierError:
            if waiting.ready():
                waiting.get()
            raise BenchFailed(f"{workload}: the clients were not ready") from None
        clients = [each.pid for each in multiprocessing.active_children() if each.pid]
        before = Usage.now(pids, clients, quotas)
        time.sleep(seconds)
        after = Usage.now(pids, clients, quotas)
        messages = sum(waiting.get(SETTLE_S))
    machine_s = after.machine_s - before.machine_s
    stored_then, syncs_then = counted(endpoint)
    return Trial(
        rate=messages / seconds,
        broker_cpu_s=after.broker_s - before.broker_s,
        seconds=after.at_s - before.at_s,
        memory_mib=memory_bytes(pids) / MIB,
        client_cpu_s=after.clients_s - before.clients_s,
        idle=(after.idle_s - before.idle_s) / machine_s,
        throttled=(after.throttled - before.throttled)
        / max(after.periods - before.periods, 1),
        group=(stored_then - stored) / max(syncs_then - syncs, 1),
    )


def counted(endpoint: Endpoint) -> tuple[float, float]:
    """Return the messages that all processes have stored, and their syncs."""
    url = f"http://{HOST}:{endpoint.http}/metrics"
    # Processes with small quotas answer late.
    with urlopen(url, timeout=SETTLE_S) as answer:
        samples = [line.rpartition(" ") for line in answer.read().decode().splitlines()]
    return tuple(  # type: ignore[return-value]
        sum(float(value) for name, _, value in samples if name.split("{")[0] == wanted)
        for wanted in ("danube_messages_in_total", "danube_journal_syncs_total")
    )


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes and the machine have used until a moment."""

    at_s: float
    broker_s: float
    clients_s: float
    machine_s: float
    idle_s: float
    periods: int
    throttled: int

    @classmethod
    def now(cls, pids: Sequence[int], clients: Sequence[int], quotas: Quotas) -> Usage:
        times = psutil.cpu_times()
        periods, throttled = quotas.periods()
        return cls(
            at_s=time.monotonic(),
            broker_s=processor_s(pids),
            clients_s=processor_s(clients),
            machine_s=sum(times) - times.guest - times.guest_nice,
            idle_s=times.idle,
            periods=periods,
            throttled=throttled,
        )


_window: Window


def initialize(window: Window) -> None:
    """Take what all clients of this workload share."""
    global _window  # noqa: PLW0603  # Barriers cannot be given with the work.
    _window = window
    logging.getLogger("pydanube").setLevel(logging.ERROR)


def run_client(workload: str, endpoint: Endpoint, topics: Sequence[str]) -> int:
    """Return the messages that were acknowledged in the time that counts."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(CLIENTS_OF[workload](endpoint, topics, _window))


class Count:
    """Messages that were acknowledged."""

    def __init__(self) -> None:
        self.messages = 0


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which all clients count."""

    seconds: float
    barrier: Any

    async def count(self, messages: Callable[[], int]) -> int:
        """Return by how much *messages* grows in the time."""
        async with asyncio.timeout(SETTLE_S):
            while not messages():  # noqa: ASYNC110  # Clients only count.
                await asyncio.sleep(0.1)
        await asyncio.sleep(WARM_S)
        await asyncio.to_thread(self.barrier.wait, SETTLE_S)
        before = messages()
        await asyncio.sleep(self.seconds)
        return messages() - before


async def publish_singles(
    endpoint: Endpoint, topics: Sequence[str], window: Window
) -> int:
    """Publish single messages over the native protocol."""
    return await _publish_native(endpoint, topics, window, send=_send)


async def publish_batches(
    endpoint: Endpoint, topics: Sequence[str], window: Window
) -> int:
    """Publish batches over the native protocol."""
    return await _publish_native(endpoint, topics, window, send=_send_batch)


async def _send(producer: Any, count: Count) -> None:
    while True:
        await producer.send(PAYLOAD)
        count.messages += 1


async def _send_batch(producer: Any, count: Count) -> None:
    payloads = [PAYLOAD] * BATCH_MESSAGES
    while True:
        await producer.send_batch(payloads)
        count.messages += BATCH_MESSAGES


async def _publish_native(
    endpoint: Endpoint,
    topics: Sequence[str],
    window: Window,
    *,
    send: Any,
) -> int:
    count = Count()
    at_once = TASKS_PER_TOPIC if send is _send else BATCHES_AT_ONCE
    url = f"danube://{HOST}:{endpoint.stream}"
    async with pydanube.connect(url, wait_s=60, retry_s=60) as client:

        async def publish(topic: str) -> None:
            async with client.producer(topic) as producer, task_scope() as tasks:
                for _ in range(at_once):
                    tasks.run(send(producer, count))
                await asyncio.Future()

        async with task_scope() as tasks:
            for topic in topics:
                tasks.run(publish(topic))
            return await window.count(lambda: count.messages)


async def publish_mqtt(
    endpoint: Endpoint, topics: Sequence[str], window: Window
) -> int:
    """Publish messages of QoS 1, each device to a topic of its own."""
    loop = asyncio.get_running_loop()
    devices = []
    for topic in topics:
        name = topic.rpartition("/")[2]
        _, device = await loop.create_connection(
            lambda name=name: Device(  # type: ignore[misc]
                name, 10**9, WINDOW, PAYLOAD
            ),
            HOST,
            endpoint.mqtt,
        )
        devices.append(device)
    await asyncio.sleep(0.5)
    for device in devices:
        device.begin()

    def acknowledged() -> int:
        return sum(each.acknowledged for each in devices) // 4

    messages = await window.count(acknowledged)
    for device in devices:
        if device.done.done():
            device.done.result()
        device.close()
        device.done.cancel()
    return messages


class GrpcPublisher(asyncio.Protocol):
    """
    A connection of gRPC that publishes one message after the other.

    It sends prepared frames and looks at the headers of answers only, so that the
    broker is measured and not a client of gRPC in Python.
    """

    def __init__(self, message: bytes, count: Count) -> None:
        self.failed: str | None = None
        self._block = b"".join(
            _literal(name, value)
            for name, value in (
                (b":method", b"POST"),
                (b":scheme", b"http"),
                (b":path", b"/danube.ProducerService/SendMessage"),
                (b":authority", b"localhost"),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
            )
        )
        self._data = b"\0" + len(message).to_bytes(4) + message
        self._count = count
        self._stream_id = -1
        self._has_answer = False
        self._received = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = transport  # type: ignore[assignment]
        window = (2**31 - 1 - 65_535).to_bytes(4)
        self._transport.write(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_WINDOW_UPDATE, 0, 0, window)
        )
        self._call()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        received = self._received
        received += data
        at = 0
        while len(received) >= at + 9:
            end = at + 9 + int.from_bytes(received[at : at + 3])
            if len(received) < end:
                break
            kind, flags = received[at + 3], received[at + 4]
            self._on_frame(kind, flags, bytes(received[at + 9 : end]))
            at = end
        del received[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self.failed = self.failed or "the broker has disconnected"

    def close(self) -> None:
        """Disconnect."""
        self._transport.abort()

    def _on_frame(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _DATA:
            self._has_answer = True
        elif kind == _HEADERS and flags & _END_STREAM:
            if not self._has_answer:
                self.failed = f"the broker has refused a message: {payload!r}"
                return self.close()
            self._count.messages += 1
            self._call()
        elif kind in {_SETTINGS, _PING} and not flags & _ACK:
            answer = payload if kind == _PING else b""
            self._transport.write(_frame(kind, _ACK, 0, answer))
        elif kind in {_RST_STREAM, _GOAWAY}:
            self.failed = f"the broker has ended a call: {payload!r}"
            self.close()
        return None

    def _call(self) -> None:
        self._has_answer = False
        self._stream_id += 2
        self._transport.write(
            _frame(_HEADERS, _END_HEADERS, self._stream_id, self._block)
            + _frame(_DATA, _END_STREAM, self._stream_id, self._data)
        )


_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = (
    *(0, 1, 3, 4),
    *(6, 7, 8),
)
_END_STREAM = _ACK = 1
_END_HEADERS = 4


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = struct.pack(">BBI", kind, flags, stream)
    return len(payload).to_bytes(3) + head + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """Return a header field of HPACK that is not indexed."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


async def publish_grpc(
    endpoint: Endpoint, topics: Sequence[str], window: Window
) -> int:
    """Publish one message at a time on each of as many connections as topics."""
    count = Count()
    loop = asyncio.get_running_loop()

    async def connect(topic: str) -> GrpcPublisher:
        async with grpc.aio.insecure_channel(f"{HOST}:{endpoint.grpc}") as channel:
            owner = await owner_of(channel, topic)
        async with grpc.aio.insecure_channel(owner) as channel:
            create = unary(
                channel, "ProducerService/CreateProducer", pb.ProducerResponse
            )
            producer = await create(
                pb.ProducerRequest(
                    producer_name="bench",
                    topic_name=topic,
                    dispatch_strategy=pb.Reliable,
                )
            )
        msg_id = pb.MsgID(producer_id=producer.producer_id, topic_name=topic)
        message = pb.StreamMessage(
            request_id=1,
            msg_id=msg_id,
            payload=PAYLOAD,
            publish_time=time.time_ns() // 1_000_000,
            producer_name="bench",
        ).SerializeToString()
        host, _, port = owner.rpartition(":")
        _, publisher = await loop.create_connection(
            lambda: GrpcPublisher(message, count), host, int(port)
        )
        return publisher

    publishers = await gather(map(connect, topics))
    messages = await window.count(lambda: count.messages)
    for publisher in publishers:
        if publisher.failed is not None:
            raise BenchFailed(publisher.failed)
        publisher.close()
    return messages


CLIENTS_OF = {
    "native": publish_singles,
    "grpc": publish_grpc,
    "mqtt": publish_mqtt,
    "batches": publish_batches,
}


def report(trials: Trials) -> dict[str, dict[str, dict[str, float]]]:
    """Return the medians of each workload and number of processes."""
    return {
        workload: {
            str(count): {
                "messages_per_s": round(median(each.rate for each in of_count)),
                "times_one_process": round(_times(by_count, count), 2),
                "messages_per_cpu_s": round(
                    median(each.per_cpu_second for each in of_count)
                ),
                "cpu_times_one_process": round(
                    _times(by_count, count, lambda each: each.per_cpu_second), 2
                ),
                "cores": round(median(each.cores for each in of_count), 2),
                "client_cores": round(
                    median(each.client_cores for each in of_count), 2
                ),
                "idle": round(median(each.idle for each in of_count), 2),
                "throttled": round(median(each.throttled for each in of_count), 2),
                "messages_per_sync": round(median(each.group for each in of_count)),
                "memory_mib": round(median(each.memory_mib for each in of_count)),
            }
            for count, of_count in sorted(by_count.items())
        }
        for workload, by_count in trials.items()
    }


def _times(
    by_count: dict[int, list[Trial]],
    count: int,
    figure: Callable[[Trial], float] = lambda each: each.rate,
) -> float:
    """Return how many times *figure* of the fewest processes; by pairs of rounds."""
    pairs = zip(by_count[count], by_count[min(by_count)], strict=True)
    return float(median(figure(many) / figure(one) for many, one in pairs))


def draw(trials: Trials, file: Path) -> None:
    """Draw how the rates grow, and what a message costs, beside the goals."""
    # The import takes a second, and is only needed for charts.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(11, 5), layout="constrained")
    axes, costs = figure.subplots(1, 2)
    for workload, by_count in trials.items():
        counts = sorted(by_count)
        axes.plot(
            counts,
            [_times(by_count, each) for each in counts],
            marker="o",
            label=f"{workload}, {TOPICS[workload]} topics for each",
        )
        costs.plot(
            counts,
            [_times(by_count, each, lambda one: one.per_cpu_second) for each in counts],
            marker="o",
        )
    most = max(max(by_count) for by_count in trials.values())
    axes.plot([1, most], [1, most], color="#999999", linestyle=":", label="ideal")
    axes.plot(
        [1, most],
        [1, 0.85 * most],
        color="#999999",
        linestyle="--",
        label="goal: 0.85 of it",
    )
    axes.set_xlabel("processes, each with the same part of a core")
    axes.set_ylabel("times one process")
    axes.set_ylim(bottom=0)
    axes.legend()
    costs.axhline(0.85, color="#999999", linestyle="--")
    costs.set_xlabel("processes")
    costs.set_ylabel("messages for each second of processor time, times one process")
    costs.set_ylim(bottom=0)
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()

"""
How long programs and brokers take to start, and the memory of idle brokers.

``python -m bench.starts`` measures the processor time of imports and commands, of an
empty broker, of one that recovers its journal after it was killed, and of one with very
many topics; and the memory of a broker with idle topics and connections, and that of
a broker whose messages fill the memory for messages.  It prints a Markdown table with
the goals.  It ends all processes that it started.

The first starts write the byte code of all modules, and do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pydanube
from bench.scale import PARTITIONS_AT_ONCE, Table, for_each, tell
from bench.usage import memory_bytes, processor_s
from pydanube_cli.bench.broker_process import BrokerProcess, running_broker
from pydanube_cli.bench.machine import measure_machine

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024
PROGRAM_RUNS = 9
BROKER_RUNS = 5
PAYLOADS = [bytes([n % 251]) * 100 for n in range(1000)]
IDLE_TOPICS, IDLE_CONNECTIONS = 1000, 100
SETTLE_S = 3.0
"""How long a broker is left alone before its memory is read."""


def processor_ms(command: list[str]) -> float:
    """Run *command*, and return the processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return used_s * 1000


@contextmanager
def started(
    directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[BrokerProcess, float, float]]:
    """Start a broker; yield it, and the seconds until it was ready: elapsed and CPU."""
    before = time.perf_counter()
    with running_broker(directory / "data", directory / "log", settings or {}) as found:
        elapsed_s = time.perf_counter() - before
        yield found, elapsed_s, processor_s([found.pid])


def tell_start(table: Table, what: str, goal: str, starts: Sequence[float]) -> None:
    """Print the median and the lowest of some times of starts."""
    figure = f"{median(starts):.2f} s, lowest {min(starts):.2f} (goal {goal})"
    table.row(what, figure)


def programs(table: Table, directory: Path) -> None:
    """Measure imports, and a command against a broker."""
    python = sys.executable
    with started(directory) as (broker, _, _):
        listing = [python, "-m", "pydanube_cli", "topics", "list"]
        commands = {
            "`import asyncio`, for comparison": ([python, "-c", "import asyncio"], ""),
            "`import pydanube`": ([python, "-c", "import pydanube"], "60 ms"),
            "`from pydanube import Client`": (
                [python, "-c", "from pydanube import Client"],
                "60 ms",
            ),
            "`danube topics list`": ([*listing, "--url", broker.url()], "250 ms"),
        }
        times: dict[str, list[float]] = {what: [] for what in commands}
        for _ in range(PROGRAM_RUNS + 1):
            for what, (command, _) in commands.items():
                times[what].append(processor_ms(command))
    for what, (_, goal) in commands.items():
        counted = times[what][1:]
        figure = f"{median(counted):.0f} ms, lowest {min(counted):.0f}"
        table.row(
            f"{what}, processor time", figure + (f" (goal {goal})" if goal else "")
        )


def empty(table: Table, directory: Path) -> None:
    """Start brokers on empty directories."""
    found: list[tuple[float, float]] = []
    for number in range(BROKER_RUNS + 1):
        place = directory / str(number)
        place.mkdir()
        with started(place) as (_, elapsed_s, used_s):
            found.append((elapsed_s, used_s))
    elapsed, used = zip(*found[1:], strict=True)
    what = "an empty broker until it is ready"
    tell_start(table, f"{what}, elapsed", "0.5 s", elapsed)
    tell_start(table, f"{what}, processor time", "0.5 s", used)


def recovery(table: Table, directory: Path, mebibytes: int) -> None:
    """Kill a broker with a long journal, and start it again."""
    with started(directory, KEEPS_JOURNAL) as (broker, _, _):
        asyncio.run(_fill(broker.url(), mebibytes * MIB // (len(PAYLOADS) * 100)))
        os.kill(broker.pid, signal.SIGKILL)
    size = sum(each.stat().st_size for each in (directory / "data").rglob("*.journal"))
    with started(directory, KEEPS_JOURNAL) as (_, elapsed_s, used_s):
        what = f"recovery of {size / MIB:,.0f} MiB of journal"
        table.row(what, f"{elapsed_s:.2f} s, {used_s:.2f} s of CPU (goal 2 s)")


async def _fill(url: str, batches: int) -> None:
    async with (
        pydanube.connect(url) as client,
        client.producer("/default/journal") as producer,
    ):

        async def send(_: int) -> None:
            await producer.send_batch(PAYLOADS)

        await for_each(range(batches), send)


def topics(table: Table, directory: Path, count: int) -> None:
    """Start a broker again that has *count* topics."""
    with started(directory) as (broker, _, _):
        asyncio.run(_create_topics(broker.url(), count))
    with started(directory) as (_, elapsed_s, used_s):
        what = f"a broker with {count:,} topics until it is ready"
        table.row(what, f"{elapsed_s:.2f} s, {used_s:.2f} s of CPU (goal 3 s)")


async def _create_topics(url: str, count: int) -> None:
    async with pydanube.connect(url) as client:
        for number in range(-(-count // PARTITIONS_AT_ONCE)):
            await client.topics.create(
                f"/default/many-{number}", partitions=PARTITIONS_AT_ONCE
            )


def memory(table: Table, directory: Path) -> None:
    """Measure a broker with idle topics and connections."""
    with started(directory) as (broker, _, _):
        before = memory_bytes([broker.pid])
        after = asyncio.run(_idle(broker))
    what = f"memory with {IDLE_TOPICS:,} idle topics and {IDLE_CONNECTIONS} connections"
    figure = f"{after / 1e6:.0f} MB, empty {before / 1e6:.0f} (goal 120 MB)"
    table.row(what, figure)


async def _idle(broker: BrokerProcess) -> int:
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(pydanube.connect(broker.url()))
            for _ in range(IDLE_CONNECTIONS)
        ]

        async def use(number: int) -> None:
            client = clients[number % len(clients)]
            async with client.producer(f"/default/idle-{number}") as producer:
                await producer.send(b"x")

        await for_each(range(IDLE_TOPICS), use)
        await asyncio.sleep(SETTLE_S)
        return memory_bytes([broker.pid])


def tail(table: Table, directory: Path, mebibytes: int) -> None:
    """Publish many times what the memory for messages holds."""
    settings = {
        "DANUBE_STORAGE__TAIL_BYTES_MAX": str(mebibytes * MIB),
        # Sealing waits for the memory, and not for the size of a segment.
        "DANUBE_STORAGE__SEAL_BYTES": str(mebibytes * MIB * 4),
    }
    with started(directory, settings) as (broker, _, _):
        before = memory_bytes([broker.pid])
        peak = asyncio.run(_publish_and_watch(broker, mebibytes * 8))
    table.row(
        f"memory for messages at `tail_bytes_max` = {mebibytes} MiB, at most",
        f"{(peak - before) / MIB:.0f} MiB more than empty",
    )


async def _publish_and_watch(broker: BrokerProcess, mebibytes: int) -> int:
    peak = 0
    batches = mebibytes * MIB // (len(PAYLOADS) * 100)
    async with asyncio.TaskGroup() as tasks:
        filling = tasks.create_task(_fill(broker.url(), batches))
        while not filling.done():
            peak = max(peak, memory_bytes([broker.pid]))
            await asyncio.sleep(0.05)
    return peak


KEEPS_JOURNAL = {
    "DANUBE_STORAGE__SEAL_BYTES": str(8192 * MIB),
    "DANUBE_STORAGE__TAIL_BYTES_MAX": str(8192 * MIB),
}
"""Nothing is sealed, so that the whole journal has to be read."""


def main() -> None:
    """Measure the parts that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--journal-mib", type=int, default=1024)
    parser.add_argument("--tail-mib", type=int, default=128)
    parser.add_argument("--parts", default="programs,empty,memory,tail,recovery,topics")
    parser.add_argument("--data-dir", type=Path, default=None)
    asked = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parts: dict[str, Callable[[Table, Path], None]] = {
        "programs": programs,
        "empty": empty,
        "memory": memory,
        "tail": lambda table, place: tail(table, place, asked.tail_mib),
        "recovery": lambda table, place: recovery(table, place, asked.journal_mib),
        "topics": lambda table, place: topics(table, place, asked.topics),
    }
    with tempfile.TemporaryDirectory(dir=asked.data_dir) as place:
        machine = measure_machine(Path(place))
        tell(f"{machine.cores} cores, fdatasync {machine.fdatasync_us:.0f} µs\n")
        table = Table()
        for name in asked.parts.split(","):
            directory = Path(place) / name
            directory.mkdir()
            parts[name](table, directory)


if __name__ == "__main__":
    main()

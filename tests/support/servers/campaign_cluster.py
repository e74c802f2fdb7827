"""A cluster of processes in which everything may fail at once, and a log of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from pydanube.aio.tasks import gather, task_scope
from pydanube.model.errors import Unavailable
from pydanube_cli.invocation.exit_codes import exit_code_of
from support.servers.cluster_processes import (
    cluster_broker,
    cluster_settings,
    write_settings,
)
from support.servers.etcd import etcd_cluster
from support.servers.tcp_proxy import tcp_proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path
    from random import Random

    from support.servers.etcd import EtcdMember
    from support.servers.processes import BrokerProcess
    from support.servers.tcp_proxy import TcpProxy, Way

NAMES = ("a", "b", "c")
TTL_S = 3
SHARDS = 8
THREADS = 16
"""Each waits for a process most of the time."""
RETRY_EXITS = {-signal.SIGKILL, 0, exit_code_of(Unavailable), 4}
"""How brokers may end: killed, stopped, without a session, or without their name."""


class Log:
    """What happened when, in seconds since the beginning."""

    def __init__(self) -> None:
        self.acks: defaultdict[str, list[float]] = defaultdict(list)
        """The times of the acknowledgements that each producer has got."""
        self.waits: defaultdict[str, list[float]] = defaultdict(list)
        """How long producers waited for their next acknowledgement, by fault."""
        self._clock = asyncio.get_running_loop().time
        self._begin = self._clock()

    def now(self) -> float:
        return self._clock() - self._begin

    def add(self, text: str) -> None:
        sys.stdout.write(f"{self.now():8.3f}  {text}\n")
        sys.stdout.flush()

    def on_ack(self, producer: str) -> None:
        self.acks[producer].append(self.now())

    @contextmanager
    def measuring(self, fault: str) -> Iterator[None]:
        """Note the longest time without an acknowledgement of each producer."""
        begin = self.now()
        yield
        end = self.now()
        for times in self.acks.values():
            since = [begin, *(each for each in times if begin <= each <= end)]
            steps = zip(since, [*since[1:], end], strict=True)
            self.waits[fault].append(max(later - each for each, later in steps))

    def summary(self) -> list[str]:
        """Return a line for each kind of fault, with how long producers waited."""
        return [
            f"{fault}: {sorted(waits)[len(waits) // 2]:.1f} s (median), "
            f"{max(waits):.1f} s (longest of {len(waits)})"
            for fault, waits in self.waits.items()
        ]


class CampaignBroker:
    """A broker that is started again whenever it ends, and its ways to the others."""

    def __init__(self, process: BrokerProcess, log: Log) -> None:
        self.name = process.data_dir.name
        self.process = process
        self.etcd: list[TcpProxy] = []
        """Its ways to the members of etcd."""
        self.stream: TcpProxy
        self.grpc: TcpProxy
        self.is_wanted = True
        self.is_running = asyncio.Event()
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.unexpected: list[int] = []
        """Exit codes that brokers must not have."""
        self._log = log

    @property
    def url(self) -> str:
        return f"danube://127.0.0.1:{self.stream.port}"

    async def supervise(self) -> None:
        """Run the broker, as a supervisor would, until nobody wants it any more."""
        while True:
            await self.may_start.wait()
            if not self.is_wanted:
                return
            self.process.spawn()
            if await asyncio.to_thread(self.process.wait_until_ready):
                self._log.add(f"broker {self.name} is ready")
                self.is_running.set()
            code = await asyncio.to_thread(self.process.wait)
            self.is_running.clear()
            self._log.add(f"broker {self.name} has ended with {code}")
            if code not in RETRY_EXITS:
                self.unexpected.append(code)

    def signal(self, number: int) -> None:
        """Send a signal to the process, if there is one."""
        with suppress(AssertionError, ProcessLookupError):
            os.kill(self.process.pid, number)

    @property
    def clients(self) -> list[TcpProxy]:
        return [self.stream, self.grpc]


class CampaignCluster:
    """Three brokers, three members of etcd, and what a test may do to them."""

    def __init__(self, log: Log, rng: Random, members: list[EtcdMember]) -> None:
        self.brokers: list[CampaignBroker] = []
        self.names = list(NAMES)
        """What moves of topics call them."""
        self.members = members
        self._log = log
        self.rng = rng

    @property
    def url(self) -> str:
        return ",".join(each.url for each in self.brokers)

    # Faults.  Each is over when its call returns.

    async def kill_broker(self) -> None:
        """Kill a broker; it is away shorter or longer than its lease."""
        await self._kill(is_wiped=False)

    async def kill_broker_and_wipe_its_disk(self) -> None:
        await self._kill(is_wiped=True)

    async def _kill(self, *, is_wiped: bool) -> None:
        async with self._taken() as broker:
            away_s = self.rng.choice([0, TTL_S + 2])
            self._log.add(
                f"kill -9 {broker.name}, away {away_s} s{', wiped' * is_wiped}"
            )
            broker.may_start.clear()
            broker.signal(signal.SIGKILL)
            while broker.is_running.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if is_wiped:
                await asyncio.to_thread(
                    shutil.rmtree, broker.process.data_dir, ignore_errors=True
                )
            await asyncio.sleep(away_s)
            broker.may_start.set()
            await broker.is_running.wait()

    async def stop_broker(self) -> None:
        """Stop a broker in good order, as for an update."""
        async with self._taken() as broker:
            self._log.add(f"stop {broker.name}")
            broker.signal(signal.SIGTERM)
            while broker.is_running.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await broker.is_running.wait()

    async def suspend_broker(self) -> None:
        """Suspend a broker for longer than its lease."""
        await self._suspend(TTL_S + 1 + self.rng.random() * TTL_S)

    async def suspend_broker_shortly(self) -> None:
        await self._suspend(TTL_S * self.rng.random())

    async def _suspend(self, pause_s: float) -> None:
        async with self._taken() as broker:
            self._log.add(f"suspend {broker.name} for {pause_s:.1f} s")
            broker.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(pause_s)
            finally:
                broker.signal(signal.SIGCONT)
            self._log.add(f"resume {broker.name}")
            # It notices that its session is over, if it is.
            await asyncio.sleep(1)
            await broker.is_running.wait()

    async def cut_broker_off_from_etcd(self) -> None:
        async with self._taken() as broker:
            ways = [each.requests for each in broker.etcd]
            ways += [each.answers for each in broker.etcd]
            await self._cut(f"{broker.name} off from etcd", ways)

    async def cut_requests_to_etcd(self) -> None:
        async with self._taken() as broker:
            ways = [each.requests for each in broker.etcd]
            await self._cut(f"requests of {broker.name} to etcd", ways)

    async def cut_answers_of_etcd(self) -> None:
        async with self._taken() as broker:
            ways = [each.answers for each in broker.etcd]
            await self._cut(f"answers of etcd to {broker.name}", ways)

    async def cut_broker_off_from_clients(self) -> None:
        async with self._taken() as broker:
            ways = [each.requests for each in broker.clients]
            ways += [each.answers for each in broker.clients]
            await self._cut(f"{broker.name} off from clients", ways)

    async def cut_requests_of_clients(self) -> None:
        async with self._taken() as broker:
            ways = [each.requests for each in broker.clients]
            await self._cut(f"requests of clients to {broker.name}", ways)

    async def cut_answers_to_clients(self) -> None:
        async with self._taken() as broker:
            ways = [each.answers for each in broker.clients]
            await self._cut(f"answers of {broker.name} to clients", ways)

    async def _cut(self, what: str, ways: list[Way]) -> None:
        cut_s = (0.3 + 1.7 * self.rng.random()) * TTL_S
        self._log.add(f"cut {what} for {cut_s:.1f} s")
        for way in ways:
            way.cut()
        try:
            await asyncio.sleep(cut_s)
        finally:
            for way in ways:
                way.mend()
        self._log.add(f"mend {what}")

    async def break_connections(self) -> None:
        """Close all connections of clients to a broker."""
        async with self._taken() as broker:
            self._log.add(f"close the connections of clients to {broker.name}")
            for proxy in broker.clients:
                proxy.cut()

    async def kill_member(self) -> None:
        """Kill a member of etcd, and start it again."""
        member = self.rng.choice(self.members)
        self._log.add(f"kill -9 etcd {member.name}")
        await asyncio.to_thread(member.kill)
        await asyncio.sleep(self.rng.random() * TTL_S)
        member.start()
        await asyncio.to_thread(member.wait)
        self._log.add(f"etcd {member.name} is ready")

    async def suspend_leader(self) -> None:
        """Suspend the member of etcd that leads."""
        member = await asyncio.to_thread(self._leader)
        pause_s = self.rng.random() * 2 * TTL_S
        self._log.add(f"suspend etcd {member.name}, the leader, for {pause_s:.1f} s")
        member.pause()
        try:
            await asyncio.sleep(pause_s)
        finally:
            member.resume()
        self._log.add(f"resume etcd {member.name}")

    def _leader(self) -> EtcdMember:
        for member in self.members:
            with suppress(OSError):
                if member.is_leader():
                    return member
        return self.rng.choice(self.members)

    @asynccontextmanager
    async def _taken(self) -> AsyncIterator[CampaignBroker]:
        """Take a broker, preferably one that runs, for one fault."""
        running = [each for each in self.brokers if each.is_running.is_set()]
        broker = self.rng.choice(running or self.brokers)
        await broker.is_running.wait()
        yield broker

    BROKER_FAULTS: tuple[Callable[[CampaignCluster], object], ...] = (
        kill_broker,
        kill_broker_and_wipe_its_disk,
        stop_broker,
        suspend_broker,
        suspend_broker_shortly,
    )
    OTHER_FAULTS = (
        cut_broker_off_from_etcd,
        cut_requests_to_etcd,
        cut_answers_of_etcd,
        cut_broker_off_from_clients,
        cut_requests_of_clients,
        cut_answers_to_clients,
        break_connections,
        kill_member,
        suspend_leader,
    )

    # The end.

    async def stop(self) -> None:
        """Stop all brokers in good order."""
        for broker in self.brokers:
            broker.is_wanted = False
            broker.may_start.set()
            await broker.is_running.wait()
            broker.signal(signal.SIGTERM)

    def violations(self) -> list[str]:
        """Return the brokers' unexpected exits, and the errors in their logs."""
        found = [
            f"broker {broker.name} has ended with {code}"
            for broker in self.brokers
            for code in broker.unexpected
        ]
        for broker in self.brokers:
            assert broker.process.log_file is not None
            text = broker.process.log_file.read_text()
            if (at := text.find("Traceback")) >= 0:
                found.append(f"broker {broker.name}: {text[at - 500 : at + 4000]}")
        return found


@asynccontextmanager
async def campaign_cluster(
    directory: Path, log: Log, rng: Random
) -> AsyncIterator[CampaignCluster]:
    """Run a cluster; at the end, nothing of it is left."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    async with AsyncExitStack() as stack:
        members = stack.enter_context(etcd_cluster(directory / "etcd"))
        cluster = CampaignCluster(log, rng, members)
        settings = cluster_settings("", directory, shards=SHARDS, ttl_s=TTL_S)
        for name in NAMES:
            broker = CampaignBroker(cluster_broker(directory, settings, name), log)
            process = broker.process
            broker.etcd = [
                await stack.enter_async_context(tcp_proxy(each.port))
                for each in members
            ]
            broker.stream = await stack.enter_async_context(
                tcp_proxy(process.stream_port)
            )
            broker.grpc = await stack.enter_async_context(tcp_proxy(process.grpc_port))
            settings["metadata"]["etcd"]["endpoints"] = ",".join(
                f"http://127.0.0.1:{each.port}" for each in broker.etcd
            )
            settings["cluster"]["advertised_url"] = broker.url
            write_settings(directory, settings, name)
            cluster.brokers.append(broker)
        scope = await stack.enter_async_context(task_scope())
        supervisors = [
            scope.run(each.supervise(), f"broker {each.name}")
            for each in cluster.brokers
        ]
        try:
            await gather(each.is_running.wait() for each in cluster.brokers)
            yield cluster
            await asyncio.wait(supervisors)
        finally:
            # Also one that is suspended, and before the threads are awaited.
            for broker in cluster.brokers:
                broker.is_wanted = False
                broker.signal(signal.SIGKILL)

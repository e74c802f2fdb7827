"""A broker with several processes that a test kills, and a log of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from pydanube.aio.tasks import task_scope
from support.servers.campaign_cluster import SHARDS, CampaignBroker, CampaignCluster
from support.servers.processes import BrokerProcess
from support.servers.tcp_proxy import tcp_proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from random import Random

    from support.servers.campaign_cluster import Log

COUNT = 3


class CampaignProcesses(CampaignCluster):
    """A broker with several processes, and what a test may do to them."""

    def __init__(self, log: Log, rng: Random, broker: CampaignBroker) -> None:
        super().__init__(log, rng, [])
        self.brokers = [broker]
        self.names = [f"process-{number}" for number in range(1, COUNT + 1)]

    async def kill_process(self) -> None:
        """Kill one process; the supervisor starts it again."""
        self._signal(self._choose("kill -9"), signal.SIGKILL)

    async def terminate_process(self) -> None:
        """Let one process end in good order."""
        self._signal(self._choose("kill -15"), signal.SIGTERM)

    async def suspend_process(self) -> None:
        """Suspend one process for a moment; its topics wait."""
        pause_s = self.rng.random() * 3
        process = self._choose(f"suspend for {pause_s:.1f} s")
        self._signal(process, signal.SIGSTOP)
        try:
            await asyncio.sleep(pause_s)
        finally:
            self._signal(process, signal.SIGCONT)

    async def kill_supervisor(self) -> None:
        """Kill the supervisor, whose processes end without it."""
        async with self._taken() as broker:
            self._log.add("kill -9 of the supervisor")
            broker.signal(signal.SIGKILL)
            await _ended(broker)
            await broker.is_running.wait()

    async def kill_all(self) -> None:
        """Kill the supervisor and all processes, as when memory is short."""
        async with self._taken() as broker:
            self._log.add("kill -9 of the supervisor and all processes")
            processes = broker.process.children()
            broker.signal(signal.SIGKILL)
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            await _ended(broker)
            await broker.is_running.wait()

    BROKER_FAULTS = (
        kill_process,
        kill_process,
        terminate_process,
        suspend_process,
        kill_supervisor,
        kill_all,
        CampaignCluster.stop_broker,
    )
    OTHER_FAULTS = (CampaignCluster.break_connections,)

    def _choose(self, what: str) -> int:
        """Choose a process; 0 if there is none."""
        process = self.brokers[0].process
        processes = process.children() if process.is_running else []
        if not processes:
            return 0
        chosen = self.rng.choice(processes)
        self._log.add(f"{what}: process {processes.index(chosen) + 1}")
        return chosen

    def _signal(self, process: int, number: int) -> None:
        # It may have ended meanwhile.
        if process:
            with suppress(ProcessLookupError):
                os.kill(process, number)


async def _ended(broker: CampaignBroker) -> None:
    while broker.is_running.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@asynccontextmanager
async def campaign_processes(
    directory: Path, log: Log, rng: Random
) -> AsyncIterator[CampaignProcesses]:
    """Run a broker with several processes; at the end, nothing of it is left."""
    settings = directory / "settings.yaml"
    settings.write_text(
        json.dumps(
            {
                "storage": {"seal_age_s": 1.0, "seal_interval_s": 0.2},
                "cluster": {"shards": SHARDS},
                "processes": {"count": COUNT},
            }
        )
    )
    process = BrokerProcess(
        directory / "broker",
        *("--config", str(settings)),
        log_file=directory / "broker.log",
    )
    broker = CampaignBroker(process, log)
    async with AsyncExitStack() as stack:
        broker.stream = await stack.enter_async_context(tcp_proxy(process.stream_port))
        broker.grpc = await stack.enter_async_context(tcp_proxy(process.grpc_port))
        scope = await stack.enter_async_context(task_scope())
        supervising = scope.run(broker.supervise(), "the broker")
        try:
            await broker.is_running.wait()
            yield CampaignProcesses(log, rng, broker)
            await asyncio.wait([supervising])
        finally:
            broker.is_wanted = False
            children = process.children() if process.is_running else []
            broker.signal(signal.SIGKILL)
            for child in children:
                # Also one that is suspended.
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

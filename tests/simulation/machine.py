"""
The broker's machine: its disk, its clock, and a series of broker processes.

A process runs the real broker, built as in ``servers.run``, on the machine's disk and
the simulated services.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import BrokerError, CorruptJournal
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.broker.broker_opening import open_broker
from pydanube_broker.broker.manifest import MetadataManifest
from pydanube_broker.servers.native.connection import NativeConnection
from pydanube_broker.servers.native.server import NativeServer, open_native_server
from pydanube_broker.storage.journal.journal import open_journal
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from pydanube_broker.storage.segments.merging import MergingTimes
from pydanube_broker.storage.storage_opening import open_storage
from simulation.disk import MachineDisk, PowerCut
from simulation.loop import HOST, Host
from simulation.stores import ProcessMetadata, ProcessObjects, Service
from support.fakes.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from random import Random

    from pydanube.objects.store import Objects
    from pydanube_broker.broker.broker import Broker
    from pydanube_broker.storage.config import StorageConfig
    from pydanube_broker.storage.storage import Storage
    from simulation.ledger import Violations
    from simulation.loop import SimulatedLoop
    from simulation.network import Network

WALL_CLOCK_AT_START_US = 1_700_000_000_000_000
BOOT_S_MAX = 5.0
STOP_S_MAX = 120.0
"""The longest time that a broker may take to stop."""
FAILURE_CHECK_S = 0.5
"""The interval of checks for a failure of the broker."""


def always_idle(interval_s: float, rng: Random) -> MergingTimes:
    """Return times with which a broker merges segments every *interval_s*."""
    return MergingTimes(
        interval_s=interval_s,
        processor_time=lambda: 0.0,
        new_nonce=partial(rng.getrandbits, 64),
    )


class Clock:
    """A wall clock that can be set wrong."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.offset_s = 0.0
        self._loop = loop

    def us(self) -> int:
        """Return microseconds since 1970, by this clock."""
        return WALL_CLOCK_AT_START_US + int(
            (self._loop.time() + self.offset_s) * 1_000_000
        )


class BrokerProcess:
    """A process of the broker."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.host = Host(f"broker {number}")
        self.broker: Broker | None = None
        self.storage: Storage | None = None
        self._machine = machine
        self._server: NativeServer | None = None
        self._stop = asyncio.Event()
        self.died = asyncio.Event()

    def new_protocol(self) -> asyncio.BufferedProtocol:
        """See network.Listener."""
        assert self._server is not None
        return NativeConnection(self._server)

    def stop(self) -> None:
        """Request an orderly stop."""
        self._stop.set()

    async def run(self) -> None:
        """Run until stopped, or until the storage fails."""
        machine = self._machine
        async with self._opened() as server:
            self._server = server
            machine.network.listener = self
            machine.note("serves")
            try:
                await self._until_stopped_or_failed()
            finally:
                if machine.network.listener is self:
                    machine.network.listener = None

    async def _until_stopped_or_failed(self) -> None:
        storage = self.storage
        assert storage is not None
        while storage.journal.failure is None and not self._stop.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FAILURE_CHECK_S):
                    await self._stop.wait()
        self._machine.note(
            "stops" if storage.journal.failure is None else "stops after a failure"
        )

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[NativeServer]:
        machine, host = self._machine, self.host
        store: Any = ProcessMetadata(host, machine.metadata_service, machine.metadata)
        async with (
            open_storage(
                machine.config,
                files=machine.disk.opened_by(host),
                objects=machine.objects_for(host),
                claim_remote=self._claim_remote,
                manifest=MetadataManifest(store),
                clock=machine.loop.time,
                wall_clock=machine.clock.us,
                new_journal=partial(
                    open_journal,
                    new_id=machine.new_journal_id,
                    new_thread=self._commit_thread,
                ),
                merging=machine.merging,
            ) as self.storage,
            open_broker(
                store,
                self.storage,
                new_broker_id=lambda: "the broker",
                wall_clock_us=machine.clock.us,
            ) as self.broker,
            open_native_server(self.broker) as server,
        ):
            yield server

    async def _claim_remote(self, has_uploads: bool) -> None:
        """Ask the remote store whose it is; there is one cluster."""
        machine = self._machine
        remote = ProcessObjects(self.host, machine.remote_service, machine.remote)
        await remote.stat(".cluster.json")

    @contextmanager
    def _commit_thread(self) -> Iterator[Callable[[Callable[[], None]], None]]:
        machine = self._machine

        def do(job: Callable[[], None]) -> None:
            took_s = machine.rng.random() * machine.sync_s_max
            machine.loop.call_at(machine.loop.free_at(self, took_s), job)

        yield do


class Machine:
    """The machine of the broker, and the supervisor that restarts it."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: Random,
        network: Network,
        violations: Violations,
        config: StorageConfig,
        *,
        note: Callable[[str, str], None],
        on_process_ended: Callable[[], None],
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.network = network
        self.config = config
        self.clock = Clock(loop)
        self.sync_s_max = 0.003
        """The longest duration of a commit."""
        self.disk = MachineDisk(rng, partial(note, "disk"))
        self.metadata = MemoryStore()
        self.metadata_service = self._service("metadata", note)
        self.objects = MemoryObjects(self.clock.us)
        self.object_service = self._service("objects", note)
        self.remote = MemoryObjects(self.clock.us)
        self.remote_service = self._service("remote", note)
        self.remote_service.delay_s_max = 0.05
        self.process: BrokerProcess | None = None
        self.start_count = 0
        self.power_loss_count = 0
        self.merging = MergingTimes()
        self.merged_count = 0
        """The segments that merged ones have replaced."""
        self.process_tasks: list[asyncio.Task[None]] = []
        self.on_power_lost: Callable[[], None] = lambda: None
        self.is_wanted = True
        """Whether to restart the broker when its process ends."""
        self._note = note
        self._violations = violations
        self._on_process_gone = on_process_ended
        self._journal_count = 0
        self._errors_before = 0
        self._task: asyncio.Task[None] | None = None

    def _service(self, name: str, note: Callable[[str, str], None]) -> Service:
        return Service(name, self.rng, self.loop, partial(note, name))

    def objects_for(self, host: Host) -> Objects:
        """Return the object stores as the process *host* reaches them."""
        local = ProcessObjects(host, self.object_service, self.objects)
        if not self.config.remote.url:
            return local
        remote = ProcessObjects(host, self.remote_service, self.remote)
        return TieredObjects(local, remote)

    def note(self, what: str) -> None:
        """Add *what* to the trace, for the broker."""
        self._note(f"broker {self.start_count}", what)

    def new_journal_id(self) -> bytes:
        """Return the id of the next journal."""
        self._journal_count += 1
        return self._journal_count.to_bytes(16, "little")

    # Processes.

    async def run(self) -> None:
        """Keep a broker running while ``is_wanted``."""
        while self.is_wanted:
            self.start_count += 1
            self._errors_before = self._error_count
            process = self.process = BrokerProcess(self, self.start_count)
            self.note("starts")
            self._task = self.loop.create_task(self._run_process(process))
            self.process_tasks.append(self._task)
            died = self.loop.create_task(process.died.wait())
            await asyncio.wait([self._task, died], return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            self.process = None
            if process.storage is not None:
                self.merged_count += process.storage.merger.merged_count
            self._on_process_gone()
            await asyncio.sleep(0.05 + self.rng.random())
            if self.network.is_cut:
                await asyncio.sleep(self.rng.random() * BOOT_S_MAX)
                self.network.on_rebooted()

    def stop(self) -> None:
        """Stop the broker in an orderly way; it is restarted."""
        process = self.process
        if process is not None:
            self.note("is asked to stop")
            process.stop()
            self.loop.call_later(STOP_S_MAX, self._check_stopped, process)

    def kill(self) -> None:
        """Kill the process; its page cache stays."""
        if self.process is not None:
            self.note("is killed")
            self._die(self.process, is_silent=False)

    def lose_power(self) -> None:
        """Lose power: unsynced data may be lost."""
        if self.process is None:
            return
        self.note("loses its power")
        self.power_loss_count += 1
        self.on_power_lost()
        self.network.is_cut = True
        self._die(self.process, is_silent=True)
        self.disk.lose_power()

    def lose_power_in(self, operations: int, *, is_after: bool) -> None:
        """Lose power just before or after the disk operation number *operations*."""
        self.disk.power_cut = PowerCut(operations, is_after, self.lose_power)

    def is_explained(self) -> bool:
        """Return whether a fault has occurred since the process started."""
        return self._error_count > self._errors_before

    def check_error(self, error: BaseException) -> None:
        """Check an *error* that has ended the broker, or that it has logged."""
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:
                self.check_error(each)
        elif isinstance(error, asyncio.CancelledError):
            return
        elif (
            not self.is_explained()
            or not isinstance(error, BrokerError | OSError)
            or isinstance(error, CorruptJournal)
        ):
            self._violations.add("the broker handles all faults", repr(error))

    @property
    def services(self) -> tuple[Service, ...]:
        """The services that the broker uses."""
        return self.metadata_service, self.object_service, self.remote_service

    @property
    def _error_count(self) -> int:
        return self.disk.error_count + sum(each.error_count for each in self.services)

    async def _run_process(self, process: BrokerProcess) -> None:
        HOST.set(process.host)
        try:
            await process.run()
        except BaseException as error:  # noqa: BLE001 (it is checked)
            # Errors of a dead process are ignored.
            if process.host.is_alive:
                self.note(f"ends: {error!r}")
                self.check_error(error)
        else:
            if process.host.is_alive:
                self.note("has ended")
        if process.host.is_alive:
            process.host.is_alive = False
            self.network.on_process_died(process.host, is_silent=False)

    def _die(self, process: BrokerProcess, *, is_silent: bool) -> None:
        process.host.is_alive = False
        process.died.set()
        if self.network.listener is process:
            self.network.listener = None
        self.network.on_process_died(process.host, is_silent=is_silent)
        assert self._task is not None
        self._task.cancel()

    def _check_stopped(self, process: BrokerProcess) -> None:
        if process.host.is_alive:
            self._violations.add(
                "the broker stops on request", f"not in {STOP_S_MAX} s"
            )

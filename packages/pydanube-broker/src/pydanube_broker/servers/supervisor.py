"""
The supervisor of a broker with several processes.

The supervisor holds the lock of the data directory and reserves the ports.  It forks a
process for each number, and starts a process that has ended again.  It has no event
loop and no threads, so a fork is safe at any time.  The processes inherit the lock, so
that a new supervisor waits for the processes of one that was killed.

Each process writes to a pipe once in a while.  The supervisor kills a process that has
been silent for long, because the lock of its journal would keep the others from taking
its topics over.  A process whose pipe has no reader any more stops: its supervisor was
killed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import mmap
import os
import pickle
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import field

import msgspec

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import DirectoryLocked, InvalidConfig
from pydanube.model.extras import require
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.retry import RetryPolicy
from pydanube.security.addresses import host_in_url
from pydanube_broker.dispatch.shared_counts import SharedCounts, bytes_of
from pydanube_broker.servers.directories.directory import (
    DataDirectory,
    hold_directory,
    hold_metadata,
)
from pydanube_broker.servers.recovery.process_switch import (
    divide_directory,
    unite_directory,
)
from pydanube_broker.servers.settings.addresses import addresses_text, binding
from pydanube_broker.servers.settings.config import BrokerConfig, ListenConfig
from pydanube_broker.servers.settings.logs import configure_logging
from pydanube_broker.servers.settings.process_config import (
    JOURNALS,
    OwnPorts,
    config_of_process,
    has_processes,
    own_listens,
    process_count,
)
from pydanube_broker.storage.journal.group_files import GroupFiles

log = logging.getLogger(__name__)

BEAT_S = 1.0
"""The interval at which a process reports that its event loop runs."""
SILENCE_S = 30.0
"""A process that reports nothing for this time is killed."""
STEADY_S = 30.0
"""A process that has run for this time has started well."""
HANDOVER_S = 20.0
"""How long a supervisor waits for the processes of one that was killed."""
RESTARTS = RetryPolicy(first_s=0.1, max_s=15.0)
"""When a process is started again that has ended shortly after its start."""
PROOF_BYTES = 16
_READY = b"r"
_BEAT = b"b"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPart:
    """The part of one process of the broker, in that process."""

    config: BrokerConfig
    own: ListenConfig
    listener_ports: Mapping[str, int]
    """The ports of its own of the listeners of plug-ins."""
    pipe: int
    """The pipe to the supervisor."""
    shared_counts: SharedCounts
    """The counts of all processes for limits of the broker."""

    @asynccontextmanager
    async def reporting(self, stop: Callable[[], None]) -> AsyncIterator[None]:
        """Tell the supervisor that this process is ready; call *stop* if it is gone."""

        async def beat() -> None:
            word = _READY
            while True:
                try:
                    os.write(self.pipe, word)
                except BlockingIOError:
                    # It has not read for long, and has time to do it.
                    pass
                except BrokenPipeError:
                    log.critical("the supervisor has ended; this process stops")
                    stop()
                    return
                word = _BEAT
                await asyncio.sleep(BEAT_S)

        async with task_scope() as tasks:
            tasks.run(beat(), "report to the supervisor")
            yield


@dataclass(slots=True)
class _Child:
    """A process of the broker, or its next run."""

    number: int
    ports: OwnPorts
    pid: int | None = None
    pipe: int = -1
    begun_at: float = 0.0
    heard_at: float = 0.0
    is_ready: bool = False
    failures: int = 0
    """How often it has ended shortly after its start."""
    start_at: float = 0.0


@dataclass(slots=True)
class _Supervisor:
    config: BrokerConfig
    children: list[_Child]
    wakeup: int
    memory: memoryview
    """The memory of ``SharedCounts``."""
    proof: str = field(default_factory=lambda: secrets.token_hex(PROOF_BYTES))
    signals: list[int] = field(default_factory=list)
    is_stopping: bool = False
    is_serving: bool = False
    failure_code: int = 0

    def run(self) -> ProcessPart | None:
        """Run the processes until a signal; return in each process with its part."""
        while True:
            now = time.monotonic()
            for child in self.children:
                due = child.pid is None and now >= child.start_at
                if due and not self.is_stopping:
                    part = self._start(child, now)
                    if part is not None:
                        return part
            self._wait()
            self._reap()
            self._kill_silent()
            if self.is_stopping and all(each.pid is None for each in self.children):
                return None

    def _start(self, child: _Child, now: float) -> ProcessPart | None:
        sys.stdout.flush()
        sys.stderr.flush()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.set_blocking(writer, False)
            return self._become(child, writer)
        os.close(writer)
        os.set_blocking(reader, False)
        child.pid, child.pipe = pid, reader
        child.begun_at = child.heard_at = now
        child.is_ready = False
        return None

    def _become(self, child: _Child, pipe: int) -> ProcessPart:
        """Return the part of this process, which has just been forked."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for other in self.children:
            if other.pipe >= 0:
                os.close(other.pipe)
        config = config_of_process(self.config, child.number)
        configure_logging(config.log, process=child.number)
        return ProcessPart(
            config=config,
            own=own_listens(config, child.ports),
            listener_ports=child.ports.listeners,
            pipe=pipe,
            shared_counts=self._counts_of(child),
        )

    def _counts_of(self, child: _Child) -> SharedCounts:
        return SharedCounts(
            self.memory,
            number=child.number,
            count=len(self.children),
            proof=self.proof,
        )

    def _wait(self) -> None:
        """Wait for a signal, a report, or the time of the next start."""
        readers = [self.wakeup, *(each.pipe for each in self.children if each.pid)]
        found, _, _ = select.select(readers, [], [], self._patience_s())
        if self.wakeup in found:
            for number in os.read(self.wakeup, 64):
                self._on_signal(number)
        for child in self.children:
            if child.pid is not None and child.pipe in found:
                self._on_report(child)

    def _patience_s(self) -> float:
        now = time.monotonic()
        waits = [each.start_at - now for each in self.children if each.pid is None]
        return max(0.0, min([BEAT_S, *waits])) if not self.is_stopping else BEAT_S

    def _on_report(self, child: _Child) -> None:
        words = b""
        with suppress(BlockingIOError):
            words = os.read(child.pipe, 4096)
        child.heard_at = time.monotonic()
        if not words:
            # It is ending; waitpid() says how.
            time.sleep(0.001)
        if _READY in words:
            child.is_ready = True
            if not self.is_serving and all(each.is_ready for each in self.children):
                self.is_serving = True
                self._print_addresses()

    def _on_signal(self, number: int) -> None:
        if number not in {signal.SIGINT, signal.SIGTERM}:
            return
        if not self.is_stopping:
            log.info("received %s: stopping all processes", signal.Signals(number).name)
        self.is_stopping = True
        self._send(number)

    def _send(self, number: int) -> None:
        for child in self.children:
            if child.pid is not None:
                os.kill(child.pid, number)

    def _reap(self) -> None:
        for child in self.children:
            if child.pid is None:
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._on_end(child, os.waitstatus_to_exitcode(status))

    def _on_end(self, child: _Child, code: int) -> None:
        os.close(child.pipe)
        pid, child.pid, child.pipe = child.pid, None, -1
        # Its connections are closed.
        self._counts_of(child).clear(child.number)
        if self.is_stopping:
            # A process that has just been forked ends by the signal itself.  One that
            # could not start again was reported, and the others have its topics.
            counts = child.is_ready or not self.is_serving
            if counts and code not in {0, -signal.SIGINT, -signal.SIGTERM}:
                self.failure_code = self.failure_code or code
            return
        if not self.is_serving and code > 0:
            # The process has said why the broker cannot start.
            self.failure_code, self.is_stopping = code, True
            self._send(signal.SIGTERM)
            return
        now = time.monotonic()
        child.failures = 0 if now - child.begun_at >= STEADY_S else child.failures + 1
        delay_s = RESTARTS.delay_s(child.failures) if child.failures > 1 else 0.0
        child.start_at = now + delay_s
        log.error(
            "process %d of the broker (pid %d) ended with %s; it starts again in %.1f "
            "s, and the others serve its topics",
            child.number,
            pid,
            f"exit code {code}" if code >= 0 else signal.Signals(-code).name,
            delay_s,
        )

    def _kill_silent(self) -> None:
        if self.is_stopping:
            return
        now = time.monotonic()
        for child in self.children:
            if child.pid is None or not child.is_ready:
                continue
            if now - child.heard_at > SILENCE_S:
                log.error(
                    "process %d of the broker (pid %d) has not reported for %g s: it "
                    "is killed, so that the others can serve its topics",
                    child.number,
                    child.pid,
                    SILENCE_S,
                )
                child.heard_at = now
                os.kill(child.pid, signal.SIGKILL)

    def _print_addresses(self) -> None:
        listens, tls = self.config.listen, self.config.tls
        host = host_in_url(listens.host)
        sys.stdout.write(
            addresses_text(
                stream_url=f"{tls.stream_scheme}://{host}:{listens.stream_port}",
                grpc_url=f"{tls.http_scheme}://{host}:{listens.grpc_port}",
                admin_url=f"{tls.http_scheme}://{host}:{listens.admin_port}",
                http_url=f"{tls.http_scheme}://{host}:{listens.http_port}",
                listener_urls={
                    each.NAME: each.url(host, each.port, is_encrypted=tls.is_enabled)
                    for each in self.config.open_listeners
                    if each.port is not None
                },
                data_dir=self.config.data_dir,
            )
        )
        sys.stdout.flush()


@contextmanager
def supervising(config: BrokerConfig) -> Iterator[ProcessPart | None]:
    """
    Run the processes of a broker; the body is run in each of them.

    In the process that has called it, the body is run with None when all have ended.

    Raises:
        DirectoryLocked: Another broker uses the data directory.
        InvalidConfig: A port or the data directory cannot be used.
        MissingExtra: gRPC is not installed, by which the processes call each other.
        SystemExit: A process could not start, or has failed at the end; it has said
            why.
    """
    # The extra of another service has what is missing.
    require("etcd", "a broker with several processes (processes.count)")
    with ExitStack() as stack:
        directory = _hold(stack, config)
        _prepare(config, directory)
        ports = _Ports(stack, config)
        config, children = ports.reserve(process_count(config))
        # All processes inherit the memory.
        memory = memoryview(mmap.mmap(-1, bytes_of(len(children))))
        supervisor = _Supervisor(config, children, _wakeup(stack), memory)
        # Collections of the processes leave these objects alone, so that their memory
        # stays common to all.
        gc.collect()
        gc.freeze()
        log.info("the broker has %d processes", len(children))
        part = supervisor.run()
        yield part
        if part is None and supervisor.failure_code:
            # A signal that ended a process counts as in shells.
            code = supervisor.failure_code
            raise SystemExit(code if code > 0 else 128 - code)


def return_to_one_process(config: BrokerConfig) -> None:
    """
    Prepare a data directory that several processes have used for one.

    Raises: As ``supervising`` and ``unite_directory``.
    """
    with ExitStack() as stack:
        directory = _hold(stack, config)
        stack.enter_context(hold_metadata(directory, is_shared=False))
        asyncio.run(unite_directory(directory, config.storage))


def _hold(stack: ExitStack, config: BrokerConfig) -> DataDirectory:
    """Take the locks of the data; wait for processes without supervisor."""
    give_up_at = time.monotonic() + HANDOVER_S
    while True:
        try:
            directory = stack.enter_context(
                hold_directory(config.data_dir, config.metadata.file)
            )
        except DirectoryLocked:
            if not has_processes(config.data_dir) or time.monotonic() > give_up_at:
                raise
            time.sleep(0.1)
        else:
            return directory


def _prepare(config: BrokerConfig, directory: DataDirectory) -> None:
    """Prepare the data directory for several processes."""
    with hold_metadata(directory, is_shared=False):
        # It starts threads, and this process must have none when it forks.
        _run_apart(lambda: asyncio.run(divide_directory(directory, config)))
    GroupFiles(directory.path / JOURNALS).remove_empty()


def _run_apart(work: Callable[[], None]) -> None:
    """Call *work* in a process of its own, and raise what it raises."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        error: Exception | None = None
        try:
            work()
        except Exception as raised:  # noqa: BLE001  # The other process raises it.
            error = raised
        with os.fdopen(writer, "wb") as file:
            pickle.dump(error, file)
        sys.stderr.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(pid, 0)
    if not answer:
        log.critical(
            "the process that prepares the data directory was ended by %s; start the "
            "broker again, which continues",
            signal.Signals(os.WTERMSIG(status)).name,
        )
        raise SystemExit(128 + os.WTERMSIG(status))
    # The process is this program.
    error = pickle.loads(answer)  # noqa: S301
    if error is not None:
        raise error


class _Ports:
    """Reserves ports for the processes, so that no other program gets them."""

    def __init__(self, stack: ExitStack, config: BrokerConfig) -> None:
        self._stack = stack
        self._config = config
        self._next = config.processes.first_port

    def reserve(self, count: int) -> tuple[BrokerConfig, list[_Child]]:
        """Return the settings with the shared ports, and the processes."""
        listens = self._config.listen
        shared = msgspec.structs.replace(
            listens,
            stream_port=self._bind(
                listens.stream_port, "the native protocol", "--stream-port"
            ),
            grpc_port=self._bind(listens.grpc_port, "clients of Danube", "--grpc-port"),
            admin_port=self._bind(listens.admin_port, "administrators", "--admin-port"),
            http_port=self._bind(listens.http_port, "HTTP", "--http-port"),
        )
        children = [
            _Child(
                number,
                OwnPorts(
                    stream=self._following(number),
                    grpc=self._following(number),
                    admin=self._bind(0, f"process {number}", "--admin-port"),
                    http=self._bind(0, f"process {number}", "--http-port"),
                    listeners={
                        each.NAME: self._following(number)
                        for each in self._config.open_listeners
                        if each.SERVES_CLUSTERS
                    },
                ),
            )
            for number in range(1, count + 1)
        ]
        listeners = {
            each.NAME: msgspec.structs.replace(
                each, port=self._bind(each.port or 0, each.TITLE, f"{each.NAME}.port")
            )
            for each in self._config.open_listeners
        }
        config = msgspec.structs.replace(self._config, listen=shared, **listeners)
        return config, children

    def _following(self, number: int) -> int:
        """Reserve the next port of the range."""
        port = self._next
        if port > 65_535:
            raise InvalidConfig(
                "processes.first_port: expected a port with the ports of all "
                f"processes behind it, got {self._config.processes.first_port}"
            )
        if port:
            self._next += 1
        return self._bind(port, f"process {number}", "processes.first_port")

    def _bind(self, port: int, name: str, flag: str) -> int:
        host = self._config.listen.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with binding(host, port, name, flag):
            if port:
                # Sharing a port must not join that of another broker.
                socket.create_server((host, port), family=family).close()
            reserved = self._stack.enter_context(socket.socket(family))
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            reserved.bind((host, port))
        found: int = reserved.getsockname()[1]
        return found


def _wakeup(stack: ExitStack) -> int:
    """Return a pipe that has the numbers of the signals of this process."""
    reader, writer = os.pipe()
    stack.callback(os.close, reader)
    stack.callback(os.close, writer)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, _ignore)
    stack.callback(signal.set_wakeup_fd, -1)
    return reader


def _ignore(*_: object) -> None:
    """Leave a signal to the pipe."""

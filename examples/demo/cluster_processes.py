"""The processes of the cluster demo: etcd, and brokers that are killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidRequest
from pydanube_cli.bench.broker_process import START_WAIT_S, STOP_WAIT_S, ProcessFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
SESSION_TTL_S = 2
"""The time after which the others notice that a broker is gone."""
SESSION_LOST = 7
"""The exit code of a broker that has lost its session."""


def etcd_command(program: str, directory: Path, port: int) -> list[str]:
    """Return the command of the only member of an etcd, with clients at *port*."""
    url, peer_url = f"http://{HOST}:{port}", f"http://{HOST}:{free_port()}"
    return [
        program,
        f"--data-dir={directory}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--heartbeat-interval=50",
        "--election-timeout=500",
    ]


def broker_command(directory: Path, port: int) -> list[str]:
    """Return the command of a broker that keeps its data in *directory*."""
    return [
        sys.executable,
        "-m",
        "pydanube_cli.main",
        "broker",
        "--stream-port",
        str(port),
        "--http-port",
        "0",
        "--grpc-port",
        "0",
        "--admin-port",
        "0",
        "--data-dir",
        str(directory),
    ]


def broker_settings(
    name: str, etcd_url: str, store_url: str, session_ttl_s: int
) -> dict[str, str]:
    """Return the settings of a broker of a cluster, as variables of its environment."""
    return {
        "DANUBE_CLUSTER__ENABLED": "true",
        "DANUBE_CLUSTER__BROKER_ID": name,
        "DANUBE_METADATA__KIND": "etcd",
        "DANUBE_METADATA__ETCD__ENDPOINTS": etcd_url,
        "DANUBE_METADATA__ETCD__SESSION_TTL_S": str(session_ttl_s),
        "DANUBE_STORAGE__JOURNAL__KIND": "object",
        "DANUBE_STORAGE__REMOTE__URL": store_url,
    }


@contextmanager
def running_etcd(program: str, directory: Path, log_file: Path) -> Iterator[str]:
    """
    Run one member of etcd while the body runs; yield its URL.

    Raises:
        InvalidRequest: *program* cannot be run.
        ProcessFailed: It did not start.
    """
    port = free_port()
    try:
        process = _spawn(etcd_command(program, directory, port), log_file)
    except OSError as error:
        raise InvalidRequest(
            f"etcd cannot be run as {program!r}: {error.strerror}. Install it (on "
            "Debian: apt-get install etcd-server), or name the program with --etcd."
        ) from error
    try:
        give_up_at = time.monotonic() + START_WAIT_S
        while not _accepts(port):
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise ProcessFailed(f"etcd did not start; its output is in {log_file}")
            time.sleep(0.05)
        yield f"http://{HOST}:{port}"
    finally:
        _end(process)


class ClusterBroker:
    """A broker of the cluster, which is killed and started again on its port."""

    def __init__(
        self, name: str, directory: Path, output: Path, etcd_url: str, store_url: str
    ) -> None:
        """
        *directory* is its data directory, and *output* that of its log.

        *store_url* is the store that all brokers share.
        """
        self.name = name
        self.port = free_port()
        self.url = f"danube://{HOST}:{self.port}"
        """Its address for clients."""
        self._log_file = output / f"{name}.log"
        self._command = broker_command(directory / name, self.port)
        self._settings = broker_settings(name, etcd_url, store_url, SESSION_TTL_S)
        self.process: subprocess.Popen[bytes] | None = None
        """Its process; None before the start and after a kill."""

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the broker, without waiting."""
        self.process = _spawn(self._command, self._log_file, self._settings)

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def restart_if_ended(self) -> bool:
        """
        Start the broker again if it has lost its session; return whether it had.

        On a machine that is too busy, keepalives may be too late.

        Raises:
            ProcessFailed: It has ended for another reason.
        """
        if self.process is None or self.process.poll() is None:
            return False
        if self.process.returncode != SESSION_LOST:
            raise ProcessFailed(
                f"{self.name} ended with exit code {self.process.returncode}; its "
                f"output is in {self._log_file}"
            )
        self.start()
        return True


@contextmanager
def ending(brokers: Sequence[ClusterBroker]) -> Iterator[None]:
    """Stop the brokers at the end of the body, all at the same time."""
    try:
        yield
    finally:
        processes = [each.process for each in brokers if each.process is not None]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            _end(process)


def free_port() -> int:
    """Return a port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _spawn(
    command: list[str], log_file: Path, settings: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DANUBE_", "ETCD_"))
    }
    with log_file.open("ab") as log:
        return subprocess.Popen(  # noqa: S603  # The caller's choice.
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=inherited | (settings or {}),
            # Ctrl-C is for the demo, which then ends them.
            start_new_session=True,
        )


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

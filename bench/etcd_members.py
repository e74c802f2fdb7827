"""The members of an etcd that a bench runs, of which it can kill the leader."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path

from bench.servers import (
    HOST,
    LOOK_INTERVAL_S,
    START_WAIT_S,
    accepts,
    end_with_parent,
    free_port,
    log_tail,
)
from bench.systems.system import BenchFailed
from examples.demo.cluster_processes import etcd_command

_ANSWER_S = 2.0


class EtcdMembers:
    """One or several members of etcd, each a process."""

    def __init__(self, program: str, scratch: Path, count: int) -> None:
        self._ports = [free_port() for _ in range(count)]
        peers = [f"http://{HOST}:{free_port()}" for _ in range(count)]
        cluster = ",".join(f"m{at}={peer}" for at, peer in enumerate(peers))
        self._commands = [
            [
                *etcd_command(program, scratch / f"etcd-{at}", port),
                # The last one of each option counts.
                f"--name=m{at}",
                f"--listen-peer-urls={peers[at]}",
                f"--initial-advertise-peer-urls={peers[at]}",
                f"--initial-cluster={cluster}",
            ]
            for at, port in enumerate(self._ports)
        ]
        self._log = scratch / "etcd.log"
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def endpoints(self) -> str:
        """The URLs of all members, as in ``metadata.etcd.endpoints``."""
        return ",".join(f"http://{HOST}:{port}" for port in self._ports)

    def start(self) -> None:
        """Start the members that do not run."""
        for at, command in enumerate(self._commands):
            if at in self._processes:
                continue
            with self._log.open("ab") as output:
                self._processes[at] = subprocess.Popen(  # noqa: S603  # It is ours.
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=end_with_parent,  # noqa: PLW1509  # It takes no lock.
                )

    def wait(self) -> None:
        """Wait until all members run and have a leader."""
        give_up_at = time.monotonic() + START_WAIT_S
        while not all(map(accepts, self._ports)) or self._leader() is None:
            if time.monotonic() > give_up_at:
                raise BenchFailed(f"etcd was not ready: {log_tail(self._log)}")
            time.sleep(LOOK_INTERVAL_S)

    def kill_leader(self) -> None:
        """Kill the member that leads the others."""
        leader = self._leader()
        if leader is None:
            raise BenchFailed("etcd has no leader")
        self._kill(leader)

    def kill(self) -> None:
        """Kill all members."""
        for at in list(self._processes):
            self._kill(at)

    def _kill(self, at: int) -> None:
        process = self._processes.pop(at)
        process.kill()
        process.wait()

    def _leader(self) -> int | None:
        for at, port in enumerate(self._ports):
            if at not in self._processes:
                continue
            asked = urllib.request.Request(
                f"http://{HOST}:{port}/v3/maintenance/status", data=b"{}"
            )
            try:
                with urllib.request.urlopen(asked, timeout=_ANSWER_S) as answer:  # noqa: S310  # It is ours.
                    status = json.load(answer)
            except OSError:
                continue
            if status.get("leader") == status["header"]["member_id"]:
                return at
        return None

"""Members of ZooKeeper that a test may stop, pause and kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

from pydanube_zookeeper.config import ZookeeperConfig
from support.project import ROOT
from support.servers.ports import free_port
from support.servers.programs import required_program, skip_without

TICK_MS = 500
READY = (
    b"PrepRequestProcessor (sid:0) started",
    b"Peer state changed: leading - broadcast",
    b"Peer state changed: following - broadcast",
)
"""A line of the log of a member that serves clients has one of these."""

SYSTEM = Path("/usr/share/java")
FETCHED = ROOT / ".venv" / "zookeeper" / "usr" / "share" / "java"


JARS = (
    *("zookeeper", "zookeeper-jute", "commons-io", "metrics-core", "snappy-java"),
    # One of several libraries that write logs.
    *("slf4j-api", "slf4j-simple"),
    *("netty-buffer", "netty-codec", "netty-common", "netty-handler"),
    *("netty-resolver", "netty-transport", "netty-transport-native-epoll"),
)


def _classpath() -> str:
    directory = next(
        (each for each in (SYSTEM, FETCHED) if (each / "zookeeper.jar").exists()), None
    )
    if directory is None:
        skip_without("ZooKeeper", "tools/zookeeper, or apt-get install zookeeper")
    return ":".join(str(directory / f"{name}.jar") for name in JARS)


class ZookeeperMember:
    """One member of ZooKeeper, in a process of its own."""

    def __init__(self, directory, number=1, settings=None) -> None:
        """*settings* are further lines of its configuration."""
        self.number = number
        self.port = free_port()
        self.peers = f"127.0.0.1:{free_port()}:{free_port()}"
        self.members = []
        """All members; empty: this one is alone."""
        self._settings = settings or {}
        self._directory = directory / f"zookeeper-{number}"
        self._process = None
        self._drain = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; ``wait`` returns when it serves clients."""
        self._directory.mkdir(exist_ok=True)
        settings = {
            "tickTime": TICK_MS,
            "initLimit": 20,
            "syncLimit": 2,
            "maxSessionTimeout": 60_000,
            "dataDir": self._directory,
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "maxClientCnxns": 0,
        }
        for member in self.members:
            settings[f"server.{member.number}"] = member.peers
        lines = [
            f"{name}={value}\n" for name, value in (settings | self._settings).items()
        ]
        (self._directory / "zoo.cfg").write_text("".join(lines))
        (self._directory / "myid").write_text(str(self.number))
        java = required_program("java", "default-jre-headless")
        self._process = subprocess.Popen(
            [
                *(java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-cp", _classpath()),
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(self._directory / "zoo.cfg"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("ZOO", "JMX", "JAVA_TOOL_OPTIONS"))
            },
        )

    def wait(self) -> None:
        """Wait until it serves clients, and let its log go."""
        process, said = self._process, []
        for line in process.stderr:
            said.append(line.decode(errors="replace"))
            if any(text in line for text in READY):
                break
        else:
            raise AssertionError("ZooKeeper did not start: " + "".join(said[-20:]))
        # The rest is read by a process, because nobody else does.
        self._drain = subprocess.Popen(
            ["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL
        )
        process.stderr.close()

    def pause(self) -> None:
        """Stop it from executing; its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if self._drain is not None:
                self._drain.wait()
            else:
                process.stderr.close()

    def is_leader(self) -> bool:
        return "Mode: leader" in self.ask("srvr")

    def ask(self, command: str) -> str:
        """Return the answer to one of ZooKeeper's commands of four letters."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as asked:
            asked.sendall(command.encode())
            answer = b""
            while data := asked.recv(4096):
                answer += data
        return answer.decode()


@contextmanager
def zookeeper_member(directory, settings=None):
    """Run one member, which is alone."""
    member = ZookeeperMember(directory, settings=settings)
    try:
        member.start()
        member.wait()
        yield member
    finally:
        member.kill()


@contextmanager
def zookeeper_cluster(directory, count=3):
    """Run several members."""
    members = [ZookeeperMember(directory, number) for number in range(1, count + 1)]
    with ExitStack() as stack:
        for member in members:
            member.members = members
            stack.callback(member.kill)
            member.start()
        for member in members:
            member.wait()
        yield members


def config_of(*members, **settings) -> ZookeeperConfig:
    """Return settings for a new cluster name at *members*, or at their endpoints."""
    endpoints = [each if isinstance(each, str) else each.endpoint for each in members]
    given = {"cluster_name": uuid4().hex, "session_ttl_s": 2, **settings}
    return ZookeeperConfig(endpoints=",".join(endpoints), **given)

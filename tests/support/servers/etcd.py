"""Members of etcd that a test may stop, pause and kill."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import urllib.request
from contextlib import ExitStack, contextmanager
from uuid import uuid4

from pydanube_broker.metadata.etcd.config import EtcdConfig
from support.servers.ports import free_port
from support.servers.programs import required_program

HEARTBEAT_MS = 50
ELECTION_MS = 500


class EtcdMember:
    """One member of etcd, in a process of its own."""

    def __init__(self, directory, name="m0", **settings) -> None:
        self.name = name
        self.port = free_port()
        self.peer_url = f"http://127.0.0.1:{free_port()}"
        self.scheme = "http"
        self.settings = settings
        self.cluster = {}
        """The URLs of all members, by name; empty: this one is alone."""
        self._directory = directory / name
        self._process = None

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; ``wait`` returns when it serves clients."""
        members = self.cluster or {self.name: self.peer_url}
        options = {
            "name": self.name,
            "data-dir": self._directory,
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": ",".join(f"{n}={url}" for n, url in members.items()),
            "heartbeat-interval": HEARTBEAT_MS,
            "election-timeout": ELECTION_MS,
            "logger": "zap",
            "log-outputs": "stderr",
            **self.settings,
        }
        options = {
            f"--{name.replace('_', '-')}": value for name, value in options.items()
        }
        self._process = subprocess.Popen(
            [
                required_program("etcd", "etcd-server"),
                *(f"{name}={value}" for name, value in options.items()),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={
                name: value
                for name, value in os.environ.items()
                if not name.startswith("ETCD_")
            },
        )

    def wait(self) -> None:
        """Wait until it serves clients, and let its log go."""
        process = self._process
        said = []
        for line in process.stderr:
            said.append(line.decode(errors="replace"))
            if b"serving client traffic" in line:
                break
        else:
            raise AssertionError("etcd did not start: " + "".join(said[-20:]))
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
            self._drain.wait()

    def ask(self, method: str, **request) -> dict:
        """Call etcd's JSON API, for example ``kv/compaction``; bytes are texts."""
        return ask(self.url, method, **request)

    def is_leader(self) -> bool:
        status = self.ask("maintenance/status")
        return status["leader"] == status["header"]["member_id"]

    def compact(self) -> None:
        """Forget all revisions before the present one."""
        revision = self.ask("kv/range", key=encoded("x"))["header"]["revision"]
        self.ask("kv/compaction", revision=revision, physical=True)


def ask(url: str, method: str, *, token: str = "", **request) -> dict:
    """Call a method of etcd's JSON API at *url*."""
    asked = urllib.request.Request(
        f"{url}/v3/{method}",
        data=json.dumps(request).encode(),
        headers={"Authorization": token} if token else {},
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)


def encoded(text: str) -> str:
    """Return *text* as JSON requests have bytes."""
    return base64.b64encode(text.encode()).decode()


@contextmanager
def etcd_member(directory, **settings):
    """Run one member, which is a cluster of its own."""
    member = EtcdMember(directory, **settings)
    try:
        member.start()
        member.wait()
        yield member
    finally:
        member.kill()


@contextmanager
def etcd_cluster(directory, count=3):
    """Run a cluster of members."""
    members = [EtcdMember(directory, f"m{at}") for at in range(count)]
    urls = {member.name: member.peer_url for member in members}
    with ExitStack() as stack:
        for member in members:
            member.cluster = urls
            stack.callback(member.kill)
            member.start()
        for member in members:
            member.wait()
        yield members


def config_of(*members, **settings) -> EtcdConfig:
    """Return settings for a new cluster name in etcd at *members*, or at their URLs."""
    urls = [each if isinstance(each, str) else each.url for each in members]
    given = {"cluster_name": uuid4().hex, "session_ttl_s": 2, **settings}
    return EtcdConfig(endpoints=",".join(urls), **given)

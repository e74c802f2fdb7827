"""Servers of object stores, for tests: S3's API by moto, and Redis."""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ACCESS_KEY = "AKIATESTACCESSKEY"
SECRET_KEY = "verysecretsecretkeyofthetests"
REDIS_PASSWORD = "verysecretredispassword"
SECRETS = (ACCESS_KEY, SECRET_KEY, REDIS_PASSWORD)

BUCKET = "danube"

Store = tuple[str, dict[str, str]]
"""The URL and the options of an object store."""


class StoreServer(Protocol):
    """A server of an object store; ``with`` starts and ends it."""

    port: int

    def __enter__(self) -> StoreServer: ...

    def __exit__(self, *_: object) -> None: ...

    def new_store(self, port: int | None = None) -> Store:
        """Return an empty store, for access to the server or to a proxy at *port*."""


class S3Server:
    """A server with S3's API in this process, by moto."""

    port: int

    def __init__(self, _: Path) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)

    def __enter__(self) -> S3Server:
        self._server.start()
        self.port = self._server.get_host_and_port()[1]
        # It accepts every signature, but wants to see one.
        self._call("PUT", f"/{BUCKET}")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def new_store(self, port: int | None = None) -> Store:
        options = {
            "endpoint": f"http://127.0.0.1:{port or self.port}",
            "region": "us-east-1",
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            # Nothing of the machine's own configuration.
            "disable_config_load": "true",
            "disable_ec2_metadata": "true",
        }
        return f"s3://{BUCKET}/{uuid4().hex}/objects", options

    @contextmanager
    def checked_credentials(self) -> Iterator[None]:
        """Let the server check credentials; it knows none."""
        self._call("POST", "/moto-api/reset-auth", b"0")
        try:
            yield
        finally:
            self._call("POST", "/moto-api/reset-auth", b"inf")

    def _call(self, method: str, path: str, data: bytes = b"") -> None:
        url = f"http://127.0.0.1:{self.port}{path}"
        headers = {"Authorization": f"AWS {ACCESS_KEY}:x", "Content-Type": "text/plain"}
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request):
            pass


class RedisServer:
    """A ``redis-server`` that writes nothing to its disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def __enter__(self) -> RedisServer:
        program = shutil.which("redis-server")
        assert program, "this test needs a Redis server: apt-get install redis-server"
        settings = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self._directory,
            "save": "",
            "requirepass": REDIS_PASSWORD,
        }
        given = [
            part for item in settings.items() for part in (f"--{item[0]}", item[1])
        ]
        self._process = subprocess.Popen(
            [program, *map(str, given)], stdout=subprocess.PIPE
        )
        output = b""
        for line in self._process.stdout:
            output += line
            if b"Ready to accept connections" in line:
                return self
        raise AssertionError(f"redis-server did not start: {output.decode()}")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def new_store(self, port: int | None = None) -> Store:
        url = f"redis://127.0.0.1:{port or self.port}/{uuid4().hex}/objects"
        return url, {"password": REDIS_PASSWORD}


SERVERS = {"s3": S3Server, "redis": RedisServer}
"""The classes of servers, by the name that tests give them."""


class StoreServers:
    """Servers that are started when a test first needs them."""

    def __init__(self, new_directory: Callable[[str], Path]) -> None:
        self._new_directory = new_directory
        self._running: dict[str, StoreServer] = {}
        self._opened = ExitStack()

    def __enter__(self) -> StoreServers:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def get(self, kind: str) -> StoreServer:
        """Return the running server of *kind*."""
        if kind not in self._running:
            server = SERVERS[kind](self._new_directory(kind))
            self._running[kind] = self._opened.enter_context(server)
        return self._running[kind]

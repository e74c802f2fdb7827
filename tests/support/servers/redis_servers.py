"""Redis servers that keep what they have acknowledged, and replicas of them."""

from __future__ import annotations

import subprocess
from uuid import uuid4

from support.servers.object_stores import REDIS_PASSWORD
from support.servers.ports import free_port
from support.servers.programs import required_program

DURABLE = {"appendonly": "yes", "appendfsync": "always"}


class DurableRedis:
    """A ``redis-server`` that can be killed, and started again with its files."""

    def __init__(self, directory, **settings) -> None:
        self.port = free_port()
        self.options = {"password": REDIS_PASSWORD}
        self._settings = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": directory,
            "save": "",
            # A replica gets its copy at once, not after 5 s in which others may come.
            "repl-diskless-sync-delay": "0",
            "requirepass": REDIS_PASSWORD,
            "masterauth": REDIS_PASSWORD,
            **DURABLE,
            **settings,
        }
        self._process = None

    def __enter__(self) -> DurableRedis:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def new_url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/{uuid4().hex}/journal"

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        program = required_program("redis-server", "redis-server")
        given = []
        for name, value in self._settings.items():
            given += [f"--{name}", *str(value).split()] if value else [f"--{name}", ""]
        self._process = subprocess.Popen(
            [program, *given], stdout=subprocess.PIPE, text=True
        )
        for line in self._process.stdout:
            if "Ready to accept connections" in line:
                return
        raise AssertionError("the Redis server did not start")

    def kill(self) -> None:
        """End it as a crash would."""
        process, self._process = self._process, None
        process.kill()
        process.wait()
        process.stdout.close()

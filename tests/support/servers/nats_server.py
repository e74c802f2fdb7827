"""A NATS server with JetStream, which keeps what it has acknowledged."""

from __future__ import annotations

import json
import subprocess

from support.servers.ports import free_port
from support.servers.programs import required_program


class NatsProcess:
    """A ``nats-server`` that can be killed, and started again with its files."""

    def __init__(self, directory, **settings) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._file = directory / "nats.conf"
        self._file.write_text(
            json.dumps(
                {
                    "listen": f"127.0.0.1:{self.port}",
                    "jetstream": {"store_dir": str(directory / "nats")},
                    **settings,
                }
            )
        )
        self._process = None

    def __enter__(self) -> NatsProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        program = required_program("nats-server", "nats-server")
        self._process = subprocess.Popen(
            [program, "-c", str(self._file)], stderr=subprocess.PIPE, text=True
        )
        for line in self._process.stderr:
            if "Server is ready" in line:
                return
        raise AssertionError("the NATS server did not start")

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()
        self._process.stderr.close()

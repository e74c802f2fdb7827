"""A RabbitMQ server, which keeps durable queues over crashes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from support.servers.ports import free_port
from support.servers.programs import required_program, skip_without

INSTALLED = "/usr/lib/rabbitmq/lib"
"""The server of Debian's package, whose wrappers would change the user."""


class RabbitmqProcess:
    """A server with its own ``epmd``, which would otherwise outlive it."""

    def __init__(self, directory) -> None:
        self.port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        self._directory = directory
        self._log = directory / "rabbitmq.log"
        self._names = free_port()
        (directory / "enabled_plugins").write_text("[].")
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
        )
        self._environment = {
            **os.environ,
            "ERL_EPMD_PORT": str(self._names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"test-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        self._epmd = None
        self._process = None

    def __enter__(self) -> RabbitmqProcess:
        epmd = required_program("epmd", "rabbitmq-server")
        self._epmd = subprocess.Popen(
            [epmd, "-port", str(self._names), "-address", "127.0.0.1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._epmd.kill()
        self._epmd.wait()

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        scripts = sorted(Path(INSTALLED).glob("rabbitmq_server-*/sbin/rabbitmq-server"))
        if not scripts:
            skip_without("RabbitMQ", "apt-get install rabbitmq-server")
        self._process = subprocess.Popen(
            [scripts[-1]],
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            # The script starts Erlang as a child.
            start_new_session=True,
        )
        for line in self._process.stdout:
            if "Server startup complete" in line:
                return
        raise AssertionError("RabbitMQ did not start")

    def kill(self) -> None:
        """End it as a crash would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

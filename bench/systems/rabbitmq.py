"""A RabbitMQ server for the drivers of its queues and of its streams."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.packages import find_program
from bench.servers import HOST, accepts, free_port, running
from bench.systems.system import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

DEBIAN = "rabbitmq-server"
INSTALLED = "/usr/lib/rabbitmq/lib"
"""The server of Debian's package, whose wrappers would change the user."""


def find_server() -> Path | None:
    """Return the start script of the server, in RABBITMQ_HOME if set."""
    homes = [Path(home) for home in [os.environ.get("RABBITMQ_HOME")] if home]
    homes += sorted(Path(INSTALLED).glob("rabbitmq_server-*"), reverse=True)
    for home in homes:
        script = home / "sbin" / "rabbitmq-server"
        if script.exists():
            return script
    return None


def missing_server() -> str | None:
    """Return what to install; None if there is a server."""
    if find_server() is None or find_program("epmd") is None:
        return f"the server is not installed: apt-get install {DEBIAN}"
    return None


def server_version() -> str:
    """Return the version of the installed server."""
    script = find_server()
    home = script.parents[1].name if script else "unknown"
    return f"rabbitmq-server {home.partition('-')[2] or home}"


@contextmanager
def serving(directory: Path, *, streams: bool) -> Iterator[Server]:
    """
    Run a server with its defaults while the body runs.

    It has its own epmd, because the one that Erlang would start outlives the server.
    """
    names, distribution, queues, stream = (free_port() for _ in range(4))
    epmd = {"ERL_EPMD_PORT": str(names), "ERL_EPMD_ADDRESS": HOST}
    (directory / "enabled_plugins").write_text(
        "[rabbitmq_stream]." if streams else "[]."
    )
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = {HOST}:{queues}\n"
        + (
            f"stream.listeners.tcp.1 = {HOST}:{stream}\n"
            f"stream.advertised_host = {HOST}\n"
            f"stream.advertised_port = {stream}\n"
            if streams
            else ""
        )
    )
    environ = epmd | {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"bench-{queues}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "logs"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
    }
    port = stream if streams else queues
    with ExitStack() as stack:
        # epmd does not end by itself.
        directory_of_names = stack.enter_context(
            running(
                [find_program("epmd") or "", "-port", str(names), "-address", HOST],
                directory / "epmd",
                is_ready=lambda: accepts(names),
            )
        )
        server = stack.enter_context(
            running(
                [find_server() or ""],
                directory / "log",
                is_ready=lambda: accepts(queues) and accepts(port),
                environ=environ,
            )
        )
        endpoint = {"port": queues, "stream_port": stream}
        yield Server(endpoint=endpoint, pids=(server, directory_of_names))

"""`danube broker`: runs a broker."""

from __future__ import annotations

import os
from inspect import Parameter
from pathlib import Path
from typing import Annotated

import typer

from pydanube_broker.servers.run import run
from pydanube_broker.servers.settings.config import (
    ignored_variables,
    listener_types,
    load_config,
)
from pydanube_cli.invocation.declaration import command, option

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


LISTENER_EXTRAS = ["kafka", "mqtt"]
"""The extras of ``pydanube`` that bring listeners."""


def _listener_options() -> list[Parameter]:
    """Return an option for the port of each listener."""
    installed = listener_types()
    missing = {*LISTENER_EXTRAS} - {each.NAME for each in installed}
    # The settings refuse these, and name the extra.
    hidden = Annotated[int | None, typer.Option(hidden=True)]
    return [option(f"{name}_port", hidden, None) for name in sorted(missing)] + [
        option(
            f"{each.NAME}_port",
            Annotated[
                int | None,
                typer.Option(
                    metavar="PORT",
                    help=f"The port for clients of {each.TITLE}, usually "
                    f"{each.USUAL_PORT}; 0 chooses a free port. Without it, there is "
                    "no such listener.",
                ),
            ],
            None,
        )
        for each in installed
    ]


def _count_of(processes: str | None) -> object:
    """Return a number as such; the settings check it."""
    is_number = processes is not None and processes.isdecimal()
    return int(processes) if processes is not None and is_number else processes


@command(
    app,
    "danube broker",
    "danube broker --data-dir /var/lib/danube --host 0.0.0.0 --insecure",
    "danube broker --config broker.yaml --log-format json",
    "danube broker --data-dir /var/lib/danube --processes 4",
    "danube broker --data-dir /tmp/try --stream-port 0 --grpc-port 0 "
    "--admin-port 0 --http-port 0",
    more=_listener_options(),
)
def broker(
    *,
    data_dir: Path | None = None,
    config: Path | None = None,
    host: str | None = None,
    stream_port: int | None = None,
    grpc_port: int | None = None,
    admin_port: int | None = None,
    http_port: int | None = None,
    advertised_url: str | None = None,
    connect_url: str | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
    insecure: bool = False,
    processes: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="The number of processes, each of which uses about one core; auto is "
            "one less than the number of cores. By default 1.",
        ),
    ] = None,
    **listener_ports: int | None,
) -> None:
    """
    Start a broker.

    It prints its addresses and runs until Ctrl-C or SIGTERM; then it commits the
    messages that it has received, saves the cursors of subscriptions, and exits with
    code 0. Flags override environment variables, and these override the file;
    docs/reference/settings.md lists all settings.

    Args:
        data_dir (DIR): The data directory, created if it does not exist; by default
            danube-data in the current directory.
        config (FILE): A YAML file with settings; also set by the variable
            DANUBE_CONFIG.
        host (HOST): The address to listen on. By default 127.0.0.1, which accepts
            connections from this machine only; 0.0.0.0 listens on all addresses.
        stream_port (PORT): The port of the native protocol, by default 6651; 0 chooses
            a free port.
        grpc_port (PORT): The gRPC port for clients of the original Danube, by default
            6650; 0 chooses a free port.
        admin_port (PORT): The gRPC port for the administration tools of the original
            Danube, by default 50051; 0 chooses a free port.
        http_port (PORT): The port for health checks, metrics and the JSON API, by
            default 8080; 0 chooses a free port.
        advertised_url (URL): The address that clients of the original Danube are told
            is the broker's, as http://HOST:PORT; by default the address that it listens
            on.
        connect_url (URL): The address that clients of the original Danube are told to
            connect to, if there is a proxy in front of the broker.
        log_level (debug|info|warning|error): The minimum level to log, by default info.
        log_format (text|json): The format of log lines: text for people, the default,
            or JSON for log collectors.
        insecure: Listen on an address that other machines can reach, although clients
            need no credentials.
    """
    flags = {
        "data_dir": data_dir,
        "listen.host": host,
        "listen.stream_port": stream_port,
        "listen.grpc_port": grpc_port,
        "listen.admin_port": admin_port,
        "listen.http_port": http_port,
        "listen.advertised_url": advertised_url,
        "listen.connect_url": connect_url,
        "log.level": log_level,
        "log.format": log_format,
        "listen.insecure": insecure or None,
        "processes.count": _count_of(processes),
    }
    for name, port in listener_ports.items():
        flags[f"{name.removesuffix('_port')}.port"] = port
    run(
        load_config(config, os.environ, flags),
        ignored_variables=ignored_variables(os.environ),
    )

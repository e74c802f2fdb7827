"""`danube broker`: a complete broker of one machine."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pydanube.cli.parameters import examples
from pydanube.servers.config import ignored_variables, load_config
from pydanube.servers.run import run

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class LogLevel(Enum):
    """The least important lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(Enum):
    """What a line of the log looks like."""

    TEXT = "text"
    JSON = "json"


@app.command(
    epilog=examples(
        "danube broker",
        "danube broker --data-dir /var/lib/danube --host 0.0.0.0",
        "danube broker --config broker.yaml --log-format json",
        "danube broker --data-dir /tmp/try --stream-port 0 --grpc-port 0 "
        "--admin-port 0 --http-port 0",
    )
)
def broker(
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the broker keeps everything; created if it is missing. "
            "By default danube-data, here.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A YAML file with settings; the variable DANUBE_CONFIG may name it.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="The address to listen on. By default 127.0.0.1, this machine only; "
            "0.0.0.0 is every address.",
        ),
    ] = None,
    stream_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The port for clients, by default 6651; 0 takes any free one.",
        ),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The port for clients of the original Danube, by default 6650; 0 "
            "takes any free one.",
        ),
    ] = None,
    admin_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The port for its administration tools, by default 50051; 0 takes any "
            "free one.",
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The port for health, metrics and the JSON API, by default 8080; 0 "
            "takes any free one.",
        ),
    ] = None,
    advertised_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where clients of the original Danube are told that the broker is, as "
            "http://HOST:PORT; by default where it listens.",
        ),
    ] = None,
    connect_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where they are told to connect, if there is a proxy in between.",
        ),
    ] = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            metavar="debug|info|warning|error",
            help="The least important lines to log, by default info.",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            metavar="text|json",
            help="Log for people, by default, or for collectors.",
        ),
    ] = None,
) -> None:
    """
    Start a broker: everything it needs, in one process.

    It prints where it listens and runs until Ctrl-C or SIGTERM; then it commits what it
    has taken, saves cursors, and ends with exit code 0. Flags go before environment
    variables, and these before the file; docs/reference/settings.md has all settings.
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
        "log.level": log_level and log_level.value,
        "log.format": log_format and log_format.value,
    }
    run(
        load_config(config, os.environ, flags),
        ignored_variables=ignored_variables(os.environ),
    )

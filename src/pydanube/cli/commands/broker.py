"""`danube broker`: runs a broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pydanube.cli.parameters import examples
from pydanube.servers.config import ignored_variables, load_config
from pydanube.servers.run import run

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


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
            help="The data directory, created if it does not exist; by default "
            "danube-data in the current directory.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A YAML file with settings; also set by the variable DANUBE_CONFIG.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="The address to listen on. By default 127.0.0.1, which accepts "
            "connections from this machine only; 0.0.0.0 listens on all addresses.",
        ),
    ] = None,
    stream_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The port of the native protocol, by default 6651; 0 chooses a free "
            "port.",
        ),
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The gRPC port for clients of the original Danube, by default 6650; "
            "0 chooses a free port.",
        ),
    ] = None,
    admin_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The gRPC port for the administration tools of the original Danube, "
            "by default 50051; 0 chooses a free port.",
        ),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The port for health checks, metrics and the JSON API, by default "
            "8080; 0 chooses a free port.",
        ),
    ] = None,
    advertised_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The address that clients of the original Danube are told is the "
            "broker's, as http://HOST:PORT; by default the address that it listens "
            "on.",
        ),
    ] = None,
    connect_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The address that clients of the original Danube are told to connect "
            "to, if there is a proxy in front of the broker.",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="debug|info|warning|error",
            help="The minimum level to log, by default info.",
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="text|json",
            help="The format of log lines: text for people, the default, or JSON for "
            "log collectors.",
        ),
    ] = None,
) -> None:
    """
    Start a broker.

    It prints its addresses and runs until Ctrl-C or SIGTERM; then it commits the
    messages that it has received, saves the cursors of subscriptions, and exits with
    code 0. Flags override environment variables, and these override the file;
    docs/reference/settings.md lists all settings.
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
    }
    run(
        load_config(config, os.environ, flags),
        ignored_variables=ignored_variables(os.environ),
    )

"""`danube certs`: creates certificates for development."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.parameters import command_group
from pydanube_cli.presentation.output import print_line

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")

app = command_group(
    "Create certificates for TLS, for development.",
    "danube certs init certs",
    "danube certs init certs --host broker.example --host 10.0.0.5",
)


@app.callback()
def certs() -> None:
    """Create certificates for TLS, for development."""


@command(
    app,
    "danube certs init certs",
    "danube certs init certs --host broker.example --host 10.0.0.5",
)
def init(
    directory: Annotated[Path, typer.Argument()],
    *,
    host: list[str] | None = None,
) -> None:
    """
    Create an authority, and certificates for a broker and for a client.

    They are for development and tests: anybody who can read the key of the
    authority, ca-key.pem, can pretend to be any broker or client. The certificates of
    the broker and the client are valid for a year.

    Args:
        directory (DIRECTORY): Where to write the files; created if it does not exist.
        host (--host HOST): A name or an address by which clients reach the broker;
            repeat it for several. Those of this machine are always included.
    """
    # An extra, and other commands of the command line do not need it.
    from pydanube_cli.administration.development_certificates import (  # noqa: PLC0415
        write_development_certificates,
    )

    hosts = dict.fromkeys((*LOCAL_HOSTS, socket.gethostname(), *(host or ())))
    now = datetime.fromtimestamp(time.time_ns() // 1_000_000_000, UTC)
    write_development_certificates(directory, list(hosts), now=now)
    print_line(f"The certificates and keys are in {directory}, for {', '.join(hosts)}.")
    print_line("Start a broker with TLS:")
    print_line(
        f"  DANUBE_TLS__CERTIFICATE_FILE={directory}/server.pem "
        f"DANUBE_TLS__KEY_FILE={directory}/server-key.pem danube broker"
    )
    print_line("Use it:")
    print_line(
        f"  danube topics list --url 'danubes://localhost:6651?ca_file={directory}/"
        "ca.pem'"
    )

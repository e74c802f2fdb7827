"""`danube mcp`: an MCP server for AI assistants."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from pydanube.aio.tasks import task_scope
from pydanube.client.client import DEFAULT_URL
from pydanube.model.errors import InvalidRequest
from pydanube.model.extras import require
from pydanube.security.addresses import host_in_url, parse_listen
from pydanube_cli.invocation import interruption, parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interruption
from pydanube_cli.presentation.output import print_note
from pydanube_console.administration.pure.listening import (
    allowed_hosts,
    check_exposure,
)

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube mcp",
    "danube mcp --url danube://broker.example:6651 --allow-changes",
    "danube mcp --http 127.0.0.1:8765",
)
def mcp(
    *,
    url: parameters.Url = DEFAULT_URL,
    http_url: str | None = None,
    allow_changes: bool = False,
    http: str | None = None,
    token_file: Path | None = None,
    allowed_host: Annotated[list[str] | None, typer.Option()] = None,
    certificate_file: Path | None = None,
    key_file: Path | None = None,
    allow_plaintext_credentials: bool = False,
) -> None:
    """
    Run an MCP server, with which an AI assistant inspects brokers.

    It speaks MCP on standard input and output, for the program that starts it, or over
    HTTP. Its tools use the credentials of this process, and have no more permissions
    than those: give it an API key of a role that only describes and consumes. No tool
    changes anything, unless --allow-changes is given.

    Args:
        http_url (URL): The broker's HTTP port, for metrics; by default as the
            broker says.
        allow_changes: Offer tools that create and configure topics and subscriptions,
            and drain brokers.
        http (HOST:PORT): Listen there for MCP over HTTP, at /mcp. Requests from other
            machines need an API key of the broker, with which their tools then work,
            or the token of --token-file.
        token_file (FILE): A file with a token that requests over HTTP must present;
            their tools work with the credentials of this process.
        allowed_host (NAME): Another host name by which this server is reached over
            HTTP; may be repeated.
        certificate_file (FILE): A PEM file with the certificate, for HTTPS.
        key_file (FILE): A PEM file with the key of the certificate.
        allow_plaintext_credentials: Listen on an address that other machines can reach
            without TLS, for example behind a proxy.
    """
    require("mcp", "danube mcp")
    # They take half a second.
    from pydanube_console.administration.bearer import (  # noqa: PLC0415
        TOKEN_BYTES_MIN,
        Bearer,
    )
    from pydanube_console.administration.callers import open_callers  # noqa: PLC0415
    from pydanube_console.administration.server import (  # noqa: PLC0415
        PATH,
        STOP_S,
        make_server,
        serve_http,
    )
    from pydanube_console.administration.standard_input import endable_input  # noqa: PLC0415

    if http is None and (token_file or allowed_host or certificate_file):
        raise InvalidRequest(
            "--token-file, --allowed-host and --certificate-file are about HTTP: give "
            "--http HOST:PORT, too"
        )
    if (certificate_file is None) != (key_file is None):
        raise InvalidRequest("--certificate-file and --key-file need each other")

    async def run_stdio(interrupted: Interruption) -> None:
        async with open_callers(url) as callers:
            server = make_server(callers, url, http_url, allow_changes=allow_changes)
            with endable_input() as end_input:
                async with task_scope() as tasks:
                    running = tasks.start(server.run_stdio_async())
                    async with interrupted.until_requested():
                        await asyncio.wait([running])
                    end_input()
                    with interrupted.shielded(STOP_S):
                        await running

    if http is None:
        interruption.run(run_stdio)
        return
    host, port = parse_listen(http)
    uses_tls = certificate_file is not None
    is_required = check_exposure(
        host, uses_tls=uses_tls, may_be_plain=allow_plaintext_credentials
    )
    token = ""
    if token_file is not None:
        token = _read_token(token_file, TOKEN_BYTES_MIN)

    async def run_http(interrupted: Interruption) -> None:
        from pydanube.aio.http_server import listener_at  # noqa: PLC0415

        listener = listener_at(host, port)
        bound = listener.getsockname()[1]
        scheme = "https" if uses_tls else "http"

        def on_serving() -> None:
            print_note(f"MCP over HTTP at {scheme}://{host_in_url(host)}:{bound}{PATH}")

        async with open_callers(url) as callers:
            server = make_server(callers, url, http_url, allow_changes=allow_changes)
            async with interrupted.until_requested():
                await serve_http(
                    server,
                    listener,
                    Bearer(callers, token, is_required=is_required),
                    hosts=allowed_hosts(host, bound, allowed_host or ()),
                    on_serving=on_serving,
                    ssl_certfile=certificate_file,
                    ssl_keyfile=key_file,
                )

    interruption.run(run_http)


def _read_token(file: Path, bytes_min: int) -> str:
    """
    Return the token in *file*.

    Raises:
        InvalidRequest: It cannot be read, or is too short to be a secret.
    """
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"--token-file: {file} cannot be read: {error}") from None
    if len(token) < bytes_min:
        raise InvalidRequest(
            f"the token in {file} has {len(token)} characters: it needs at least "
            f"{bytes_min}; 'openssl rand -hex 32' makes one"
        )
    return token

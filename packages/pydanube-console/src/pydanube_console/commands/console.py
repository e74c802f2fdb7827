"""`danube console`: serves the web console."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pydanube.client.client import DEFAULT_URL
from pydanube.client.connections.credentials import API_KEY_VARIABLE, TOKEN_VARIABLE
from pydanube.model.errors import InvalidRequest
from pydanube.model.extras import require
from pydanube.model.redaction import without_password
from pydanube.security.addresses import host_in_url, is_loopback, parse_proxies
from pydanube_cli.invocation import interruption, parameters
from pydanube_cli.invocation.declaration import command
from pydanube_cli.invocation.interruption import Interrupted, Interruption
from pydanube_cli.presentation.output import print_line, print_note
from pydanube_connect.commands import connector_runs
from pydanube_spark.pipelines import runs

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


@command(
    app,
    "danube console",
    "danube console --url danubes://broker.example?ca_file=ca.pem --port 8091",
    "danube console --host 0.0.0.0 --behind-https --host-name danube.example.com",
    "danube console --connectors local --pipelines local",
)
def console(
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8090,
    host_name: list[str] | None = None,
    payloads: str = "show",
    connectors: list[str] | None = None,
    pipelines: list[str] | None = None,
    oidc_issuer: str = "",
    oidc_client: str = "danube-console",
    oidc_secret_file: Path | None = None,
    oidc_scope: str = "openid",
    oidc_token: str = "access",  # noqa: S107  # The name of a kind of token.
    behind_https: bool = False,
    trusted_proxies: str = "",
    insecure: bool = False,
    url: parameters.Url = DEFAULT_URL,
) -> None:
    """
    Serve the web console for browsers.

    Users sign in with their own API key or token, and see and do what the broker
    permits them. Without security at the broker, nobody needs to sign in. The console
    serves this machine only, unless --host says otherwise. It has no TLS of its own:
    put it behind a proxy with HTTPS to serve other machines.

    Args:
        host (HOST): The address to listen on.
        port (PORT): The port to listen on; 0: any free one.
        host_name (--host-name NAME): A name by which browsers reach the console, for
            example that of a proxy; repeat it for several.
        payloads (show|mask|hide): Whether the console shows the contents of messages,
            only their sizes, or no messages at all.
        connectors (--connectors URL|local): The address of 'danube connect run
            --listen', as in http://HOST:PORT?token_file=FILE; without the token, its
            connectors are shown, but cannot be changed. local: all connectors that you
            run on this machine. Repeat it for several.
        pipelines (--pipelines DIRECTORY|local): The state directory of a pipeline,
            which 'danube pipeline list --format json' shows; local: all pipelines that
            you have run on this machine. Repeat it for several.
        oidc_issuer (URL): The issuer of tokens whose users sign in by OpenID Connect;
            the same as security.jwt.issuer at the broker.
        oidc_client (ID): The id of the console at the issuer.
        oidc_secret_file (FILE): A file with the secret of the console at the issuer; by
            default it has none, and proves itself by PKCE alone.
        oidc_scope (SCOPE): The scopes that the console requests, separated by spaces.
        oidc_token (access|id): The token that the broker gets: the one whose audience
            is security.jwt.audience.
        behind_https (--behind-https): Browsers reach the console by HTTPS only, through
            a proxy.
        trusted_proxies (ADDRESSES): The addresses and networks of proxies, with commas
            between them; the console believes the addresses of clients that they send
            in X-Forwarded-For. By default it believes none.
        insecure (--insecure): Serve other machines without HTTPS, or without security
            at the broker.
    """
    require("console", "the web console")
    from pydanube_console.oidc import OidcSettings  # noqa: PLC0415
    from pydanube_console.serving import open_console  # noqa: PLC0415  # It takes long.
    from pydanube_console.settings import (  # noqa: PLC0415
        ConsoleSettings,
        Payloads,
        has_certificate,
        without_credentials,
    )

    is_local = is_loopback(host)
    if not is_local and not behind_https and not insecure:
        raise InvalidRequest(
            f"--host is {host}, from which other machines reach the console, and "
            "credentials would be readable on the network: use a proxy with HTTPS and "
            "--behind-https, or --insecure if the network is trusted"
        )
    if payloads not in {each.value for each in Payloads}:
        raise InvalidRequest(f"--payloads is {payloads!r}; use show, mask or hide")
    for name in (API_KEY_VARIABLE, TOKEN_VARIABLE):
        if os.environ.pop(name, ""):
            print_note(f"{name} is not used: users sign in with their own credentials.")
    oidc = None
    if oidc_issuer:
        oidc = OidcSettings(
            issuer=oidc_issuer,
            client_id=oidc_client,
            client_secret=_secret_in(oidc_secret_file),
            scope=oidc_scope,
            sends=oidc_token,
        )
    # They are found again and again; what is wrong is known now.
    connector_runs.runs_of(connectors or ())
    runs.runs_of(pipelines or ())
    settings = ConsoleSettings(
        url=without_credentials(url),
        host=host,
        port=port,
        payloads=Payloads(payloads),
        allowed_hosts=frozenset(host_name or ()),
        is_behind_https=behind_https,
        trusted_proxies=parse_proxies(trusted_proxies),
        allows_anonymous=(is_local or insecure) and not has_certificate(url),
        oidc=oidc,
        find_connectors=(
            partial(connector_runs.runs_of, connectors) if connectors else None
        ),
        find_pipelines=partial(runs.runs_of, pipelines) if pipelines else None,
    )

    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("pydanube_console.changes").setLevel(logging.INFO)

    async def work(interrupted: Interruption) -> None:
        async with open_console(settings) as bound:
            print_line(f"the console is at http://{host_in_url(host)}:{bound}")
            print_line(f"  broker    {without_password(settings.url)}")
            async with interrupted.until_requested():
                await asyncio.Event().wait()
        if interrupted.number is not None:
            raise Interrupted(interrupted.number)

    interruption.run(work)


def _secret_in(file: Path | None) -> str:
    """
    Return the secret in *file*; empty without a file.

    Raises:
        InvalidRequest: It cannot be read.
    """
    try:
        return "" if file is None else file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"--oidc-secret-file: {file} cannot be read: {error}"
        ) from None

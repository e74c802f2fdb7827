"""The settings of the console."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pydanube.model.url_options import split_query
from pydanube_console.connector_monitor import FindConnectors
from pydanube_console.oidc import OidcSettings
from pydanube_console.pipeline_monitor import FindPipelines


class Payloads(Enum):
    """Which payloads of messages the console shows."""

    SHOW = "show"
    MASK = "mask"
    """Only their sizes and types; keys and values of attributes are masked, too."""
    HIDE = "hide"
    """The console has no pages with messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The settings of one console."""

    url: str
    """The address of the brokers, without credentials."""
    host: str = "127.0.0.1"
    port: int = 8090
    """0: any free port."""
    payloads: Payloads = Payloads.SHOW
    allowed_hosts: frozenset[str] = frozenset()
    """The names by which browsers reach the console, apart from this machine's."""
    is_behind_https: bool = False
    """Whether browsers reach it by HTTPS only, through a proxy."""
    trusted_proxies: tuple[str, ...] = ()
    """The addresses and networks of proxies whose ``X-Forwarded-*`` is believed."""
    allows_anonymous: bool = True
    """Whether users need no credentials if the broker needs none."""
    oidc: OidcSettings | None = None
    """The issuer at which users can sign in; None: they need an API key or a token."""
    find_connectors: FindConnectors | None = None
    """Returns the processes whose connectors are shown; None: none are given."""
    find_pipelines: FindPipelines | None = None
    """Returns the runs of pipelines that are shown; None: none are given."""


def without_credentials(url: str) -> str:
    """
    Return *url* without the files of a token or an API key.

    Users of the console have credentials of their own.
    """
    address, query = split_query(url)
    kept = [
        part
        for part in query.split("&")
        if part.partition("=")[0] not in {"", "api_key_file", "token_file"}
    ]
    return f"{address}?{'&'.join(kept)}" if kept else address


def has_certificate(url: str) -> bool:
    """Return whether *url* names a client certificate, which is an identity."""
    return "certificate_file=" in split_query(url)[1]

"""The connection to a NATS server, for the source and the sink."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.aio.certificates import load_certificate
from pydanube.model.redaction import mask
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.server_access import ServerAccess

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient  # An extra.

CONNECT_S = 10


class NatsConnection(ServerAccess, frozen=True, kw_only=True):
    """The options that the source and the sink share."""

    servers: Annotated[
        str,
        Meta(
            description="The servers of the cluster, or some of them, separated by "
            "commas."
        ),
    ] = "nats://127.0.0.1:4222"
    token: Annotated[
        str | None, Meta(description="The token, if the server wants one.")
    ] = None


@asynccontextmanager
async def nats_client(
    options: NatsConnection, **given: Any
) -> AsyncIterator[NatsClient]:
    """
    Connect during the body; errors of NATS are raised as those of connectors.

    *given* are further options of the client.
    """
    from nats.aio.client import Client  # noqa: PLC0415

    if options.tls:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.certificate_file and options.key_file:
            load_certificate(context, options.certificate_file, options.key_file)
        given["tls"] = context
    client = Client()
    async with translated(options):
        try:
            await client.connect(
                [each.strip() for each in options.servers.split(",")],
                user=options.username,
                password=options.password,
                token=options.token,
                connect_timeout=CONNECT_S,
                # The connector opens itself again.  Without these bounds the client
                # would try for two minutes, in which nobody hears of the failure.
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                error_cb=_ignore,
                name="pydanube",
                **given,
            )
            yield client
        finally:
            await client.close()


async def _ignore(_: Exception) -> None:
    """Do nothing: the same error ends the request that waits."""


@asynccontextmanager
async def translated(options: NatsConnection) -> AsyncIterator[None]:
    """Raise errors of NATS in the body as those of connectors, without secrets."""
    from nats import errors  # noqa: PLC0415
    from nats.js.errors import NotFoundError  # noqa: PLC0415

    try:
        yield
    except errors.Error as error:
        secrets = [each for each in (options.password, options.token) if each]
        text = mask(f"NATS: {error or type(error).__name__}", secrets)
        permanent = (errors.AuthorizationError, NotFoundError)
        if isinstance(error, permanent) or "authorization" in text.lower():
            raise ConnectorFailed(text) from error
        raise Transient(text) from error

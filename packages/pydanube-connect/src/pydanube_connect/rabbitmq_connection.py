"""The connection to RabbitMQ, for the source and the sink."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.declarations.pure.sections import Section
from pydanube.model.redaction import mask
from pydanube_connect.pure.failures import ConnectorFailed, Transient

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel  # An extra.

CONNECT_S = 10
SCHEMES = ("amqp://", "amqps://")


class RabbitmqConnection(Section, frozen=True, kw_only=True):
    """The options that the source and the sink share."""

    url: Annotated[
        str,
        Meta(
            description="The server, such as `amqp://user@host/vhost`; `amqps://` "
            "with TLS."
        ),
    ] = "amqp://guest:guest@127.0.0.1/"
    password: Annotated[
        str | None, Meta(description="The password, if it is not in `url`.")
    ] = None


def connection_problems(options: RabbitmqConnection) -> dict[str, str]:
    """Return what is wrong with the connection, by option."""
    if not options.url.startswith(SCHEMES):
        return {"url": f"begins with {' or '.join(SCHEMES)}"}
    return {}


@asynccontextmanager
async def rabbitmq_channel(
    options: RabbitmqConnection, **settings: Any
) -> AsyncIterator[AbstractChannel]:
    """Open a channel during the body; errors are raised as those of connectors."""
    from aio_pika import connect  # noqa: PLC0415
    from yarl import URL  # noqa: PLC0415

    async with translated(options):
        try:
            url = URL(options.url)
            if options.password is not None:
                url = url.with_password(options.password)
        except ValueError as error:
            raise ConnectorFailed(
                f"the URL of RabbitMQ is malformed: {error}"
            ) from error
        connection = await connect(url, timeout=CONNECT_S)
        async with connection:
            yield await connection.channel(**settings)


@asynccontextmanager
async def translated(options: RabbitmqConnection) -> AsyncIterator[None]:
    """Raise errors of RabbitMQ in the body as those of connectors."""
    from aio_pika.exceptions import AMQPError  # noqa: PLC0415
    from aiormq.exceptions import (  # noqa: PLC0415
        AuthenticationError,
        ChannelAccessRefused,
        ChannelInvalidStateError,
        ChannelNotFoundEntity,
        ChannelPreconditionFailed,
        ProbableAuthenticationError,
    )

    try:
        yield
    except ChannelInvalidStateError as error:
        raise Transient(f"RabbitMQ has closed the channel: {error}") from error
    except AMQPError as error:
        secrets = [options.password] if options.password else []
        reason = " ".join(map(str, error.args)) or type(error).__name__
        text = mask(f"RabbitMQ: {reason}", secrets)
        permanent = (
            AuthenticationError,
            ProbableAuthenticationError,
            ChannelAccessRefused,
            ChannelNotFoundEntity,
            ChannelPreconditionFailed,
        )
        if isinstance(error, permanent):
            raise ConnectorFailed(text) from error
        raise Transient(text) from error

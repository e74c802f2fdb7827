"""The connection to Redis, for the source and the sink."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.declarations.pure.sections import Section
from pydanube.model.redaction import mask
from pydanube_connect.pure.failures import ConnectorFailed, Transient

if TYPE_CHECKING:
    from redis.asyncio import Redis  # An extra.

TIMEOUT_S = 30.0
SCHEMES = ("redis://", "rediss://", "unix://")

_PERMANENT = ("WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM", "ERR unknown command")
"""How errors begin that a retry does not solve."""


class RedisConnection(Section, frozen=True, kw_only=True):
    """The options that the source and the sink share."""

    url: Annotated[
        str,
        Meta(
            description="The server, such as `redis://user@host:6379/0`; `rediss://` "
            "with TLS."
        ),
    ] = "redis://127.0.0.1:6379"
    password: Annotated[
        str | None, Meta(description="The password, if it is not in `url`.")
    ] = None


def connection_problems(options: RedisConnection) -> dict[str, str]:
    """Return what is wrong with the connection, by option."""
    if not options.url.startswith(SCHEMES):
        return {"url": f"begins with {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}"}
    return {}


def redis_client(options: RedisConnection) -> Redis:
    """
    Return a client, which connects when it is used.

    Raises:
        ConnectorFailed: The URL is malformed.
    """
    from redis.asyncio import Redis  # noqa: PLC0415

    given: dict[str, Any] = {}
    if options.password is not None:
        given["password"] = options.password
    try:
        return Redis.from_url(
            options.url, socket_timeout=TIMEOUT_S, socket_connect_timeout=10, **given
        )
    except ValueError as error:
        raise ConnectorFailed(f"the URL of Redis is malformed: {error}") from error


@asynccontextmanager
async def translated(options: RedisConnection) -> AsyncIterator[None]:
    """Raise errors of Redis in the body as those of connectors, without secrets."""
    from redis.exceptions import (  # noqa: PLC0415
        AuthenticationError,
        DataError,
        RedisError,
    )

    try:
        yield
    except DataError:
        raise  # The client cannot send a value, now or later.
    except RedisError as error:
        secrets = [options.password] if options.password else []
        text = mask(f"Redis: {error or type(error).__name__}", secrets)
        if isinstance(error, AuthenticationError) or str(error).startswith(_PERMANENT):
            raise ConnectorFailed(text) from error
        raise Transient(text) from error

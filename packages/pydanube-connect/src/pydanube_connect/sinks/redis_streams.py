"""A sink that appends messages to Redis streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube_connect.connector import Sink
from pydanube_connect.redis_connection import (
    RedisConnection,
    connection_problems,
    redis_client,
    translated,
)

if TYPE_CHECKING:
    from redis.asyncio import Redis  # An extra.


class RedisSinkOptions(RedisConnection, frozen=True, kw_only=True):
    """The options of ``RedisSink``."""

    stream: Annotated[
        str,
        Meta(
            description="The stream, in which `{topic}` stands for the name of the "
            "message's topic without its namespace."
        ),
    ]
    entries_max: Annotated[
        int | None,
        Meta(
            description="About how many entries Redis keeps of a stream; by default "
            "all."
        ),
    ] = None


class RedisSink(Sink):
    """
    Appends messages to Redis streams, as entries with `payload`, `key` and attributes.

    Delivery: at least once, in the order of the topic.
    """

    Options = RedisSinkOptions
    extra = "redis"

    def __init__(self, options: RedisSinkOptions) -> None:
        super().__init__(options)
        self._redis: Redis | None = None

    @classmethod
    def problems(cls, options: RedisSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = connection_problems(options)
        if not options.stream:
            found["stream"] = "must not be empty"
        if options.entries_max is not None and options.entries_max < 1:
            found["entries_max"] = "must be at least 1"
        return found

    async def __aexit__(self, *_: object) -> None:
        if self._redis is not None:
            await self._redis.aclose()

    async def check(self) -> None:
        """Ask Redis for an answer."""
        async with translated(self.options), redis_client(self.options) as redis:
            await redis.ping()

    async def write(self, messages: Sequence[Message]) -> None:
        """Append *messages* in one transaction."""
        options: RedisSinkOptions = self.options
        async with translated(options):
            if self._redis is None:
                self._redis = redis_client(options)
            async with self._redis.pipeline(transaction=True) as pipeline:
                for message in messages:
                    pipeline.xadd(
                        options.stream.replace(
                            "{topic}", message.topic.rpartition("/")[2]
                        ),
                        _fields_of(message),
                        maxlen=options.entries_max,
                        approximate=True,
                    )
                await pipeline.execute()


def _fields_of(message: Message) -> dict[Any, Any]:
    fields: dict[Any, Any] = dict(message.attributes)
    if message.key_bytes is not None:
        fields["key"] = message.key_bytes
    fields["payload"] = message.payload
    return fields

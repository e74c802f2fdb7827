"""
Objects in Redis or Valkey, for journals: small objects, and put-if-absent.

Each object is a key; one sorted set has the names of all of them.  Scripts change both
together.  The keys have one hash tag, so that they are on one server of a cluster.

Durability.  With ``appendonly yes`` and ``appendfsync always``, a server answers when
its disk has the change; verify_durability() checks that.  With *replicas_min*, each put
also waits until so many replicas have it in memory.  read() waits for that, too,
so a reader can rely on an object that it finds after a failed put.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pyarrow as pa

from pydanube.model.errors import InvalidConfig, ObjectsUnavailable
from pydanube.model.extras import require
from pydanube.objects.addresses import parse_store_url, service_options
from pydanube.objects.store import ObjectInfo, Objects
from pydanube.wire.buffer import Buffer

T = TypeVar("T")

log = logging.getLogger(__name__)

OPTIONS = ("username", "password", "db")

_PUT_IF_ABSENT = """
if not redis.call('SET', KEYS[1], ARGV[2], 'NX') then return 0 end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
"""
_PUT = """
redis.call('SET', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
"""
_DELETE = """
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
"""


class RedisObjects(Objects):
    """Objects of a Redis server; see open_redis()."""

    def __init__(
        self, client: Any, url: str, prefix: str, replicas_min: int, timeout_s: float
    ) -> None:
        self._client = client
        self._url = url
        self._prefix = prefix
        self._replicas_min = replicas_min
        self._timeout_s = timeout_s
        self._put_if_absent = client.register_script(_PUT_IF_ABSENT)
        self._put = client.register_script(_PUT)
        self._delete = client.register_script(_DELETE)

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        await self._change(self._put, name, [name, _bytes_of(data)])

    async def put_if_absent(self, name: str, data: Buffer | pa.Buffer) -> bool:
        stored = await self._change(self._put_if_absent, name, [name, _bytes_of(data)])
        return bool(stored)

    async def read(
        self, name: str, begin: int = 0, end: int | None = None
    ) -> Buffer | None:
        key = self._key_of(name)

        async def work(connection: Any) -> bytes | None:
            data: bytes | None
            if end is not None and end <= begin:
                data = b"" if await connection.exists(key) else None
            elif begin or end is not None:
                last = -1 if end is None else end - 1
                data = await connection.getrange(key, begin, last)
                if not data and not await connection.exists(key):
                    return None
            else:
                data = await connection.get(key)
            if data is not None and self._replicas_min:
                # A change after the object's; replicas get changes in order.
                await connection.incr(f"{self._prefix}reads")
                await self._wait(connection)
            return data

        return await self._do("reading", name, work)

    def open(self, name: str) -> Any:
        """See Objects; the journal does not use it."""
        raise OSError(f"{self.url(name)} cannot be opened as a file")

    async def delete(self, name: str) -> None:
        await self._change(self._delete, name, [name])

    async def names(
        self, prefix: str, *, after: str = "", count_max: int | None = None
    ) -> list[str]:
        begin = f"({after}" if after >= prefix else f"[{prefix}"

        async def work(connection: Any) -> list[str]:
            found = await connection.zrange(
                self._index,
                begin,
                f"({prefix}\U0010ffff" if prefix else "+",
                bylex=True,
                offset=0,
                num=-1 if count_max is None else count_max,
            )
            return [name.decode() for name in found]

        return await self._do("listing", prefix, work)

    async def stat(self, name: str) -> ObjectInfo | None:
        key = self._key_of(name)

        async def work(connection: Any) -> ObjectInfo | None:
            if not await connection.exists(key):
                return None
            return ObjectInfo(await connection.strlen(key), None)

        return await self._do("reading", name, work)

    def url(self, name: str) -> str:
        return f"{self._url}/{name}"

    async def verify_durability(self) -> None:
        """
        Check that the server answers only when its disk has a change.

        A server that does not show its settings is only reported in the log.

        Raises:
            InvalidConfig: Its settings say otherwise.
            ObjectsUnavailable: It does not answer.
        """
        from redis.exceptions import ResponseError  # noqa: PLC0415

        async def work(connection: Any) -> dict[Any, Any] | None:
            try:
                found: dict[Any, Any] = await connection.config_get("append*")
            except ResponseError:
                return None
            return found

        found = await self._do("reading the settings of", "the server", work)
        if found is None:
            log.warning(
                "%s does not show its settings; it must have appendonly yes and "
                "appendfsync always",
                self._url,
            )
            return
        settings = {_text_of(name): _text_of(value) for name, value in found.items()}
        expected = {"appendonly": "yes", "appendfsync": "always"}
        wrong = [
            f"{name} {settings.get(name)}"
            for name, value in expected.items()
            if settings.get(name) != value
        ]
        if wrong:
            raise InvalidConfig(
                f"{self._url} may lose acknowledged messages when it stops, because it "
                f"has {' and '.join(wrong)}; set appendonly yes and appendfsync always"
            )

    @property
    def _index(self) -> str:
        return f"{self._prefix}names"

    def _key_of(self, name: str) -> str:
        return f"{self._prefix}objects/{name}"

    async def _change(self, script: Any, name: str, arguments: list[Any]) -> int:
        keys = [self._key_of(name), self._index]

        async def work(connection: Any) -> int:
            done = await script(keys=keys, args=arguments, client=connection)
            if self._replicas_min:
                await self._wait(connection)
            return int(done)

        return await self._do("changing", name, work)

    async def _wait(self, connection: Any) -> None:
        """Return when enough replicas have all changes of this connection."""
        timeout_ms = int(self._timeout_s * 1000)
        count = await connection.wait(self._replicas_min, timeout_ms)
        if count < self._replicas_min:
            raise ObjectsUnavailable(
                f"{self._url}: {count} replicas have a change after "
                f"{self._timeout_s:g} s, and {self._replicas_min} must have it "
                "(storage.journal.redis.replicas_min)"
            )

    async def _do(self, what: str, name: str, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run *work* on one connection; translate the errors of the client."""
        from redis.exceptions import RedisError  # noqa: PLC0415

        try:
            if not self._replicas_min:
                return await work(self._client)
            # WAIT is about the changes of its connection.
            async with self._client.client() as connection:
                return await work(connection)
        except (RedisError, OSError) as error:
            raise ObjectsUnavailable(
                f"{self._url}: {what} {name!r} failed: {error or type(error).__name__}"
            ) from error


@asynccontextmanager
async def open_redis(
    url: str,
    options: Mapping[str, str],
    *,
    timeout_s: float,
    concurrency: int,
    replicas_min: int,
) -> AsyncIterator[RedisObjects]:
    """
    Open the objects below the prefix of *url*; this sends no request.

    Raises:
        InvalidConfig: The URL or an option is invalid.
        MissingExtra: The client library is not installed.
    """
    address = parse_store_url(url)
    if address.service != "redis":
        raise InvalidConfig(
            f"{address.url!r} is not the URL of a Redis server; expected "
            "redis://HOST:PORT/PREFIX, or rediss:// for TLS"
        )
    given = service_options(address, options)
    prefix = given.pop("root").strip("/")
    server = given.pop("endpoint")
    if unknown := given.keys() - set(OPTIONS):
        raise InvalidConfig(
            f"{address.url!r} has the unknown options {', '.join(sorted(unknown))}; "
            f"known are {', '.join(OPTIONS)}, and with _file at their end the names "
            "of files with the values"
        )
    require("redis", "a journal in Redis")
    from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415
    from redis.asyncio.retry import Retry  # noqa: PLC0415
    from redis.backoff import NoBackoff  # noqa: PLC0415

    pool = BlockingConnectionPool.from_url(
        server,
        max_connections=concurrency,
        timeout=timeout_s,
        # The server itself waits for replicas.
        socket_timeout=timeout_s * 2 + 1 if replicas_min else timeout_s,
        socket_connect_timeout=timeout_s,
        # The journal finds out what happened before it repeats anything.
        retry=Retry(NoBackoff(), 0),
        **given,
    )
    client = Redis.from_pool(pool)
    try:
        yield RedisObjects(
            client, address.url, f"{{{prefix}}}/", replicas_min, timeout_s
        )
    finally:
        await client.aclose()


def _bytes_of(data: Buffer | pa.Buffer) -> bytes | memoryview:
    return data if isinstance(data, bytes) else memoryview(data)


def _text_of(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value

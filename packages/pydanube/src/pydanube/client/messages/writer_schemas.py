"""
The writer schemas of received messages, fetched on demand and cached.

A version of a subject never changes, so a client fetches each version once.  Messages
are handed out when their schema is known, or known to be missing.  Building a decoder
takes time: it happens when the first value is read, or, if the consumer has a reader
schema, in a thread before that.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pydanube.aio.tasks import TaskScope
from pydanube.client.messages.messages import ReceivedBatch
from pydanube.client.messages.schema import Schema
from pydanube.model.errors import BrokerError, Closed
from pydanube.schemas.language import Decoder

# ruff: noqa: PLC0415  # Only clients that use schemas need the schema languages.

CACHED_SCHEMAS_MAX = 1024
"""The most versions that a client caches."""
FAILURE_CACHED_S = 5.0
"""The time after which a client requests a missing schema again."""

Key = tuple[int, int]
"""Schema id and version."""


class WriterSchema:
    """The schema that some messages were written with, or why it is missing."""

    def __init__(self, found: Schema[Any] | BrokerError) -> None:
        self._found = found
        self._built: dict[Any, Decoder] = {}

    @property
    def is_found(self) -> bool:
        return isinstance(self._found, Schema)

    def decoder(self, cls: Any) -> Decoder:
        """Return the decoder to *cls*, None: to plain values; it is built later."""
        return partial(self._decode, cls)

    def build_decoder(self, cls: Any) -> Decoder:
        """
        Build the decoder now; it may take a while.

        Raises:
            SchemaNotFound: The broker does not have the schema.
            InvalidSchema: This client does not understand the schema.
        """
        if isinstance(self._found, BrokerError):
            raise self._found
        decode = self._built.get(cls)
        if decode is None:
            from pydanube.schemas.class_schemas import is_protobuf
            from pydanube.schemas.value_codecs import protobuf_decoder, value_decoder

            if is_protobuf(cls):
                # The generated class decodes by itself; nothing is to be compiled.
                decode = protobuf_decoder(self._found.type, cls)
            else:
                decode = value_decoder(self._found.parse(), cls)
            self._built[cls] = decode
        return decode

    def _decode(self, cls: Any, payloads: Sequence[bytes]) -> list[Any]:
        return self.build_decoder(cls)(payloads)


async def _refuse(*_: int) -> Schema[Any]:
    raise Closed("the client is closed")


class WriterSchemas:
    """A client's cache of writer schemas, which *fetch* gets from the broker."""

    def __init__(
        self,
        fetch: Callable[[int, int], Awaitable[Schema[Any]]],
        tasks: TaskScope,
        *,
        schemas_max: int = CACHED_SCHEMAS_MAX,
        failure_cached_s: float = FAILURE_CACHED_S,
    ) -> None:
        self._schemas_max = schemas_max
        self._failure_cached_s = failure_cached_s
        self._fetch = fetch
        self._tasks = tasks
        self._cached: OrderedDict[Key, asyncio.Future[WriterSchema]] = OrderedDict()

    def close(self) -> None:
        """Fetch no more schemas."""
        self._fetch = _refuse

    async def load(self, key: Key) -> WriterSchema:
        """Return this version from the cache, or fetch it."""
        loading = self._cached.get(key)
        if loading is None:
            loading = asyncio.get_running_loop().create_future()
            self._cached[key] = loading
            if len(self._cached) > self._schemas_max:
                self._cached.popitem(last=False)
            self._tasks.run(self._load(key, loading), f"schema {key}")
        else:
            self._cached.move_to_end(key)
        return await asyncio.shield(loading)

    async def _load(self, key: Key, loading: asyncio.Future[WriterSchema]) -> None:
        try:
            loading.set_result(WriterSchema(await self._fetch(*key)))
        except BrokerError as error:
            loading.set_result(WriterSchema(error))
            loop = asyncio.get_running_loop()
            loop.call_later(self._failure_cached_s, self._forget, key, loading)
        finally:
            if loading.cancel():
                self._forget(key, loading)

    def _forget(self, key: Key, loading: asyncio.Future[WriterSchema]) -> None:
        if self._cached.get(key) is loading:
            del self._cached[key]


class ValueDecoding:
    """
    Decodes the payloads of one consumer or reader.

    Messages without a schema are decoded as *expected*, the reader schema, if there is
    one.
    """

    def __init__(self, schemas: WriterSchemas, expected: Schema[Any] | None) -> None:
        self._schemas = schemas
        self._has_reader_schema = expected is not None
        self._cls = None if expected is None else expected.cls
        self._default = (
            None if expected is None else WriterSchema(expected).decoder(self._cls)
        )
        self._decoders: dict[Key, Decoder] = {}

    def attach_decoder(self, batch: ReceivedBatch) -> bool:
        """Set the decoder of *batch*, and return False if its schema is not loaded."""
        header = batch.frame.header
        if not header.schema_id:
            batch.decode = self._default
            return True
        decode = self._decoders.get((header.schema_id, header.schema_version))
        if decode is None:
            return False
        batch.decode = decode
        return True

    async def load_decoder(self, batch: ReceivedBatch) -> None:
        """Load the schema of *batch*, and set its decoder, which raises any failure."""
        if self.attach_decoder(batch):
            return
        key = (batch.frame.header.schema_id, batch.frame.header.schema_version)
        schema = await self._schemas.load(key)
        batch.decode = schema.decoder(self._cls)
        if not schema.is_found:
            return
        if self._has_reader_schema:
            # Reading a value raises the same error.
            with suppress(Exception):
                await asyncio.to_thread(schema.build_decoder, self._cls)
        if len(self._decoders) >= CACHED_SCHEMAS_MAX:
            self._decoders.clear()
        self._decoders[key] = batch.decode

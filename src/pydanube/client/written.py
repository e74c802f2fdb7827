"""
The schemas that messages were written with, as consumers need them.

A version of a subject never changes, so each is asked for once and kept.  Messages
are handed out when theirs is known, or known to be missing.  To parse a definition
and to make a decoder of it takes time, which is spent when the first value is looked
at; for a consumer that says what it expects, in a thread before that.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pydanube.client.schema import Schema
from pydanube.model.errors import BrokerError, Closed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from pydanube.aio.tasks import TaskScope
    from pydanube.client.messages import Part
    from pydanube.schemas.language import Decoder

# ruff: noqa: PLC0415  # What knows the languages is needed only by who has schemas.

WRITTEN_MAX = 1024
"""So many versions are kept."""
FAILURE_KEPT_S = 5.0
"""What could not be found is asked for again after so long."""

Key = tuple[int, int]
"""Schema id and version."""


class Written:
    """The schema that some messages were written with, or why it is not there."""

    def __init__(self, found: Schema[Any] | BrokerError) -> None:
        self._found = found
        self._decoders: dict[Any, Decoder] = {}
        # Those that were made, which happens when they are first used.
        self._made: dict[Any, Decoder] = {}

    @property
    def is_there(self) -> bool:
        """Whether there is a schema."""
        return isinstance(self._found, Schema)

    def decoder(self, cls: Any) -> Decoder:
        """What makes values of *cls*, or plain ones; always the same for one class."""
        decode = self._decoders.get(cls)
        if decode is None:
            decode = self._decoders[cls] = partial(self._decode, cls)
        return decode

    def make(self, cls: Any) -> Decoder:
        """
        Make the decoder now; it may take a while.

        Raises:
            SchemaNotFound: The broker does not have the schema.
            InvalidSchema: It is not one that we understand.
        """
        if isinstance(self._found, BrokerError):
            raise self._found
        decode = self._made.get(cls)
        if decode is None:
            from pydanube.schemas.class_schemas import is_protobuf
            from pydanube.schemas.value_codecs import protobuf_decoder, value_decoder

            if is_protobuf(cls):
                # The class knows what it needs; nothing is to be compiled.
                decode = protobuf_decoder(self._found.type, cls)
            else:
                decode = value_decoder(self._found.parse(), cls)
            self._made[cls] = decode
        return decode

    def _decode(self, cls: Any, payloads: Sequence[bytes]) -> list[Any]:
        return (self._made.get(cls) or self.make(cls))(payloads)


async def _refuse(*_: int) -> Schema[Any]:
    raise Closed("the client is closed")


class WrittenSchemas:
    """The schemas that one client has met; *ask* is how it asks for one."""

    def __init__(
        self,
        ask: Callable[[int, int], Awaitable[Schema[Any]]],
        tasks: TaskScope,
    ) -> None:
        self._ask = ask
        self._tasks = tasks
        self._kept: OrderedDict[Key, Written] = OrderedDict()
        self._coming: dict[Key, asyncio.Future[Written]] = {}

    def close(self) -> None:
        """Ask for nothing any more."""
        self._ask = _refuse

    def run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run *work* until it ends or the client does."""
        self._tasks.run(work, name)

    async def load(self, key: Key) -> Written:
        """What is known of this version, after asking for it if need be."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        coming = self._coming.get(key)
        if coming is None:
            coming = asyncio.get_running_loop().create_future()
            self._coming[key] = coming
            self.run(self._fetch(key, coming), f"schema {key}")
        return await asyncio.shield(coming)

    async def _fetch(self, key: Key, coming: asyncio.Future[Written]) -> None:
        try:
            try:
                written = Written(await self._ask(*key))
            except BrokerError as error:
                written = Written(error)
                loop = asyncio.get_running_loop()
                loop.call_later(FAILURE_KEPT_S, self._forget, key, written)
            self._kept[key] = written
            if len(self._kept) > WRITTEN_MAX:
                self._kept.popitem(last=False)
            coming.set_result(written)
        finally:
            del self._coming[key]
            coming.cancel()

    def _forget(self, key: Key, written: Written) -> None:
        if self._kept.get(key) is written:
            del self._kept[key]


class Reading:
    """
    How one consumer or reader makes values of its messages.

    Messages without a schema are taken to be what is *expected*, if anything is.
    """

    def __init__(self, schemas: WrittenSchemas, expected: Schema[Any] | None) -> None:
        self._schemas = schemas
        self._is_expecting = expected is not None
        self._cls = None if expected is None else expected.cls
        self._unlabelled = None if expected is None else self._decoder_of(expected)
        self._ready: dict[Key, Decoder] = {}

    def settle(self, part: Part) -> bool:
        """Give *part* what decodes it; False if that is not known yet."""
        header = part.frame.header
        if not header.schema_id:
            part.decode = self._unlabelled
            return True
        decode = self._ready.get((header.schema_id, header.schema_version))
        if decode is None:
            return False
        part.decode = decode
        return True

    async def prepare(self, part: Part) -> None:
        """Find out what decodes *part*; what goes wrong shows in its values."""
        if self.settle(part):
            return
        key = (part.frame.header.schema_id, part.frame.header.schema_version)
        written = await self._schemas.load(key)
        part.decode = written.decoder(self._cls)
        if not written.is_there:
            return
        if self._is_expecting:
            # Whoever looks at a value hears of it.
            with suppress(Exception):
                await asyncio.to_thread(written.make, self._cls)
        if len(self._ready) >= WRITTEN_MAX:
            self._ready.clear()
        self._ready[key] = part.decode

    def run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run *work* until it ends or the client does."""
        self._schemas.run(work, name)

    def _decoder_of(self, expected: Schema[Any]) -> Decoder:
        return Written(expected).decoder(self._cls)

"""
A source of the objects in a store, such as S3, which appear and do not change.

Objects are read in the order of their names.  The name of the last one, and how far it
was read, are stored with the messages, so each is published exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from enum import Enum
from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pydanube.declarations.pure.sections import Section, parse_duration
from pydanube.model.errors import InvalidConfig
from pydanube.model.quantities import BYTE_UNITS, parse_quantity
from pydanube.objects.addresses import parse_store_url
from pydanube.objects.opening import open_objects
from pydanube.objects.store import Objects
from pydanube_connect.connector import Source
from pydanube_connect.option_problems import duration_problems, size_problems
from pydanube_connect.pure.failures import ConnectorFailed
from pydanube_connect.pure.records import Batch, Record

NAMES_MAX = 1000
"""How many names are listed together."""
READ_BYTES = 4 * 1024 * 1024
BATCH_LINES_MAX = 5000


class ObjectFormat(Enum):
    """The messages that an object becomes."""

    LINES = "lines"
    WHOLE = "whole"


class ObjectsStart(Enum):
    """Where to begin in a store that is read first."""

    EARLIEST = "earliest"
    LATEST = "latest"


class ObjectsOptions(Section, frozen=True, kw_only=True):
    """The options of ``ObjectsSource``."""

    url: Annotated[
        str,
        Meta(
            description="The store, such as `s3://bucket/prefix`, `gcs://bucket`, "
            "`azblob://container` or `fs:///directory`."
        ),
    ]
    store: Annotated[
        dict[str, str],
        Meta(description="The options of the service, as OpenDAL names them."),
    ] = {}
    pattern: Annotated[
        str, Meta(description="The names to read, such as `logs/*.jsonl`.")
    ] = "*"
    format: Annotated[
        ObjectFormat,
        Meta(description="Whether each line is a message, or each object as a whole."),
    ] = ObjectFormat.LINES
    start: Annotated[
        ObjectsStart,
        Meta(description="Where to begin in a store that is read first."),
    ] = ObjectsStart.EARLIEST
    poll: Annotated[
        str, Meta(description="How long to wait when there are no new objects.")
    ] = "10s"
    message_bytes_max: Annotated[
        str,
        Meta(
            description="The maximum size of a message; a longer one becomes a dead "
            "letter."
        ),
    ] = "1MiB"


class ObjectPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a store is published; the position of the batches."""

    name: str = ""
    """The last object."""
    offset: int | None = None
    """The part of it that was read; None: all."""


class ObjectsSource(Source):
    """
    Publishes the objects of a store, such as S3: each line, or each as a whole.

    Delivery: exactly once, in the order of the names. New objects have names after all
    that were read, and objects do not change.
    """

    Options = ObjectsOptions

    @classmethod
    def problems(cls, options: ObjectsOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {}
        try:
            parse_store_url(options.url)
        except InvalidConfig as error:
            found["url"] = str(error)
        found |= duration_problems(options, "poll")
        found |= size_problems(options, "message_bytes_max")
        return found

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield what follows *position*."""
        options: ObjectsOptions = self.options
        poll_s = parse_duration(options.poll)
        reading = Reading(open_objects(options.url, options.store), options)
        if position is None:
            begin = ObjectPosition()
            if options.start is ObjectsStart.LATEST:
                begin = ObjectPosition(name=await reading.last_name())
            yield Batch([], msgspec.to_builtins(begin))
        else:
            begin = reading.parse(position)
        if begin.offset is not None:
            async for batch in reading.read(begin.name, begin.offset):
                yield batch
        name = begin.name
        while True:
            names = await reading.names_after(name)
            for each in names:
                if fnmatchcase(each, options.pattern):
                    async for batch in reading.read(each, 0):
                        yield batch
                name = each
            if len(names) < NAMES_MAX:
                await asyncio.sleep(poll_s)


class Reading:
    """The reading of a store."""

    def __init__(self, objects: Objects, options: ObjectsOptions) -> None:
        self._objects = objects
        self._options = options
        size = parse_quantity(options.message_bytes_max, BYTE_UNITS)
        self._bytes_max = int(size or 0)

    def parse(self, position: Any) -> ObjectPosition:
        """Return a position that was stored."""
        try:
            return msgspec.convert(position, ObjectPosition)
        except msgspec.ValidationError as error:
            raise ConnectorFailed(f"the stored position is invalid: {error}") from error

    async def names_after(self, name: str) -> list[str]:
        """Return the next names, sorted."""
        return await self._objects.names("", after=name, count_max=NAMES_MAX)

    async def last_name(self) -> str:
        """Return the last name of all."""
        last = ""
        while names := await self.names_after(last):
            last = names[-1]
        return last

    async def read(self, name: str, offset: int) -> AsyncIterator[Batch]:
        """Yield the messages of an object from *offset* on."""
        if self._options.format is ObjectFormat.WHOLE:
            data = await self._objects.read(name, 0, self._bytes_max + 1)
            if data is not None:
                yield self._batch(name, [(0, bytes(data))], None)
            return
        # What is longer than a message may be is not kept; its size counts.
        rest, rest_size, begin = b"", 0, offset
        while block := await self._objects.read(name, offset, offset + READ_BYTES):
            offset += len(block)
            *lines, last = bytes(block).split(b"\n")
            if not lines:
                rest, rest_size = self._longer(rest, last), rest_size + len(last)
                continue
            sizes = [len(each) + 1 for each in lines]
            sizes[0] += rest_size
            lines[0] = self._longer(rest, lines[0])
            rest, rest_size = self._longer(b"", last), len(last)
            numbered = []
            for line, size in zip(lines, sizes, strict=True):
                numbered.append((begin, line))
                begin += size
                if len(numbered) == BATCH_LINES_MAX:
                    yield self._batch(name, numbered, begin)
                    numbered = []
            if numbered:
                yield self._batch(name, numbered, begin)
        yield self._batch(name, [(begin, rest)] if rest else [], None)

    def _longer(self, line: bytes, more: bytes) -> bytes:
        """Return *line* with *more*, until it is longer than a message may be."""
        return line + more[: max(0, self._bytes_max + 1 - len(line))]

    def _batch(
        self, name: str, messages: list[tuple[int, bytes]], offset: int | None
    ) -> Batch:
        is_line = self._options.format is ObjectFormat.LINES
        records = []
        for at, value in messages:
            problem = None
            if len(value) > self._bytes_max:
                problem = (
                    f"the message at {at} of {name} is longer than "
                    f"{self._options.message_bytes_max}: raise 'message_bytes_max'"
                )
                value = value[: self._bytes_max]  # noqa: PLW2901
            attributes = {"object.name": name}
            if is_line:
                attributes["object.offset"] = str(at)
            content = value.removesuffix(b"\r") if is_line else value
            records.append(
                Record(value=content, attributes=attributes, problem=problem)
            )
        position = ObjectPosition(name=name, offset=offset)
        return Batch(records, msgspec.to_builtins(position))

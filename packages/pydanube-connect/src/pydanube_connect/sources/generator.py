"""A source that counts, for tests and demonstrations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from msgspec import Meta

from pydanube.declarations.pure.sections import Section
from pydanube_connect.connector import Source
from pydanube_connect.pure.records import Batch, Record

BATCH_S = 0.1
"""Slow generators yield a batch this often."""


class GeneratorOptions(Section, frozen=True):
    """The options of ``Generator``."""

    count: Annotated[
        int | None, Meta(description="How many messages there are; none: no end.")
    ] = None
    rate: Annotated[
        float | None,
        Meta(description="Messages in a second; none: as fast as possible."),
    ] = None
    keys: Annotated[
        int, Meta(description="The number of different keys; 0: no keys.")
    ] = 0
    padding: Annotated[
        int, Meta(description="The size of the field `padding`, in bytes.")
    ] = 0


class Generator(Source):
    """
    Counts: publishes objects with a rising `number`, for tests and demonstrations.

    Its position is the next number.
    """

    Options = GeneratorOptions

    @classmethod
    def problems(cls, options: GeneratorOptions) -> dict[str, str]:
        """Return the numbers that are out of range."""
        found = {
            name: "must be at least 0"
            for name in ("count", "keys", "padding")
            if (getattr(options, name) or 0) < 0
        }
        if options.rate is not None and options.rate <= 0:
            found["rate"] = "must be more than 0"
        return found

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield the numbers from *position* on."""
        options: GeneratorOptions = self.options
        number = position or 0
        step = 1000 if options.rate is None else max(1, int(options.rate * BATCH_S))
        while options.count is None or number < options.count:
            end = number + step
            if options.count is not None:
                end = min(end, options.count)
            yield Batch([self._record(each) for each in range(number, end)], end)
            if options.rate is not None:
                await asyncio.sleep((end - number) / options.rate)
            number = end

    def _record(self, number: int) -> Record:
        options: GeneratorOptions = self.options
        value: dict[str, Any] = {"number": number}
        if options.padding:
            value["padding"] = "x" * options.padding
        key = str(number % options.keys) if options.keys else None
        return Record(value=value, key=key)

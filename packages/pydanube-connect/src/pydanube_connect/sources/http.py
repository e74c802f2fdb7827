"""
A source that asks a web server regularly.

A field of the items that rises says which of them are new; its last value is stored
with the messages, so each item is published exactly once.  Without such a field, the
whole answer is published whenever it has changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from pydanube.declarations.pure.sections import Section, parse_duration
from pydanube.model.errors import InvalidRequest
from pydanube.model.field_paths import ABSENT, Path, find_field, parse_path
from pydanube.model.quantities import BYTE_UNITS, parse_quantity
from pydanube_connect.connector import Source
from pydanube_connect.option_problems import (
    duration_problems,
    http_problems,
    size_problems,
)
from pydanube_connect.pure.failures import JSON_ERRORS, ConnectorFailed, Transient
from pydanube_connect.pure.records import Batch, Record
from pydanube_connect.pure.retry_after import wait_asked_s

if TYPE_CHECKING:
    import httpx  # An extra.

ITEMS_MAX = 100_000
"""How many new items may be found at once."""
PAGES_MAX = 1000
BATCH_ITEMS_MAX = 1000
UNUSABLE_MAX = 10_000
"""How many items that cannot be compared are remembered."""
PROBLEM_MAX = 300
SHOWN_CHARACTERS_MAX = 200
RETRYABLE = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed."""


class HttpSourceOptions(Section, frozen=True, kw_only=True):
    """The options of ``HttpSource``."""

    url: Annotated[str, Meta(description="The URL to ask.")]
    headers: Annotated[
        dict[str, str],
        Meta(description="Headers of the requests, such as `Authorization`."),
    ] = {}
    items: Annotated[
        str | None,
        Meta(
            description="The field of the answer with the items; by default the answer "
            "is an array of them, or one item."
        ),
    ] = None
    cursor: Annotated[
        str | None,
        Meta(
            description="A field of the items whose value is higher in each new one, "
            "such as a number or a time. Without it, all items are published when the "
            "answer has changed."
        ),
    ] = None
    parameter: Annotated[
        str | None,
        Meta(
            description="The parameter of the URL that tells the server the last value "
            "of `cursor`."
        ),
    ] = None
    poll: Annotated[str, Meta(description="How long to wait between requests.")] = "1m"
    timeout: Annotated[str, Meta(description="The timeout of a request.")] = "30s"
    answer_bytes_max: Annotated[
        str, Meta(description="The maximum size of an answer.")
    ] = "16MiB"


class HttpSource(Source):
    """
    Asks a web server regularly, and publishes new items of its JSON answers.

    Delivery: exactly once, in the order of `cursor`.
    """

    Options = HttpSourceOptions
    extra = "connect"

    @classmethod
    def problems(cls, options: HttpSourceOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = http_problems(options.url)
        for name in ("items", "cursor"):
            text = getattr(options, name)
            try:
                _ = text is None or parse_path(text)
            except InvalidRequest as error:
                found[name] = str(error)
        if options.parameter is not None and options.cursor is None:
            found["parameter"] = "needs 'cursor'"
        found |= duration_problems(options, "poll", "timeout")
        found |= size_problems(options, "answer_bytes_max")
        return found

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Yield new items after *position*, the last value of the cursor."""
        import httpx  # noqa: PLC0415

        options: HttpSourceOptions = self.options
        polling = _Polling(options, position)
        async with httpx.AsyncClient(
            timeout=parse_duration(options.timeout),
            headers=options.headers,
            follow_redirects=True,
        ) as client:
            while True:
                try:
                    for batch in await polling.ask(client):
                        yield batch
                except httpx.HTTPError as error:
                    text = f"no answer: {type(error).__name__}: {error}"
                    raise Transient(text) from error
                await asyncio.sleep(parse_duration(options.poll))


class _Polling:
    """The questions to a server, and how far its answers are published."""

    def __init__(self, options: HttpSourceOptions, position: Any) -> None:
        self._options = options
        self._position = position
        # The first value that was seen, while there is no position.
        self._first: Any = None
        self._unusable: list[Record] = []
        self._noted: set[bytes] = set()
        self._items = None if options.items is None else parse_path(options.items)
        self._cursor = None if options.cursor is None else parse_path(options.cursor)
        self._bytes_max = int(parse_quantity(options.answer_bytes_max, BYTE_UNITS) or 0)

    async def ask(self, client: httpx.AsyncClient) -> list[Batch]:
        """Return what is new, in batches."""
        if self._cursor is None:
            return await self._changed(client)
        return await self._new(client, self._cursor)

    async def _changed(self, client: httpx.AsyncClient) -> list[Batch]:
        body, _ = await self._get(client, self._options.url, {})
        digest = hashlib.sha256(body).hexdigest()
        if digest == self._position:
            return []
        self._position = digest
        # One batch: the position says that all of them are published.
        return [Batch([Record(value=each) for each in self._items_in(body)], digest)]

    async def _new(self, client: httpx.AsyncClient, cursor: Path) -> list[Batch]:
        options = self._options
        parameters = {}
        if options.parameter is not None and self._position is not None:
            parameters[options.parameter] = str(self._position)
        found: list[tuple[Any, Any]] = []
        url: str | None = options.url
        pages = 0
        while url is not None:
            body, following = await self._get(client, url, parameters)
            new = self._new_in(self._items_in(body), cursor)
            found += new
            pages += 1
            if len(found) > ITEMS_MAX or pages > PAGES_MAX:
                raise ConnectorFailed(
                    f"there are more than {ITEMS_MAX:,} new items or {PAGES_MAX:,} "
                    "pages: use 'parameter', so that the server sends new items only"
                )
            url = following if new else None
            parameters = {}
        found.sort(key=lambda each: each[0])
        batches = self._batches_of(found)
        if self._unusable and self._position is None:
            # Not even one can be compared, so the option is wrong.
            raise ConnectorFailed(self._unusable[0].problem)
        if self._unusable:
            batches.append(Batch(self._unusable, self._position))
            self._unusable = []
        return batches

    def _new_in(self, items: list[Any], cursor: Path) -> list[tuple[Any, Any]]:
        """Return new items with their values; note those that cannot be compared."""
        name = self._options.cursor
        new = []
        for item in items:
            value = find_field(item, cursor)
            is_usable = isinstance(value, int | float | str) and value is not True
            if not is_usable or value is False:
                self._note_unusable(item, f"the item has no number or text in {name!r}")
                continue
            if self._position is None:
                self._first = value if self._first is None else self._first
            known = self._first if self._position is None else self._position
            if isinstance(value, str) is not isinstance(known, str):
                self._note_unusable(
                    item,
                    f"the value {value!r} of {name!r} cannot be compared with another "
                    f"one, {known!r}",
                )
            elif self._position is None or value > self._position:
                new.append((value, item))
        return new

    def _note_unusable(self, item: Any, problem: str) -> None:
        """
        Make *item* a dead letter, unless it was one in this run.

        A server shows it again and again, and it has no value to remember.
        """
        digest = hashlib.sha256(repr(item).encode(errors="replace")).digest()
        if digest in self._noted:
            return
        if len(self._noted) >= UNUSABLE_MAX:
            self._noted.clear()
        self._noted.add(digest)
        self._unusable.append(Record(value=item, problem=problem[:PROBLEM_MAX]))

    def _batches_of(self, found: list[tuple[Any, Any]]) -> list[Batch]:
        """Return sorted items in batches, which do not end between equal values."""
        batches = []
        start = 0
        while start < len(found):
            end = min(start + BATCH_ITEMS_MAX, len(found))
            while end < len(found) and found[end][0] == found[end - 1][0]:
                end += 1
            self._position = found[end - 1][0]
            records = [Record(value=item) for _, item in found[start:end]]
            batches.append(Batch(records, self._position))
            start = end
        return batches

    def _items_in(self, body: bytes) -> list[Any]:
        try:
            value = msgspec.json.decode(body)
        except JSON_ERRORS as error:
            try:
                # Halves of characters are an error of their items only.
                value = json.loads(body, parse_constant=_refuse, parse_float=_finite)
            except (ValueError, RecursionError):
                raise Transient(f"the answer is no JSON: {error}") from error
        if self._items is not None:
            value = find_field(value, self._items)
            if value is ABSENT:
                raise ConnectorFailed(f"the answer has no {self._options.items!r}")
        return value if isinstance(value, list) else [value]

    async def _get(
        self, client: httpx.AsyncClient, url: str, parameters: dict[str, str]
    ) -> tuple[bytes, str | None]:
        """Return the body of the answer, and the URL of the next page."""
        given: Any = parameters or None
        async with client.stream("GET", url, params=given) as answer:
            body = bytearray()
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > self._bytes_max:
                    raise ConnectorFailed(
                        "the answer is larger than 'answer_bytes_max', "
                        f"{self._options.answer_bytes_max}"
                    )
            status = answer.status_code
            if not answer.is_success:
                text = " ".join(bytes(body).decode(errors="replace").split())
                reason = f"the server answers {status}: {text[:SHOWN_CHARACTERS_MAX]}"
                if status >= 500 or status in RETRYABLE:
                    asked_s = wait_asked_s(answer.headers, time.time_ns() / 1e9)
                    raise Transient(reason, retry_after_s=asked_s)
                raise ConnectorFailed(reason)
            following = answer.links.get("next", {}).get("url")
            if following is not None:
                following = str(answer.url.join(following))
                # The headers may have a secret.
                if urlsplit(following)[:2] != urlsplit(str(answer.url))[:2]:
                    raise ConnectorFailed(
                        f"the next page is on another server: {following}"
                    )
            return bytes(body), following


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number

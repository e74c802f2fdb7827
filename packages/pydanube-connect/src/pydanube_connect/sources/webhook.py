"""
A source of webhooks: an HTTP listener of its own.

A request is answered after its messages are on the broker's disk.  A sender that gets
no answer, or 503, sends the request again; with an id in a header or in the body, and
``deduplicate``, the message is stored once.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
import time
from collections.abc import AsyncIterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pydanube.aio.certificates import load_certificate
from pydanube.declarations.pure.sections import Section, parse_duration
from pydanube.model.errors import InvalidConfig
from pydanube.model.quantities import BYTE_UNITS, parse_quantity
from pydanube.model.token_bucket import TokenBucket
from pydanube.security.addresses import parse_listen
from pydanube_connect.channel import Inbox
from pydanube_connect.connector import Source
from pydanube_connect.option_problems import (
    duration_problems,
    file_problems,
    size_problems,
)
from pydanube_connect.pure.failures import JSON_ERRORS, Transient
from pydanube_connect.pure.records import Batch, Record
from pydanube_connect.sources.pure.signatures import Signature, is_signed

if TYPE_CHECKING:
    from starlette.applications import Starlette  # An extra.
    from starlette.requests import Request
    from starlette.responses import Response

CONNECTIONS_MAX = 1000
"""Requests on further connections are answered with 503."""
STOP_S = 10
"""How long running requests may take when the connector stops."""
RETRY_AFTER_S = 1


class Body(Enum):
    """The messages in the body of a request."""

    MESSAGE = "message"
    """One message, of any content."""
    ARRAY = "array"
    """A JSON array, each item of which is a message."""
    LINES = "lines"
    """A message on each line."""


class WebhookOptions(Section, frozen=True):
    """The options of ``WebhookSource``."""

    listen: Annotated[str, Meta(description="The address, such as `0.0.0.0:8090`.")] = (
        "127.0.0.1:8090"
    )
    path: Annotated[str, Meta(description="The path of the requests.")] = "/"
    signature: Annotated[
        Signature | None,
        Meta(description="The signature that requests must have; by default none."),
    ] = None
    api_keys: Annotated[
        list[str],
        Meta(
            description="Keys of senders: a request must have one, as `Authorization: "
            "Bearer KEY` or `X-Api-Key: KEY`."
        ),
    ] = []
    body: Annotated[
        Body,
        Meta(
            description="The content of a body: one message, a JSON array of "
            "messages, or a message on each line."
        ),
    ] = Body.MESSAGE
    id_header: Annotated[
        str | None,
        Meta(
            description="The header with the id of the message, such as "
            "`X-GitHub-Delivery`; needs `deduplicate`."
        ),
    ] = None
    headers: Annotated[
        list[str],
        Meta(description="Headers that become attributes `webhook.header.NAME`."),
    ] = []
    body_bytes_max: Annotated[
        str, Meta(description="The maximum size of a body; 413 above it.")
    ] = "1MiB"
    rate: Annotated[
        float | None,
        Meta(description="The maximum number of requests in a second; 429 above it."),
    ] = None
    timeout: Annotated[
        str,
        Meta(description="How long a request may take; 503 after it."),
    ] = "30s"
    certificate_file: Annotated[
        str | None, Meta(description="The certificate for HTTPS, with its `key_file`.")
    ] = None
    key_file: Annotated[str | None, Meta(description="The key for HTTPS.")] = None


class WebhookSource(Source):
    """
    Receives HTTP requests, and answers them when their messages are on disk.

    Delivery: at least once; once for messages with ids in a topic that deduplicates.
    """

    Options = WebhookOptions
    extra = "connect"
    has_positions = False
    refuses = True

    @classmethod
    def problems(cls, options: WebhookOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = {}
        try:
            parse_listen(options.listen)
        except InvalidConfig as error:
            found["listen"] = str(error)
        if not options.path.startswith("/"):
            found["path"] = f"{options.path!r} does not begin with a slash"
        found |= size_problems(options, "body_bytes_max")
        if options.rate is not None and options.rate <= 0:
            found["rate"] = "must be more than 0"
        if options.signature is not None and not all(options.signature.secrets):
            found["signature"] = "the secret is empty"
        if not all(options.api_keys):
            found["api_keys"] = "a key is empty"
        found |= duration_problems(options, "timeout")
        if (options.certificate_file is None) is not (options.key_file is None):
            found["key_file"] = "belongs together with certificate_file"
        return found | file_problems(options, "certificate_file", "key_file")

    async def check(self) -> None:
        """Listen, and stop again."""
        from pydanube.aio.http_server import listener_at  # noqa: PLC0415

        listener_at(*parse_listen(self.options.listen)).close()

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Listen, and yield what requests bring."""
        from pydanube.aio.http_server import config_of, listener_at, serving  # noqa: PLC0415

        del position
        options: WebhookOptions = self.options
        inbox = Inbox()
        listener = listener_at(*parse_listen(options.listen))
        config = config_of(
            _Handler(options, inbox).app(),
            http="h11",
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=STOP_S,
        )
        if options.certificate_file and options.key_file:
            config.load()
            config.ssl = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            load_certificate(config.ssl, options.certificate_file, options.key_file)
        async with serving(config, listener):
            try:
                async for batch in inbox.batches():
                    yield batch
            finally:
                inbox.close()


class _Refused(Exception):
    """A request is answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Handler:
    def __init__(self, options: WebhookOptions, inbox: Inbox) -> None:
        self._options = options
        self._inbox = inbox
        self._bytes_max = int(parse_quantity(options.body_bytes_max, BYTE_UNITS) or 0)
        self._timeout_s = parse_duration(options.timeout)
        self._clock = asyncio.get_running_loop().time
        self._bucket = (
            None if options.rate is None else TokenBucket(options.rate, self._clock())
        )

    def app(self) -> Starlette:
        from starlette.applications import Starlette  # noqa: PLC0415
        from starlette.routing import Route  # noqa: PLC0415

        route = Route(self._options.path, self.answer, methods=["POST"])
        return Starlette(routes=[route])

    async def answer(self, request: Request) -> Response:
        """Answer a request after its messages are stored."""
        from starlette.responses import JSONResponse  # noqa: PLC0415

        headers = {}
        try:
            async with asyncio.timeout(self._timeout_s):
                self._check_key(request)
                self._check_rate()
                records = self._records(request, await self._body(request))
                refusals = await self._inbox.deliver(records) if records else {}
        except _Refused as error:
            if error.status == 429:
                headers["retry-after"] = str(RETRY_AFTER_S)
            return JSONResponse({"error": str(error)}, error.status, headers)
        except (Transient, TimeoutError) as error:
            headers["retry-after"] = str(RETRY_AFTER_S)
            reason = f"the messages are not stored: {str(error) or 'timeout'}"
            return JSONResponse({"error": reason}, 503, headers)
        stored = len(records) - len(refusals)
        if not refusals:
            return JSONResponse({"stored": stored})
        reasons = {str(at): reason for at, reason in sorted(refusals.items())}
        first = next(iter(reasons.values()))
        return JSONResponse({"error": first, "stored": stored, "refused": reasons}, 422)

    def _check_rate(self) -> None:
        if self._bucket is None:
            return
        if not self._bucket.available(self._clock()):
            raise _Refused(429, f"more than {self._options.rate} requests in a second")
        self._bucket.spend(1)

    def _check_key(self, request: Request) -> None:
        if not self._options.api_keys:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            given = request.headers.get("x-api-key", "")
        is_known = False
        for key in self._options.api_keys:
            # All are compared, each in constant time.
            is_known |= hmac.compare_digest(key.encode(), given.strip().encode())
        if not is_known:
            raise _Refused(401, "the request has no valid API key")

    async def _body(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > self._bytes_max:
            raise self._too_large()
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._bytes_max:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> _Refused:
        return _Refused(413, f"the body has more than {self._bytes_max} bytes")

    def _records(self, request: Request, body: bytes) -> list[Record]:
        options = self._options
        signature = options.signature
        if signature is not None and not is_signed(
            signature, request.headers, body, time.time_ns() / 1e9
        ):
            raise _Refused(401, "the signature is missing or wrong")
        attributes = {
            "webhook.path": request.scope["path"],
            "webhook.content_type": request.headers.get("content-type", ""),
        }
        for name in options.headers:
            if name in request.headers:
                attributes[f"webhook.header.{name.lower()}"] = request.headers[name]
        id_ = None
        if options.id_header is not None:
            id_ = request.headers.get(options.id_header)
        values = _values(body, options.body)
        return [
            Record(
                value=value,
                attributes=attributes,
                id=id_ if id_ is None or len(values) == 1 else f"{id_}-{number}",
            )
            for number, value in enumerate(values)
        ]


def _values(body: bytes, kind: Body) -> list[Any]:
    if kind is Body.MESSAGE:
        return [body]
    if kind is Body.LINES:
        return [line for line in body.splitlines() if line.strip()]
    try:
        return [
            bytes(each) for each in msgspec.json.decode(body, type=list[msgspec.Raw])
        ]
    except JSON_ERRORS as error:
        raise _Refused(400, f"the body is not a JSON array: {error}") from error

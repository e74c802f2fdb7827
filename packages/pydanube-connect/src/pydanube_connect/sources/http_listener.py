"""The listener of sources that receive requests: its options, checks and limits."""

from __future__ import annotations

import asyncio
import hmac
import ssl
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

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
from pydanube_connect.pure.records import Batch

if TYPE_CHECKING:
    from starlette.requests import Request  # An extra.
    from starlette.responses import Response

CONNECTIONS_MAX = 1000
"""Requests on further connections are answered with 503."""
HELD_BYTES_MAX = 64 * 1024 * 1024
"""How large the bodies of all requests are together; 503 above it."""
STOP_S = 10
"""How long running requests may take when the connector stops."""
RETRY_AFTER_S = 1


class ListenerOptions(Section, frozen=True):
    """The options that sources with a listener share."""

    listen: Annotated[str, Meta(description="The address, such as `0.0.0.0:8090`.")] = (
        "127.0.0.1:8090"
    )
    path: Annotated[str, Meta(description="The path of the requests.")] = "/"
    api_keys: Annotated[
        list[str],
        Meta(
            description="Keys of senders: a request must have one, as `Authorization: "
            "Bearer KEY` or `X-Api-Key: KEY`."
        ),
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


def listener_problems(options: ListenerOptions) -> dict[str, str]:
    """Return what is wrong with the listener, by option."""
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
    if not all(options.api_keys):
        found["api_keys"] = "a key is empty"
    found |= duration_problems(options, "timeout")
    if (options.certificate_file is None) is not (options.key_file is None):
        found["key_file"] = "belongs together with certificate_file"
    return found | file_problems(options, "certificate_file", "key_file")


class ListenerSource(Source):
    """A source of what requests to an HTTP listener of its own bring."""

    has_positions = False
    refuses = True

    @abstractmethod
    def answering(self, inbox: Inbox) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers requests after their messages in *inbox* are stored."""

    async def check(self) -> None:
        """
        Listen, and stop again.

        Raises:
            OSError: The address is not available.
        """
        from pydanube.aio.http_server import listener_at  # noqa: PLC0415

        listener_at(*parse_listen(self.options.listen)).close()

    async def batches(self, position: Any) -> AsyncIterator[Batch]:
        """Listen, and yield what requests bring."""
        from starlette.applications import Starlette  # noqa: PLC0415
        from starlette.routing import Route  # noqa: PLC0415

        from pydanube.aio.http_server import (  # noqa: PLC0415
            config_of,
            listener_at,
            serving,
        )

        del position
        options, inbox = self.options, Inbox()
        listener = listener_at(*parse_listen(options.listen))
        route = Route(options.path, self.answering(inbox), methods=["POST"])
        config = config_of(
            Starlette(routes=[route]),
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


class Refused(Exception):
    """A request is answered with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        is_temporary = self.status in {429, 503}
        return {"retry-after": str(RETRY_AFTER_S)} if is_temporary else {}


class Admission:
    """
    The checks that requests pass: a key, the rate, and the size of the body.

    Bounds: The bodies of all requests at the same time have at most *held_bytes_max*,
        or as much as one body may have, if that is more.
    """

    def __init__(
        self, options: ListenerOptions, *, held_bytes_max: int = HELD_BYTES_MAX
    ) -> None:
        self._options = options
        self._held_bytes = 0
        self._bytes_max = int(parse_quantity(options.body_bytes_max, BYTE_UNITS) or 0)
        self._held_bytes_max = max(held_bytes_max, self._bytes_max)
        self.timeout_s = parse_duration(options.timeout)
        self._clock = asyncio.get_running_loop().time
        self._bucket = (
            None if options.rate is None else TokenBucket(options.rate, self._clock())
        )

    @asynccontextmanager
    async def admitted(self, request: Request) -> AsyncIterator[bytes]:
        """
        Yield the body of *request*, which counts until the block ends.

        Raises:
            Refused: It has no valid key, comes too early, or is too large, alone or
                with the bodies of others.
        """
        self._check_key(request)
        self._check_rate()
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > self._bytes_max:
            raise self._too_large()
        body = bytearray()
        held_bytes = 0
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > self._bytes_max:
                    raise self._too_large()
                if self._held_bytes + len(chunk) > self._held_bytes_max:
                    raise Refused(
                        503,
                        f"the requests of this moment have more than "
                        f"{self._held_bytes_max} bytes",
                    )
                self._held_bytes += len(chunk)
                held_bytes += len(chunk)
            yield bytes(body)
        finally:
            self._held_bytes -= held_bytes

    def _check_rate(self) -> None:
        if self._bucket is None:
            return
        if not self._bucket.available(self._clock()):
            raise Refused(429, f"more than {self._options.rate} requests in a second")
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
            raise Refused(401, "the request has no valid API key")

    def _too_large(self) -> Refused:
        return Refused(413, f"the body has more than {self._bytes_max} bytes")

"""
A source of logs that OpenTelemetry's exporters and collectors send: OTLP over HTTP.

A request is answered after its records are on the broker's disk.  A sender that gets no
answer, or 429 or 503, sends the request again.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from pydanube.model.quantities import BYTE_UNITS, parse_quantity
from pydanube_connect.channel import Inbox
from pydanube_connect.option_problems import size_problems
from pydanube_connect.pure.failures import Transient
from pydanube_connect.pure.records import Record
from pydanube_connect.sources.http_listener import (
    Admission,
    ListenerOptions,
    ListenerSource,
    Refused,
    listener_problems,
)
from pydanube_connect.sources.pure.otlp_logs import (
    InvalidLogs,
    TooManyLogs,
    answer_body,
    error_body,
    records_in_json,
    records_in_protobuf,
)

if TYPE_CHECKING:
    from starlette.requests import Request  # An extra.
    from starlette.responses import Response

REQUESTS_MAX = 64
"""Further requests at the same time are answered with 503."""
JSON, PROTOBUF = "application/json", "application/x-protobuf"
_AUTOMATIC = zlib.MAX_WBITS | 32
"""The format of zlib or of gzip, as the data says."""


class OtlpOptions(ListenerOptions, frozen=True):
    """The options of ``OtlpSource``."""

    listen: Annotated[str, Meta(description="The address, such as `0.0.0.0:4318`.")] = (
        "127.0.0.1:4318"
    )
    path: Annotated[str, Meta(description="The path of the requests.")] = "/v1/logs"
    body_bytes_max: Annotated[
        str, Meta(description="The maximum size of a body; 413 above it.")
    ] = "4MiB"
    decoded_bytes_max: Annotated[
        str,
        Meta(description="The maximum size of a body that was compressed; 413 above."),
    ] = "8MiB"


class OtlpSource(ListenerSource):
    """
    Receives logs by OTLP over HTTP, and answers when they are on disk.

    Delivery: at least once; a sender that gets no answer sends its logs again.
    """

    Options = OtlpOptions
    extra = "otlp"

    @classmethod
    def problems(cls, options: OtlpOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = listener_problems(options)
        return found | size_problems(options, "decoded_bytes_max")

    def answering(self, inbox: Inbox) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers requests; see ``ListenerSource``."""
        return _Handler(self.options, inbox).answer


class _Handler:
    def __init__(self, options: OtlpOptions, inbox: Inbox) -> None:
        self._inbox = inbox
        self._admission = Admission(options)
        size = parse_quantity(options.decoded_bytes_max, BYTE_UNITS)
        self._decoded_bytes_max = int(size or 0)
        self._requests = 0
        # Decoded requests are much larger than their bytes.
        self._decoding = asyncio.Semaphore(1)
        self._held_bytes = 0
        self._released = asyncio.Condition()

    async def answer(self, request: Request) -> Response:
        """Answer a request after its records are stored."""
        from starlette.responses import Response  # noqa: PLC0415

        is_json = _content_type(request) == JSON
        headers = {"content-type": JSON if is_json else PROTOBUF}
        self._requests += 1
        try:
            async with asyncio.timeout(self._admission.timeout_s):
                async with self._decoded(request, is_json=is_json) as records:
                    refusals = await self._inbox.deliver(records) if records else {}
        except Refused as error:
            body = error_body(is_json=is_json, reason=str(error))
            return Response(body, error.status, headers | error.headers)
        except (Transient, TimeoutError) as error:
            reason = f"the logs are not stored: {str(error) or 'timeout'}"
            body = error_body(is_json=is_json, reason=reason)
            return Response(body, 503, headers | Refused(503, reason).headers)
        finally:
            self._requests -= 1
        first = next(iter(refusals.values()), "")
        body = answer_body(is_json=is_json, refused=len(refusals), reason=first)
        return Response(body, headers=headers)

    @asynccontextmanager
    async def _decoded(
        self, request: Request, *, is_json: bool
    ) -> AsyncIterator[list[Record]]:
        """
        Decode a request, whose records are in memory during the body.

        Bounds: Requests together have as many decompressed bytes in memory as one may
            have, or are alone.
        """
        if self._requests > REQUESTS_MAX:
            raise Refused(503, f"more than {REQUESTS_MAX} requests at the same time")
        if not is_json and _content_type(request) != PROTOBUF:
            raise Refused(415, f"the content type is neither {PROTOBUF} nor {JSON}")
        encoding = request.headers.get("content-encoding", "identity").lower()
        read = records_in_json if is_json else records_in_protobuf
        async with AsyncExitStack() as stack:
            admitted = self._admission.admitted(request)
            body = await stack.enter_async_context(admitted)
            async with self._decoding:
                if encoding != "identity":
                    # Other requests are received meanwhile.
                    body = await asyncio.to_thread(
                        _decompressed, body, encoding, self._decoded_bytes_max
                    )
                await stack.enter_async_context(self._held(len(body)))
                records = await asyncio.to_thread(_read, read, body)
            yield records

    @asynccontextmanager
    async def _held(self, byte_count: int) -> AsyncIterator[None]:
        bytes_max = self._decoded_bytes_max

        def has_room() -> bool:
            held = self._held_bytes
            return not held or held + byte_count <= bytes_max

        async with self._released:
            await self._released.wait_for(has_room)
            self._held_bytes += byte_count
        try:
            yield
        finally:
            self._held_bytes -= byte_count
            async with self._released:
                self._released.notify_all()


def _read(read: Callable[[bytes], list[Record]], body: bytes) -> list[Record]:
    try:
        return read(body)
    except InvalidLogs as error:
        raise Refused(400, str(error)) from error
    except TooManyLogs as error:
        raise Refused(413, str(error)) from error


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _decompressed(body: bytes, encoding: str, bytes_max: int) -> bytes:
    if encoding not in {"gzip", "deflate"}:
        raise Refused(415, f"the content encoding {encoding!r} is not gzip or deflate")
    stream = zlib.decompressobj(_AUTOMATIC)
    try:
        found = stream.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise Refused(400, f"the body is not {encoding}: {error}") from error
    if len(found) > bytes_max:
        raise Refused(413, f"the decompressed body has more than {bytes_max} bytes")
    if not stream.eof or stream.unused_data:
        raise Refused(400, f"the body is not one {encoding} stream")
    return found

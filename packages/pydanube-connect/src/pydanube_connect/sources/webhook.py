"""
A source of webhooks: an HTTP listener of its own.

A request is answered after its messages are on the broker's disk.  A sender that gets
no answer, or 503, sends the request again; with an id in a header or in the body, and
``deduplicate``, the message is stored once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from pydanube_connect.channel import Inbox
from pydanube_connect.pure.failures import JSON_ERRORS, Transient
from pydanube_connect.pure.records import Record
from pydanube_connect.sources.http_listener import (
    Admission,
    ListenerOptions,
    ListenerSource,
    Refused,
    listener_problems,
)
from pydanube_connect.sources.pure.signatures import Signature, is_signed

if TYPE_CHECKING:
    from starlette.requests import Request  # An extra.
    from starlette.responses import Response


class Body(Enum):
    """The messages in the body of a request."""

    MESSAGE = "message"
    """One message, of any content."""
    ARRAY = "array"
    """A JSON array, each item of which is a message."""
    LINES = "lines"
    """A message on each line."""


class WebhookOptions(ListenerOptions, frozen=True):
    """The options of ``WebhookSource``."""

    signature: Annotated[
        Signature | None,
        Meta(description="The signature that requests must have; by default none."),
    ] = None
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


class WebhookSource(ListenerSource):
    """
    Receives HTTP requests, and answers them when their messages are on disk.

    Delivery: at least once; once for messages with ids in a topic that deduplicates.
    """

    Options = WebhookOptions
    extra = "connect"

    @classmethod
    def problems(cls, options: WebhookOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = listener_problems(options)
        if options.signature is not None and not all(options.signature.secrets):
            found["signature"] = "the secret is empty"
        return found

    def answering(self, inbox: Inbox) -> Callable[[Request], Awaitable[Response]]:
        """Return what answers requests; see ``ListenerSource``."""
        return _Handler(self.options, inbox).answer


class _Handler:
    def __init__(self, options: WebhookOptions, inbox: Inbox) -> None:
        self._options = options
        self._inbox = inbox
        self._admission = Admission(options)

    async def answer(self, request: Request) -> Response:
        """Answer a request after its messages are stored."""
        from starlette.responses import JSONResponse  # noqa: PLC0415

        try:
            async with (
                asyncio.timeout(self._admission.timeout_s),
                self._admission.admitted(request) as body,
            ):
                records = self._records(request, body)
                refusals = await self._inbox.deliver(records) if records else {}
        except Refused as error:
            return JSONResponse({"error": str(error)}, error.status, error.headers)
        except (Transient, TimeoutError) as error:
            reason = f"the messages are not stored: {str(error) or 'timeout'}"
            return JSONResponse({"error": reason}, 503, Refused(503, reason).headers)
        stored = len(records) - len(refusals)
        if not refusals:
            return JSONResponse({"stored": stored})
        reasons = {str(at): reason for at, reason in sorted(refusals.items())}
        first = next(iter(reasons.values()))
        return JSONResponse({"error": first, "stored": stored, "refused": reasons}, 422)

    def _records(self, request: Request, body: bytes) -> list[Record]:
        options = self._options
        signature = options.signature
        if signature is not None and not is_signed(
            signature, request.headers, body, time.time_ns() / 1e9
        ):
            raise Refused(401, "the signature is missing or wrong")
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
        raise Refused(400, f"the body is not a JSON array: {error}") from error

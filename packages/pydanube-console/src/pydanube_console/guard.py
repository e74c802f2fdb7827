"""
Middleware in front of the pages: it refuses foreign requests, and limits what pages do.

The policy for content allows scripts of the console only, and none within the page but
those of NiceGUI's template, which get a random nonce.  They are marked in the template,
before data becomes part of the page, so a script in data never gets a nonce.
``unsafe-eval`` is for Vue, which compiles its templates in the browser; data is never
part of a template.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import Any

from jinja2 import Environment
from jinja2.ext import Extension
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydanube.security.same_origin import SameOrigin

REQUEST_BYTES_MAX = 1024 * 1024
"""The longest body of a request; pages send more over their WebSocket, in parts."""
FILE_BYTES_MAX = 16 * 1024 * 1024
"""The longest file that a page takes: definitions of tens of thousands of topics."""
FORM_BYTES_MAX = FILE_BYTES_MAX + 64 * 1024
"""The longest request with such a file."""
_UPLOAD = re.compile(r"/_nicegui/client/[\w-]+/upload/\d+")
"""The address for a file, which NiceGUI makes for one page that somebody sees."""
_NONCE_BYTES = 16
_SCRIPT = re.compile(r"<script(?=[\s>])")
_MARK = secrets.token_urlsafe(32)
"""The mark of scripts in templates; the guard replaces it, so no browser sees it."""
_DROPPED = (b"x-forwarded-prefix",)
"""Headers from which NiceGUI makes addresses of scripts; any client can send them."""


class _MarkedScripts(Extension):
    """Marks the scripts of a template before it is filled with data."""

    def preprocess(
        self, source: str, name: str | None, filename: str | None = None
    ) -> str:
        """See Jinja."""
        return _SCRIPT.sub(f'<script nonce="{_MARK}"', source)


def mark_scripts(templates: Environment) -> None:
    """Let the guard know the scripts of *templates*; call it before they are used."""
    templates.add_extension(_MarkedScripts)


class Guard:
    """The checks in front of the console."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], *, is_https: bool) -> None:
        """*is_https*: Whether browsers reach the console through a proxy with TLS."""
        self._app = app
        self._checks = SameOrigin(hosts, remedy="allow the name with --host-name")
        self._scheme = "https" if is_https else "http"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        method = scope.get("method", "GET")
        error = self._checks.refusal(method, self._scheme, scope["headers"])
        if error is not None:
            await _refuse(403, str(error), scope, receive, send)
        elif scope["type"] == "http" and _length_of(scope) > _length_max(scope):
            await _refuse(413, "the request is too long", scope, receive, send)
        elif b"transfer-encoding" in dict(scope["headers"]):
            # Its length would not be known; browsers tell it.
            await _refuse(411, "the request has no length", scope, receive, send)
        elif scope["type"] == "http":
            kept = [each for each in scope["headers"] if each[0] not in _DROPPED]
            response = _Response(send, self._scheme)
            await self._app({**scope, "headers": kept}, receive, response.send)
        else:
            await self._app(scope, receive, send)


class _Response:
    """One response, to which the headers and nonces are added."""

    def __init__(self, send: Send, scheme: str) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(_NONCE_BYTES)
        self._scheme = scheme
        self._start: Message | None = None
        self._body: list[bytes] = []

    async def send(self, message: Message) -> None:
        """Send a part of the response; pages are sent as a whole."""
        if message["type"] == "http.response.start":
            headers = list(message["headers"])
            kind = dict(headers).get(b"content-type", b"")
            headers += _headers(self._nonce, is_https=self._scheme == "https")
            message = {**message, "headers": headers}
            if kind.startswith(b"text/html"):
                self._start = message
                return
        elif self._start is not None:
            self._body.append(message.get("body", b""))
            if message.get("more_body"):
                return
            body = b"".join(self._body).replace(_MARK.encode(), self._nonce.encode())
            headers = [
                (name, value)
                for name, value in self._start["headers"]
                if name != b"content-length"
            ]
            headers.append((b"content-length", str(len(body)).encode()))
            await self._send({**self._start, "headers": headers})
            self._start = None
            message = {"type": "http.response.body", "body": body}
        await self._send(message)


def _headers(nonce: str, *, is_https: bool) -> list[tuple[bytes, bytes]]:
    policy = {
        "default-src": "'self'",
        "script-src": f"'self' 'nonce-{nonce}' 'unsafe-eval'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    text = "; ".join(f"{name} {value}" for name, value in policy.items())
    found = {
        "content-security-policy": text,
        "x-content-type-options": "nosniff",
        "referrer-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    if is_https:
        found["strict-transport-security"] = "max-age=31536000"
    return [(name.encode(), value.encode()) for name, value in found.items()]


def _length_max(scope: Scope) -> int:
    is_upload = _UPLOAD.fullmatch(scope["path"]) is not None
    return FORM_BYTES_MAX if is_upload else REQUEST_BYTES_MAX


def _length_of(scope: Scope) -> int:
    found = dict(scope["headers"]).get(b"content-length", b"0")
    return int(found) if found.isdigit() else 0


async def _refuse(status: int, text: str, scope: Scope, *streams: Any) -> None:
    receive, send = streams
    if scope["type"] == "websocket":
        # The server answers a handshake that is closed with 403.
        await send({"type": "websocket.close", "code": 1008})
        return
    await PlainTextResponse(text, status_code=status)(scope, receive, send)

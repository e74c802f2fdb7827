"""
The authentication of requests over HTTP.

A request presents ``Authorization: Bearer …``: the token of this server, if it has one;
otherwise an API key or a token of the broker, which the broker checks.  Requests
without it are accepted on the loopback interface only, and not if the server has a
token.
"""

from __future__ import annotations

import json
from hmac import compare_digest
from typing import Any

from pydanube.model.errors import BrokerError, Unauthenticated, Unavailable
from pydanube_console.administration.callers import Caller, Callers
from pydanube_console.administration.tool_calls import CALLER

CREDENTIALS_BYTES_MAX = 8192
TOKEN_BYTES_MIN = 16


class Bearer:
    """Finds the caller of a request by its ``Authorization`` header."""

    def __init__(
        self, callers: Callers, token: str = "", *, is_required: bool = True
    ) -> None:
        """*token* is that of this server; empty: credentials are the broker's."""
        self._callers = callers
        self._token = token
        self._is_required = is_required or bool(token)

    async def find(self, header: str | None) -> Caller:
        """
        Return the caller that presents *header*.

        Raises:
            Unauthenticated: It is missing, malformed or refused.
            BrokerError: The broker cannot be reached, or refuses it.
        """
        scheme, _, given = (header or "").partition(" ")
        given = given.strip()
        if not given or scheme.lower() != "bearer":
            if self._is_required or header:
                raise Unauthenticated(
                    "send the header 'Authorization: Bearer …' with "
                    + ("the server's token" if self._token else "an API key")
                )
            return await self._callers.own()
        if len(given) > CREDENTIALS_BYTES_MAX:
            raise Unauthenticated("the credentials are too long")
        if not self._token:
            return await self._callers.identified(given)
        if not compare_digest(given.encode(), self._token.encode()):
            raise Unauthenticated("the token is not that of this server")
        return await self._callers.own()


class CallerMiddleware:
    """An ASGI application that lets requests with a caller pass to another one."""

    def __init__(self, app: Any, bearer: Bearer) -> None:
        self._app = app
        self._bearer = bearer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            values = [
                value.decode("latin-1")
                for name, value in scope["headers"]
                if name == b"authorization"
            ]
            try:
                header = values[0] if values else None
                scope[CALLER] = await self._bearer.find(header)
            except BrokerError as error:
                await _refuse(send, error)
                return
        await self._app(scope, receive, send)


async def _refuse(send: Any, error: BrokerError) -> None:
    status = 503 if isinstance(error, Unavailable) else 401
    headers = [(b"content-type", b"application/json")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    body = json.dumps({"code": error.code, "message": str(error)}).encode()
    await send({"type": "http.response.body", "body": body})

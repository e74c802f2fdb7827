"""Middleware that refuses requests that web pages of other sites cause."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from pydanube.security.same_origin import SameOrigin
from pydanube_broker.servers.http.responses import error_response


class SameOriginMiddleware:
    """The checks of ``SameOrigin`` in front of an application."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        """Accept *hosts*, addresses and names without a dot as names of the broker."""
        self._app = app
        self._checks = SameOrigin(hosts, remedy="add the name to listen.http_hosts")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        error = self._checks.refusal(scope["method"], scope["scheme"], scope["headers"])
        if error is None:
            await self._app(scope, receive, send)
        else:
            await error_response(error)(scope, receive, send)

"""Middleware that verifies the credentials of requests."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pydanube.model.errors import BrokerError, Unauthenticated
from pydanube.security.credentials import credential_of
from pydanube_broker.servers.connections.authentication import Authenticator
from pydanube_broker.servers.settings.addresses import address_of

CERTIFICATE = "certificate"
"""The entry of the state of requests with the verified certificate of the client."""
PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""The paths for probes, which have no credentials."""


class AuthenticationMiddleware:
    """The verification of credentials in front of an application."""

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        on_error: Callable[[str, BrokerError], Response],
    ) -> None:
        """*on_error* returns the response to a request for a path that is refused."""
        self._app = app
        self._authenticator = authenticator
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Set ``request.state.principal``, or answer that there is none; see ASGI."""
        if scope["path"] not in PUBLIC_PATHS:
            state = scope.setdefault("state", {})
            try:
                credential = credential_of(scope["headers"])
                identity = self._authenticator.authenticate(
                    credential,
                    address_of(scope.get("client")),
                    state.get(CERTIFICATE),
                    listener="http",
                )
            except BrokerError as error:
                response = self._on_error(scope["path"], error)
                if isinstance(error, Unauthenticated):
                    response.headers["www-authenticate"] = "Bearer"
                await response(scope, receive, send)
                return
            state["principal"] = identity.principal
        await self._app(scope, receive, send)

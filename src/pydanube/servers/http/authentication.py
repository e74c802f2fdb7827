"""Middleware that verifies the credentials of requests."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from pydanube.model.errors import BrokerError, Unauthenticated
from pydanube.security.credentials import credential_of
from pydanube.servers.addresses import address_of
from pydanube.servers.authentication import Authenticator
from pydanube.servers.http.responses import error_response

CERTIFICATE = "certificate"
"""The entry of the state of requests with the verified certificate of the client."""
PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""The paths for probes, which have no credentials."""


class AuthenticationMiddleware:
    """The verification of credentials in front of an application."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

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
                response = error_response(error)
                if isinstance(error, Unauthenticated):
                    response.headers["www-authenticate"] = "Bearer"
                await response(scope, receive, send)
                return
            state["principal"] = identity.principal
        await self._app(scope, receive, send)

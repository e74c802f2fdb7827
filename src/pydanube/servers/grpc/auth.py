"""The service ``danube.AuthService``, which only the Java client calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.wire.pb import danube_api_pb2 as pb

if TYPE_CHECKING:
    from pydanube.servers.grpc.services import Context

ANONYMOUS_TOKEN = "anonymous"  # noqa: S105  # It grants nothing.


class AuthService:
    """
    The service ``danube.AuthService``, which gives every caller the same token.

    A client with an API key needs a token before it can connect.  This broker checks
    no credentials, so the token has no effect.
    """

    async def authenticate(
        self, request: pb.AuthRequest, context: Context
    ) -> pb.AuthResponse:
        """Return the token."""
        return pb.AuthResponse(token=ANONYMOUS_TOKEN)

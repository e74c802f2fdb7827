"""The service ``danube.AuthService``, which only the Java client calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.wire.pb import danube_api_pb2 as pb

if TYPE_CHECKING:
    from pydanube.servers.grpc.services import Context

ANONYMOUS_TOKEN = "anonymous"  # noqa: S105  # It opens nothing that is not open.


class AuthService:
    """
    Gives every caller the same token.

    A client that was given an API key asks for a token before it does anything, and
    cannot be made if nobody answers.  This broker checks no credentials, so a token
    changes nothing.
    """

    async def authenticate(
        self, request: pb.AuthRequest, context: Context
    ) -> pb.AuthResponse:
        """A token that says nothing about who has it."""
        return pb.AuthResponse(token=ANONYMOUS_TOKEN)

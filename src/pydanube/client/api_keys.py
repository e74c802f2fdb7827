"""The operations of a client on API keys, for superusers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pydanube.client.requester import Requester
from pydanube.model.api_keys import ApiKeyDescription, NewApiKey
from pydanube.model.arguments import checks_arguments
from pydanube.model.errors import InvalidRequest
from pydanube.wire.native.messages import from_wire
from pydanube.wire.pb import stream_pb2 as pb

HOUR = timedelta(hours=1)


@checks_arguments
class ApiKeyRequests(Requester):
    """The operations of ``Client`` on API keys."""

    async def create_api_key(
        self,
        name: str,
        *,
        principal: str | None = None,
        groups: Sequence[str] = (),
        expires_at: datetime | None = None,
    ) -> NewApiKey:
        """
        Create an API key, which only this call returns.

        Args:
            name: A name for administrators, to rotate and revoke the key.
            principal: The principal that clients with the key are; None: *name*.
            groups: The groups of the principal.
            expires_at: When the key expires, with a time zone; None: never.

        Raises:
            AlreadyExists: There is an API key of this name.
            PermissionDenied: This client is no superuser.
            InvalidRequest: A name is not allowed, or the broker uses no API keys.
        """
        answer = await self.send_request(
            pb.CreateApiKey(
                name=name,
                principal=name if principal is None else principal,
                groups=groups,
                expires_at=_microseconds(expires_at),
            )
        )
        return from_wire(NewApiKey, answer)

    async def api_keys(self) -> list[ApiKeyDescription]:
        """
        Return the valid API keys, without the keys themselves.

        Raises:
            PermissionDenied: This client is no superuser.
        """
        found: list[ApiKeyDescription] = []
        has_more = True
        while has_more:
            after = found[-1].name if found else ""
            answer = await self.send_request(pb.ListApiKeys(after=after))
            found += [from_wire(ApiKeyDescription, each) for each in answer.keys]
            has_more = answer.has_more
        return found

    async def revoke_api_key(self, name: str) -> None:
        """
        Revoke all keys of *name*; within seconds, their connections are closed.

        Raises:
            NotFound: There is no such API key.
            PermissionDenied: This client is no superuser.
        """
        await self.send_request(pb.RevokeApiKey(name=name))

    async def rotate_api_key(
        self,
        name: str,
        *,
        grace: timedelta = HOUR,
        expires_at: datetime | None = None,
    ) -> NewApiKey:
        """
        Create another key of *name*, which only this call returns.

        Args:
            name: The name of the API key.
            grace: For how long earlier keys of the name stay valid.
            expires_at: When the new key expires, with a time zone; None: never.

        Raises:
            NotFound: There is no such API key.
            PermissionDenied: This client is no superuser.
        """
        answer = await self.send_request(
            pb.RotateApiKey(
                name=name,
                grace_s=grace.total_seconds(),
                expires_at=_microseconds(expires_at),
            )
        )
        return from_wire(NewApiKey, answer)


def _microseconds(time: datetime | None) -> int | None:
    """
    Return microseconds since 1970.

    Raises:
        InvalidRequest: *time* has no time zone.
    """
    if time is None:
        return None
    if time.tzinfo is None:
        raise InvalidRequest(
            f"expires_at is {time}, without a time zone: give one, such as "
            "datetime.now(UTC) + timedelta(days=90)"
        )
    return round(time.timestamp() * 1_000_000)

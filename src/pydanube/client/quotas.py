"""The operations of a client on quotas."""

from __future__ import annotations

from pydanube.client.requester import Requester
from pydanube.model.arguments import checks_arguments
from pydanube.security.quotas import Quota, QuotaDescription
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb


@checks_arguments
class QuotaRequests(Requester):
    """The operations of ``Client`` on quotas."""

    async def set_quota(self, target: str, quota: Quota) -> None:
        """
        Set what a principal, a namespace or a topic may use.

        Args:
            target: ``user:NAME``, ``anonymous``, ``/namespace`` or
                ``/namespace/topic``.
            quota: The limits, which replace an earlier quota as a whole.

        Durability: On return it is on disk.  All brokers apply it within seconds, also
            to open connections.

        Raises:
            InvalidRequest: A limit is out of range, or *target* cannot have it.
            PermissionDenied: The client has not the permission ``cluster_admin``.
        """
        await self.send_request(
            pb.SetQuota(target=target, quota=to_wire(pb.Quota, quota))
        )

    async def remove_quota(self, target: str) -> None:
        """
        Remove the quota of *target*; a principal then has the default of the broker.

        Raises:
            NotFound: It has none.
            PermissionDenied: The client has not the permission ``cluster_admin``.
        """
        await self.send_request(pb.RemoveQuota(target=target))

    async def quotas(self) -> list[QuotaDescription]:
        """
        Return the quotas that the client may see, by target.

        What is used is that of the broker that the client is connected to.
        """
        found: list[QuotaDescription] = []
        has_more = True
        while has_more:
            after = found[-1].target if found else ""
            answer = await self.send_request(pb.ListQuotas(after=after))
            found += map(_from_wire, answer.quotas)
            has_more = answer.has_more
        return found

    async def describe_quota(self, target: str) -> QuotaDescription | None:
        """
        Return the quota that applies to *target*; None if the client may not see it.

        A principal without a quota of its own has the default of the broker.

        Raises:
            InvalidName: *target* is malformed.
        """
        answer = await self.send_request(pb.ListQuotas(target=target))
        return _from_wire(answer.quotas[0]) if answer.quotas else None


def _from_wire(message: pb.QuotaDescription) -> QuotaDescription:
    return QuotaDescription(
        target=message.target,
        quota=from_wire(Quota, message.quota),
        used=dict(message.used),
        throttled_s=message.throttled_s,
        refused_count=message.refused_count,
        is_default=message.is_default,
    )

"""The handlers of requests about quotas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import Message

from pydanube.security.quotas import Quota, QuotaDescription, QuotaScope, QuotaTarget
from pydanube.security.resources import CLUSTER, Resource
from pydanube.servers.authorization import may_see
from pydanube.servers.native.link import ClientLink
from pydanube.servers.native.requests import PAGE_MAX, Handlers
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb

QUOTA_REQUESTS: Handlers[Callable[[ClientLink, Any], Awaitable[Message | None]]] = (
    Handlers()
)


@QUOTA_REQUESTS.handler(pb.SetQuota)
async def _set(link: ClientLink, m: pb.SetQuota) -> None:
    target = QuotaTarget.parse(m.target)
    await link.broker.quotas.set(target, from_wire(Quota, m.quota))


@QUOTA_REQUESTS.handler(pb.RemoveQuota)
async def _remove(link: ClientLink, m: pb.RemoveQuota) -> None:
    await link.broker.quotas.remove(QuotaTarget.parse(m.target))


@QUOTA_REQUESTS.handler(pb.ListQuotas)
async def _list(link: ClientLink, m: pb.ListQuotas) -> pb.Quotas:
    quotas = link.broker.quotas
    own = quotas.own_target(link.principal)
    targets = [QuotaTarget.parse(m.target)] if m.target else list(quotas.quotas)
    visible = {str(each): each for each in targets if each == own or _may_see(each)}
    names = sorted(name for name in visible if name > m.after)
    return pb.Quotas(
        quotas=[_to_wire(quotas.describe(visible[name])) for name in names[:PAGE_MAX]],
        has_more=len(names) > PAGE_MAX,
    )


def _may_see(target: QuotaTarget) -> bool:
    """Return whether the caller may see a quota that is not its own."""
    match target.scope:
        case QuotaScope.PRINCIPAL:
            return may_see(CLUSTER)
        case QuotaScope.NAMESPACE:
            return may_see(Resource.namespace(target.name))
    return may_see(Resource.parse(target.name))


def _to_wire(found: QuotaDescription) -> pb.QuotaDescription:
    return pb.QuotaDescription(
        target=found.target,
        quota=to_wire(pb.Quota, found.quota),
        used=found.used,
        throttled_s=found.throttled_s,
        refused_count=found.refused_count,
        is_default=found.is_default,
    )

"""Operations on quotas."""

from __future__ import annotations

from pydanube.security.quotas import Quota, QuotaDescription, QuotaScope, QuotaTarget
from pydanube.security.resources import CLUSTER, Resource
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.authorization import may_see
from pydanube_broker.operations.handlers import PAGE_MAX, Call, operation


@operation
async def set_quota(call: Call, m: pb.SetQuota) -> None:
    """Set the quota of a principal, a namespace or a topic."""
    target = QuotaTarget.parse(m.target)
    await call.broker.quotas.set(target, from_wire(Quota, m.quota))


@operation
async def remove_quota(call: Call, m: pb.RemoveQuota) -> None:
    """Remove a quota."""
    await call.broker.quotas.remove(QuotaTarget.parse(m.target))


@operation
async def list_quotas(call: Call, m: pb.ListQuotas) -> pb.Quotas:
    """Return quotas and their use, as far as the client may see them."""
    quotas = call.broker.quotas
    own = quotas.own_target(call.principal)
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

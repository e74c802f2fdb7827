"""Operations on API keys."""

from __future__ import annotations

from itertools import groupby

from pydanube.wire.native.messages import seconds_from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.handlers import PAGE_MAX, Call, operation

PAGE_NAMES_MAX = PAGE_MAX // 10
"""The most names in one answer; each has up to eight keys."""
GRACE_S = 3600.0
"""How long earlier keys of a name stay valid, if the request does not say it."""


@operation
async def create_api_key(call: Call, m: pb.CreateApiKey) -> pb.ApiKeyCreated:
    """Create an API key; only this answer has the key itself."""
    created = await call.api_keys().create(
        m.name,
        principal=m.principal if m.HasField("principal") else m.name,
        groups=tuple(m.groups),
        expires_at=m.expires_at if m.HasField("expires_at") else None,
    )
    return to_wire(pb.ApiKeyCreated, created)


@operation
async def list_api_keys(call: Call, m: pb.ListApiKeys) -> pb.ApiKeys:
    """Return the API keys that are valid, without the keys themselves."""
    found = [each for each in await call.api_keys().list() if each.name > m.after]
    names = [name for name, _ in groupby(found, key=lambda each: each.name)]
    has_more = len(names) > PAGE_NAMES_MAX
    if has_more:
        found = [each for each in found if each.name <= names[PAGE_NAMES_MAX - 1]]
    return pb.ApiKeys(
        keys=[to_wire(pb.ApiKey, each) for each in found], has_more=has_more
    )


@operation
async def revoke_api_key(call: Call, m: pb.RevokeApiKey) -> None:
    """Revoke all API keys of a name."""
    await call.api_keys().revoke(m.name)


@operation
async def rotate_api_key(call: Call, m: pb.RotateApiKey) -> pb.ApiKeyCreated:
    """Create another API key of a name; only this answer has the key."""
    grace_s = GRACE_S
    if m.HasField("grace_s"):
        grace_s = seconds_from_wire("grace time", m.grace_s) or 0.0
    created = await call.api_keys().rotate(
        m.name,
        grace_s=grace_s,
        expires_at=m.expires_at if m.HasField("expires_at") else None,
    )
    return to_wire(pb.ApiKeyCreated, created)

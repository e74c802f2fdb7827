"""The handlers of requests about API keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import Any

from google.protobuf.message import Message

from pydanube.broker.api_keys import ApiKeys
from pydanube.servers.native.link import ClientLink
from pydanube.servers.native.requests import PAGE_MAX, Handlers
from pydanube.wire.native.messages import seconds_from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb

PAGE_NAMES_MAX = PAGE_MAX // 10
"""The most names in one answer; each has up to eight keys."""

API_KEY_REQUESTS: Handlers[Callable[[ClientLink, Any], Awaitable[Message | None]]] = (
    Handlers()
)


def _api_keys(link: ClientLink) -> ApiKeys:
    """Return the API keys for the client to manage; see ``managed_api_keys``."""
    return link.server.authenticator.managed_api_keys(link.principal)


@API_KEY_REQUESTS.handler(pb.CreateApiKey)
async def _create(link: ClientLink, m: pb.CreateApiKey) -> pb.ApiKeyCreated:
    created = await _api_keys(link).create(
        m.name,
        principal=m.principal,
        groups=tuple(m.groups),
        expires_at=m.expires_at if m.HasField("expires_at") else None,
    )
    return to_wire(pb.ApiKeyCreated, created)


@API_KEY_REQUESTS.handler(pb.ListApiKeys)
async def _list(link: ClientLink, m: pb.ListApiKeys) -> pb.ApiKeys:
    found = [each for each in await _api_keys(link).list() if each.name > m.after]
    names = [name for name, _ in groupby(found, key=lambda each: each.name)]
    has_more = len(names) > PAGE_NAMES_MAX
    if has_more:
        found = [each for each in found if each.name <= names[PAGE_NAMES_MAX - 1]]
    return pb.ApiKeys(
        keys=[to_wire(pb.ApiKey, each) for each in found], has_more=has_more
    )


@API_KEY_REQUESTS.handler(pb.RevokeApiKey)
async def _revoke(link: ClientLink, m: pb.RevokeApiKey) -> None:
    await _api_keys(link).revoke(m.name)


@API_KEY_REQUESTS.handler(pb.RotateApiKey)
async def _rotate(link: ClientLink, m: pb.RotateApiKey) -> pb.ApiKeyCreated:
    created = await _api_keys(link).rotate(
        m.name,
        grace_s=seconds_from_wire("grace time", m.grace_s) or 0.0,
        expires_at=m.expires_at if m.HasField("expires_at") else None,
    )
    return to_wire(pb.ApiKeyCreated, created)

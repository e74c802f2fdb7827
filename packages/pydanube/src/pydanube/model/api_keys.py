"""API keys as administrators see them: without the keys themselves."""

from __future__ import annotations

from dataclasses import field

from pydanube.model.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyDescription:
    """One API key; times are microseconds since 1970, UTC."""

    name: str
    """After a rotation, two keys have the same name."""
    key_id: str
    """The first part of the key, which is no secret."""
    principal: str
    """The principal that the key's owner becomes."""
    groups: tuple[str, ...] = ()
    created_at: int = 0
    expires_at: int | None = None
    """When the key is no longer valid; None: it does not expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKey:
    """A new API key, with the key itself, which the broker does not store."""

    key: str = field(repr=False)
    description: ApiKeyDescription

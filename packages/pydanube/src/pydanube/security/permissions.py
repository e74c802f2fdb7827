"""The permissions that operations need."""

from __future__ import annotations

from enum import Enum

from pydanube.model.errors import InvalidRequest


class Permission(Enum):
    """A permission on topics, namespaces, subjects or the cluster."""

    DESCRIBE = "describe"
    """See that something exists, and its settings and state.  Every other permission
    on the same resource includes it."""
    PRODUCE = "produce"
    """Publish messages to topics, also through staging and transactions."""
    CONSUME = "consume"
    """Read the messages of topics; create, move and delete their subscriptions."""
    CREATE = "create"
    """Create topics and namespaces."""
    MANAGE = "manage"
    """Change and delete topics, namespaces, subjects, and what belongs to them."""
    SCHEMA_READ = "schema_read"
    """Read the schemas of subjects, and check schemas against them."""
    SCHEMA_WRITE = "schema_write"
    """Register schemas; includes ``SCHEMA_READ``."""
    CLUSTER_ADMIN = "cluster_admin"
    """Drain brokers; back up, upload, verify and copy the storage of the cluster."""
    GRANT = "grant"
    """Define roles and bind them, up to the permissions that one has oneself."""


def is_included(permission: Permission, held: frozenset[Permission]) -> bool:
    """Return whether the permissions *held* on a resource include *permission*."""
    if permission is Permission.DESCRIBE:
        return bool(held)
    if permission is Permission.SCHEMA_READ and Permission.SCHEMA_WRITE in held:
        return True
    return permission in held


def parse_permission(text: str) -> Permission:
    """
    Return the permission that *text* names.

    Raises:
        InvalidRequest: There is no such permission.
    """
    try:
        return Permission(text)
    except ValueError:
        raise InvalidRequest(
            f"there is no permission {text!r}; there are "
            + ", ".join(each.value for each in Permission)
        ) from None

"""
Quotas: how much a principal, a namespace or a topic may use of a broker.

An administrator of the cluster sets them, not the owner of a namespace: the limits of
``model.policy`` are for owners, who may change them.
"""

from __future__ import annotations

from dataclasses import fields
from enum import Enum

from pydanube.model.errors import InvalidName, InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.credentials import parse_principal_name
from pydanube.security.policy import ANONYMOUS_MEMBER, USER_MARK
from pydanube.security.resources import Resource, Scope

QUOTA_MAX = 2**53
"""The highest limit; JSON readers keep such numbers exact."""
BYTES_PER_S_MIN = 1024
"""The lowest limit of bytes per second: a batch then delays the next by minutes at
most."""


class QuotaScope(Enum):
    """The kind of target that a quota limits."""

    PRINCIPAL = "principal"
    NAMESPACE = "namespace"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of a principal, a namespace or a topic; 0: no limit."""

    connections: int = 0
    """Open connections of a principal, on all ports together."""
    requests_per_s: int = 0
    """Requests of a principal; batches, acknowledgements and credit do not count."""
    topics: int = 0
    """Topics of a namespace; each partition counts."""
    subscriptions: int = 0
    """Subscriptions of all topics of a namespace."""
    bytes_in_per_s: int = 0
    """Published bytes, as they are sent."""
    bytes_out_per_s: int = 0
    """Delivered and fetched bytes, as they are sent."""
    storage_bytes: int = 0
    """Stored bytes of a topic, or of all topics of a namespace."""
    sessions: int = 0
    """Sessions of MQTT of a principal that outlive their connections."""

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))


LIMITS_OF: dict[QuotaScope, frozenset[str]] = {
    QuotaScope.PRINCIPAL: frozenset(
        {
            "connections",
            "requests_per_s",
            "bytes_in_per_s",
            "bytes_out_per_s",
            "sessions",
        }
    ),
    QuotaScope.NAMESPACE: frozenset(
        {
            "topics",
            "subscriptions",
            "bytes_in_per_s",
            "bytes_out_per_s",
            "storage_bytes",
        }
    ),
    QuotaScope.TOPIC: frozenset({"bytes_in_per_s", "bytes_out_per_s", "storage_bytes"}),
}
"""The limits that each kind of target may have."""

NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class QuotaTarget:
    """A principal, a namespace or a topic."""

    scope: QuotaScope
    name: str
    """The name of the principal, the namespace, or ``/namespace/topic``."""

    @classmethod
    def parse(cls, text: str) -> QuotaTarget:
        """
        Return the target that *text* names.

        Raises:
            InvalidName: It is not ``user:NAME``, ``anonymous``, ``/namespace`` or
                ``/namespace/topic``.
        """
        if text == ANONYMOUS_MEMBER:
            return cls(QuotaScope.PRINCIPAL, text)
        if text.startswith(USER_MARK):
            name = text.removeprefix(USER_MARK)
            parse_principal_name("the principal", name)
            return cls(QuotaScope.PRINCIPAL, name)
        if text.startswith("/"):
            resource = Resource.parse(text)
            is_topic = resource.scope is Scope.TOPIC
            scope = QuotaScope.TOPIC if is_topic else QuotaScope.NAMESPACE
            return cls(scope, resource.name)
        raise InvalidName(
            f"{text!r} cannot have a quota: expected user:NAME, anonymous, /namespace "
            "or /namespace/topic"
        )

    def __str__(self) -> str:
        if self.scope is QuotaScope.TOPIC:
            return self.name
        if self.scope is QuotaScope.NAMESPACE:
            return f"/{self.name}"
        is_anonymous = self.name == ANONYMOUS_MEMBER
        return self.name if is_anonymous else f"{USER_MARK}{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaDescription:
    """The quota of a target, and what it uses of this broker."""

    target: str
    quota: Quota
    used: dict[str, int]
    """By limit: connections, topics, subscriptions and storage_bytes, if limited."""
    throttled_s: float
    """How long clients have waited, in total, since the broker was started."""
    refused_count: int
    is_default: bool = False
    """Whether the quota is that of the broker's settings, for all other principals."""


def check_quota_of(target: QuotaTarget, quota: Quota) -> None:
    """
    Raise if *target* may not have *quota*.

    Raises:
        InvalidRequest: A limit is out of range, or *target* cannot have it.
    """
    if not quota:
        raise InvalidRequest(
            f"the quota of {target} has no limit: give one, or remove the quota"
        )
    allowed = LIMITS_OF[target.scope]
    for field in fields(quota):
        name, limit = field.name, getattr(quota, field.name)
        if limit and name not in allowed:
            raise InvalidRequest(
                f"{name}={limit}: a {target.scope.value} such as {target} can have "
                f"only the limits {', '.join(sorted(allowed))}"
            )
        is_byte_rate = name in {"bytes_in_per_s", "bytes_out_per_s"}
        lowest = BYTES_PER_S_MIN if is_byte_rate else 1
        if limit and not lowest <= limit <= QUOTA_MAX:
            raise InvalidRequest(
                f"{name}={limit} for {target}: expected {lowest} to {QUOTA_MAX}, or 0 "
                "for no limit"
            )

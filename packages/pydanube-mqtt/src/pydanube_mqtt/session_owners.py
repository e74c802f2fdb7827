"""The principals that may have sessions and wills, and their numbers of sessions."""

from __future__ import annotations

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.permissions import Permission
from pydanube.security.principals import Principal
from pydanube.security.resources import Resource
from pydanube_broker.broker.broker import Broker
from pydanube_broker.operations.authorization import Caller, Need
from pydanube_broker.servers.connections.authentication import (
    Authenticator,
    ClientIdentity,
)
from pydanube_mqtt.pure.rules import Rules
from pydanube_mqtt.wire.packets import PacketError, Reason, Will

SESSIONS = "sessions"
"""The limit of quotas."""


@dataclass(frozen=True, slots=True)
class LeftWill:
    """The will of a client whose connection was lost."""

    will: Will
    due_at: float
    """When it is published, unless the client comes back."""
    identity: ClientIdentity
    caller: Caller


class SessionOwners:
    """The principals that use the listener, by the policy of this moment."""

    def __init__(
        self, broker: Broker, rules: Rules, authenticator: Authenticator
    ) -> None:
        self._broker = broker
        self._authenticator = authenticator
        self._rules = rules
        # Each once, because many rules may have the same topic.
        targets = dict.fromkeys(each.target for each in rules.rules)
        self._topics = [Resource.topic(each) for each in targets]

    def may_hold(self, principal: Principal) -> bool:
        """
        Return whether *principal* may have a session.

        It has to be allowed to publish to or to consume one of the topics at least.
        """
        access = self._broker.access
        return not access.is_enforced or any(
            access.policy.decide(principal, permission, topic).allowed
            for topic in self._topics
            for permission in (Permission.PRODUCE, Permission.CONSUME)
        )

    def check(self, caller: Caller) -> None:
        """
        Raise if a client may not have a session.

        Raises:
            PacketError: It may not.
        """
        if not self.may_hold(caller.principal):
            error = caller.refusal(
                "connecting is not allowed: the client may neither publish to nor "
                "consume any topic of mqtt.rules"
            )
            caller.record("connect", self._topics[:1], error)
            raise PacketError(Reason.NOT_AUTHORIZED, str(error))

    def check_will(self, caller: Caller, will: Will) -> None:
        """
        Raise if a client may not publish its will.

        Raises:
            PacketError: No rule matches its topic.
            PermissionDenied, Unauthenticated: The client may not publish there.
        """
        rule = self._rules.check(will.topic)
        if self._broker.access.is_enforced:
            caller.check(
                [Need(Permission.PRODUCE, Resource.topic(rule.target))], "will"
            )

    def check_left_will(self, left: LeftWill) -> None:
        """
        Raise if a will must not be published, although the client might leave it.

        Raises:
            PacketError, PermissionDenied, Unauthenticated: As ``check_will``; or the
                credentials of the client have expired or were revoked since.
        """
        if not self._authenticator.is_valid(left.identity):
            raise self._authenticator.why_invalid(left.identity)
        self.check_will(left.caller, left.will)

    # Quotas.

    def add(self, owner: Principal, *, is_new: bool) -> None:
        """
        Count a session that outlives its connection.

        Raises:
            QuotaExceeded: *is_new*, and the principal has as many as its quota allows.
        """
        meter = self._broker.quotas.of_principal(owner)
        if is_new:
            meter.check(SESSIONS)
        meter.add(SESSIONS, 1)

    def remove(self, owner: Principal) -> None:
        """Count that a session of ``add`` has ended."""
        self._broker.quotas.of_principal(owner).add(SESSIONS, -1)

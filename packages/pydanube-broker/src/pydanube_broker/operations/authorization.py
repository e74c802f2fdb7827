"""
Authorization: whether a client may carry out an operation.

The table of operations (``wire.native.kinds``) declares what each needs.  All listeners
decide here, before they call the broker, and pass a request of the native protocol: the
one that was received, or one with the same names.

Answers that list things have only those that the client may see.  Handlers ask
``may_see``, which knows the caller of the task that handles the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import msgspec
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from pydanube.model.errors import (
    InvalidName,
    InvalidRequest,
    PermissionDenied,
    Refused,
    SchemaNotFound,
    Unauthenticated,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import (
    TopicName,
    parse_client_name,
    parse_namespace,
    parse_subject,
)
from pydanube.security.permissions import Permission
from pydanube.security.policy import AccessPolicy, members_of
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.security.resources import CLUSTER, Resource
from pydanube.wire.native.kinds import OPERATIONS, Kind, On, Target
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.governance.audit import Outcome
from pydanube_broker.operations.staging import part_key_of

T = TypeVar("T")

_ADMINISTRATIVE = frozenset(
    {
        Permission.CREATE,
        Permission.MANAGE,
        Permission.SCHEMA_WRITE,
        Permission.CLUSTER_ADMIN,
        Permission.GRANT,
    }
)
"""The permissions of operations that are recorded also if they are allowed."""

DETAILS_BYTES_MAX = 16_384
"""The audit log has no fields of larger requests."""

_UNRECORDED = frozenset({"token"})
"""The fields of requests that are not recorded."""
_UNRECORDED_IF_FAILED = frozenset({"definition"})
"""Those of requests that failed: the reason may be a secret that is in them."""

_USING_QUERIES = frozenset(
    kind
    for kind in OPERATIONS
    if kind.permission is Permission.PRODUCE
    and kind.body is not None
    and "query" in kind.body.DESCRIPTOR.fields_by_name
)
"""The operations that use a staged query, which belongs to one principal."""

_ALLOWED_MAX = 10_000
"""The most permissions of the data path that are remembered as allowed."""


class Need(NamedTuple):
    """A permission that an operation needs on a resource."""

    permission: Permission
    resource: Resource


@dataclass(frozen=True, slots=True)
class Caller:
    """A client that makes a request, and where it comes from."""

    broker: Broker
    principal: Principal
    address: str
    """Its address and port."""
    listener: str
    """``stream``, ``grpc``, ``admin``, ``http`` or ``mqtt``."""

    def may(self, permission: Permission, resource: Resource) -> bool:
        """Return whether the policy permits something now."""
        policy = self.broker.access.policy
        return policy.decide(self.principal, permission, resource).allowed

    def check(self, needs: Iterable[Need], operation: str) -> None:
        """
        Raise if the policy does not permit everything that *operation* needs.

        Raises:
            PermissionDenied: The client has not all permissions.
            Unauthenticated: The same, for a client without credentials.
        """
        policy = self.broker.access.policy
        for permission, resource in needs:
            decision = policy.decide(self.principal, permission, resource)
            if not decision.allowed:
                error = self.refusal(f"{operation} is not allowed: {decision.rule}")
                self.record(operation, [resource], error)
                raise error

    def refusal(self, reason: str) -> Refused:
        """Return the error for a client that may not do something."""
        if self.principal.method == "anonymous":
            return Unauthenticated(f"{reason}; connect with credentials")
        return PermissionDenied(reason)

    def record(
        self,
        operation: str,
        resources: Iterable[Resource | str],
        error: Exception | None = None,
        details: str = "",
    ) -> None:
        """Add a record of a finished request to the audit log."""
        outcome = Outcome.DONE
        if error is not None:
            is_refused = isinstance(error, Unauthenticated | PermissionDenied)
            outcome = Outcome.REFUSED if is_refused else Outcome.FAILED
        self.broker.audit.record(
            principal=self.principal,
            address=self.address,
            listener=self.listener,
            operation=operation,
            resource=" ".join(map(str, resources)),
            outcome=outcome,
            reason="" if error is None else str(error),
            details=details,
        )


_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


def is_checked(broker: Broker) -> bool:
    """Return whether requests must pass ``authorized``."""
    return broker.access.is_enforced or broker.audit.is_enabled


@asynccontextmanager
async def authorized(
    caller: Caller,
    kind: Kind,
    message: Any,
    request: object = None,
    targets: Iterable[Target] = (),
) -> AsyncIterator[tuple[Need, ...]]:
    """
    Carry out an operation in the body, if its *caller* may; yields what it needs.

    *request* is what the client has sent, if *message* only names its resources, and
    *targets* are what it touches besides.

    Raises:
        PermissionDenied, Unauthenticated: The caller may not.
        InvalidName: *message* has a malformed name.
    """
    operation = kind.name.lower()
    is_enforced = caller.broker.access.is_enforced
    needs: tuple[Need, ...] = ()
    if is_enforced:
        needs = (
            *await needs_of(caller, kind, message),
            *_needs_of_subjects(targets, request),
        )
        caller.check(needs, operation)
        if kind in _USING_QUERIES:
            await _check_owner(caller, kind, message.query)
    token = _CALLER.set(caller)
    try:
        async with _turn_of(caller, kind):
            yield needs
    except Exception as error:
        _record(caller, kind, message, request, error)
        raise
    else:
        _record(caller, kind, message, request)
    finally:
        _CALLER.reset(token)


def _turn_of(caller: Caller, kind: Kind) -> AbstractAsyncContextManager[None]:
    """Return the turn that a request has to await, so that lists of one client wait."""
    if kind.on is On.LISTED or kind is Kind.DESCRIBE_NAMESPACE:
        return caller.broker.lists.of(caller.principal.name)
    return nullcontext()


def is_administrative(kind: Kind) -> bool:
    """Return whether requests of *kind* are recorded in the audit log."""
    return kind.permission in _ADMINISTRATIVE


async def needs_of(caller: Caller, kind: Kind, message: Any) -> tuple[Need, ...]:
    """
    Return the permissions that a request needs, on which resources.

    Raises:
        InvalidName: *message* has a malformed name.
    """
    permission, on, broker = kind.permission, kind.on, caller.broker
    assert permission is not None
    if on is On.SUBJECT and not message.subject and getattr(message, "schema_id", None):
        # Only those who may read all subjects learn that it does not exist, and only
        # those who may read this one what its name is.
        unknown = Resource.subject(f"number {message.schema_id}")
        try:
            subject = await broker.registry.subject_of(message.schema_id)
        except SchemaNotFound:
            return (Need(permission, unknown),)
        found = Resource.subject(subject)
        is_known = caller.may(permission, found)
        return (Need(permission, found if is_known else unknown),)
    subjects = _needs_of_subjects(kind.targets, message)
    if on is On.STAGING:
        return (*await _needs_of_staging(caller, kind, message), *subjects)
    resources = resources_of(kind, message)
    return (*(Need(permission, each) for each in resources), *subjects)


def _needs_of_subjects(targets: Iterable[Target], message: Any) -> list[Need]:
    """Return the needs of the subjects that a request names besides its resource."""
    needs = []
    for target in targets:
        if target.on is On.SUBJECT and target.permission is not None:
            for value in filter(None, _values_at(message, target.field)):
                subject = Resource.subject(parse_subject(value))
                needs.append(Need(target.permission, subject))
    return needs


def _values_at(message: Any, path: str) -> list[Any]:
    """Return the values of a field, of which each part of the path may repeat."""
    found = [message]
    for name in path.split("."):
        values = [getattr(each, name) for each in found]
        is_repeated = bool(values) and hasattr(values[0], "extend")
        found = [item for each in values for item in each] if is_repeated else values
    return found


def resources_of(kind: Kind, message: Any) -> list[Resource]:
    """
    Return the resources that the fields of *message* name.

    Raises:
        InvalidName: A name is malformed.
    """
    match kind.on:
        case On.TOPIC:
            return [Resource.topic(TopicName.parse(message.topic))]
        case On.NAMESPACE:
            return [Resource.namespace(parse_namespace(message.namespace))]
        case On.SUBJECT:
            return [Resource.subject(parse_subject(message.subject))]
        case On.CLUSTER:
            return [CLUSTER]
    return []


def _record(
    caller: Caller,
    kind: Kind,
    message: Any,
    request: object,
    error: Exception | None = None,
) -> None:
    """Add a record of a finished request, if it is administrative."""
    if is_administrative(kind) and caller.broker.audit.is_enabled:
        given = message if request is None else request
        details = details_of(given, has_failed=error is not None)
        resources = _recorded_resources(kind, message)
        caller.record(kind.name.lower(), resources, error, details)


def details_of(request: object, *, has_failed: bool = False) -> str:
    """
    Return the fields of a request as JSON, without those that may have credentials.

    A definition that is stored has none, and one that is refused may have.  *request*
    is a message of Protobuf, or what a body in JSON was converted to.

    Bounds: The size replaces the fields if it is above ``DETAILS_BYTES_MAX``.
    """
    if isinstance(request, Message):
        if (size := request.ByteSize()) > DETAILS_BYTES_MAX:
            return f"a request of {size} bytes"
        fields = MessageToDict(request, preserving_proto_field_name=True)
    else:
        fields = msgspec.to_builtins(request)
    unrecorded = _UNRECORDED | (_UNRECORDED_IF_FAILED if has_failed else frozenset())
    given = {
        name: value
        for name, value in fields.items()
        if value is not None and name not in unrecorded
    }
    details = msgspec.json.encode(given)
    if len(details) > DETAILS_BYTES_MAX:
        return f"a request of {len(details)} bytes"
    return details.decode()


def _recorded_resources(kind: Kind, message: Any) -> Sequence[Resource | str]:
    """Return the resources that *message* names; none if a name is malformed."""
    if kind in {Kind.SET_QUOTA, Kind.REMOVE_QUOTA}:
        return [message.target]
    try:
        return resources_of(kind, message)
    except InvalidName:
        return []


async def _needs_of_staging(
    caller: Caller, kind: Kind, message: Any
) -> tuple[Need, ...]:
    """
    Return the needs of a request that names a query, which is no credential.

    Requests of each task take a time that does not grow with the parts of the others.
    """
    staging = caller.broker.staging
    staged: Iterable[str] = ()
    if kind in {Kind.FINISH_PART, Kind.DROP_PART}:
        # A malformed key is an error only for those who may name one.
        with suppress(InvalidRequest):
            staged = await staging.topics_of_part(part_key_of(message))
    elif kind is not Kind.DESCRIBE_STAGING or not message.is_progress_only:
        staged = await staging.topics_of(message.query)
    needs = [
        Need(Permission.PRODUCE, Resource.topic(TopicName.parse(topic)))
        for topic in sorted(staged)
    ]
    if kind is Kind.COMMIT_STAGED:
        needs += (
            Need(Permission.CONSUME, Resource.topic(TopicName.parse(each.topic)))
            for each in message.acks
        )
    policy = caller.broker.access.policy
    if not needs and not policy.holds_anywhere(caller.principal, Permission.PRODUCE):
        # Those who may not publish anything have nothing to stage.
        return (Need(Permission.PRODUCE, CLUSTER),)
    return tuple(needs)


async def _check_owner(caller: Caller, kind: Kind, query: str) -> None:
    """
    Raise unless the caller owns a query, or may administer the cluster.

    The first client that stages a part, commits, or begins a transaction is the owner.
    """
    member = members_of(caller.principal)[0]
    owner = await caller.broker.staging.claim(parse_client_name("query", query), member)
    if owner != member and not caller.may(Permission.CLUSTER_ADMIN, CLUSTER):
        error = caller.refusal(
            f"{kind.name.lower()} is not allowed: the query {query!r} belongs to "
            "another principal; use another name"
        )
        caller.record(kind.name.lower(), [f"query:{query}"], error)
        raise error


# For handlers.


def requesting_caller() -> Caller | None:
    """Return the caller of the request, also if clients may do everything."""
    return _CALLER.get()


def current_caller() -> Caller | None:
    """Return the caller of the request; None if clients may do everything."""
    caller = _CALLER.get()
    return caller if caller is not None and caller.broker.access.is_enforced else None


def author_of_settings() -> Principal:
    """Return the principal of the request, for which settings are stored."""
    caller = _CALLER.get()
    return ANONYMOUS if caller is None else caller.principal


def may_see(resource: Resource) -> bool:
    """Return whether the caller of the request may know that *resource* exists."""
    caller = current_caller()
    return caller is None or caller.may(Permission.DESCRIBE, resource)


def visible_namespaces(names: Iterable[T]) -> list[T]:
    """Return those of *names* that the caller of the request may see."""
    return [name for name in names if may_see(Resource.namespace(str(name)))]


def visible_subjects(names: Iterable[str]) -> list[str]:
    """Return those of *names* that the caller of the request may see."""
    return [name for name in names if may_see(Resource.subject(name))]


async def check_may_create(broker: Broker, name: TopicName) -> None:
    """
    Raise if *name* would be created, and the caller may not create it.

    Raises:
        PermissionDenied, Unauthenticated: The caller has no such permission.
    """
    caller, resource = current_caller(), Resource.topic(name)
    if caller is None or caller.may(Permission.CREATE, resource):
        return
    if not await broker.catalog.partitions_of(name):
        caller.check([Need(Permission.CREATE, resource)], f"creating {name}")


def check_now(permission: Permission, name: TopicName, operation: str) -> None:
    """
    Raise if the caller of the request has not *permission* on a topic.

    Raises:
        PermissionDenied, Unauthenticated: The caller has no such permission.
    """
    caller = current_caller()
    if caller is not None:
        caller.check([Need(permission, Resource.topic(name))], operation)


async def follow_access(
    broker: Broker, holders: Callable[[], Iterable[T]], check: Callable[[T], None]
) -> None:
    """
    Call *check* for all *holders* of open channels when the policy changes; for ever.

    What a client is may change as well: its connection then calls the same check.
    """
    changed = asyncio.Event()
    broker.access.on_change.append(changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            for holder in list(holders()):
                check(holder)
                # Many of them must not hold up the others.
                await asyncio.sleep(0)
    finally:
        broker.access.on_change.remove(changed.set)


class AllowedTopics:
    """
    The decisions on topics for one connection, for requests that each have a message.

    Bounds: ``_ALLOWED_MAX`` decisions, of the current policy only.
    """

    def __init__(self) -> None:
        self._policy: AccessPolicy | None = None
        self._allowed: set[tuple[Principal, Permission, str]] = set()

    def check(self, caller: Caller, kind: Kind, topic: str) -> None:
        """
        Raise if *caller* may not carry out *kind* on *topic*.

        Raises:
            PermissionDenied, Unauthenticated: The caller may not.
            InvalidName: *topic* is malformed.
        """
        permission = kind.permission
        assert permission is not None
        policy = caller.broker.access.policy
        if policy is not self._policy or len(self._allowed) >= _ALLOWED_MAX:
            self._policy = policy
            self._allowed.clear()
        decision = caller.principal, permission, topic
        if decision not in self._allowed:
            resource = Resource.topic(TopicName.parse(topic))
            caller.check([Need(permission, resource)], kind.name.lower())
            self._allowed.add(decision)

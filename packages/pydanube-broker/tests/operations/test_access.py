"""Every operation of the native protocol needs the permission in its row."""

from __future__ import annotations

import pytest

from pydanube.model.errors import ERRORS, PermissionDenied, Refused, Unauthenticated
from pydanube.model.schemas import SchemaType
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.security.quotas import Quota, QuotaTarget
from pydanube.wire.native.kinds import OPERATIONS, Kind, On
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.publishing.schema_registry import NewSchema
from pydanube_broker.servers.connections.authentication import ClientIdentity
from support.fakes.principals import ROOT, client_of, guarded_broker
from support.fakes.stream_peer import connected

ALICE = Principal("alice", "token")
TOPIC = "/shop/orders"
RESOURCES = {
    On.TOPIC: TOPIC,
    On.NAMESPACE: "/shop",
    On.SUBJECT: "subject:orders",
    On.CLUSTER: "cluster",
    On.STAGING: TOPIC,
}
NAMES = {
    "topic": TOPIC,
    "namespace": "shop",
    "subject": "orders",
    "query": "q",
    "subscription": "s",
    "name": "n",
    "part": "p",
    "part_id": "i",
}
OTHERS = {
    On.TOPIC: "/shop/other",
    On.NAMESPACE: "/bank",
    On.SUBJECT: "subject:other",
    On.CLUSTER: "/shop",
    On.STAGING: "/shop/other",
}
ORDERED = sorted(OPERATIONS)
GUARDED = [kind for kind in ORDERED if kind.on in RESOURCES]


@pytest.fixture
async def guarded():
    async with guarded_broker() as broker:
        async with client_of(broker, ROOT) as client:
            await client.namespaces.create("shop")
            await client.topics.create(TOPIC)
        stage = pb.OpenStage(query="q", version=0, part="p", part_id="i", topic=TOPIC)
        peer = await peer_of(broker, ROOT)
        await peer.ask(Kind.OPEN_STAGE, stage, 9)
        # The tests below are about topics; test_query_owners has the owners.
        await broker.broker.staging.release("q")
        yield broker


async def peer_of(broker, principal):
    known = set(broker.server.connections)
    peer = await connected(broker)
    for connection in broker.server.connections.keys() - known:
        connection.identity = ClientIdentity(principal)
    return peer


def request_of(kind):
    fields = kind.body.DESCRIPTOR.fields_by_name
    return kind.body(
        **{
            name: value
            for name, value in NAMES.items()
            if name in fields and fields[name].type == fields[name].TYPE_STRING
        }
    )


async def error_of(broker, principal, kind):
    """Return the class of the error that an operation ends with; None: it succeeds."""
    peer = await peer_of(broker, principal)
    answer = await peer.ask(kind, request_of(kind), 1 if kind.on_channel else 0)
    return ERRORS[answer.message.code] if answer.kind is Kind.ERROR else None


async def bind(broker, name, resource, permissions):
    """Let Alice do *permissions* at *resource*, as a role and a binding of a name."""
    access = broker.broker.access
    await access.set_role(ROOT, Role(name, frozenset(permissions)))
    await access.add_binding(ROOT, Binding("user:alice", (name,), (resource,), name))


async def test_progress_of_a_query_says_nothing_of_its_topics(guarded):
    peer = await peer_of(guarded, ALICE)

    async def error(*, is_progress_only):
        request = pb.DescribeStaging(query="q", is_progress_only=is_progress_only)
        answer = await peer.ask(Kind.DESCRIBE_STAGING, request)
        return answer.message.code if answer.kind is Kind.ERROR else None

    assert await error(is_progress_only=True) == "permission_denied"
    await bind(guarded, "elsewhere", "/shop/other", {Permission.PRODUCE})
    assert await error(is_progress_only=False) == "permission_denied"
    assert await error(is_progress_only=True) is None
    # Now she owns it, and others learn nothing.
    peer = await peer_of(guarded, Principal("bob", "token"))
    assert await error(is_progress_only=True) == "permission_denied"


# One broker for all, because opening it takes longest.
@pytest.mark.parametrize("kind", GUARDED)
async def test_operation_needs_its_permission_on_its_resource(guarded, kind):
    assert await error_of(guarded, ANONYMOUS, kind) is Unauthenticated
    assert await error_of(guarded, ALICE, kind) is PermissionDenied
    await bind(guarded, "elsewhere", OTHERS[kind.on], {kind.permission})
    assert await error_of(guarded, ALICE, kind) is PermissionDenied
    # Every permission includes DESCRIBE.
    if kind.permission is not Permission.DESCRIBE:
        others = set(Permission) - {kind.permission}
        if kind.permission is Permission.SCHEMA_READ:
            others.discard(Permission.SCHEMA_WRITE)
        await bind(guarded, "others", "*", others)
        assert await error_of(guarded, ALICE, kind) is PermissionDenied
        await guarded.broker.access.remove_binding(ROOT, "others")
    await guarded.broker.access.remove_binding(ROOT, "elsewhere")
    await bind(guarded, "own", RESOURCES[kind.on], {kind.permission})
    error = await error_of(guarded, ALICE, kind)
    assert error is None or not issubclass(error, Refused)


TARGETS = [(kind, each) for kind in ORDERED for each in kind.targets if each.permission]
ELSEWHERE = {On.TOPIC: "/bank/ledger", On.SUBJECT: "ledger"}
"""Things of others that requests name besides ``TOPIC``."""
PATTERNS = {**ELSEWHERE, On.SUBJECT: "subject:ledger"}
ALSO = {
    Kind.CONFIGURE_SUBSCRIPTION: pb.ConfigureSubscription(
        settings=pb.Settings(failure_policy=pb.FailurePolicy(redeliveries_max=1)),
        changes=["failure_policy"],
    ),
    Kind.CONFIGURE_TOPIC: pb.ConfigureTopic(changes=["schema.subject"]),
}
"""The other fields of requests that need some."""


def touching(kind, target):
    """Return a request that also names a thing of somebody else."""
    request = request_of(kind)
    request.MergeFrom(ALSO.get(kind, kind.body()))
    found, (*path, last) = request, target.field.split(".")
    for name in path:
        found = getattr(found, name)
        if hasattr(found, "add"):
            found = found.add()
    setattr(found, last, ELSEWHERE[target.on])
    return request


async def error_of_touching(broker, kind, target, **bindings):
    """
    Return the class of the error of a request of Alice that touches something else.

    *bindings* are the permissions on the topic or subject, and on the other thing.
    """
    own = RESOURCES[On.SUBJECT] if kind.on is On.SUBJECT else TOPIC
    places = {"own": own, "other": PATTERNS[target.on]}
    for name, permissions in bindings.items():
        await bind(broker, name, places[name], permissions)
    peer = await peer_of(broker, ALICE)
    channel = 1 if kind.on_channel else 0
    answer = await peer.ask(kind, touching(kind, target), channel)
    return ERRORS[answer.message.code] if answer.kind is Kind.ERROR else None


@pytest.fixture
async def guarded_bank(guarded):
    async with client_of(guarded, ROOT) as client:
        await client.namespaces.create("bank")
        await client.topics.create(ELSEWHERE[On.TOPIC])
    schema = NewSchema(type=SchemaType.STRING, definition=b"")
    await guarded.broker.registry.register(ELSEWHERE[On.SUBJECT], schema)
    return guarded


@pytest.mark.parametrize(("kind", "target"), TARGETS)
async def test_what_an_operation_touches_needs_its_permission_and_no_other(
    guarded_bank, kind, target
):
    others = set(Permission) - {target.permission}
    if target.permission is Permission.SCHEMA_READ:
        others.discard(Permission.SCHEMA_WRITE)
    error = await error_of_touching(
        *(guarded_bank, kind, target), own=set(Permission), other=others
    )
    assert error is PermissionDenied
    error = await error_of_touching(
        *(guarded_bank, kind, target),
        own={kind.permission},
        other={target.permission},
    )
    assert error is None or not issubclass(error, Refused)


@pytest.mark.parametrize("kind", [kind for kind in ORDERED if kind.on is On.CHANGED])
@pytest.mark.parametrize("principal", [ANONYMOUS, ALICE])
async def test_policy_is_changed_only_by_those_who_may_grant(guarded, kind, principal):
    access = guarded.broker.access
    everything = frozenset(Permission)
    await access.set_role(ROOT, Role("everything", everything))
    await access.add_binding(ROOT, Binding("user:eve", ("everything",), ("*",), "n"))
    binding = pb.Binding(member="user:alice", roles=["everything"], patterns=["*"])
    role = pb.Role(name="everything", permissions=["grant"], patterns=["*"])
    requests = {
        Kind.SET_ROLE: pb.SetRole(role=role),
        Kind.DELETE_ROLE: pb.DeleteRole(name="everything"),
        Kind.ADD_BINDING: pb.AddBinding(binding=binding),
        Kind.REMOVE_BINDING: pb.RemoveBinding(id="n"),
    }
    before = access.policy
    answer = await (await peer_of(guarded, principal)).ask(kind, requests[kind])
    assert answer.kind is Kind.ERROR
    assert issubclass(ERRORS[answer.message.code], Refused)
    assert access.policy == before


@pytest.mark.parametrize("kind", [kind for kind in ORDERED if kind.on is On.LISTED])
@pytest.mark.parametrize("principal", [ANONYMOUS, ALICE])
async def test_list_has_nothing_that_the_client_may_not_see(guarded, kind, principal):
    await guarded.broker.access.set_role(ROOT, Role("x", frozenset(Permission)))
    await guarded.broker.access.add_binding(
        ROOT, Binding("user:eve", ("x",), ("*",), "n")
    )
    await guarded.broker.quotas.set(QuotaTarget.parse("user:eve"), Quota(connections=9))
    definition = f'{{"kind": "k", "topic": "{TOPIC}"}}'
    await guarded.broker.connectors.set("c", TOPIC, definition, ROOT)
    request = kind.body()
    if kind is Kind.LIST_OFFSETS:
        request.topics.append(TOPIC)
    if kind is Kind.FIND_SEGMENTS:
        request.ranges.add(topic=TOPIC)
    peer = await peer_of(guarded, principal)
    answer = (await peer.ask(kind, request)).message
    names = {field.name for field in answer.DESCRIPTOR.fields}
    # They say nothing about what there is.
    fields = sorted(names - {"has_more", "revision", "now"})
    for field in fields:
        found = getattr(answer, field)
        if field == "roles":
            assert all(role.is_built_in for role in found)
        else:
            assert not found
    seen = (await (await peer_of(guarded, ROOT)).ask(kind, request)).message
    assert kind is Kind.LIST_SUBJECTS or any(getattr(seen, each) for each in fields)


@pytest.mark.parametrize("kind", [kind for kind in ORDERED if kind.on is On.CHANNEL])
async def test_operation_on_a_channel_that_is_not_open_does_nothing(guarded, kind):
    error = await error_of(guarded, ANONYMOUS, kind)
    assert error is None or not issubclass(error, Refused)


def test_every_operation_is_tested_above():
    tested = {*RESOURCES, On.CHANGED, On.LISTED, On.CHANNEL, On.ANYTHING}
    assert {kind.on for kind in OPERATIONS} <= tested


async def test_client_may_ask_who_it_is_and_what_it_may_do(guarded):
    peer = await peer_of(guarded, ANONYMOUS)
    found = (await peer.ask(Kind.WHO_AM_I, pb.WhoAmI())).message
    assert (found.name, found.is_enforced) == ("anonymous", True)
    asking = pb.CheckAccess(permission="produce", resource=TOPIC)
    decision = (await peer.ask(Kind.CHECK_ACCESS, asking)).message
    assert not decision.allowed
    asking.member = "user:alice"
    assert (await peer.ask(Kind.CHECK_ACCESS, asking)).kind is Kind.ERROR
    root = await peer_of(guarded, ROOT)
    assert "no binding" in (await root.ask(Kind.CHECK_ACCESS, asking)).message.rule

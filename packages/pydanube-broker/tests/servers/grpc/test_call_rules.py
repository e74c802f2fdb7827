"""Every gRPC method needs the permission of an operation."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace

import grpc
import pytest

from pydanube.model.names import NamespaceName, TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.model.schemas import SchemaType
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.security.quotas import Quota, QuotaTarget
from pydanube.wire.native.kinds import OPERATIONS, On
from pydanube.wire.pb import (
    POOL,
    danube_admin_pb2,
    danube_api_pb2,
    schema_registry_pb2,
)
from pydanube_broker.broker.publishing.schema_registry import NewSchema
from pydanube_broker.dispatch.shared_counts import SharedCounts, bytes_of
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.grpc.admin import admin_services
from pydanube_broker.servers.grpc.call_rules import CALL_RULES, Charge
from pydanube_broker.servers.grpc.server import open_listener
from support.drivers.danube_calls import open_danube_server
from support.fakes.grpc_calls import connected
from support.fakes.principals import ROOT, ChosenIdentity, client_of, guarded_broker

ALICE = Principal("alice", "token")
TOPIC = "/shop/orders"
PLACES = {
    On.TOPIC: TOPIC,
    On.NAMESPACE: "/shop",
    On.SUBJECT: "subject:orders",
    On.CLUSTER: "cluster",
}
VALUES = {
    "topic": TOPIC,
    "namespace": "shop",
    "subject": "orders",
    "schema_id": 1,
}
FILES = (danube_api_pb2, danube_admin_pb2, schema_registry_pb2)
GUARDED = sorted(name for name, rule in CALL_RULES.items() if rule.kind.on in PLACES)
REFUSALS = {"UNAUTHENTICATED", "PERMISSION_DENIED"}


@pytest.fixture
async def guarded():
    async with serving() as found:
        yield found


@asynccontextmanager
async def serving():
    """Serve all of Danube's services of one broker on one port."""
    async with guarded_broker() as memory, client_of(memory, ROOT) as client:
        await client.namespaces.create("shop")
        await client.topics.create(TOPIC)
        broker = memory.broker
        await broker.registry.register(
            "orders", NewSchema(type=SchemaType.STRING, definition=b"")
        )
        admins = admin_services(broker, broker_url="", admin_url="", metrics_address="")
        counts, identity = ConnectionCounts(listener="admin"), ChosenIdentity()
        async with (
            open_danube_server(
                broker, wall_clock_us=lambda: 1, window_messages_max=10
            ) as danube,
            open_listener("127.0.0.1", 0, name="a", flag="--a") as listener,
            listener.serving(
                [*danube.services, *admins],
                broker,
                counts=counts,
                authenticator=identity,
            ) as server,
            connected(listener.port) as calls,
        ):
            yield SimpleNamespace(
                broker=broker, server=server, calls=calls, identity=identity
            )


def all_methods():
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield f"{service.full_name}/{method.name}"


def test_every_method_has_a_rule():
    assert set(all_methods()) == set(CALL_RULES)


@pytest.mark.parametrize("name", CALL_RULES)
def test_rule_names_fields_of_the_request_and_of_the_operation(name):
    rule = CALL_RULES[name]
    assert rule.kind in OPERATIONS
    if rule.kind.on in {On.TOPIC, On.NAMESPACE, On.SUBJECT}:
        assert rule.fields
    assert rule.native_request(request_of(name)) is not None


def request_of(name):
    service, _, method = name.partition("/")
    descriptor = POOL.FindServiceByName(service).methods_by_name[method]
    request = next(
        getattr(file, descriptor.input_type.name)
        for file in FILES
        if hasattr(file, descriptor.input_type.name)
        and descriptor.input_type.file.name == file.DESCRIPTOR.name
    )()
    for field, path in CALL_RULES[name].fields.items():
        *parents, last = path.split(".")
        place = request
        for parent in parents:
            place = getattr(place, parent)
        setattr(place, last, VALUES[field])
    return request


async def status_of(guarded, principal, name):
    """Return the status of a call; None: it succeeds."""
    become(guarded, principal)
    try:
        call = guarded.calls(name, request_of(name), timeout=30)
        await (call.read() if hasattr(call, "read") else call)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return None


def become(guarded, principal):
    guarded.identity.principal = principal


@pytest.mark.parametrize("name", GUARDED)
async def test_caller_without_permission_is_refused(guarded, name):
    assert await status_of(guarded, ANONYMOUS, name) == "UNAUTHENTICATED"
    assert await status_of(guarded, ALICE, name) == "PERMISSION_DENIED"
    rule = CALL_RULES[name]
    access, place = guarded.broker.access, PLACES[rule.kind.on]
    await access.set_role(ROOT, Role("r", frozenset({rule.kind.permission})))
    await access.add_binding(ROOT, Binding("user:alice", ("r",), (place,), "b"))
    assert await status_of(guarded, ALICE, name) not in REFUSALS


@pytest.mark.parametrize("name", CALL_RULES)
async def test_empty_request_is_no_failure_of_the_broker(guarded, name):
    answers = {}
    for principal in (ANONYMOUS, ALICE, ROOT):
        become(guarded, principal)
        try:
            call = guarded.calls(name, type(request_of(name))(), timeout=30)
            # A stream that is accepted has nothing to send.
            await (call.initial_metadata() if hasattr(call, "read") else call)
        except grpc.aio.AioRpcError as error:
            answers[principal.name] = error.code().name
        else:
            answers[principal.name] = ""
    assert not {"INTERNAL", "UNKNOWN"} & set(answers.values()), answers


async def test_call_that_another_process_has_charged_is_not_charged_again(guarded):
    name = "danube_admin.BrokerAdmin/ListNamespaces"
    memory = memoryview(bytearray(bytes_of(2)))
    quotas = guarded.broker.quotas
    quotas.shared = SharedCounts(memory, number=2, count=2, proof="secret")
    await quotas.set(QuotaTarget.parse("user:alice"), Quota(connections=1))
    # Her connection is at the first process.
    other = SharedCounts(memory, number=1, count=2).of("user:alice")
    other.add("connections", 1)
    become(guarded, ALICE)

    async def status(proof):
        try:
            metadata = [("x-danube-forwarded", proof)]
            await guarded.calls(name, request_of(name), timeout=30, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return None

    assert await status("1") == "RESOURCE_EXHAUSTED"
    [connection] = guarded.server.connections
    assert connection.facts(None).client == ""
    assert await status("secret") != "RESOURCE_EXHAUSTED"
    assert connection.facts(None).client == "another broker or process"
    assert quotas.describe(QuotaTarget.parse("user:alice")).used["connections"] == 1


LEDGER, LEDGERS = "/bank/ledger", "subject:ledger"
TOUCHING = {
    "danube_admin.TopicAdmin/SetSubscriptionFailurePolicy": (
        danube_admin_pb2.SetSubscriptionFailurePolicyRequest(
            topic=TOPIC,
            subscription="s",
            failure_policy=danube_admin_pb2.SubscriptionFailurePolicy(
                dead_letter_topic=LEDGER
            ),
        ),
        LEDGER,
    ),
    "danube_admin.TopicAdmin/CreateTopic": (
        danube_admin_pb2.NewTopicRequest(name="/shop/new", schema_subject="ledger"),
        LEDGERS,
    ),
    "danube_admin.TopicAdmin/CreatePartitionedTopic": (
        danube_admin_pb2.PartitionedTopicRequest(
            base_name="/shop/new", partitions=2, schema_subject="ledger"
        ),
        LEDGERS,
    ),
    "danube.ProducerService/CreateProducer": (
        danube_api_pb2.ProducerRequest(
            topic_name=TOPIC,
            producer_name="p",
            dispatch_strategy=danube_api_pb2.DispatchStrategy.Reliable,
            schema_ref=danube_api_pb2.SchemaReference(
                subject="ledger", use_latest=True
            ),
        ),
        LEDGERS,
    ),
    "danube_schema.SchemaRegistry/ConfigureTopicSchema": (
        schema_registry_pb2.ConfigureTopicSchemaRequest(
            topic_name=TOPIC, schema_subject="ledger", validation_policy="warn"
        ),
        LEDGERS,
    ),
}
"""Requests that also name something of somebody else."""


def paths_of(descriptor):
    """The paths of the fields of a request, and of those in its messages."""
    for field in descriptor.fields:
        yield field.name
        if field.message_type is not None:
            for path in paths_of(field.message_type):
                yield f"{field.name}.{path}"


@pytest.mark.parametrize("name", CALL_RULES)
def test_fields_that_name_something_else_are_targets(name):
    names = ("dead_letter_topic", "schema_subject", "schema_ref.subject")
    touched = {
        path for path in paths_of(request_of(name).DESCRIPTOR) if path.endswith(names)
    }
    rule = CALL_RULES[name]
    assert {target.field for target in rule.targets} == touched
    # Calls without a task are not checked for more than their topic.
    assert not rule.targets or rule.charge is Charge.REQUEST


def test_every_method_that_touches_more_is_tested():
    assert set(TOUCHING) == {name for name in CALL_RULES if CALL_RULES[name].targets}


@pytest.mark.parametrize("name", TOUCHING)
async def test_what_a_method_touches_needs_a_permission_of_its_own(guarded, name):
    broker, access = guarded.broker, guarded.broker.access
    request, pattern = TOUCHING[name]
    [target] = CALL_RULES[name].targets
    await broker.namespaces.create(NamespaceName("bank"))
    await broker.topics.create(TopicName.parse(LEDGER), TopicPolicy())
    schema = NewSchema(type=SchemaType.STRING, definition=b"")
    await broker.registry.register("ledger", schema)
    others = frozenset(set(Permission) - {target.permission, Permission.SCHEMA_WRITE})
    for role, permissions, place in (
        ("own", frozenset(Permission), "/shop/*"),
        ("other", others, pattern),
    ):
        await access.set_role(ROOT, Role(role, permissions))
        await access.add_binding(ROOT, Binding("user:alice", (role,), (place,), role))
    become(guarded, ALICE)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await guarded.calls(name, request)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    await access.set_role(ROOT, Role("other", frozenset({target.permission})))
    await guarded.calls(name, request)


async def test_stream_of_a_consumer_ends_when_its_binding_is_removed(guarded):
    access, calls = guarded.broker.access, guarded.calls
    await access.add_binding(ROOT, Binding("user:alice", ("consumer",), (TOPIC,), "b"))
    become(guarded, ALICE)
    request = danube_api_pb2.ConsumerRequest(
        topic_name=TOPIC, subscription="s", consumer_name="c"
    )
    consumer = await calls("danube.ConsumerService/Subscribe", request)
    receive = danube_api_pb2.ReceiveRequest(consumer_id=consumer.consumer_id)
    stream = calls("danube.ConsumerService/ReceiveMessages", receive)
    await stream.initial_metadata()
    await access.remove_binding(ROOT, "b")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_number_of_a_consumer_is_no_credential(guarded):
    become(guarded, ROOT)
    request = danube_api_pb2.ConsumerRequest(
        topic_name=TOPIC, subscription="s", consumer_name="c"
    )
    consumer = await guarded.calls("danube.ConsumerService/Subscribe", request)
    receive = danube_api_pb2.ReceiveRequest(consumer_id=consumer.consumer_id)
    for principal, status in (
        (ALICE, "PERMISSION_DENIED"),
        (ANONYMOUS, "UNAUTHENTICATED"),
    ):
        become(guarded, principal)
        method = "danube.ConsumerService/ReceiveMessages"
        assert (await guarded.calls.refusal(method, receive))[0] == status


async def test_producer_may_send_until_its_binding_is_removed(guarded):
    access, calls = guarded.broker.access, guarded.calls
    await access.add_binding(ROOT, Binding("user:alice", ("producer",), (TOPIC,), "b"))
    become(guarded, ALICE)
    created = await calls(
        "danube.ProducerService/CreateProducer",
        danube_api_pb2.ProducerRequest(
            topic_name=TOPIC,
            producer_name="p",
            dispatch_strategy=danube_api_pb2.Reliable,
        ),
    )
    message = danube_api_pb2.StreamMessage(payload=b"1")
    message.msg_id.producer_id = created.producer_id
    message.msg_id.topic_name = TOPIC
    send = "danube.ProducerService/SendMessage"
    await calls(send, message)
    await access.remove_binding(ROOT, "b")
    assert (await calls.refusal(send, message))[0] == "PERMISSION_DENIED"
    # Another topic in the request does not help.
    message.msg_id.topic_name = "/shop/other"
    await access.add_binding(
        ROOT, Binding("user:alice", ("producer",), ("/shop/other",), "b")
    )
    assert (await calls.refusal(send, message))[0] == "INVALID_ARGUMENT"


async def test_lists_have_only_what_the_caller_may_see(guarded):
    become(guarded, ALICE)
    empty = danube_admin_pb2.Empty()
    calls = guarded.calls
    found = await calls("danube_admin.BrokerAdmin/ListNamespaces", empty)
    assert not found.namespaces
    found = await calls(
        "danube_schema.SchemaRegistry/ListSubjects",
        schema_registry_pb2.ListSubjectsRequest(),
    )
    assert not found.subjects
    await guarded.broker.access.add_binding(
        ROOT, Binding("user:alice", ("viewer",), ("/shop/a*",), "b")
    )
    found = await calls("danube_admin.BrokerAdmin/ListNamespaces", empty)
    assert found.namespaces == ["shop"]
    found = await calls(
        "danube_admin.NamespaceAdmin/GetNamespaceTopics",
        danube_admin_pb2.NamespaceRequest(name="shop"),
    )
    assert not found.topics


async def test_stranger_changes_no_roles_and_bindings(guarded):
    become(guarded, ALICE)
    role = danube_admin_pb2.RoleDefinition(name="r", permissions=["Produce"])
    binding = danube_admin_pb2.BindingDefinition(
        id="b",
        principal_type="user",
        principal_name="alice",
        role_names=["admin"],
        scope="cluster",
    )
    service = "danube_admin.SecurityAdmin"
    for method, request in (
        ("CreateRole", danube_admin_pb2.CreateRoleRequest(role=role)),
        ("CreateBinding", danube_admin_pb2.CreateBindingRequest(binding=binding)),
    ):
        found = await guarded.calls.refusal(f"{service}/{method}", request)
        assert found[0] == "PERMISSION_DENIED"


@pytest.mark.parametrize("principal_type", ["user", "service_account", "group"])
async def test_a_binding_keeps_its_principal_type(guarded, principal_type):
    become(guarded, ROOT)
    binding = danube_admin_pb2.BindingDefinition(
        id="b",
        principal_type=principal_type,
        principal_name="billing",
        role_names=["viewer"],
        scope="cluster",
    )
    service = "danube_admin.SecurityAdmin"
    await guarded.calls(
        f"{service}/CreateBinding",
        danube_admin_pb2.CreateBindingRequest(binding=binding),
    )
    found = await guarded.calls(
        f"{service}/GetBinding",
        danube_admin_pb2.GetBindingRequest(binding_id="b", scope="cluster"),
    )
    assert found.binding == binding

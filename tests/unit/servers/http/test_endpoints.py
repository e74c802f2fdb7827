"""Every endpoint of the JSON API needs the permissions of its operations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest

from pydanube.broker.schema_registry import NewSchema
from pydanube.model.names import NamespaceName, TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.model.schemas import SchemaType
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.servers.http.app import ENDPOINTS, make_app
from pydanube.servers.http.endpoints import SUBSCRIPTION
from pydanube.servers.http.endpoints import TOPIC as TOPIC_PATH
from pydanube.wire.native.kinds import On
from support.http_api import State
from support.principals import ROOT, ChosenIdentity, client_of, guarded_broker

ALICE = Principal("alice", "token")
TOPIC = "/shop/orders"
PLACES = {
    On.TOPIC: TOPIC,
    On.NAMESPACE: "/shop",
    On.SUBJECT: "subject:orders",
    On.CLUSTER: "cluster",
}
PATH = {
    "namespace": "shop",
    "topic": "orders",
    "subscription": "s",
    "subject": "orders",
    "version": "1",
    "schema_id": "1",
    "name": "everything",
    "id": "n",
}
BODIES: dict[str, Any] = {
    "/topics": {"name": TOPIC},
    "/namespaces": {"name": "shop"},
    "/topics/{namespace}/{topic}/partitions": {"count": 2},
    "/topics/{namespace}/{topic}/settings": {"schema": {"subject": "orders"}},
    "/topics/{namespace}/{topic}/subscriptions/{subscription}/settings": {
        "is_paused": True
    },
    "/namespaces/{namespace}/settings": {"policy": {}},
    "/topics/{namespace}/{topic}/subscriptions": {"name": "s", "type": "shared"},
    "/topics/{namespace}/{topic}/subscriptions/{subscription}/seek": {"to": "latest"},
    "/topics/{namespace}/{topic}/subscriptions/{subscription}/skip": {"count": 1},
    "/schemas/{subject}/versions": {"type": "string", "definition": ""},
    "/schemas/{subject}/check": {"type": "string", "definition": ""},
    "/schemas/{subject}/compatibility": {"compatibility": "none"},
    "/security/roles/{name}": {"permissions": ["grant"]},
    "/security/bindings": {
        "member": "user:alice",
        "roles": ["everything"],
        "patterns": ["*"],
    },
    "/security/keys": {"name": "alice"},
}
ALL_LISTS = [
    each for each in ENDPOINTS if {kind.on for kind in each.operations} == {On.LISTED}
]
POLICY_LISTS = [each for each in ALL_LISTS if each.path.startswith("/security/")]
LISTS = [each for each in ALL_LISTS if each not in POLICY_LISTS]
KEYS = [each for each in ENDPOINTS if each.path.startswith("/security/keys")]
CHANGES = [
    each for each in ENDPOINTS if {kind.on for kind in each.operations} == {On.CHANGED}
]
OPEN = ["GET /security/whoami", "GET /security/can"]
"""The endpoints for all clients with an identity."""


def name_of(endpoint):
    return f"{endpoint.method} {endpoint.path}"


GUARDED = [
    each
    for each in ENDPOINTS
    if each not in [*ALL_LISTS, *CHANGES] and name_of(each) not in OPEN
]


@pytest.fixture
async def guarded():
    async with guarded_broker() as memory, client_of(memory, ROOT) as client:
        await client.namespaces.create("shop")
        await client.topics.create(TOPIC)
        schema = NewSchema(type=SchemaType.STRING, definition=b"")
        await memory.broker.registry.register("orders", schema)
        identity = ChosenIdentity()
        app = make_app(State(memory.broker), authenticator=identity)
        yield SimpleNamespace(broker=memory.broker, app=app, identity=identity)


async def answer_of(guarded, principal, endpoint, body=None):
    """Return the status and the JSON of a request."""
    guarded.identity.principal = principal
    transport = httpx.ASGITransport(guarded.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
        path = endpoint.path.format(**PATH)
        if body is None and endpoint.body is not None:
            body = BODIES.get(endpoint.path, {})
        answer = await http.request(endpoint.method, f"/api/v1{path}", json=body)
    return answer.status_code, answer.json() if answer.content else None


@pytest.mark.parametrize("endpoint", GUARDED, ids=name_of)
async def test_request_without_permission_is_refused(guarded, endpoint):
    assert (await answer_of(guarded, ANONYMOUS, endpoint))[0] == 401
    assert (await answer_of(guarded, ALICE, endpoint))[0] == 403
    access = guarded.broker.access
    bound = []
    for kind in endpoint.operations:
        name, place = kind.name.lower(), PLACES[kind.on]
        await access.set_role(ROOT, Role(name, frozenset({kind.permission})))
        bound.append(Binding("user:alice", (name,), (place,), name))
    if name_of(endpoint) == f"PATCH {TOPIC_PATH}/settings":
        bound.append(Binding("user:alice", ("viewer",), ("subject:orders",), "subject"))
    for binding in bound:
        await access.add_binding(ROOT, binding)
    status, answer = await answer_of(guarded, ALICE, endpoint)
    if endpoint in KEYS:
        # They need a superuser.
        assert (status, "may not manage API keys" in answer["message"]) == (403, True)
    else:
        assert status not in {400, 401, 403}


def dead_lettering(topic):
    policy = {"poison": "dead_letter", "dead_letter_topic": topic}
    return {"failure_policy": policy}


LEDGER, LEDGERS = "/bank/ledger", "subject:ledger"
TOUCHING = {
    f"PATCH {SUBSCRIPTION}/settings": (dead_lettering(LEDGER), LEDGER),
    f"PATCH {TOPIC_PATH}/settings": ({"schema": {"subject": "ledger"}}, LEDGERS),
    "POST /topics": ({"name": "/shop/new", "schema": {"subject": "ledger"}}, LEDGERS),
}
"""Bodies that name something of somebody else, by the name of their endpoint."""
NEEDED = {LEDGER: Permission.PRODUCE, LEDGERS: Permission.SCHEMA_READ}


def names_more(endpoint):
    """Whether the body of an endpoint has a field that names something else."""
    if endpoint.body is None:
        return False
    schema = str(msgspec.json.schema(endpoint.body))
    return "'dead_letter_topic'" in schema or "'subject'" in schema


def test_every_endpoint_that_touches_more_is_tested():
    assert set(TOUCHING) == {name_of(each) for each in ENDPOINTS if names_more(each)}


@pytest.mark.parametrize("name", TOUCHING)
async def test_what_an_endpoint_touches_needs_a_permission_of_its_own(guarded, name):
    [endpoint] = [each for each in ENDPOINTS if name_of(each) == name]
    body, pattern = TOUCHING[name]
    access, broker = guarded.broker.access, guarded.broker
    await broker.namespaces.create(NamespaceName("bank"))
    await broker.topics.create(TopicName.parse(LEDGER), TopicPolicy())
    schema = NewSchema(type=SchemaType.STRING, definition=b"")
    await broker.registry.register("ledger", schema)
    for role, permissions, place in (
        ("own", set(Permission), "/shop/*"),
        (
            "other",
            set(Permission) - {NEEDED[pattern], Permission.SCHEMA_WRITE},
            pattern,
        ),
    ):
        await access.set_role(ROOT, Role(role, frozenset(permissions)))
        await access.add_binding(ROOT, Binding("user:alice", (role,), (place,), role))
    assert (await answer_of(guarded, ALICE, endpoint, body))[0] == 403
    await access.set_role(ROOT, Role("other", frozenset({NEEDED[pattern]})))
    assert (await answer_of(guarded, ALICE, endpoint, body))[0] in {200, 201}


@pytest.mark.parametrize("endpoint", CHANGES, ids=name_of)
@pytest.mark.parametrize("principal", [ANONYMOUS, ALICE], ids=["nobody", "alice"])
async def test_policy_is_changed_only_by_those_who_may_grant(
    guarded, endpoint, principal
):
    access = guarded.broker.access
    await access.set_role(ROOT, Role("everything", frozenset(Permission)))
    await access.add_binding(ROOT, Binding("user:eve", ("everything",), ("*",), "n"))
    before = access.policy
    status, _ = await answer_of(guarded, principal, endpoint)
    assert status in {401, 403}
    assert access.policy == before
    assert (await answer_of(guarded, ROOT, endpoint))[0] in {200, 201, 204, 409}


async def test_policy_is_shown_only_to_those_who_may_grant(guarded):
    access = guarded.broker.access
    await access.set_role(ROOT, Role("everything", frozenset(Permission)))
    await access.add_binding(ROOT, Binding("user:eve", ("everything",), ("*",), "n"))
    for endpoint in POLICY_LISTS:
        _, answer = await answer_of(guarded, ALICE, endpoint)
        [found] = answer.values()
        assert all(each.get("is_built_in") for each in found)
        _, answer = await answer_of(guarded, ROOT, endpoint)
        [found] = answer.values()
        assert "everything" in str(found)


def test_every_endpoint_is_tested():
    tested = [*LISTS, *POLICY_LISTS, *CHANGES, *GUARDED]
    found = {name_of(each) for each in tested} | set(OPEN)
    assert found == {name_of(each) for each in ENDPOINTS}


@pytest.mark.parametrize("endpoint", LISTS, ids=name_of)
async def test_list_has_only_what_the_client_may_see(guarded, endpoint):
    status, answer = await answer_of(guarded, ALICE, endpoint)
    assert status == 200
    assert not any(answer.values())
    status, answer = await answer_of(guarded, ROOT, endpoint)
    assert any(answer.values())


@pytest.mark.parametrize(
    ("principal", "status"), [(ANONYMOUS, 401), (ALICE, 403), (ROOT, 200)]
)
async def test_metrics_need_permission_because_they_name_topics(
    guarded, principal, status
):
    guarded.identity.principal = principal
    transport = httpx.ASGITransport(guarded.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
        assert (await http.get("/metrics")).status_code == status
        assert (await http.get("/healthz")).status_code == 200

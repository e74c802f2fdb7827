"""Requests without permission say nothing about what exists."""

from __future__ import annotations

import re
from json import dumps
from types import SimpleNamespace

import httpx
import pytest

from pydanube.model.errors import BrokerError, Refused
from pydanube.model.schemas import SchemaType
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.wire.native.kinds import OPERATIONS, Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.publishing.schema_registry import NewSchema
from pydanube_broker.servers.http.app import make_app
from pydanube_broker.servers.http.iceberg import ICEBERG
from pydanube_broker.servers.http.operations import is_readable, path_of
from support.fakes.http_api import State
from support.fakes.principals import ROOT, ChosenIdentity, client_of, guarded_broker

NOBODY = Principal("nobody", "token")
GRANTER = Principal("granter", "token")
PRINCIPALS = [ANONYMOUS, NOBODY, GRANTER]

REAL = {
    "namespace": "bank",
    "topic": "/bank/accounts",
    "subject": "secret",
    "name": "hidden",
    "query": "nightly",
    "subscription": "readers",
    "id": "0123456789ab",
    "schema_id": 1,
    "target": "user:victim",
    "member": "user:victim",
}
"""Names of things that exist, of other principals."""
MISSING = {
    "namespace": "void",
    "topic": "/void/nowhere0",
    "subject": "absent",
    "name": "absent",
    "query": "missing",
    "subscription": "nobodys",
    "id": "ba9876543210",
    "schema_id": 7,
    "target": "user:nobodyy",
    "member": "user:nobodyy",
}
UNARY = [kind for kind in sorted(OPERATIONS) if not kind.on_channel]


@pytest.fixture
async def guarded():
    async with guarded_broker() as broker:
        access = broker.broker.access
        async with client_of(broker, ROOT) as root:
            for namespace in ("bank", "shop"):
                await root.namespaces.create(namespace)
            await root.topics.create(REAL["topic"])
            await root.subscriptions.create(REAL["topic"], REAL["subscription"])
            await root.staging(REAL["query"], 1).commit([])
            definition = dumps({"kind": "http-sink", "topic": REAL["topic"]})
            await root.connectors.set(REAL["name"], REAL["topic"], definition)
        schema = NewSchema(type=SchemaType.STRING, definition=b"")
        await broker.broker.registry.register(REAL["subject"], schema)
        hidden = Role(REAL["name"], frozenset({Permission.CONSUME}), ("/bank/*",))
        await access.set_role(ROOT, hidden)
        await access.add_binding(
            ROOT, Binding(REAL["member"], (hidden.name,), ("/bank/*",), REAL["id"])
        )
        role = Role("sharing", frozenset({Permission.GRANT, Permission.PRODUCE}))
        await access.set_role(ROOT, role)
        await access.add_binding(
            ROOT, Binding("user:granter", ("sharing",), ("/shop/*",), "share")
        )
        identity = ChosenIdentity()
        app = make_app(State(broker.broker), authenticator=identity)
        yield SimpleNamespace(broker=broker, app=app, identity=identity)


def request_of(kind, names):
    fields = kind.body.DESCRIPTOR.fields_by_name
    message = kind.body(
        **{
            name: value
            for name, value in names.items()
            if name in fields and fields[name].message_type is None
        }
    )
    if not names:
        return message
    match kind:
        case Kind.SET_ROLE:
            # A principal with grant may define such a role under another name.
            message.role.MergeFrom(pb.Role(name=names["name"], permissions=["grant"]))
            message.role.patterns.append("/elsewhere/*")
        case Kind.ADD_BINDING:
            message.binding.member = "user:eve"
            message.binding.roles.append(names["name"])
            message.binding.patterns.append("/shop/*")
        case Kind.CHECK_ACCESS:
            message.permission, message.resource = "consume", names["topic"]
        case Kind.LIST_OFFSETS:
            message.topics.append(names["topic"])
        case Kind.FIND_SEGMENTS:
            message.ranges.add(topic=names["topic"])
    return message


def without_names(text, names):
    """Replace *names* in a text, the longest first."""
    # The id of the broker's run is random, and may have a name in it.
    text = re.sub(r'run: "[-0-9a-f]+"', "run: ...", text)
    # Each answer has a time of its own.
    text = re.sub(r"\bnow\b(\W+)\d+", r"now\1...", text)
    for name in sorted(map(str, names.values()), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "NAME", text)
    return text


async def native_answer(client, kind, names):
    try:
        answer = await client.requester.send_request(request_of(kind, names))
    except BrokerError as error:
        return error.code, without_names(str(error), names)
    return "done", without_names(str(answer), names)


async def native_answers(guarded, principal, kind, *names):
    async with client_of(guarded.broker, principal) as client:
        return [await native_answer(client, kind, each) for each in names]


@pytest.mark.rotated
@pytest.mark.parametrize("kind", UNARY)
async def test_operation_answers_alike_whether_a_thing_exists(guarded, kind):
    # Those who are refused change nothing for the next.
    for principal in PRINCIPALS:
        # A query belongs to the first that names it, so the missing one exists then.
        if "query" in kind.body.DESCRIPTOR.fields_by_name and principal is GRANTER:
            continue
        missing, real = await native_answers(guarded, principal, kind, MISSING, REAL)
        assert missing[0] != "internal", principal
        assert real == missing, principal


@pytest.mark.rotated
@pytest.mark.parametrize("kind", UNARY)
async def test_empty_request_is_refused_or_answered(guarded, kind):
    for principal in (*PRINCIPALS, ROOT):
        ((code, _),) = await native_answers(guarded, principal, kind, {})
        assert code != "internal", principal


@pytest.mark.parametrize("field", ["id", "name"])
async def test_one_who_may_grant_learns_no_names_of_others(guarded, field):
    async with client_of(guarded.broker, GRANTER) as client:
        answers = []
        for names in (REAL, MISSING):
            try:
                if field == "id":
                    await client.security.add_binding(
                        "user:x", ["sharing"], ["/shop/*"], binding_id=names["id"]
                    )
                else:
                    await client.security.delete_role(names["name"])
            except BrokerError as error:
                answers.append((error.code, without_names(str(error), names)))
        assert len(answers) == 2
        assert answers[0] == answers[1]
        text = str(answers)
        assert "consume" not in text
        assert "bank" not in text
        assert {role.name for role in await client.security.roles()} & {
            "hidden"
        } == set()


async def test_one_who_may_grant_asks_only_about_what_they_may_grant(guarded):
    async with client_of(guarded.broker, GRANTER) as client:
        asked = await client.security.check_access(
            "produce", "/shop/x", member="user:victim"
        )
        assert not asked.allowed
        for resource in ("/bank/accounts", "cluster", "subject:secret"):
            with pytest.raises(Refused):
                await client.security.check_access(
                    "consume", resource, member="user:victim"
                )
        assert not (
            await client.security.check_access("consume", "/bank/accounts")
        ).allowed


def query_of(kind):
    """Return a query with all names that an operation takes."""
    names = kind.body.DESCRIPTOR.fields_by_name.keys() & REAL.keys()
    return "&".join(f"{name}={{{name}}}" for name in sorted(names))


READING = [
    *(
        ("GET", f"/api/v1{path_of(kind)}?{query_of(kind)}")
        for kind in UNARY
        if is_readable(kind)
    ),
    *((each.method, f"/iceberg/v1{each.path}") for each in ICEBERG),
]


async def http_answer(guarded, method, path, names):
    transport = httpx.ASGITransport(guarded.app)
    path_names = {name: names[name] for name in names if f"{{{name}}}" in path}
    if path.startswith("/iceberg") and "topic" in path_names:
        path_names["topic"] = names["topic"].rpartition("/")[2]
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
        answer = await http.request(method, path.format(**path_names))
    return answer.status_code, without_names(answer.text, path_names)


@pytest.mark.parametrize(("method", "path"), READING, ids=lambda each: each)
async def test_endpoint_answers_alike_whether_a_thing_exists(guarded, method, path):
    for principal in PRINCIPALS:
        guarded.identity.principal = principal
        missing = await http_answer(guarded, method, path, MISSING)
        assert missing[0] != 500, principal
        real = await http_answer(guarded, method, path, REAL)
        assert real == missing, principal

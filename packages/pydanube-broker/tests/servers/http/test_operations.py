"""The JSON API, which is derived from the table of operations."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from types import SimpleNamespace

import pytest
from google.protobuf.json_format import MessageToDict

from pydanube import Schema
from pydanube.security.permissions import Permission
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.wire.native.kinds import OPERATIONS, Kind, On
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.governance.api_keys import open_api_keys
from pydanube_broker.metadata.sqlite import open_sqlite
from pydanube_broker.operations.handlers import handlers
from pydanube_broker.servers.http.operations import (
    BODY_BYTES_MAX,
    LISTED_AT_ONCE,
    encode_json,
    is_readable,
    path_of,
)
from support.fakes.http_api import Api, State, http_of
from support.fakes.principals import ROOT, ChosenIdentity, client_of, guarded_broker

ALICE = Principal("alice", "token")
TOPIC = "/shop/orders"
NAMES = {"topic": TOPIC, "namespace": "shop", "subject": "orders", "query": "q"}
ALL = sorted(handlers())
FOR_EVERYBODY = {On.LISTED, On.ANYTHING}


@pytest.fixture
async def guarded():
    """Return the API of a broker with security, for the principal of a test."""
    identity = ChosenIdentity()
    identity.principal = ROOT
    async with (
        guarded_broker() as memory,
        client_of(memory, ROOT) as client,
        open_sqlite(None) as store,
        open_api_keys(
            store,
            wall_clock_us=lambda: 1_000_000,
            random_bytes=secrets.token_bytes,
        ) as api_keys,
        http_of(State(memory.broker), authenticator=identity) as http,
    ):
        identity.on_serving(api_keys, memory.broker.audit.record_failed_authentication)
        await client.namespaces.create("shop")
        await client.topics.create(TOPIC)
        await client.schemas.register("orders", Schema.avro('"string"'))
        yield SimpleNamespace(
            api=Api(http, client), identity=identity, broker=memory.broker
        )


# All operations.


def test_every_operation_that_needs_no_connection_has_a_path():
    streams = {kind for kind in OPERATIONS if kind.on_channel} | {Kind.FETCH}
    assert set(ALL) == OPERATIONS - streams


def fields_of(kind):
    """Return fields with which an operation would do something."""
    if kind is Kind.SET_ROLE:
        return {"role": {"name": "r", "permissions": ["grant"]}}
    if kind is Kind.ADD_BINDING:
        member = {"member": "user:alice", "roles": ["admin"], "patterns": ["*"]}
        return {"binding": member}
    known = kind.body.DESCRIPTOR.fields_by_name
    return {name: value for name, value in NAMES.items() if name in known}


async def test_every_operation_without_permission_is_refused(guarded):
    access, http = guarded.broker.access, guarded.api.http
    before = access.policy
    for principal, status in ((ANONYMOUS, 401), (ALICE, 403)):
        guarded.identity.principal = principal
        for kind in ALL:
            if kind.on in FOR_EVERYBODY:
                continue
            path, fields = f"/api/v1{path_of(kind)}", fields_of(kind)
            answers = [await http.post(path, json=fields)]
            if is_readable(kind):
                answers.append(await http.get(path, params=fields))
            refusals = {401, 403} if kind.on is On.CHANGED else {status}
            assert {each.status_code for each in answers} <= refusals, kind.name
    assert access.policy == before


async def test_lists_have_only_what_the_client_may_see(guarded):
    guarded.identity.principal = ALICE
    for kind in ALL:
        if kind.on is On.LISTED:
            answer = await guarded.api.ask("POST", path_of(kind), {})
            assert TOPIC not in str(answer)


def test_only_operations_that_change_nothing_are_a_get():
    for kind in filter(is_readable, ALL):
        assert kind.permission in {Permission.DESCRIBE, Permission.SCHEMA_READ}
        assert kind.name.split("_")[0] not in {"CREATE", "DELETE", "SET", "CONFIGURE"}


async def test_field_that_names_something_else_needs_a_permission_of_its_own(guarded):
    api, client = guarded.api, guarded.api.client
    await client.security.set_role("own", [each.value for each in Permission])
    await client.security.add_binding("user:alice", ["own"], ["/shop/*"])
    guarded.identity.principal = ALICE
    bound = {"topic": TOPIC, "settings": {"schema": {"subject": "orders"}}}
    await api.post("configure_topic", 403, **bound)
    await client.security.add_binding("user:alice", ["viewer"], ["subject:orders"])
    await api.post("configure_topic", **bound)


async def test_administrative_operations_are_audited_with_their_fields(guarded):
    recorded = []
    audit = SimpleNamespace(
        is_enabled=True, record=lambda **record: recorded.append(record)
    )
    audited = replace(guarded.broker, audit=audit)
    async with http_of(State(audited), authenticator=guarded.identity) as http:
        api = Api(http, guarded.api.client)
        await api.post("create_topic", topic="/shop/new", partitions=2)
        await api.get("/list_topics")
    [record] = recorded
    assert (record["operation"], record["listener"]) == ("create_topic", "http")
    assert record["resource"] == "/shop/new"
    assert '"partitions":2' in record["details"]


# Some operations, from one end to the other.


async def test_topic_is_created_configured_described_and_deleted(api):
    topic = "/default/Łódź"
    policy = {"ttl_s": 5.5, "written_is_enough": True}
    assert await api.post("create_topic", topic=topic, policy=policy) == {}
    # The settings that are given are those that change; null is the default.
    await api.post("configure_topic", topic=topic, settings={"seal_age_s": 60})
    limits = {"max_publish_rate": 9}
    settings = {"limits": limits, "seal_age_s": None}
    await api.post("configure_topic", topic=topic, settings=settings)
    found = await api.post("describe_topic", topic=topic)
    assert (found["topic"], found["end_offset"]) == (topic, "0")
    assert not found["policy"]["non_reliable"]
    assert (found["policy"]["ttl_s"], found["policy"]["seal_age_s"]) == (5.5, 0)
    assert found["limits"]["max_publish_rate"] == 9
    assert await api.get("/describe_topic?topic=/default/%C5%81%C3%B3d%C5%BA") == found
    assert (await api.get("/list_topics?namespace=default"))["topics"] == [topic]
    async with api.client.producer(topic):
        error = await api.post("delete_topic", 409, topic=topic)
        assert error["code"] == "subscription_in_use"
        await api.post("delete_topic", topic=topic, force=True)
    error = await api.post("delete_topic", 404, topic=topic)
    assert error["code"] == "topic_not_found"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_refused_method_is_told_those_of_the_operation(api, method):
    answer = await api.http.request(method, "/api/v1/create_topic")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    answer = await api.http.request(method, "/api/v1/make_topic")
    assert answer.status_code == 404
    if method not in {"GET", "HEAD"}:
        answer = await api.http.request(method, "/api/v1/list_topics")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_topics_are_listed_by_pages(api):
    names = [f"/default/{each}" for each in "abc"]
    for name in names:
        await api.post("create_topic", topic=name)
    first = await api.get("/list_topics?limit=2&has_places=true")
    assert (first["topics"], first["has_more"]) == (names[:2], True)
    assert len(first["places"]) == 2
    last = await api.get(f"/list_topics?limit=2&after={names[1]}")
    assert (last["topics"], last["has_more"]) == (names[2:], False)


async def test_subscription_is_moved(api):
    await api.published("/default/orders", b"1", b"2", b"3")
    one = {"topic": "/default/orders", "subscription": "50 % ?"}
    await api.post("create_subscription", **one, type="SHARED", position={"offset": 1})
    cursors = []
    for to in ({"start": "LATEST"}, {"offset": "2"}, {"publish_time": 0}):
        await api.post("seek_subscription", **one, to=to)
        found = await api.post("describe_subscription", **one)
        cursors.append(found["cursor"])
    assert cursors == ["3", "2", "0"]
    await api.post("configure_subscription", **one, settings={"is_paused": True})
    policy = {"failure_policy": {"redeliveries_max": 3}}
    await api.post("configure_subscription", **one, settings=policy)
    found = await api.post("describe_settings", **one)
    assert found["is_paused"]
    assert found["failure_policy"]["redeliveries_max"] == 3
    assert found["failure_policy"]["ack_timeout_s"] == 30
    await api.post("seek_subscription", 400, **one, to={"offset": 9})


async def test_schema_is_registered_as_text_and_checked(api):
    schema = {"type": "avro", "definition": '"int"'}
    first = await api.post("register_schema", subject="orders", schema=schema)
    assert first["is_new"]
    assert first["version"]["definition"] == '"int"'
    found = await api.get("/get_schema?subject=orders")
    assert found == first["version"]
    other = {"type": "avro", "definition": '"string"'}
    checked = await api.post("check_schema", subject="orders", schema=other)
    assert checked["violations"]
    error = await api.post("register_schema", 409, subject="orders", schema=other)
    assert error["code"] == "incompatible_schema"


async def test_only_superusers_manage_api_keys(guarded):
    guarded.identity.principal = Principal("bootstrap", "api_key")
    await guarded.api.client.security.add_binding("user:bootstrap", ["admin"], ["*"])
    created = await guarded.api.post("create_api_key", name="billing")
    assert created["key"].startswith("danube_")
    listed = await guarded.api.post("list_api_keys")
    assert [each["name"] for each in listed["keys"]] == ["billing"]
    guarded.identity.principal = ROOT
    refused = await guarded.api.post("list_api_keys", 403)
    assert "may not manage API keys" in refused["message"]


# Requests that are refused.


@pytest.mark.parametrize(
    ("operation", "fields", "said"),
    [
        ("create_namespace", {"namespace": 5}, "namespace"),
        ("create_namespace", {"namespace": "two words"}, "two words"),
        ("create_namespace", {"namespace": "x", "polcy": {}}, '"polcy"'),
        ("create_namespace", {"namespace": "x", "policy": {"max": 1}}, '"max"'),
        ("create_namespace", {"namespace": "x", "policy": 5}, "policy"),
        ("create_topic", {"topic": "orders"}, "invalid format"),
        ("create_topic", {"topic": "/default/x", "partitions": 5000}, "1 to 4096"),
        ("create_topic", {"topic": "/default/x", "partitions": 2**63}, "out of range"),
        ("create_topic", {"topic": "/default/x", "partitions": 2**64}, "has 64 bits"),
        ("create_topic", {"topic": "/default/x", "partitions": -1}, "out of range"),
        ("create_topic", {"topic": "/default/x", "partitions": "9" * 9999}, "999"),
        (
            "create_topic",
            {"topic": "/default/x", "policy": {"ttl_s": 10**400}},
            "request.policy.ttl_s: an integer has 64 bits",
        ),
        ("create_topic", {"topic": "/default/x", "policy": {"ttl_s": "NaN"}}, "nan"),
        ("create_api_key", {"name": "x", "expires_at": 2**63}, "out of range"),
        ("configure_topic", {"topic": "/default/x", "settings": {}}, "no setting"),
        ("configure_topic", {"topic": "/default/x", "settings": {"ttl": 1}}, "ttl"),
        ("configure_topic", {"topic": "/default/x", "settings": [1]}, "settings"),
    ],
)
async def test_invalid_field_is_refused_with_its_name(api, operation, fields, said):
    error = await api.post(operation, 400, **fields)
    assert error["code"] in {"invalid_request", "invalid_name"}
    assert said in error["message"].replace("Value out", "value out")
    assert len(error["message"]) <= 500


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"\xff", b'{"topic": "\xc3("}', b'{"topic": "\\ud800"}', b"[]"),
        *(b"[" * 100_000, b"null", b'"x"'),
    ],
)
async def test_body_that_is_no_object_of_json_is_refused(api, content):
    headers = {"content-type": "application/json; charset=utf-8"}
    await api.ask("POST", "/create_topic", status=400, content=content, headers=headers)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", ""]
)
async def test_request_with_another_content_type_is_refused(api, kind):
    content = b'{"topic": "/default/orders"}'
    headers = {"content-type": kind}
    error = await api.ask(
        "POST", "/create_topic", status=400, content=content, headers=headers
    )
    assert "application/json" in error["message"]
    assert (await api.get("/list_topics"))["topics"] == []


async def test_query_is_refused_like_a_body(api):
    for query in (
        "limit=x",
        "limit=-1",
        "has_places=2",
        "unknown=1",
        "after=x&limit=1",
    ):
        await api.get(f"/list_topics?{query}", 400)
    refused = await api.http.get("/api/v1/create_topic?topic=/default/a")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    refused = await api.http.put("/api/v1/list_topics", json={})
    assert refused.status_code == 405
    assert (await api.http.head("/api/v1/list_topics")).status_code == 200
    assert (await api.http.get("/api/v1/list_topic")).json()["code"] == "not_found"


async def test_too_long_request_is_refused(api):
    error = await api.post("create_namespace", 413, namespace="x" * BODY_BYTES_MAX)
    assert error["code"] == "message_too_large"


async def test_long_request_and_answer_are_converted(api):
    long = {"type": "json_schema", "definition": '{"title": "%s"}' % ("x" * 100_000)}
    await api.post("register_schema", subject="long", schema=long)
    found = await api.get("/get_schema?subject=long")
    assert found["definition"] == long["definition"]


async def test_requests_are_unavailable_while_the_broker_starts():
    async with http_of(State()) as http:
        answer = await http.get("/api/v1/list_namespaces")
    assert answer.status_code == 503
    assert answer.json() == {
        "code": "unavailable",
        "message": "the broker is starting",
    }


async def test_bug_fails_only_one_request(broker):
    class Broken:
        quotas = broker.broker.quotas

    async with http_of(State(Broken())) as http:
        answer = await http.get("/api/v1/list_namespaces")
    assert answer.status_code == 500
    assert answer.json()["code"] == "broker_error"


@pytest.mark.parametrize("count", [0, LISTED_AT_ONCE, 3 * LISTED_AT_ONCE + 1])
async def test_json_of_long_lists_is_that_of_short_ones(count):
    names = [f"/default/t-{n}" for n in range(count)]
    places = [pb.TopicPlace(broker_id=name, shard=1) for name in names]
    described = pb.QuotaDescription(target="all", quota=pb.Quota(), used={"a": 2**63})
    for message in (
        pb.Topics(topics=names, places=places, has_more=True),
        pb.Topics(topics=names),
        pb.Deduplicated(base_sequence=2**63, offsets=range(2**63, 2**63 + count)),
        pb.Quotas(quotas=[described] * count),
        described,
    ):
        expected = MessageToDict(
            message,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        assert json.loads(await encode_json(message)) == expected


async def test_json_has_fields_beside_a_long_list():
    many = [pb.SubscriptionDescription(subscription=f"s-{n}") for n in range(100)]
    message = pb.TopicDescription(
        topic="/default/t", subscriptions=many, policy=pb.TopicPolicy()
    )
    found = json.loads(await encode_json(message))
    assert found["topic"] == "/default/t"
    assert found["policy"] is not None
    assert [each["subscription"] for each in found["subscriptions"]] == [
        each.subscription for each in many
    ]

"""The interface of Confluent's schema registry: answers, errors and permissions."""

from __future__ import annotations

import base64
import json
from contextlib import AsyncExitStack

import pytest

import pydanube
from pydanube.aio.tasks import gather
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube_broker.servers.http.confluent_registry import MEDIA_TYPE
from support.fakes.guarded_clusters import ROOT as CLUSTER_ROOT
from support.fakes.guarded_clusters import running
from support.fakes.http_api import State, http_of
from support.fakes.principals import ROOT, ChosenIdentity, client_of, guarded_broker

ALICE = Principal("alice", "token")
ONE = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
TWO = ONE | {"fields": [*ONE["fields"], {"name": "n", "type": "int", "default": 0}]}
OTHER = ONE | {"fields": [{"name": "total", "type": "long"}]}


def body(schema, schema_type="AVRO", **more):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return json.dumps({"schema": text, "schemaType": schema_type, **more})


@pytest.fixture
async def ask(api):
    async def ask(method, path, content=None, status=200):
        headers = {"content-type": MEDIA_TYPE} if content else {}
        answer = await api.http.request(method, path, content=content, headers=headers)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == MEDIA_TYPE
        return answer.json()

    return ask


async def refusal(ask, method, path, content, status, code):
    found = await ask(method, path, content, status)
    assert found["error_code"] == code
    return found["message"]


async def test_versions_are_registered_and_found(ask):
    first = await ask("POST", "/subjects/orders-value/versions", body(ONE))
    again = await ask("POST", "/subjects/orders-value/versions", body(ONE))
    second = await ask("POST", "/subjects/orders-value/versions", body(TWO))
    assert first == again != second
    assert await ask("GET", "/subjects") == ["orders-value"]
    assert await ask("GET", "/subjects?subjectPrefix=x") == []
    assert await ask("GET", "/subjects/orders-value/versions") == [1, 2]
    latest = await ask("GET", "/subjects/orders-value/versions/latest")
    assert (latest["subject"], latest["version"]) == ("orders-value", 2)
    assert latest["id"] == second["id"]
    assert json.loads(latest["schema"]) == TWO
    assert latest == await ask("POST", "/subjects/orders-value", body(TWO))
    by_id = await ask("GET", f"/schemas/ids/{first['id']}")
    assert json.loads(by_id["schema"]) == ONE
    assert "schemaType" not in by_id
    assert await ask("GET", f"/schemas/ids/{first['id']}/schema") == ONE
    assert await ask("GET", f"/schemas/ids/{first['id']}/versions") == [
        {"subject": "orders-value", "version": 1}
    ]
    assert await ask("GET", f"/schemas/ids/{first['id']}/subjects") == ["orders-value"]
    assert await ask("GET", "/subjects/orders-value/versions/1/schema") == ONE
    assert await ask("GET", "/subjects/orders-value/versions/1/referencedby") == []
    assert await ask("GET", "/schemas/types") == ["AVRO", "JSON", "PROTOBUF"]


async def test_schema_with_references_is_complete_without_them(ask):
    address = {"type": "record", "name": "Address", "fields": []}
    order = ONE | {"fields": [{"name": "to", "type": "Address"}]}
    await ask("POST", "/subjects/address/versions", body(address))
    used = [{"name": "Address", "subject": "address", "version": 1}]
    given = body(order, references=used)
    found = await ask("POST", "/subjects/order/versions", given)
    assert (await ask("POST", "/subjects/order", given))["id"] == found["id"]
    fields = (await ask("GET", f"/schemas/ids/{found['id']}/schema"))["fields"]
    assert fields[0]["type"] == address
    missing = body(order, references=[{"name": "A", "subject": "none"}])
    await refusal(ask, "POST", "/subjects/order/versions", missing, 404, 40401)
    foreign = body('syntax = "proto3";', "PROTOBUF", references=used)
    text = await refusal(ask, "POST", "/subjects/x/versions", foreign, 422, 42201)
    assert "of another type: avro" in text


async def test_json_schema_with_references_is_complete_without_them(ask, api):
    address = {
        "$id": "http://acme/address.json",
        "properties": {"to": {"$ref": "#/$defs/city"}},
        "$defs": {"city": {"type": "string"}},
    }
    order = {
        "$id": "http://acme/order.json",
        "properties": {
            "a": {"$ref": "address.json"},
            "b": {"$ref": "http://acme/address.json#/$defs/city"},
        },
    }
    await ask("POST", "/subjects/address/versions", body(address, "JSON"))
    used = [{"name": "address.json", "subject": "address", "version": 1}]
    given = body(order, "JSON", references=used)
    found = await ask("POST", "/subjects/order/versions", given)
    assert (await ask("POST", "/subjects/order", given))["id"] == found["id"]
    await api.client.topics.create("/default/orders")
    binding = pydanube.TopicSchema(
        subject="order", policy=pydanube.SchemaPolicy.ENFORCE, validates_payload=True
    )
    await api.client.topics.configure("/default/orders", schema=binding)
    async with api.client.producer("/default/orders", subject="order") as producer:
        await producer.send({"a": {"to": "Rome"}, "b": "Rome"})
        for bad in ({"a": {"to": 1}}, {"b": 1}):
            with pytest.raises(pydanube.InvalidPayload):
                await producer.send(bad)


async def test_references_are_bounded(ask):
    used = []
    for number in range(3):
        subject = f"wide-{number}"
        wide = ONE | {"name": f"Wide{number}", "doc": "x" * 400_000}
        await ask("POST", f"/subjects/{subject}/versions", body(wide))
        used.append({"name": wide["name"], "subject": subject, "version": 1})
    many = body('"Wide0"', references=used)
    text = await refusal(ask, "POST", "/subjects/x/versions", many, 422, 42201)
    assert "bytes together" in text
    more = body('"Wide0"', references=used * 40)
    text = await refusal(ask, "POST", "/subjects/x/versions", more, 422, 42201)
    assert "at most 45 references" in text


async def test_protobuf_is_a_source_or_a_descriptor(ask):
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    source = 'syntax = "proto3"; message Order { int64 id = 1; }'
    path = "/subjects/orders-value/versions"
    first = await ask("POST", path, body(source, "PROTOBUF"))
    plain = await ask("GET", f"/schemas/ids/{first['id']}")
    assert (plain["schema"], plain["schemaType"]) == (source, "PROTOBUF")
    shown = await ask("GET", f"/schemas/ids/{first['id']}?format=serialized")
    descriptor = FileDescriptorProto.FromString(base64.b64decode(shown["schema"]))
    assert [each.name for each in descriptor.message_type] == ["Order"]
    assert await ask("POST", path, body(shown["schema"], "PROTOBUF")) == first
    await refusal(ask, "POST", path, body("bm90IG9uZQ==", "PROTOBUF"), 422, 42201)


CITY = 'syntax = "proto3"; package acme.geo; message City { string name = 1; }'
ADDRESS = """syntax = "proto3";
package acme;
import "geo/city.proto";
message Address { geo.City city = 1; }"""
SHIPMENT = """syntax = "proto3";
package acme.shop;
import "address.proto";
import "google/protobuf/timestamp.proto";
message Shipment { acme.Address to = 1; google.protobuf.Timestamp at = 2; }"""
CITY_FILE = {"name": "geo/city.proto", "subject": "geo/city.proto", "version": 1}
ADDRESS_FILE = {"name": "address.proto", "subject": "address", "version": 1}


async def register_shipment(ask):
    """Register a Protobuf schema that refers to another one, and that to a third."""
    for subject, text, used in (
        ("geo%2Fcity.proto", CITY, []),
        ("address", ADDRESS, [CITY_FILE]),
        ("shipment", SHIPMENT, [ADDRESS_FILE]),
    ):
        given = body(text, "PROTOBUF", references=used)
        found = await ask("POST", f"/subjects/{subject}/versions", given)
    return found["id"]


async def test_protobuf_schema_with_references_is_complete_for_native_clients(ask, api):
    number = await register_shipment(ask)
    shown = await ask("GET", f"/schemas/ids/{number}")
    assert shown == {
        "schema": SHIPMENT,
        "schemaType": "PROTOBUF",
        "references": [ADDRESS_FILE],
    }
    assert await ask("GET", f"/schemas/ids/{number}/schema") == SHIPMENT
    given = body(SHIPMENT, "PROTOBUF", references=[ADDRESS_FILE])
    found = await ask("POST", "/subjects/shipment?normalize=true", given)
    assert (found["id"], found["references"]) == (number, [ADDRESS_FILE])
    # Import paths are the default names of the subjects of files.
    assert await ask("GET", "/subjects?subjectPrefix=geo/") == ["geo/city.proto"]
    city = await ask("GET", "/subjects/geo%2Fcity.proto/versions/latest")
    assert city["subject"] == "geo/city.proto"
    assert await ask("GET", f"/schemas/ids/{city['id']}/subjects") == ["geo/city.proto"]
    serialized = await ask("GET", f"/schemas/ids/{number}?format=serialized")
    given = body(serialized["schema"], "PROTOBUF", references=serialized["references"])
    again = await ask("POST", "/subjects/shipment/versions", given)
    assert again == {"id": number}
    await api.client.topics.create("/default/shipments")
    binding = pydanube.TopicSchema(
        subject="shipment", policy=pydanube.SchemaPolicy.ENFORCE, validates_payload=True
    )
    await api.client.topics.configure("/default/shipments", schema=binding)
    value = {"to": {"city": {"name": "Rome"}}}
    async with api.client.producer("/default/shipments", subject="shipment") as sender:
        await sender.send(value)
        with pytest.raises(pydanube.InvalidPayload):
            await sender.send(b"\xff")
    async for batch in api.client.read("/default/shipments"):
        assert [each.value["to"] for each in batch] == [value["to"]]


async def test_incompatible_change_of_a_referenced_file_is_found(ask):
    await register_shipment(ask)
    await ask("PUT", "/config/geo%2Fcity.proto", '{"compatibility": "NONE"}')
    other = CITY.replace("string name", "int64 name")
    await ask("POST", "/subjects/geo%2fcity.proto/versions", body(other, "PROTOBUF"))
    new_city = CITY_FILE | {"version": 2}
    given = body(SHIPMENT, "PROTOBUF", references=[ADDRESS_FILE, new_city])
    path = "/compatibility/subjects/shipment/versions"
    # The file that is referred to directly replaces the one of the address.
    found = await ask("POST", f"{path}?verbose=true", given)
    assert not found["is_compatible"]
    await refusal(ask, "POST", "/subjects/shipment/versions", given, 409, 409)
    new = await ask("POST", f"{path.replace('shipment', 'new')}", given)
    assert new == {"is_compatible": True}
    await refusal(ask, "POST", f"{path}/7", given, 404, 40402)


async def test_referenced_versions_are_not_deleted(ask, api):
    number = await register_shipment(ask)
    path = "/subjects/address/versions/1"
    assert await ask("GET", f"{path}/referencedby") == [number]
    assert await ask("GET", "/subjects/shipment/versions/1/referencedby") == []
    for place in (path, "/subjects/address"):
        text = await refusal(ask, "DELETE", place, None, 422, 42206)
        assert "1 schemas refer to version 1" in text
    with pytest.raises(pydanube.SchemaInUse):
        await api.client.schemas.delete("address", 1)
    await ask("DELETE", "/subjects/shipment/versions/1")
    assert await ask("GET", f"/schemas/ids/{number}/versions") == []
    assert await ask("GET", f"/schemas/ids/{number}/versions?deleted=true") == [
        {"subject": "shipment", "version": 1}
    ]
    assert await ask("GET", f"{path}/referencedby") == []
    assert await ask("GET", f"{path}/referencedby?deleted=true") == [number]
    assert await ask("DELETE", path) == 1
    # The deleted schema is still readable, and so are those that it refers to.
    final = f"{path}?permanent=true"
    await refusal(ask, "DELETE", final, None, 422, 42206)
    given = body(SHIPMENT, "PROTOBUF", references=[ADDRESS_FILE])
    await refusal(ask, "POST", "/subjects/other/versions", given, 404, 40401)
    await ask("DELETE", "/subjects/shipment?permanent=true")
    assert await ask("DELETE", final) == 1


async def test_subject_that_refers_to_itself_is_deleted_as_a_whole(ask):
    record = ONE | {"name": "Next", "fields": [{"name": "o", "type": "Order"}]}
    await ask("POST", "/subjects/s/versions", body(ONE))
    await ask("PUT", "/config/s", '{"compatibility": "NONE"}')
    used = [{"name": "Order", "subject": "s", "version": 1}]
    await ask("POST", "/subjects/s/versions", body(record, references=used))
    await refusal(ask, "DELETE", "/subjects/s/versions/1", None, 422, 42206)
    assert await ask("DELETE", "/subjects/s") == [1, 2]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../x.proto", "not allowed"),
        ("/etc/x.proto", "not allowed"),
        ("a//x.proto", "not allowed"),
        ("x" * 300, "not allowed"),
        ("google/protobuf/any.proto", "Protobuf itself"),
        ("other.proto", "imports 'address.proto'"),
    ],
)
async def test_unusable_names_of_protobuf_files_are_refused(ask, name, reason):
    await ask("POST", "/subjects/address/versions", body(CITY, "PROTOBUF"))
    used = [{"name": name, "subject": "address", "version": 1}]
    given = body(SHIPMENT, "PROTOBUF", references=used)
    text = await refusal(ask, "POST", "/subjects/s/versions", given, 422, 42201)
    assert reason in text


async def test_compatibility_is_checked_and_set(ask):
    await ask("POST", "/subjects/s/versions", body(ONE))
    path = "/compatibility/subjects/s/versions/latest"
    assert await ask("POST", path, body(TWO)) == {"is_compatible": True}
    found = await ask("POST", f"{path}?verbose=true", body(OTHER))
    assert not found["is_compatible"]
    assert "total" in found["messages"][0]
    await refusal(ask, "POST", "/subjects/s/versions", body(OTHER), 409, 409)
    assert await ask("GET", "/config/s") == {"compatibilityLevel": "BACKWARD"}
    none = json.dumps({"compatibility": "NONE"})
    assert await ask("PUT", "/config/s", none) == {"compatibility": "NONE"}
    await ask("POST", "/subjects/s/versions", body(OTHER))
    assert await ask("DELETE", "/config/s") == {"compatibilityLevel": "NONE"}
    assert await ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert await ask("GET", "/config/x?defaultToGlobal=true") == {
        "compatibilityLevel": "BACKWARD"
    }
    wrong = json.dumps({"compatibility": "SOME"})
    await refusal(ask, "PUT", "/config/s", wrong, 422, 42203)
    await refusal(ask, "PUT", "/config", none, 422, 42205)
    assert await ask("GET", "/mode") == {"mode": "READWRITE"}
    await refusal(ask, "PUT", "/mode/s", '{"mode": "READONLY"}', 422, 42205)


async def test_the_latest_versions_are_deleted_one_after_the_other(ask):
    for schema in (ONE, TWO):
        await ask("POST", "/subjects/s/versions", body(schema))
    path = "/subjects/s/versions/latest"
    await refusal(ask, "DELETE", f"{path}?permanent=true", None, 404, 40407)
    assert [await ask("DELETE", path) for _ in range(2)] == [2, 1]
    await refusal(ask, "DELETE", path, None, 404, 40401)
    assert await ask("GET", "/subjects/s/versions?deleted=true") == [1, 2]


async def test_subjects_and_versions_are_deleted(ask, api):
    first = await ask("POST", "/subjects/s/versions", body(ONE))
    await ask("POST", "/subjects/s/versions", body(TWO))
    path = "/subjects/s/versions/1"
    await refusal(ask, "DELETE", f"{path}?permanent=true", None, 404, 40407)
    assert await ask("DELETE", path) == 1
    # Readers of messages that are already stored still find the definition.
    assert (
        json.loads((await ask("GET", f"/schemas/ids/{first['id']}"))["schema"]) == ONE
    )
    await refusal(ask, "GET", path, None, 404, 40402)
    assert (await ask("GET", f"{path}?deleted=true"))["version"] == 1
    assert await ask("GET", "/subjects/s/versions?deleted=true") == [1, 2]
    await refusal(ask, "POST", "/subjects/s", body(ONE), 404, 40403)
    found = await ask("POST", "/subjects/s?deleted=true", body(ONE))
    assert found["id"] == first["id"]
    await refusal(ask, "DELETE", path, None, 404, 40406)
    assert await ask("DELETE", f"{path}?permanent=true") == 1
    await refusal(ask, "GET", f"/schemas/ids/{first['id']}", None, 404, 40403)
    await refusal(ask, "DELETE", path, None, 404, 40402)
    await api.client.topics.create("/default/orders")
    await api.client.topics.configure(
        "/default/orders", schema=pydanube.TopicSchema(subject="s")
    )
    text = await refusal(ask, "DELETE", "/subjects/s", None, 422, 42206)
    assert "/default/orders" in text
    await api.client.topics.delete("/default/orders")
    await refusal(ask, "DELETE", "/subjects/s?permanent=true", None, 404, 40405)
    assert await ask("DELETE", "/subjects/s") == [2]
    assert await ask("GET", "/subjects") == []
    assert await ask("GET", "/subjects?deleted=true") == ["s"]
    await refusal(ask, "GET", "/subjects/s/versions", None, 404, 40401)
    await refusal(ask, "DELETE", "/subjects/s", None, 404, 40404)
    again = await ask("POST", "/subjects/s/versions", body(TWO))
    assert (await ask("POST", "/subjects/s", body(TWO)))["version"] == 3
    assert again["id"] == first["id"] + 2
    await ask("DELETE", "/subjects/s")
    assert await ask("DELETE", "/subjects/s?permanent=true") == [2, 3]
    assert await ask("GET", "/subjects?deleted=true") == []
    await refusal(ask, "DELETE", "/subjects/s", None, 404, 40401)


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "code"),
    [
        ("GET", "/subjects/none/versions", None, 404, 40401),
        ("GET", "/subjects/s/versions/7", None, 404, 40402),
        ("GET", "/subjects/s/versions/x", None, 422, 42202),
        ("GET", "/subjects/s/versions/" + "9" * 40, None, 422, 42202),
        ("GET", "/schemas/ids/5", None, 404, 40403),
        ("GET", "/subjects/:.team:s/versions", None, 422, 42208),
        ("GET", "/schemas/ids/" + "9" * 40, None, 404, 40403),
        ("GET", "/schemas/ids/-1", None, 404, 40403),
        ("GET", "/config/none", None, 404, 40401),
        ("POST", "/subjects/none", body(ONE), 404, 40401),
        ("POST", "/subjects/s", body(OTHER), 404, 40403),
        ("POST", "/subjects/s/versions", body("{"), 422, 42201),
        ("POST", "/subjects/s/versions", body(ONE, "XML"), 422, 42201),
        (
            "POST",
            "/subjects/s/versions",
            body('"A"', references=[{"name": "A"}]),
            422,
            422,
        ),
        ("POST", "/subjects/s/versions", "[" * 5000, 422, 422),
        ("POST", "/subjects/s/versions", '{"schema": 7}', 422, 422),
    ],
)
async def test_invalid_requests_have_the_codes_of_the_interface(
    ask, method, path, content, status, code
):
    await ask("POST", "/subjects/s/versions", body(ONE))
    assert await refusal(ask, method, path, content, status, code)


async def test_requests_of_web_pages_of_other_sites_are_refused(api):
    answer = await api.http.post(
        "/subjects/s/versions",
        content=body(ONE),
        headers={"content-type": "text/plain"},
    )
    assert answer.status_code == 422
    assert "content-type" in answer.json()["message"]


async def test_clients_need_the_permissions_of_the_operations():
    identity = ChosenIdentity()
    async with guarded_broker() as broker, client_of(broker, ROOT) as root:
        access = broker.broker.access
        await access.set_role(ROOT, Role("reader", frozenset({Permission.SCHEMA_READ})))
        await access.add_binding(
            ROOT, Binding("user:alice", ("reader",), ("subject:open",), "reads")
        )
        await root.schemas.register("open", pydanube.Schema.avro(json.dumps(ONE)))
        await root.schemas.register("secret", pydanube.Schema.avro(json.dumps(ONE)))
        async with http_of(State(broker.broker), authenticator=identity) as http:
            identity.principal = ALICE

            async def status(method, path, content=None):
                headers = {"content-type": MEDIA_TYPE}
                found = await http.request(
                    method, path, content=content, headers=headers
                )
                return found.status_code

            assert (await http.get("/subjects")).json() == ["open"]
            assert await status("GET", "/subjects/open/versions/1") == 200
            assert await status("GET", "/subjects/secret/versions/1") == 403
            found = (await http.get("/subjects/open/versions/1")).json()["id"]
            assert await status("GET", f"/schemas/ids/{found}") == 200
            assert await status("GET", f"/schemas/ids/{found + 2**14}") == 403
            assert await status("POST", "/subjects/open", body(ONE)) == 200
            assert await status("POST", "/subjects/secret", body(ONE)) == 403
            assert await status("POST", "/subjects/open/versions", body(TWO)) == 403
            assert await status("DELETE", "/subjects/open") == 403
            assert (
                await status("PUT", "/config/open", '{"compatibility": "NONE"}') == 403
            )
            used = [{"name": "Order", "subject": "secret", "version": 1}]
            stolen = body('"Order"', references=used)
            assert await status("POST", "/subjects/open", stolen) == 403
            # Schemas of others that refer to one are not listed.
            identity.principal = ROOT
            used[0]["subject"] = "open"
            foreign = body('"Order"', references=used)
            assert await status("POST", "/subjects/hidden/versions", foreign) == 200
            used[0]["subject"] = "secret"
            both = body('"Order"', references=used)
            assert await status("POST", "/subjects/open/versions", both) == 200
            version = await root.schemas.get("open", 1)
            assert [each.subject for each in version.references] == ["secret"]
            async with client_of(broker, ALICE) as alice:
                assert (await alice.schemas.get("open", 1)).references == ()
                assert (await alice.schemas.versions("open"))[0].references == ()
            users = "/subjects/open/versions/1/referencedby"
            assert len((await http.get(users)).json()) == 1
            identity.principal = ALICE
            assert (await http.get(users)).json() == []
            assert (
                await status("GET", "/subjects/secret/versions/1/referencedby") == 403
            )
            identity.principal = ANONYMOUS
            assert await status("GET", "/subjects/open/versions") == 401


async def test_all_brokers_of_a_cluster_answer_alike_and_know_the_same_permissions():
    identity = ChosenIdentity()

    async def of(http, method, path, content=None):
        headers = {"content-type": MEDIA_TYPE}
        return await http.request(method, path, content=content, headers=headers)

    async with running({}) as cluster, AsyncExitStack() as held:
        first, second = [
            await held.enter_async_context(http_of(State(each), authenticator=identity))
            for each in cluster.brokers
        ]
        identity.principal = CLUSTER_ROOT
        new = body(CITY, "PROTOBUF")
        path = "/subjects/geo%2Fcity.proto/versions"
        same = await gather(of(each, "POST", path, new) for each in (first, second))
        assert same[0].json() == same[1].json()
        used = [CITY_FILE]
        address = body(ADDRESS, "PROTOBUF", references=used)
        made = (await of(second, "POST", "/subjects/address/versions", address)).json()
        users = "/subjects/geo%2Fcity.proto/versions/1/referencedby"
        assert (await of(first, "GET", users)).json() == [made["id"]]
        for each in (first, second):
            refused = await of(each, "DELETE", "/subjects/geo%2Fcity.proto")
            assert refused.json()["error_code"] == 42206
        # A tenant that may write their own subject, and read others for a while.
        identity.principal = ALICE
        await cluster.let("own", "subject:own", Permission.SCHEMA_WRITE)
        own = "/subjects/own/versions"
        by_id = f"/schemas/ids/{made['id']}"
        for permission, status in (
            (Permission.DESCRIBE, 403),
            (Permission.SCHEMA_READ, 200),
            (Permission.DESCRIBE, 403),
        ):
            await cluster.let("some", "subject:geo*", permission)
            await cluster.let("other", "subject:address", permission)
            for http in (first, second):
                assert (await of(http, "POST", own, address)).status_code == status
                assert (await of(http, "GET", by_id)).status_code == status

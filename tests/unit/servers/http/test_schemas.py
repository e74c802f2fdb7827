"""Schemas in the JSON API."""

from __future__ import annotations

import pytest

from support.schemas import order_schema

ORDERS = "/schemas/orders"
TOPIC = "/topics/default/orders"


def an_order(**properties):
    return {"type": "json_schema", "definition": order_schema(**properties)}


async def test_versions_are_registered_read_and_deleted(api):
    first = an_order() | {
        "description": "of the shop",
        "created_by": "anna",
        "tags": ["shop"],
    }
    created = await api.post(f"{ORDERS}/versions", first)
    assert (created["schema_id"], created["version"]) == (1, 1)
    again = await api.post(f"{ORDERS}/versions", first, 200)
    assert again == created
    second = an_order(note={"type": "string"})
    await api.post(f"{ORDERS}/versions", second)
    assert await api.get("/schemas") == {"subjects": ["orders"]}
    assert await api.get(ORDERS) == {
        "subject": "orders",
        "schema_id": 1,
        "type": "json_schema",
        "compatibility": "backward",
        "versions": [1, 2],
        "tags": [],
    }
    assert await api.get(f"{ORDERS}/versions/1") == created
    assert created["definition"] == first["definition"]
    latest = await api.get(f"{ORDERS}/versions/latest")
    assert latest["definition"] == second["definition"]
    listed = await api.get(f"{ORDERS}/versions")
    assert listed == {"versions": [created, latest]}
    assert await api.get("/schema-ids/1") == latest
    assert await api.get("/schema-ids/1?version=1") == created
    await api.delete(f"{ORDERS}/versions/1")
    assert (await api.get(ORDERS))["versions"] == [2]
    await api.delete(ORDERS)
    assert (await api.get(ORDERS, 404))["code"] == "schema_not_found"


async def test_compatibility_check_names_path_and_rule(api):
    await api.post(f"{ORDERS}/versions", an_order())
    other = an_order(id={"type": "string"})
    checked = await api.post(f"{ORDERS}/check", other, 200)
    assert checked["is_compatible"] is False
    [violation] = checked["violations"]
    assert violation.pop("text")
    assert violation == {
        "version": 1,
        "direction": "backward",
        "path": "$.properties.id",
        "rule": "type_changed",
    }
    error = await api.post(f"{ORDERS}/versions", other, 409)
    assert error["code"] == "incompatible_schema"
    lenient = other | {"compatibility": "none"}
    assert await api.post(f"{ORDERS}/check", lenient, 200) == {
        "is_compatible": True,
        "violations": [],
    }
    mode = {"compatibility": "none"}
    changed = await api.put(f"{ORDERS}/compatibility", mode)
    assert changed["compatibility"] == "none"
    await api.post(f"{ORDERS}/versions", other)


async def test_topic_is_bound_to_a_subject(api):
    await api.post(f"{ORDERS}/versions", an_order())
    schema = {
        "subject": "orders",
        "policy": "enforce",
        "validates_payload": True,
        "version": 1,
        "version_min": None,
    }
    await api.post("/topics", {"name": "/default/orders", "schema": schema})
    assert (await api.get(f"{TOPIC}/settings"))["schema"] == schema
    assert (await api.get(TOPIC))["schema"] == schema
    error = await api.delete(ORDERS, 409)
    assert error["code"] == "schema_in_use"
    error = await api.delete(f"{ORDERS}/versions/1", 409)
    assert error["code"] == "schema_in_use"
    bound = await api.patch(f"{TOPIC}/settings", {"schema": {"subject": "orders"}})
    assert bound["schema"]["policy"] == "warn"
    await api.delete(f"{ORDERS}/versions/1")
    cleared = await api.patch(f"{TOPIC}/settings", {"schema": None})
    assert cleared["schema"] is None
    await api.delete(ORDERS)


async def test_partitions_are_bound_together_and_subject_is_deleted_by_force(api):
    await api.post(f"{ORDERS}/versions", {"type": "string"})
    topic = {"name": "/default/orders", "partitions": 2}
    await api.post("/topics", topic | {"schema": {"subject": "orders"}})
    part = await api.get(f"{TOPIC}-part-1/settings")
    assert part["schema"]["subject"] == "orders"
    await api.delete(f"{ORDERS}?force=true")
    assert await api.get(f"{TOPIC}/settings") == part


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", f"{ORDERS}/versions", {"type": "xml"}, 400, "xml"),
        ("POST", f"{ORDERS}/versions", {"type": "avro"}, 400, "Avro"),
        ("POST", f"{ORDERS}/versions", {"definition": ""}, 400, "type"),
        ("POST", f"{ORDERS}/versions", {"type": "string", "x": 1}, 400, "'x'"),
        ("GET", f"{ORDERS}/versions/one", None, 400, "version is 'one'"),
        ("GET", f"{ORDERS}/versions/1", None, 404, "orders"),
        ("GET", f"{ORDERS}/versions", None, 404, "orders"),
        ("GET", "/schema-ids/one", None, 400, "schema id is 'one'"),
        ("GET", "/schema-ids/7", None, 404, "ID: 7"),
        ("POST", f"{ORDERS}/check", {"type": "string"}, 404, "orders"),
        ("PUT", f"{ORDERS}/compatibility", {"compatibility": "x"}, 400, "x"),
        ("PUT", f"{ORDERS}/compatibility", {"compatibility": "full"}, 404, "orders"),
        ("GET", f"{TOPIC}/settings", None, 404, "/default/orders"),
        ("PATCH", f"{TOPIC}/settings", {"schema": {"subject": "s"}}, 404, "orders"),
    ],
)
async def test_refused_requests_give_the_reason(api, method, path, body, status, said):
    error = await api.ask(method, path, body, status)
    assert said in error["message"]

"""What values of a schema registry become, and what is asked."""

from __future__ import annotations

import json

import httpx
import pytest

from pydanube.model.schemas import SchemaType
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.pure.records import Record
from pydanube_connect.registry_schemas import (
    DEFINITION_LENGTH_MAX,
    KNOWN_LENGTH_MAX,
    REFERENCES_MAX,
    REQUEST_S,
    UNKNOWN_S,
    VERSIONS_MAX,
    RegistrySchemas,
)

PLACE = {"subject": "orders-value", "version": 2}
REFERENCE = {"name": "acme.Money", "subject": "a/b", "version": 1}
MONEY = {"type": "record", "name": "Money", "namespace": "acme", "fields": []}


def avro(name, **more):
    return {"schema": json.dumps({"type": "record", "name": name, "fields": []})} | more


class World:
    """A registry whose answers are *answers* by their path, and a clock."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.now = 0.0
        transport = httpx.MockTransport(self._answer)
        client = httpx.Client(base_url="http://registry/", transport=transport)
        self.schemas = RegistrySchemas(client, lambda: self.now)

    def _answer(self, request):
        path = request.url.raw_path.decode().removeprefix("/")
        self.asked.append(path)
        found = self.answers.get(path, {"error_code": 40403})
        if callable(found):
            found = found()
        if isinstance(found, int):
            return httpx.Response(found)
        if isinstance(found, bytes):
            return httpx.Response(200, content=found)
        is_absent = isinstance(found, dict) and "error_code" in found
        return httpx.Response(404 if is_absent else 200, json=found)

    def decoded(self, value):
        return self.schemas.decoded(Record(value=value), "orders")


def value(number, rest=b"x"):
    return b"\0" + number.to_bytes(4) + rest


def test_a_schema_comes_after_its_older_versions():
    world = World(
        {
            "schemas/ids/7": avro("New"),
            "schemas/ids/7/versions": [{"subject": "other", "version": 1}, PLACE],
            "subjects/orders-value/versions": [3, 2, 1],
            "subjects/orders-value/versions/1": avro("Old"),
        }
    )
    found = world.decoded(value(7))
    assert (found.value, found.schema.type) == (b"x", SchemaType.AVRO)
    names = [json.loads(each)["name"] for each in found.schema.definitions]
    assert names == ["Old", "New"]
    asked = len(world.asked)
    # The same schema is the same object, and is not asked for again.
    assert world.decoded(value(7, b"")).schema is found.schema
    assert len(world.asked) == asked


def test_values_without_an_id_stay_as_they_are():
    world = World({})
    for each in (b"", b"\0", b"\0\0\0\7", b"plain text"):
        assert world.decoded(each) == Record(value=each)
    assert world.asked == []


def test_unknown_ids_are_problems_and_are_asked_again_later():
    world = World({})
    assert "does not know it" in world.decoded(value(7)).problem
    world.decoded(value(7))
    assert world.asked == ["schemas/ids/7"]
    world.now = UNKNOWN_S
    # Its versions may be deleted.
    world.answers["schemas/ids/7"] = avro("A")
    assert world.decoded(value(7)).schema.definitions == (avro("A")["schema"],)


def test_schemas_contain_those_that_they_refer_to():
    order = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "price", "type": "acme.Money"}],
    }
    world = World(
        {
            "schemas/ids/7": {"schema": json.dumps(order), "references": [REFERENCE]},
            "subjects/a%2Fb/versions/1": {"schema": json.dumps(MONEY)},
        }
    )
    [text] = world.decoded(value(7)).schema.definitions
    assert json.loads(text)["fields"][0]["type"]["name"] == "Money"


@pytest.mark.parametrize(
    "stored",
    [
        avro("A", schemaType="XML"),
        avro("A", references=[REFERENCE]),
        avro("A", references=[REFERENCE] * (REFERENCES_MAX + 1)),
        {"schema": "no json", "references": [REFERENCE | {"subject": "b"}]},
        # It refers to itself.
        avro("A", references=[REFERENCE | {"subject": "c"}]),
        avro("A", references=[REFERENCE | {"subject": "large"}]),
        avro("A", references=[REFERENCE | {"subject": "x" * 100_000}]),
        avro("A", doc="x", schema="x" * 1_100_000),
    ],
)
def test_schemas_that_cannot_be_used_are_problems(stored):
    world = World(
        {
            "schemas/ids/7": stored,
            "subjects/b/versions/1": avro("B"),
            "subjects/c/versions/1": avro(
                "C", references=[REFERENCE | {"subject": "c"}]
            ),
            "subjects/large/versions/1": avro("L", doc="x" * 5_000_000),
        }
    )
    assert "cannot be used" in world.decoded(value(7)).problem


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (503, Transient),
        (429, Transient),
        # It comes from a proxy whose registry is away.
        (404, Transient),
        (401, ConnectorFailed),
        (b"<html>", ConnectorFailed),
        (b'{"more":' + b"[" * 100_000, ConnectorFailed),
    ],
)
def test_failures_of_the_registry_are_no_problems_of_values(answer, error):
    with pytest.raises(error):
        World({"schemas/ids/7": answer}).decoded(value(7))


def test_only_the_first_message_of_a_protobuf_file_is_known():
    text = "message A {} message B {}"
    world = World({"schemas/ids/7": {"schema": text, "schemaType": "PROTOBUF"}})
    for path in (b"\0", b"\2\0"):
        found = world.decoded(value(7, path + b"x"))
        assert (found.value, found.schema.definitions) == (b"x", (text,))
    for path in (b"\2\2", b"\4\0\0", b""):
        assert "first message" in world.decoded(value(7, path)).problem


@pytest.mark.parametrize("fan_out", [2, REFERENCES_MAX])
def test_references_in_circles_end_soon(fan_out):
    def stored(subject):
        others = [
            {"name": f"N{number}", "subject": f"{number}", "version": 1}
            for number in range(fan_out)
        ]
        return avro(f"N{subject}", references=others)

    world = World(
        {f"subjects/{number}/versions/1": stored(number) for number in range(fan_out)}
        | {"schemas/ids/7": stored("own")}
    )
    assert "contains itself" in world.decoded(value(7)).problem
    assert len(world.asked) <= 4


def test_versions_of_one_id_are_bounded():
    world = World(
        {
            "schemas/ids/7": avro("New"),
            "schemas/ids/7/versions": [PLACE | {"version": 1 << 30}],
            "subjects/orders-value/versions": [*range(VERSIONS_MAX + 1)],
        }
    )
    assert f"{VERSIONS_MAX:,} versions" in world.decoded(value(7)).problem
    assert len(world.asked) == 3


def test_definitions_of_one_id_are_bounded():
    large = json.dumps(avro("L", schema="x" * DEFINITION_LENGTH_MAX)).encode()
    count = KNOWN_LENGTH_MAX // DEFINITION_LENGTH_MAX + 1
    world = World(
        {
            "schemas/ids/7": avro("New"),
            "schemas/ids/7/versions": [PLACE | {"version": 1 << 30}],
            "subjects/orders-value/versions": [*range(count)],
        }
        | {f"subjects/orders-value/versions/{each}": large for each in range(count)}
    )
    assert "its versions have more" in world.decoded(value(7)).problem


def test_a_slow_answer_and_a_stop_end_a_look_up():
    world = World({})

    def answer():
        world.now += REQUEST_S + 1
        return avro("A")

    world.answers["schemas/ids/7"] = answer
    with pytest.raises(Transient, match="slowly"):
        world.decoded(value(7))
    world.answers["schemas/ids/7"] = avro("A")
    world.schemas.stop()
    with pytest.raises(Transient):
        world.decoded(value(7))

"""The AsyncAPI document of workers follows the rules of AsyncAPI 3.0."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import jsonschema
import pytest
from pydantic import BaseModel

import pydanube
from pydanube.client.workers.asyncapi import asyncapi_document

KEYS = {
    "document": "asyncapi info servers defaultContentType channels operations "
    "components",
    "info": "title version description",
    "server": "host protocol",
    "channel": "address messages",
    "operation": "action channel messages summary description x-danube",
    "message": "name contentType payload",
    "components": "messages schemas",
    "formatted": "schemaFormat schema",
}
NAME = re.compile(r"[A-Za-z0-9_.-]+")


class Line(BaseModel):
    sku: str


class Order(BaseModel):
    id: int
    lines: list[Line]
    parent: Order | None = None


@dataclass
class Invoice:
    order: int
    total: float


class Other:
    @dataclass
    class Line:
        length: int


def check(document):
    """Raise unless *document* is what AsyncAPI 3.0 allows."""

    def has_only(kind, value):
        assert value.keys() <= {*KEYS[kind].split()}, (kind, value)

    def resolve(reference):
        [target] = reference.values()
        found = document
        assert target.startswith("#/")
        for part in target[2:].split("/"):
            found = found[part]
        return found

    has_only("document", document)
    assert document["asyncapi"] == "3.0.0"
    has_only("info", document["info"])
    assert document["info"].keys() >= {"title", "version"}
    for server in document.get("servers", {}).values():
        has_only("server", server)
    has_only("components", document["components"])
    for names in (document["channels"], document["operations"]):
        assert all(map(NAME.fullmatch, names))
    for part in document["components"].values():
        assert all(map(NAME.fullmatch, part))
    for channel in document["channels"].values():
        has_only("channel", channel)
        for reference in channel["messages"].values():
            assert reference["$ref"].startswith("#/components/messages/")
            resolve(reference)
    for operation in document["operations"].values():
        has_only("operation", operation)
        assert operation["action"] in ("send", "receive")
        channel = operation["channel"]["$ref"]
        resolve(operation["channel"])
        for reference in operation["messages"]:
            # A message of an operation is one of its channel.
            assert reference["$ref"].startswith(channel + "/messages/")
            resolve(reference)
    for message in document["components"]["messages"].values():
        has_only("message", message)
        payload = message.get("payload", {})
        if "schemaFormat" in payload:
            has_only("formatted", payload)
        else:
            jsonschema.Draft7Validator.check_schema(payload)
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft7Validator.check_schema(schema)
        for reference in re.findall(r'"\$ref": "(.*?)"', json.dumps(schema)):
            resolve({"$ref": reference})


@pytest.fixture
def document():
    workers = pydanube.Workers()
    workers.producer("/shop/orders", schema=Order)
    workers.producer("/shop/lines", schema=Other.Line)
    workers.producer(
        "/shop/avro", schema=pydanube.Schema.from_dataclass(Invoice, type="avro")
    )

    @workers.worker("/shop/orders", subscription="billing", publish="/shop/invoices")
    async def bill(order: Order) -> Invoice | None:
        """
        Write an invoice.

        It has one line.
        """

    @workers.worker(["/shop/a", "/shop/b"], subscription="log", batch=10)
    def log(texts: list[str]): ...

    @workers.worker("/shop/*", subscription="all", publish="/shop/copies")
    async def copy(message: pydanube.Message): ...

    return asyncapi_document(workers, title="Shop", host="danube.example:6651")


def test_the_document_follows_the_rules(document):
    check(document)
    check(json.loads(json.dumps(document)))


def test_operations_are_what_workers_receive_and_send(document):
    operations = document["operations"]
    assert {name: each["action"] for name, each in operations.items()} == {
        "bill": "receive",
        "bill_results": "send",
        "log": "receive",
        "log_2": "receive",
        "copy": "receive",
        "copy_results": "send",
        "send_shop_orders": "send",
        "send_shop_lines": "send",
        "send_shop_avro": "send",
    }
    assert operations["bill"]["summary"] == "Write an invoice."
    assert operations["bill"]["x-danube"]["subscription"] == "billing"
    assert {each["address"] for each in document["channels"].values()} == {
        *("/shop/orders", "/shop/invoices", "/shop/a", "/shop/b", "/shop/*"),
        *("/shop/copies", "/shop/lines", "/shop/avro"),
    }


def test_schemas_of_payloads_describe_the_classes(document):
    schemas = document["components"]["schemas"]
    line = {"$ref": "#/components/schemas/Line"}
    assert schemas["Order"]["properties"]["lines"]["items"] == line
    assert schemas["Order"]["properties"]["parent"]["anyOf"][0] == {
        "$ref": "#/components/schemas/Order"
    }
    # Another class of the same name.
    assert schemas["Line"]["required"] == ["sku"]
    assert schemas["Line_2"]["required"] == ["length"]
    messages = document["components"]["messages"]
    assert messages["Invoice_2"]["payload"]["schema"]["type"] == "record"
    assert messages["str"]["payload"] == {"type": "string"}
    assert "payload" not in messages["payload"]


async def test_a_declared_producer_publishes_values(client):
    orders = client.workers.producer("/default/orders", schema=Invoice)
    async with orders.open(client) as producer:
        await producer.send(Invoice(1, 1.5))
    [batch] = [each async for each in client.read("/default/orders", schema=Invoice)]
    assert batch.values() == [Invoice(1, 1.5)]

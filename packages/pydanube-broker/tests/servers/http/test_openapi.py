"""The OpenAPI document of the JSON API."""

from __future__ import annotations

import json
import re

from pydanube_broker.operations.handlers import handlers
from pydanube_broker.servers.http.operations import is_readable, path_of


async def test_document_describes_every_operation(api):
    document = await api.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    methods = {path: set(found) for path, found in document["paths"].items()}
    assert methods == {
        path_of(kind): {"post", "get"} if is_readable(kind) else {"post"}
        for kind in handlers()
    }
    for found in document["paths"].values():
        assert found["post"]["summary"].endswith(".")


async def test_every_reference_is_to_a_schema(api):
    document = await api.get("/openapi.json")
    names = re.findall('#/components/schemas/([^"]+)', json.dumps(document))
    assert set(names) == document["components"]["schemas"].keys()


async def test_operation_has_its_permission_fields_and_answer(api):
    document = await api.get("/openapi.json")
    schemas = document["components"]["schemas"]
    describe = document["paths"]["/describe_topic"]
    assert describe["post"]["summary"].startswith("Return a topic or partition")
    assert describe["post"]["x-permission"] == "describe"
    assert describe["post"]["x-resource"] == "topic"
    parameters = {
        each["name"]: each["schema"] for each in describe["get"]["parameters"]
    }
    assert parameters["topic"] == {"type": "string"}
    described = schemas["TopicDescription"]["properties"]
    assert described["end_offset"] == {"type": "string", "format": "int64"}
    assert described["subscriptions"]["type"] == "array"
    created = schemas["CreateSubscription"]["properties"]
    assert "SHARED" in created["type"]["enum"]

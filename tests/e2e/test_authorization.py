"""Clients with API keys may do what roles permit, and the audit log has the rest."""

from __future__ import annotations

import json

import pytest

import pydanube
from support.fakes.secured import bootstrap_key, secured

pytestmark = pytest.mark.e2e

TOPIC = "/default/orders"


async def publish_until_refused(producer):
    while True:
        await producer.send(b"x")


async def test_client_may_do_what_its_roles_permit_until_they_are_taken_away(tmp_path):
    audit_file = tmp_path / "audit.jsonl"
    async with (
        secured(tmp_path, audit_file=str(audit_file)) as broker,
        pydanube.connect(broker.stream_url, api_key=bootstrap_key(tmp_path)) as admin,
    ):
        await admin.topics.create(TOPIC)
        key = (await admin.security.create_api_key("carol")).key
        async with pydanube.connect(broker.stream_url, api_key=key) as client:
            with pytest.raises(pydanube.PermissionDenied, match="create on /default"):
                await client.topics.create("/default/other")
            assert await client.topics.list() == []
            binding = await admin.security.add_binding(
                "user:carol", ["producer", "consumer"], [TOPIC]
            )
            assert await client.topics.list() == [TOPIC]
            async with client.producer(TOPIC) as producer:
                await producer.send(b"first")
                batch = await anext(aiter(client.read(TOPIC)))
                assert [each.payload for each in batch] == [b"first"]
                await admin.security.remove_binding(binding)
                with pytest.raises(pydanube.PermissionDenied, match="produce"):
                    await publish_until_refused(producer)
        wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
        with pytest.raises(pydanube.Unauthenticated):
            async with pydanube.connect(broker.stream_url, api_key=wrong):
                pass
    records = [json.loads(line) for line in audit_file.read_text().splitlines()]
    found = {
        (each["principal"], each["operation"], each["outcome"]) for each in records
    }
    assert {
        ("bootstrap", "create_topic", "done"),
        ("bootstrap", "create_api_key", "done"),
        ("carol", "create_topic", "refused"),
        ("bootstrap", "remove_binding", "done"),
        ("anonymous", "authenticate", "refused"),
    } <= found
    assert key not in audit_file.read_text()
    assert wrong not in audit_file.read_text()

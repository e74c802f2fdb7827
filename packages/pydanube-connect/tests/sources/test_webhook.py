"""Tests of the listener for webhooks, with a real client."""

import asyncio
import hmac
import json
import ssl
from contextlib import asynccontextmanager

import httpx
import pytest

from pydanube_connect.sources.webhook import WebhookOptions, WebhookSource
from pydanube_connect.status import State
from support.drivers.connectors import declared, running
from support.servers.certificates import write_certificates
from support.servers.ports import free_port
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow

TOPIC = "/default/hooks"


@asynccontextmanager
async def listening(options, fields="", *, verify=True, scheme="http"):
    """A listener; yields a client of it and one of the broker."""
    address = f"127.0.0.1:{free_port()}"
    chosen = json.dumps({"listen": address, "path": "/in", **options})
    text = f"""
connectors:
  hook:
    kind: webhook-source
    topic: {TOPIC}
    options: {chosen}
{fields}"""
    async with (
        memory_broker() as broker,
        broker.connect() as client,
        running(declared(text, broker.url)) as until,
        httpx.AsyncClient(base_url=f"{scheme}://{address}", verify=verify) as http,
    ):
        await until(lambda all_: all_["hook"].state is State.RUNNING)
        yield http, client


async def messages_of(client, topic=TOPIC):
    return [each async for batch in client.read(topic) for each in batch]


def test_request_is_answered_when_its_message_is_stored():
    async def run():
        options = {"headers": ["X-Event"]}
        fields = "    mapping: {key: user.id}"
        async with listening(options, fields) as (http, client):
            body = {"user": {"id": 5}}
            answer = await http.post("/in", json=body, headers={"x-event": "push"})
            assert (answer.status_code, answer.json()) == (200, {"stored": 1})
            [message] = await messages_of(client)
            assert json.loads(message.payload) == body
            assert message.key == "5"
            assert message.attributes == {
                "webhook.path": "/in",
                "webhook.content_type": "application/json",
                "webhook.header.x-event": "push",
            }
            assert (await http.get("/in")).status_code == 405
            assert (await http.post("/out")).status_code == 404
            refused = await http.post("/in", content=b"{")
            assert refused.status_code == 422
            assert "not JSON" in refused.json()["error"]

    asyncio.run(run())


def test_repeated_request_is_stored_once():
    async def run():
        options = {"id_header": "X-Delivery", "body": "array"}
        async with listening(options, "    deduplicate: 1h") as (http, client):
            for _ in range(2):
                headers = {"x-delivery": "d-1"}
                answer = await http.post("/in", content=b"[1, 2]", headers=headers)
                assert answer.status_code == 200
            assert [m.payload for m in await messages_of(client)] == [b"1", b"2"]
            assert (await http.post("/in", content=b"{}")).status_code == 400
            assert (await http.post("/in", content=b"[]")).json() == {"stored": 0}

    asyncio.run(run())


def test_key_and_signature_are_required():
    async def run():
        options = {
            "api_keys": ["k-1", "k-2"],
            "signature": {"style": "github", "secret": "sesame"},
            "body": "lines",
        }
        async with listening(options) as (http, client):
            body = b"one\n\ntwo"
            digest = hmac.digest(b"sesame", body, "sha256").hex()
            signed = {"x-hub-signature-256": f"sha256={digest}"}
            for headers, status in (
                (signed, 401),
                ({"x-api-key": "k-2"}, 401),
                ({"x-api-key": "k-3", **signed}, 401),
                ({"x-api-key": "k-2", **signed}, 200),
                ({"authorization": "Bearer k-1", **signed}, 200),
            ):
                answer = await http.post("/in", content=body, headers=headers)
                assert answer.status_code == status
            assert [m.payload for m in await messages_of(client)] == [
                *(b"one", b"two", b"one", b"two")
            ]

    asyncio.run(run())


def test_size_and_rate_are_limited():
    async def run():
        options = {"body_bytes_max": "10B", "rate": 2}
        async with listening(options) as (http, client):

            async def chunks():
                yield b"x" * 6
                yield b"x" * 6

            assert (await http.post("/in", content=b"x" * 11)).status_code == 413
            assert (await http.post("/in", content=chunks())).status_code == 413
            limited = await http.post("/in", content=b"x")
            assert (limited.status_code, limited.headers["retry-after"]) == (429, "1")
            assert await client.topics.list("default") == [TOPIC]
            assert await messages_of(client) == []

    asyncio.run(run())


def test_listener_may_use_tls(tmp_path):
    files = write_certificates(tmp_path)
    authority, _ = files["ca"]
    certificate, key = files["server"]

    async def run():
        options = {"certificate_file": str(certificate), "key_file": str(key)}
        context = ssl.create_default_context(cafile=authority)
        async with listening(options, verify=context, scheme="https") as (http, _):
            assert (await http.post("/in", content=b"x")).status_code == 200

    asyncio.run(run())


def test_a_certificate_exists_and_has_a_key(tmp_path):
    options = WebhookOptions(
        path="/in", api_keys=["k"], certificate_file=str(tmp_path / "no.pem")
    )
    found = WebhookSource.problems(options)
    assert found.keys() == {"certificate_file", "key_file"}

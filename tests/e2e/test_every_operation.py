"""
No operation of any listener is carried out for a client without valid credentials.

The unit tests of the listeners have the other columns of the table: identities with and
without the permission.  All are generated from the tables of operations.
"""

from __future__ import annotations

import asyncio

import grpc
import httpx
import pytest

from pydanube.wire.native.connection import REVISION, StreamConnection
from pydanube.wire.native.kinds import OPERATIONS, Kind, Side
from pydanube.wire.pb import health_pb2
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.handlers import handlers
from pydanube_broker.servers.grpc.call_rules import CALL_RULES
from pydanube_broker.servers.http.operations import is_readable, path_of
from support.fakes.grpc_calls import connected
from support.fakes.listeners import port_of
from support.fakes.secured import ISSUER, claims, jwks, secured, signed
from support.fakes.streams import feed

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CREDENTIALS = {
    "none": lambda: "",
    "unknown key": lambda: f"danube_{'0' * 16}_{'a' * 43}",
    "token for another audience": lambda: signed(claims(aud="other")),
    "expired token": lambda: signed(claims(exp=1)),
}
REFUSALS = {"unauthenticated", "quota_exceeded"}
"""After 20 failed attempts, the address has to wait."""
OTHER_PATHS = ["/", "/metrics", "/api/v1/openapi.json", "/api/v1/no", "/no"]


@pytest.fixture
async def broker(tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(jwks())
    jwt = {"issuer": ISSUER, "audience": "danube", "keys_file": str(keys)}
    async with secured(tmp_path, jwt=jwt) as broker:
        yield broker


async def answers_of(port, sent):
    """Return all frames that a connection of the native protocol gets."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    received = await reader.read()
    writer.close()
    client = StreamConnection(Side.CLIENT)
    # Answers need their requests.
    client.request(Kind.HELLO, pb.Hello())
    return [each.message for each in feed(client, received)]


def request_of(kind, client):
    return client.request(kind, kind.body(), 1 if kind.on_channel else 0)[1]


async def test_operation_before_login_ends_the_connection(broker):
    for kind in sorted(OPERATIONS):
        sent = request_of(kind, StreamConnection(Side.CLIENT))
        [error] = await answers_of(port_of(broker.stream_url), sent)
        assert error.code == "protocol_violation", kind


@pytest.mark.parametrize("name", CREDENTIALS)
async def test_no_operation_follows_a_refused_login(broker, name):
    hello = pb.Hello(
        revision_min=REVISION,
        revision_max=REVISION,
        token=CREDENTIALS[name](),
    )
    for kind in sorted(OPERATIONS):
        client = StreamConnection(Side.CLIENT)
        sent = client.request(Kind.HELLO, hello)[1] + request_of(kind, client)
        [error] = await answers_of(port_of(broker.stream_url), sent)
        assert error.code in REFUSALS, kind


@pytest.mark.parametrize("name", CREDENTIALS)
async def test_no_method_of_grpc_is_carried_out(broker, name):
    credential = CREDENTIALS[name]()
    metadata = (("authorization", f"Bearer {credential}"),) if credential else ()
    served = set()
    for url in (broker.grpc_url, broker.admin_url):
        async with connected(port_of(url)) as call:
            for method in CALL_RULES:
                request = call.request_type(method)()
                started = call(method, request, metadata=metadata, timeout=60)
                answer = started.read() if hasattr(started, "read") else started
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await answer
                code = caught.value.code().name
                if code != "UNIMPLEMENTED":
                    assert code in {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}, method
                    served.add(method)
    assert served == set(CALL_RULES)


async def test_only_probes_of_grpc_need_no_credentials(broker):
    for url in (broker.grpc_url, broker.admin_url):
        async with connected(port_of(url)) as call:
            health = health_pb2.HealthCheckRequest()
            await call("grpc.health.v1.Health/Check", health)
            path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.channel.stream_stream(path)(iter([])).read()
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("name", CREDENTIALS)
async def test_no_request_of_http_is_carried_out(broker, name):
    credential = CREDENTIALS[name]()
    headers = {"authorization": f"Bearer {credential}"} if credential else {}
    requests = [("GET", path) for path in OTHER_PATHS]
    for kind in handlers():
        requests += [("POST", f"/api/v1{path_of(kind)}")]
        requests += [("GET", f"/api/v1{path_of(kind)}")] * is_readable(kind)
    async with httpx.AsyncClient(base_url=broker.http_url, headers=headers) as http:
        for method, path in requests:
            body = {} if method == "POST" else None
            answer = await http.request(method, path, json=body, timeout=60)
            assert answer.status_code in {401, 429}, (method, path)
            assert answer.json()["code"] in REFUSALS
        for path in ("/healthz", "/readyz"):
            assert (await http.get(path)).status_code == 200

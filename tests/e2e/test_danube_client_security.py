"""The Python client of the original Danube, with TLS, tokens and certificates."""

from __future__ import annotations

import asyncio

import pytest

import pydanube
from support.fakes.secured import (
    AUDIENCE,
    ISSUER,
    bootstrap_key,
    claims,
    jwks,
    secured,
    signed,
)
from support.servers.certificates import tls_settings, write_certificates
from support.servers.danube_client import ClientFailed, DanubeClient, encoded, payloads

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

OWN, SECRET = "/default/orders", "/bank/accounts"


@pytest.fixture
def files(tmp_path):
    return write_certificates(tmp_path)


@pytest.fixture
async def broker(tmp_path, files):
    keys = tmp_path / "keys.json"
    keys.write_text(jwks())
    jwt = {"issuer": ISSUER, "audience": AUDIENCE, "keys_file": str(keys)}
    async with secured(tmp_path, tls=tls_settings(files), jwt=jwt) as broker:
        yield broker


@pytest.fixture
async def admin(broker, tmp_path, files):
    async with pydanube.connect(
        broker.stream_url, ca_file=files["ca"][0], api_key=bootstrap_key(tmp_path)
    ) as client:
        await client.namespaces.create("bank")
        await client.topics.create(SECRET)
        yield client


def exchange(url, topic, **options):
    """Publish and receive a message, and return what arrives."""
    with DanubeClient(url, **options) as client:
        client.create_producer(name="p", topic=topic)
        client.subscribe(name="c", topic=topic, subscription="s", type="SHARED")
        client.send(producer="p", payload=encoded("hello"))
        return payloads(client.receive(consumer="c", count=1))


@pytest.mark.parametrize("kind", ["api-key", "token", "certificate"])
async def test_client_with_credentials_publishes_and_receives(
    broker, admin, files, kind
):
    options = {"ca_file": str(files["ca"][0])}
    match kind:
        case "api-key":
            options["token"] = (await admin.security.create_api_key("billing")).key
        case "token":
            options["token"] = signed(claims())
        case "certificate":
            options["certificate"] = [str(each) for each in files["client"]]
    found = await asyncio.to_thread(exchange, broker.grpc_url, OWN, **options)
    assert found == [b"hello"]
    with pytest.raises(ClientFailed, match=r"(?i)permission|not allowed"):
        await asyncio.to_thread(exchange, broker.grpc_url, SECRET, **options)


@pytest.mark.parametrize("kind", ["nothing", "wrong", "expired", "revoked"])
async def test_client_without_valid_credentials_is_refused(broker, admin, files, kind):
    options = {"ca_file": str(files["ca"][0])}
    match kind:
        case "wrong":
            options["token"] = f"danube_{'0' * 16}_{'a' * 43}"
        case "expired":
            options["token"] = signed(claims(exp=1))
        case "revoked":
            options["token"] = (await admin.security.create_api_key("billing")).key
            await admin.security.revoke_api_key("billing")
            with pytest.raises(pydanube.Unauthenticated):
                await look_again_and_again(broker, files, options["token"])
    with pytest.raises(ClientFailed, match=r"(?i)unauthenticated|credentials|token"):
        await asyncio.to_thread(exchange, broker.grpc_url, OWN, **options)
    assert OWN not in await admin.topics.list()


async def look_again_and_again(broker, files, key):
    while True:
        async with pydanube.connect(
            broker.stream_url, ca_file=files["ca"][0], api_key=key
        ) as client:
            await client.topics.list()


async def test_client_that_trusts_another_authority_does_not_connect(
    broker, admin, tmp_path
):
    other = tmp_path / "other"
    other.mkdir()
    options = {"ca_file": str(write_certificates(other)["ca"][0]), "token": "x"}
    with pytest.raises(ClientFailed):
        await asyncio.to_thread(exchange, broker.grpc_url, OWN, **options)
    assert OWN not in await admin.topics.list()
